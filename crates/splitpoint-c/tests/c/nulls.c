/* Null in every place where there is a pointer. */
#include <splitpoint.h>

#include "check.h"

#define REFUSED(call) CHECK((call) == SP_ERR_ARGUMENT)

int main(void)
{
    sp_db *db;
    sp_options *options = sp_options_new();
    sp_scan *scan;
    sp_snapshot *snapshot;
    sp_txn *txn;
    sp_value value;
    sp_slice slice;
    void *data;
    size_t size;

    REFUSED(sp_open(NULL, NULL, &db));
    REFUSED(sp_open("a", NULL, NULL));
    REFUSED(sp_open_in_memory(NULL, NULL));
    REFUSED(sp_options_create(NULL, SP_CREATE_NEW));
    REFUSED(sp_options_hash(NULL, "x"));
    REFUSED(sp_options_hash(options, NULL));
    REFUSED(sp_options_seed(NULL, 1));
    REFUSED(sp_options_sharing(NULL, SP_SHARED));
    REFUSED(sp_options_lock_timeout(NULL, 1));
    sp_options_free(options);
    sp_options_free(NULL);

    REFUSED(sp_get(NULL, "a", 1, &value));
    REFUSED(sp_put(NULL, "a", 1, "b", 1));
    REFUSED(sp_delete(NULL, "a", 1));
    REFUSED(sp_exists(NULL, "a", 1));
    REFUSED(sp_sync(NULL));
    REFUSED(sp_compact(NULL));
    REFUSED(sp_count(NULL, NULL));
    value.data = "left behind";
    REFUSED(sp_get_many(NULL, NULL, 1, &value));
    CHECK(value.data == NULL);
    REFUSED(sp_get_stats(NULL, NULL));
    REFUSED(sp_get_lookups(NULL, NULL));
    REFUSED(sp_options_instrument(NULL, 1));
    REFUSED(sp_scan_open(NULL, &scan));
    slice.data = "left behind";
    REFUSED(sp_scan_next(NULL, &slice, &slice));
    CHECK(slice.data == NULL && slice.size == 0);
    data = (void *)"left behind";
    REFUSED(sp_get_copy(NULL, "a", 1, &data, &size));
    CHECK(data == NULL && size == 0);
    REFUSED(sp_options_max_snapshot_pin(NULL, 1));
    CHECK(scan == NULL);
    CHECK(sp_close(NULL) == SP_OK);
    sp_scan_close(NULL);
    sp_release(NULL);
    sp_batch_free(NULL);
    CHECK(sp_batch_count(NULL) == 0);
    REFUSED(sp_batch_clear(NULL));

    REFUSED(sp_snapshot_open(NULL, &snapshot));
    REFUSED(sp_snapshot_get(NULL, "a", 1, &value));
    REFUSED(sp_snapshot_count(NULL, NULL));
    REFUSED(sp_snapshot_scan(NULL, &scan));
    sp_snapshot_close(NULL);
    REFUSED(sp_txn_begin(NULL, &txn));
    REFUSED(sp_txn_get(NULL, "a", 1, &value));
    REFUSED(sp_txn_put(NULL, "a", 1, "b", 1));
    REFUSED(sp_txn_delete(NULL, "a", 1));
    REFUSED(sp_txn_savepoint(NULL, NULL));
    REFUSED(sp_txn_rollback_to(NULL, NULL));
    REFUSED(sp_txn_commit(NULL, SP_DEFAULT));
    sp_txn_rollback(NULL);
    REFUSED(sp_compare_and_swap(NULL, "a", 1, NULL, NULL));
    REFUSED(sp_increment(NULL, "a", 1, 1, NULL));

    CHECK(sp_open_in_memory(NULL, &db) == SP_OK);
    REFUSED(sp_snapshot_open(db, NULL));
    REFUSED(sp_txn_begin(db, NULL));
    CHECK(sp_snapshot_open(db, &snapshot) == SP_OK && sp_txn_begin(db, &txn) == SP_OK);
    REFUSED(sp_snapshot_get(snapshot, "a", 1, NULL));
    REFUSED(sp_snapshot_get(snapshot, NULL, 1, &value));
    REFUSED(sp_snapshot_count(snapshot, NULL));
    REFUSED(sp_snapshot_scan(snapshot, NULL));
    REFUSED(sp_txn_get(txn, NULL, 1, &value));
    REFUSED(sp_txn_put(txn, "a", 1, NULL, 1));
    REFUSED(sp_txn_delete(txn, NULL, 1));
    REFUSED(sp_txn_savepoint(txn, NULL));
    REFUSED(sp_txn_rollback_to(txn, NULL));
    sp_txn_rollback(txn);
    sp_snapshot_close(snapshot);
    REFUSED(sp_increment(db, NULL, 1, 1, NULL));
    REFUSED(sp_compare_and_swap(db, NULL, 1, NULL, NULL));
    REFUSED(sp_put(db, NULL, 1, "b", 1));
    REFUSED(sp_put(db, "a", 1, NULL, 1));
    REFUSED(sp_get(db, NULL, 1, &value));
    CHECK(value.data == NULL);
    REFUSED(sp_get(db, "a", 1, NULL));
    REFUSED(sp_get_copy(db, "a", 1, NULL, &size));
    REFUSED(sp_get_copy(db, "a", 1, &data, NULL));
    REFUSED(sp_get_into(db, "a", 1, NULL, 1, &size));
    REFUSED(sp_get_into(db, "a", 1, NULL, 0, NULL));
    value.data = "left behind";
    REFUSED(sp_get_many(db, NULL, 1, &value));
    CHECK(value.data == NULL);
    REFUSED(sp_put_many(db, NULL, NULL, 1, SP_DEFAULT));
    REFUSED(sp_put_many(db, NULL, NULL, (size_t)-1, SP_DEFAULT));
    REFUSED(sp_apply(db, NULL, SP_DEFAULT));
    REFUSED(sp_count(db, NULL));
    REFUSED(sp_get_stats(db, NULL));
    REFUSED(sp_get_lookups(db, NULL));
    REFUSED(sp_scan_open(db, NULL));
    CHECK(sp_get_many(db, NULL, 0, NULL) == SP_OK);
    CHECK(sp_put_many(db, NULL, NULL, 0, SP_DEFAULT) == SP_OK);
    CHECK(sp_close(db) == SP_OK);
    return 0;
}
