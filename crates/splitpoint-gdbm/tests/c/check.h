/* Ends the program where a claim is not true, and says which. */
#include <errno.h>
#include <gdbm.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(claim)                                                                   \
  do {                                                                                 \
    if (!(claim)) {                                                                    \
      fprintf(stderr, "line %d: %s (gdbm_errno %d, errno %d)\n", __LINE__, #claim,     \
              gdbm_errno, errno);                                                      \
      _exit(1);                                                                        \
    }                                                                                  \
  } while (0)
