/* The dependent driver: the work of the race as a program in C would do it that follows links. Each
 * key is made just before its lookup, from the value that the lookup before has returned, so each
 * lookup waits for the one before; values are copied out; and every engine is called through the
 * pointers of `engine.h`.
 *
 *     program --dir DIR --records N --key-bytes B --value-bytes B [--checksum] PHASE...
 *
 * It has the phases of W2 and W3, with the same keys and values as the harnesses of the tight driver
 * (`cpp/harness.hpp`, `rust/src/lib.rs`), and prints the same lines. Three phases are only here:
 *
 *     memory:COUNT             new memory, 2 MiB at a time (`memory.h`)
 *     loads:COUNT:small|huge   two loads that depend on each other (`loads.h`)
 *     driver:COUNT             `hit` with an engine that has one record: what the driver itself takes
 *
 * The clock runs while a key is made. Values to put are written before it starts. A miss returns no
 * value: its key is made just before the call, from nothing of the one before. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "engine.h"
#include "figures.h"
#include "loads.h"
#include "memory.h"

/* The engine that this program is built with. */
extern const struct race_engine RACE_ENGINE;

/* The clock is read once in so many calls. */
enum { GROUP = 16 };

enum { KEY_BYTES_MAX = 16, VALUE_BYTES_MAX = 1 << 20, BLOCK_BYTES = 8 << 20, BLOCK_RECORDS_MAX = 4096 };

struct driver {
    const struct race_engine *engine;
    void *table;
    struct race_config config;
    bool has_checksum;
    /* A byte for each record. */
    bool *overwritten, *deleted;
    struct tally tally;
    /* What the next key is made from. */
    uint64_t link;
    /* Whether the engine has said that it has no such call. */
    bool is_unsupported;
    /* The values of some puts, written before the clock starts, and which records they are for. */
    char *block;
    uint64_t block_records, indices[BLOCK_RECORDS_MAX];
    char key[KEY_BYTES_MAX];
    char *value, *expected;
};

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    fflush(stdout);
    va_list arguments;
    va_start(arguments, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(1);
}

static inline void check(bool claim, const char *what) {
    if (__builtin_expect(!claim, 0)) fail("%s", what);
}

/* Ends the program if a call has failed. */
static inline void done(struct driver *driver, int result, const char *call) {
    if (__builtin_expect(result != RACE_DONE, 0)) {
        fail("%s: %s", call, result == RACE_ABSENT ? "there is no such key" : driver->engine->why());
    }
}

static void settle(struct driver *driver) { done(driver, driver->engine->settle(driver->table), "settle"); }

/* Chooses the record of the j-th operation and notes it in `indices`, before the clock starts. */
typedef void chooser(struct driver *driver, uint64_t j, uint64_t at);

/* Makes one operation: the j-th of the phase, `at` in the block. */
typedef void operation(struct driver *driver, uint64_t j, uint64_t at);

/* Makes `count` operations. It is compiled once for each phase, so that the engine's is the only call
 * through a pointer. */
__attribute__((always_inline)) static inline void operations(struct driver *driver, uint64_t count,
                                                             chooser *choose, operation *operate) {
    uint64_t slowest = 0, slowest_calls = 1;
    for (uint64_t first = 0; first < count; first += driver->block_records) {
        uint64_t end = count - first < driver->block_records ? count : first + driver->block_records;
        if (choose != NULL) {
            for (uint64_t j = first; j < end; j++) choose(driver, j, j - first);
        }
        uint64_t start = now_ns(), before = start;
        for (uint64_t j = first; j < end;) {
            uint64_t last = end - j < GROUP ? end : j + GROUP, calls = last - j;
            for (; j < last; j++) operate(driver, j, j - first);
            uint64_t after = now_ns(), took = after - before;
            if (took > slowest) slowest = took, slowest_calls = calls;
            before = after;
            if (driver->is_unsupported) return;
        }
        if (end == count) settle(driver);
        driver->tally.ns += now_ns() - start;
    }
    driver->tally.ops += count;
    /* What the other calls of the group took on average is not the slow one's. */
    uint64_t others = count == 0 ? 0 : driver->tally.ns / count * (slowest_calls - 1);
    driver->tally.worst_ns = slowest > others ? slowest - others : slowest;
}

static inline void make_key(struct driver *driver, uint64_t index) {
    write_key(index, driver->key, driver->config.key_bytes);
    if (__builtin_expect(driver->has_checksum, 0)) {
        driver->tally.checksum += digest(driver->key, driver->config.key_bytes);
    }
}

