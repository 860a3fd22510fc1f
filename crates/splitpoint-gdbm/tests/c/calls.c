/* What the functions return, as one line each: the same lines with every library of this interface. */
#include <errno.h>
#include <fcntl.h>
#include <gdbm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lines.h"

static void value(const char *what, datum d) {
  if (d.dptr)
    printf("%s: %d bytes, begins %.*s\n", what, d.dsize, d.dsize > 8 ? 8 : d.dsize, d.dptr);
  line(what, d.dptr != NULL);
  free(d.dptr);
}

static int option(GDBM_FILE db, int number) {
  int found = -7;
  line("option", gdbm_setopt(db, number, &found, sizeof found));
  return found;
}

static void opens(void) {
  GDBM_FILE db;
  FILE *f;
  line("open absent to read", gdbm_open("absent", 0, GDBM_READER, 0, NULL) != NULL);
  line("open absent to write", gdbm_open("absent", 0, GDBM_WRITER, 0, NULL) != NULL);
  line("open a folder to read", gdbm_open(".", 0, GDBM_READER, 0, NULL) != NULL);
  line("open a folder to write", gdbm_open(".", 0, GDBM_WRITER, 0, NULL) != NULL);
  line("open with another mode", gdbm_open("x.db", 0, 4, 0600, NULL) != NULL);
  f = fopen("text", "w");
  fputs("no database, but text of some length that is longer than any header of a file\n", f);
  fclose(f);
  line("open text to read", gdbm_open("text", 0, GDBM_READER, 0, NULL) != NULL);
  line("open text to write", gdbm_open("text", 0, GDBM_WRCREAT, 0600, NULL) != NULL);
  f = fopen("empty", "w");
  fclose(f);
  line("open an empty file to read", gdbm_open("empty", 0, GDBM_READER, 0, NULL) != NULL);
  db = gdbm_open("empty", 0, GDBM_WRITER, 0600, NULL);
  line("open an empty file to write", db != NULL);
  line("close", gdbm_close(db));
  db = gdbm_open("exact", 1000, GDBM_NEWDB | GDBM_BSEXACT, 0600, NULL);
  line("open with a block size that is not exact", db != NULL);
}

static void blocks(void) {
  const int sizes[] = {512, 518, 1025, 5000};
  int i;
  for (i = 0; i < 4; i++) {
    GDBM_FILE db = gdbm_open("block.db", sizes[i], GDBM_NEWDB, 0600, NULL);
    printf("block size %d: %d\n", sizes[i], option(db, GDBM_GETBLOCKSIZE));
    gdbm_close(db);
    db = gdbm_open("block.db", 4096, GDBM_READER, 0, NULL);
    printf("block size again: %d\n", option(db, GDBM_GETBLOCKSIZE));
    gdbm_close(db);
  }
}

static void locks(void) {
  GDBM_FILE writer = gdbm_open("lock.db", 0, GDBM_NEWDB, 0600, NULL), reader, other;
  line("a second writer", gdbm_open("lock.db", 0, GDBM_WRITER, 0, NULL) != NULL);
  line("a reader beside a writer", gdbm_open("lock.db", 0, GDBM_READER, 0, NULL) != NULL);
  line("NEWDB beside a writer", gdbm_open("lock.db", 0, GDBM_NEWDB, 0600, NULL) != NULL);
  gdbm_close(writer);
  reader = gdbm_open("lock.db", 0, GDBM_READER, 0, NULL);
  other = gdbm_open("lock.db", 0, GDBM_READER, 0, NULL);
  line("two readers", reader != NULL && other != NULL);
  line("a writer beside readers", gdbm_open("lock.db", 0, GDBM_WRITER, 0, NULL) != NULL);
  gdbm_close(reader);
  gdbm_close(other);
}

