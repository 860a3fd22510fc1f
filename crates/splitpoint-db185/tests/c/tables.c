/* What the calls of a table return, in a file, in memory, and in the format of db 1.85:
 * tables [KEYS [files]], so many for a walk, and only in files. */
#include <db.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(claim)                                                       \
  do {                                                                     \
    if (!(claim)) {                                                        \
      fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #claim, errno); \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

static int count = 1000;

static DBT thing(const char *text) {
  DBT t;
  t.data = (void *)text;
  t.size = strlen(text);
  return t;
}

static DBT number(char *buf, int n) {
  DBT t;
  t.data = buf;
  t.size = (size_t)sprintf(buf, "key %d", n);
  return t;
}

static uint32_t by_sum(const void *key, size_t size) {
  const unsigned char *bytes = key;
  uint32_t sum = 7;
  while (size--) sum = sum * 31 + *bytes++;
  return sum;
}

static uint32_t by_size(const void *key, size_t size) {
  (void)key;
  return (uint32_t)size;
}

static DB *open_table(const char *name, int flags) {
  DB *db = dbopen(name, flags, 0640, DB_HASH, NULL);
  CHECK(db != NULL);
  return db;
}

static void pairs(DB *db) {
  DBT key = thing("one"), value = thing("eins"), found, empty = thing("");
  char *big = malloc(3 << 20);
  unsigned flag;
  CHECK(db->type == DB_HASH && db->internal != NULL);
  CHECK(db->put(db, &key, &value, 0) == 0);
  value = thing("uno");
  CHECK(db->put(db, &key, &value, R_NOOVERWRITE) == 1);
  CHECK(db->get(db, &key, &found, 0) == 0 && found.size == 4);
  CHECK(memcmp(found.data, "eins", 4) == 0);
  CHECK(db->put(db, &key, &value, 0) == 0);
  CHECK(db->get(db, &key, &found, 0) == 0 && found.size == 3);
  key = thing("none");
  CHECK(db->get(db, &key, &found, 0) == 1 && db->del(db, &key, 0) == 1);
  CHECK(db->get(db, &key, &found, 5) == -1 && errno == EINVAL);
  CHECK(db->put(db, &key, &value, R_CURSOR) == -1 && errno == EINVAL);
  CHECK(db->del(db, &key, R_NEXT) == -1 && errno == EINVAL);
  CHECK(db->seq(db, &key, &found, R_CURSOR) == -1 && errno == EINVAL);
  CHECK(db->seq(db, &key, &found, R_PREV) == -1 && errno == EINVAL);
  CHECK(db->sync(db, 3) == -1 && errno == EINVAL);
  for (flag = 1; flag <= 12; flag++) {
    CHECK(db->get(db, &key, &found, flag) == -1 && errno == EINVAL);
    CHECK(flag == R_NOOVERWRITE || (db->put(db, &key, &value, flag) == -1 && errno == EINVAL));
    CHECK(flag == R_CURSOR || (db->del(db, &key, flag) == -1 && errno == EINVAL));
    CHECK(flag == R_FIRST || flag == R_NEXT || (db->seq(db, &key, &found, flag) == -1 && errno == EINVAL));
    CHECK(db->sync(db, flag) == -1 && errno == EINVAL);
  }
  CHECK(db->put(db, &empty, &empty, 0) == 0);
  CHECK(db->get(db, &empty, &found, 0) == 0 && found.size == 0 && found.data != NULL);
  CHECK(db->del(db, &empty, 0) == 0);
  memset(big, 'b', 3 << 20);
  value.data = big;
  value.size = 3 << 20;
  key = thing("big");
  CHECK(db->put(db, &key, &value, 0) == 0);
  CHECK(db->get(db, &key, &found, 0) == 0 && found.size == 3 << 20);
  CHECK(memcmp(found.data, big, 3 << 20) == 0 && db->del(db, &key, 0) == 0);
  key = thing("one");
  CHECK(db->del(db, &key, 0) == 0 && db->sync(db, 0) == 0);
  free(big);
}

/* A walk that has ended begins again with the next call, whose flag may be missing. */
static void again(DB *db) {
  static const unsigned int flags[] = {R_NEXT, 0, R_NEXT, R_FIRST};
  DBT key, value = thing("value");
  char buf[20];
  int i, n, result;
  for (i = 0; i < 50; i++) {
    key = number(buf, i);
    CHECK(db->put(db, &key, &value, 0) == 0);
  }
  for (i = 0; i < 4; i++) {
    n = 0;
    while ((result = db->seq(db, &key, &value, n && flags[i] == R_FIRST ? R_NEXT : flags[i])) == 0)
      CHECK(++n <= 50);
    CHECK(result == 1 && n == 50);
    CHECK(db->del(db, NULL, R_CURSOR) == -1 && errno == EINVAL);
  }
  for (i = 0; i < 50; i++) {
    key = number(buf, i);
    CHECK(db->del(db, &key, 0) == 0);
  }
}

/* Stores keys and deletes each as a walk comes to it: by its key, or where the walk is. */
static void walks(DB *db, unsigned int flag) {
  DBT key, value = thing("value");
  char buf[20];
  int i, n = 0, result;
  for (i = 0; i < count; i++) {
    key = number(buf, i);
    CHECK(db->put(db, &key, &value, 0) == 0);
  }
  while ((result = db->seq(db, &key, &value, n ? R_NEXT : R_FIRST)) == 0) {
    CHECK(value.size == 5 && ++n <= count);
    CHECK(db->del(db, flag && n % 2 ? NULL : &key, flag) == 0);
  }
  CHECK(result == 1 && n == count);
  CHECK(db->seq(db, &key, &value, R_FIRST) == 1 && db->seq(db, &key, &value, R_NEXT) == 1);
}

static void flags(void) {
  HASHINFO info;
  struct stat st;
  DB *db, *other;
  DBT key = thing("one"), value = thing("eins");
  FILE *f;
  memset(&info, 0, sizeof info);
  CHECK(dbopen("absent", O_RDWR, 0600, DB_HASH, NULL) == NULL && errno == ENOENT);
  CHECK(dbopen("a.db", O_WRONLY | O_CREAT, 0600, DB_HASH, NULL) == NULL && errno == EINVAL);
  CHECK(dbopen("a.db", O_ACCMODE | O_CREAT, 0600, DB_HASH, NULL) == NULL && errno == EINVAL);
  CHECK(dbopen("a.db", O_RDWR | O_APPEND, 0600, DB_HASH, NULL) == NULL && errno == EINVAL);
  CHECK(dbopen("a.db", O_RDWR | O_CREAT, 0600, DB_BTREE, NULL) == NULL && errno == EINVAL);
  CHECK(dbopen("a.db", O_RDWR | O_CREAT, 0600, DB_RECNO, NULL) == NULL && errno == EINVAL);
  info.lorder = 99;
  CHECK(dbopen("a.db", O_RDWR | O_CREAT, 0600, DB_HASH, &info) == NULL && errno == EINVAL);
  info.lorder = 0;
  info.bsize = 65537;
  CHECK(dbopen("a.db", O_RDWR | O_CREAT, 0600, DB_HASH, &info) == NULL && errno == EINVAL);
  CHECK(stat("a.db", &st) == -1);
  umask(022);
  db = open_table("a.db", O_RDWR | O_CREAT | O_EXCL | DB_LOCK);
  CHECK(stat("a.db", &st) == 0 && (st.st_mode & 0777) == 0640 && st.st_size > 0);
  CHECK(fcntl(db->fd(db), F_GETFD) == FD_CLOEXEC);
  CHECK(flock(db->fd(db), LOCK_EX) == 0 && db->put(db, &key, &value, 0) == 0);
  other = open_table("a.db", O_RDWR);
  CHECK(other->del(other, &key, 0) == 0 && db->get(db, &key, &value, 0) == 1);
  CHECK(db->put(db, &key, &key, 0) == 0 && other->get(other, &key, &value, 0) == 0);
  CHECK(other->close(other) == 0 && db->close(db) == 0);
  CHECK(dbopen("a.db", O_RDWR | O_CREAT | O_EXCL, 0600, DB_HASH, NULL) == NULL);
  CHECK(errno == EEXIST);
  db = open_table("a.db", O_RDONLY);
  other = open_table("a.db", O_RDONLY);
  CHECK(db->get(db, &key, &value, 0) == 0 && other->get(other, &key, &value, 0) == 0);
  CHECK(db->put(db, &key, &value, 0) == -1 && errno == EPERM);
  CHECK(db->del(db, &key, 0) == -1 && errno == EPERM);
  CHECK(db->sync(db, 0) == 0 && db->close(db) == 0 && other->close(other) == 0);
  db = open_table("a.db", O_RDWR | O_TRUNC);
  CHECK(db->get(db, &key, &value, 0) == 1 && db->close(db) == 0);
  f = fopen("text", "w");
  fputs("no table", f);
  fclose(f);
  CHECK(dbopen("text", O_RDWR | O_CREAT, 0600, DB_HASH, NULL) == NULL && errno == EINVAL);
  CHECK(stat("text", &st) == 0 && st.st_size == 8);
  f = fopen("empty", "w");
  fclose(f);
  CHECK(dbopen("empty", O_RDWR, 0600, DB_HASH, NULL) == NULL && errno == EINVAL);
  db = open_table("empty", O_RDWR | O_CREAT);
  CHECK(db->close(db) == 0);
}

static void hashes(const char *name) {
  HASHINFO info;
  DB *db;
  DBT key = thing("one"), value = thing("eins");
  memset(&info, 0, sizeof info);
  info.hash = by_sum;
  db = dbopen(name, O_RDWR | O_CREAT, 0600, DB_HASH, &info);
  CHECK(db != NULL && db->put(db, &key, &value, 0) == 0);
  CHECK(db->get(db, &key, &value, 0) == 0 && value.size == 4 && db->del(db, &key, 0) == 0);
  walks(db, 0);
  CHECK(db->close(db) == 0);
  CHECK(dbopen(name, O_RDWR, 0, DB_HASH, NULL) == NULL && errno == EINVAL);
  info.hash = by_size;
  CHECK(dbopen(name, O_RDWR, 0, DB_HASH, &info) == NULL && errno == EINVAL);
  info.hash = by_sum;
  db = dbopen(name, O_RDONLY, 0, DB_HASH, &info);
  CHECK(db != NULL && db->close(db) == 0);
}

/* A store that has another handle is emptied as a store, also where new files get the format of db 1.85: the other
 * handle goes on with it. */
static void emptied(void) {
  static const char head_of_store[] = "\x89SPLIT\r\n";
  const char *name = "emptied.db";
  char buf[40], head[8];
  DBT key = thing("new"), value = thing("value"), found;
  DB *first, *second;
  FILE *f;
  int i;
  unsetenv("SPLITPOINT_NEW_FILES");
  first = open_table(name, O_RDWR | O_CREAT);
  for (i = 0; i < 1000; i++) {
    DBT stored = number(buf, i);
    CHECK(first->put(first, &stored, &value, 0) == 0);
  }
  setenv("SPLITPOINT_NEW_FILES", "db185", 1);
  second = open_table(name, O_RDWR | O_TRUNC);
  /* A cut would be seen from the next tick of the clock on. */
  usleep(30000);
  for (i = 0; i < 1000; i++) {
    DBT stored = number(buf, i);
    CHECK(first->get(first, &stored, &found, 0) == 1);
  }
  CHECK(second->put(second, &key, &value, 0) == 0);
  CHECK(first->get(first, &key, &found, 0) == 0 && found.size == 5);
  CHECK(first->put(first, &key, &value, R_NOOVERWRITE) == 1);
  CHECK(first->close(first) == 0 && second->close(second) == 0);
  f = fopen(name, "r");
  CHECK(fread(head, 1, 8, f) == 8 && memcmp(head, head_of_store, 8) == 0);
  fclose(f);
}

int main(int argc, char **argv) {
  DBT key = thing("key"), value;
  DB *db;
  int i;
  if (argc > 1) count = atoi(argv[1]);
  alarm(250);
  flags();
  for (i = 0; i < 2; i++) {
    const char *name = i ? "in-place.db" : "native.db";
    unsigned char head[4];
    FILE *f;
    if (i) setenv("SPLITPOINT_NEW_FILES", "db185", 1);
    db = open_table(name, O_RDWR | O_CREAT);
    pairs(db);
    again(db);
    walks(db, 0);
    walks(db, R_CURSOR);
    CHECK(db->close(db) == 0);
    f = fopen(name, "r");
    CHECK(fread(head, 1, 4, f) == 4);
    fclose(f);
    CHECK((memcmp(head, "\0\x06\x15\x61", 4) == 0) == i);
    db = open_table(name, O_RDWR);
    walks(db, 0);
    CHECK(db->close(db) == 0);
    hashes(i ? "in-place-hash.db" : "native-hash.db");
  }
  emptied();
  if (argc > 2) {
    puts("done");
    return 0;
  }
  db = open_table(NULL, O_RDWR | O_CREAT);
  errno = 0;
  CHECK(db->fd(db) == -1 && errno == ENOENT);
  pairs(db);
  walks(db, 0);
  CHECK(db->close(db) == 0);
  db = open_table(NULL, O_RDONLY);
  CHECK(db->put(db, &key, &key, 0) == -1 && errno == EPERM);
  CHECK(db->get(db, &key, &value, 0) == 1);
  CHECK(db->close(db) == 0);
  puts("done");
  return 0;
}
