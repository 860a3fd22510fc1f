/* Libraries that a program loads and closes itself: loaded NDBM GDBM FOLDER, with two of ours. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gdbm.h>
#include <ndbm.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The functions by their own names, from the libraries that were loaded. */
static void *ndbm, *gdbm;
#define OF(library, name) ((__typeof__(&name))dlsym(library, #name))

static datum of(int *number)
{
    datum it = {(char *)number, sizeof *number};
    return it;
}

static int thread_count(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    CHECK(tasks != NULL);
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count - 2;
}

/* Pairs of one file by two copies of the engine in a process, as by two processes. */
static void two_copies(void)
{
    DBM *db = OF(ndbm, dbm_open)("x", O_RDWR | O_CREAT, 0600);
    GDBM_FILE other = OF(gdbm, gdbm_open)("x.pag", 0, GDBM_WRITER | GDBM_NOLOCK, 0600, NULL);
    int i;
    CHECK(db != NULL && other != NULL);
    for (i = 0; i < 1000; i++) {
        if (i % 2)
            CHECK(OF(ndbm, dbm_store)(db, of(&i), of(&i), DBM_INSERT) == 0);
        else
            CHECK(OF(gdbm, gdbm_store)(other, of(&i), of(&i), GDBM_INSERT) == 0);
        CHECK(OF(gdbm, gdbm_exists)(other, of(&i)) == 1);
        CHECK(OF(ndbm, dbm_fetch)(db, of(&i)).dsize == sizeof i);
    }
    OF(ndbm, dbm_close)(db);
    CHECK(OF(gdbm, gdbm_close)(other) == 0);
}

/* What a file holds, without the table in which handles note that they are there; when it was written last. */
struct state {
    struct timespec time;
    unsigned long sum;
};

static struct state state_of(const char *name)
{
    struct state state;
    struct stat found;
    unsigned char bytes[4096];
    ssize_t count;
    int block, fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &found) == 0);
    state.time = found.st_mtim;
    state.sum = 0;
    for (block = 0; (count = read(fd, bytes, sizeof bytes)) > 0; block++)
        while (count > 0 && block != 3)
            state.sum = state.sum * 31 + bytes[--count];
    close(fd);
    return state;
}

static void opens_and_looks(int flags)
{
    DBM *db = OF(ndbm, dbm_open)("x", flags, 0);
    int i = 7, count = 0;
    datum key;
    CHECK(db != NULL && OF(ndbm, dbm_fetch)(db, of(&i)).dsize == sizeof i);
    for (key = OF(ndbm, dbm_firstkey)(db); key.dptr != NULL; key = OF(ndbm, dbm_nextkey)(db))
        count++;
    CHECK(count == 1000 && thread_count() == 1);
    OF(ndbm, dbm_close)(db);
}

/* An opening, lookups, a walk and a close change nothing, and need no thread; of a reader they write nothing. So it
 * is in another process, and when the last change was a while ago. */
static void nothing(int flags)
{
    struct state before = state_of("x.pag"), after;
    pid_t child;
    int status;
    opens_and_looks(flags);
    usleep(1100000);
    opens_and_looks(flags);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        opens_and_looks(flags);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    after = state_of("x.pag");
    CHECK(before.sum == after.sum);
    if (flags == O_RDONLY)
        CHECK(before.time.tv_sec == after.time.tv_sec && before.time.tv_nsec == after.time.tv_nsec);
}

static DBM *shared;

static void *stores(void *which)
{
    int i, from = *(int *)which;
    for (i = from; i < from + 500; i++)
        CHECK(OF(ndbm, dbm_store)(shared, of(&i), of(&i), DBM_REPLACE) == 0);
    return NULL;
}

/* Threads that use one handle take turns. */
static void threads(void)
{
    pthread_t thread[4];
    int from[4], i;
    CHECK((shared = OF(ndbm, dbm_open)("threads", O_RDWR | O_CREAT, 0600)) != NULL);
    for (i = 0; i < 4; i++) {
        from[i] = i * 1000;
        CHECK(pthread_create(&thread[i], NULL, stores, &from[i]) == 0);
    }
    for (i = 0; i < 4; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    for (i = 0; i < 4000; i++)
        CHECK((OF(ndbm, dbm_fetch)(shared, of(&i)).dptr != NULL) == (i % 1000 < 500));
    OF(ndbm, dbm_close)(shared);
}

/* Libraries go while handles are open, of which one has written much. */
static void closed(void)
{
    GDBM_FILE db = OF(gdbm, gdbm_open)("closed", 0, GDBM_NEWDB, 0600, NULL);
    static char big[100000];
    datum value = {big, sizeof big};
    int i;
    CHECK(db != NULL && OF(ndbm, dbm_open)("x", O_RDONLY, 0) != NULL);
    for (i = 0; i < 300; i++)
        CHECK(OF(gdbm, gdbm_store)(db, of(&i), value, GDBM_INSERT) == 0);
    CHECK(dlclose(gdbm) == 0 && dlclose(ndbm) == 0);
    usleep(50000);
}

int main(int argument_count, char **arguments)
{
    CHECK(argument_count == 4 && chdir(arguments[3]) == 0);
    CHECK((ndbm = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL)) != NULL);
    CHECK((gdbm = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL)) != NULL);
    two_copies();
    nothing(O_RDWR);
    nothing(O_RDONLY);
    threads();
    closed();
    return 0;
}
