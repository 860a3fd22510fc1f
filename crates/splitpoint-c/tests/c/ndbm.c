/* ndbm(3): every rule of <ndbm.h>, on the database that is the argument. */
#include <fcntl.h>
#include <ndbm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static datum text(const char *bytes)
{
    datum it;
    it.dptr = (char *)bytes;
    it.dsize = (int)strlen(bytes);
    return it;
}

static int is(datum it, const char *bytes)
{
    return it.dptr != NULL && it.dsize == (int)strlen(bytes) &&
           memcmp(it.dptr, bytes, (size_t)it.dsize) == 0;
}

static void opening(const char *name)
{
    char path[4096];
    struct stat of_file, of_descriptor;
    DBM *db, *other;

    CHECK(dbm_open(name, O_RDWR, 0) == NULL && errno == ENOENT);
    CHECK(dbm_open(name, O_RDONLY, 0) == NULL && errno == ENOENT);
    CHECK(dbm_open(NULL, O_RDWR, 0) == NULL && errno == EINVAL);
    CHECK((db = dbm_open(name, O_RDWR | O_CREAT, 0640)) != NULL);
    CHECK(dbm_rdonly(db) == 0 && dbm_error(db) == 0);
    CHECK(dbm_pagfno(db) >= 0 && dbm_dirfno(db) >= 0 && dbm_pagfno(db) != dbm_dirfno(db));
    CHECK((fcntl(dbm_pagfno(db), F_GETFD) & FD_CLOEXEC) == 0);
    snprintf(path, sizeof path, "%s.pag", name);
    CHECK(stat(path, &of_file) == 0 && fstat(dbm_pagfno(db), &of_descriptor) == 0);
    CHECK(of_file.st_ino == of_descriptor.st_ino && of_file.st_size > 0);
    CHECK(of_file.st_size <= 65536);
    snprintf(path, sizeof path, "%s.dir", name);
    CHECK(stat(path, &of_file) == 0 && fstat(dbm_dirfno(db), &of_descriptor) == 0);
    CHECK(of_file.st_ino == of_descriptor.st_ino && of_file.st_size == 16);
    CHECK((other = dbm_open(name, O_RDWR, 0)) != NULL && dbm_pagfno(other) != dbm_pagfno(db));
    dbm_close(other);
    dbm_close(db);
    CHECK(dbm_open(name, O_RDWR | O_CREAT | O_EXCL, 0640) == NULL && errno == EEXIST);
    CHECK((db = dbm_open(name, O_RDWR | O_CLOEXEC, 0)) != NULL);
    CHECK((fcntl(dbm_pagfno(db), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((fcntl(dbm_dirfno(db), F_GETFD) & FD_CLOEXEC) != 0);
    dbm_close(db);
    dbm_close(NULL);
}

static void pairs(DBM *db)
{
    datum none, value, key;
    char *large;
    none.dptr = NULL;
    none.dsize = 0;

    CHECK(dbm_store(db, text("Peru"), text("Lima"), DBM_INSERT) == 0);
    CHECK(dbm_store(db, text("Peru"), text("Cusco"), DBM_INSERT) == 1);
    CHECK(dbm_error(db) == 0);
    CHECK(is(dbm_fetch(db, text("Peru")), "Lima"));
    CHECK(dbm_store(db, text("Peru"), text("Cusco"), 7) == 1);
    CHECK(dbm_store(db, text("Peru"), text("Cusco"), DBM_REPLACE) == 0);
    CHECK(is(dbm_fetch(db, text("Peru")), "Cusco"));

    /* A fetched value goes straight into a store; both stay as they are. */
    value = dbm_fetch(db, text("Peru"));
    CHECK(dbm_store(db, value, value, DBM_INSERT) == 0);
    CHECK(is(value, "Cusco"));
    CHECK(dbm_delete(db, value) == 0 && is(value, "Cusco"));
    key = dbm_firstkey(db);
    CHECK(is(key, "Peru") && is(dbm_fetch(db, key), "Cusco") && is(key, "Peru"));
    CHECK(is(value, "Cusco"));

    CHECK(dbm_fetch(db, text("Chad")).dptr == NULL && dbm_error(db) == 0);
    CHECK(dbm_delete(db, text("Chad")) == -1 && dbm_error(db) == 0);

    /* Empty is not absent. */
    CHECK(dbm_store(db, text("empty"), text(""), DBM_REPLACE) == 0);
    value = dbm_fetch(db, text("empty"));
    CHECK(value.dptr != NULL && value.dsize == 0);
    CHECK(dbm_store(db, text(""), text("of the empty key"), DBM_REPLACE) == 0);
    CHECK(is(dbm_fetch(db, text("")), "of the empty key"));

    CHECK(dbm_delete(db, text("Peru")) == 0);

    /* More than a block of the original. */
    large = malloc(3 << 20);
    CHECK(large != NULL);
    memset(large, 'x', 3 << 20);
    key.dptr = value.dptr = large;
    key.dsize = 70000;
    value.dsize = 3 << 20;
    CHECK(dbm_store(db, key, value, DBM_REPLACE) == 0);
    value = dbm_fetch(db, key);
    CHECK(value.dsize == 3 << 20 && memcmp(value.dptr, large, 3 << 20) == 0);
    CHECK(dbm_delete(db, key) == 0);
    free(large);

    /* Errors stay until they are cleared, and stop nothing. */
    CHECK(dbm_store(db, none, text("a"), DBM_REPLACE) == -1 && errno == EINVAL);
    CHECK(dbm_error(db) != 0);
    CHECK(dbm_store(db, text("a"), text("a"), DBM_REPLACE) == 0 && dbm_error(db) != 0);
    CHECK(dbm_clearerr(db) == 0 && dbm_error(db) == 0);
    key = text("a");
    key.dsize = -1;
    CHECK(dbm_store(db, key, text("a"), DBM_REPLACE) == -1 && errno == EINVAL);
    CHECK(dbm_store(db, text("a"), text("b"), 9) == 1 && is(dbm_fetch(db, text("a")), "a"));
    CHECK(dbm_fetch(db, none).dptr == NULL && errno == EINVAL);
    CHECK(dbm_delete(db, none) == -1 && errno == EINVAL);
    CHECK(dbm_clearerr(db) == 0);
}

static void walks(DBM *db)
{
    enum { COUNT = 1000 };
    datum key;
    int i, seen = 0;
    char seen_key[COUNT] = {0};

    for (i = 0; i < COUNT; i++) {
        key.dptr = (char *)&i;
        key.dsize = sizeof i;
        CHECK(dbm_store(db, key, key, DBM_REPLACE) == 0);
    }
    /* Every key once, although other pairs come and go. */
    for (key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        char other[32];
        if (key.dsize != sizeof i)
            continue;
        memcpy(&i, key.dptr, sizeof i);
        CHECK(i >= 0 && i < COUNT && !seen_key[i]);
        seen_key[i] = 1;
        seen++;
        sprintf(other, "stored meanwhile %d", i);
        CHECK(dbm_store(db, text(other), text(""), DBM_REPLACE) == 0);
        CHECK(dbm_delete(db, text(other)) == 0);
    }
    CHECK(seen == COUNT);
    CHECK(dbm_nextkey(db).dptr == NULL);
    /* Deleting each key as it comes. */
    for (key = dbm_firstkey(db); key.dptr != NULL && i >= 0; key = dbm_nextkey(db))
        CHECK(dbm_delete(db, key) == 0);
    CHECK(dbm_firstkey(db).dptr == NULL);
    /* Deleting the first again and again. */
    for (i = 0; i < COUNT; i++) {
        key.dptr = (char *)&i;
        key.dsize = sizeof i;
        CHECK(dbm_store(db, key, key, DBM_REPLACE) == 0);
    }
    for (i = 0; (key = dbm_firstkey(db)).dptr != NULL; i++)
        CHECK(dbm_delete(db, key) == 0);
    CHECK(i == COUNT && dbm_error(db) == 0);
}

static void reading(const char *name)
{
    DBM *db = dbm_open(name, O_RDONLY, 0);
    DBM *other = dbm_open(name, O_RDONLY, 0);
    CHECK(db != NULL && other != NULL && dbm_rdonly(db));
    CHECK(is(dbm_fetch(db, text("kept")), "value") && is(dbm_fetch(other, text("kept")), "value"));
    CHECK(dbm_store(db, text("a"), text("b"), DBM_REPLACE) == -1 && errno == EPERM);
    CHECK(dbm_error(db) != 0);
    CHECK(dbm_delete(db, text("kept")) == -1 && errno == EPERM);
    dbm_close(db);
    dbm_close(other);
}

int main(int argument_count, char **arguments)
{
    DBM *db;
    CHECK(argument_count == 2);
    umask(0);
    opening(arguments[1]);
    CHECK((db = dbm_open(arguments[1], O_WRONLY, 0)) != NULL);
    CHECK(dbm_nextkey(db).dptr == NULL);
    pairs(db);
    walks(db);
    CHECK(dbm_store(db, text("kept"), text("value"), DBM_REPLACE) == 0);
    dbm_close(db);
    reading(arguments[1]);
    CHECK((db = dbm_open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0640)) != NULL);
    CHECK(dbm_firstkey(db).dptr == NULL);
    dbm_close(db);
    return 0;
}
