/* Counts the keys of a table with a walk; with "write" after storing 100 more. */
#include <db.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  int is_writer = argc > 2 && strcmp(argv[1], "write") == 0, i, n = 0;
  unsigned int flag = R_FIRST;
  DB *db = dbopen(argv[2], is_writer ? O_RDWR : O_RDONLY, 0, DB_HASH, NULL);
  DBT key, value;
  if (!db) {
    perror(argv[2]);
    return 1;
  }
  for (i = 0; is_writer && i < 100; i++) {
    char buf[40];
    key.data = value.data = buf;
    key.size = value.size = (size_t)sprintf(buf, "a key that is new: %d", i);
    if (db->put(db, &key, &value, R_NOOVERWRITE) != 0) return 1;
  }
  while (db->seq(db, &key, &value, flag) == 0) {
    DBT found;
    char copy[1 << 16];
    if (key.size > sizeof copy) return 1;
    memcpy(copy, key.data, key.size);
    key.data = copy;
    if (db->get(db, &key, &found, 0) != 0) return 1;
    flag = R_NEXT;
    n++;
  }
  printf("%d\n", n);
  return db->close(db);
}
