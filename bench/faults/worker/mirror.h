/* A member's own copy of the lanes' state of an update tensor: parameters and a moment. Each member
 * does the steps in plain C, with the gradients that it identifies from each result. A late worker
 * copies the state from another member. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_MIRROR_H
#define GRADPOOL_BENCH_FAULTS_WORKER_MIRROR_H

#include "bench/faults/worker/pushes.h"
#include "svc/reduce/update.h"

struct mirror_state {
    uint64_t step; /* number of steps since the parameters were set */
    struct trail trail;
    float parameters[PUSH_ELEMENTS], moment[PUSH_ELEMENTS];
};

/* A page of the shared memory has a state of one member. Each member has two pages and writes the
 * older one, so a member that is killed during a write leaves a complete page. */
struct mirror_page {
    _Atomic uint64_t turn; /* odd during a write of the page */
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

/* Allocates the states. Returns 0 or -ENOMEM. The caller calls mirror_fini() also after an
 * error. */
int mirror_init(struct mirror *mirror, struct mirror_book *book, uint64_t seed);
void mirror_fini(struct mirror *mirror);

/* Returns the settings of all rounds: rate, decay and momentum. With these the gradients can be
 * computed from a result. */
struct update_settings mirror_settings(void);
/* Sets the first parameters of the job, and copies them to `values`. */
void mirror_set(struct mirror *mirror, float *values);
/* Does one step with the gradients that `result` identifies. Returns the number of elements that
 * differ from the step; all elements if no member pushed such gradients. */
uint64_t mirror_follow(struct mirror *mirror, const float *result, struct pushes *ret_pushes);
/* For a late worker after its first result: copies the state of another member whose next step
 * gives `result`. Waits up to `grace_ns` for such a state. Returns false if no member has such a
 * state. */
bool mirror_find(struct mirror *mirror, const float *result, uint64_t grace_ns,
                 struct pushes *ret_pushes);
/* Writes the state to a page of `rank`, for the other members. */
void mirror_show(struct mirror *mirror, uint32_t rank);
/* Returns whether a gradient of the last step announced the last round. */
bool mirror_ends(const struct mirror *mirror);

#endif
