/* Two programs write one database by turns: "turns NAME PROCESSES COUNT" counts, "killed NAME" has one of them
 * killed, "walks NAME" deletes what it walks over, "own NAME" locks the whole file around all of it. */
#include <fcntl.h>
#include <ndbm.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static DBM *opened(const char *name, int flags)
{
    DBM *db = dbm_open(name, flags, 0600);
    CHECK(db != NULL);
    return db;
}

static datum of(int *number)
{
    datum it = {(char *)number, sizeof *number};
    return it;
}

static int number_of(DBM *db, int key)
{
    datum value = dbm_fetch(db, of(&key));
    int number = -1;
    CHECK(dbm_error(db) == 0);
    if (value.dptr == NULL) return -1;
    CHECK(value.dsize == sizeof number);
    memcpy(&number, value.dptr, sizeof number);
    return number;
}

static void put(DBM *db, int key, int value)
{
    CHECK(dbm_store(db, of(&key), of(&value), DBM_REPLACE) == 0);
}

static void whole_file(int fd, short type)
{
    struct flock lock = {0};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    CHECK(fcntl(fd, F_SETLKW, &lock) == 0);
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A reader of files that are still empty sees what becomes of them. */
static void empty(const char *name)
{
    char path[4096];
    DBM *reader, *db;
    snprintf(path, sizeof path, "%s.pag", name);
    CHECK(close(open(path, O_RDWR | O_CREAT, 0600)) == 0);
    reader = opened(name, O_RDONLY);
    CHECK(number_of(reader, 1) == -1 && dbm_firstkey(reader).dptr == NULL);
    db = opened(name, O_RDWR);
    CHECK(number_of(reader, 1) == -1);
    put(db, 1, 2);
    CHECK(number_of(reader, 1) == 2 && dbm_firstkey(reader).dsize == sizeof(int));
    CHECK(dbm_nextkey(reader).dptr == NULL && dbm_error(reader) == 0);
    dbm_close(db);
    dbm_close(reader);
}

/* Each stores keys of its own; readers that were open before see them at once. */
static void turns(const char *name, int processes, int count)
{
    int i, which;
    pid_t children[16];
    DBM *reader, *db = opened(name, O_RDWR | O_CREAT);
    CHECK(processes <= 16);
    reader = opened(name, O_RDONLY);
    for (which = 0; which < processes; which++) {
        CHECK((children[which] = fork()) >= 0);
        if (children[which] == 0) {
            DBM *own = opened(name, O_RDWR | O_CREAT);
            for (i = 0; i < count; i++) {
                put(own, i * processes + which, i);
                if (i > 0) CHECK(number_of(own, (i - 1) * processes + which) == i - 1);
                /* Every other one opens the database anew now and then. */
                if (which % 2 && i % 50 == 0) {
                    dbm_close(own);
                    own = opened(name, O_RDWR);
                }
            }
            dbm_close(own);
            _exit(0);
        }
    }
    for (i = 0; i < count; i++) put(db, -1 - i, i);
    for (which = 0; which < processes; which++) wait_for(children[which]);
    for (i = 0; i < count; i++) {
        CHECK(number_of(reader, -1 - i) == i && number_of(db, -1 - i) == i);
        for (which = 0; which < processes; which++)
            CHECK(number_of(reader, i * processes + which) == i);
    }
    dbm_close(reader);
    dbm_close(db);
}

/* A counter under a lock of the program's own, as old programs have it. */
static void counts(const char *name, int by_flock)
{
    enum { COUNT = 300 };
    int i;
    pid_t child = fork();
    DBM *db = opened(name, O_RDWR | O_CREAT);
    int fd = by_flock ? dbm_dirfno(db) : dbm_pagfno(db);
    for (i = 0; i < COUNT; i++) {
        int number;
        if (by_flock)
            CHECK(flock(fd, LOCK_EX) == 0);
        else
            whole_file(fd, F_WRLCK);
        number = number_of(db, 1 << 30);
        put(db, 1 << 30, number < 0 ? 1 : number + 1);
        if (by_flock)
            CHECK(flock(fd, LOCK_UN) == 0);
        else
            whole_file(fd, F_UNLCK);
    }
    if (child == 0) {
        dbm_close(db);
        _exit(0);
    }
    wait_for(child);
    CHECK(number_of(db, 1 << 30) % (2 * COUNT) == 0);
    dbm_close(db);
}

static void killed(const char *name)
{
    int round, i, pipes[2], done, number;
    DBM *db = opened(name, O_RDWR | O_CREAT);
    for (round = 0; round < 5; round++) {
        pid_t child;
        CHECK(pipe(pipes) == 0 && (child = fork()) >= 0);
        if (child == 0) {
            DBM *own = opened(name, O_RDWR);
            for (i = 0;; i++) {
                put(own, i % 3000, i);
                CHECK(write(pipes[1], &i, sizeof i) == sizeof i);
            }
        }
        close(pipes[1]);
        for (done = 0; done < 2000; done++) {
            CHECK(read(pipes[0], &number, sizeof number) == sizeof number);
            put(db, 100000 + done, done + round);
        }
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        while (read(pipes[0], &number, sizeof number) == sizeof number) continue;
        close(pipes[0]);
        /* The next store does not wait, and nothing acknowledged is lost. */
        put(db, 200000, round);
        for (i = number < 3000 ? 0 : number - 2999; i <= number; i++)
            CHECK(number_of(db, i % 3000) >= i);
        for (i = 0; i < 2000; i++) CHECK(number_of(db, 100000 + i) == i + round);
    }
    dbm_close(db);
}

/* One walks and deletes while another stores: every key that was there comes, once. */
static void walks(const char *name)
{
    enum { COUNT = 5000 };
    static char seen[COUNT];
    int i, pipes[2], count = 0;
    pid_t child;
    datum key;
    char byte;
    DBM *db = opened(name, O_RDWR | O_CREAT | O_TRUNC);
    for (i = 0; i < COUNT; i++) put(db, i, i);
    CHECK(pipe(pipes) == 0 && (child = fork()) >= 0);
    if (child == 0) {
        DBM *own = opened(name, O_RDWR);
        close(pipes[1]);
        for (i = 0; i < COUNT; i++) put(own, COUNT + i, i);
        CHECK(read(pipes[0], &byte, 1) == 0);
        /* It sees what the other has deleted. */
        for (i = 0; i < COUNT; i++) CHECK(number_of(own, i) == -1);
        dbm_close(own);
        _exit(0);
    }
    close(pipes[0]);
    for (key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        memcpy(&i, key.dptr, sizeof i);
        if (i >= COUNT) continue;
        CHECK(!seen[i]);
        seen[i] = 1;
        count++;
        CHECK(dbm_delete(db, key) == 0);
    }
    CHECK(dbm_error(db) == 0 && count == COUNT);
    CHECK(close(pipes[1]) == 0);
    wait_for(child);
    /* The first key until there is none. */
    for (count = 0; (key = dbm_firstkey(db)).dptr != NULL; count++) CHECK(dbm_delete(db, key) == 0);
    CHECK(count == COUNT);
    dbm_close(db);
}

/* A program that locks its own descriptor from before the opening to after the close. */
static void own(const char *name)
{
    char path[4096], byte;
    int fd, i, pipes[2], back[2];
    pid_t child;
    DBM *db = opened(name, O_RDWR | O_CREAT | O_TRUNC), *second;
    dbm_close(db);
    snprintf(path, sizeof path, "%s.pag", name);
    CHECK((fd = open(path, O_RDWR)) >= 0 && pipe(pipes) == 0 && pipe(back) == 0);
    whole_file(fd, F_WRLCK);
    db = opened(name, O_RDWR);
    put(db, 1, 1);
    second = opened(name, O_RDWR);
    put(second, 2, 2);
    put(db, 3, 3);
    CHECK(number_of(db, 2) == 2 && number_of(second, 3) == 3);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        struct flock lock = {0};
        int other = open(path, O_RDWR);
        lock.l_type = F_WRLCK;
        CHECK(fcntl(other, F_SETLK, &lock) == -1); /* Calls have not ended the parent's. */
        close(pipes[1]);
        CHECK(write(back[1], "", 1) == 1 && read(pipes[0], &byte, 1) == 0);
        CHECK(fcntl(other, F_SETLKW, &lock) == 0);
        db = opened(name, O_RDWR);
        for (i = 1; i <= 4; i++) CHECK(number_of(db, i) == i);
        put(db, 5, 5);
        dbm_close(db);
        _exit(0);
    }
    CHECK(read(back[0], &byte, 1) == 1);
    put(db, 4, 4);
    whole_file(fd, F_UNLCK);
    close(pipes[1]);
    wait_for(child);
    CHECK(number_of(db, 5) == 5 && number_of(second, 5) == 5);
    dbm_close(second);
    dbm_close(db);
    close(fd);
}

int main(int argument_count, char **arguments)
{
    const char *name = arguments[2];
    CHECK(argument_count >= 3);
    alarm(250); /* Whoever waits for itself waits for ever. */
    if (strcmp(arguments[1], "turns") == 0) {
        CHECK(argument_count == 5);
        empty(name);
        turns(name, atoi(arguments[3]), atoi(arguments[4]));
        counts(name, 0);
        counts(name, 1);
    } else if (strcmp(arguments[1], "killed") == 0) {
        killed(name);
    } else if (strcmp(arguments[1], "walks") == 0) {
        walks(name);
    } else {
        CHECK(strcmp(arguments[1], "own") == 0);
        own(name);
    }
    return 0;
}
