/* A fleet of lanes, on which tests place jobs one after the other under a loss limit. */
#ifndef GRADPOOL_TEST_PACKER_FLEET_H
#define GRADPOOL_TEST_PACKER_FLEET_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packer/packer.h"

#define FLEET_LANES_MAX 512
#define FLEET_RESIDENTS_MAX 64
#define FLEET_NODES_MAX 4
#define FLEET_TENSORS_MAX 256
#define MS UINT64_C(1000000)

struct fleet {
    struct packer_lane lanes[FLEET_LANES_MAX];
    size_t lanes_count;
    struct packer_resident residents[FLEET_LANES_MAX][FLEET_RESIDENTS_MAX];
    struct packer_node nodes[FLEET_NODES_MAX];
    size_t nodes_count;
    /* tensors of the job that is placed next */
    struct packer_tensor tensors[FLEET_TENSORS_MAX];
    size_t tensors_count;
    struct packer_timing timing;
    uint32_t workers;
    uint32_t lanes_max;
    uint64_t next_job;
    char reason[512];
};

/* Makes a fleet of parked lanes. */
static inline struct fleet *fleet_new(size_t lanes_count)
{
    struct fleet *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    assert_true(lanes_count <= FLEET_LANES_MAX);
    f->lanes_count = lanes_count;
    f->workers = 2;
    f->next_job = 1;
    for (size_t i = 0; i < lanes_count; i++)
        f->lanes[i] = (struct packer_lane){.id = (uint32_t)i,
                                           .memory_bytes = UINT64_MAX,
                                           .state = PACKER_LANE_PARKED,
                                           .residents = f->residents[i]};
    return f;
}

/* Adds a measured job to a lane that already has a job. */
static inline struct packer_resident *fleet_add(struct fleet *f, size_t lane, uint64_t lane_ns,
                                                uint64_t period_ns)
{
    struct packer_lane *l = &f->lanes[lane];
    struct packer_resident *resident = &f->residents[lane][l->residents_count];

    assert_true(l->residents_count < FLEET_RESIDENTS_MAX);
    *resident = (struct packer_resident){
        .job = f->next_job++, .lane_ns = lane_ns, .timing = {.period_ns = period_ns}};
    l->residents_count++;
    l->jobs++;
    l->state = PACKER_LANE_OPEN;
    return resident;
}

/* Adds a tensor of one piece to the job that is placed next. */
static inline struct packer_tensor *fleet_tensor(struct fleet *f, uint64_t lane_ns)
{
    struct packer_tensor *tensor = &f->tensors[f->tensors_count];

    assert_true(f->tensors_count < FLEET_TENSORS_MAX);
    *tensor = (struct packer_tensor){.id = 1000 + (uint32_t)f->tensors_count++,
                                     .elements = 1000,
                                     .element_bytes = 4,
                                     .lane_ns = lane_ns};
    return tensor;
}

static inline int fleet_try(struct fleet *f, const char *policy, struct packer_plan *ret_plan)
{
    struct packer_request request = {.policy = policy,
                                     .workers = f->workers,
                                     .job_key = f->next_job,
                                     .lanes = f->lanes,
                                     .lanes_count = f->lanes_count,
                                     .tensors = f->tensors,
                                     .tensors_count = f->tensors_count,
                                     .timing = f->timing,
                                     .lanes_max = f->lanes_max,
                                     .nodes = f->nodes,
                                     .nodes_count = f->nodes_count};

    return packer_place(&request, ret_plan, f->reason, sizeof(f->reason));
}

static inline struct packer_plan fleet_plan(struct fleet *f, const char *policy)
{
    struct packer_plan plan = {0};

    if (fleet_try(f, policy, &plan) < 0)
        fail_msg("%s", f->reason);
    return plan;
}

static inline void fleet_refuse(struct fleet *f, const char *policy, int error, const char *part)
{
    struct packer_plan plan = {NULL, 4711};

    assert_int_equal(fleet_try(f, policy, &plan), error);
    assert_int_equal(plan.pieces_count, 4711);
    if (!strstr(f->reason, part))
        fail_msg("\"%s\" does not say \"%s\"", f->reason, part);
}

/* Returns the lane of a tensor's first piece. */
static inline uint32_t fleet_lane_of(const struct packer_plan *plan, size_t tensor)
{
    for (size_t i = 0; i < plan->pieces_count; i++)
        if (plan->pieces[i].tensor == 1000 + tensor)
            return plan->pieces[i].lane;
    fail_msg("no piece of tensor %zu", tensor);
    return 0;
}

static inline void fleet_take(uint64_t *left, uint64_t amount)
{
    if (*left == UINT64_MAX)
        return;
    assert_true(*left >= amount);
    *left -= amount;
}

/* Adds the job to the lanes of the plan, and prepares the fleet for the next job. Frees the
 * plan. */
static inline void fleet_commit(struct fleet *f, struct packer_plan *plan)
{
    for (size_t i = 0; i < plan->pieces_count; i++) {
        const struct packer_piece *piece = &plan->pieces[i];
        const struct packer_tensor *tensor = &f->tensors[piece->tensor - 1000];

        fleet_take(&f->lanes[piece->lane].memory_bytes, piece->elements * tensor->element_bytes);
        if (f->nodes_count > 0)
            fleet_take(&f->nodes[f->lanes[piece->lane].node].memory_bytes,
                       piece->elements * tensor->element_bytes);
    }
    for (size_t i = 0; i < plan->shares_count; i++) {
        const struct packer_share *share = &plan->shares[i];
        struct packer_resident *resident;

        resident = fleet_add(f, share->lane, share->lane_ns, f->timing.period_ns);
        resident->job = f->next_job;
        resident->timing = f->timing;
    }
    f->next_job++;
    f->tensors_count = 0;
    packer_plan_fini(plan);
}

static inline size_t fleet_lanes_open(const struct fleet *f)
{
    size_t count = 0;

    for (size_t i = 0; i < f->lanes_count; i++)
        count += f->lanes[i].state == PACKER_LANE_OPEN;
    return count;
}

/* Returns the largest excess (loss minus limit) of any job on any lane. */
static inline double fleet_worst_excess(const struct fleet *f, const char *policy, double margin)
{
    double losses[FLEET_RESIDENTS_MAX], worst = -1;

    for (size_t i = 0; i < f->lanes_count; i++) {
        size_t count = f->lanes[i].residents_count;

        assert_int_equal(packer_losses(policy, f->residents[i], count, losses), 0);
        for (size_t j = 0; j < count; j++) {
            uint32_t named = f->residents[i][j].timing.loss_limit_ppm;
            double limit = (named ? named : PACKER_LOSS_LIMIT_PPM) / 1e6;
            double loss = losses[j] + (count > 1 ? margin : 0);

            worst = loss - limit > worst ? loss - limit : worst;
        }
    }
    return worst;
}

/* Draws a random number by splitmix64: the same seed gives the same numbers on every machine. */
static inline uint64_t fleet_draw(uint64_t *seed, uint64_t below)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

#endif
