/* Open, fork, the parent goes, the child goes on: as daemons do. */
#include <fcntl.h>
#include <ndbm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char log_path[4096];

static datum of(const char *bytes)
{
    datum it = {(char *)bytes, (int)strlen(bytes)};
    return it;
}

static int is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The child goes on with the walk of its parent, and with the files that it has: other files have taken
 * the names meanwhile. */
static void walks_and_renames(const char *name)
{
    char pag[4096], dir[4096], moved[4096], buf[20];
    int pipes[2], status, count = 0;
    char byte;
    pid_t child;
    datum key = {buf, 0};
    DBM *db = dbm_open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    snprintf(pag, sizeof pag, "%s.pag", name);
    snprintf(dir, sizeof dir, "%s.dir", name);
    snprintf(moved, sizeof moved, "%s.moved", name);
    CHECK(db != NULL && pipe(pipes) == 0);
    for (count = 0; count < 1000; count++) {
        key.dsize = sprintf(buf, "%d", count);
        CHECK(dbm_store(db, key, key, DBM_INSERT) == 0);
    }
    key = dbm_firstkey(db);
    for (count = 1; count < 500; count++) key = dbm_nextkey(db);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        CHECK(close(pipes[1]) == 0);
        CHECK(read(pipes[0], &byte, 1) == 0); /* The parent has closed. */
        while ((key = dbm_nextkey(db)).dptr != NULL) count++;
        CHECK(dbm_error(db) == 0 && count == 1000);
        CHECK(dbm_store(db, of("child"), of("2"), DBM_REPLACE) == 0);
        dbm_close(db);
        _exit(0);
    }
    CHECK(rename(pag, moved) == 0);
    dbm_close(db);
    db = dbm_open(name, O_RDWR | O_CREAT, 0600);
    CHECK(db != NULL && dbm_store(db, of("other"), of("1"), DBM_REPLACE) == 0);
    dbm_close(db);
    CHECK(close(pipes[1]) == 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK((db = dbm_open(name, O_RDONLY, 0)) != NULL);
    CHECK(dbm_fetch(db, of("child")).dptr == NULL && dbm_fetch(db, of("other")).dsize == 1);
    dbm_close(db);
    CHECK(is_there(dir) && rename(moved, pag) == 0);
    CHECK((db = dbm_open(name, O_RDONLY, 0)) != NULL);
    CHECK(dbm_fetch(db, of("child")).dsize == 1 && dbm_fetch(db, of("999")).dsize == 3);
    dbm_close(db);
}

/* A daemon that closes all descriptors, and opens a log of its own. */
static void closes_all(const char *name)
{
    int status, number, own;
    pid_t child;
    DBM *db = dbm_open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(db != NULL && (child = fork()) >= 0);
    if (child == 0) {
        int pag = dbm_pagfno(db);
        for (number = 3; number < 64; number++) close(number);
        do {
            own = open("/dev/null", O_RDWR);
        } while (own >= 0 && own < pag - 1);
        CHECK((own = open(log_path, O_RDWR | O_CREAT | O_TRUNC, 0600)) == pag);
        CHECK(dbm_store(db, of("child"), of("2"), DBM_REPLACE) == -1);
        dbm_close(db);
        CHECK(lseek(own, 0, SEEK_END) == 0 && close(own) == 0);
        _exit(0);
    }
    dbm_close(db);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argument_count, char **arguments)
{
    int pipes[2], status;
    char byte;
    pid_t child;
    DBM *db;
    CHECK(argument_count == 2 && pipe(pipes) == 0);
    alarm(250);
    CHECK((db = dbm_open(arguments[1], O_RDWR | O_CREAT, 0600)) != NULL);
    CHECK(dbm_store(db, of("parent"), of("1"), DBM_REPLACE) == 0);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        CHECK(close(pipes[1]) == 0);
        /* Beside the parent, and after it. */
        CHECK(dbm_fetch(db, of("parent")).dsize == 1);
        CHECK(dbm_store(db, of("beside"), of("2"), DBM_REPLACE) == 0);
        CHECK(read(pipes[0], &byte, 1) == 0); /* The parent has closed. */
        CHECK(dbm_fetch(db, of("parent")).dsize == 1);
        CHECK(dbm_store(db, of("child"), of("2"), DBM_REPLACE) == 0);
        dbm_close(db);
        return 0;
    }
    CHECK(dbm_store(db, of("parent"), of("3"), DBM_REPLACE) == 0);
    dbm_close(db);
    CHECK(close(pipes[1]) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK((db = dbm_open(arguments[1], O_RDWR, 0)) != NULL);
    CHECK(dbm_fetch(db, of("child")).dsize == 1 && dbm_fetch(db, of("beside")).dsize == 1);
    CHECK(*(char *)dbm_fetch(db, of("parent")).dptr == '3');
    dbm_close(db);
    walks_and_renames(arguments[1]);
    snprintf(log_path, sizeof log_path, "%s.log", arguments[1]);
    closes_all(arguments[1]);
    return 0;
}
