/* The terms of a stage, and the choice of its ranks. All functions are pure. */
#ifndef GRADPOOL_COORDINATOR_STAGE_CHOOSE_H
#define GRADPOOL_COORDINATOR_STAGE_CHOOSE_H

#include "packer/parallel/parallel.h"
#include "svc/base/err.h"

#define STAGE_NAME_BYTES_MAX 127
#define STAGE_TEXT_BYTES 320

/* Values of enum gp_visit. */
enum stage_visit {
    STAGE_STAY, /* the lowest ranks */
    /* the ranks that have worked in the fewest stages; among equal ranks the lowest */
    STAGE_TRAVEL,
    STAGE_VISITS,
};

/* The terms of a stage, the same on every rank. All zeros: the job is between stages, and all ranks
 * work. */
struct stage_terms {
    char name[STAGE_NAME_BYTES_MAX + 1];
    uint32_t workers; /* number of workers; 0: chosen automatically */
    uint32_t workers_min, workers_max;
    uint32_t goal, visit; /* values of enum parallel_goal and enum stage_visit */
    uint32_t consistency, staleness;
    uint64_t carry_bytes; /* bytes that new members receive from former members */
};

/* Returns 0, or -EINVAL with a text that names the field. */
int stage_terms_check(const struct stage_terms *terms, struct err *err);
/* Writes the terms as a text such as "'sgd' with 1 worker, travel, bsp". Returns `text`. */
const char *stage_terms_write(const struct stage_terms *terms, char text[STAGE_TEXT_BYTES]);
/* Sets the smallest and largest number of workers in a job of `resident` ranks. -ENOSPC: the job
 * has fewer than workers_min ranks. */
int stage_bounds(const struct stage_terms *terms, uint32_t resident, uint32_t *ret_least,
                 uint32_t *ret_most);
/* Chooses `workers` of `resident` ranks, and adds them to the empty set. `visits`: number of stages
 * in which each rank has worked. */
void stage_choose(enum stage_visit visit, const uint32_t *visits, uint32_t resident,
                  uint32_t workers, uint64_t *ret_members);

#endif
