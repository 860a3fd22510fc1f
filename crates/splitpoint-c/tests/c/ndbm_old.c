/* Opens a database "read" and counts its keys, or "write", stores one, and counts. */
#include <fcntl.h>
#include <ndbm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

int main(int argument_count, char **arguments)
{
    datum key = {"a new key", 9};
    int count = 0, is_writer;
    DBM *db;
    CHECK(argument_count == 3);
    is_writer = strcmp(arguments[2], "write") == 0;
    db = dbm_open(arguments[1], is_writer ? O_RDWR : O_RDONLY, 0);
    if (db == NULL) {
        puts(errno == EROFS    ? "EROFS"
             : errno == EINVAL ? "EINVAL"
             : errno == ENOENT ? "ENOENT"
                               : strerror(errno));
        return 0;
    }
    if (is_writer) {
        struct stat of_name, of_descriptor;
        char path[4096];
        int number = dbm_pagfno(db);
        CHECK(dbm_store(db, key, key, DBM_INSERT) == 0);
        CHECK(dbm_store(db, key, key, DBM_INSERT) == 1);
        /* The descriptor stays, and leads to the file that has the name now. */
        snprintf(path, sizeof path, "%s.pag", arguments[1]);
        CHECK(dbm_pagfno(db) == number && stat(path, &of_name) == 0);
        CHECK(fstat(number, &of_descriptor) == 0 && of_name.st_ino == of_descriptor.st_ino);
    }
    for (key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        CHECK(dbm_fetch(db, key).dptr != NULL);
        count++;
    }
    CHECK(dbm_error(db) == 0);
    printf("%d\n", count);
    dbm_close(db);
    return 0;
}
