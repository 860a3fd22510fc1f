/* Times one phase after the other on one engine; prints processor seconds (user + system).
   cc -O2 race.c -o race185 -ldl            (db 1.85: libdb1.so.2, by dlopen)
   cc -O2 -DBDB53 race.c -o race53 -ldb-5.3 (Berkeley DB 5.3 hash)
   usage: race KEYS FILE CACHE_BYTES; KEYS has one key a line, the value is the number of the line. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}
static double begun;
static void phase(const char *name, long n) {
    double now = cpu();
    printf("%s %.0f\n", name, (now - begun) * 1e9 / n);
    begun = cpu();
}
static char **keys;
static size_t *sizes;
static long n;
static void read_keys(const char *path) {
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    keys = malloc(sizeof *keys * 2000000);
    sizes = malloc(sizeof *sizes * 2000000);
    while ((len = getline(&line, &cap, f)) > 0) {
        keys[n] = malloc(len + 2);
        memcpy(keys[n], line, len - 1);
        keys[n][len - 1] = 0;
        sizes[n++] = len - 1;
    }
}
static void die(const char *what) { perror(what); exit(1); }

#ifdef BDB53
#include <db.h>
static DB *db;
static void open_it(const char *path, unsigned cache, int is_new) {
    if (db_create(&db, NULL, 0)) die("create");
    db->set_cachesize(db, 0, cache, 1);
    if (is_new) db->set_pagesize(db, 4096);
    if (db->open(db, NULL, path, NULL, DB_HASH, is_new ? DB_CREATE : 0, 0644)) die("open");
}
static DBT dbt(void *p, size_t s) { DBT d; memset(&d, 0, sizeof d); d.data = p; d.size = s; return d; }
static int put(void *k, size_t ks, void *v, size_t vs) { DBT a = dbt(k, ks), b = dbt(v, vs); return db->put(db, NULL, &a, &b, 0); }
static int get(void *k, size_t ks) { DBT a = dbt(k, ks), b = dbt(0, 0); return db->get(db, NULL, &a, &b, 0) ? 1 : 0; }
static int del(void *k, size_t ks) { DBT a = dbt(k, ks); return db->del(db, NULL, &a, 0); }
static long scan(void) {
    DBC *c; DBT a = dbt(0, 0), b = dbt(0, 0); long count = 0;
    db->cursor(db, NULL, &c, 0);
    while (c->get(c, &a, &b, DB_NEXT) == 0) count++;
    c->close(c);
    return count;
}
static void sync_it(void) { if (db->sync(db, 0)) die("sync"); }
static void close_it(void) { db->close(db, 0); }
#else
typedef struct { void *data; size_t size; } DBT;
typedef struct DB { int type; int (*close)(struct DB *); int (*del)(const struct DB *, const DBT *, unsigned);
    int (*get)(const struct DB *, const DBT *, DBT *, unsigned); int (*put)(const struct DB *, DBT *, const DBT *, unsigned);
    int (*seq)(const struct DB *, DBT *, DBT *, unsigned); int (*sync)(const struct DB *, unsigned); } DB;
typedef struct { unsigned bsize, ffactor, nelem, cachesize; uint32_t (*hash)(const void *, size_t); int lorder; } HASHINFO;
static DB *db;
static void open_it(const char *path, unsigned cache, int is_new) {
    void *lib = dlopen("libdb1.so.2", RTLD_NOW);
    if (!lib) { fputs(dlerror(), stderr); exit(1); }
    DB *(*dbopen)(const char *, int, int, int, const void *) = dlsym(lib, "dbopen");
    HASHINFO info = {4096, 0, 0, cache, 0, 0};
    db = dbopen(path, is_new ? O_RDWR | O_CREAT | O_TRUNC : O_RDWR, 0644, 1, &info);
    if (!db) die("dbopen");
}
static int put(void *k, size_t ks, void *v, size_t vs) { DBT a = {k, ks}, b = {v, vs}; return db->put(db, &a, &b, 0); }
static int get(void *k, size_t ks) { DBT a = {k, ks}, b; return db->get(db, &a, &b, 0); }
static int del(void *k, size_t ks) { DBT a = {k, ks}; return db->del(db, &a, 0); }
static long scan(void) {
    DBT a, b; long count = 0; unsigned flag = 3;
    while (db->seq(db, &a, &b, flag) == 0) { count++; flag = 7; }
    return count;
}
static void sync_it(void) { if (db->sync(db, 0)) die("sync"); }
static void close_it(void) { db->close(db); }
#endif

int main(int argc, char **argv) {
    char value[32];
    unsigned cache = strtoul(argv[3], 0, 10);
    read_keys(argv[1]);
    unlink(argv[2]);
    open_it(argv[2], cache, 1);
    begun = cpu();
    for (long i = 0; i < n; i++) {
        int len = snprintf(value, sizeof value, "%ld", i + 1);
        if (put(keys[i], sizes[i], value, len)) die("put");
    }
    phase("create", n);
    sync_it();
    close_it();
    phase("close", n);
    open_it(argv[2], cache, 0);
    begun = cpu();
    long found = 0;
    for (long i = 0; i < n; i++) found += get(keys[i], sizes[i]) == 0;
    phase("hit", n);
    for (long i = 0; i < n; i++) { keys[i][sizes[i]] = '~'; found -= get(keys[i], sizes[i] + 1) == 1; }
    phase("miss", n);
    if (found != 0) { fprintf(stderr, "wrong: %ld\n", found); return 1; }
    if (scan() != n) { fprintf(stderr, "scan is not whole\n"); return 1; }
    phase("scan", n);
    for (long i = 0; i < n; i++) if (del(keys[i], sizes[i])) die("del");
    phase("delete", n);
    close_it();
    return 0;
}
