/* Reads an old database, and is refused to write it. */
#include <splitpoint.h>

#include "check.h"

int main(int argument_count, char **arguments)
{
    sp_options *options = sp_options_new();
    sp_db *db;
    sp_scan *scan;
    sp_snapshot *snapshot;
    sp_txn *txn;
    sp_slice key, value;
    int count = 0;

    CHECK(argument_count == 2);
    CHECK(sp_open(arguments[1], NULL, &db) == SP_ERR_UNSUPPORTED);
    CHECK(strstr(sp_message(NULL), "splitpoint convert") != NULL);
    CHECK(sp_options_read_only(options, 1) == SP_OK);
    CHECK(sp_open(arguments[1], options, &db) == SP_OK);
    sp_options_free(options);
    CHECK(sp_put(db, "a", 1, "b", 1) == SP_ERR_READ_ONLY);
    CHECK(sp_compact(db) == SP_ERR_READ_ONLY);
    CHECK(sp_snapshot_open(db, &snapshot) == SP_ERR_UNSUPPORTED && snapshot == NULL);
    CHECK(sp_txn_begin(db, &txn) == SP_ERR_UNSUPPORTED && txn == NULL);
    CHECK(sp_increment(db, "a", 1, 1, NULL) == SP_ERR_UNSUPPORTED);
    CHECK(sp_compare_and_swap(db, "a", 1, NULL, NULL) == SP_ERR_UNSUPPORTED);
    CHECK(sp_scan_open(db, &scan) == SP_OK);
    while (sp_scan_next(scan, &key, &value) == SP_OK) {
        CHECK(sp_exists(db, key.data, key.size) == SP_OK);
        count++;
    }
    sp_scan_close(scan);
    CHECK(sp_close(db) == SP_OK);
    printf("%d keys\n", count);
    return 0;
}
