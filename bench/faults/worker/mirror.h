/* What lanes keep of the tensor with an update rule of an elastic job, kept by each member beside
 * the service: parameters and a moment, stepped with plain C by the gradients that each result
 * names. Who comes late finds them with the others. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_MIRROR_H
#define GRADPOOL_BENCH_FAULTS_WORKER_MIRROR_H

#include "bench/faults/worker/pushes.h"
#include "svc/reduce/update.h"

struct mirror_state {
    uint64_t step; /* since the parameters were set */
    struct trail trail;
    float parameters[PUSH_ELEMENTS], moment[PUSH_ELEMENTS];
};

/* Shared. Each member has two pages and writes the older: who is killed meanwhile leaves one. */
struct mirror_page {
    _Atomic uint64_t turn; /* odd: it is being written */
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

/* Rate, decay and momentum of all rounds: numbers that a result lets the gradients be read from. */
struct update_settings mirror_settings(void);
/* The parameters that the job begins with, also into `values`. */
void mirror_set(struct mirror *mirror, float *values);
/* One step, to `result`: of which gradients it was, and how many elements differ from what these
 * lead to. All: it names none that anybody pushed. */
uint64_t mirror_follow(struct mirror *mirror, const float *result, struct pushes *ret_pushes);
/* Of who comes late, after its first result: takes over what others have, within the grace.
 * False: what none of them has leads there. */
bool mirror_find(struct mirror *mirror, const float *result, uint64_t grace_ns,
                 struct pushes *ret_pushes);
/* Shows the others what is kept now. */
void mirror_show(struct mirror *mirror, uint32_t rank);
/* Whether one of the gradients of the last step said that it is the last. */
bool mirror_ends(const struct mirror *mirror);

#endif
