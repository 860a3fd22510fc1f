/* A stranger cuts the file under a database, as a shell's `> file` does: calls fail, and none ends in a signal. */
#include <fcntl.h>
#include <ndbm.h>
#include <unistd.h>

#include "check.h"

static datum of(int *number)
{
    datum it = {(char *)number, sizeof *number};
    return it;
}

static void cut(const char *name, int flags)
{
    char path[4096];
    int i;
    DBM *db = dbm_open(name, O_RDWR | O_CREAT, 0600);
    CHECK(db != NULL);
    snprintf(path, sizeof path, "%s.pag", name);
    for (i = 0; i < 1000; i++)
        CHECK(dbm_store(db, of(&i), of(&i), DBM_REPLACE) == 0);
    if (flags == O_RDONLY) {
        dbm_close(db);
        CHECK((db = dbm_open(name, flags, 0)) != NULL);
    }
    i = 1;
    CHECK(dbm_fetch(db, of(&i)).dsize == sizeof i && dbm_firstkey(db).dptr != NULL);
    CHECK(truncate(path, 0) == 0);
    usleep(20000); /* The size is looked at once in a tick of the clock. */
    CHECK(dbm_error(db) == 0 && dbm_fetch(db, of(&i)).dptr == NULL && dbm_error(db) == EIO);
    CHECK(dbm_nextkey(db).dptr == NULL && dbm_firstkey(db).dptr == NULL);
    CHECK(dbm_store(db, of(&i), of(&i), DBM_REPLACE) == -1 && dbm_delete(db, of(&i)) == -1);
    errno = 0;
    dbm_close(db);
    CHECK(errno == EIO);
    /* It is a database again. */
    CHECK((db = dbm_open(name, O_RDWR, 0)) != NULL && dbm_fetch(db, of(&i)).dptr == NULL);
    CHECK(dbm_store(db, of(&i), of(&i), DBM_REPLACE) == 0 && dbm_error(db) == 0);
    /* The first call after a cut is the close. */
    CHECK(truncate(path, 0) == 0);
    errno = 0;
    dbm_close(db);
    CHECK(errno == EIO);
}

/* Another program has made a database of the file again before a handle makes its next call. */
static void made_again(const char *name, int flags)
{
    char path[4096];
    int one = 1, two = 2;
    DBM *other, *db = dbm_open(name, O_RDWR | O_CREAT, 0600);
    snprintf(path, sizeof path, "%s.pag", name);
    CHECK(db != NULL && dbm_store(db, of(&one), of(&one), DBM_REPLACE) == 0);
    CHECK((other = dbm_open(name, flags, 0)) != NULL && dbm_fetch(other, of(&one)).dsize == sizeof one);
    CHECK(truncate(path, 0) == 0);
    dbm_close(db);
    CHECK((db = dbm_open(name, O_RDWR, 0)) != NULL);
    CHECK(dbm_store(db, of(&two), of(&two), DBM_REPLACE) == 0);
    usleep(20000);
    CHECK(dbm_fetch(other, of(&two)).dptr == NULL && dbm_error(other) == EIO);
    CHECK(dbm_store(other, of(&one), of(&one), DBM_REPLACE) == -1);
    errno = 0;
    dbm_close(other);
    CHECK(errno == EIO);
    CHECK(dbm_fetch(db, of(&one)).dptr == NULL && dbm_fetch(db, of(&two)).dsize == sizeof two);
    dbm_close(db);
}

int main(int argument_count, char **arguments)
{
    CHECK(argument_count == 2);
    cut(arguments[1], O_RDWR);
    cut(arguments[1], O_RDONLY);
    made_again(arguments[1], O_RDWR);
    made_again(arguments[1], O_RDONLY);
    return 0;
}
