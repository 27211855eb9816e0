/* A job of eight workers. The test decides when gradients arrive. One unit of time is a second. */
#ifndef GRADPOOL_TEST_UNIT_PACKER_BACKUP_CROWD_H
#define GRADPOOL_TEST_UNIT_PACKER_BACKUP_CROWD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packer/backup/backup.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define S UINT64_C(1000000000)
#define N 8

static inline struct backup *create(enum backup_rule rule, uint32_t k)
{
    const struct backup_options options = {
        .rule = rule, .workers = N, .k = k, .absence = BACKUP_ABSENCE_NONE};
    struct backup *backup = NULL;
    assert_int_equal(backup_create(&options, 0, &backup), 0);
    return backup;
}

static inline void begin_all(struct backup *b, uint64_t now_ns)
{
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(backup_began(b, i, now_ns), 0);
}

static inline struct backup_decision decide(struct backup *b, uint64_t now_ns)
{
    struct backup_decision d;
    backup_decide(b, now_ns, &d);
    return d;
}

static inline struct backup_decision arrive(struct backup *b, uint32_t rank, uint64_t now_ns)
{
    assert_int_equal(backup_arrived(b, rank, now_ns), BACKUP_COUNTED);
    return decide(b, now_ns);
}

/* Reports sums of a round in which the squared norm of the true gradient is 1. `noise`: the
 * variance of a gradient. `curvature`: the curvature c. */
static inline void measure_curved(struct backup *b, double noise, double curvature)
{
    struct backup_view view;
    backup_look(b, &view);
    double k = view.counted, mean = 1 + noise / k;
    const struct backup_measure m = {.inputs = view.counted,
                                     .squares = k * (1 + noise),
                                     .mean = mean,
                                     .product = 1 - curvature * mean,
                                     .loss = 1,
                                     .rate = 0.5};
    backup_measured(b, &m);
}

static inline void measure(struct backup *b, double noise) { measure_curved(b, noise, 0.5); }

/* Runs a round of all ranks. The gradients arrive at intervals of `spread_ns`, from `now_ns` on.
 * Returns the time at which the round closes. */
static inline uint64_t round_of_all(struct backup *b, uint64_t now_ns, uint64_t spread_ns,
                                    double noise)
{
    begin_all(b, now_ns);
    now_ns += S;
    for (uint32_t i = 0; i < N; i++, now_ns += spread_ns)
        assert_int_equal(backup_arrived(b, i, now_ns), BACKUP_COUNTED);
    measure(b, noise);
    backup_closed(b, now_ns);
    return now_ns;
}

/* Starts the next round. The gradients of ranks 0 to `count` - 1 arrive after a second. */
static inline struct backup_decision first_arrivals(struct backup *b, uint64_t now_ns,
                                                    uint32_t count)
{
    struct backup_decision d = {0};
    begin_all(b, now_ns);
    for (uint32_t i = 0; i < count; i++)
        d = arrive(b, i, now_ns + S);
    return d;
}

static inline struct backup *create_second(enum backup_rule rule, uint32_t k)
{
    const struct backup_options options = {
        .rule = rule, .workers = N, .k = k, .absence = BACKUP_ABSENCE_NONE, .gradients = 3};
    struct backup *backup = NULL;
    assert_int_equal(backup_create(&options, 0, &backup), 0);
    return backup;
}

#endif
