/* Recoveries of sound and damaged files, what is locked meanwhile, and what failures leave behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <gdbm.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define COUNT 5000

static void make(const char *name) {
  GDBM_FILE db = gdbm_open(name, 0, GDBM_NEWDB, 0640, NULL);
  char buf[100];
  datum key;
  int i;
  CHECK(db != NULL);
  for (i = 0; i < COUNT; i++) {
    key.dptr = buf;
    key.dsize = sprintf(buf, "the key and the value, both of them, of number %d.", i);
    CHECK(gdbm_store(db, key, key, GDBM_INSERT) == 0);
  }
  CHECK(gdbm_close(db) == 0);
}

/* Changes a byte of the value of a key. */
static void damage(const char *name) {
  const char text[] = "both of them, of number 2345.";
  int fd = open(name, O_RDWR);
  struct stat st;
  char *bytes, *found;
  size_t place;
  CHECK(fd >= 0 && fstat(fd, &st) == 0 && (bytes = malloc((size_t)st.st_size)) != NULL);
  CHECK(read(fd, bytes, (size_t)st.st_size) == st.st_size);
  found = memmem(bytes, (size_t)st.st_size, text, sizeof text - 1);
  CHECK(found != NULL);
  place = (size_t)(found - bytes);
  found = memmem(found + 1, (size_t)st.st_size - place - 1, text, sizeof text - 1);
  CHECK(found != NULL && pwrite(fd, "B", 1, found - bytes) == 1 && close(fd) == 0);
  free(bytes);
}

static ino_t inode(const char *name) {
  struct stat st;
  CHECK(stat(name, &st) == 0);
  return st.st_ino;
}

struct reported {
  GDBM_FILE db;
  int count;
};

static void report(void *data, char const *format, ...) {
  struct reported *reported = data;
  gdbm_count_t count;
  va_list args;
  char text[1000];
  va_start(args, format);
  CHECK(vsnprintf(text, sizeof text, format, args) > 0);
  va_end(args);
  /* It may use the database. */
  CHECK(gdbm_count(reported->db, &count) == 0);
  reported->count++;
}

static void sound_files(void) {
  GDBM_FILE db;
  gdbm_recovery found;
  ino_t before;
  struct stat st;
  make("sound");
  before = inode("sound");
  CHECK((db = gdbm_open("sound", 0, GDBM_WRITER, 0, NULL)) != NULL);
  CHECK(gdbm_recover(db, &found, 0) == 0 && inode("sound") == before);
  CHECK(found.recovered_keys == COUNT && found.recovered_buckets > 0 && found.failed_keys == 0);
  CHECK(found.failed_buckets == 0 && found.duplicate_keys == 0 && found.backup_name == NULL);
  CHECK(gdbm_recover(db, &found, GDBM_RCVR_FORCE | GDBM_RCVR_BACKUP) == 0);
  CHECK(inode("sound") != before && found.recovered_keys == COUNT && found.failed_keys == 0);
  CHECK(stat("sound", &st) == 0 && (st.st_mode & 0777) == 0640);
  CHECK(fstat(gdbm_fdesc(db), &st) == 0 && st.st_ino == inode("sound"));
  CHECK(found.backup_name != NULL && access(found.backup_name, R_OK) == 0);
  free(found.backup_name);
  CHECK(gdbm_recover(db, NULL, GDBM_RCVR_FORCE) == 0 && gdbm_close(db) == 0);
}

static void damaged_files(void) {
  GDBM_FILE db;
  gdbm_recovery found;
  struct reported reported = {NULL, 0};
  gdbm_count_t count;
  ino_t before;
  make("damaged");
  damage("damaged");
  before = inode("damaged");
  CHECK((db = gdbm_open("damaged", 0, GDBM_WRITER, 0, NULL)) != NULL);
  memset(&found, 0, sizeof found);
  found.max_failed_keys = found.max_failures = 1;
  CHECK(gdbm_recover(db, &found, GDBM_RCVR_MAX_FAILED_KEYS) == -1);
  CHECK(gdbm_errno == GDBM_NEED_RECOVERY && found.failed_keys == 1 && inode("damaged") == before);
  CHECK(gdbm_recover(db, &found, GDBM_RCVR_MAX_FAILURES) == -1 && inode("damaged") == before);
  found.max_failed_keys = found.max_failed_buckets = 2;
  found.errfun = report;
  found.data = &reported;
  reported.db = db;
  CHECK(gdbm_recover(db, &found,
                     GDBM_RCVR_ERRFUN | GDBM_RCVR_MAX_FAILED_KEYS | GDBM_RCVR_MAX_FAILED_BUCKETS) == 0);
  CHECK(reported.count > 0 && found.failed_keys == 1 && found.recovered_keys == COUNT - 1);
  CHECK(inode("damaged") != before && gdbm_count(db, &count) == 0 && count == COUNT - 1);
  CHECK(gdbm_needs_recovery(db) == 0 && gdbm_close(db) == 0);
}

