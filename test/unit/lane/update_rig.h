/* One piece with an update rule in a lane. The test runs its workers step by step. The file also
 * contains a reference of each update rule. */
#ifndef GRADPOOL_TEST_UPDATE_RIG_H
#define GRADPOOL_TEST_UPDATE_RIG_H

#include "svc/reduce/update.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#ifndef ELEMENTS
#define ELEMENTS (100000 / TRANSFER_SHORTER) /* two chunks */
#endif
#define BYTES (ELEMENTS * sizeof(float))
#define W 1 /* number of the piece */

static const char *kind;
static struct rig rig;
static const struct update_settings usual = {.rate = 0.01,
                                             .weight_decay = 0.1,
                                             .momentum = 0.9,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .epsilon = 1e-8};

static inline int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static inline void start_rule(uint32_t ranks, struct lane_terms terms, bool recovering)
{
    rig_start(&rig, kind);
    rig_place_piece(&rig, ranks, (struct lane_piece){.id = W, .elements = ELEMENTS, .terms = terms},
                    recovering);
    for (uint32_t rank = 0; rank < ranks; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = ranks;
}

static inline void start(uint32_t ranks, enum update_rule rule)
{
    start_rule(ranks, (struct lane_terms){.rule = rule}, false);
}

/* Excludes a function from ThreadSanitizer. The reference runs in one thread, and would otherwise
 * use most of a test's time. */
#define ONE_THREAD __attribute__((no_sanitize("thread")))

ONE_THREAD static inline float gradient(uint32_t rank, uint64_t round, uint64_t e)
{
    return (float)((rank * 7919 + round * 104729 + e * 31) % 1009) / 512 - 1;
}

ONE_THREAD static inline float parameter(uint64_t e) { return (float)(e % 701) / 350 - 1; }

static inline void tell(uint32_t rank, const struct update_settings *s)
{
    const struct record_settings record = {.kind = RECORD_SETTINGS,
                                           .rate = s->rate,
                                           .weight_decay = s->weight_decay,
                                           .momentum = s->momentum,
                                           .dampening = s->dampening,
                                           .beta1 = s->beta1,
                                           .beta2 = s->beta2,
                                           .epsilon = s->epsilon};
    assert_int_equal(fabric_send(rig.workers[rank].conn, &record, sizeof record, NULL, 0), 0);
}

static inline void say(uint32_t rank, uint64_t round, uint8_t operation, uint8_t standing)
{
    bool is_broadcast = operation == RECORD_BROADCAST, is_idle = standing == RECORD_IDLE;
    rig_say(&rig, rank,
            (struct say){.piece = W,
                         .word = (uint32_t)round,
                         .round = round,
                         .elements = ELEMENTS,
                         .operation = operation,
                         .standing = standing,
                         .has_no_input = is_idle || (is_broadcast && rank != 0),
                         .has_no_output = is_idle || (is_broadcast && rank == 0)});
}

ONE_THREAD static inline void lend(uint32_t rank, uint64_t round, uint8_t standing)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, rank, 0)[e] = gradient(rank, round, e);
    say(rank, round, RECORD_UPDATE, standing);
}

static inline void update(uint32_t rank, uint64_t round) { lend(rank, round, RECORD_ANNOUNCE); }

static inline void await_commit(uint64_t round)
{
    for (uint32_t rank = 0; rank < rig.count; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == round);
        assert_int_equal(w->errors_count, 0);
    }
}

static inline void set(uint64_t round)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        rig_input(&rig, 0, 0)[e] = parameter(e);
    for (uint32_t rank = 0; rank < rig.count; rank++)
        say(rank, round, RECORD_BROADCAST, RECORD_ANNOUNCE);
    await_commit(round);
}

static inline void update_all(uint64_t round)
{
    for (uint32_t rank = 0; rank < rig.count; rank++)
        update(rank, round);
    await_commit(round);
}

/* ---- the reference ---- */

static float model[1 + UPDATE_MOMENTS_MAX][ELEMENTS], mean[ELEMENTS];
static uint64_t model_steps;

ONE_THREAD static inline void model_set(void)
{
    for (uint64_t e = 0; e < ELEMENTS; e++)
        model[0][e] = parameter(e);
    model_steps = 0;
}

ONE_THREAD static inline void model_mean(uint64_t round)
{
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        mean[e] = gradient(0, round, e);
        for (uint32_t rank = 1; rank < rig.count; rank++)
            mean[e] += gradient(rank, round, e);
        mean[e] /= (float)rig.count;
    }
}

static inline void model_update(enum update_rule rule, uint64_t round,
                                const struct update_settings *s)
{
    const void *source = mean;
    void *target = mean;
    model_mean(round);
    const struct reduce_pass sums = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = &source,
                                     .sources_count = 1,
                                     .elements = ELEMENTS};
    const struct update_state state = {.parameters = model[0],
                                       .moments = {model[1], model[2]},
                                       .ret_parameters = model[0],
                                       .ret_moments = {model[1], model[2]}};
    update_pick(REDUCE_C, rule, REDUCE_F32, REDUCE_F32)(&sums, s, ++model_steps, &state);
}

static inline void expect_model(uint32_t from)
{
    for (uint32_t rank = from; rank < rig.count; rank++)
        assert_memory_equal(rig_landing(&rig, rank, 0), model[0], BYTES);
}

static inline void expect_error(uint32_t rank, int code, const char *words)
{
    struct rig_worker *w = &rig.workers[rank];
    char text[RECORD_TEXT_BYTES + 1] = {0};
    rig_until(&rig, w->errors_count > 0);
    memcpy(text, w->error.text, w->error.text_bytes);
    assert_int_equal(w->error.code, code);
    if (!strstr(text, words))
        fail_msg("'%s' does not say '%s'", text, words);
}

/* ---- a new owner ---- */

static inline void recover(uint32_t ranks, enum update_rule rule)
{
    start_rule(ranks, (struct lane_terms){.rule = rule}, true);
    tell(0, &usual);
}

#endif
