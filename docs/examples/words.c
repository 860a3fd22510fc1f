/* Counts words, over all runs: cc words.c $(pkg-config --cflags --libs splitpoint) */
#include <splitpoint.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "cannot %s: %s\n", what, sp_message(NULL));
    return 1;
}

int main(int argc, char **argv)
{
    sp_db *db;
    sp_scan *scan;
    sp_slice key, value;
    char word[100];

    if (sp_open(argc > 1 ? argv[1] : "counts.spt", NULL, &db) != SP_OK)
        return fail("open the store");
    while (scanf("%99s", word) == 1) {
        unsigned long count = 0;
        size_t size;
        if (sp_get_into(db, word, strlen(word), &count, sizeof count, &size) < 0)
            return fail("look up a word");
        count++;
        if (sp_put(db, word, strlen(word), &count, sizeof count) != SP_OK)
            return fail("store a count");
    }
    if (sp_scan_open(db, &scan) != SP_OK)
        return fail("begin a scan");
    while (sp_scan_next(scan, &key, &value) == SP_OK) {
        unsigned long count = 0;
        if (value.size == sizeof count)
            memcpy(&count, value.data, sizeof count);
        printf("%.*s %lu\n", (int)key.size, (const char *)key.data, count);
    }
    sp_scan_close(scan);
    return sp_close(db) == SP_OK ? 0 : fail("close the store");
}
