#define _GNU_SOURCE
#include "memory.h"

#include <stddef.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20, PAGE_BYTES = 4096 };

const char *memory_measure(uint64_t count, struct tally *tally) {
    /* Nothing is given back before the end: the kernel would hand out the same page again. */
    uint64_t bytes = (count + 1) * HUGE_PAGE_BYTES;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return "there is too little memory";
    char *start = memory + (-(uintptr_t)memory & (HUGE_PAGE_BYTES - 1));
    /* A kernel without huge pages refuses this, and hands out as much in small ones. */
    madvise(start, count * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < count; i++) {
        volatile char *page = start + i * HUGE_PAGE_BYTES;
        uint64_t begun = now_ns();
        for (uint64_t at = 0; at < HUGE_PAGE_BYTES; at += PAGE_BYTES) page[at] = 1;
        uint64_t ns = now_ns() - begun;
        tally->ns += ns;
        if (ns > tally->worst_ns) tally->worst_ns = ns;
    }
    tally->ops += count;
    munmap(memory, bytes);
    return NULL;
}
