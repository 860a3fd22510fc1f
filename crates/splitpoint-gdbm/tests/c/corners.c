/* Corners: a full disk, a file system that is only read, no descriptors left, two threads, a signal handler that does
 * not return. corners WHAT NAME. An alarm ends what waits for ever. */
#define _GNU_SOURCE
#include <errno.h>
#include <gdbm.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"

static int fatal_calls;

static void fatal(const char *text) {
  (void)text;
  fatal_calls++;
}

static datum number(int *n) {
  datum d;
  d.dptr = (char *)n;
  d.dsize = sizeof *n;
  return d;
}

static int put(GDBM_FILE db, int n, int bytes) {
  static __thread char big[1000];
  datum value = {big, bytes};
  memcpy(big, &n, sizeof n);
  return gdbm_store(db, number(&n), value, GDBM_REPLACE);
}

static int has(GDBM_FILE db, int n) {
  datum found = gdbm_fetch(db, number(&n));
  int is_it = found.dptr != NULL && memcmp(found.dptr, &n, sizeof n) == 0;
  free(found.dptr);
  return is_it;
}

/* A store for which there is no room fails, and is not there; all others are, and deletes make room again. */
static void full(const char *name) {
  GDBM_FILE db = gdbm_open(name, 0, GDBM_NEWDB, 0600, fatal);
  gdbm_count_t count;
  int stored = 0, i;
  CHECK(db != NULL);
  while (put(db, stored, 1000) == 0) stored++;
  CHECK(gdbm_errno == GDBM_FILE_WRITE_ERROR && errno == ENOSPC && stored > 1000);
  CHECK(gdbm_last_errno(db) == GDBM_FILE_WRITE_ERROR && gdbm_last_syserr(db) == ENOSPC);
  CHECK(strcmp(gdbm_db_strerror(db), "File write error: No space left on device") == 0);
  CHECK(!gdbm_needs_recovery(db) && fatal_calls == 0);
  CHECK(gdbm_count(db, &count) == 0 && count == (gdbm_count_t)stored && !has(db, stored));
  for (i = 0; i < stored; i++) CHECK(has(db, i));
  CHECK(gdbm_sync(db) == 0);
  for (i = 0; i < stored / 2; i++) {
    int n = i;
    CHECK(gdbm_delete(db, number(&n)) == 0);
  }
  for (i = 0; i < stored / 4; i++) CHECK(put(db, i, 1000) == 0);
  CHECK(gdbm_close(db) == 0);
  CHECK((db = gdbm_open(name, 0, GDBM_READER, 0, NULL)) != NULL);
  for (i = 0; i < stored; i++) CHECK(has(db, i) == (i < stored / 4 || i >= stored / 2));
  CHECK(gdbm_close(db) == 0);
}

static void opens_not(const char *name, int flags, int code, int of_system) {
  gdbm_errno = 0;
  errno = 0;
  CHECK(gdbm_open(name, 0, flags, 0600, fatal) == NULL);
  CHECK(gdbm_errno == (gdbm_error)code && errno == of_system && fatal_calls == 0);
}

/* NAME is in a file system that is mounted to be read only. */
static void read_only(const char *name) {
  GDBM_FILE db = gdbm_open(name, 0, GDBM_READER, 0, NULL);
  char absent[4096];
  int i, n = 0;
  CHECK(db != NULL);
  for (i = 0; i < 100; i++) CHECK(has(db, i));
  CHECK(gdbm_store(db, number(&n), number(&n), GDBM_REPLACE) == -1 && gdbm_errno == GDBM_READER_CANT_STORE);
  CHECK(gdbm_sync(db) == 0 && gdbm_close(db) == 0);
  opens_not(name, GDBM_WRITER, GDBM_FILE_OPEN_ERROR, EROFS);
  opens_not(name, GDBM_NEWDB, GDBM_FILE_OPEN_ERROR, EROFS);
  CHECK(snprintf(absent, sizeof absent, "%s.absent", name) > 0);
  opens_not(absent, GDBM_WRCREAT, GDBM_FILE_OPEN_ERROR, EROFS);
  opens_not(absent, GDBM_READER, GDBM_FILE_OPEN_ERROR, ENOENT);
}

static void fill(const char *name) {
  GDBM_FILE db = gdbm_open(name, 0, GDBM_NEWDB, 0600, NULL);
  int i;
  CHECK(db != NULL);
  for (i = 0; i < 100; i++) CHECK(put(db, i, 100) == 0);
  CHECK(gdbm_close(db) == 0);
}

/* Leaves as if it were killed. */
static void left(const char *name) {
  GDBM_FILE db = gdbm_open(name, 0, GDBM_NEWDB, 0600, NULL);
  int i;
  CHECK(db != NULL);
  for (i = 0; i < 100; i++) CHECK(put(db, i, 100) == 0);
  _exit(0);
}

/* With so few descriptors an open fails, or all goes well; none is left open. */
static void descriptors(const char *name) {
  struct rlimit limit;
  GDBM_FILE db;
  int count, first, next, flags, opened = 0;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  fill(name);
  CHECK((first = dup(0)) >= 3 && close(first) == 0);
  for (flags = GDBM_READER; flags <= GDBM_NEWDB; flags++)
    for (count = first; count < first + 12; count++) {
      limit.rlim_cur = (rlim_t)count;
      CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
      gdbm_errno = 0;
      db = gdbm_open(name, 0, flags, 0600, fatal);
      if (db == NULL) {
        CHECK(gdbm_errno == GDBM_FILE_OPEN_ERROR && errno == EMFILE);
      } else {
        opened++;
        CHECK(flags == GDBM_NEWDB || has(db, 7));
        CHECK(flags == GDBM_READER || put(db, 7, 100) == 0);
        CHECK(gdbm_close(db) == 0);
      }
      CHECK(count > first || db == NULL);
      limit.rlim_cur = limit.rlim_max;
      CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
      CHECK((next = dup(0)) == first && close(next) == 0);
    }
  CHECK(opened > 0);
}

