/* Walks over a database, after storing one more key with "write"; "look" opens it to write as well. */
#include <errno.h>
#include <fcntl.h>
#include <gdbm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
  int stores = strcmp(argv[1], "write") == 0, is_reader = strcmp(argv[1], "read") == 0, n = 0;
  GDBM_FILE db = gdbm_open(argv[2], 0, is_reader ? GDBM_READER : GDBM_WRITER, 0, NULL);
  datum key, next;
  (void)argc;
  if (!db) {
    printf("gdbm_errno %d, %s\n", gdbm_errno, errno == EROFS ? "EROFS" : strerror(errno));
    return 0;
  }
  if (stores) {
    int fd = gdbm_fdesc(db);
    struct stat named, open_file;
    key.dptr = (char *)"a key that is new";
    key.dsize = (int)strlen(key.dptr);
    if (gdbm_store(db, key, key, GDBM_INSERT) != 0) {
      printf("%s\n", gdbm_db_strerror(db));
      return 1;
    }
    /* The descriptor is the same, and leads to the file that has the name now. */
    if (gdbm_fdesc(db) != fd || stat(argv[2], &named) != 0 || fstat(fd, &open_file) != 0 ||
        named.st_ino != open_file.st_ino)
      return 2;
  }
  for (key = gdbm_firstkey(db); key.dptr; key = next, n++) {
    datum value = gdbm_fetch(db, key);
    if (!value.dptr) return 3;
    free(value.dptr);
    next = gdbm_nextkey(db, key);
    free(key.dptr);
  }
  printf("%d keys\n", n);
  return gdbm_close(db);
}
