/* Every function of libsplitpoint, on a file in the directory that is the argument. */
#include <splitpoint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void put(sp_db *db, const char *key, const char *value)
{
    CHECK(sp_put(db, key, strlen(key), value, strlen(value)) == SP_OK);
}

static int is(const sp_db *db, const char *key, const char *value)
{
    sp_value found;
    int is_equal;
    if (sp_get(db, key, strlen(key), &found) != SP_OK)
        return 0;
    is_equal = found.size == strlen(value) && memcmp(found.data, value, found.size) == 0;
    sp_release(&found);
    CHECK(found.data == NULL);
    sp_release(&found); /* Does nothing. */
    return is_equal;
}

static void changes(sp_db *db)
{
    sp_value old, none;
    char buffer[3];
    void *copy;
    size_t size;
    uint64_t count;

    put(db, "France", "Lyon");
    CHECK(sp_get(db, "France", 6, &old) == SP_OK);
    put(db, "France", "Paris");
    CHECK(old.size == 4 && memcmp(old.data, "Lyon", 4) == 0); /* A change leaves it alone. */
    sp_release(&old);
    CHECK(is(db, "France", "Paris"));
    CHECK(sp_put_with(db, "France", 6, "x", 1, SP_NEW, SP_SYNC) == SP_KEPT);
    CHECK(sp_put_with(db, "Peru", 4, "Lima", 4, SP_NEW, SP_BUFFERED) == SP_OK);
    CHECK(sp_put_with(db, "Peru", 4, "x", 1, 7, SP_DEFAULT) == SP_ERR_ARGUMENT);
    CHECK(strcmp(sp_message(db), "mode is 7; expected SP_REPLACE or SP_NEW") == 0);
    CHECK(strcmp(sp_message(NULL), sp_message(db)) == 0);

    CHECK(sp_get_copy(db, "Peru", 4, &copy, &size) == SP_OK);
    CHECK(size == 4 && memcmp(copy, "Lima", 4) == 0);
    free(copy);
    CHECK(sp_get_into(db, "Peru", 4, buffer, sizeof buffer, &size) == SP_OK);
    CHECK(size == 4 && memcmp(buffer, "Lim", 3) == 0);
    CHECK(sp_get_into(db, "Chad", 4, NULL, 0, &size) == SP_NOT_FOUND && size == 0);

    /* Empty is not absent. */
    CHECK(sp_put(db, NULL, 0, NULL, 0) == SP_OK);
    CHECK(sp_get(db, "", 0, &none) == SP_OK && none.data != NULL && none.size == 0);
    sp_release(&none);
    CHECK(sp_get_copy(db, "", 0, &copy, &size) == SP_OK && copy != NULL && size == 0);
    free(copy);
    CHECK(sp_delete(db, "", 0) == SP_OK && sp_delete(db, "", 0) == SP_NOT_FOUND);
    CHECK(sp_get(db, "", 0, &none) == SP_NOT_FOUND && none.data == NULL);
    CHECK(sp_exists(db, "Peru", 4) == SP_OK && sp_exists(db, "peru", 4) == SP_NOT_FOUND);
    CHECK(sp_delete_with(db, "Peru", 4, SP_SYNC) == SP_OK);
    CHECK(sp_count(db, &count) == SP_OK && count == 1);
}

static void many(sp_db *db)
{
    sp_slice keys[3] = {{"a", 1}, {"b", 1}, {"absent", 6}};
    sp_slice values[2] = {{"1", 1}, {"2", 1}};
    sp_value found[3];
    sp_batch *batch = sp_batch_new();

    CHECK(sp_put_many(db, keys, values, 2, SP_DEFAULT) == SP_OK);
    CHECK(sp_get_many(db, keys, 3, found) == SP_OK);
    CHECK(*(const char *)found[1].data == '2' && found[2].data == NULL);
    sp_release(&found[0]);
    sp_release(&found[1]);
    sp_release(&found[2]);

    CHECK(batch != NULL);
    CHECK(sp_batch_put(batch, "c", 1, "3", 1) == SP_OK);
    CHECK(sp_batch_delete(batch, "a", 1) == SP_OK);
    CHECK(sp_batch_count(batch) == 2);
    CHECK(sp_apply(db, batch, SP_SYNC) == SP_OK);
    CHECK(is(db, "c", "3") && sp_exists(db, "a", 1) == SP_NOT_FOUND);
    CHECK(sp_batch_clear(batch) == SP_OK && sp_batch_count(batch) == 0);
    sp_batch_free(batch);
}

