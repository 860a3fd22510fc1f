/*
 * search.h - hsearch(3) on linear hashing.
 *
 * Names and types are those of POSIX and glibc, so a program compiles unchanged. What is better:
 *
 * - The table grows. The number for hcreate is a guess, 0 is one too, and ENTER fails for want of
 *   memory only.
 * - hsearch without a table returns NULL with ESRCH.
 * - Any number of threads may FIND in one table at the same time, without a lock. ENTER needs one of
 *   the program's.
 *
 * What is the same: keys are strings that are kept by address, and neither they nor the data are
 * freed by hdestroy. ENTER of a key that is there returns the old entry. An ENTRY stays where it is
 * until hdestroy; the program may assign its data, but not its key.
 *
 * Link with -lsplitpoint_hsearch. hsearch(3) has a page in section 3splitpoint.
 */
#ifndef SPLITPOINT_SEARCH_H
#define SPLITPOINT_SEARCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { FIND, ENTER } ACTION;

typedef struct entry {
    char *key;
    void *data;
} ENTRY;

/* Zeroed by the program before hcreate_r. Its members are the library's. */
struct _ENTRY;
struct hsearch_data {
    struct _ENTRY *table;
    unsigned int size;
    unsigned int filled;
};

int hcreate(size_t count);
ENTRY *hsearch(ENTRY item, ACTION action);
void hdestroy(void);

int hcreate_r(size_t count, struct hsearch_data *table);
int hsearch_r(ENTRY item, ACTION action, ENTRY **result, struct hsearch_data *table);
void hdestroy_r(struct hsearch_data *table);

/* The rest is the C library's: trees, linear search, queues. */

typedef enum { preorder, postorder, endorder, leaf } VISIT;

void *tsearch(const void *key, void **root, int (*compare)(const void *, const void *));
void *tfind(const void *key, void *const *root, int (*compare)(const void *, const void *));
void *tdelete(const void *key, void **root, int (*compare)(const void *, const void *));
void twalk(const void *root, void (*action)(const void *, VISIT, int));
void tdestroy(void *root, void (*free_node)(void *));

void *lfind(const void *key, const void *base, size_t *count, size_t size,
            int (*compare)(const void *, const void *));
void *lsearch(const void *key, void *base, size_t *count, size_t size,
              int (*compare)(const void *, const void *));

void insque(void *element, void *previous);
void remque(void *element);

#ifdef __cplusplus
}
#endif

#endif
