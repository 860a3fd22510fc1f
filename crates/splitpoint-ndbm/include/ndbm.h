/*
 * ndbm.h - databases of NAME.pag and NAME.dir, on Splitpoint's crash-safe store.
 *
 * Names and types are those of ndbm(3). What is better than in the original:
 *
 * - Keys and values of any size, also empty.
 * - What was stored survives the death of the process at once, and what was there at dbm_close a
 *   power loss.
 * - A walk reaches every key once, also if the program deletes each as it comes.
 *
 * What a program has to know:
 *
 * - Any number of handles write a database by turns, in any process, and others read it meanwhile:
 *   each call sees what was stored before it. One step of several calls needs a lock of the
 *   program's own, for which it may lock dbm_pagfno and dbm_dirfno.
 * - A datum that was returned belongs to the handle: a value until the next dbm_fetch, a key until the
 *   next dbm_firstkey or dbm_nextkey. dbm_store and dbm_delete leave both alone. It is never freed.
 * - An old database of dbm, ndbm, sdbm or gdbm opens to read. To write, dbm_open fails with EROFS,
 *   unless SPLITPOINT_OLD_FILES=convert is in the environment; see ndbm(3splitpoint).
 *
 * Link with -lsplitpoint_ndbm.
 */
#ifndef SPLITPOINT_NDBM_H
#define SPLITPOINT_NDBM_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* dbm.h and gdbm.h have the same type. */
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

typedef struct DBM DBM;

/* dbm_store returns 1, and the old value stays, if the key is there. */
#define DBM_INSERT 0
#define DBM_REPLACE 1

/* Flags and mode are those of open(2). Returns NULL, with errno, if it fails. */
DBM *dbm_open(const char *name, int flags, mode_t mode);
void dbm_close(DBM *db);

/* A null dptr stands for an absent key, and for the end of a walk. */
datum dbm_fetch(DBM *db, datum key);
datum dbm_firstkey(DBM *db);
datum dbm_nextkey(DBM *db);

/* 0, or -1 with errno. dbm_delete returns -1 for an absent key too, which is no error. */
int dbm_store(DBM *db, datum key, datum value, int mode);
int dbm_delete(DBM *db, datum key);

/* Not 0 if a call has failed since the last dbm_clearerr. Calls go on in any case. */
int dbm_error(DBM *db);
int dbm_clearerr(DBM *db);

/* Descriptors of the two files, which the program may lock. */
int dbm_dirfno(DBM *db);
int dbm_pagfno(DBM *db);
int dbm_rdonly(DBM *db);

#ifdef __cplusplus
}
#endif

#endif