/* Deletes every key as it comes. */
static void scan(sp_db *db)
{
    enum { COUNT = 1000 };
    sp_scan *scan;
    sp_slice key, value;
    uint64_t count, seen = 0;
    int i, code;

    for (i = 0; i < COUNT; i++)
        CHECK(sp_put(db, &i, sizeof i, &i, sizeof i) == SP_OK);
    CHECK(sp_count(db, &count) == SP_OK && count > COUNT);
    CHECK(sp_scan_open(db, &scan) == SP_OK);
    CHECK(sp_close(db) == SP_ERR_BUSY);
    CHECK(strstr(sp_message(db), "close its scans, snapshots and transactions first: 1") != NULL);
    while ((code = sp_scan_next(scan, &key, &value)) == SP_OK) {
        CHECK(sp_delete(db, key.data, key.size) == SP_OK);
        seen++;
    }
    CHECK(code == SP_END && key.data == NULL && seen == count);
    CHECK(sp_scan_next(scan, NULL, NULL) == SP_END);
    sp_scan_close(scan);
    CHECK(sp_count(db, &count) == SP_OK && count == 0);
}

static int is_of(const sp_snapshot *snapshot, const char *key, const char *value)
{
    sp_value found;
    int is_equal, code = sp_snapshot_get(snapshot, key, strlen(key), &found);
    if (code != SP_OK)
        return value == NULL && code == SP_NOT_FOUND && found.data == NULL;
    is_equal = value && found.size == strlen(value) && memcmp(found.data, value, found.size) == 0;
    sp_release(&found);
    return is_equal;
}

static void snapshots(sp_db *db)
{
    sp_snapshot *snapshot;
    sp_scan *scan;
    sp_slice key, value;
    uint64_t count;

    put(db, "a", "old");
    put(db, "b", "old");
    CHECK(sp_snapshot_open(db, &snapshot) == SP_OK);
    put(db, "a", "new");
    put(db, "c", "new");
    CHECK(sp_delete(db, "b", 1) == SP_OK);
    CHECK(is_of(snapshot, "a", "old") && is_of(snapshot, "b", "old") && is_of(snapshot, "c", NULL));
    CHECK(sp_snapshot_count(snapshot, &count) == SP_OK && count == 2);
    CHECK(sp_close(db) == SP_ERR_BUSY);
    CHECK(sp_snapshot_scan(snapshot, &scan) == SP_OK);
    sp_snapshot_close(snapshot);
    for (count = 0; sp_scan_next(scan, &key, &value) == SP_OK; count++)
        CHECK(value.size == 3 && memcmp(value.data, "old", 3) == 0);
    CHECK(count == 2);
    sp_scan_close(scan);
    CHECK(sp_delete(db, "a", 1) == SP_OK && sp_delete(db, "c", 1) == SP_OK);
}

static void transactions(sp_db *db)
{
    sp_txn *txn;
    sp_value found;
    sp_savepoint before;

    put(db, "read", "1");
    CHECK(sp_txn_begin(db, &txn) == SP_OK);
    CHECK(sp_txn_get(txn, "read", 4, &found) == SP_OK && found.size == 1);
    sp_release(&found);
    CHECK(sp_txn_get(txn, "none", 4, &found) == SP_NOT_FOUND && found.data == NULL);
    CHECK(sp_txn_put(txn, "read", 4, "2", 1) == SP_OK);
    CHECK(sp_txn_savepoint(txn, &before) == SP_OK);
    CHECK(sp_txn_put(txn, "other", 5, "2", 1) == SP_OK);
    CHECK(sp_txn_rollback_to(txn, &before) == SP_OK);
    CHECK(sp_txn_put(txn, "third", 5, "3", 1) == SP_OK);
    CHECK(sp_txn_delete(txn, "third", 5) == SP_OK);
    CHECK(is(db, "read", "1") && sp_close(db) == SP_ERR_BUSY);
    CHECK(sp_txn_commit(txn, SP_SYNC) == SP_OK);
    CHECK(is(db, "read", "2") && sp_exists(db, "other", 5) == SP_NOT_FOUND);
    CHECK(sp_exists(db, "third", 5) == SP_NOT_FOUND);

    CHECK(sp_txn_begin(db, &txn) == SP_OK);
    CHECK(sp_txn_get(txn, "read", 4, &found) == SP_OK);
    sp_release(&found);
    CHECK(sp_txn_put(txn, "lost", 4, "1", 1) == SP_OK);
    put(db, "read", "3");
    CHECK(sp_txn_commit(txn, SP_DEFAULT) == SP_ERR_CONFLICT);
    CHECK(errno == EAGAIN && strstr(sp_message(db), "conflict") != NULL);
    CHECK(sp_txn_begin(db, &txn) == SP_OK);
    CHECK(sp_txn_put(txn, "lost", 4, "1", 1) == SP_OK);
    CHECK(sp_txn_commit(txn, 77) == SP_ERR_ARGUMENT);
    CHECK(sp_txn_begin(db, &txn) == SP_OK);
    CHECK(sp_txn_put(txn, "lost", 4, "1", 1) == SP_OK);
    sp_txn_rollback(txn);
    CHECK(sp_exists(db, "lost", 4) == SP_NOT_FOUND);
    CHECK(sp_delete(db, "read", 4) == SP_OK);
}

