/*
 * gdbm-ndbm.h - ndbm.h, by the name that it has beside gdbm in Debian.
 */
#ifndef SPLITPOINT_GDBM_NDBM_H
#define SPLITPOINT_GDBM_NDBM_H

#include "ndbm.h"

#endif
