/* Times calls on small pairs: drop_ins FILE COUNT. Prints a line for each kind of call: what, how many, their
 * nanoseconds, and those of the longest 64 in a row, or 0. Time is that of the processor; of sessions, which wait
 * for the device, it is that of the wall. Every answer is checked. Without arguments it ends at once.
 *
 * Compiled with one of GDBM, NDBM, DB185, HSEARCH. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double of_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The time that the program has had of a processor: others may run on the machine. */
static double now(void) { return of_clock(CLOCK_PROCESS_CPUTIME_ID); }

static void need(int claim, const char *what) {
  if (!claim) {
    fprintf(stderr, "wrong: %s, errno %d\n", what, errno);
    exit(1);
  }
}

static void said(const char *what, uint64_t calls, double nanoseconds, double longest) {
  printf("%s %llu %.0f %.0f\n", what, (unsigned long long)calls, nanoseconds, longest);
}

/* The number of the key after the I-th, in an order without pattern. */
static uint64_t mixed(uint64_t i, uint64_t count) { return i * 2654435761u % count; }

#ifdef HSEARCH
#include <search.h>

/* The table is told how many entries come, unless UNTOLD is set. */
static void run(const char *file, uint64_t count) {
  enum { STRIDE = 16, BURST = 64 };
  struct hsearch_data table;
  char *keys = malloc(count * STRIDE);
  uint64_t i;
  double begun, before, longest = 0;
  ENTRY entry, *found;
  (void)file;
  need(keys != NULL, "memory");
  for (i = 0; i < count; i++)
    /* The C library keeps 4 bits of each character: of decimal numbers many hashes are alike. */
    snprintf(keys + i * STRIDE, STRIDE, "%08x", (unsigned)(i * 2654435761u));
  memset(&table, 0, sizeof table);
  need(hcreate_r(getenv("UNTOLD") ? 0 : count, &table) != 0, "create");

  begun = before = now();
  for (i = 0; i < count; i++) {
    entry.key = keys + i * STRIDE;
    entry.data = (void *)(uintptr_t)(i + 1);
    need(hsearch_r(entry, ENTER, &found, &table) && found->data == entry.data, "enter");
    if (i % BURST == BURST - 1) {
      double after = now();
      longest = after - before > longest ? after - before : longest;
      before = after;
    }
  }
  said("enter", count, now() - begun, longest);

  begun = now();
  for (i = 0; i < count; i++) {
    uint64_t n = mixed(i, count);
    entry.key = keys + n * STRIDE;
    need(hsearch_r(entry, FIND, &found, &table) && found->data == (void *)(uintptr_t)(n + 1), "find");
  }
  said("find", count, now() - begun, 0);
  hdestroy_r(&table);
}

#else

#if defined GDBM
#include <gdbm.h>
typedef GDBM_FILE handle;
#elif defined NDBM
#include <ndbm.h>
typedef DBM *handle;
#else
#include <sys/types.h>
#include <db.h>
typedef DB *handle;
typedef DBT datum;
#define dptr data
#define dsize size
#endif

static datum pair(uint64_t *words, uint64_t n, uint64_t salt) {
  datum d;
  words[0] = n;
  words[1] = n ^ salt;
  d.dptr = (char *)words;
  d.dsize = 16;
  return d;
}

/* In what differs, the libraries are the same to the rest. NEXT is where a walk is. */
#if defined GDBM
static handle open_new(const char *file) { return gdbm_open((char *)file, 0, GDBM_NEWDB, 0600, NULL); }
static int store(handle db, datum key, datum value) { return gdbm_store(db, key, value, GDBM_INSERT); }
static datum fetch(handle db, datum key) { return gdbm_fetch(db, key); }
static datum first(handle db) { return gdbm_firstkey(db); }
static datum next(handle db, datum key) {
  datum next = gdbm_nextkey(db, key);
  free(key.dptr);
  return next;
}
static int close_it(handle db) { return gdbm_close(db); }
static void release(datum value) { free(value.dptr); }
static void remove_it(const char *file) { unlink(file); }
#elif defined NDBM
static handle open_new(const char *file) {
  return dbm_open((char *)file, O_RDWR | O_CREAT | O_TRUNC, 0600);
}
static int store(handle db, datum key, datum value) { return dbm_store(db, key, value, DBM_INSERT); }
static datum fetch(handle db, datum key) { return dbm_fetch(db, key); }
static datum first(handle db) { return dbm_firstkey(db); }
static datum next(handle db, datum key) {
  (void)key;
  return dbm_nextkey(db);
}
static int close_it(handle db) {
  dbm_close(db);
  return 0;
}
static void release(datum value) { (void)value; }
static void remove_it(const char *file) {
  char name[4096];
  snprintf(name, sizeof name, "%s.pag", file);
  unlink(name);
  snprintf(name, sizeof name, "%s.dir", file);
  unlink(name);
}
#else
static handle open_new(const char *file) {
  return dbopen(file, O_RDWR | O_CREAT | O_TRUNC, 0600, DB_HASH, NULL);
}
static int store(handle db, datum key, datum value) { return db->put(db, &key, &value, R_NOOVERWRITE); }
static datum fetch(handle db, datum key) {
  datum value = {0};
  return db->get(db, &key, &value, 0) == 0 ? value : (datum){0};
}
static datum first(handle db) {
  datum key = {0}, value = {0};
  return db->seq(db, &key, &value, R_FIRST) == 0 ? key : (datum){0};
}
static datum next(handle db, datum key) {
  datum value = {0};
  return db->seq(db, &key, &value, R_NEXT) == 0 ? key : (datum){0};
}
static int close_it(handle db) { return db->close(db); }
static void release(datum value) { (void)value; }
static void remove_it(const char *file) { unlink(file); }
#endif

static void run(const char *file, uint64_t count) {
  enum { SESSIONS = 200 };
  uint64_t i, key[2], value[2], sum = 0;
  double begun;
  datum found;
  handle db;
  remove_it(file);
  db = open_new(file);
  need(db != NULL, "open");

  begun = now();
  for (i = 0; i < count; i++)
    need(store(db, pair(key, i, 5), pair(value, i, 7)) == 0, "store");
  said("store", count, now() - begun, 0);

  begun = now();
  for (i = 0; i < count; i++) {
    uint64_t n = mixed(i, count), got[2];
    found = fetch(db, pair(key, n, 5));
    need(found.dptr && found.dsize == 16, "fetch");
    memcpy(got, found.dptr, 16);
    need(got[0] == n && got[1] == (n ^ 7), "value");
    release(found);
  }
  said("fetch", count, now() - begun, 0);

  begun = now();
  for (i = 0, found = first(db); found.dptr; found = next(db, found), i++) {
    uint64_t got;
    memcpy(&got, found.dptr, 8);
    sum += got;
  }
  need(i == count && sum == count * (count - 1) / 2, "walk");
  said("walk", count, now() - begun, 0);
  need(close_it(db) == 0, "close");

  begun = of_clock(CLOCK_MONOTONIC);
  for (i = 0; i < SESSIONS; i++) {
    remove_it(file);
    db = open_new(file);
    need(db && store(db, pair(key, i, 5), pair(value, i, 7)) == 0, "store");
    need(close_it(db) == 0, "close");
  }
  said("open-store-close", SESSIONS, of_clock(CLOCK_MONOTONIC) - begun, 0);
  remove_it(file);
}

#endif

int main(int argc, char **argv) {
  if (argc > 2)
    run(argv[1], strtoull(argv[2], NULL, 10));
  return 0;
}
