/* Snapshots in the working directory, whose file system can share blocks: which of the two may be read after each
 * call, and what it holds. The same lines with every library of this interface. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lines.h"

static unsigned mode_of(const char *name) {
  struct stat st;
  return stat(name, &st) == 0 ? (unsigned)st.st_mode & 0777 : 0;
}

/* Prints both modes, and which keys the snapshot has that a program would take. */
static void look(const char *when) {
  const char *name = NULL, *keys = "abcdefgh", *key;
  int choice = gdbm_latest_snapshot("even", "odd", &name);
  GDBM_FILE db = choice == GDBM_SNAPSHOT_OK ? gdbm_open(name, 0, GDBM_READER, 0, NULL) : NULL;
  printf("%s: even %o, odd %o, %d, %s: ", when, mode_of("even"), mode_of("odd"), choice, name ? name : "none");
  for (key = keys; db != NULL && *key; key++) {
    datum one = {(char *)key, 1};
    if (gdbm_exists(db, one)) putchar(*key);
  }
  puts("");
  if (db != NULL) gdbm_close(db);
}

static void put(GDBM_FILE db, const char *key) {
  if (gdbm_store(db, text(key), text("value"), GDBM_REPLACE) != 0) exit(1);
}

static void session(int flags) {
  GDBM_FILE db = gdbm_open("a.db", 0, GDBM_NEWDB | flags, 0600, NULL);
  unlink("even");
  unlink("odd");
  put(db, "a");
  line("failure_atomic", gdbm_failure_atomic(db, "even", "odd"));
  look("at first");
  put(db, "b");
  look("a store");
  line("sync", gdbm_sync(db));
  look("a sync");
  put(db, "c");
  line("sync", gdbm_sync(db));
  look("another");
  put(db, "d");
  line("reorganize", gdbm_reorganize(db));
  look("reorganized");
  put(db, "e");
  look("a store");
  line("close", gdbm_close(db));
  look("closed");
}

int main(void) {
  session(0);
  session(GDBM_NUMSYNC);
  session(GDBM_SYNC);
  return 0;
}
