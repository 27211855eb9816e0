/* A scheduler under test. After each event, a line of text contains the resulting actions. */
#ifndef GRADPOOL_TEST_UNIT_PACKER_SCHEDULER_RIG_H
#define GRADPOOL_TEST_UNIT_PACKER_SCHEDULER_RIG_H

#include "packer/elastic/scheduler.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RIG_S UINT64_C(1000000000)

struct rig {
    struct scheduler *scheduler;
    uint64_t now_ns;
    char text[4096]; /* actions after the last event */
    int count;
};

/* Makes a scheduler with a hold time of 60 s and a quantum of 20 s. */
static inline struct rig rig_new(uint32_t slots)
{
    struct scheduler_options options = {
        .slots = slots, .hold_ns = 60 * RIG_S, .quantum_ns = 20 * RIG_S};
    struct rig rig = {.scheduler = scheduler_create(&options)};
    assert_non_null(rig.scheduler);
    return rig;
}

static inline struct rig rig_with(struct scheduler_options options)
{
    struct rig rig = {.scheduler = scheduler_create(&options)};
    assert_non_null(rig.scheduler);
    return rig;
}

static inline void rig_write(struct rig *rig, const struct scheduler_action *a)
{
    size_t used = strlen(rig->text);
    char *end = rig->text + used;
    size_t room = sizeof rig->text - used;
    const char *gap = used ? ", " : "";
    switch (a->verb) {
    case SCHEDULER_START:
        snprintf(end, room, "%sstart %u.%u @%u", gap, a->job, a->rank, a->slot);
        break;
    case SCHEDULER_GO_ON:
        snprintf(end, room, "%swake %u.%u @%u", gap, a->job, a->rank, a->slot);
        break;
    case SCHEDULER_LEAVE: snprintf(end, room, "%sleave %u.%u", gap, a->job, a->rank); break;
    case SCHEDULER_REST:
        snprintf(end, room, "%srest %u%s", gap, a->job, a->ends_processes ? " and end" : "");
        break;
    case SCHEDULER_LANES: snprintf(end, room, "%slanes %u=%u", gap, a->job, a->workers); break;
    }
}

static inline int rig_send(struct rig *rig, struct scheduler_event event)
{
    const struct scheduler_action *actions = NULL;
    event.now_ns = rig->now_ns;
    rig->count = scheduler_step(rig->scheduler, &event, &actions);
    rig->text[0] = 0;
    for (int i = 0; i < rig->count; i++)
        rig_write(rig, &actions[i]);
    return rig->count < 0 ? rig->count : 0;
}

static inline int rig_submit_as(struct rig *rig, uint32_t tenant, uint32_t id, uint32_t min,
                                uint32_t max)
{
    struct scheduler_job job = {.id = id, .tenant = tenant, .workers_min = min, .workers_max = max};
    return rig_send(rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED, .submitted = &job});
}

static inline void rig_submit(struct rig *rig, uint32_t id, uint32_t min, uint32_t max)
{
    assert_int_equal(rig_submit_as(rig, 0, id, min, max), 0);
}

static inline int rig_job(struct rig *rig, enum scheduler_kind kind, uint32_t id)
{
    return rig_send(rig, (struct scheduler_event){.kind = kind, .job = id});
}

static inline void rig_report(struct rig *rig, uint32_t id, uint32_t rung, double value)
{
    assert_int_equal(rig_send(rig, (struct scheduler_event){.kind = SCHEDULER_REPORTED,
                                                            .job = id,
                                                            .step = rung * 10,
                                                            .rung = rung,
                                                            .value = value}),
                     0);
}

static inline int rig_out(struct rig *rig, uint32_t id, uint32_t rank)
{
    return rig_send(
        rig, (struct scheduler_event){.kind = SCHEDULER_WORKER_OUT, .job = id, .rank = rank});
}

static inline void rig_measured(struct rig *rig, uint32_t id, uint32_t workers, double step_s)
{
    assert_int_equal(rig_send(rig, (struct scheduler_event){.kind = SCHEDULER_MEASURED,
                                                            .job = id,
                                                            .workers = workers,
                                                            .step_s = step_s}),
                     0);
}

/* Advances the clock, and then sends a TICK, at which the scheduler may decide. */
static inline void rig_wait(struct rig *rig, uint64_t seconds)
{
    rig->now_ns += seconds * RIG_S;
    assert_int_equal(rig_send(rig, (struct scheduler_event){.kind = SCHEDULER_TICK}), 0);
}

static inline struct scheduler_view rig_view(const struct rig *rig, uint32_t id)
{
    struct scheduler_view view;
    assert_int_equal(scheduler_view(rig->scheduler, id, &view), 0);
    return view;
}

#define rig_expect(rig, wanted) assert_string_equal((rig)->text, wanted)

#endif
