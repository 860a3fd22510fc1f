/* replace FILE COUNT [nolock|sync]: stores COUNT pairs, closes, opens, replaces each value, closes. Prints wall, user, system seconds
 * of each part, and the longest call. */
#define _GNU_SOURCE
#include <gdbm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
static double wall(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static double w0, u0, s0, longest;
static uint64_t over1ms; static double over;
static void begin(void) { struct rusage r; getrusage(RUSAGE_SELF, &r); w0 = wall();
  u0 = r.ru_utime.tv_sec + r.ru_utime.tv_usec * 1e-6; s0 = r.ru_stime.tv_sec + r.ru_stime.tv_usec * 1e-6; longest = 0; over1ms = 0; over = 0; }
static void end(const char *what) { struct rusage r; double w = wall() - w0; getrusage(RUSAGE_SELF, &r);
  printf("%-14s wall %7.3f user %6.3f sys %6.3f longest call %7.3f ms; calls > 1 ms: %llu, together %.3f s\n", what, w, r.ru_utime.tv_sec + r.ru_utime.tv_usec * 1e-6 - u0,
         r.ru_stime.tv_sec + r.ru_stime.tv_usec * 1e-6 - s0, longest * 1e3, (unsigned long long)over1ms, over); fflush(stdout); }
static datum pair(uint64_t *w, uint64_t n, uint64_t salt) { datum d; w[0] = n; w[1] = n ^ salt; d.dptr = (char *)w; d.dsize = 16; return d; }
int main(int argc, char **argv) {
  uint64_t n = strtoull(argv[2], 0, 10), i, k[2], v[2]; int flags = 0, rounds = argc > 4 ? atoi(argv[4]) : 1, r;
  if (argc > 3 && strstr(argv[3], "nolock")) flags |= GDBM_NOLOCK;
  begin(); unlink(argv[1]);
  GDBM_FILE db = gdbm_open(argv[1], 0, GDBM_NEWDB | flags, 0600, 0);
  if (!db) { puts("open"); return 1; }
  end("open new"); begin();
  for (i = 0; i < n; i++) { double b = wall(); if (gdbm_store(db, pair(k, i, 5), pair(v, i, 7), GDBM_INSERT)) { puts("store"); return 1; }
    b = wall() - b; if (b > longest) longest = b; if (b > 1e-3) over1ms++, over += b; }
  end("store");
  if (!getenv("KEEP_OPEN")) { begin(); gdbm_close(db); end("close"); begin(); db = gdbm_open(argv[1], 0, GDBM_WRITER | flags, 0600, 0); end("open"); }
  for (r = 0; r < rounds; r++) { begin();
  for (i = 0; i < n; i++) { uint64_t j = i * 2654435761u % n; double b = wall(); if (gdbm_store(db, pair(k, j, 5), pair(v, j, 9 + r), GDBM_REPLACE)) { puts("replace"); return 1; }
    b = wall() - b; if (b > longest) longest = b; if (b > 1e-3) over1ms++, over += b; }
  end("replace"); }
  begin(); gdbm_close(db); end("close");
  return 0; }
