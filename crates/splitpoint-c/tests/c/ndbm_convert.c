/* The first change of an old database, in what may come between it and the opening: ndbm_convert CASE.
 * The folder has the old database `old.pag` and `old.dir`, of 10 pairs. */
#include <fcntl.h>
#include <ndbm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static datum new_key = {"a key that is new", 17};

static DBM *open_old(void)
{
    DBM *db = dbm_open("old", O_RDWR, 0);
    CHECK(db != NULL);
    return db;
}

static int stores(DBM *db)
{
    return dbm_store(db, new_key, new_key, DBM_INSERT) == 0;
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void check_text(const char *name, const char *text)
{
    char found[100] = "";
    FILE *file = fopen(name, "r");
    CHECK(file != NULL && fgets(found, sizeof found, file) != NULL && fclose(file) == 0);
    CHECK(strcmp(found, text) == 0);
}

/* The program goes to a folder in which the names are other files'. */
static void goes_elsewhere(void)
{
    DBM *db = open_old();
    CHECK(mkdir("elsewhere", 0700) == 0 && chdir("elsewhere") == 0);
    write_text("old.pag", "another file");
    write_text("old.dir", "another file");
    CHECK(stores(db));
    dbm_close(db);
    check_text("old.pag", "another file");
    check_text("old.dir", "another file");
    CHECK(chdir("..") == 0 && access("old.pag.before-splitpoint", F_OK) == 0);
}

/* The name is given to another file. */
static void loses_its_name(void)
{
    DBM *db = open_old();
    write_text("other", "another file");
    CHECK(rename("other", "old.pag") == 0);
    CHECK(!stores(db) && errno == ESTALE);
    dbm_close(db);
    check_text("old.pag", "another file");
    CHECK(access("old.pag.before-splitpoint", F_OK) == -1);
}

/* A walk goes on in the store. */
static void walks(void)
{
    DBM *db = open_old();
    int count = 0;
    datum key;
    for (key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        if (++count == 3) CHECK(stores(db));
        CHECK(dbm_delete(db, key) == 0);
    }
    CHECK(count == 10 && dbm_error(db) == 0);
    key = dbm_firstkey(db);
    CHECK(key.dptr != NULL && key.dsize == new_key.dsize && dbm_nextkey(db).dptr == NULL);
    dbm_close(db);
}

/* A conversion was killed when it had kept the files, and not given the names away. */
static void was_killed(void)
{
    DBM *db;
    CHECK(link("old.pag", "old.pag.before-splitpoint") == 0);
    CHECK(link("old.dir", "old.dir.before-splitpoint") == 0);
    db = open_old();
    CHECK(stores(db));
    dbm_close(db);
}

/* Two do not convert it at once. */
static void are_two(void)
{
    DBM *db = open_old();
    CHECK(dbm_open("old", O_RDWR, 0) == NULL && errno == EAGAIN);
    CHECK(stores(db));
    dbm_close(db);
    db = open_old();
    CHECK(dbm_fetch(db, new_key).dptr != NULL);
    dbm_close(db);
}

/* The program has closed a descriptor, and its number is a file of its own. */
static void is_closed(void)
{
    DBM *db = open_old();
    int number = dbm_dirfno(db), own;
    CHECK(close(number) == 0);
    own = open("own", O_RDWR | O_CREAT, 0600);
    CHECK(own == number && stores(db));
    CHECK(lseek(own, 0, SEEK_END) == 0 && write(own, "own", 3) == 3);
    check_text("own", "own");
    dbm_close(db);
    CHECK(write(own, "x", 1) == 1 && close(own) == 0);
}

int main(int argument_count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"goes elsewhere", goes_elsewhere}, {"loses its name", loses_its_name},
        {"walks", walks},                   {"was killed", was_killed},
        {"are two", are_two},               {"is closed", is_closed},
    };
    size_t i;
    alarm(250);
    for (i = 0; argument_count == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(arguments[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    return 2;
}
