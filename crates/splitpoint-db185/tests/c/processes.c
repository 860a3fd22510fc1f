/* Tables and several processes: processes FILE, where FILE is one of db 1.85 with little in it. */
#include <db.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(claim)                                                       \
  do {                                                                     \
    if (!(claim)) {                                                        \
      fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #claim, errno); \
      _exit(1);                                                            \
    }                                                                      \
  } while (0)

static int put(DB *db, int n) {
  char buf[20];
  DBT key;
  key.data = buf;
  key.size = (size_t)sprintf(buf, "key %d", n);
  return db->put(db, &key, &key, 0);
}

static int get(DB *db, int n) {
  char buf[20];
  DBT key, value;
  key.data = buf;
  key.size = (size_t)sprintf(buf, "key %d", n);
  return db->get(db, &key, &value, 0);
}

/* Whether a key has the value that `put` stores. */
static int has(DB *db, int n) {
  char buf[20];
  DBT key, value;
  key.data = buf;
  key.size = (size_t)sprintf(buf, "key %d", n);
  return db->get(db, &key, &value, 0) == 0 && value.size == key.size &&
         memcmp(value.data, buf, key.size) == 0;
}

static void wait_for(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Stores are written by turns: by two tables of a process, by a child through its parent's, by another process;
 * a reader that was open before sees it all at once. */
static void turns(const char *name) {
  DB *db = dbopen(name, O_RDWR | O_CREAT | O_TRUNC, 0600, DB_HASH, NULL);
  DB *other = dbopen(name, O_RDWR, 0, DB_HASH, NULL), *reader = dbopen(name, O_RDONLY, 0, DB_HASH, NULL);
  pid_t children[2];
  int i, which;
  CHECK(db != NULL && other != NULL && reader != NULL);
  for (which = 0; which < 2; which++) {
    CHECK((children[which] = fork()) >= 0);
    if (children[which] == 0) {
      DB *own = which ? dbopen(name, O_RDWR, 0, DB_HASH, NULL) : db;
      CHECK(own != NULL);
      for (i = 0; i < 500; i++) CHECK(put(own, (which + 2) * 1000 + i) == 0);
      CHECK(own->close(own) == 0);
      _exit(0);
    }
  }
  for (i = 0; i < 500; i++) CHECK(put(i % 2 ? db : other, i) == 0 && get(reader, i) == 0);
  for (which = 0; which < 2; which++) wait_for(children[which]);
  for (i = 0; i < 500; i++)
    CHECK(get(reader, i) == 0 && get(db, 2000 + i) == 0 && get(other, 3000 + i) == 0);
  CHECK(db->close(db) == 0 && other->close(other) == 0 && reader->close(reader) == 0);
}

/* Only one process writes a file of db 1.85. */
static void one_writer(const char *name) {
  DB *db = dbopen(name, O_RDWR, 0, DB_HASH, NULL);
  pid_t child;
  CHECK(db != NULL && put(db, 1) == 0 && (child = fork()) >= 0);
  if (child == 0) {
    CHECK(dbopen(name, O_RDWR, 0, DB_HASH, NULL) == NULL && errno == EAGAIN);
    CHECK(dbopen(name, O_RDONLY, 0, DB_HASH, NULL) == NULL && errno == EAGAIN);
    _exit(0);
  }
  wait_for(child);
  CHECK(put(db, 2) == 0 && db->close(db) == 0);
}

/* Two readers of one process do not let a writer in. */
static void two_readers(const char *name) {
  DB *one = dbopen(name, O_RDONLY, 0, DB_HASH, NULL), *other;
  pid_t child;
  CHECK(one != NULL && (other = dbopen(name, O_RDONLY, 0, DB_HASH, NULL)) != NULL);
  CHECK(other->close(other) == 0 && (child = fork()) >= 0);
  if (child == 0) {
    CHECK(dbopen(name, O_RDWR, 0, DB_HASH, NULL) == NULL && errno == EAGAIN);
    _exit(0);
  }
  wait_for(child);
  CHECK(one->close(one) == 0);
}

/* Whether somebody else has claimed a file. An open would wait for seconds. */
static int is_claimed(const char *name) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1LL << 62, .l_len = 2};
  int fd = open(name, O_RDWR);
  CHECK(fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && close(fd) == 0);
  return lock.l_type != F_UNLCK;
}

