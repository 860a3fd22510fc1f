/* db.h: dbopen(3) of db 1.85, by Splitpoint. Hash tables only: see splitpoint-db185(3). */
#ifndef _DB_H_
#define _DB_H_

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What calls return. */
#define RET_ERROR -1
#define RET_SUCCESS 0
#define RET_SPECIAL 1

/* A key or a value. */
typedef struct {
  void *data;
  size_t size;
} DBT;

/* Flags of the calls. Those of trees and lines are here for sources that name them. */
#define R_CURSOR 1
#define __R_UNUSED 2
#define R_FIRST 3
#define R_IAFTER 4
#define R_IBEFORE 5
#define R_LAST 6
#define R_NEXT 7
#define R_NOOVERWRITE 8
#define R_PREV 9
#define R_SETCURSOR 10
#define R_RECNOSYNC 11

typedef enum { DB_BTREE, DB_HASH, DB_RECNO } DBTYPE;

#define DB_LOCK 0x20000000
#define DB_SHMEM 0x40000000
#define DB_TXN 0x80000000

typedef struct __db {
  DBTYPE type;
  int (*close)(struct __db *);
  int (*del)(const struct __db *, const DBT *, unsigned int);
  int (*get)(const struct __db *, const DBT *, DBT *, unsigned int);
  int (*put)(const struct __db *, DBT *, const DBT *, unsigned int);
  int (*seq)(const struct __db *, DBT *, DBT *, unsigned int);
  int (*sync)(const struct __db *, unsigned int);
  void *internal;
  int (*fd)(const struct __db *);
} DB;

#define HASHMAGIC 0x061561
#define HASHVERSION 2

/* Parameters of a hash table. */
typedef struct {
  unsigned int bsize;
  unsigned int ffactor;
  unsigned int nelem;
  unsigned int cachesize;
  uint32_t (*hash)(const void *, size_t);
  int lorder;
} HASHINFO;

#define BTREEMAGIC 0x053162
#define BTREEVERSION 3
#define R_DUP 0x01

typedef struct {
  unsigned long flags;
  unsigned int cachesize;
  int maxkeypage;
  int minkeypage;
  unsigned int psize;
  int (*compare)(const DBT *, const DBT *);
  size_t (*prefix)(const DBT *, const DBT *);
  int lorder;
} BTREEINFO;

#define R_FIXEDLEN 0x01
#define R_NOKEY 0x02
#define R_SNAPSHOT 0x04
typedef uint32_t recno_t;
#define MAX_REC_NUMBER 0xffffffff

typedef struct {
  unsigned long flags;
  unsigned int cachesize;
  unsigned int psize;
  int lorder;
  size_t reclen;
  unsigned char bval;
  char *bfname;
} RECNOINFO;

extern DB *dbopen(const char *name, int flags, int mode, DBTYPE type, const void *info);

#ifdef __cplusplus
}
#endif

#endif
