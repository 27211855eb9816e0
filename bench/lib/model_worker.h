/* What emulated workers of `savings` and `stragglers` have in common: an ordinary client (B2) with
 * the tensors of a real model, scaled, and gradients whose sums anybody can check. */
#ifndef GRADPOOL_BENCH_LIB_MODEL_WORKER_H
#define GRADPOOL_BENCH_LIB_MODEL_WORKER_H

#include "bench/sim/input/models.h"
#include "client/gradpool.h"

struct model_worker {
    const char *endpoint, *transport; /* transport NULL: as any client chooses */
    const char *job;
    uint32_t rank, workers;
    const struct model *model;
    double bytes_scale; /* of tensors, against the table */
    /* Made by model_worker_come(). */
    gp_client *client;
    gp_job *membership;
    gp_tensor **tensors;
    gp_item *items;             /* one a tensor */
    float *gradients, *results; /* of all tensors, one after the other */
};

/* Joins, declares, fills all gradients. Negative errno, with a text on standard error;
 * model_worker_go() is due in any case. */
int model_worker_come(struct model_worker *w);
void model_worker_go(struct model_worker *w);
/* Says who failed at what, with the client's text; returns `code`. */
int model_worker_complain(const struct model_worker *w, const char *what, int code);

/* One element in thousands: what every round differs in. */
void model_worker_stamp(struct model_worker *w, uint32_t round);
/* Elements of all results that are not the sum in that round. */
uint64_t model_worker_count_wrong(const struct model_worker *w, uint32_t round);

#endif
