/* Walks while keys are deleted and stored. Prints what each reaches of 1,000 keys. */
#include <gdbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000

static GDBM_FILE fill(void) {
  GDBM_FILE db = gdbm_open("walk.db", 0, GDBM_NEWDB, 0600, NULL);
  int i;
  for (i = 0; i < COUNT; i++) {
    char buf[20];
    datum key;
    key.dptr = buf;
    key.dsize = sprintf(buf, "key %d", i);
    gdbm_store(db, key, key, GDBM_INSERT);
  }
  return db;
}

static gdbm_count_t left(GDBM_FILE db) {
  gdbm_count_t count = 0;
  gdbm_count(db, &count);
  return count;
}

int main(void) {
  GDBM_FILE db = fill();
  datum key, next;
  int n = 0;
  for (key = gdbm_firstkey(db); key.dptr; key = next, n++) {
    next = gdbm_nextkey(db, key);
    gdbm_delete(db, key);
    free(key.dptr);
  }
  printf("next, then delete: %d, left %llu\n", n, left(db));
  gdbm_close(db);

  db = fill();
  n = 0;
  for (key = gdbm_firstkey(db); key.dptr; key = next, n++) {
    gdbm_delete(db, key);
    next = gdbm_nextkey(db, key);
    free(key.dptr);
  }
  printf("delete, then next: %d, left %llu\n", n, left(db));
  gdbm_close(db);

  db = fill();
  n = 0;
  for (key = gdbm_firstkey(db); key.dptr; key = gdbm_firstkey(db), n++) {
    gdbm_delete(db, key);
    free(key.dptr);
  }
  printf("delete the first: %d, left %llu\n", n, left(db));
  gdbm_close(db);

  db = fill();
  n = 0;
  for (key = gdbm_firstkey(db); key.dptr; key = next) {
    n += memcmp(key.dptr, "key ", 4) == 0;
    key.dptr[0] = 'n';
    if (n % 2) gdbm_store(db, key, key, GDBM_REPLACE);
    key.dptr[0] = 'k';
    gdbm_store(db, key, key, GDBM_REPLACE);
    next = gdbm_nextkey(db, key);
    free(key.dptr);
    if (n > 3 * COUNT) {
      free(next.dptr);
      break;
    }
  }
  printf("store others and replace: at least %d\n", n >= COUNT ? COUNT : n);
  {
    /* Two walks that take turns, each from its own key. */
    datum one = gdbm_firstkey(db), two = gdbm_firstkey(db);
    int pairs = 0;
    while (one.dptr && two.dptr && one.dsize == two.dsize &&
           memcmp(one.dptr, two.dptr, one.dsize) == 0) {
      datum one_next = gdbm_nextkey(db, one), two_next = gdbm_nextkey(db, two);
      free(one.dptr);
      free(two.dptr);
      one = one_next;
      two = two_next;
      pairs++;
    }
    printf("two walks agree: %d\n", (gdbm_count_t)pairs == left(db));
    free(one.dptr);
    free(two.dptr);
  }
  gdbm_close(db);
  return 0;
}
