/* "fill": a child stores pairs and says so for each; it is killed in the middle. "check": all are there. */
#include <fcntl.h>
#include <ndbm.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { COUNT = 5000 };

static void fill(const char *name, int acknowledged)
{
    int i;
    DBM *db = dbm_open(name, O_RDWR | O_CREAT, 0600);
    CHECK(db != NULL);
    for (i = 0;; i++) {
        int key = i % (4 * COUNT);
        datum it = {(char *)&key, sizeof key}, value = {(char *)&i, sizeof i};
        CHECK(dbm_store(db, it, value, DBM_REPLACE) == 0);
        CHECK(write(acknowledged, &i, sizeof i) == sizeof i);
    }
}

int main(int argument_count, char **arguments)
{
    char path[4096];
    FILE *file;
    int i, count = 0;
    CHECK(argument_count == 3);
    snprintf(path, sizeof path, "%s.acknowledged", arguments[1]);
    if (strcmp(arguments[2], "fill") == 0) {
        int pipes[2], status;
        pid_t child;
        CHECK(pipe(pipes) == 0 && (child = fork()) >= 0);
        if (child == 0) {
            fill(arguments[1], pipes[1]);
            return 1;
        }
        CHECK(close(pipes[1]) == 0);
        while (count < COUNT) {
            CHECK(read(pipes[0], &i, sizeof i) == sizeof i);
            count++;
        }
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        while (read(pipes[0], &i, sizeof i) == sizeof i)
            count++;
        CHECK((file = fopen(path, "w")) != NULL && fprintf(file, "%d", count) > 0);
        CHECK(fclose(file) == 0);
        puts("killed");
    } else {
        DBM *db = dbm_open(arguments[1], O_RDWR, 0);
        CHECK(db != NULL && (file = fopen(path, "r")) != NULL && fscanf(file, "%d", &count) == 1);
        fclose(file);
        for (i = count < 4 * COUNT ? 0 : count - 4 * COUNT; i < count; i++) {
            int key = i % (4 * COUNT), found;
            datum it = {(char *)&key, sizeof key}, value = dbm_fetch(db, it);
            CHECK(value.dptr != NULL && value.dsize == sizeof found);
            memcpy(&found, value.dptr, sizeof found);
            CHECK(found >= i); /* The one that was on its way when the kill came may be newer. */
        }
        dbm_close(db);
    }
    return 0;
}
