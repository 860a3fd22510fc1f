/* One program with every library: each keeps a pair, in a copy of the store of its own. */
#include <fcntl.h>
#include <sys/types.h>

#include <db.h>
#include <dbm.h>
#include <gdbm.h>
#include <ndbm.h>
#include <search.h>
#include <splitpoint.h>

#include "check.h"

#define OWN(name)                                                                                 \
    int name(void);                                                                               \
    int name(void)                                                                                \
    {                                                                                             \
        fprintf(stderr, "a library called " #name "\n");                                          \
        abort();                                                                                  \
    }

OWN(hash)
OWN(open_file)
OWN(compress)
OWN(crc32c)
OWN(rust_eh_personality)

static char *in(const char *folder, const char *name)
{
    static char path[4096];
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
    return path;
}

/* gdbm is there, so that the calls of ndbm and dbm set its number, of this thread. */
static void numbers_of_gdbm(const char *name)
{
    char one[] = "one", none[] = "none";
    datum key = {one, 3}, absent = {none, 4}, null = {NULL, 0};
    DBM *db;
    CHECK((db = dbm_open(name, O_RDWR | O_CREAT, 0600)) != NULL);
    gdbm_errno = GDBM_UNKNOWN_ERROR;
    CHECK(dbm_store(db, key, key, DBM_INSERT) == 0 && gdbm_errno == GDBM_NO_ERROR);
    CHECK(dbm_store(db, key, key, DBM_INSERT) == 1 && gdbm_errno == GDBM_CANNOT_REPLACE);
    CHECK(dbm_fetch(db, key).dsize == 3 && gdbm_errno == GDBM_NO_ERROR);
    CHECK(dbm_fetch(db, absent).dptr == NULL && gdbm_errno == GDBM_ITEM_NOT_FOUND);
    CHECK(dbm_firstkey(db).dptr != NULL && gdbm_errno == GDBM_NO_ERROR);
    CHECK(dbm_nextkey(db).dptr == NULL && gdbm_errno == GDBM_ITEM_NOT_FOUND);
    CHECK(dbm_store(db, null, key, DBM_REPLACE) == -1 && gdbm_errno == GDBM_MALFORMED_DATA);
    CHECK(dbm_delete(db, absent) == -1 && gdbm_errno == GDBM_ITEM_NOT_FOUND);
    dbm_close(db);
    CHECK((db = dbm_open(name, O_RDONLY, 0)) != NULL);
    CHECK(dbm_store(db, key, key, DBM_REPLACE) == -1 && gdbm_errno == GDBM_READER_CANT_STORE);
    CHECK(dbm_delete(db, key) == -1 && gdbm_errno == GDBM_READER_CANT_DELETE);
    dbm_close(db);
    CHECK(dbminit(name) == 0);
    CHECK(fetch(absent).dptr == NULL && gdbm_errno == GDBM_ITEM_NOT_FOUND);
    CHECK(store(key, key) == 0 && gdbm_errno == GDBM_NO_ERROR);
    CHECK(nextkey(key).dptr == NULL && gdbm_errno == GDBM_ITEM_NOT_FOUND);
    CHECK(delete(null) == -1 && gdbm_errno == GDBM_MALFORMED_DATA);
    CHECK(delete(key) == 0 && gdbm_errno == GDBM_NO_ERROR);
    CHECK(firstkey().dptr == NULL && gdbm_errno == GDBM_ITEM_NOT_FOUND);
    CHECK(dbmclose() == 0);
}

int main(int argument_count, char **arguments)
{
    char name[] = "key";
    datum key = {name, 3};
    DBT thing = {name, 3};
    ENTRY entry = {name, NULL};
    DBM *ndbm;
    GDBM_FILE gdbm;
    DB *db;
    CHECK(argument_count == 2);

    CHECK((ndbm = dbm_open(in(arguments[1], "ndbm"), O_RDWR | O_CREAT, 0600)) != NULL);
    CHECK(dbm_store(ndbm, key, key, DBM_REPLACE) == 0 && dbm_fetch(ndbm, key).dsize == 3);
    dbm_close(ndbm);

    /* What ndbm has made. */
    CHECK(dbminit(in(arguments[1], "ndbm")) == 0);
    CHECK(fetch(key).dsize == 3 && delete(key) == 0 && store(key, key) == 0);
    CHECK(dbmclose() == 0);

    CHECK((gdbm = gdbm_open(in(arguments[1], "ndbm.pag"), 0, GDBM_WRITER, 0, NULL)) != NULL);
    CHECK(gdbm_exists(gdbm, key) == 1 && gdbm_delete(gdbm, key) == 0);
    CHECK(gdbm_close(gdbm) == 0);

    numbers_of_gdbm(in(arguments[1], "numbers"));

    CHECK((db = dbopen(in(arguments[1], "db"), O_RDWR | O_CREAT, 0600, DB_HASH, NULL)) != NULL);
    CHECK(db->put(db, &thing, &thing, 0) == 0 && db->get(db, &thing, &thing, 0) == 0);
    CHECK(db->close(db) == 0);

    CHECK(hcreate(0) && hsearch(entry, ENTER) != NULL && hsearch(entry, FIND) != NULL);
    hdestroy();

    CHECK(sp_version() != NULL);
    return 0;
}
