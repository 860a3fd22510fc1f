/* hsearch(3): every rule of <search.h>. */
#include <search.h>

#include "check.h"

enum { COUNT = 100000 };

static char keys[COUNT][16];
static ENTRY *places[COUNT];

static ENTRY item(char *key, void *data)
{
    ENTRY entry;
    entry.key = key;
    entry.data = data;
    return entry;
}

static void without_a_table(void)
{
    struct hsearch_data table;
    ENTRY *found = places[0];
    char key[] = "key";

    errno = 0;
    CHECK(hsearch(item(key, NULL), FIND) == NULL && errno == ESRCH);
    CHECK(hsearch(item(key, NULL), ENTER) == NULL && errno == ESRCH);
    hdestroy();
    hdestroy();
    CHECK(hcreate_r(1, NULL) == 0 && errno == EINVAL);
    memset(&table, 0, sizeof table);
    CHECK(hsearch_r(item(key, NULL), FIND, &found, &table) == 0 && errno == ESRCH);
    CHECK(found == NULL);
    hdestroy_r(&table);
    errno = 0;
    CHECK(hcreate((size_t)-1) == 0 && errno == ENOMEM);
}

static void the_table_of_the_process(size_t expected)
{
    size_t i;
    char again[16];

    CHECK(hcreate(expected));
    errno = 0;
    CHECK(hcreate(5) == 0 && errno == EEXIST); /* There is one. */
    for (i = 0; i < COUNT; i++) {
        places[i] = hsearch(item(keys[i], keys[i]), ENTER);
        CHECK(places[i] != NULL && places[i]->key == keys[i] && places[i]->data == keys[i]);
    }
    for (i = 0; i < COUNT; i++) {
        strcpy(again, keys[i]);
        CHECK(hsearch(item(again, NULL), FIND) == places[i]);
        CHECK(hsearch(item(again, NULL), ENTER) == places[i]); /* The old one, */
        CHECK(places[i]->data == keys[i]);                     /* with the old data. */
        places[i]->data = &places[i];
        CHECK(((ENTRY *)hsearch(item(again, NULL), FIND))->data == &places[i]);
    }
    strcpy(again, "absent");
    errno = 0;
    CHECK(hsearch(item(again, NULL), FIND) == NULL && errno == ESRCH);
    CHECK(hsearch(item(NULL, NULL), FIND) == NULL && errno == EINVAL);
    strcpy(again, "");
    CHECK(hsearch(item(again, keys), ENTER) != NULL);
    hdestroy();
    CHECK(hcreate(0));
    CHECK(hsearch(item(keys[0], NULL), FIND) == NULL);
    hdestroy();
}

static void many_tables(void)
{
    enum { TABLES = 10 };
    struct hsearch_data tables[TABLES];
    ENTRY *found;
    size_t i, t;

    CHECK(sizeof tables[0] == 16);
    memset(tables, 0, sizeof tables);
    for (t = 0; t < TABLES; t++) {
        CHECK(hcreate_r(t * 1000, &tables[t]));
        errno = 0;
        CHECK(hcreate_r(1, &tables[t]) == 0 && errno == EEXIST);
    }
    for (i = 0; i < COUNT; i++) {
        CHECK(hsearch_r(item(keys[i], &tables[i % TABLES]), ENTER, &found, &tables[i % TABLES]));
        CHECK(found->key == keys[i]);
    }
    for (i = 0; i < COUNT; i++) {
        for (t = 0; t < TABLES; t++) {
            int is_found = hsearch_r(item(keys[i], NULL), FIND, &found, &tables[t]);
            CHECK(is_found == (t == i % TABLES));
            CHECK(is_found ? found->data == &tables[t] : found == NULL);
        }
    }
    for (t = 0; t < TABLES; t++) {
        CHECK(tables[t].filled == COUNT / TABLES);
        hdestroy_r(&tables[t]);
        CHECK(tables[t].table == NULL && tables[t].size == 0 && tables[t].filled == 0);
    }
}

int main(void)
{
    size_t i;
    for (i = 0; i < COUNT; i++)
        sprintf(keys[i], "key %lu", (unsigned long)i);
    without_a_table();
    the_table_of_the_process(0);
    the_table_of_the_process(COUNT);
    many_tables();
    return 0;
}
