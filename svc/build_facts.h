/* Build of this program, and the parts of it that this machine supports. */
#ifndef GRADPOOL_BUILD_FACTS_H
#define GRADPOOL_BUILD_FACTS_H

#include "svc/base/err.h"
#include "svc/view/build.h"

#include <stddef.h>

/* Collects versions from each library; the result is valid until the next call. */
const struct view_build *build_facts(void);
/* Returns the number of cores that lanes may have. Errors of cores_create(). */
int build_facts_cores(size_t *ret_count, struct err *err);

#endif