static void pairs(void) {
  GDBM_FILE db = gdbm_open("pairs.db", 0, GDBM_NEWDB, 0640, NULL);
  datum none = {NULL, 0}, empty = {(char *)"", 0}, key;
  gdbm_count_t count = 99;
  size_t buckets = 0;
  int flag, n = 0;
  char *name = NULL;
  struct stat st;
  stat("pairs.db", &st);
  printf("mode %o, size > 0: %d\n", (unsigned)st.st_mode & 0777, st.st_size > 0);
  line("store", gdbm_store(db, text("one"), text("eins"), GDBM_INSERT));
  line("insert again", gdbm_store(db, text("one"), text("uno"), GDBM_INSERT));
  line("insert again, another flag", gdbm_store(db, text("one"), text("uno"), 7));
  value("fetch", gdbm_fetch(db, text("one")));
  line("replace", gdbm_store(db, text("one"), text("un"), GDBM_REPLACE));
  value("fetch", gdbm_fetch(db, text("one")));
  value("fetch absent", gdbm_fetch(db, text("none")));
  line("store without key", gdbm_store(db, none, text("x"), GDBM_REPLACE));
  line("store without content", gdbm_store(db, text("x"), none, GDBM_REPLACE));
  value("fetch null", gdbm_fetch(db, none));
  line("exists null", gdbm_exists(db, none));
  line("delete null", gdbm_delete(db, none));
  value("nextkey of null", gdbm_nextkey(db, none));
  line("store empty", gdbm_store(db, empty, empty, GDBM_REPLACE));
  value("fetch null, which is empty", gdbm_fetch(db, none));
  line("exists null, which is empty", gdbm_exists(db, none));
  value("nextkey of null beside an empty key", gdbm_nextkey(db, none));
  value("fetch empty", gdbm_fetch(db, empty));
  line("exists", gdbm_exists(db, text("one")));
  line("exists absent", gdbm_exists(db, text("none")));
  line("count", gdbm_count(db, &count));
  printf("count %llu\n", count);
  line("delete absent", gdbm_delete(db, text("none")));
  line("delete null, which is empty", gdbm_delete(db, none));
  line("delete empty", gdbm_delete(db, empty));
  line("store empty", gdbm_store(db, empty, empty, GDBM_REPLACE));
  line("delete", gdbm_delete(db, empty));
  value("firstkey", gdbm_firstkey(db));
  value("nextkey at the end", gdbm_nextkey(db, text("one")));
  value("nextkey of an absent key", gdbm_nextkey(db, text("none")));
  for (flag = 0; flag < 100; flag++) {
    char buf[20];
    sprintf(buf, "%d", flag);
    gdbm_store(db, text(buf), text(buf), GDBM_REPLACE);
  }
  for (key = gdbm_firstkey(db); key.dptr;) {
    datum next = gdbm_nextkey(db, key);
    free(key.dptr);
    key = next;
    n++;
  }
  printf("walked over %d\n", n);
  line("bucket_count", gdbm_bucket_count(db, &buckets));
  printf("buckets > 0: %d\n", buckets > 0);
  line("avail_verify", gdbm_avail_verify(db));
  line("sync", gdbm_sync(db));
  line("reorganize", gdbm_reorganize(db));
  line("count", gdbm_count(db, &count));
  printf("count %llu\n", count);
  line("needs_recovery", gdbm_needs_recovery(db));
  line("recover", gdbm_recover(db, NULL, 0));
  line("option of another number", gdbm_setopt(db, 99, &flag, sizeof flag));
  line("option of another size", gdbm_setopt(db, GDBM_SETSYNCMODE, &flag, 1));
  flag = 7;
  line("switch that is none", gdbm_setopt(db, GDBM_SETSYNCMODE, &flag, sizeof flag));
  flag = 1;
  line("set sync mode", gdbm_setopt(db, GDBM_SETSYNCMODE, &flag, sizeof flag));
  printf("sync mode %d\n", option(db, GDBM_GETSYNCMODE));
  printf("cache auto %d\n", option(db, GDBM_GETCACHEAUTO));
  flag = 1000;
  line("set cache size", gdbm_setopt(db, GDBM_SETCACHESIZE, &flag, sizeof flag));
  printf("cache auto %d\n", option(db, GDBM_GETCACHEAUTO));
  printf("mmap %d\n", option(db, GDBM_GETMMAP));
  printf("centfree %d\n", option(db, GDBM_GETCENTFREE));
  printf("coalesce %d\n", option(db, GDBM_GETCOALESCEBLKS));
  printf("flags %d\n", option(db, GDBM_GETFLAGS));
  line("name", gdbm_setopt(db, GDBM_GETDBNAME, &name, sizeof name));
  printf("name %s\n", name);
  free(name);
  printf("format %d\n", option(db, GDBM_GETDBFORMAT));
  line("convert", gdbm_convert(db, GDBM_NUMSYNC));
  printf("format %d\n", option(db, GDBM_GETDBFORMAT));
  line("convert to another", gdbm_convert(db, 5));
  line("convert back", gdbm_convert(db, 0));
  printf("format %d\n", option(db, GDBM_GETDBFORMAT));
  line("snapshots of one name", gdbm_failure_atomic(db, "same", "same"));
  line("export to an old file", gdbm_export(db, "text", GDBM_WRCREAT, 0600));
  line("export", gdbm_export(db, "flat", GDBM_NEWDB, 0600));
  line("dump to an old file", gdbm_dump(db, "text", GDBM_DUMP_FMT_ASCII, GDBM_WRCREAT, 0600));
  line("close", gdbm_close(db));
}

