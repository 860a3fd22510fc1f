/* Claims of the tests in C: the first that is wrong ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(claim)                                                                              \
    do {                                                                                          \
        if (!(claim)) {                                                                           \
            fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #claim,     \
                    errno, strerror(errno));                                                      \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#endif
