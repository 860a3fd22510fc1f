/* gdbm.h: GNU dbm's interface, by Splitpoint.
 *
 * Programs for gdbm 1.23 compile with this header and link with libsplitpoint_gdbm. What is the same and
 * what differs is in splitpoint-gdbm(3).
 */
#ifndef _GDBM_H_
#define _GDBM_H_

#include <stdio.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GDBM_VERSION_MAJOR 1
#define GDBM_VERSION_MINOR 23
#define GDBM_VERSION_PATCH 0

/* How a database is opened: one of the first four, and flags. */
#define GDBM_READER 0
#define GDBM_WRITER 1
#define GDBM_WRCREAT 2
#define GDBM_NEWDB 3
#define GDBM_OPENMASK 7
#define GDBM_FAST 0x0010
#define GDBM_SYNC 0x0020
#define GDBM_NOLOCK 0x0040
#define GDBM_NOMMAP 0x0080
#define GDBM_CLOEXEC 0x0100
#define GDBM_BSEXACT 0x0200
#define GDBM_CLOERROR 0x0400
#define GDBM_XVERIFY 0x0800
#define GDBM_PREREAD 0x1000
#define GDBM_NUMSYNC 0x2000

/* What gdbm_store does with a key that is there. */
#define GDBM_INSERT 0
#define GDBM_REPLACE 1

/* Options of gdbm_setopt. */
#define GDBM_SETCACHESIZE 1
#define GDBM_FASTMODE 2
#define GDBM_SETSYNCMODE 3
#define GDBM_SETCENTFREE 4
#define GDBM_SETCOALESCEBLKS 5
#define GDBM_SETMAXMAPSIZE 6
#define GDBM_SETMMAP 7
#define GDBM_GETFLAGS 8
#define GDBM_GETMMAP 9
#define GDBM_GETCACHESIZE 10
#define GDBM_GETSYNCMODE 11
#define GDBM_GETCENTFREE 12
#define GDBM_GETCOALESCEBLKS 13
#define GDBM_GETMAXMAPSIZE 14
#define GDBM_GETDBNAME 15
#define GDBM_GETBLOCKSIZE 16
#define GDBM_GETDBFORMAT 17
#define GDBM_GETDIRDEPTH 18
#define GDBM_GETBUCKETSIZE 19
#define GDBM_GETCACHEAUTO 20
#define GDBM_SETCACHEAUTO 21
#define GDBM_CACHESIZE GDBM_SETCACHESIZE
#define GDBM_SYNCMODE GDBM_SETSYNCMODE
#define GDBM_CENTFREE GDBM_SETCENTFREE
#define GDBM_COALESCEBLKS GDBM_SETCOALESCEBLKS
#define GDBM_CACHE_AUTO 0

typedef unsigned long long int gdbm_count_t;

/* A key or a value. Those that functions return are the program's, to free with free(3).
   ndbm.h and dbm.h have the same type. */
#ifndef SPLITPOINT_DATUM
#define SPLITPOINT_DATUM
typedef struct {
  char *dptr;
  int dsize;
} datum;
#endif

typedef struct gdbm_file_info *GDBM_FILE;

extern const char *gdbm_version;
extern int const gdbm_version_number[3];

/* Error numbers. */
enum {
  GDBM_NO_ERROR = 0,
  GDBM_MALLOC_ERROR = 1,
  GDBM_BLOCK_SIZE_ERROR = 2,
  GDBM_FILE_OPEN_ERROR = 3,
  GDBM_FILE_WRITE_ERROR = 4,
  GDBM_FILE_SEEK_ERROR = 5,
  GDBM_FILE_READ_ERROR = 6,
  GDBM_BAD_MAGIC_NUMBER = 7,
  GDBM_EMPTY_DATABASE = 8,
  GDBM_CANT_BE_READER = 9,
  GDBM_CANT_BE_WRITER = 10,
  GDBM_READER_CANT_DELETE = 11,
  GDBM_READER_CANT_STORE = 12,
  GDBM_READER_CANT_REORGANIZE = 13,
  GDBM_UNKNOWN_ERROR = 14,
  GDBM_ITEM_NOT_FOUND = 15,
  GDBM_REORGANIZE_FAILED = 16,
  GDBM_CANNOT_REPLACE = 17,
  GDBM_MALFORMED_DATA = 18,
  GDBM_ILLEGAL_DATA = GDBM_MALFORMED_DATA,
  GDBM_OPT_ALREADY_SET = 19,
  GDBM_OPT_BADVAL = 20,
  GDBM_OPT_ILLEGAL = GDBM_OPT_BADVAL,
  GDBM_BYTE_SWAPPED = 21,
  GDBM_BAD_FILE_OFFSET = 22,
  GDBM_BAD_OPEN_FLAGS = 23,
  GDBM_FILE_STAT_ERROR = 24,
  GDBM_FILE_EOF = 25,
  GDBM_NO_DBNAME = 26,
  GDBM_ERR_FILE_OWNER = 27,
  GDBM_ERR_FILE_MODE = 28,
  GDBM_NEED_RECOVERY = 29,
  GDBM_BACKUP_FAILED = 30,
  GDBM_DIR_OVERFLOW = 31,
  GDBM_BAD_BUCKET = 32,
  GDBM_BAD_HEADER = 33,
  GDBM_BAD_AVAIL = 34,
  GDBM_BAD_HASH_TABLE = 35,
  GDBM_BAD_DIR_ENTRY = 36,
  GDBM_FILE_CLOSE_ERROR = 37,
  GDBM_FILE_SYNC_ERROR = 38,
  GDBM_FILE_TRUNCATE_ERROR = 39,
  GDBM_BUCKET_CACHE_CORRUPTED = 40,
  GDBM_BAD_HASH_ENTRY = 41,
  GDBM_ERR_SNAPSHOT_CLONE = 42,
  GDBM_ERR_REALPATH = 43,
  GDBM_ERR_USAGE = 44
};
#define _GDBM_MIN_ERRNO 0
#define _GDBM_MAX_ERRNO GDBM_ERR_USAGE
#define GDBM_UNKNOWN_UPDATE GDBM_UNKNOWN_ERROR

