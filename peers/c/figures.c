#define _GNU_SOURCE
#include "figures.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Returns the number after a name in a file of /proc, or 0 if it is not there. */
static uint64_t field_of(const char *path, const char *name) {
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    char line[256];
    uint64_t number = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            number = strtoull(line + strlen(name), NULL, 10);
            break;
        }
    }
    fclose(file);
    return number;
}

static void read_processors(struct figures *figures) {
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL) return;
    /* user, nice, system, idle, iowait, irq, softirq, steal */
    double ticks[8] = {0};
    int found = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2],
                       &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
    fclose(file);
    if (found != 8) return;
    figures->busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6];
    figures->stolen = ticks[7];
}

/* Adds what this process, or those that it has started and waited for, have used. */
static void add_usage(struct figures *figures, int whose) {
    struct rusage usage;
    if (getrusage(whose, &usage) != 0) return;
    double seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    figures->own += seconds * (double)sysconf(_SC_CLK_TCK);
    if (whose == RUSAGE_SELF) figures->faults = (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

struct figures figures_now(void) {
    struct figures figures = {.start_ns = now_ns()};
    read_processors(&figures);
    add_usage(&figures, RUSAGE_SELF);
    add_usage(&figures, RUSAGE_CHILDREN);
    figures.read_bytes = field_of("/proc/self/io", "read_bytes: ");
    return figures;
}

/* `nftw` has no room for a context. */
static uint64_t file_bytes, disk_bytes;

static int add_file(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)path, (void)at;
    if (kind == FTW_F && S_ISREG(status->st_mode)) {
        file_bytes += (uint64_t)status->st_size;
        disk_bytes += (uint64_t)status->st_blocks * 512;
    }
    return 0;
}

void figures_print(const struct figures *before, const char *phase, const struct tally *tally,
                   const char *dir, bool has_checksum) {
    struct figures now = figures_now();
    double ticks = (double)(now.start_ns - before->start_ns) / 1e9 * (double)sysconf(_SC_CLK_TCK);
    if (ticks < 1) ticks = 1;
    double own = now.own - before->own, others = now.busy - before->busy - own;
    printf("{\"phase\":\"%s\",\"ops\":%" PRIu64 ",\"ns\":%" PRIu64 ",\"worst_ns\":%" PRIu64, phase,
           tally->ops, tally->ns, tally->worst_ns);
    printf(",\"others_cpus\":%.3f,\"stolen_cpus\":%.3f,\"own_cpus\":%.3f", (others > 0 ? others : 0) / ticks,
           (now.stolen - before->stolen) / ticks, own / ticks);
    printf(",\"faults\":%" PRIu64 ",\"read_bytes\":%" PRIu64, now.faults - before->faults,
           now.read_bytes - before->read_bytes);
    printf(",\"rss_bytes\":%" PRIu64 ",\"peak_rss_bytes\":%" PRIu64,
           field_of("/proc/self/status", "VmRSS:") * 1024, field_of("/proc/self/status", "VmHWM:") * 1024);
    if (dir != NULL) {
        file_bytes = disk_bytes = 0;
        nftw(dir, add_file, 16, FTW_PHYS);
        printf(",\"file_bytes\":%" PRIu64 ",\"disk_bytes\":%" PRIu64, file_bytes, disk_bytes);
    }
    if (has_checksum) printf(",\"checksum\":\"%016" PRIx64 "\"", tally->checksum);
    printf("}\n");
    fflush(stdout);
}
