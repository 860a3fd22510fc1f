/* A program with functions that have the names of other interfaces. */
#include <fcntl.h>
#include <ndbm.h>
#include <search.h>

#include "check.h"

#define OWN(name)                                                                                 \
    int name(void);                                                                               \
    int name(void)                                                                                \
    {                                                                                             \
        fprintf(stderr, "the library called " #name "\n");                                        \
        abort();                                                                                  \
    }

OWN(store)
OWN(fetch)
OWN(delete)
OWN(hash)
OWN(open_file)
OWN(compress)
OWN(firstkey)
OWN(nextkey)
OWN(crc32c)
OWN(rust_eh_personality)

int main(int argument_count, char **arguments)
{
    char name[] = "key";
    datum key = {name, 3};
    ENTRY entry = {name, NULL};
    DBM *db;
    CHECK(argument_count == 2);
    CHECK((db = dbm_open(arguments[1], O_RDWR | O_CREAT, 0600)) != NULL);
    CHECK(dbm_store(db, key, key, DBM_REPLACE) == 0 && dbm_fetch(db, key).dsize == 3);
    CHECK(dbm_delete(db, dbm_firstkey(db)) == 0 && dbm_nextkey(db).dptr == NULL);
    dbm_close(db);
    CHECK(hcreate(0) && hsearch(entry, ENTER) != NULL && hsearch(entry, FIND) != NULL);
    hdestroy();
    return 0;
}
