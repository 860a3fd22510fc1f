/* osc FILE COUNT [nolock] [keep]: open, store a pair, close; COUNT times. Prints us of each part (wall) per session, medians. */
#define _GNU_SOURCE
#include <gdbm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static double us(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
static double cpu(void) { struct timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
static int cmp(const void *a, const void *b) { double d = *(double *)a - *(double *)b; return d < 0 ? -1 : d > 0; }
int main(int argc, char **argv) {
  int n = atoi(argv[2]), i, f = 0, keep = 0; for (i = 3; i < argc; i++) { if (!strcmp(argv[i], "nolock")) f = GDBM_NOLOCK; if (!strcmp(argv[i], "keep")) keep = 1; }
  double *t[5]; for (i = 0; i < 5; i++) t[i] = malloc(n * sizeof(double));
  for (i = 0; i < n; i++) { char k[16] = {0}, v[16] = {0}; datum key = {k, 16}, val = {v, 16}; double a = us(), b, c, d, e, p = cpu();
    memcpy(k, &i, 4); memcpy(v, &i, 4);
    if (!keep) unlink(argv[1]); b = us();
    GDBM_FILE db = gdbm_open(argv[1], 0, (keep ? GDBM_WRCREAT : GDBM_NEWDB) | f, 0600, 0); if (!db) return 1; c = us();
    if (gdbm_store(db, key, val, GDBM_REPLACE)) return 2; d = us();
    if (gdbm_close(db)) return 3; e = us();
    t[0][i] = b - a; t[1][i] = c - b; t[2][i] = d - c; t[3][i] = e - d; t[4][i] = cpu() - p; }
  const char *names[] = {"unlink", "open", "store", "close", "cpu"}; double sum = 0;
  for (i = 0; i < 5; i++) { qsort(t[i], n, sizeof(double), cmp); printf("%s %.0f (least %.0f)  ", names[i], t[i][n / 2], t[i][0]); if (i < 4) sum += t[i][n / 2]; }
  printf("sum %.0f us\n", sum); return 0; }
