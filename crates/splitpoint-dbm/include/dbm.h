/*
 * dbm.h - dbm(3) of the seventh edition, on Splitpoint's crash-safe store.
 *
 * One database at a time, of the files NAME.pag and NAME.dir. dbminit opens it, if both are there, also
 * empty: to read and write, or only to read if no more is allowed. What is said in ndbm.h about the
 * files, old databases, handles and what a datum points to is so here too.
 *
 * Link with -lsplitpoint_dbm.
 */
#ifndef SPLITPOINT_DBM_H
#define SPLITPOINT_DBM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ndbm.h and gdbm.h have the same type. */
#ifndef SPLITPOINT_DATUM
#define SPLITPOINT_DATUM
#ifdef SPLITPOINT_POSIX_DATUM
typedef struct {
    void *dptr;
    size_t dsize;
} datum;
#else
typedef struct {
    char *dptr;
    int dsize;
} datum;
#endif
#endif

/* 0, or -1 with errno. A second dbminit closes the first database. */
int dbminit(const char *name);
int dbmclose(void);

/* 0, or -1 with errno. store replaces. delete returns -1 for an absent key too. */
int store(datum key, datum value);
#ifndef __cplusplus
int delete(datum key);
#endif

/* A null dptr stands for an absent key, and for the end of a walk. */
datum fetch(datum key);
datum firstkey(void);
datum nextkey(datum key);

#ifdef __cplusplus
}
#endif

#endif