static inline char *block_value(struct driver *driver, uint64_t at) {
    return driver->block + at * driver->config.value_bytes;
}

/* Compares what was copied to `value` with the record. */
static inline void check_value(struct driver *driver, uint64_t index, int64_t bytes, bool is_whole) {
    size_t expected_bytes = driver->config.value_bytes;
    check(bytes == (int64_t)expected_bytes, "a value has another length than what was stored");
    if (__builtin_expect(is_whole || index % 256 == 0, 0)) {
        write_value(index, driver->overwritten[index], driver->expected, expected_bytes);
        check(memcmp(driver->value, driver->expected, expected_bytes) == 0, "a value is not the one that was stored");
    }
    if (__builtin_expect(driver->has_checksum, 0)) {
        driver->tally.checksum += 5 * digest(driver->value, expected_bytes);
    }
}

static inline int64_t get(struct driver *driver, uint64_t index) {
    make_key(driver, index);
    int64_t bytes = driver->engine->get(driver->table, driver->key, driver->config.key_bytes, driver->value,
                                        driver->config.value_bytes);
    if (__builtin_expect(bytes < RACE_ABSENT, 0)) fail("get: %s", driver->engine->why());
    return bytes;
}

/* Returns which record is next: as random as the last value. */
static inline uint64_t next_index(const struct driver *driver, uint64_t j) {
    return scaled(splitmix64(j ^ 0xabcd) + driver->link, driver->config.records);
}

static void hit(struct driver *driver, uint64_t j, uint64_t at) {
    (void)at;
    uint64_t index = next_index(driver, j);
    int64_t bytes = get(driver, index);
    check(bytes != RACE_ABSENT, "a key that was stored is not found");
    check_value(driver, index, bytes, false);
    driver->link = prefix(driver->value, driver->config.value_bytes);
}

static void miss(struct driver *driver, uint64_t j, uint64_t at) {
    (void)at;
    check(get(driver, j + 0x100000000) == RACE_ABSENT, "a key that was never stored is found");
}

/* Writes the value of the `at`-th put of a block. */
static void prepare(struct driver *driver, uint64_t index, uint64_t version, uint64_t at) {
    char *value = block_value(driver, at);
    driver->indices[at] = index;
    write_value(index, version, value, driver->config.value_bytes);
    if (driver->has_checksum) driver->tally.checksum += 3 * digest(value, driver->config.value_bytes);
}

static void choose_new(struct driver *driver, uint64_t j, uint64_t at) { prepare(driver, j, 0, at); }

static void choose_old(struct driver *driver, uint64_t j, uint64_t at) {
    uint64_t index = splitmix64(j ^ 0x77770000 ^ 0xabcd) % driver->config.records;
    driver->overwritten[index] = true;
    prepare(driver, index, 1, at);
}

static void put(struct driver *driver, uint64_t j, uint64_t at) {
    (void)j;
    make_key(driver, driver->indices[at]);
    int result = driver->engine->put(driver->table, driver->key, driver->config.key_bytes, block_value(driver, at),
                                     driver->config.value_bytes);
    done(driver, result, "put");
}

/* A prime step visits different records, in an order that no engine has. */
static const uint64_t DELETE_STEP = 2654435761;

static void choose_deleted(struct driver *driver, uint64_t j, uint64_t at) {
    uint64_t index = j * DELETE_STEP % driver->config.records;
    driver->deleted[index] = true;
    driver->indices[at] = index;
}

static void erase(struct driver *driver, uint64_t j, uint64_t at) {
    (void)j;
    make_key(driver, driver->indices[at]);
    int result = driver->engine->erase(driver->table, driver->key, driver->config.key_bytes);
    if (result == RACE_UNSUPPORTED) driver->is_unsupported = true;
    else done(driver, result, "erase");
}

/* What a scan has seen. */
struct seen {
    struct driver *driver;
    uint64_t count, sum;
};

static void see(void *context, const void *key, size_t key_bytes, const void *value, size_t value_bytes) {
    struct seen *seen = context;
    struct driver *driver = seen->driver;
    check(value_bytes == driver->config.value_bytes, "a value has another length than what was stored");
    memcpy(driver->value, value, value_bytes);
    /* Without this the compiler may leave out a copy that nobody reads. */
    __asm__ volatile("" : : "r"(driver->value) : "memory");
    seen->count++;
    seen->sum += prefix(key, key_bytes);
    if (__builtin_expect(driver->has_checksum, 0)) {
        driver->tally.checksum += digest(key, key_bytes) + 5 * digest(driver->value, value_bytes);
    }
}

