/* Common part of the emulated workers of `savings` and `stragglers`: an ordinary client (B2) with
 * the scaled tensors of a real model, and gradients with known sums. */
#ifndef GRADPOOL_BENCH_LIB_MODEL_WORKER_H
#define GRADPOOL_BENCH_LIB_MODEL_WORKER_H

#include "bench/sim/input/models.h"
#include "client/gradpool.h"

struct model_worker {
    const char *endpoint, *transport; /* transport NULL: the client's default */
    const char *job;
    uint32_t rank, workers;
    const struct model *model;
    /* number of bytes of a tensor in this run, divided by its number of bytes in the model */
    double bytes_scale;
    /* model_worker_come() sets all fields from here on */
    gp_client *client;
    gp_job *membership;
    gp_tensor **tensors;
    gp_item *items;             /* one for each tensor */
    float *gradients, *results; /* gradients and results of all tensors, one after the other */
};

/* Joins, declares, and fills all gradients. Returns a negative errno, with a text on standard
 * error. The caller calls model_worker_go() also after an error. */
int model_worker_come(struct model_worker *w);
void model_worker_go(struct model_worker *w);
/* Prints rank, failed step and the client's text; returns `code`. */
int model_worker_complain(const struct model_worker *w, const char *what, int code);

/* Writes one element in thousands, with another value in every round. */
void model_worker_stamp(struct model_worker *w, uint32_t round);
/* Returns the number of elements of all results that differ from the sum of that round. */
uint64_t model_worker_count_wrong(const struct model_worker *w, uint32_t round);

#endif
