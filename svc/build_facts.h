/* Build of this program, and its features that this machine supports. */
#ifndef GRADPOOL_BUILD_FACTS_H
#define GRADPOOL_BUILD_FACTS_H

#include "svc/base/err.h"
#include "svc/view/build.h"

#include <stddef.h>

/* Returns the versions of all libraries. The result is valid until the next call. */
const struct view_build *build_facts(void);
/* Writes the number of cores that lanes may use. Returns 0 or an error of cores_create(). */
int build_facts_cores(size_t *ret_count, struct err *err);

#endif
