/* Options, error texts, flags, and what is left of the functions, as one line each: the same lines with every library
 * of this interface. */
#include <errno.h>
#include <fcntl.h>
#include <gdbm.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "lines.h"

static void set_int(GDBM_FILE db, const char *what, int option, int value) {
  printf("%s to %d: ", what, value);
  line("set", gdbm_setopt(db, option, &value, sizeof value));
}

static void set_size(GDBM_FILE db, const char *what, int option, size_t value) {
  printf("%s to %zu: ", what, value);
  line("set", gdbm_setopt(db, option, &value, sizeof value));
}

static void get_int(GDBM_FILE db, const char *what, int option) {
  int value = -7;
  int result = gdbm_setopt(db, option, &value, sizeof value);
  printf("%s is %d: ", what, value);
  line("get", result);
}

static void get_size(GDBM_FILE db, const char *what, int option) {
  size_t value = 7;
  int result = gdbm_setopt(db, option, &value, sizeof value);
  printf("%s is %zu: ", what, value);
  line("get", result);
}

static void options(void) {
  GDBM_FILE db = gdbm_open("options.db", 0, GDBM_NEWDB, 0600, NULL);
  static const int switches[][2] = {{GDBM_SETCOALESCEBLKS, GDBM_GETCOALESCEBLKS},
                                    {GDBM_SETSYNCMODE, GDBM_GETSYNCMODE},
                                    {GDBM_SETMMAP, GDBM_GETMMAP},
                                    {GDBM_SETCACHEAUTO, GDBM_GETCACHEAUTO}};
  size_t i;
  int value, wrong, numbers[] = {0, 1, 2, -1};
  char byte = 1;
  for (i = 0; i < sizeof switches / sizeof *switches; i++) {
    char what[40];
    size_t n;
    sprintf(what, "switch %d", switches[i][0]);
    get_int(db, what, switches[i][1]);
    for (n = 0; n < sizeof numbers / sizeof *numbers; n++) {
      set_int(db, what, switches[i][0], numbers[n]);
      get_int(db, what, switches[i][1]);
    }
    line("one byte", gdbm_setopt(db, switches[i][0], &byte, 1));
    line("get one byte", gdbm_setopt(db, switches[i][1], &byte, 1));
  }
  set_int(db, "fast mode", GDBM_FASTMODE, 1);
  get_int(db, "sync mode", GDBM_GETSYNCMODE);
  set_int(db, "fast mode", GDBM_FASTMODE, 0);
  get_int(db, "sync mode", GDBM_GETSYNCMODE);
  set_int(db, "sync mode", GDBM_SETSYNCMODE, 0);
  set_int(db, "centfree", GDBM_SETCENTFREE, 0);
  get_int(db, "centfree", GDBM_GETCENTFREE);
  get_size(db, "map size", GDBM_GETMAXMAPSIZE);
  set_size(db, "map size", GDBM_SETMAXMAPSIZE, 100000);
  get_size(db, "map size", GDBM_GETMAXMAPSIZE);
  set_size(db, "map size", GDBM_SETMAXMAPSIZE, SIZE_MAX);
  get_size(db, "map size", GDBM_GETMAXMAPSIZE);
  get_int(db, "map size", GDBM_GETMAXMAPSIZE);
  line("map size of one byte", gdbm_setopt(db, GDBM_SETMAXMAPSIZE, &byte, 1));
  for (value = 1; value < 3000; value = value * 3 + 1) {
    set_int(db, "cache size", GDBM_SETCACHESIZE, value);
    get_size(db, "cache size", GDBM_GETCACHESIZE);
  }
  set_size(db, "cache size", GDBM_SETCACHESIZE, 200);
  get_int(db, "cache size", GDBM_GETCACHESIZE);
  get_int(db, "cache auto", GDBM_GETCACHEAUTO);
  line("cache size of one byte", gdbm_setopt(db, GDBM_SETCACHESIZE, &byte, 1));
  line("name of another size", gdbm_setopt(db, GDBM_GETDBNAME, &byte, 1));
  get_int(db, "block size", GDBM_GETBLOCKSIZE);
  value = 0;
  line("depth", gdbm_setopt(db, GDBM_GETDIRDEPTH, &value, sizeof value));
  printf("depth > 0: %d\n", value > 0);
  value = 0;
  line("bucket size", gdbm_setopt(db, GDBM_GETBUCKETSIZE, &value, sizeof value));
  printf("bucket size > 0: %d\n", value > 0);
  for (wrong = -1; wrong < 30; wrong++)
    if (wrong < 1 || wrong > 21) {
      value = 1;
      printf("option %d: ", wrong);
      line("set", gdbm_setopt(db, wrong, &value, sizeof value));
    }
  line("store", gdbm_store(db, text("a"), text("b"), GDBM_INSERT));
  line("close", gdbm_close(db));
}

