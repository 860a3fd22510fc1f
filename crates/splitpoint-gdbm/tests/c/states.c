/* Calls with wrong names, arguments and handles, and in states that a program should not bring about, as one line
 * each with the exact errno. */
#include <errno.h>
#include <fcntl.h>
#include <gdbm.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lines.h"

/* Prints a result with both numbers, and clears them. */
static void state(const char *what, long result) {
  int of_system = errno, of_gdbm = gdbm_errno;
  printf("%s: %ld, gdbm_errno %d, errno %d\n", what, result, of_gdbm, of_system);
  gdbm_errno = 0;
  errno = 0;
}

static void opened(const char *what, const char *name, int block_size, int flags, int mode) {
  GDBM_FILE db;
  errno = 0;
  gdbm_errno = 0;
  db = gdbm_open(name, block_size, flags, mode, NULL);
  state(what, db != NULL);
  if (db != NULL) gdbm_close(db);
}

static void got(const char *what, datum found) {
  state(what, found.dptr != NULL);
  free(found.dptr);
}

/* Makes a file of so many bytes that are no database. */
static void scribble(const char *name, int bytes) {
  FILE *f = fopen(name, "w");
  while (bytes-- > 0) fputc('x', f);
  fclose(f);
}

static void names(void) {
  char name[5000];
  memset(name, 'n', sizeof name);
  name[4999] = 0;
  opened("a name beyond all limits", name, 0, GDBM_WRCREAT, 0600);
  name[300] = 0;
  opened("a long name, read", name, 0, GDBM_READER, 0);
  opened("a long name, created", name, 0, GDBM_WRCREAT, 0600);
  opened("the empty name", "", 0, GDBM_WRCREAT, 0600);
  opened("no name", NULL, 0, GDBM_READER, 0);
  opened("in a missing folder", "missing/x", 0, GDBM_WRCREAT, 0600);
  scribble("plain", 1);
  opened("below a file", "plain/x", 0, GDBM_WRCREAT, 0600);
  if (symlink("loop", "loop") == 0) opened("a link to itself", "loop", 0, GDBM_WRCREAT, 0600);
  if (symlink("target", "link") == 0) {
    opened("a link to nothing, read", "link", 0, GDBM_READER, 0);
    opened("a link to nothing, written", "link", 0, GDBM_WRITER, 0);
    opened("a link to nothing, created", "link", 0, GDBM_WRCREAT, 0600);
    printf("its target is there: %d\n", access("target", F_OK) == 0);
  }
}

static void strangers(void) {
  static const int sizes[] = {1, 39, 40, 41, 4000};
  size_t i;
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct stat st;
    scribble("plain", sizes[i]);
    printf("%d bytes: ", sizes[i]);
    opened("read", "plain", 0, GDBM_READER, 0);
    opened("written", "plain", 0, GDBM_WRITER, 0);
    opened("created", "plain", 0, GDBM_WRCREAT, 0600);
    stat("plain", &st);
    printf("untouched: %d\n", st.st_size == sizes[i]);
  }
  opened("replaced", "plain", 0, GDBM_NEWDB, 0600);
  opened("a folder, created", ".", 0, GDBM_WRCREAT, 0600);
  opened("a folder, replaced", ".", 0, GDBM_NEWDB, 0600);
}

static void flags(void) {
  int mode;
  for (mode = 4; mode < 8; mode++) opened("an unknown mode", "flags.db", 0, mode, 0600);
  opened("all flags", "flags.db", 0, -1, 0600);
  opened("an unknown flag", "flags.db", 0, GDBM_WRCREAT | 0x10000, 0600);
  opened("a reader that counts syncs", "flags.db", 0, GDBM_READER | GDBM_NUMSYNC, 0);
  opened("a huge block", "huge.db", INT_MAX, GDBM_NEWDB, 0600);
  opened("a negative block", "negative.db", -5, GDBM_NEWDB, 0600);
}

static void set(GDBM_FILE db, const char *what, int option, void *value, int bytes) {
  state(what, gdbm_setopt(db, option, value, bytes));
}

