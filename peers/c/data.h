/* Which keys and values there are: the same as in `cpp/harness.hpp` and `rust/src/data.rs`. */
#ifndef RACE_DATA_H
#define RACE_DATA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t splitmix64(uint64_t i) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Returns a number below `count`, chosen by all 64 bits: a multiplication, where a remainder would
 * take as long as a tenth of a lookup. */
static inline uint64_t scaled(uint64_t bits, uint64_t count) {
    return (uint64_t)((unsigned __int128)bits * count >> 64);
}

/* Returns the first eight bytes as a number, or as many as there are. */
static inline uint64_t prefix(const void *bytes, size_t length) {
    uint64_t word = 0;
    memcpy(&word, bytes, length < 8 ? length : 8);
    return word;
}

/* Sums up what was asked and answered, in any order of calls. */
static inline uint64_t digest(const void *bytes, size_t length) {
    uint64_t hash = length;
    for (size_t at = 0; at < length; at += 8) {
        hash = splitmix64(hash ^ prefix((const char *)bytes + at, length - at));
    }
    return hash;
}

/* Writes key `i`: splitmix64(i), in hex digits where there is room for them. */
static inline void write_key(uint64_t i, char *key, size_t key_bytes) {
    uint64_t bits = splitmix64(i);
    if (key_bytes == 8) {
        memcpy(key, &bits, 8);
        return;
    }
    for (size_t digit = 0; digit < key_bytes; digit++) {
        key[digit] = "0123456789abcdef"[bits >> (60 - 4 * digit) & 15];
    }
}

/* Writes the value of record `i` after `version` changes: incompressible bytes. */
static inline void write_value(uint64_t i, uint64_t version, char *value, size_t value_bytes) {
    uint64_t seed = splitmix64(i ^ version << 48 ^ 0x5555);
    for (size_t at = 0; at < value_bytes; at += 8) {
        uint64_t bits = splitmix64(seed + at / 8);
        memcpy(value + at, &bits, value_bytes - at < 8 ? value_bytes - at : 8);
    }
}

#endif