static void one_step(sp_db *db)
{
    sp_slice alice = {"alice", 5}, bob = {"bob", 3};
    int64_t sum = 0;

    CHECK(sp_compare_and_swap(db, "leader", 6, NULL, &alice) == SP_OK);
    CHECK(sp_compare_and_swap(db, "leader", 6, NULL, &bob) == SP_KEPT);
    CHECK(sp_compare_and_swap(db, "leader", 6, &alice, &bob) == SP_OK && is(db, "leader", "bob"));
    CHECK(sp_increment(db, "leader", 6, 1, &sum) == SP_ERR_ARGUMENT);
    CHECK(sp_compare_and_swap(db, "leader", 6, &bob, NULL) == SP_OK);
    CHECK(sp_increment(db, "visits", 6, 5, NULL) == SP_OK);
    CHECK(sp_increment(db, "visits", 6, -7, &sum) == SP_OK && sum == -2);
    CHECK(sp_delete(db, "visits", 6) == SP_OK && sp_delete(db, "leader", 6) == SP_NOT_FOUND);
}

/* Sizes that no object has, or no store keeps; the bytes are not looked at. */
static void sizes(sp_db *db)
{
    sp_slice wrong[2] = {{"a", 1}, {NULL, 3}};
    sp_batch *batch = sp_batch_new();
    sp_value found;

    CHECK(sp_put(db, "a", 1, "b", (size_t)-1) == SP_ERR_TOO_LARGE && errno == EFBIG);
    CHECK(sp_get(db, "a", (size_t)-1, &found) == SP_ERR_TOO_LARGE && found.data == NULL);
    CHECK(strstr(sp_message(db), "key of 18446744073709551615 bytes is over the limit") != NULL);
    CHECK(sp_batch_put(batch, "a", 1, "b", (size_t)1 << 32) == SP_ERR_TOO_LARGE);
    CHECK(strcmp(sp_message(NULL), "value of 4294967296 bytes is over the limit of 4294967295 bytes") == 0);
    CHECK(sp_batch_delete(batch, "a", (size_t)1 << 40) == SP_ERR_TOO_LARGE && sp_batch_count(batch) == 0);
    CHECK(sp_batch_put(batch, "a", 1, NULL, 3) == SP_ERR_ARGUMENT);
    sp_batch_free(batch);
    CHECK(sp_put_many(db, wrong, wrong, 2, SP_DEFAULT) == SP_ERR_ARGUMENT);
    CHECK(strcmp(sp_message(db), "the key is null, with a size of 3") == 0);
    CHECK(sp_put_many(db, wrong, wrong, (size_t)-1, SP_DEFAULT) == SP_ERR_ARGUMENT);
    CHECK(strcmp(sp_message(db), "there cannot be 18446744073709551615 keys") == 0);
}

