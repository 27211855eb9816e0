/* Durability of the parameters and moments that a lane stores for a job, in case the lane dies.
 * REPLICA: a copy on another aggregator; WORKER: a copy in the memory of a worker; NONE: no
 * copy. */
#ifndef GRADPOOL_WIRE_DURABILITY_H
#define GRADPOOL_WIRE_DURABILITY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum durability {
    DURABILITY_UNSAID = 0, /* the job uses the default of the service */
    DURABILITY_NONE = 1,
    DURABILITY_REPLICA = 2,
    DURABILITY_WORKER = 3,
    DURABILITY_MOST = DURABILITY_WORKER,
};

/* Returns "none", "replica" or "worker". NULL: another value, or DURABILITY_UNSAID. */
static inline const char *durability_name(uint32_t durability)
{
    static const char *const names[] = {NULL, "none", "replica", "worker"};
    return durability < sizeof names / sizeof *names ? names[durability] : NULL;
}

/* Finds a value by name. DURABILITY_UNSAID: no such name. */
static inline enum durability durability_find(const char *name)
{
    for (uint32_t i = DURABILITY_NONE; durability_name(i); i++) {
        if (strcmp(durability_name(i), name) == 0)
            return (enum durability)i;
    }
    return DURABILITY_UNSAID;
}

#endif
