/* A stranger cuts the file under a database, as a shell's `> file` does: calls fail, and none ends in a signal. */
#include <errno.h>
#include <gdbm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static datum number(char *buf, int n) {
  datum d;
  d.dptr = buf;
  d.dsize = sprintf(buf, "%d", n);
  return d;
}

static void cut(int flags) {
  GDBM_FILE db = gdbm_open("cut.db", 0, GDBM_NEWDB | (flags & GDBM_NOLOCK), 0600, NULL);
  char buf[20];
  datum found;
  struct stat status;
  int i;
  CHECK(db != NULL);
  for (i = 0; i < 1000; i++) CHECK(gdbm_store(db, number(buf, i), number(buf, i), GDBM_INSERT) == 0);
  if ((flags & 7) == GDBM_READER) {
    CHECK(gdbm_close(db) == 0);
    CHECK((db = gdbm_open("cut.db", 0, flags, 0, NULL)) != NULL);
  }
  found = gdbm_fetch(db, number(buf, 1));
  CHECK(found.dsize == 1);
  free(found.dptr);
  CHECK(truncate("cut.db", 0) == 0);
  usleep(20000); /* The size is looked at once in a tick of the clock. */
  CHECK(gdbm_fetch(db, number(buf, 1)).dptr == NULL && gdbm_errno == GDBM_FILE_EOF);
  CHECK(errno == EIO && gdbm_needs_recovery(db) == 1);
  CHECK(gdbm_store(db, number(buf, 1), number(buf, 1), GDBM_REPLACE) == -1);
  CHECK(gdbm_errno == GDBM_NEED_RECOVERY && gdbm_firstkey(db).dptr == NULL);
  CHECK(gdbm_sync(db) == -1 && gdbm_reorganize(db) == -1);
  /* The claim is gone: nothing makes a database of the file through this handle. */
  CHECK(gdbm_recover(db, NULL, 0) == -1);
  CHECK((flags & 7) == GDBM_READER || gdbm_errno == GDBM_NEED_RECOVERY);
  CHECK(gdbm_store(db, number(buf, 1), number(buf, 1), GDBM_REPLACE) == -1);
  CHECK(stat("cut.db", &status) == 0 && status.st_size == 0);
  CHECK(gdbm_close(db) == -1 && gdbm_errno == GDBM_FILE_EOF && errno == EIO);
  CHECK((db = gdbm_open("cut.db", 0, GDBM_WRCREAT, 0600, NULL)) != NULL);
  CHECK(gdbm_store(db, number(buf, 1), number(buf, 1), GDBM_INSERT) == 0 && gdbm_close(db) == 0);
}

/* The first call after the cut is the close. */
static void cut_and_closed(void) {
  GDBM_FILE db = gdbm_open("closed.db", 0, GDBM_NEWDB, 0600, NULL);
  char buf[20];
  CHECK(db != NULL && gdbm_store(db, number(buf, 1), number(buf, 1), GDBM_INSERT) == 0);
  CHECK(truncate("closed.db", 0) == 0);
  CHECK(gdbm_close(db) == -1 && gdbm_errno == GDBM_FILE_EOF);
}

int main(void) {
  alarm(250);
  cut_and_closed();
  cut(GDBM_WRITER | GDBM_NOLOCK);
  cut(GDBM_READER | GDBM_NOLOCK);
  cut(GDBM_WRITER);
  cut(GDBM_READER);
  puts("done");
  return 0;
}
