/* Threads that look up in one table at the same time. */
#include <pthread.h>
#include <search.h>

#include "check.h"

enum { COUNT = 20000, THREADS = 8 };

static char keys[COUNT][16];

static void *look_up(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < COUNT; i++) {
        ENTRY entry = {keys[i], NULL};
        ENTRY *found = hsearch(entry, FIND);
        CHECK(found != NULL && found->data == keys[i]);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int i;
    CHECK(hcreate(0));
    for (i = 0; i < COUNT; i++) {
        ENTRY entry = {keys[i], keys[i]};
        sprintf(keys[i], "key %d", i);
        CHECK(hsearch(entry, ENTER) != NULL);
    }
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, look_up, NULL) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    hdestroy();
    return 0;
}