static void scan(struct driver *driver) {
    uint64_t expected_count = 0, expected_sum = 0;
    for (uint64_t i = 0; i < driver->config.records; i++) {
        if (driver->deleted[i]) continue;
        write_key(i, driver->key, driver->config.key_bytes);
        expected_count++;
        expected_sum += prefix(driver->key, driver->config.key_bytes);
    }
    struct seen seen = {driver, 0, 0};
    uint64_t start = now_ns();
    int result = driver->engine->scan(driver->table, see, &seen);
    driver->tally.ns += now_ns() - start;
    driver->is_unsupported = result == RACE_UNSUPPORTED;
    if (driver->is_unsupported) return;
    done(driver, result, "scan");
    driver->tally.ops += seen.count;
    check(seen.count == expected_count && seen.sum == expected_sum, "a scan does not give every key once");
}

/* Deletes so many records, if the engine can. */
static void erase_some(struct driver *driver, uint64_t count) {
    check(count <= driver->config.records && driver->config.records % DELETE_STEP != 0, "no such order of deletes");
    operations(driver, count, choose_deleted, erase);
    if (driver->is_unsupported) memset(driver->deleted, false, driver->config.records);
}

/* Looks up one record in 61, with the clock not running, and compares the whole answer. */
static void audit(struct driver *driver) {
    for (uint64_t i = 0; i < driver->config.records; i += 61) {
        write_key(i, driver->key, driver->config.key_bytes);
        int64_t bytes = driver->engine->get(driver->table, driver->key, driver->config.key_bytes, driver->value,
                                            driver->config.value_bytes);
        if (bytes < RACE_ABSENT) fail("get: %s", driver->engine->why());
        check((bytes != RACE_ABSENT) == !driver->deleted[i], "a record is there or not, and should not or should");
        if (bytes != RACE_ABSENT) check_value(driver, i, bytes, true);
    }
}

/* Returns NULL, or why this machine cannot measure it. */
static const char *two_loads(struct driver *driver, uint64_t count, const char *pages) {
    uint64_t record_bytes = RECORD_HEADER_BYTES + driver->config.key_bytes + driver->config.value_bytes;
    struct loads loads = {.index_bytes = driver->config.records * INDEX_BYTES_PER_RECORD,
                          .data_bytes = driver->config.records * record_bytes,
                          .count = count,
                          .is_huge = strcmp(pages, "huge") == 0};
    check(loads.is_huge || strcmp(pages, "small") == 0, "loads: the pages are `small` or `huge`");
    const char *why = loads_measure(&loads, &driver->tally.ns);
    if (why == NULL) driver->tally.ops += count;
    return why;
}

/* The one record of the engine that `driver:COUNT` calls. */
static int64_t get_nothing(void *table, const void *key, size_t key_bytes, void *value, size_t room_bytes) {
    const struct driver *driver = table;
    /* The key is read, as a hash function would. */
    uint64_t first = prefix(key, key_bytes);
    __asm__ volatile("" : : "r"(first));
    memcpy(value, driver->expected, room_bytes);
    return (int64_t)room_bytes;
}

static int settle_nothing(void *table) {
    (void)table;
    return RACE_DONE;
}

static void call(struct driver *driver, uint64_t j, uint64_t at) {
    (void)at;
    check(get(driver, next_index(driver, j)) >= 0, "the driver's own record is not found");
    driver->link = prefix(driver->value, driver->config.value_bytes);
}

/* Calls an engine that does nothing but copy one value. */
static void driver_alone(struct driver *driver, uint64_t count) {
    static const struct race_engine nothing = {.get = get_nothing, .settle = settle_nothing};
    const struct race_engine *engine = driver->engine;
    void *table = driver->table;
    driver->engine = &nothing;
    driver->table = driver;
    write_value(0, 0, driver->expected, driver->config.value_bytes);
    operations(driver, count, NULL, call);
    driver->engine = engine;
    driver->table = table;
}

static void open_table(struct driver *driver) {
    driver->table = driver->engine->open(&driver->config);
    if (driver->table == NULL) fail("open: %s", driver->engine->why());
}

/* Times one call. */
static void once(struct driver *driver, const char *name) {
    uint64_t start = now_ns();
    if (strcmp(name, "open") == 0) open_table(driver);
    else if (strcmp(name, "sync") == 0) done(driver, driver->engine->sync(driver->table), name);
    else {
        done(driver, driver->engine->close(driver->table), name);
        driver->table = NULL;
    }
    driver->tally.ns = driver->tally.worst_ns = now_ns() - start;
    driver->tally.ops = 1;
}

