/* Builds replies like the coordinator. Packs and unpacks these replies, so that tests free them
 * like received replies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/unit/ops/snapshot_rig.h"

#include <stdio.h>
#include <stdlib.h>

#define WIRE(type) Gradpool__Wire__##type

static envelope *received(const envelope *sent)
{
    size_t bytes = gradpool__wire__envelope__get_packed_size(sent);
    uint8_t *packed = malloc(bytes);
    assert_non_null(packed);
    gradpool__wire__envelope__pack(sent, packed);
    envelope *copy = gradpool__wire__envelope__unpack(NULL, bytes, packed);
    free(packed);
    assert_non_null(copy);
    return copy;
}

static envelope *status_of(const struct rig_service *r)
{
    WIRE(JobUse) uses[2][2];
    WIRE(JobUse) * use_lists[2][2];
    WIRE(LaneUse) lane_uses[2];
    WIRE(LaneView) lanes[2], *lane_list[2];
    for (int i = 0; i < 2; i++) {
        gradpool__wire__lane_use__init(&lane_uses[i]);
        gradpool__wire__lane_view__init(&lanes[i]);
        for (int j = 0; j < 2; j++) {
            gradpool__wire__job_use__init(&uses[i][j]);
            uses[i][j].job_id = j == 0 ? 5 : 3; /* ids are not sorted */
            uses[i][j].busy_ns = r->busy_ns[i][j == 0 ? 1 : 0];
            uses[i][j].rounds = r->rounds;
            uses[i][j].pushed_bytes = r->pushed_bytes;
            use_lists[i][j] = &uses[i][j];
        }
        lane_uses[i].cpu_ns = r->lane_cpu_ns[i];
        lane_uses[i].rounds = 2 * r->rounds;
        lane_uses[i].pushed_bytes = 2 * r->pushed_bytes;
        lane_uses[i].jobs = use_lists[i];
        lane_uses[i].n_jobs = 2;
        lanes[i].lane = i == 0 ? 9 : 7;
        lanes[i].state = (char *)(i == 0 && r->lane_state ? r->lane_state : "open");
        lanes[i].use = &lane_uses[i];
        lane_list[i] = &lanes[i];
    }
    /* lane 7 is second in this list, but its figures come first */
    lanes[0].use = r->told_nothing ? NULL : &lane_uses[1];
    lanes[1].use = r->told_nothing ? NULL : &lane_uses[0];
    WIRE(AggregatorView) a = GRADPOOL__WIRE__AGGREGATOR_VIEW__INIT, *aggregators[] = {&a};
    a.aggregator = 1;
    a.node = (char *)"node7";
    a.state = (char *)r->state;
    a.measured_ns = r->told_nothing ? 0 : r->at_ns;
    a.lanes = lane_list;
    a.n_lanes = 2;
    WIRE(StatusReply) reply = GRADPOOL__WIRE__STATUS_REPLY__INIT;
    reply.endpoint = (char *)"gradpool://h:7077";
    reply.policy = (char *)"shared";
    reply.pid = 42;
    reply.uptime_ns = r->at_ns;
    reply.incarnation = r->incarnation;
    reply.jobs = 2;
    reply.own_only = r->hides_job;
    reply.aggregators = aggregators;
    reply.n_aggregators = 1;
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    e.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_STATUS_REPLY;
    e.status_reply = &reply;
    return received(&e);
}

static envelope *jobs_of(const struct rig_service *r)
{
    uint32_t lanes[] = {7, 9};
    WIRE(JobView) five = GRADPOOL__WIRE__JOB_VIEW__INIT, three = GRADPOOL__WIRE__JOB_VIEW__INIT;
    WIRE(JobView) **jobs = calloc(2 + r->more_jobs, sizeof *jobs), *more;
    char(*names)[16] = calloc(1 + r->more_jobs, sizeof *names);
    more = calloc(1 + r->more_jobs, sizeof *more);
    assert_true(jobs && names && more);
    three.job_id = 3;
    three.tenant = (char *)r->tenant;
    three.job = (char *)r->job;
    three.state = (char *)"training";
    three.workers = 4;
    three.lanes = lanes;
    three.n_lanes = 2;
    five = three;
    five.job_id = 5;
    five.tenant = (char *)"";
    five.job = (char *)"five";
    five.state = (char *)r->job_state;
    five.workers = r->lone_job ? 1 : three.workers;
    WIRE(JobsReply) reply = GRADPOOL__WIRE__JOBS_REPLY__INIT;
    reply.jobs = jobs;
    jobs[reply.n_jobs++] = &three;
    if (!r->hides_job)
        jobs[reply.n_jobs++] = &five;
    for (uint32_t i = 0; i < r->more_jobs; i++) {
        more[i] = five;
        more[i].job_id = 1000 + i;
        snprintf(names[i], sizeof names[i], "job-%u", i);
        more[i].job = names[i];
        more[i].loss_ppm = r->loss_ppm;
        more[i].shared_loss_ppm = r->loss_ppm / 2;
        more[i].period_ns = more[i].alone_period_ns = r->loss_ppm ? RIG_SECOND : 0;
        jobs[reply.n_jobs++] = &more[i];
    }
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    e.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY;
    e.jobs_reply = &reply;
    envelope *copy = received(&e);
    free(jobs);
    free(names);
    free(more);
    return copy;
}

void rig_replies(const struct rig_service *service, envelope **ret_status, envelope **ret_jobs)
{
    *ret_status = status_of(service);
    *ret_jobs = jobs_of(service);
}

struct snapshot *rig_snapshot(const struct rig_service *service)
{
    struct snapshot *s;
    assert_int_equal(snapshot_create(status_of(service), jobs_of(service), &s), 0);
    return s;
}

struct rig_service rig_before(void)
{
    return (struct rig_service){.at_ns = 30 * RIG_SECOND,
                                .incarnation = 1,
                                .state = "up",
                                .lane_cpu_ns = {RIG_SECOND, RIG_SECOND},
                                .busy_ns = {{100, 100}, {100, 100}},
                                .rounds = 1000,
                                .pushed_bytes = 1 << 20,
                                .tenant = "acme",
                                .job = "three",
                                .job_state = "training"};
}

struct rig_service rig_after(void)
{
    struct rig_service r = rig_before();
    r.at_ns += 2 * RIG_SECOND;
    r.lane_cpu_ns[0] += RIG_SECOND;
    r.busy_ns[0][0] += RIG_SECOND * 3 / 4;
    r.busy_ns[0][1] += RIG_SECOND / 4;
    r.rounds += 100;
    r.pushed_bytes += 1 << 20;
    return r;
}