/* Nobody gets in while a recovery replaces the file. */
static void locks(void) {
  int pipes[2], i, tried[2];
  GDBM_FILE db;
  pid_t child;
  char byte;
  make("locked");
  CHECK(pipe(pipes) == 0 && pipe(tried) == 0);
  CHECK((db = gdbm_open("locked", 0, GDBM_WRITER, 0, NULL)) != NULL && (child = fork()) >= 0);
  if (child == 0) {
    alarm(250);
    CHECK(close(pipes[1]) == 0 && fcntl(pipes[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK(close(tried[0]) == 0 && fcntl(tried[1], F_SETFL, O_NONBLOCK) == 0);
    while (read(pipes[0], &byte, 1) == -1) {
      CHECK(gdbm_open("locked", 0, GDBM_WRITER, 0, NULL) == NULL);
      CHECK(gdbm_errno == GDBM_CANT_BE_WRITER);
      /* The pipe may be full: it tries more often than the parent recovers. */
      CHECK(write(tried[1], "x", 1) == 1 || errno == EAGAIN);
    }
    _exit(0);
  }
  CHECK(close(tried[1]) == 0);
  for (i = 0; i < 5; i++) {
    CHECK(read(tried[0], &byte, 1) == 1);
    CHECK(gdbm_recover(db, NULL, GDBM_RCVR_FORCE) == 0);
  }
  CHECK(close(pipes[1]) == 0 && waitpid(child, &i, 0) == child && i == 0);
  CHECK(gdbm_close(db) == 0);
}

/* An open that fails leaves the lock of the program's descriptor as it was. */
static void failed_open(void) {
  int fd = open("text", O_RDWR | O_CREAT, 0600), other;
  CHECK(fd >= 0 && write(fd, "This is a text.", 15) == 15);
  CHECK(gdbm_fd_open(fd, "text", 0, GDBM_WRITER, NULL) == NULL);
  CHECK(gdbm_errno == GDBM_FILE_EOF && (other = open("text", O_RDWR)) >= 0);
  CHECK(flock(other, LOCK_EX | LOCK_NB) == 0 && close(other) == 0 && close(fd) == 0);
}

/* Names in no encoding, and a second file that is there already. */
static void snapshots(void) {
  static const char even[] = "even\xff.db", odd[] = "odd\xff.db";
  GDBM_FILE db = gdbm_open("sound", 0, GDBM_WRITER, 0, NULL);
  const char *chosen = NULL;
  int fd = open(odd, O_RDWR | O_CREAT, 0200);
  CHECK(db != NULL && fd >= 0 && close(fd) == 0);
  CHECK(gdbm_failure_atomic(db, even, odd) == -1 && errno == EEXIST);
  CHECK(access(even, F_OK) == -1 && gdbm_close(db) == 0);
  make(even);
  CHECK(chmod(even, 0400) == 0 && gdbm_latest_snapshot(even, odd, &chosen) == GDBM_SNAPSHOT_OK);
  CHECK(chosen == even);
}

/* Calls that succeed leave errno as it was. */
static void quiet(void) {
  datum key = {(char *)"key", 3}, value;
  GDBM_FILE db;
  errno = 7;
  CHECK((db = gdbm_open("quiet", 0, GDBM_NEWDB, 0600, NULL)) != NULL && errno == 7);
  CHECK(gdbm_store(db, key, key, GDBM_INSERT) == 0 && errno == 7);
  value = gdbm_fetch(db, key);
  CHECK(value.dptr != NULL && errno == 7);
  free(value.dptr);
  CHECK(gdbm_sync(db) == 0 && errno == 7);
  CHECK(gdbm_reorganize(db) == 0 && errno == 7);
  CHECK(gdbm_close(db) == 0 && errno == 7);
}

int main(void) {
  alarm(250);
  sound_files();
  damaged_files();
  locks();
  failed_open();
  snapshots();
  quiet();
  puts("done");
  return 0;
}
