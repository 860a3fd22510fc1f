/* Times calls on small pairs: race FILE COUNT. Prints a line each: what, nanoseconds a call. Every
 * answer is checked. */
#include <gdbm.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void need(int claim, const char *what) {
  if (!claim) {
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
  }
}

/* The number of the key after the I-th, in an order without pattern. */
static uint64_t mixed(uint64_t i, uint64_t count) { return i * 2654435761u % count; }

static datum pair(uint64_t *words, uint64_t n, uint64_t salt, int size) {
  datum d;
  words[0] = n;
  words[1] = n ^ salt;
  d.dptr = (char *)words;
  d.dsize = size;
  return d;
}

int main(int argc, char **argv) {
  uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000, i, key[2], value[2], sum = 0;
  double begun;
  datum found, next;
  GDBM_FILE db = gdbm_open(argv[1], 0, GDBM_NEWDB, 0600, NULL);
  need(db != NULL, "open");

  begun = now();
  for (i = 0; i < count; i++)
    need(gdbm_store(db, pair(key, i, 5, 16), pair(value, i, 7, 16), GDBM_INSERT) == 0, "store");
  printf("store %.0f\n", (now() - begun) / (double)count);

  begun = now();
  for (i = 0; i < count; i++) {
    uint64_t n = mixed(i, count), got[2];
    found = gdbm_fetch(db, pair(key, n, 5, 16));
    need(found.dptr && found.dsize == 16, "fetch");
    memcpy(got, found.dptr, 16);
    need(got[0] == n && got[1] == (n ^ 7), "value");
    free(found.dptr);
  }
  printf("fetch %.0f\n", (now() - begun) / (double)count);

  begun = now();
  for (i = 0, found = gdbm_firstkey(db); found.dptr; found = next, i++) {
    uint64_t got;
    memcpy(&got, found.dptr, 8);
    sum += got;
    next = gdbm_nextkey(db, found);
    free(found.dptr);
  }
  need(i == count && sum == count * (count - 1) / 2, "walk");
  printf("walk %.0f\n", (now() - begun) / (double)count);
  need(gdbm_close(db) == 0, "close");

  begun = now();
  for (i = 0; i < 200; i++) {
    unlink(argv[1]);
    db = gdbm_open(argv[1], 0, GDBM_WRCREAT, 0600, NULL);
    need(db && gdbm_store(db, pair(key, i, 5, 16), pair(value, i, 7, 16), GDBM_INSERT) == 0, "store");
    need(gdbm_close(db) == 0, "close");
  }
  printf("open-store-close %.0f\n", (now() - begun) / 200);
  return 0;
}