static GDBM_FILE shared;

static void *uses(void *from) {
  int i, base = *(int *)from;
  for (i = base; i < base + 3000; i++) {
    CHECK(put(shared, i, 100) == 0);
    CHECK(has(shared, i) && has(shared, base));
    if (i % 3 == 1) CHECK(gdbm_delete(shared, number(&i)) == 0);
  }
  return NULL;
}

static void threads(const char *name) {
  pthread_t thread[2];
  int from[2] = {0, 99999}, i;
  gdbm_count_t count;
  CHECK((shared = gdbm_open(name, 0, GDBM_NEWDB, 0600, NULL)) != NULL);
  for (i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, uses, &from[i]) == 0);
  for (i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  CHECK(gdbm_count(shared, &count) == 0 && count == 4000);
  CHECK(gdbm_close(shared) == 0);
}

static sigjmp_buf out;
static volatile sig_atomic_t is_inside;

static void leave(int signal) {
  (void)signal;
  if (is_inside) siglongjmp(out, 1);
}

static sigjmp_buf out_of_wait;
static volatile sig_atomic_t is_waiting;

static void leave_wait(int signal) {
  (void)signal;
  if (is_waiting) siglongjmp(out_of_wait, 1);
}

/* Waits for the handle, which no call ends, and leaves each wait. */
static void *waits(void *db) {
  volatile int left_count = 0;
  int n = 7;
  while (left_count < 3) {
    if (sigsetjmp(out_of_wait, 1) == 0) {
      is_waiting = 1;
      gdbm_exists(db, number(&n));
      is_waiting = 0;
      return "the call has ended";
    }
    is_waiting = 0;
    left_count++;
  }
  return NULL;
}

/* A thread that leaves its wait for a handle waits again: it is not the one that has it. */
static void left_wait(GDBM_FILE db) {
  pthread_t thread;
  void *found;
  CHECK(signal(SIGUSR1, leave_wait) != SIG_ERR);
  CHECK(pthread_create(&thread, NULL, waits, db) == 0);
  while (pthread_tryjoin_np(thread, &found) != 0) {
    usleep(20000);
    /* With glibc before 2.34 it fails for a thread that has just ended. */
    pthread_kill(thread, SIGUSR1);
  }
  CHECK(found == NULL);
}

/* A signal handler leaves a lookup by longjmp: the handle is lost, which its calls say instead of waiting. */
static void left_call(const char *name) {
  const struct itimerval soon = {{0, 0}, {0, 2000}};
  static char big[1000000];
  /* A long call that does not come near malloc(3), whose lock the jump would leave taken. */
  datum key = {big, sizeof big};
  GDBM_FILE db = gdbm_open(name, 0, GDBM_NEWDB, 0600, fatal);
  gdbm_count_t count;
  int n = 7;
  CHECK(db != NULL && gdbm_store(db, key, number(&n), GDBM_INSERT) == 0);
  CHECK(signal(SIGVTALRM, leave) != SIG_ERR);
  do {
    if (sigsetjmp(out, 1) == 0) {
      CHECK(setitimer(ITIMER_VIRTUAL, &soon, NULL) == 0);
      is_inside = 1;
      for (;;) gdbm_exists(db, key);
    }
    is_inside = 0;
    gdbm_errno = 0; /* The jump may have come between two calls. */
  } while (gdbm_exists(db, key));
  CHECK(gdbm_errno == GDBM_NEED_RECOVERY && errno == EDEADLK && fatal_calls == 0);
  errno = 0;
  CHECK(gdbm_store(db, number(&n), number(&n), GDBM_REPLACE) == -1 && errno == EDEADLK);
  CHECK(gdbm_count(db, &count) == -1 && gdbm_sync(db) == -1 && gdbm_recover(db, NULL, 0) == -1);
  CHECK(gdbm_last_errno(db) == GDBM_NEED_RECOVERY && gdbm_db_strerror(db) != NULL);
  gdbm_clear_error(db);
  left_wait(db);
  CHECK(gdbm_close(db) == -1 && errno == EDEADLK);
  CHECK(gdbm_open(name, 0, GDBM_WRITER, 0, NULL) == NULL && gdbm_errno == GDBM_CANT_BE_WRITER);
}

int main(int argument_count, char **arguments) {
  const char *what, *name;
  alarm(250);
  CHECK(argument_count == 3);
  what = arguments[1];
  name = arguments[2];
  if (strcmp(what, "full") == 0) full(name);
  if (strcmp(what, "fill") == 0) fill(name);
  if (strcmp(what, "left") == 0) left(name);
  if (strcmp(what, "read-only") == 0) read_only(name);
  if (strcmp(what, "descriptors") == 0) descriptors(name);
  if (strcmp(what, "threads") == 0) threads(name);
  if (strcmp(what, "left call") == 0) left_call(name);
  puts("done");
  return 0;
}
