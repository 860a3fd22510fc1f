/* A database in a folder that may not be written, without a NAME.dir of its own: ndbm_folder FOLDER. Root may
 * write everywhere, so a child is somebody else. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ndbm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { NOBODY = 65534 };

static char name[4096], pag[4096 + 8], dir[4096 + 8];

static void make(void)
{
    datum key = {name, 1};
    DBM *db;
    umask(0);
    CHECK((db = dbm_open(name, O_RDWR | O_CREAT, 0666)) != NULL);
    CHECK(dbm_store(db, key, key, DBM_REPLACE) == 0);
    dbm_close(db);
    CHECK(unlink(dir) == 0);
}

/* Opens it as one who may write the database alone, changes it, and looks at what there is for NAME.dir. */
static void change(const char *folder, int is_linked)
{
    struct stat of_pag, of_dir;
    datum key = {name, 2};
    int status;
    pid_t child;
    DBM *db;
    CHECK(chmod(folder, 0555) == 0 && (child = fork()) >= 0);
    if (child == 0) {
        CHECK(geteuid() != 0 || (setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0));
        CHECK((db = dbm_open(name, O_RDWR | O_CREAT, 0666)) != NULL);
        CHECK(dbm_store(db, key, key, DBM_INSERT) == 0 && dbm_fetch(db, key).dsize == 2);
        errno = 0;
        if (is_linked) {
            CHECK(fstat(dbm_pagfno(db), &of_pag) == 0 && fstat(dbm_dirfno(db), &of_dir) == 0);
            CHECK(of_pag.st_ino == of_dir.st_ino && dbm_pagfno(db) != dbm_dirfno(db));
        } else {
            CHECK(dbm_dirfno(db) == -1 && errno == ENOENT && access(dir, F_OK) == -1);
        }
        CHECK(dbm_delete(db, key) == 0 && dbm_error(db) == 0);
        dbm_close(db);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(chmod(folder, 0755) == 0);
}

/* In a folder where each may remove his own files alone, the owner of NAME.dir has to replace it. */
static void change_as(uid_t user, const char *folder)
{
    char left[4096 + 32];
    datum key = {name, 3};
    int status;
    pid_t child;
    DBM *db;
    sprintf(left, "%s.dir.splitpoint-new", name);
    CHECK(chmod(folder, 01777) == 0 && (child = fork()) >= 0);
    if (child == 0) {
        CHECK(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
        CHECK((db = dbm_open(name, O_RDWR, 0)) != NULL);
        CHECK(dbm_store(db, key, key, DBM_REPLACE) == 0);
        dbm_close(db);
        CHECK(access(left, F_OK) == -1);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(chmod(folder, 0755) == 0);
}

/* A NAME.dir that is missing is made with the permissions of NAME.pag, whatever the mode and the umask. */
static void make_again(const char *folder)
{
    struct stat of_pag, of_dir;
    int status, i;
    pid_t child;
    DBM *db;
    CHECK(chmod(folder, 0777) == 0 && unlink(pag) == 0 && unlink(dir) == 0 && (child = fork()) >= 0);
    if (child == 0) {
        CHECK(geteuid() != 0 || (setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0));
        make();
        umask(077);
        for (i = 0; i < 2; i++) {
            CHECK((db = dbm_open(name, O_RDWR, 0)) != NULL);
            CHECK(stat(pag, &of_pag) == 0 && stat(dir, &of_dir) == 0);
            CHECK(of_pag.st_mode == of_dir.st_mode && (of_dir.st_mode & 0777) == 0666);
            dbm_close(db);
        }
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(chmod(folder, 0755) == 0);
}

int main(int argument_count, char **arguments)
{
    struct stat of_pag, of_dir;
    DBM *db;
    CHECK(argument_count == 2);
    CHECK(chmod(arguments[1], 0755) == 0);
    CHECK(snprintf(name, sizeof name, "%s/x", arguments[1]) < (int)sizeof name);
    sprintf(pag, "%s.pag", name);
    sprintf(dir, "%s.dir", name);
    make();
    change(arguments[1], 0);
    CHECK(link(pag, dir) == 0);
    change(arguments[1], 1);
    if (geteuid() == 0) {
        change_as(NOBODY, arguments[1]);
        change_as(1234, arguments[1]);
    }
    /* Who may write the folder gives it a file of its own. */
    CHECK((db = dbm_open(name, O_RDWR, 0)) != NULL);
    CHECK(stat(pag, &of_pag) == 0 && stat(dir, &of_dir) == 0 && of_pag.st_ino != of_dir.st_ino);
    dbm_close(db);
    make_again(arguments[1]);
    return 0;
}