/* Prints a result, and whether the call has left the error number of one before. */
static void after(const char *what, long result) {
  printf("%s after a failure: %ld, gdbm_errno %d\n", what, result, gdbm_errno);
  gdbm_errno = GDBM_ITEM_NOT_FOUND;
}

/* Programs of the time when gdbm_close and gdbm_sync returned nothing ask for the number after them. */
static void numbers_after_success(void) {
  GDBM_FILE db;
  FILE *f = fopen("stream", "w+");
  int fd = open("after.db", O_RDWR | O_CREAT, 0600), value = 0;
  size_t buckets;
  gdbm_count_t count;
  unsigned long at;
  gdbm_errno = GDBM_ITEM_NOT_FOUND;
  db = gdbm_fd_open(fd, "after.db", 0, GDBM_NEWDB, NULL);
  after("fd_open", db != NULL);
  after("store", gdbm_store(db, text("a"), text("b"), GDBM_REPLACE));
  after("count", gdbm_count(db, &count));
  after("bucket_count", gdbm_bucket_count(db, &buckets));
  after("avail_verify", gdbm_avail_verify(db));
  after("setopt", gdbm_setopt(db, GDBM_GETFLAGS, &value, sizeof value));
  after("convert", gdbm_convert(db, 0));
  after("copy_meta", gdbm_copy_meta(db, db));
  after("needs_recovery", gdbm_needs_recovery(db));
  after("recover", gdbm_recover(db, NULL, 0));
  after("recover by force", gdbm_recover(db, NULL, GDBM_RCVR_FORCE));
  after("sync", gdbm_sync(db));
  after("reorganize", gdbm_reorganize(db));
  after("export", gdbm_export(db, "after.flat", GDBM_NEWDB, 0600));
  after("dump", gdbm_dump(db, "after.ascii", GDBM_DUMP_FMT_ASCII, GDBM_NEWDB, 0600));
  after("dump_to_file", gdbm_dump_to_file(db, f, GDBM_DUMP_FMT_ASCII));
  rewind(f);
  after("load_from_file", gdbm_load_from_file(&db, f, GDBM_REPLACE, 3, &at));
  fclose(f);
  after("load", gdbm_load(&db, "after.ascii", GDBM_REPLACE, 3, &at));
  after("import", gdbm_import(db, "after.flat", GDBM_REPLACE));
  after("delete", gdbm_delete(db, text("a")));
  after("close", gdbm_close(db));
  db = gdbm_open("after.db", 0, GDBM_READER, 0, NULL);
  after("open", db != NULL);
  after("sync by a reader", gdbm_sync(db));
  after("close by a reader", gdbm_close(db));
  gdbm_errno = 0;
  errno = 0;
}

/* A failure of which a program says that the database does not survive it. */
static void broken(void) {
  GDBM_FILE db = gdbm_open("broken.db", 0, GDBM_NEWDB, 0600, NULL);
  gdbm_count_t count;
  line("store", gdbm_store(db, text("one"), text("eins"), GDBM_INSERT));
  gdbm_set_errno(db, GDBM_BAD_BUCKET, 1);
  printf("last %d, needs recovery %d\n", gdbm_last_errno(db), gdbm_needs_recovery(db));
  line("store", gdbm_store(db, text("two"), text("zwei"), GDBM_INSERT));
  printf("last %d %d\n", gdbm_last_errno(db), gdbm_last_syserr(db));
  gdbm_clear_error(db);
  printf("last %d, needs recovery %d\n", gdbm_last_errno(db), gdbm_needs_recovery(db));
  line("count", gdbm_count(db, &count));
  line("copy_meta", gdbm_copy_meta(db, db));
  line("recover", gdbm_recover(db, NULL, 0));
  printf("last %d, needs recovery %d\n", gdbm_last_errno(db), gdbm_needs_recovery(db));
  value("fetch", gdbm_fetch(db, text("one")));
  line("close", gdbm_close(db));
}

