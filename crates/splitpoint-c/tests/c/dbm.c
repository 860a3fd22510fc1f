/* dbm(3): one database at a time; the argument is its name. */
#include <dbm.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static datum of(const char *bytes)
{
    datum it = {(char *)bytes, (int)strlen(bytes)};
    return it;
}

static void make(const char *name, const char *ending)
{
    char path[4096];
    int fd;
    snprintf(path, sizeof path, "%s%s", name, ending);
    CHECK((fd = open(path, O_WRONLY | O_CREAT, 0600)) >= 0 && close(fd) == 0);
}

/* A child says of each pair that it is stored, and is killed. All of which it said so are there. */
static void killed(char *name)
{
    enum { SEEN = 300 };
    int pipes[2], i, count = 0;
    datum it = {(char *)&i, sizeof i};
    pid_t child;
    CHECK(pipe(pipes) == 0 && (child = fork()) >= 0);
    if (child == 0) {
        CHECK(dbminit(name) == 0);
        for (i = 0;; i++)
            CHECK(store(it, it) == 0 && write(pipes[1], &i, sizeof i) == sizeof i);
    }
    CHECK(close(pipes[1]) == 0);
    while (count < SEEN) {
        CHECK(read(pipes[0], &i, sizeof i) == sizeof i && i == count);
        count++;
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    while (read(pipes[0], &i, sizeof i) == sizeof i)
        count++;
    CHECK(dbminit(name) == 0 && close(pipes[0]) == 0);
    for (i = 0; i < count; i++) {
        datum found = fetch(it);
        CHECK(found.dsize == sizeof i && memcmp(found.dptr, &i, sizeof i) == 0);
    }
    CHECK(dbmclose() == 0);
}

static int has(int number)
{
    datum it = {(char *)&number, sizeof number}, found = fetch(it);
    return found.dsize == sizeof number && memcmp(found.dptr, &number, sizeof number) == 0;
}

/* Two programs write one database by turns: what each has stored is there, and both see it. */
static void two_writers(char *name)
{
    enum { COUNT = 1000 };
    int i, which, status;
    pid_t child;
    CHECK((child = fork()) >= 0);
    which = child == 0;
    CHECK(dbminit(name) == 0);
    for (i = 0; i < COUNT; i++) {
        int number = 2 * i + which;
        datum it = {(char *)&number, sizeof number};
        CHECK(store(it, it) == 0);
        /* One of them opens it anew now and then. */
        if (which && i % 100 == 0)
            CHECK(dbmclose() == 0 && dbminit(name) == 0);
    }
    for (i = which; i < 2 * COUNT; i += 2)
        CHECK(has(i));
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (i = 0; i < 2 * COUNT; i++)
        CHECK(has(i));
    CHECK(dbmclose() == 0);
}

int main(int argument_count, char **arguments)
{
    enum { COUNT = 500 };
    char other[4096], text[32];
    datum key;
    int i;
    CHECK(argument_count == 2);

    CHECK(fetch(of("a")).dptr == NULL && errno == EBADF);
    CHECK(store(of("a"), of("b")) == -1 && errno == EBADF);
    CHECK(firstkey().dptr == NULL && dbmclose() == 0);
    CHECK(dbminit(NULL) == -1 && errno == EINVAL);
    CHECK(dbminit(arguments[1]) == -1 && errno == ENOENT);
    make(arguments[1], ".pag");
    CHECK(dbminit(arguments[1]) == -1 && errno == ENOENT);
    make(arguments[1], ".dir");
    CHECK(dbminit(arguments[1]) == 0);
    for (i = 0; i < COUNT; i++) {
        sprintf(text, "key %d", i);
        CHECK(store(of(text), of("old")) == 0 && store(of(text), of(text)) == 0);
    }
    key = fetch(of("key 7"));
    CHECK(key.dsize == 5 && memcmp(key.dptr, "key 7", 5) == 0);
    CHECK(delete(of("absent")) == -1 && nextkey(of("absent")).dptr == NULL);

    /* A second database closes the first. */
    snprintf(other, sizeof other, "%s2", arguments[1]);
    make(other, ".pag");
    make(other, ".dir");
    CHECK(dbminit(other) == 0 && firstkey().dptr == NULL);
    CHECK(dbminit(arguments[1]) == 0);

    i = 0;
    for (key = firstkey(); key.dptr != NULL; key = nextkey(key))
        i++;
    CHECK(i == COUNT);
    /* Deleting each key as it comes, before and after the next one is asked for. */
    for (i = 0, key = firstkey(); key.dptr != NULL; i++) {
        char copy[32];
        datum last = key;
        memcpy(copy, key.dptr, (size_t)key.dsize);
        last.dptr = copy;
        if (i % 2)
            CHECK(delete(last) == 0);
        key = nextkey(last);
        if (i % 2 == 0)
            CHECK(delete(last) == 0);
    }
    CHECK(i == COUNT && firstkey().dptr == NULL);
    CHECK(dbmclose() == 0 && dbmclose() == 0);
    killed(other);
    two_writers(arguments[1]);
    return 0;
}
