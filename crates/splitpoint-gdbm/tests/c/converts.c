/* The first change of an old file, in what may come between it and the opening: converts CASE. The
 * folder has the old file `old`. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gdbm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static datum new_key = {(char *)"a key that is new", 17};

static GDBM_FILE open_old(int flags) {
  GDBM_FILE db = gdbm_open("old", 0, GDBM_WRITER | flags, 0, NULL);
  CHECK(db != NULL);
  return db;
}

static void write_text(const char *name, const char *text) {
  FILE *f = fopen(name, "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void check_text(const char *name, const char *text) {
  char found[100] = "";
  FILE *f = fopen(name, "r");
  CHECK(f && fgets(found, sizeof found, f) != NULL && fclose(f) == 0);
  CHECK(strcmp(found, text) == 0);
}

/* The program goes to a folder in which the name is another file's. */
static void goes_elsewhere(void) {
  GDBM_FILE db = open_old(0);
  CHECK(mkdir("elsewhere", 0700) == 0 && chdir("elsewhere") == 0);
  write_text("old", "another file");
  CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == 0 && gdbm_close(db) == 0);
  check_text("old", "another file");
  CHECK(access("old.before-splitpoint", F_OK) == -1 && chdir("..") == 0);
  CHECK(access("old.before-splitpoint", F_OK) == 0);
  db = open_old(0);
  CHECK(gdbm_exists(db, new_key) && gdbm_close(db) == 0);
}

/* The name is given to another file. */
static void loses_its_name(void) {
  GDBM_FILE db = open_old(0);
  write_text("other", "another file");
  CHECK(rename("other", "old") == 0);
  CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == -1 && errno == ESTALE);
  CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == -1 && gdbm_close(db) == 0);
  check_text("old", "another file");
  CHECK(access("old.before-splitpoint", F_OK) == -1);
}

/* A walk goes on in the store: every key comes once, those that are deleted on the way too. */
static void walks(void) {
  GDBM_FILE db = open_old(0);
  gdbm_count_t count;
  int n = 0;
  datum key, next;
  CHECK(gdbm_count(db, &count) == 0);
  for (key = gdbm_firstkey(db); key.dptr; key = next, n++) {
    if (n == 100) CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == 0);
    if (n >= 100) CHECK(gdbm_delete(db, key) == 0);
    next = gdbm_nextkey(db, key);
    free(key.dptr);
  }
  CHECK(gdbm_errno == GDBM_ITEM_NOT_FOUND && (gdbm_count_t)n == count);
  CHECK(gdbm_count(db, &count) == 0 && count == 101 && gdbm_close(db) == 0);
}

/* A conversion was killed when it had kept the file, and not given the name away. */
static void was_killed(void) {
  GDBM_FILE db;
  CHECK(link("old", "old.before-splitpoint") == 0);
  db = open_old(0);
  CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == 0 && gdbm_close(db) == 0);
}

/* What was kept before is not overwritten. */
static void was_kept(void) {
  GDBM_FILE db = open_old(0);
  write_text("old.before-splitpoint", "another file");
  CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == -1 && errno == EEXIST);
  CHECK(gdbm_errno == GDBM_BACKUP_FAILED && gdbm_close(db) == 0);
  check_text("old.before-splitpoint", "another file");
}

/* Two that do not lock do not convert it at once, and leave no other file behind. Of the store they take turns. */
static void are_two(void) {
  GDBM_FILE db = open_old(GDBM_NOLOCK), other;
  struct dirent *entry;
  DIR *folder;
  CHECK(gdbm_open("old", 0, GDBM_WRITER | GDBM_NOLOCK, 0, NULL) == NULL);
  CHECK(gdbm_errno == GDBM_CANT_BE_WRITER && errno == EAGAIN);
  CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == 0);
  other = gdbm_open("old", 0, GDBM_WRITER | GDBM_NOLOCK, 0, NULL);
  CHECK(other && gdbm_exists(other, new_key) && gdbm_delete(other, new_key) == 0);
  CHECK(!gdbm_exists(db, new_key) && gdbm_close(other) == 0);
  CHECK(gdbm_close(db) == 0 && (folder = opendir(".")) != NULL);
  while ((entry = readdir(folder)) != NULL) CHECK(strstr(entry->d_name, "splitpoint-new") == NULL);
  closedir(folder);
}

/* The program has closed the descriptor, and its number is a file of its own. */
static void is_closed(void) {
  GDBM_FILE db = open_old(0);
  int number = gdbm_fdesc(db), own;
  CHECK(close(number) == 0);
  own = open("own", O_RDWR | O_CREAT, 0600);
  CHECK(own == number);
  CHECK(gdbm_store(db, new_key, new_key, GDBM_INSERT) == -1 && errno == EBADF);
  gdbm_close(db);
  CHECK(lseek(own, 0, SEEK_END) == 0 && write(own, "x", 1) == 1 && close(own) == 0);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {
      {"goes elsewhere", goes_elsewhere}, {"loses its name", loses_its_name},
      {"walks", walks},                   {"was killed", was_killed},
      {"was kept", was_kept},             {"are two", are_two},
      {"is closed", is_closed},
  };
  size_t i;
  alarm(250);
  setenv("SPLITPOINT_OLD_FILES", "convert", 1);
  for (i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      puts("done");
      return 0;
    }
  }
  return 2;
}