/* A child closes a table of its parent's, which it may have read: its own one still keeps writers out. */
static void inherited_readers(const char *name) {
  int reads;
  for (reads = 0; reads < 2; reads++) {
    DB *db = dbopen(name, O_RDONLY, 0, DB_HASH, NULL), *own;
    int pipes[2];
    pid_t child, writer;
    char byte;
    CHECK(db != NULL && pipe(pipes) == 0 && (child = fork()) >= 0);
    if (child == 0) {
      CHECK((own = dbopen(name, O_RDONLY, 0, DB_HASH, NULL)) != NULL && (!reads || get(db, 1) == 0));
      CHECK(db->close(db) == 0 && close(pipes[1]) == 0 && read(pipes[0], &byte, 1) == 0);
      CHECK((writer = fork()) >= 0);
      if (writer == 0) {
        CHECK(is_claimed(name));
        _exit(0);
      }
      wait_for(writer);
      CHECK(get(own, 1) == 0 && own->close(own) == 0);
      _exit(0);
    }
    CHECK(db->close(db) == 0 && close(pipes[1]) == 0);
    wait_for(child);
    CHECK(close(pipes[0]) == 0 && !is_claimed(name));
  }
}

/* A daemon: the parent opens, writes and closes; the child goes on, with the walk too. */
static void daemons(const char *name) {
  DB *db = dbopen(name, O_RDWR | O_CREAT, 0600, DB_HASH, NULL);
  int pipes[2], i, number;
  DBT key, value;
  pid_t child;
  char byte;
  CHECK(db != NULL && pipe(pipes) == 0);
  for (i = 100; i < 1100; i++) CHECK(put(db, i) == 0);
  CHECK(db->seq(db, &key, &value, R_FIRST) == 0);
  number = db->fd(db);
  CHECK((child = fork()) >= 0);
  if (child == 0) {
    CHECK(close(pipes[1]) == 0 && read(pipes[0], &byte, 1) == 0);
    CHECK(get(db, 5000) == 0 && put(db, 6000) == 0 && get(db, 6000) == 0);
    for (i = 1; db->seq(db, &key, &value, R_NEXT) == 0; i++) continue;
    CHECK(i >= 1000 && db->fd(db) == number);
    CHECK(db->sync(db, 0) == 0 && db->close(db) == 0);
    _exit(0);
  }
  /* What the child has of this it must not write over it. */
  CHECK(put(db, 5000) == 0);
  for (i = 100; i < 1100; i++) CHECK(put(db, i + 10000) == 0);
  CHECK(db->close(db) == 0 && close(pipes[1]) == 0);
  wait_for(child);
  CHECK((db = dbopen(name, O_RDONLY, 0, DB_HASH, NULL)) != NULL);
  CHECK(get(db, 5000) == 0 && get(db, 6000) == 0);
  for (i = 100; i < 1100; i++) CHECK(get(db, i) == 0 && get(db, i + 10000) == 0);
  CHECK(db->close(db) == 0);
}

/* While the parent has a table of db 1.85, its child changes nothing, whether it closes the table or not. A
 * store they change by turns. */
static void children(const char *name, int is_store) {
  DB *db = dbopen(name, O_RDWR | O_CREAT, 0600, DB_HASH, NULL);
  int closes;
  CHECK(db != NULL);
  for (closes = 0; closes < 2; closes++) {
    pid_t child;
    CHECK(put(db, 20000) == 0 && (child = fork()) >= 0);
    if (child == 0) {
      CHECK(is_store ? put(db, 20001) == 0 : put(db, 20001) == -1 && errno == EAGAIN);
      if (closes) CHECK(db->close(db) == 0);
      _exit(0);
    }
    wait_for(child);
    CHECK(put(db, 20002 + closes) == 0);
  }
  CHECK(db->close(db) == 0 && (db = dbopen(name, O_RDONLY, 0, DB_HASH, NULL)) != NULL);
  CHECK(get(db, 20000) == 0 && get(db, 20001) == !is_store);
  CHECK(get(db, 20002) == 0 && get(db, 20003) == 0);
  CHECK(db->close(db) == 0);
}

/* In memory each process has its own. */
static void in_memory(void) {
  DB *db = dbopen(NULL, O_RDWR | O_CREAT, 0, DB_HASH, NULL);
  pid_t child;
  CHECK(db != NULL && put(db, 1) == 0 && (child = fork()) >= 0);
  if (child == 0) {
    CHECK(get(db, 1) == 0);
    _exit(0);
  }
  wait_for(child);
  CHECK(get(db, 1) == 0 && get(db, 2) == 1 && db->close(db) == 0);
}