static void flags(void) {
  static const int all[] = {GDBM_FAST, GDBM_SYNC, GDBM_NOLOCK, GDBM_NOMMAP, GDBM_CLOEXEC,
      GDBM_PREREAD, GDBM_XVERIFY, GDBM_NUMSYNC};
  size_t i;
  for (i = 0; i < sizeof all / sizeof *all; i++) {
    int mode;
    for (mode = GDBM_NEWDB; mode >= GDBM_READER; mode--) {
      GDBM_FILE db = gdbm_open("flags.db", 1024, mode | all[i], 0600, NULL);
      printf("flag %#x, mode %d: ", all[i], mode);
      line("open", db != NULL);
      if (db == NULL) continue;
      if (mode != GDBM_READER) line("store", gdbm_store(db, text("a"), text("b"), GDBM_REPLACE));
      get_int(db, "flags", GDBM_GETFLAGS);
      get_int(db, "mmap", GDBM_GETMMAP);
      get_int(db, "sync mode", GDBM_GETSYNCMODE);
      get_int(db, "format", GDBM_GETDBFORMAT);
      get_int(db, "block size", GDBM_GETBLOCKSIZE);
      line("exists", gdbm_exists(db, text("a")));
      line("close", gdbm_close(db));
    }
  }
}

/* What the flags say when options and the format have changed, of a database that was made without any. */
static void flags_now(void) {
  static const int all[] = {0, GDBM_FAST, GDBM_SYNC, GDBM_NOLOCK, GDBM_NOMMAP, GDBM_CLOEXEC,
      GDBM_BSEXACT, GDBM_CLOERROR, GDBM_XVERIFY, GDBM_PREREAD, GDBM_NUMSYNC};
  size_t i;
  line("close", gdbm_close(gdbm_open("now.db", 0, GDBM_NEWDB, 0600, NULL)));
  for (i = 0; i < sizeof all / sizeof *all; i++) {
    GDBM_FILE db = gdbm_open("now.db", 0, GDBM_WRITER | all[i], 0600, NULL);
    printf("flag %#x: ", all[i]);
    get_int(db, "flags", GDBM_GETFLAGS);
    set_int(db, "mmap", GDBM_SETMMAP, 0);
    get_int(db, "flags", GDBM_GETFLAGS);
    set_int(db, "sync mode", GDBM_SETSYNCMODE, 1);
    line("convert", gdbm_convert(db, GDBM_NUMSYNC));
    get_int(db, "flags", GDBM_GETFLAGS);
    line("convert", gdbm_convert(db, 0));
    line("close", gdbm_close(db));
  }
}

static void block_sizes(void) {
  static const int sizes[] = {-1, 0, 1, 511, 512, 513, 1024, 4096, 4097, 8192, 65536};
  size_t i;
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    GDBM_FILE db;
    unlink("block.db");
    db = gdbm_open("block.db", sizes[i], GDBM_WRCREAT | GDBM_BSEXACT, 0600, NULL);
    printf("exactly %d: ", sizes[i]);
    line("open", db != NULL);
    printf("is there: %d\n", access("block.db", F_OK) == 0);
    if (db != NULL) {
      get_int(db, "block size", GDBM_GETBLOCKSIZE);
      line("close", gdbm_close(db));
      db = gdbm_open("block.db", 700, GDBM_WRITER | GDBM_BSEXACT, 0600, NULL);
      line("open with another", db != NULL);
      if (db != NULL) gdbm_close(db);
    }
  }
}

