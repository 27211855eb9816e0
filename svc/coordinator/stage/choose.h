/* The terms of a stage, and the choice of its ranks. Pure. */
#ifndef GRADPOOL_COORDINATOR_STAGE_CHOOSE_H
#define GRADPOOL_COORDINATOR_STAGE_CHOOSE_H

#include "packer/parallel/parallel.h"
#include "svc/base/err.h"

#define STAGE_NAME_BYTES_MAX 127
#define STAGE_TEXT_BYTES 320

/* Values of enum gp_visit. */
enum stage_visit {
    STAGE_STAY,   /* the lowest ranks */
    STAGE_TRAVEL, /* the ranks that have worked in the fewest stages; of equal ones the lowest */
    STAGE_VISITS,
};

/* The terms of a stage, the same on every rank. All zeros: no stage, all ranks work. */
struct stage_terms {
    char name[STAGE_NAME_BYTES_MAX + 1];
    uint32_t workers; /* 0: automatic */
    uint32_t workers_min, workers_max;
    uint32_t goal, visit; /* enum parallel_goal, enum stage_visit */
    uint32_t consistency, staleness;
    uint64_t carry_bytes; /* handed over to new members */
};

/* Returns 0, or -EINVAL with a text that names the field. */
int stage_terms_check(const struct stage_terms *terms, struct err *err);
/* Writes "'sgd' with 1 worker, travel, bsp" and the like. Returns `text`. */
const char *stage_terms_write(const struct stage_terms *terms, char text[STAGE_TEXT_BYTES]);
/* Sets the fewest and most workers in a job of `resident` ranks. -ENOSPC: the job has fewer than
 * workers_min ranks. */
int stage_bounds(const struct stage_terms *terms, uint32_t resident, uint32_t *ret_least,
                 uint32_t *ret_most);
/* Adds the `workers` chosen ranks of `resident` ones to the empty set. `visits`: by rank. */
void stage_choose(enum stage_visit visit, const uint32_t *visits, uint32_t resident,
                  uint32_t workers, uint64_t *ret_members);

#endif
