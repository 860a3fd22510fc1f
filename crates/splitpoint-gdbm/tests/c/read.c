/* Prints the number of keys, and fails unless the first N are there with their values. */
#include <gdbm.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  GDBM_FILE db = gdbm_open(argv[1], 0, GDBM_READER, 0, NULL);
  gdbm_count_t count = 0;
  int i, n = argc > 2 ? atoi(argv[2]) : 0;
  if (!db) {
    printf("%s\n", gdbm_strerror(gdbm_errno));
    return 1;
  }
  for (i = 0; i < n; i++) {
    char buf[20];
    datum key, value;
    key.dptr = buf;
    key.dsize = sprintf(buf, "%d", i);
    value = gdbm_fetch(db, key);
    if (!value.dptr || value.dsize != key.dsize || memcmp(value.dptr, buf, key.dsize) != 0) {
      printf("key %d is lost\n", i);
      return 1;
    }
    free(value.dptr);
  }
  gdbm_count(db, &count);
  printf("%llu\n", count);
  return gdbm_close(db);
}
