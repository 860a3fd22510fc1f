/* Times sessions of one call on a gdbm file: sessions FILE PAIRS COUNT. Prints the microseconds of the wall for a
 * session that replaces a value, one that reads it, and one that makes the file and stores a pair.
 *
 * cc -O2 sessions.c -o sessions -lgdbm; with a drop-in: LD_LIBRARY_PATH=PREFIX/lib/splitpoint/drop-in */
#define _GNU_SOURCE
#include <gdbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void need(int claim, const char *what) {
  if (!claim) {
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
  }
}

static datum bytes_of(long *number) {
  datum bytes = {(char *)number, sizeof *number};
  return bytes;
}

static void session(char *file, int mode, long key, long value) {
  GDBM_FILE db = gdbm_open(file, 0, mode, 0600, NULL);
  need(db != NULL, "open");
  if (mode == GDBM_READER) {
    datum found = gdbm_fetch(db, bytes_of(&key));
    need(found.dptr != NULL, "fetch");
    free(found.dptr);
  } else
    need(gdbm_store(db, bytes_of(&key), bytes_of(&value), GDBM_REPLACE) == 0, "store");
  need(gdbm_close(db) == 0, "close");
}

int main(int argc, char **argv) {
  long i, pairs = argc == 4 ? atol(argv[2]) : 0, count = argc == 4 ? atol(argv[3]) : 0;
  double begun, again, read;
  GDBM_FILE db;
  need(pairs > 0 && count > 0, "arguments");
  db = gdbm_open(argv[1], 0, GDBM_NEWDB, 0600, NULL);
  need(db != NULL, "open");
  for (i = 0; i < pairs; i++)
    need(gdbm_store(db, bytes_of(&i), bytes_of(&i), GDBM_REPLACE) == 0, "store");
  need(gdbm_close(db) == 0, "close");

  begun = now();
  for (i = 0; i < count; i++)
    session(argv[1], GDBM_WRITER, i % pairs, i);
  again = now() - begun;
  begun = now();
  for (i = 0; i < count; i++)
    session(argv[1], GDBM_READER, i % pairs, 0);
  read = now() - begun;
  begun = now();
  for (i = 0; i < count; i++) {
    unlink(argv[1]);
    session(argv[1], GDBM_NEWDB, 0, i);
  }
  printf("again %.1f us, read %.1f us, new %.1f us\n", again / (double)count, read / (double)count,
         (now() - begun) / (double)count);
  return 0;
}
