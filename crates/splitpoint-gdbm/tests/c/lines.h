/* What a program prints of each call, to be compared with what it prints with another library. */
#include <errno.h>
#include <gdbm.h>
#include <stdio.h>
#include <string.h>

static datum text(const char *s) {
  datum d;
  d.dptr = (char *)s;
  d.dsize = (int)strlen(s);
  return d;
}

/* Prints a result with the error numbers, and clears them. */
static inline void line(const char *what, long result) {
  int of_system = errno, of_gdbm = gdbm_errno;
  printf("%s: %ld, gdbm_errno %d%s\n", what, result, of_gdbm,
         gdbm_check_syserr(of_gdbm) ? (of_system ? ", errno set" : ", errno 0") : "");
  gdbm_errno = 0;
  errno = 0;
}
