/* What is measured beside the clock, and the line of JSON that a phase prints: the same fields as
 * those of `cpp/harness.hpp`. */
#ifndef RACE_FIGURES_H
#define RACE_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

/* What the machine and this process had done when a phase began. */
struct figures {
    uint64_t start_ns;
    /* Ticks of the kernel: of all processors, those given to other machines, and ours. */
    double busy, stolen, own;
    uint64_t faults, read_bytes;
};

/* What a phase has found. */
struct tally {
    uint64_t ops, ns, worst_ns, checksum;
};

uint64_t now_ns(void);

struct figures figures_now(void);

/* Prints the line of a phase. `dir` is where the files are, or NULL in memory. */
void figures_print(const struct figures *before, const char *phase, const struct tally *tally,
                   const char *dir, bool has_checksum);

#endif
