/* A program that was compiled with POSIX's datum. */
#define SPLITPOINT_POSIX_DATUM
#include <fcntl.h>
#include <ndbm.h>

#include "check.h"

int main(int argument_count, char **arguments)
{
    datum key = {"key", 3}, value = {"value", 5};
    DBM *db;
    CHECK(argument_count == 2 && sizeof key == 16);
    CHECK((db = dbm_open(arguments[1], O_RDWR | O_CREAT, 0600)) != NULL);
    CHECK(dbm_store(db, key, value, DBM_INSERT) == 0);
    value = dbm_fetch(db, key);
    CHECK(value.dsize == 5 && memcmp(value.dptr, "value", 5) == 0);
    dbm_close(db);
    return 0;
}
