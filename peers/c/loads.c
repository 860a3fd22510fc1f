#define _GNU_SOURCE
#include "loads.h"

#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "figures.h"

extern char **environ;

enum { LINE_BYTES = 64, HUGE_PAGE_BYTES = 2 << 20 };

/* Memory in lines of 64 bytes, each of which begins with a random number. */
struct lines {
    const char *start;
    uint64_t count;
};

/* Fills memory in pages of the size that is asked for. Returns no lines if there is too little. */
static struct lines filled(uint64_t bytes, bool is_huge) {
    uint64_t rounded = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    char *memory = mmap(NULL, rounded + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return (struct lines){NULL, 0};
    char *start = memory + (-(uintptr_t)memory & (HUGE_PAGE_BYTES - 1));
    /* A kernel without huge pages refuses both; `huge_bytes` tells what it did. */
    madvise(start, rounded, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (uint64_t at = 0; at < rounded; at += LINE_BYTES) {
        uint64_t number = splitmix64(at ^ bytes);
        memcpy(start + at, &number, sizeof number);
    }
    return (struct lines){start, bytes / LINE_BYTES};
}

/* Returns how much of this process's memory is in huge pages. */
static uint64_t huge_bytes(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (file == NULL) return 0;
    char line[256];
    uint64_t kib = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1) break;
    }
    fclose(file);
    return kib * 1024;
}

static uint64_t number_in(struct lines lines, uint64_t bits) {
    uint64_t number;
    memcpy(&number, lines.start + scaled(bits, lines.count) * LINE_BYTES, sizeof number);
    return number;
}

/* Returns the nanoseconds of so many pairs. */
static uint64_t pairs(struct lines index, struct lines data, uint64_t count) {
    uint64_t link = 0, start = now_ns();
    for (uint64_t j = 0; j < count; j++) {
        /* With the counter in it the chain visits all lines, and never runs in a circle. */
        uint64_t mixed = splitmix64(j);
        link = number_in(index, mixed + link);
        link = number_in(data, (mixed << 32 | mixed >> 32) + link);
    }
    uint64_t ns = now_ns() - start;
    __asm__ volatile("" : : "r"(link));
    return ns;
}

int loads_main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "error: --loads needs INDEX_BYTES DATA_BYTES COUNT IS_HUGE\n");
        return 1;
    }
    bool is_huge = strcmp(argv[3], "1") == 0;
    struct lines index = filled(strtoull(argv[0], NULL, 10), is_huge);
    struct lines data = filled(strtoull(argv[1], NULL, 10), is_huge);
    if (index.count == 0 || data.count == 0) {
        printf("there is too little memory\n");
        return 0;
    }
    /* Nine parts in ten decide: the ends of the memory and the program itself are in small pages. */
    uint64_t all = (index.count + data.count) * LINE_BYTES, huge = huge_bytes();
    if (is_huge && huge < all / 10 * 9) {
        printf("the kernel gives no huge pages\n");
    } else if (!is_huge && huge > all / 10) {
        printf("the kernel gives huge pages only\n");
    } else {
        printf("%" PRIu64 "\n", pairs(index, data, strtoull(argv[2], NULL, 10)));
    }
    return 0;
}

/* Starts this program again with the arguments of `loads`, and its output in a pipe. A fork would
 * make the pages of a table in memory read-only, and its next changes slow. Returns its id, or -1. */
static pid_t started(const struct loads *loads, int *output) {
    char numbers[4][24], flag[] = "--loads", name[] = "loads";
    snprintf(numbers[0], sizeof numbers[0], "%" PRIu64, loads->index_bytes);
    snprintf(numbers[1], sizeof numbers[1], "%" PRIu64, loads->data_bytes);
    snprintf(numbers[2], sizeof numbers[2], "%" PRIu64, loads->count);
    snprintf(numbers[3], sizeof numbers[3], "%d", loads->is_huge);
    char *arguments[] = {name, flag, numbers[0], numbers[1], numbers[2], numbers[3], NULL};
    int ends[2];
    if (pipe(ends) != 0) return -1;
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    if (posix_spawn_file_actions_init(&actions) == 0) {
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        if (posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) != 0) child = -1;
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    *output = ends[0];
    if (child < 0) close(ends[0]);
    return child;
}

const char *loads_measure(const struct loads *loads, uint64_t *ns) {
    static char answer[128];
    int output = -1, status = 0;
    pid_t child = started(loads, &output);
    if (child < 0) return "cannot start the process that measures loads";
    size_t length = 0;
    for (ssize_t read_bytes; length < sizeof answer - 1 &&
                             (read_bytes = read(output, answer + length, sizeof answer - 1 - length)) > 0;) {
        length += (size_t)read_bytes;
    }
    close(output);
    answer[length] = 0;
    answer[strcspn(answer, "\n")] = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return "the process that measures loads failed";
    char *end;
    *ns = strtoull(answer, &end, 10);
    return end != answer && *end == 0 ? NULL : answer;
}