static bool is(const char *phase, const char *name) {
    size_t length = strlen(name);
    return strncmp(phase, name, length) == 0 && (phase[length] == 0 || phase[length] == ':');
}

/* Does the work of a phase. Returns NULL, or why it cannot be done. */
static const char *work(struct driver *driver, const char *phase) {
    const char *colon = strchr(phase, ':');
    uint64_t count = colon == NULL ? 0 : strtoull(colon + 1, NULL, 10);
    const char *last = strrchr(phase, ':');
    driver->link = 0;
    driver->is_unsupported = false;
    if (is(phase, "memory")) return memory_measure(count, &driver->tally);
    if (is(phase, "loads")) return two_loads(driver, count, last == NULL ? "" : last + 1);
    if (is(phase, "open") || is(phase, "sync") || is(phase, "close")) {
        check(is(phase, "open") == (driver->table == NULL), "`open` comes before all else, and once");
        once(driver, phase);
        return NULL;
    }
    check(driver->table != NULL, "a phase `open` has to come first");
    if (is(phase, "create")) operations(driver, driver->config.records, choose_new, put);
    else if (is(phase, "hit")) operations(driver, count, NULL, hit);
    else if (is(phase, "miss")) operations(driver, count, NULL, miss);
    else if (is(phase, "overwrite")) operations(driver, count, choose_old, put);
    else if (is(phase, "delete")) erase_some(driver, count);
    else if (is(phase, "scan")) scan(driver);
    else if (is(phase, "audit")) audit(driver);
    else if (is(phase, "driver")) driver_alone(driver, count);
    else fail("the dependent driver has no phase `%s`", phase);
    return driver->is_unsupported ? driver->engine->why() : NULL;
}

static void run_phase(struct driver *driver, const char *phase) {
    driver->tally = (struct tally){0};
    struct figures before = figures_now();
    const char *why = work(driver, phase);
    if (why != NULL) {
        printf("{\"phase\":\"%s\",\"unsupported\":\"%s\"}\n", phase, why);
        fflush(stdout);
        return;
    }
    const char *dir = driver->engine->is_persistent ? driver->config.dir : NULL;
    figures_print(&before, phase, &driver->tally, dir, driver->has_checksum);
}

static void *allocated(uint64_t bytes) {
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    check(memory != NULL, "there is too little memory for the driver");
    return memory;
}

static void prepare_driver(struct driver *driver) {
    struct race_config *config = &driver->config;
    check(config->key_bytes == 8 || config->key_bytes == 16, "the dependent driver has keys of 8 or 16 bytes");
    check(config->value_bytes <= VALUE_BYTES_MAX, "the dependent driver has values of 1 MiB at most");
    uint64_t fitting = BLOCK_BYTES / (config->key_bytes + config->value_bytes);
    driver->block_records = fitting < BLOCK_RECORDS_MAX ? fitting : BLOCK_RECORDS_MAX;
    driver->block = allocated(driver->block_records * config->value_bytes);
    driver->value = allocated(config->value_bytes);
    driver->expected = allocated(config->value_bytes);
    driver->overwritten = allocated(config->records);
    driver->deleted = allocated(config->records);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--loads") == 0) return loads_main(argc - 2, argv + 2);
    struct driver driver = {
        .engine = &RACE_ENGINE,
        .config = {.dir = ".", .key_bytes = 16, .value_bytes = 100, .cache_bytes = (uint64_t)1 << 30}};
    int first_phase = 1;
    for (; first_phase < argc && strncmp(argv[first_phase], "--", 2) == 0; first_phase++) {
        const char *option = argv[first_phase];
        if (strcmp(option, "--checksum") == 0) {
            driver.has_checksum = true;
            continue;
        }
        if (++first_phase == argc) fail("%s needs a value", option);
        const char *value = argv[first_phase];
        uint64_t number = strtoull(value, NULL, 10);
        if (strcmp(option, "--dir") == 0) driver.config.dir = value;
        else if (strcmp(option, "--records") == 0) driver.config.records = number;
        else if (strcmp(option, "--key-bytes") == 0) driver.config.key_bytes = number;
        else if (strcmp(option, "--value-bytes") == 0) driver.config.value_bytes = number;
        else if (strcmp(option, "--cache-bytes") == 0) driver.config.cache_bytes = number;
        else if (strcmp(option, "--words") != 0) fail("there is no option `%s`", option);
    }
    prepare_driver(&driver);
    for (int i = first_phase; i < argc; i++) run_phase(&driver, argv[i]);
    /* What is still open is not closed: the process ends. */
    fflush(stdout);
    _exit(0);
}
