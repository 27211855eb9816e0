/* What this program was built with, and what of that this machine has. */
#ifndef GRADPOOL_BUILD_FACTS_H
#define GRADPOOL_BUILD_FACTS_H

#include "svc/base/err.h"
#include "svc/view/build.h"

#include <stddef.h>

/* Asks each library; the answer is good until the next call. */
const struct view_build *build_facts(void);
/* How many cores lanes may have. Errors as cores_create(). */
int build_facts_cores(size_t *ret_count, struct err *err);

#endif
