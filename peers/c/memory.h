/* New memory: what the kernel, and the host below it, take to hand out a huge page. A put that
 * reaches new memory cannot take less, whatever the engine does. */
#ifndef RACE_MEMORY_H
#define RACE_MEMORY_H

#include <stdint.h>

#include "figures.h"

/* Takes `count` pages of 2 MiB that this process has not had, one after the other, writes to every
 * 4 KiB of each, and gives all of them back at the end. Adds to `tally` what each took. Returns NULL,
 * or why it cannot be measured here. */
const char *memory_measure(uint64_t count, struct tally *tally);

#endif
