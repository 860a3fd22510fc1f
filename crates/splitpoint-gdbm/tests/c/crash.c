/* Stores pairs and names each on its output when the call has returned, until it is killed. */
#include <gdbm.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  GDBM_FILE db = gdbm_open(argv[1], 0, GDBM_WRCREAT | (argc > 2 ? GDBM_SYNC : 0), 0600, NULL);
  int i;
  if (!db) return 1;
  for (i = 0;; i++) {
    char buf[20];
    datum key;
    key.dptr = buf;
    key.dsize = sprintf(buf, "%d", i);
    if (gdbm_store(db, key, key, GDBM_REPLACE) != 0) return 1;
    strcat(buf, "\n");
    if (write(1, buf, strlen(buf)) < 0) return 1;
  }
}