/* A snapshot that holds back more than it may says so, and how to allow it more. */
static void too_old(const char *directory)
{
    char path[4096];
    static char value[1 << 16];
    sp_options *options = sp_options_new();
    sp_snapshot *snapshot;
    sp_value found;
    sp_db *db;
    int i;

    snprintf(path, sizeof path, "%s/pinned.spt", directory);
    CHECK(sp_options_max_snapshot_pin(options, 1 << 20) == SP_OK);
    CHECK(sp_open(path, options, &db) == SP_OK);
    CHECK(sp_put(db, "key", 3, value, sizeof value) == SP_OK);
    CHECK(sp_snapshot_open(db, &snapshot) == SP_OK);
    /* It is given up when the store looks for room the next time. */
    for (i = 0; i < 4000 && sp_snapshot_get(snapshot, "key", 3, &found) == SP_OK; i++) {
        sp_release(&found);
        CHECK(sp_put_with(db, "key", 3, value, sizeof value, SP_REPLACE, i % 16 ? SP_BUFFERED : SP_SYNC) == SP_OK);
    }
    CHECK(sp_snapshot_get(snapshot, "key", 3, &found) == SP_ERR_TOO_OLD && found.data == NULL);
    CHECK(strstr(sp_message(db), "more than 1048576 bytes") && strstr(sp_message(db), "sp_options_max_snapshot_pin()"));
    sp_snapshot_close(snapshot);
    CHECK(sp_close(db) == SP_OK);
    sp_options_free(options);
}

/* A child of a fork is told what it can do, in words of C. */
static void forked(const char *directory)
{
    char path[4096];
    sp_options *options = sp_options_new();
    sp_value found;
    sp_db *db;
    int status;
    pid_t child;

    snprintf(path, sizeof path, "%s/forked.spt", directory);
    /* Without a thread, whose memory the child could not free. */
    CHECK(sp_options_durability(options, SP_BUFFERED) == SP_OK);
    CHECK(sp_open(path, options, &db) == SP_OK);
    put(db, "key", "value");
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        CHECK(sp_get(db, "key", 3, &found) == SP_ERR_UNUSABLE && found.data == NULL);
        CHECK(strstr(sp_message(db), "open the file again here") && !strstr(sp_message(db), "::"));
        CHECK(sp_close(db) == SP_OK);
        sp_options_free(options);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(is(db, "key", "value") && sp_close(db) == SP_OK);
    sp_options_free(options);
}

static void maintenance(sp_db *db)
{
    sp_stats stats;
    int is_done = 0;

    put(db, "kept", "value");
    CHECK(sp_sync(db) == SP_OK);
    CHECK(sp_maintain(db, 1 << 20, &is_done) == SP_OK);
    CHECK(sp_compact(db) == SP_OK);
    CHECK(sp_get_stats(db, &stats) == SP_OK);
    CHECK(stats.record_count == 1 && stats.bucket_count >= 1 && stats.file_bytes > 0);
}

/* Lookups are counted by handles that ask for it. */
static void lookups(void)
{
    sp_options *options = sp_options_new();
    sp_lookups counts = {1, 1, 1, 1};
    sp_db *db;

    CHECK(sp_open_in_memory(options, &db) == SP_OK);
    CHECK(sp_get_lookups(db, &counts) == SP_ERR_UNSUPPORTED && counts.lookup_count == 1);
    CHECK(sp_close(db) == SP_OK);
    CHECK(sp_options_instrument(options, 1) == SP_OK);
    CHECK(sp_open_in_memory(options, &db) == SP_OK);
    put(db, "here", "value");
    CHECK(sp_exists(db, "here", 4) == SP_OK && sp_exists(db, "gone", 4) == SP_NOT_FOUND);
    CHECK(sp_get_lookups(db, &counts) == SP_OK);
    CHECK(counts.lookup_count == 2 && counts.hit_count == 1 && counts.line_count == 2);
    CHECK(sp_close(db) == SP_OK);
    sp_options_free(options);
}

