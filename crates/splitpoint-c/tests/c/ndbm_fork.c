/* Open, fork, the parent goes, the child goes on: as daemons do. */
#include <fcntl.h>
#include <ndbm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static datum of(const char *bytes)
{
    datum it = {(char *)bytes, (int)strlen(bytes)};
    return it;
}

int main(int argument_count, char **arguments)
{
    int pipes[2], status;
    char byte;
    pid_t child;
    DBM *db;
    CHECK(argument_count == 2 && pipe(pipes) == 0);
    alarm(60);
    CHECK((db = dbm_open(arguments[1], O_RDWR | O_CREAT, 0600)) != NULL);
    CHECK(dbm_store(db, of("parent"), of("1"), DBM_REPLACE) == 0);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        CHECK(close(pipes[1]) == 0);
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
    CHECK(dbm_fetch(db, of("child")).dsize == 1);
    CHECK(*(char *)dbm_fetch(db, of("parent")).dptr == '3');
    dbm_close(db);
    return 0;
}