typedef int gdbm_error;

/* The number of this thread's last failure. */
extern int *gdbm_errno_location(void);
#define gdbm_errno (*gdbm_errno_location())
extern const char *const gdbm_errlist[];
extern int const gdbm_syserr[];

extern GDBM_FILE gdbm_open(const char *name, int block_size, int flags, int mode,
                           void (*fatal_func)(const char *));
extern GDBM_FILE gdbm_fd_open(int fd, const char *name, int block_size, int flags,
                              void (*fatal_func)(const char *));
extern int gdbm_close(GDBM_FILE);
extern int gdbm_store(GDBM_FILE, datum key, datum content, int flag);
extern datum gdbm_fetch(GDBM_FILE, datum key);
extern int gdbm_delete(GDBM_FILE, datum key);
extern int gdbm_exists(GDBM_FILE, datum key);
extern datum gdbm_firstkey(GDBM_FILE);
extern datum gdbm_nextkey(GDBM_FILE, datum key);
extern int gdbm_count(GDBM_FILE, gdbm_count_t *count);
extern int gdbm_bucket_count(GDBM_FILE, size_t *count);
extern int gdbm_sync(GDBM_FILE);
extern int gdbm_reorganize(GDBM_FILE);
extern int gdbm_fdesc(GDBM_FILE);
extern int gdbm_setopt(GDBM_FILE, int option, void *value, int size);
extern int gdbm_avail_verify(GDBM_FILE);

/* Dumps: all pairs as text or as bytes. */
#define GDBM_DUMP_FMT_BINARY 0
#define GDBM_DUMP_FMT_ASCII 1
#define GDBM_META_MASK_MODE 0x01
#define GDBM_META_MASK_OWNER 0x02
extern int gdbm_dump(GDBM_FILE, const char *name, int format, int flag, int mode);
extern int gdbm_dump_to_file(GDBM_FILE, FILE *, int format);
extern int gdbm_load(GDBM_FILE *, const char *name, int replace, int meta_mask,
                     unsigned long *line);
extern int gdbm_load_from_file(GDBM_FILE *, FILE *, int replace, int meta_mask,
                               unsigned long *line);
extern int gdbm_export(GDBM_FILE, const char *name, int flag, int mode);
extern int gdbm_export_to_file(GDBM_FILE, FILE *);
extern int gdbm_import(GDBM_FILE, const char *name, int flag);
extern int gdbm_import_from_file(GDBM_FILE, FILE *, int flag);
extern int gdbm_copy_meta(GDBM_FILE target, GDBM_FILE source);

/* Snapshots. Databases of this library are whole after a crash without them. */
enum gdbm_latest_snapshot_status {
  GDBM_SNAPSHOT_OK,
  GDBM_SNAPSHOT_BAD,
  GDBM_SNAPSHOT_ERR,
  GDBM_SNAPSHOT_SAME,
  GDBM_SNAPSHOT_SUSPICIOUS
};
extern int gdbm_failure_atomic(GDBM_FILE, const char *even, const char *odd);
extern int gdbm_latest_snapshot(const char *even, const char *odd, const char **chosen);
extern int gdbm_convert(GDBM_FILE, int flag);

/* Recovery of a damaged file. errfun returns to its caller. */
typedef struct gdbm_recovery_s {
  void (*errfun)(void *data, char const *format, ...);
  void *data;
  size_t max_failed_keys;
  size_t max_failed_buckets;
  size_t max_failures;
  /* Set by gdbm_recover. The program frees the name. */
  size_t recovered_keys;
  size_t recovered_buckets;
  size_t failed_keys;
  size_t failed_buckets;
  size_t duplicate_keys;
  char *backup_name;
} gdbm_recovery;
#define GDBM_RCVR_DEFAULT 0x00
#define GDBM_RCVR_ERRFUN 0x01
#define GDBM_RCVR_MAX_FAILED_KEYS 0x02
#define GDBM_RCVR_MAX_FAILED_BUCKETS 0x04
#define GDBM_RCVR_MAX_FAILURES 0x08
#define GDBM_RCVR_BACKUP 0x10
#define GDBM_RCVR_FORCE 0x20
extern int gdbm_recover(GDBM_FILE, gdbm_recovery *, int flags);

/* Errors. */
extern gdbm_error gdbm_last_errno(GDBM_FILE);
extern int gdbm_last_syserr(GDBM_FILE);
extern void gdbm_set_errno(GDBM_FILE, gdbm_error, int fatal);
extern void gdbm_clear_error(GDBM_FILE);
extern int gdbm_needs_recovery(GDBM_FILE);
extern int gdbm_check_syserr(gdbm_error);
extern const char *gdbm_strerror(gdbm_error);
extern const char *gdbm_db_strerror(GDBM_FILE);
extern int gdbm_version_cmp(int const a[], int const b[]);

struct gdbm_cache_stat {
  off_t adr;
  size_t hits;
};
extern void gdbm_get_cache_stats(GDBM_FILE, size_t *access_count, size_t *cache_hits,
                                 size_t *cache_count, struct gdbm_cache_stat *stats,
                                 size_t stat_count);

#ifdef __cplusplus
}
#endif

#endif
