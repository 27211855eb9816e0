/* The lanes' state of an elastic job's update tensor, kept by each member beside the service:
 * parameters and a moment, stepped in plain C with the gradients that each result names. A late
 * worker copies the state from other members. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_MIRROR_H
#define GRADPOOL_BENCH_FAULTS_WORKER_MIRROR_H

#include "bench/faults/worker/pushes.h"
#include "svc/reduce/update.h"

struct mirror_state {
    uint64_t step; /* since the parameters were set */
    struct trail trail;
    float parameters[PUSH_ELEMENTS], moment[PUSH_ELEMENTS];
};

/* Shared. Each member has two pages and writes the older one, so that a member killed while writing
 * leaves a complete page. */
struct mirror_page {
    _Atomic uint64_t turn; /* odd while the page is being written */
    struct mirror_state state;
};
struct mirror_book {
    struct mirror_page pages[LEDGER_RANKS][2];
};

struct mirror {
    uint64_t seed;
    struct mirror_book *book;
    struct mirror_state *now, *next;
    float *gradients;
};

/* -ENOMEM; mirror_fini() is due in any case. */
int mirror_init(struct mirror *mirror, struct mirror_book *book, uint64_t seed);
void mirror_fini(struct mirror *mirror);

/* Returns rate, decay and momentum of all rounds. From a result with these numbers the gradients
 * can be calculated. */
struct update_settings mirror_settings(void);
/* Sets the first parameters of the job, and copies them to `values`. */
void mirror_set(struct mirror *mirror, float *values);
/* Makes one step with the gradients that `result` names. Returns the number of elements that differ
 * from the step; all elements if no member pushed such gradients. */
uint64_t mirror_follow(struct mirror *mirror, const float *result, struct pushes *ret_pushes);
/* For a late worker after its first result: copies the state of another member from which `result`
 * follows, within the grace. False: no member has such a state. */
bool mirror_find(struct mirror *mirror, const float *result, uint64_t grace_ns,
                 struct pushes *ret_pushes);
/* Writes the state to a page of `rank` for the others. */
void mirror_show(struct mirror *mirror, uint32_t rank);
/* Returns whether a gradient of the last step announced the last round. */
bool mirror_ends(const struct mirror *mirror);

#endif
