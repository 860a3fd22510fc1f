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

/* Returns eight hex digits as they are in memory, the most significant first. */
static inline uint64_t hex_digits(uint32_t bits) {
    uint64_t digits = bits;
    digits = (digits | digits << 16) & 0x0000ffff0000ffff;
    digits = (digits | digits << 8) & 0x00ff00ff00ff00ff;
    digits = (digits | digits << 4) & 0x0f0f0f0f0f0f0f0f;
    digits = __builtin_bswap64(digits);
    /* A byte from ten on has a carry out of its four bits when six are added: 'a' is 39 after '9' + 1. */
    uint64_t is_letter = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
    return digits + 0x3030303030303030 + is_letter * 39;
}

/* Writes key `i`: splitmix64(i), in hex digits if it has 16 bytes. It stores words of eight bytes, as
 * hash functions read them: a word read from bytes that were just stored one by one would have to
 * wait until they are in the cache, and how long depends on the hash function alone. */
static inline void write_key(uint64_t i, char *key, size_t key_bytes) {
    uint64_t bits = splitmix64(i);
    if (key_bytes == 8) {
        memcpy(key, &bits, 8);
        return;
    }
    uint64_t digits[2] = {hex_digits((uint32_t)(bits >> 32)), hex_digits((uint32_t)bits)};
    memcpy(key, digits, 16);
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
