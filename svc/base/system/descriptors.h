/* Limit on open files. Each connected worker needs some descriptors. */
#ifndef GRADPOOL_BASE_SYSTEM_DESCRIPTORS_H
#define GRADPOOL_BASE_SYSTEM_DESCRIPTORS_H

#include "svc/base/err.h"

#include <stdint.h>

/* Raises the soft limit to the hard limit. `least`: number of files that the program needs at its
 * start. `whose`: name of the program for the text, such as "a coordinator". Returns 0, or -EMFILE
 * if the limit is still less than `least`; the text includes advice. */
int descriptors_raise(uint64_t least, const char *whose, struct err *err);

#endif
