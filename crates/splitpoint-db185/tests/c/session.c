/* A program of calls that its seed decides, on one table: session FILE SEED. Prints what each call returned; of a
 * walk the pairs that came, in no order. Prints the same with every library of this interface. */
#include <db.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 400, CALLS = 6000, VALUE_MAX = 300 };

static uint64_t state;

static unsigned int below(unsigned int bound) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned int)(state >> 33) % bound;
}

static DB *open_table(const char *name, int flags) {
  HASHINFO info;
  DB *db;
  memset(&info, 0, sizeof info);
  /* With a small cache the original runs out of buffers on long chains. */
  info.cachesize = 64 << 20;
  info.bsize = 2048;
  info.ffactor = 8;
  db = dbopen(name, flags, 0600, DB_HASH, &info);
  if (db == NULL) {
    printf("open: errno %d\n", errno);
    exit(1);
  }
  return db;
}

static uint64_t hash_of(const DBT *it) {
  uint64_t hash = 1469598103934665603u;
  size_t i;
  for (i = 0; i < it->size; i++) hash = (hash ^ ((unsigned char *)it->data)[i]) * 1099511628211u;
  return hash;
}

/* A key of few, some of which are empty or long. */
static DBT key_of(char *buf, unsigned int n) {
  DBT key;
  key.data = buf;
  key.size = (size_t)sprintf(buf, "%u", n);
  if (n % 7 == 0) {
    memset(buf + key.size, 'k', 90);
    key.size += 90;
  }
  return key;
}

static void said(const char *call, unsigned int n, int result) {
  printf("%s %u: %d%s\n", call, n, result, result == -1 && errno == EINVAL ? " EINVAL" : result == -1 && errno == EPERM ? " EPERM" : "");
}

static void walk(DB *db, int begins) {
  DBT key, value;
  uint64_t sum = 0;
  int count = 0, result;
  /* A walk that has ended begins again without a word. */
  unsigned int flag = begins ? R_FIRST : R_NEXT;
  while ((result = db->seq(db, &key, &value, flag)) == 0) {
    sum += hash_of(&key) * 31 + hash_of(&value);
    count++;
    flag = R_NEXT;
  }
  printf("walk: %d, %d pairs, %llx\n", result, count, (unsigned long long)sum);
}

static void call(DB *db) {
  char buf[200], bytes[VALUE_MAX];
  unsigned int n = below(KEYS), kind = below(100);
  DBT key = key_of(buf, n), value;
  int result;
  errno = 0;
  if (kind < 40) {
    value.data = bytes;
    value.size = below(VALUE_MAX);
    memset(bytes, (int)('a' + below(26)), sizeof bytes);
    said("put", n, db->put(db, &key, &value, kind < 30 ? 0 : R_NOOVERWRITE));
  } else if (kind < 70) {
    result = db->get(db, &key, &value, 0);
    said("get", n, result);
    if (result == 0) printf("  %zu %llx\n", value.size, (unsigned long long)hash_of(&value));
  } else if (kind < 90) {
    said("del", n, db->del(db, &key, 0));
  } else if (kind < 93) {
    said("sync", 0, db->sync(db, 0));
  } else if (kind < 95) {
    said("put with a flag of others", n, db->put(db, &key, &key, R_IAFTER));
    said("get with a flag", n, db->get(db, &key, &value, R_CURSOR));
    said("del with a flag of others", n, db->del(db, &key, R_NEXT));
    said("sync with a flag", 0, db->sync(db, 1));
  } else if (kind < 97) {
    walk(db, 1);
    walk(db, 0);
  }
}

int main(int argc, char **argv) {
  DB *db;
  int i;
  if (argc != 3) return 2;
  alarm(250);
  state = strtoull(argv[2], NULL, 10);
  db = open_table(argv[1], O_RDWR | O_CREAT);
  for (i = 0; i < CALLS; i++) {
    call(db);
    if (below(500) == 0) {
      said("close", 0, db->close(db));
      /* Now and then it only reads. */
      db = open_table(argv[1], below(4) ? O_RDWR : O_RDONLY);
    }
  }
  walk(db, 1);
  said("close", 0, db->close(db));
  return 0;
}
