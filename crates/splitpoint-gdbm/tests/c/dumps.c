/* Makes a database, or loads a dump into the database that it names. */
#include <gdbm.h>
#include <string.h>

int main(int argc, char **argv) {
  GDBM_FILE db = NULL;
  if (argc == 2) {
    char value[5000];
    int i;
    memset(value, 'v', sizeof value);
    db = gdbm_open(argv[1], 0, GDBM_NEWDB, 0600, NULL);
    for (i = 0; i < 500; i++) {
      char buf[20];
      datum key, content;
      key.dptr = buf;
      key.dsize = sprintf(buf, "key %d", i);
      content.dptr = value;
      content.dsize = 1 + i * 7 % 4999;
      if (gdbm_store(db, key, content, GDBM_INSERT) != 0) return 1;
    }
  } else {
    unsigned long line = 0;
    gdbm_count_t count = 0;
    if (gdbm_load(&db, argv[2], GDBM_REPLACE, 0, &line) != 0) {
      printf("gdbm_errno %d, line %lu\n", gdbm_errno, line);
      return 0;
    }
    gdbm_count(db, &count);
    printf("loaded %llu keys\n", count);
  }
  return gdbm_close(db);
}
