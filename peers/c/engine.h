/* What an engine looks like to a program in C: one call through a pointer for each operation, and
 * values that are copied to the caller.
 *
 * `cpp/c_interface.hpp` puts every engine of the harness in C++ behind it, and the crate `rust_c`
 * every engine written in Rust. Each is a symbol `race_engine_NAME`, with the name of the engine in
 * `engines.toml`. `dependent.c` is the program that calls them. */
#ifndef RACE_ENGINE_H
#define RACE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an engine is told when it is opened. */
struct race_config {
    const char *dir;
    /* Number of records that will be stored, for engines whose manuals ask to be told. */
    uint64_t records;
    size_t key_bytes;
    size_t value_bytes;
    /* What a cache of the engine's own may hold, where it has one. */
    uint64_t cache_bytes;
};

/* What a call returns if it returns no number. */
enum race_result {
    RACE_DONE = 0,
    /* There is no such key. */
    RACE_ABSENT = -1,
    /* `why` has the reason. */
    RACE_FAILED = -2,
    /* The engine has no such call; `why` says which. */
    RACE_UNSUPPORTED = -3,
};

/* Takes a record during a scan. The bytes are valid until it returns. */
typedef void race_each(void *context, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* An engine. `table` is what `open` has returned. */
struct race_engine {
    /* In a file, or in memory only. */
    int is_persistent;
    /* Makes the table, or opens the one that is there. Returns NULL if that fails. */
    void *(*open)(const struct race_config *config);
    /* Stores a record. Nothing is made durable. Returns RACE_DONE or a failure. */
    int (*put)(void *table, const void *key, size_t key_bytes, const void *value, size_t value_bytes);
    /* Copies the value to `value`, or as much of it as there is room for, and returns its length;
     * or RACE_ABSENT, or a failure. */
    int64_t (*get)(void *table, const void *key, size_t key_bytes, void *value, size_t room_bytes);
    /* Deletes a record. Returns RACE_DONE, RACE_ABSENT where the engine tells, or a failure. */
    int (*erase)(void *table, const void *key, size_t key_bytes);
    /* Calls `each` once for every record. Returns RACE_DONE or a failure. */
    int (*scan)(void *table, race_each *each, void *context);
    /* Commits the open transaction, at the end of a phase. Returns RACE_DONE or a failure. */
    int (*settle)(void *table);
    /* Makes durable all that was put. Returns RACE_DONE or a failure. */
    int (*sync)(void *table);
    /* Likewise, and closes the table, which is then gone. Returns RACE_DONE or a failure. */
    int (*close)(void *table);
    /* Returns what the last failure was about. */
    const char *(*why)(void);
};

#ifdef __cplusplus
}
#endif

#endif
