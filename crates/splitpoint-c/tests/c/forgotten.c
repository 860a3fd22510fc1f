/* A program that never closes its database: forgotten LIBRARY KIND end END FILE. It stores 20 MB through the library, so
 * that what threads the library has are at work, ends as END says, and leaves the database open. With "look" instead of
 * "end" it looks for what one before has left. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <db.h>
#include <gdbm.h>
#include <ndbm.h>
#include <splitpoint.h>

#include "check.h"

enum { PAIRS = 2000, PAIR_BYTES = 10000 };

static void *library;
/* A function by its own name, from the library that was loaded. */
#define OF(name) ((__typeof__(&name))dlsym(library, #name))

static GDBM_FILE gdbm;
static DBM *ndbm;
static DB *db185;
static sp_db *native;

static int open_as(const char *kind, const char *file, int is_new)
{
    if (strcmp(kind, "gdbm") == 0)
        return (gdbm = OF(gdbm_open)(file, 0, is_new ? GDBM_NEWDB : GDBM_WRITER, 0600, NULL)) != NULL;
    if (strcmp(kind, "ndbm") == 0)
        return (ndbm = OF(dbm_open)(file, O_RDWR | (is_new ? O_CREAT | O_TRUNC : 0), 0600)) != NULL;
    if (strcmp(kind, "db185") == 0)
        return (db185 = OF(dbopen)(file, O_RDWR | (is_new ? O_CREAT | O_TRUNC : 0), 0600, DB_HASH, NULL)) != NULL;
    return OF(sp_open)(file, NULL, &native) == SP_OK;
}

static int store(int number)
{
    static char bytes[PAIR_BYTES];
    datum key = {(char *)&number, sizeof number}, value = {bytes, sizeof bytes};
    DBT key_of_db = {&number, sizeof number}, value_of_db = {bytes, sizeof bytes};
    memcpy(bytes, &number, sizeof number);
    if (gdbm != NULL)
        return OF(gdbm_store)(gdbm, key, value, GDBM_REPLACE) == 0;
    if (ndbm != NULL)
        return OF(dbm_store)(ndbm, key, value, DBM_REPLACE) == 0;
    if (db185 != NULL)
        return db185->put(db185, &key_of_db, &value_of_db, 0) == 0;
    return OF(sp_put)(native, &number, sizeof number, bytes, sizeof bytes) == SP_OK;
}

static int has(int number)
{
    datum key = {(char *)&number, sizeof number}, value;
    DBT key_of_db = {&number, sizeof number}, value_of_db;
    sp_value found;
    int is_it;
    if (gdbm != NULL) {
        value = OF(gdbm_fetch)(gdbm, key);
        is_it = value.dptr != NULL && value.dsize == PAIR_BYTES && memcmp(value.dptr, &number, sizeof number) == 0;
        free(value.dptr);
        return is_it;
    }
    if (ndbm != NULL) {
        value = OF(dbm_fetch)(ndbm, key);
        return value.dptr != NULL && value.dsize == PAIR_BYTES && memcmp(value.dptr, &number, sizeof number) == 0;
    }
    if (db185 != NULL)
        return db185->get(db185, &key_of_db, &value_of_db, 0) == 0 && value_of_db.size == PAIR_BYTES &&
               memcmp(value_of_db.data, &number, sizeof number) == 0;
    if (OF(sp_get)(native, &number, sizeof number, &found) != SP_OK)
        return 0;
    is_it = found.size == PAIR_BYTES && memcmp(found.data, &number, sizeof number) == 0;
    OF(sp_release)(&found);
    return is_it;
}

static void close_it(void)
{
    if (gdbm != NULL)
        CHECK(OF(gdbm_close)(gdbm) == 0);
    if (ndbm != NULL)
        OF(dbm_close)(ndbm);
    if (db185 != NULL)
        CHECK(db185->close(db185) == 0);
    if (native != NULL)
        CHECK(OF(sp_close)(native) == SP_OK);
}

/* A library that was loaded before this one may still call it while the process ends. */
static void stores_at_exit(void)
{
    /* Not CHECK: whoever is called by exit(3) must not call it. */
    if (!store(PAIRS) || !has(PAIRS))
        _exit(1);
}

static void *exits(void *unused)
{
    exit(0);
    return unused;
}

int main(int argument_count, char **arguments)
{
    const char *kind, *end;
    pthread_t thread;
    int i, status;
    pid_t child;
    alarm(250);
    CHECK(argument_count == 6 && (library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL)) != NULL);
    kind = arguments[2];
    end = arguments[4];
    if (strcmp(arguments[3], "look") == 0) {
        CHECK(open_as(kind, arguments[5], 0));
        for (i = 0; i < PAIRS; i++)
            CHECK(has(i));
        CHECK(has(PAIRS) == (strcmp(end, "atexit") == 0));
        CHECK(store(1) && has(1));
        close_it();
        return 0;
    }
    CHECK(open_as(kind, arguments[5], 1));
    if (strcmp(end, "atexit") == 0)
        CHECK(atexit(stores_at_exit) == 0);
    for (i = 0; i < PAIRS; i++)
        CHECK(store(i));
    if (strcmp(end, "_exit") == 0)
        _exit(0);
    if (strcmp(end, "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(end, "thread") == 0) {
        CHECK(pthread_create(&thread, NULL, exits, NULL) == 0);
        pthread_exit(NULL);
    }
    if (strcmp(end, "dlclose") == 0) {
        CHECK(dlclose(library) == 0);
        usleep(200000); /* What threads there are go on. */
    }
    if (strncmp(end, "fork", 4) == 0) {
        /* The child ends, or closes the library, with the handle of its parent, who goes on. */
        CHECK((child = fork()) >= 0);
        if (child == 0) {
            /* Not with what the parent has for itself. */
            CHECK(gdbm != NULL || native != NULL || has(7));
            if (strcmp(end, "fork dlclose") == 0)
                CHECK(dlclose(library) == 0);
            if (strcmp(end, "fork _exit") == 0)
                _exit(0);
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        for (i = 0; i < PAIRS; i++)
            CHECK(has(i));
        CHECK(store(3) && has(3));
    }
    return 0;
}