static void errors(void) {
  static const int compared[] = {GDBM_NO_ERROR, GDBM_BLOCK_SIZE_ERROR, GDBM_ITEM_NOT_FOUND,
      GDBM_READER_CANT_STORE, GDBM_READER_CANT_DELETE, GDBM_CANNOT_REPLACE};
  size_t n;
  int i;
  for (n = 0; n < sizeof compared / sizeof *compared; n++) printf("%d %s\n", compared[n],
      gdbm_strerror(compared[n]));
  for (i = _GDBM_MIN_ERRNO; i <= _GDBM_MAX_ERRNO; i++)
    printf("%d syserr %d %d, same text %d\n", i, gdbm_check_syserr(i), gdbm_syserr[i],
        strcmp(gdbm_errlist[i], gdbm_strerror(i)) == 0);
  printf("of others: %d %d, %d %d\n", gdbm_strerror(-1) != NULL, gdbm_strerror(1000) != NULL,
      gdbm_check_syserr(-1), gdbm_check_syserr(1000));
}

static void metadata(void) {
  GDBM_FILE one = gdbm_open("one.db", 0, GDBM_NEWDB, 0640, NULL), other = gdbm_open("other.db",
      0, GDBM_NEWDB, 0600, NULL);
  struct stat st;
  size_t accesses = 9, hits = 9, count = 9;
  line("copy_meta", gdbm_copy_meta(other, one));
  stat("other.db", &st);
  printf("mode %o\n", (unsigned)st.st_mode & 0777);
  gdbm_store(one, text("a"), text("b"), GDBM_INSERT);
  gdbm_get_cache_stats(one, &accesses, &hits, &count, NULL, 0);
  printf("cache: %d\n", accesses >= hits && count < 100);
  gdbm_get_cache_stats(one, NULL, NULL, NULL, NULL, 0);
  line("close", gdbm_close(one));
  line("close", gdbm_close(other));
}

static void streams(void) {
  GDBM_FILE db = gdbm_open("streams.db", 0, GDBM_NEWDB, 0640, NULL), copy;
  FILE *f;
  unsigned long failed_at = 99;
  gdbm_store(db, text("a"), text("b"), GDBM_INSERT);
  gdbm_store(db, text("key"), text(""), GDBM_INSERT);
  f = fopen("binary", "w");
  line("export_to_file", gdbm_export_to_file(db, f));
  fclose(f);
  f = fopen("ascii", "w");
  line("dump_to_file", gdbm_dump_to_file(db, f, GDBM_DUMP_FMT_ASCII));
  fclose(f);
  f = fopen("ascii2", "w");
  line("dump_to_file, no format", gdbm_dump_to_file(db, f, 7));
  fclose(f);
  line("close", gdbm_close(db));
  copy = gdbm_open("copy.db", 0, GDBM_NEWDB, 0600, NULL);
  f = fopen("binary", "r");
  line("import_from_file", gdbm_import_from_file(copy, f, GDBM_REPLACE));
  rewind(f);
  line("import_from_file, not over", gdbm_import_from_file(copy, f, GDBM_INSERT));
  fclose(f);
  line("close", gdbm_close(copy));
  copy = gdbm_open("copy.db", 0, GDBM_READER, 0600, NULL);
  f = fopen("binary", "r");
  line("import_from_file by a reader", gdbm_import_from_file(copy, f, GDBM_REPLACE));
  fclose(f);
  gdbm_close(copy);
  f = fopen("broken", "w");
  fputs("# GDBM dump file created by hand\n#:version=1.1\n#:file=broken.db\n"
        "#:format=standard\n# End of header\n#:len=1\nYQ==\n#:len=1\n!!!!\n#:count=1\n"
        "# End of data\n", f);
  fclose(f);
  copy = NULL;
  line("load of what is broken", gdbm_load(&copy, "broken", GDBM_REPLACE,
      GDBM_META_MASK_MODE | GDBM_META_MASK_OWNER, &failed_at));
  printf("line %lu\n", failed_at);
  if (copy) gdbm_close(copy);
  f = fopen("nameless", "w");
  fputs("# GDBM dump file created by hand\n#:version=1.1\n#:format=standard\n"
        "# End of header\n#:len=1\nYQ==\n#:len=1\nYg==\n#:count=1\n# End of data\n", f);
  fclose(f);
  copy = NULL;
  line("load without a name", gdbm_load(&copy, "nameless", GDBM_REPLACE,
      GDBM_META_MASK_MODE | GDBM_META_MASK_OWNER, NULL));
  if (copy) gdbm_close(copy);
  copy = gdbm_open("loaded.db", 0, GDBM_NEWDB, 0600, NULL);
  line("load into one", gdbm_load(&copy, "nameless", GDBM_REPLACE,
      GDBM_META_MASK_MODE | GDBM_META_MASK_OWNER, NULL));
  line("load not over", gdbm_load(&copy, "nameless", GDBM_INSERT,
      GDBM_META_MASK_MODE | GDBM_META_MASK_OWNER, NULL));
  f = fopen("ascii", "r");
  line("load_from_file", gdbm_load_from_file(&copy, f, GDBM_REPLACE,
      GDBM_META_MASK_MODE | GDBM_META_MASK_OWNER, NULL) != 0);
  fclose(f);
  line("close", gdbm_close(copy));
}

