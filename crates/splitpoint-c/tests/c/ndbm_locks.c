/* Locks of the program on the descriptors of a database, as old programs take them. */
#include <fcntl.h>
#include <ndbm.h>
#include <sys/file.h>
#include <unistd.h>

#include "check.h"

static void store(DBM *db, const char *bytes)
{
    datum it = {(char *)bytes, (int)strlen(bytes)};
    CHECK(dbm_store(db, it, it, DBM_REPLACE) == 0);
}

static void whole_file(int fd, short type)
{
    struct flock lock = {0};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    CHECK(fcntl(fd, F_SETLKW, &lock) == 0);
}

int main(int argument_count, char **arguments)
{
    char path[4096];
    int fd, i;
    DBM *db;
    CHECK(argument_count == 2);
    alarm(250); /* A lock that meets one of ours would wait for ever. */
    CHECK((db = dbm_open(arguments[1], O_RDWR | O_CREAT, 0600)) != NULL);
    for (i = 0; i < 2; i++) {
        int of_file = i ? dbm_dirfno(db) : dbm_pagfno(db);
        CHECK(flock(of_file, LOCK_EX) == 0);
        store(db, "under flock");
        CHECK(flock(of_file, LOCK_UN) == 0);
        store(db, "after flock");
        whole_file(of_file, F_WRLCK);
        store(db, "under a lock of fcntl");
        whole_file(of_file, F_UNLCK);
        store(db, "after a lock of fcntl");
    }
    /* On a description of the program's own, too. */
    snprintf(path, sizeof path, "%s.pag", arguments[1]);
    CHECK((fd = open(path, O_RDWR)) >= 0);
    CHECK(flock(fd, LOCK_EX) == 0);
    store(db, "under flock of another");
    CHECK(flock(fd, LOCK_UN) == 0);
    /* A second handle takes turns with the first, whatever the program locks, unlocks and closes. */
    for (i = 0; i < 3; i++) {
        DBM *other;
        datum found, key = {(char *)"of the other", 12};
        if (i == 1) whole_file(fd, F_WRLCK);
        if (i == 2) CHECK(close(fd) == 0);
        CHECK((other = dbm_open(arguments[1], O_RDWR, 0)) != NULL);
        store(other, "of the other");
        store(db, "of the first");
        found = dbm_fetch(db, key);
        CHECK(found.dptr != NULL && found.dsize == 12 && dbm_delete(db, key) == 0);
        CHECK(dbm_fetch(other, key).dptr == NULL && dbm_error(other) == 0);
        dbm_close(other);
        if (i == 1) whole_file(fd, F_UNLCK);
    }
    dbm_close(db);
    CHECK((db = dbm_open(arguments[1], O_RDWR, 0)) != NULL);
    dbm_close(db);
    return 0;
}
