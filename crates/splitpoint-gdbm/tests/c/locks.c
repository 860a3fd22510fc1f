/* Locks of the program's own, turns of two processes, and forks. An alarm ends what waits for ever. */
#include <errno.h>
#include <fcntl.h>
#include <gdbm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static datum number(char *buf, int n) {
  datum d;
  d.dptr = buf;
  d.dsize = sprintf(buf, "%d", n);
  return d;
}

static int put(GDBM_FILE db, int n) {
  char buf[20];
  return gdbm_store(db, number(buf, n), number(buf, n), GDBM_REPLACE);
}

static gdbm_count_t count_of(const char *name) {
  GDBM_FILE db = gdbm_open(name, 0, GDBM_READER, 0, NULL);
  gdbm_count_t count = 0;
  CHECK(db && gdbm_count(db, &count) == 0);
  CHECK(gdbm_close(db) == 0);
  return count;
}

static void lock_whole(int fd, int type) {
  struct flock whole;
  memset(&whole, 0, sizeof whole);
  whole.l_type = (short)type;
  whole.l_whence = SEEK_SET;
  CHECK(fcntl(fd, F_SETLKW, &whole) == 0);
}

static void own_locks(void) {
  GDBM_FILE db = gdbm_open("own.db", 0, GDBM_NEWDB, 0600, NULL);
  int fd = gdbm_fdesc(db), other;
  pid_t child;
  int status;
  CHECK(flock(fd, LOCK_EX) == 0 && put(db, 1) == 0);
  lock_whole(fd, F_WRLCK);
  CHECK(put(db, 2) == 0);
  /* The exclusion is the program's to give up; the store is not. */
  CHECK(flock(fd, LOCK_UN) == 0 && put(db, 3) == 0);
  child = fork();
  if (child == 0) {
    CHECK(gdbm_open("own.db", 0, GDBM_WRITER, 0, NULL) == NULL);
    CHECK(gdbm_errno == GDBM_CANT_BE_WRITER && errno == EAGAIN);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  lock_whole(fd, F_UNLCK);
  CHECK(put(db, 4) == 0 && gdbm_sync(db) == 0);
  CHECK(gdbm_open("own.db", 0, GDBM_WRITER, 0, NULL) == NULL);
  CHECK(gdbm_close(db) == 0 && count_of("own.db") == 4);

  db = gdbm_open("own.db", 0, GDBM_WRITER | GDBM_NOLOCK, 0, NULL);
  other = open("own.db", O_RDWR);
  CHECK(db && flock(other, LOCK_EX) == 0 && put(db, 5) == 0 && flock(other, LOCK_UN) == 0);
  {
    /* Those that do not lock take turns. One that does comes between their calls, and lets none come. */
    GDBM_FILE second = gdbm_open("own.db", 0, GDBM_WRITER | GDBM_NOLOCK, 0, NULL), alone;
    GDBM_FILE reader = gdbm_open("own.db", 0, GDBM_READER | GDBM_NOLOCK, 0, NULL);
    char buf[20];
    int i;
    CHECK(second && reader && put(second, 6) == 0 && put(db, 7) == 0);
    CHECK(gdbm_exists(db, number(buf, 6)) && gdbm_exists(second, number(buf, 7)));
    CHECK(gdbm_exists(reader, number(buf, 6)) && gdbm_exists(reader, number(buf, 7)));
    lock_whole(other, F_WRLCK);
    CHECK(put(second, 8) == 0 && put(db, 9) == 0 && gdbm_exists(reader, number(buf, 9)));
    lock_whole(other, F_UNLCK);
    for (i = 10; i < 3000; i++) CHECK(put(i % 2 ? db : second, i) == 0);
    for (i = 10; i < 3000; i++) CHECK(gdbm_delete(i % 3 ? db : second, number(buf, i)) == 0);
    CHECK(gdbm_reorganize(db) == 0 && put(second, 10) == 0 && gdbm_exists(db, number(buf, 10)));
    CHECK(gdbm_delete(db, number(buf, 10)) == 0 && !gdbm_exists(second, number(buf, 10)));
    alone = gdbm_open("own.db", 0, GDBM_WRITER, 0, NULL);
    CHECK(alone && gdbm_open("own.db", 0, GDBM_WRITER | GDBM_NOLOCK, 0, NULL) == NULL);
    CHECK(gdbm_errno == GDBM_CANT_BE_WRITER && put(alone, 6) == 0 && gdbm_close(alone) == 0);
    CHECK(put(db, 6) == 0 && gdbm_close(second) == 0 && gdbm_close(reader) == 0);
  }
  CHECK(gdbm_close(db) == 0);
  close(other);
  CHECK(count_of("own.db") == 9);
}

/* Two processes that do not lock. */
static void unlocked(void) {
  GDBM_FILE db = gdbm_open("unlocked.db", 0, GDBM_NEWDB | GDBM_NOLOCK, 0600, NULL), own;
  int i, status, base;
  char buf[20];
  pid_t child = fork();
  CHECK(db && child >= 0);
  own = child ? db : gdbm_open("unlocked.db", 0, GDBM_WRITER | GDBM_NOLOCK, 0, NULL);
  base = child ? 0 : 1000;
  for (i = 0; i < 1000; i++) CHECK(put(own, base + i) == 0);
  if (child == 0) {
    CHECK(gdbm_close(own) == 0);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (i = 0; i < 2000; i++) CHECK(gdbm_exists(db, number(buf, i)));
  CHECK(gdbm_close(db) == 0 && count_of("unlocked.db") == 2000);
}

#define TURNS 100

static void turns(void) {
  pid_t child = fork();
  int base = child ? 0 : TURNS, done = 0, status;
  while (done < TURNS) {
    GDBM_FILE db = gdbm_open("turns.db", 0, GDBM_WRCREAT, 0600, NULL);
    if (!db) {
      CHECK(gdbm_errno == GDBM_CANT_BE_WRITER && errno == EAGAIN);
      usleep(100);
      continue;
    }
    CHECK(put(db, base + done++) == 0);
    CHECK(gdbm_close(db) == 0);
  }
  if (child == 0) _exit(0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(count_of("turns.db") == 2 * TURNS);
}

/* A daemon: the parent opens and exits, the child goes on. */
static void daemons(void) {
  int ready[2], status;
  pid_t parent;
  CHECK(pipe(ready) == 0);
  parent = fork();
  if (parent == 0) {
    GDBM_FILE db = gdbm_open("daemon.db", 0, GDBM_NEWDB, 0600, NULL);
    CHECK(db && put(db, 1) == 0);
    if (fork() == 0) {
      char buf[20];
      datum found;
      while (getppid() != 1 && waitpid(-1, NULL, WNOHANG) == 0) usleep(100);
      CHECK(put(db, 2) == 0);
      found = gdbm_fetch(db, number(buf, 1));
      CHECK(found.dptr && found.dsize == 1);
      free(found.dptr);
      CHECK(gdbm_close(db) == 0);
      CHECK(write(ready[1], "x", 1) == 1);
      _exit(0);
    }
    _exit(0);
  }
  close(ready[1]);
  CHECK(waitpid(parent, &status, 0) == parent && status == 0);
  {
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
  }
  CHECK(count_of("daemon.db") == 2);

  /* A child that looks at what its parent reads, and closes it, does not harm the parent. */
  {
    GDBM_FILE db = gdbm_open("daemon.db", 0, GDBM_READER, 0, NULL);
    char buf[20];
    pid_t child = fork();
    if (child == 0) {
      CHECK(gdbm_exists(db, number(buf, 2)) == 1);
      CHECK(gdbm_close(db) == 0);
      _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(gdbm_exists(db, number(buf, 1)) == 1 && gdbm_close(db) == 0);
  }
}

/* A program that closes all descriptors, and opens files of its own in their place. */
static void closed_descriptors(void) {
  GDBM_FILE db = gdbm_open("closed.db", 0, GDBM_NEWDB, 0600, NULL);
  int fd, i;
  char *big = calloc(1, 1 << 20);
  char buf[20];
  datum value;
  CHECK(db && put(db, 1) == 0);
  for (fd = 3; fd < 64; fd++) close(fd);
  for (i = 0; i < 32; i++) CHECK(open("stranger", O_RDWR | O_CREAT, 0600) >= 0);
  value.dptr = big;
  value.dsize = 1 << 20;
  for (i = 0; i < 8; i++) gdbm_store(db, number(buf, i), value, GDBM_REPLACE);
  gdbm_close(db);
  free(big);
  CHECK(lseek(3, 0, SEEK_END) == 0);
  for (fd = 3; fd < 35; fd++) CHECK(fcntl(fd, F_GETFD) != -1);
}

/* A daemon that closes all descriptors of its parent, and opens a log in their place. */
static void closed_in_a_child(void) {
  GDBM_FILE db = gdbm_open("left.db", 0, GDBM_NEWDB, 0600, NULL);
  int number = gdbm_fdesc(db), status, fd;
  pid_t child = fork();
  CHECK(db != NULL && child >= 0);
  if (child == 0) {
    for (fd = 3; fd < 64; fd++) close(fd);
    do {
      fd = open("daemon.log", O_RDWR | O_CREAT, 0600);
    } while (fd >= 0 && fd < number);
    CHECK(fd == number && put(db, 1) == -1);
    gdbm_close(db);
    CHECK(lseek(fd, 0, SEEK_END) == 0 && close(fd) == 0);
    _exit(0);
  }
  CHECK(gdbm_close(db) == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A descriptor that an open refuses and closes ends no lock of another handle. */
static void refused_descriptor(void) {
  GDBM_FILE db = gdbm_open("refused.db", 0, GDBM_NEWDB, 0600, NULL);
  int fd = open("refused.db", O_RDWR), status;
  pid_t child;
  CHECK(db && fd >= 0 && put(db, 1) == 0);
  CHECK(gdbm_fd_open(fd, "refused.db", 0, GDBM_WRITER | GDBM_CLOERROR, NULL) == NULL);
  CHECK(gdbm_errno == GDBM_CANT_BE_WRITER && fcntl(fd, F_GETFD) == -1);
  child = fork();
  if (child == 0) {
    /* One that asks for no flock. */
    CHECK(gdbm_open("refused.db", 0, GDBM_WRITER | GDBM_NOLOCK, 0, NULL) == NULL);
    CHECK(gdbm_errno == GDBM_CANT_BE_WRITER);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(put(db, 2) == 0 && gdbm_close(db) == 0 && count_of("refused.db") == 2);
}

/* Programs build under one name, and rename while it is open. */
static void renames(void) {
  GDBM_FILE old, db = gdbm_open("built", 0, GDBM_NEWDB, 0600, NULL);
  char buf[20];
  CHECK(db && put(db, 1) == 0 && gdbm_close(db) == 0);
  old = gdbm_open("built", 0, GDBM_READER, 0, NULL);
  db = gdbm_open("new", 0, GDBM_NEWDB, 0600, NULL);
  CHECK(old && db && put(db, 2) == 0 && rename("new", "built") == 0 && put(db, 3) == 0);
  CHECK(gdbm_exists(old, number(buf, 1)) == 1 && gdbm_close(old) == 0);
  CHECK(gdbm_close(db) == 0 && count_of("built") == 2);
}

int main(void) {
  alarm(250);
  own_locks();
  unlocked();
  turns();
  daemons();
  renames();
  refused_descriptor();
  closed_in_a_child();
  closed_descriptors();
  puts("done");
  return 0;
}