static void arguments(GDBM_FILE db) {
  datum none = {NULL, 0}, no_bytes = {NULL, 5};
  GDBM_FILE loaded = db;
  size_t bytes = 0;
  int value = 0;
  state("no key", gdbm_store(db, none, text("v"), GDBM_REPLACE));
  state("a key at null", gdbm_store(db, no_bytes, text("v"), GDBM_REPLACE));
  state("no value", gdbm_store(db, text("k"), none, GDBM_REPLACE));
  state("an empty pair", gdbm_store(db, text(""), text(""), GDBM_REPLACE));
  state("an unknown flag", gdbm_store(db, text("k"), text("v"), -1));
  state("again", gdbm_store(db, text("k"), text("w"), 2));
  got("fetch of an absent key", gdbm_fetch(db, text("absent")));
  got("fetch of none", gdbm_fetch(db, none));
  state("exists", gdbm_exists(db, text("absent")));
  state("delete", gdbm_delete(db, text("absent")));
  got("after an absent key", gdbm_nextkey(db, text("absent")));
  got("after none", gdbm_nextkey(db, none));
  set(db, "no value of an option", GDBM_SETSYNCMODE, NULL, sizeof value);
  set(db, "no bytes of an option", GDBM_SETSYNCMODE, &value, 0);
  set(db, "fewer than none", GDBM_SETSYNCMODE, &value, -4);
  set(db, "no place for an option", GDBM_GETSYNCMODE, NULL, sizeof value);
  set(db, "an int for a name", GDBM_GETDBNAME, &value, sizeof value);
  set(db, "a map of no bytes", GDBM_SETMAXMAPSIZE, &bytes, sizeof bytes);
  set(db, "its size", GDBM_GETMAXMAPSIZE, &bytes, sizeof bytes);
  printf("map size %zu\n", bytes);
  set(db, "a cache of none", GDBM_SETCACHESIZE, &value, sizeof value);
  state("an unknown format", gdbm_convert(db, -1));
  state("a format twice", gdbm_convert(db, GDBM_NUMSYNC));
  state("a format twice", gdbm_convert(db, GDBM_NUMSYNC));
  state("export to a missing folder", gdbm_export(db, "missing/x", GDBM_NEWDB, 0600));
  state("export to a folder", gdbm_export(db, ".", GDBM_NEWDB, 0600));
  state("import of a missing file", gdbm_import(db, "missing", GDBM_REPLACE));
  state("dump to a missing folder",
        gdbm_dump(db, "missing/x", GDBM_DUMP_FMT_ASCII, GDBM_NEWDB, 0600));
  state("dump to a folder", gdbm_dump(db, ".", GDBM_DUMP_FMT_ASCII, GDBM_NEWDB, 0600));
  state("load of a missing file", gdbm_load(&loaded, "missing", GDBM_REPLACE, 3, NULL));
  state("reorganize", gdbm_reorganize(db));
  state("recover", gdbm_recover(db, NULL, GDBM_RCVR_BACKUP));
  gdbm_set_errno(db, 99, 0);
  printf("a number that there is not: %d\n", gdbm_last_errno(db));
  gdbm_clear_error(db);
  gdbm_errno = 0;
  errno = 0;
}

/* Each call of a handle that a failure has left unusable. */
static void broken(GDBM_FILE db) {
  gdbm_count_t count;
  size_t buckets;
  int value;
  gdbm_set_errno(db, GDBM_BAD_BUCKET, 1);
  gdbm_errno = 0;
  errno = 0;
  state("broken: store", gdbm_store(db, text("a"), text("b"), GDBM_REPLACE));
  got("broken: fetch", gdbm_fetch(db, text("a")));
  state("broken: exists", gdbm_exists(db, text("a")));
  state("broken: delete", gdbm_delete(db, text("a")));
  got("broken: firstkey", gdbm_firstkey(db));
  got("broken: nextkey", gdbm_nextkey(db, text("a")));
  state("broken: count", gdbm_count(db, &count));
  state("broken: bucket_count", gdbm_bucket_count(db, &buckets));
  state("broken: avail_verify", gdbm_avail_verify(db));
  state("broken: sync", gdbm_sync(db));
  state("broken: reorganize", gdbm_reorganize(db));
  set(db, "broken: setopt", GDBM_GETFLAGS, &value, sizeof value);
  state("broken: convert", gdbm_convert(db, 0));
  state("broken: failure_atomic", gdbm_failure_atomic(db, "even", "odd"));
  state("broken: export", gdbm_export(db, "broken.flat", GDBM_NEWDB, 0600));
  state("broken: dump", gdbm_dump(db, "broken.ascii", GDBM_DUMP_FMT_ASCII, GDBM_NEWDB, 0600));
  state("broken: fdesc", gdbm_fdesc(db) >= 0);
  state("broken: close", gdbm_close(db));
}

/* The calls of a null handle with which the original goes on. */
static void no_handle(void) {
  state("no handle: last_errno", gdbm_last_errno(NULL));
  state("no handle: last_syserr", gdbm_last_syserr(NULL));
  state("no handle: needs_recovery", gdbm_needs_recovery(NULL));
}

/* A database whose file has no name any more, and one that the disk has no room for. */
static void gone(void) {
  GDBM_FILE db = gdbm_open("gone.db", 0, GDBM_NEWDB, 0600, NULL);
  struct rlimit limit;
  char big[5000];
  int i;
  memset(big, 'x', sizeof big);
  big[4999] = 0;
  unlink("gone.db");
  errno = 0;
  state("gone: store", gdbm_store(db, text("a"), text("b"), GDBM_REPLACE));
  got("gone: fetch", gdbm_fetch(db, text("a")));
  state("gone: sync", gdbm_sync(db));
  state("gone: reorganize", gdbm_reorganize(db));
  got("gone: fetch", gdbm_fetch(db, text("a")));
  state("gone: close", gdbm_close(db));
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = 60000;
  setrlimit(RLIMIT_FSIZE, &limit);
  db = gdbm_open("full.db", 512, GDBM_NEWDB, 0600, NULL);
  for (i = 0; i < 400; i++) {
    char key[20];
    sprintf(key, "%d", i);
    errno = 0;
    if (gdbm_store(db, text(key), text(big), GDBM_REPLACE) != 0) break;
  }
  state("full: store", i < 400 ? -1 : 0);
  state("full: close", gdbm_close(db));
}

int main(void) {
  GDBM_FILE db;
  names();
  strangers();
  flags();
  db = gdbm_open("states.db", 0, GDBM_NEWDB, 0600, NULL);
  arguments(db);
  state("close", gdbm_close(db));
  db = gdbm_open("states.db", 0, GDBM_READER, 0, NULL);
  puts("a reader");
  arguments(db);
  broken(db);
  broken(gdbm_open("states.db", 0, GDBM_WRITER, 0, NULL));
  no_handle();
  gone();
  return 0;
}
