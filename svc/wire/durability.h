/* The durability of the parameters and moments that a lane keeps for a job, when the lane dies:
 * REPLICA has a copy on another aggregator, WORKER in the memory of a worker, NONE loses them. */
#ifndef GRADPOOL_WIRE_DURABILITY_H
#define GRADPOOL_WIRE_DURABILITY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum durability {
    DURABILITY_UNSAID = 0, /* of a job: the default of the service */
    DURABILITY_NONE = 1,
    DURABILITY_REPLICA = 2,
    DURABILITY_WORKER = 3,
    DURABILITY_MOST = DURABILITY_WORKER,
};

/* "none", "replica", "worker"; NULL: another value, or unsaid. */
static inline const char *durability_name(uint32_t durability)
{
    static const char *const names[] = {NULL, "none", "replica", "worker"};
    return durability < sizeof names / sizeof *names ? names[durability] : NULL;
}

/* DURABILITY_UNSAID: no such name. */
static inline enum durability durability_find(const char *name)
{
    for (uint32_t i = DURABILITY_NONE; durability_name(i); i++) {
        if (strcmp(durability_name(i), name) == 0)
            return (enum durability)i;
    }
    return DURABILITY_UNSAID;
}

#endif