/* Snapshots are told apart by their modes, numbers and times. */
static void snapshot(const char *name, mode_t mode, int syncs, int second) {
  struct timeval times[2] = {{1000000000 + second, 0}, {1000000000 + second, 0}};
  GDBM_FILE db;
  unlink(name);
  db = gdbm_open(name, 0, GDBM_NEWDB | (syncs >= 0 ? GDBM_NUMSYNC : 0), 0600, NULL);
  gdbm_store(db, text("a"), text(name), GDBM_REPLACE);
  while (syncs-- > 0) gdbm_sync(db);
  gdbm_close(db);
  utimes(name, times);
  chmod(name, mode);
}

static void latest(const char *what) {
  const char *name = "none";
  int result = gdbm_latest_snapshot("even", "odd", &name);
  printf("%s: %d, %s\n", what, result,
      result == GDBM_SNAPSHOT_OK || result == GDBM_SNAPSHOT_SUSPICIOUS ? name : "-");
}

/* Files that are no snapshots. */
static void others(void) {
  snapshot("even", 0400, -1, 0);
  snapshot("odd", 0600, -1, 1);
  latest("of another mode");
  snapshot("odd", 0000, -1, 1);
  latest("of no mode");
  snapshot("even", 0200, -1, 0);
  latest("of no mode and written");
  unlink("odd");
  mkdir("odd", 0700);
  latest("a folder");
  rmdir("odd");
  chmod("even", 0400);
  if (symlink("even", "odd") == 0) latest("a link to the other");
  printf("the same name: %d\n", gdbm_latest_snapshot("even", "even", NULL));
}

static void snapshots(void) {
  unlink("even");
  unlink("odd");
  latest("none");
  snapshot("even", 0400, 3, 0);
  latest("one");
  snapshot("odd", 0200, 4, 0);
  latest("one is written");
  snapshot("odd", 0400, 4, 0);
  latest("by number");
  snapshot("odd", 0400, 9, 0);
  latest("numbers far apart");
  snapshot("odd", 0400, 3, 5);
  latest("equal numbers");
  snapshot("even", 0200, 3, 0);
  snapshot("odd", 0200, 4, 0);
  latest("both are written");
  snapshot("even", 0400, -1, 0);
  snapshot("odd", 0400, -1, 9);
  latest("by time");
  snapshot("odd", 0400, -1, 0);
  latest("equal times");
  others();
}

int main(void) {
  options();
  flags();
  flags_now();
  block_sizes();
  errors();
  metadata();
  streams();
  snapshots();
  return 0;
}