static void files(const char *directory)
{
    char path[4096];
    sp_options *options = sp_options_new();
    sp_db *db, *other;

    CHECK(options != NULL);
    CHECK(sp_options_create(options, SP_CREATE_NEW) == SP_OK);
    CHECK(sp_options_durability(options, SP_BUFFERED) == SP_OK);
    CHECK(sp_options_expected_records(options, 100) == SP_OK);
    CHECK(sp_options_file_mode(options, 0600) == SP_OK);
    CHECK(sp_options_hash(options, "siphash-1-3") == SP_OK);
    CHECK(sp_options_hash(options, "md17") == SP_ERR_ARGUMENT);
    CHECK(strcmp(sp_message(NULL), "there is no hash function `md17`; there are rapidhash-v3, "
                                   "xxh3-64, siphash-1-3, x33, fnv1a-64") == 0);
    CHECK(sp_options_create(options, 9) == SP_ERR_ARGUMENT && errno == EINVAL);

    snprintf(path, sizeof path, "%s/a.spt", directory);
    CHECK(sp_open(path, options, &db) == SP_OK);
    changes(db);
    many(db);
    scan(db);
    snapshots(db);
    transactions(db);
    one_step(db);
    sizes(db);
    maintenance(db);
    CHECK(sp_open(path, NULL, &other) == SP_ERR_LOCKED && other == NULL);
    CHECK(errno == EAGAIN && strstr(sp_message(NULL), "a.spt") != NULL);
    CHECK(sp_close(db) == SP_OK);
    CHECK(sp_open(path, options, &db) == SP_ERR_FILE_EXISTS && errno == EEXIST);
    sp_options_free(options);

    options = sp_options_new();
    CHECK(sp_options_read_only(options, 1) == SP_OK);
    CHECK(sp_open(path, options, &db) == SP_OK);
    CHECK(is(db, "kept", "value"));
    CHECK(sp_put(db, "a", 1, "b", 1) == SP_ERR_READ_ONLY && errno == EPERM);
    CHECK(sp_close(db) == SP_OK);

    snprintf(path, sizeof path, "%s/none/a.spt", directory);
    CHECK(sp_open(path, options, &db) == SP_ERR_NO_FILE && errno == ENOENT && db == NULL);
    CHECK(sp_open(directory, options, &db) == SP_ERR_NOT_A_STORE);
    sp_options_free(options);
}

/* Two handles that write by turns, and one that wants the file for its session. */
static void sharing(const char *directory)
{
    char path[4096];
    sp_options *options = sp_options_new();
    sp_db *one = NULL, *two = NULL, *other = NULL;
    int64_t sum = 0;

    snprintf(path, sizeof path, "%s/shared.spt", directory);
    CHECK(sp_options_sharing(options, 9) == SP_ERR_ARGUMENT && errno == EINVAL);
    CHECK(sp_options_sharing(options, SP_SHARED) == SP_OK);
    CHECK(sp_options_lock_timeout(options, 60000) == SP_OK);
    CHECK(sp_open(path, options, &one) == SP_OK);
    CHECK(sp_open(path, options, &two) == SP_OK);
    CHECK(sp_put(one, "key", 3, "one", 3) == SP_OK);
    CHECK(is(two, "key", "one"));
    CHECK(sp_increment(one, "n", 1, 1, &sum) == SP_OK);
    CHECK(sp_increment(two, "n", 1, 1, &sum) == SP_OK && sum == 2);
    CHECK(sp_open(path, NULL, &other) == SP_ERR_LOCKED && other == NULL && errno == EAGAIN);
    CHECK(strstr(sp_message(NULL), "is locked by this process (writer by turns)") != NULL);
    CHECK(strstr(sp_message(NULL), "SP_SHARED") != NULL);
    CHECK(sp_close(one) == SP_OK && sp_close(two) == SP_OK);

    CHECK(sp_options_sharing(options, SP_EXCLUSIVE) == SP_OK);
    CHECK(sp_options_lock_timeout(options, 0) == SP_OK);
    CHECK(sp_open(path, options, &one) == SP_OK);
    CHECK(sp_options_read_only(options, 1) == SP_OK);
    CHECK(sp_open(path, options, &other) == SP_ERR_LOCKED && other == NULL);
    CHECK(sp_close(one) == SP_OK);
    sp_options_free(options);
}

static void memory(void)
{
    sp_db *db;
    CHECK(sp_open_in_memory(NULL, &db) == SP_OK);
    CHECK(sp_message(db)[0] == '\0');
    changes(db);
    many(db);
    scan(db);
    snapshots(db);
    transactions(db);
    one_step(db);
    sizes(db);
    maintenance(db);
    CHECK(sp_close(db) == SP_OK);
}

int main(int argument_count, char **arguments)
{
    CHECK(argument_count == 2);
    CHECK(strchr(sp_version(), '.') != NULL);
    CHECK(strcmp(sp_strerror(SP_NOT_FOUND), "the key is absent") == 0);
    CHECK(sp_strerror(12345) != NULL);
    memory();
    lookups();
    files(arguments[1]);
    sharing(arguments[1]);
    too_old(arguments[1]);
    forked(arguments[1]);
    return 0;
}
