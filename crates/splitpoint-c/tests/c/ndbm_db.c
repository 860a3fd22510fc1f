/* NAME.db of the BSDs under a program that closes our descriptors ("closed"), and in its child ("forked"). */
#include <fcntl.h>
#include <ndbm.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { NUMBER_MAX = 64 };

static datum of(const char *bytes)
{
    datum it = {(char *)bytes, (int)strlen(bytes)};
    return it;
}

/* The program has closed everything from 3 up, and all numbers lead to a file of its own, which it has locked. */
static void closed(void)
{
    struct stat found;
    int number, other;
    DBM *db = dbm_open("x", O_RDWR, 0);
    CHECK(db != NULL && dbm_store(db, of("key"), of("value"), DBM_REPLACE) == 0);
    CHECK((number = open("own", O_RDWR | O_CREAT | O_EXCL, 0600)) >= 3 && flock(number, LOCK_EX) == 0);
    for (int i = 3; i < NUMBER_MAX; i++)
        CHECK(dup2(number, i) == i);
    dbm_store(db, of("other"), of("value"), DBM_REPLACE);
    errno = 0;
    dbm_close(db);
    CHECK(errno == EBADF);
    for (int i = 3; i < NUMBER_MAX; i++)
        CHECK(fstat(i, &found) == 0 && found.st_size == 0);
    CHECK((other = open("own", O_RDWR)) >= 0 && flock(other, LOCK_EX | LOCK_NB) == -1 && close(other) == 0);
    CHECK((db = dbm_open("x", O_RDWR, 0)) != NULL && dbm_store(db, of("key"), of("value"), DBM_REPLACE) == 0);
    dbm_close(db);
}

/* What the file holds. */
static unsigned hash_of_file(void)
{
    FILE *file = fopen("x.db", "r");
    unsigned hash = 0;
    int byte;
    CHECK(file != NULL);
    while ((byte = getc(file)) != EOF)
        hash = hash * 31 + (unsigned)byte;
    CHECK(fclose(file) == 0);
    return hash;
}

/* A child writes nothing of its parent's, and lets go of no lock of it. */
static void forked(void)
{
    int status;
    pid_t child;
    unsigned before = hash_of_file();
    DBM *db = dbm_open("x", O_RDWR, 0);
    CHECK(db != NULL && dbm_store(db, of("unsynced"), of("value"), DBM_REPLACE) == 0);
    CHECK(hash_of_file() == before && (child = fork()) >= 0);
    if (child == 0) {
        CHECK(dbm_fetch(db, of("unsynced")).dsize == 5);
        CHECK(dbm_store(db, of("child"), of("value"), DBM_REPLACE) == -1 && errno == EAGAIN);
        CHECK(dbm_delete(db, of("unsynced")) == -1 && errno == EAGAIN);
        dbm_close(db);
        CHECK(hash_of_file() == before && dbm_open("x", O_RDWR, 0) == NULL && errno == EAGAIN);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(dbm_store(db, of("parent"), of("value"), DBM_REPLACE) == 0);
    dbm_close(db);
    CHECK((db = dbm_open("x", O_RDONLY, 0)) != NULL && dbm_fetch(db, of("child")).dptr == NULL);
    CHECK(dbm_fetch(db, of("unsynced")).dsize == 5 && dbm_fetch(db, of("parent")).dsize == 5);
    dbm_close(db);
}

int main(int argument_count, char **arguments)
{
    CHECK(argument_count == 2);
    if (strcmp(arguments[1], "closed") == 0)
        closed();
    else
        forked();
    return 0;
}
