/* Two loads that depend on each other: what a lookup cannot take less than, if it reads a line of an
 * index to learn where the record is, and a line of the record to learn the next key.
 *
 * The first is a random line of memory as large as an index, the second one of memory as large as
 * the data. The address of each needs what the load before it has read. */
#ifndef RACE_LOADS_H
#define RACE_LOADS_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of an index for one record: two addresses of eight bytes, as in a table of buckets of 64
 * bytes that are filled to a half. */
enum { INDEX_BYTES_PER_RECORD = 16 };

/* Bytes of a record beside its key and its value. */
enum { RECORD_HEADER_BYTES = 16 };

struct loads {
    uint64_t index_bytes, data_bytes;
    /* Pairs of loads. */
    uint64_t count;
    /* In pages of 2 MiB, or of 4 KiB. */
    bool is_huge;
};

/* Measures in a process of its own, so that the memory is none of this one, and stores the
 * nanoseconds that all pairs took. Returns NULL, or why it cannot be measured here. */
const char *loads_measure(const struct loads *loads, uint64_t *ns);

/* That process: `program --loads INDEX_BYTES DATA_BYTES COUNT IS_HUGE`. Returns its exit code. */
int loads_main(int argc, char **argv);

#endif
