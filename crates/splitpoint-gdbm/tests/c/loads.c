/* Loads of dumps that are not as `gdbm_dump` writes them, and by users who are not root: the same lines with every
 * library of this interface. loads USER: the user and group to become, 0 for none. */
#include <gdbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Loads a text into the database that it names, or into one of another name; prints what is there then. */
static void load(const char *what, const char *name, const char *dump) {
  GDBM_FILE db = NULL;
  gdbm_count_t count = 0;
  struct stat st;
  datum key, value;
  FILE *f;
  unlink("dump");
  f = fopen("dump", "w");
  fputs(dump, f);
  fclose(f);
  unlink("named.db");
  unlink("given.db");
  if (name) db = gdbm_open(name, 0, GDBM_NEWDB, 0600, NULL);
  printf("%s: ", what);
  gdbm_errno = GDBM_CANNOT_REPLACE;
  printf("%d, ", gdbm_load(&db, "dump", GDBM_REPLACE, 0, NULL));
  printf("gdbm_errno %d, ", gdbm_errno);
  if (db == NULL) {
    puts("no database");
    return;
  }
  fstat(gdbm_fdesc(db), &st);
  gdbm_count(db, &count);
  printf("%llu keys, mode %o, owner %d %d", count, (unsigned)st.st_mode & 0777, (int)st.st_uid, (int)st.st_gid);
  for (key = gdbm_firstkey(db); key.dptr; count = 0) {
    value = gdbm_fetch(db, key);
    printf(", %.*s %.*s", key.dsize, key.dptr, value.dsize, value.dptr);
    free(value.dptr);
    free(key.dptr);
    key.dptr = NULL;
  }
  puts("");
  gdbm_close(db);
}

#define BEGIN "# GDBM dump file created by hand\n#:version=1.1\n"
#define PAIR "#:len=3\nb25l\n#:len=4\nZWlucw==\n"
#define END "#:count=1\n# End of data\n"
#define BERKELEY "VERSION=3\nformat=bytevalue\ntype=hash\nHEADER=END\n"

int main(int argc, char **argv) {
  unsigned user = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
  umask(022);
  if (user != 0 && (setgid(user) != 0 || setuid(user) != 0)) return 1;
  load("names before numbers", NULL,
       BEGIN "#:file=named.db\n#:uid=1234,user=daemon,gid=4321,group=daemon,mode=640\n" PAIR END);
  load("numbers of unknown names", NULL,
       BEGIN "#:file=named.db\n#:uid=1234,user=no such,gid=4321,group=no such,mode=604\n" PAIR END);
  load("of root", NULL, BEGIN "#:file=named.db\n#:uid=0,user=root,gid=0,group=root,mode=644\n" PAIR END);
  load("of root, into another", "given.db",
       BEGIN "#:file=named.db\n#:uid=0,user=root,gid=0,group=root,mode=644\n" PAIR END);
  load("without a mode", NULL, BEGIN "#:file=named.db\n" PAIR END);
  load("in quotes, with more", NULL, BEGIN "#:mode=\"600\",file=\"named.db\",more=\"1,2\"\n" PAIR END);
  load("sizes with more", NULL, BEGIN "#:file=named.db\n#:mode=600\n#:len=3,x=1\nb25l\n#:x=1,len=4\nZWlucw==\n" END);
  load("lines of any length", NULL,
       BEGIN "#:file=named.db\n#:mode=600\n#:len=3\nb2\n5l\n#:len=9\nbmV1\nbm\nV1b\nmV1\n" END);
  load("comments", NULL, BEGIN "#:file=named.db\n#:mode=600\n# one\n" PAIR "# two\n" END);
  load("no value to a name", NULL, BEGIN "#:file=named.db\n#:numsync\n" PAIR END);
  load("of Berkeley DB", "given.db", BERKELEY " 6f6e65\n 65696e73\nDATA=END\n");
  load("of Berkeley DB, of no file", NULL, BERKELEY " 6f6e65\n 65696e73\nDATA=END\n");
  load("of Berkeley DB, no end of the header", "given.db", "VERSION=3\nformat=bytevalue\n 6f6e65\n 65696e73\n");
  load("of Berkeley DB, no digit", "given.db", BERKELEY " 6f6e6x\n 65696e73\nDATA=END\n");
  load("of Berkeley DB, half a byte", "given.db", BERKELEY " 6f6e6\n 65696e73\nDATA=END\n");
  return 0;
}
