/* Without memory a call fails, and the program goes on. */
#include <errno.h>
#include <splitpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

/* Returns the address space of this process, in bytes. */
static rlim_t used(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

int main(void)
{
    size_t size = 16 << 20, count = 0;
    void *value = calloc(1, size);
    sp_batch *batch = sp_batch_new();
    struct rlimit all, few;
    int code = SP_OK;
    CHECK(value != NULL && batch != NULL && getrlimit(RLIMIT_AS, &all) == 0);
    few = all;
    few.rlim_cur = used() + 4 * size;
    CHECK(setrlimit(RLIMIT_AS, &few) == 0);
    while (count < 100 && (code = sp_batch_put(batch, "key", 3, value, size)) == SP_OK)
        count++;
    CHECK(code == SP_ERR_FULL && errno == ENOMEM);
    CHECK(sp_batch_count(batch) == count);
    CHECK(setrlimit(RLIMIT_AS, &all) == 0);
    CHECK(sp_batch_put(batch, "key", 3, value, size) == SP_OK);
    CHECK(sp_batch_count(batch) == count + 1);
    sp_batch_free(batch);
    free(value);
    puts("done");
    return 0;
}