static void readers(void) {
  GDBM_FILE db = gdbm_open("pairs.db", 0, GDBM_READER, 0, NULL);
  gdbm_count_t count;
  line("reader stores", gdbm_store(db, text("a"), text("b"), GDBM_REPLACE));
  line("reader deletes", gdbm_delete(db, text("one")));
  line("reader reorganizes", gdbm_reorganize(db));
  line("reader recovers", gdbm_recover(db, NULL, 0));
  line("reader converts", gdbm_convert(db, GDBM_NUMSYNC));
  line("reader converts to another", gdbm_convert(db, 5));
  line("reader syncs", gdbm_sync(db));
  line("reader counts", gdbm_count(db, &count));
  printf("count %llu\n", count);
  printf("close on exec %d\n", fcntl(gdbm_fdesc(db), F_GETFD));
  line("close", gdbm_close(db));
  db = gdbm_open("pairs.db", 0, GDBM_WRITER | GDBM_CLOEXEC, 0, NULL);
  printf("close on exec %d\n", fcntl(gdbm_fdesc(db), F_GETFD));
  gdbm_close(db);
}

static void descriptors(void) {
  int fd = open("fd.db", O_RDWR | O_CREAT, 0600), text_fd = open("text", O_RDWR);
  GDBM_FILE db = gdbm_fd_open(fd, "fd.db", 0, GDBM_WRCREAT, NULL);
  line("fd_open", db != NULL);
  printf("the same descriptor: %d\n", gdbm_fdesc(db) == fd);
  line("store", gdbm_store(db, text("one"), text("eins"), GDBM_INSERT));
  line("close", gdbm_close(db));
  printf("closed: %d\n", fcntl(fd, F_GETFD) == -1);
  errno = 0;
  line("fd_open of none", gdbm_fd_open(-1, "none", 0, GDBM_READER, NULL) != NULL);
  line("fd_open of text", gdbm_fd_open(text_fd, "text", 0, GDBM_WRITER, NULL) != NULL);
  printf("still open: %d\n", fcntl(text_fd, F_GETFD) != -1);
  line("fd_open of text, closed on error",
       gdbm_fd_open(text_fd, "text", 0, GDBM_WRITER | GDBM_CLOERROR, NULL) != NULL);
  printf("closed: %d\n", fcntl(text_fd, F_GETFD) == -1);
  errno = 0;
}

int main(void) {
  GDBM_FILE db;
  int newer[3] = {1, 24, 0};
  opens();
  blocks();
  locks();
  pairs();
  numbers_after_success();
  broken();
  readers();
  descriptors();
  db = gdbm_open("imported.db", 0, GDBM_NEWDB, 0600, NULL);
  line("import", gdbm_import(db, "flat", GDBM_REPLACE));
  line("import again", gdbm_import(db, "flat", GDBM_INSERT));
  line("import text", gdbm_import(db, "text", GDBM_REPLACE));
  gdbm_set_errno(db, GDBM_NO_ERROR, 0);
  printf("%s\n", gdbm_db_strerror(db));
  value("fetch absent", gdbm_fetch(db, text("none")));
  printf("last %d %d %s\n", gdbm_last_errno(db), gdbm_last_syserr(db), gdbm_db_strerror(db));
  gdbm_clear_error(db);
  printf("last %d\n", gdbm_last_errno(db));
  gdbm_close(db);
  printf("%d.%d.%d, %.17s\n", gdbm_version_number[0], gdbm_version_number[1],
         gdbm_version_number[2], gdbm_version);
  printf("%d %d %s\n", gdbm_version_cmp(gdbm_version_number, newer),
         gdbm_version_cmp(newer, newer), gdbm_strerror(GDBM_ITEM_NOT_FOUND));
  return 0;
}
