/* The limit on open files. Each connected worker needs some descriptors. */
#ifndef GRADPOOL_BASE_SYSTEM_DESCRIPTORS_H
#define GRADPOOL_BASE_SYSTEM_DESCRIPTORS_H

#include "svc/base/err.h"

#include <stdint.h>

/* Raises the soft limit to the hard limit. -EMFILE: the limit is still below `least`, the
 * number that `whose` needs at its start; the text has the advice. */
int descriptors_raise(uint64_t least, const char *whose, struct err *err);

#endif