/* The program has closed the descriptor, and its number is a file of its own. */
static void closed(const char *name) {
  DB *db = dbopen(name, O_RDWR | O_CREAT, 0600, DB_HASH, NULL);
  int i, number, own;
  CHECK(db != NULL && (number = db->fd(db)) >= 0 && close(number) == 0);
  CHECK((own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0600)) == number);
  for (i = 0; i < 10; i++) put(db, 30000 + i);
  db->close(db);
  CHECK(lseek(own, 0, SEEK_END) == 0 && close(own) == 0);
  /* The place of the writer is free, in this process and in others. */
  CHECK((db = dbopen(name, O_RDWR, 0, DB_HASH, NULL)) != NULL);
  CHECK(put(db, 1) == 0 && db->close(db) == 0);
}

/* Whether a file begins as one of db 1.85 does, in this machine's byte order or in the format's own. */
static int is_db185(const char *name) {
  static const unsigned char magic[4] = {0x00, 0x06, 0x15, 0x61};
  unsigned char head[4];
  int fd = open(name, O_RDONLY);
  CHECK(fd >= 0 && read(fd, head, 4) == 4 && close(fd) == 0);
  return memcmp(head, magic, 4) == 0 ||
         (head[0] == magic[3] && head[1] == magic[2] && head[2] == magic[1] && head[3] == magic[0]);
}

/* A child says of each pair that it is stored, or synced, and is killed. All of which it said so are there. */
static void killed(const char *name, int syncs) {
  enum { SEEN = 300 };
  int pipes[2], i, count = 0;
  DB *db;
  pid_t child;
  CHECK(access(name, F_OK) == -1 && pipe(pipes) == 0 && (child = fork()) >= 0);
  if (child == 0) {
    CHECK((db = dbopen(name, O_RDWR | O_CREAT, 0600, DB_HASH, NULL)) != NULL);
    for (i = 0;; i++) {
      CHECK(put(db, i) == 0 && (!syncs || db->sync(db, 0) == 0));
      CHECK(write(pipes[1], &i, sizeof i) == sizeof i);
    }
  }
  CHECK(close(pipes[1]) == 0);
  while (count < SEEN) {
    CHECK(read(pipes[0], &i, sizeof i) == sizeof i && i == count);
    count++;
  }
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  while (read(pipes[0], &i, sizeof i) == sizeof i) count++;
  CHECK(is_db185(name) == syncs);
  CHECK((db = dbopen(name, O_RDWR, 0, DB_HASH, NULL)) != NULL && close(pipes[0]) == 0);
  for (i = 0; i < count; i++) CHECK(has(db, i));
  CHECK(put(db, count + 1) == 0 && db->close(db) == 0);
  CHECK((db = dbopen(name, O_RDONLY, 0, DB_HASH, NULL)) != NULL);
  CHECK(has(db, 0) && has(db, count - 1) && has(db, count + 1) && db->close(db) == 0);
}

/* A stranger cuts the file of a store: calls fail, and none ends in a signal. */
static void cut(const char *name, int flags) {
  DB *db = dbopen(name, O_RDWR | O_CREAT, 0600, DB_HASH, NULL);
  DBT key, value;
  int i;
  CHECK(db != NULL);
  for (i = 0; i < 1000; i++) CHECK(put(db, i) == 0);
  if (flags == O_RDONLY) CHECK(db->close(db) == 0 && (db = dbopen(name, flags, 0, DB_HASH, NULL)) != NULL);
  CHECK(get(db, 1) == 0 && truncate(name, 0) == 0);
  usleep(20000); /* The size is looked at once in a tick of the clock. */
  CHECK(get(db, 1) == -1 && errno == EIO);
  CHECK(put(db, 1) == -1 && errno == (flags == O_RDONLY ? EPERM : EIO));
  CHECK(db->seq(db, &key, &value, R_FIRST) == -1 && errno == EIO);
  CHECK(db->close(db) == -1 && errno == EIO);
  CHECK((db = dbopen(name, O_RDWR | O_CREAT, 0600, DB_HASH, NULL)) != NULL);
  CHECK(put(db, 1) == 0 && get(db, 2) == 1 && db->close(db) == 0);
}

int main(int argc, char **argv) {
  int i;
  CHECK(argc == 2);
  alarm(250);
  one_writer(argv[1]);
  two_readers(argv[1]);
  inherited_readers(argv[1]);
  turns("turns.db");
  for (i = 0; i < 2; i++) {
    if (i) setenv("SPLITPOINT_NEW_FILES", "db185", 1);
    daemons(i ? "in-place.db" : "native.db");
    children(i ? "in-place.db" : "native.db", !i);
    closed(i ? "in-place.db" : "native.db");
    killed(i ? "killed-in-place.db" : "killed.db", i);
  }
  daemons(argv[1]);
  unsetenv("SPLITPOINT_NEW_FILES");
  cut("cut.db", O_RDWR);
  cut("cut.db", O_RDONLY);
  in_memory();
  puts("done");
  return 0;
}
