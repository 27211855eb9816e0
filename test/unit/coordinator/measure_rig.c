/* Simulates training: sends counters of lanes when the coordinator requests them. */
#include "test/unit/coordinator/measure_rig.h"

#include "svc/base/clock.h"
#include "svc/wire/table/table_load.h"

#include <stdio.h>

int measure_setup(void **state)
{
    rig_setup(state);
    struct rig *rig = *state;
    rig->options.measure_ns = LOOK_NS;
    rig_start_afresh(rig);
    return 0;
}

void trained_go_on(struct trained *t, uint64_t rounds, uint64_t period_ns, uint64_t lane_ns)
{
    t->rounds += rounds;
    t->begun_ns += rounds * period_ns;
    t->busy_ns += rounds * lane_ns;
}

/* Counters of one lane and of its jobs. */
struct counted {
    WIRE(LaneUse) lane;
    WIRE(JobUse) jobs[TRAINED_MAX], *list[TRAINED_MAX];
};

/* In an answer, only one job has figures of its pieces. All answers can therefore use the same
 * memory. */
static void count_pieces(const struct trained *t, WIRE(JobUse) * use)
{
    static uint32_t pieces[2];
    static uint64_t busy_ns[2];
    size_t count = 0;
    if (t->rows_ns > 0) {
        pieces[count] = TABLE_LOAD_CLOCKS;
        busy_ns[count++] = t->rows_ns;
    }
    if (t->reference != TABLE_LOAD_CLOCKS) {
        pieces[count] = t->reference;
        busy_ns[count++] = t->busy_ns - t->rows_ns;
    }
    use->pieces = pieces;
    use->pieces_busy_ns = busy_ns;
    use->n_pieces = use->n_pieces_busy_ns = count;
}

static void count_job(const struct trained *t, uint32_t detailed, WIRE(JobUse) * use)
{
    gradpool__wire__job_use__init(use);
    use->job_id = t->job;
    use->reference = t->reference;
    use->begun_rounds = t->rounds;
    use->begun_ns = t->begun_ns;
    use->busy_ns = t->busy_ns;
    use->round_begun_ns = t->span_ns ? t->begun_ns : 0;
    use->ended_rounds = t->span_ns ? t->rounds : 0;
    use->span_ns = t->rounds * t->span_ns + t->late_ns;
    use->burst_ns = t->rounds * t->burst_ns;
    use->handled_ns = t->handled_ns;
    use->stalled_ns = t->stalled_ns;
    use->first_done_ns = t->first_done_ns;
    if (detailed != t->job)
        return;
    count_pieces(t, use);
}

static void count_on(struct counted *to, const struct trained *t, uint32_t detailed)
{
    if (to->lane.n_jobs == 0)
        gradpool__wire__lane_use__init(&to->lane);
    count_job(t, detailed, &to->jobs[to->lane.n_jobs]);
    to->list[to->lane.n_jobs] = &to->jobs[to->lane.n_jobs];
    to->lane.n_jobs++;
    to->lane.jobs = to->list;
    to->lane.lane = t->lane;
    to->lane.digest = t->digest;
    to->lane.busy_ns += t->busy_ns;
    to->lane.cpu_ns += t->busy_ns - t->preempted_ns;
    to->lane.core_wait_ns += t->core_wait_ns;
}

uint32_t trained_answer(struct end *aggregator, const struct trained *jobs, size_t count)
{
    WIRE(StatsReply) stats = GRADPOOL__WIRE__STATS_REPLY__INIT;
    struct counted counted[TRAINED_MAX] = {0};
    WIRE(LaneUse) * lanes[TRAINED_MAX];
    envelope reply = GRADPOOL__WIRE__ENVELOPE__INIT;
    envelope *request = end_expect(aggregator, BODY(STATS_REQUEST));
    uint32_t detailed = request->stats_request->job_id;
    reply.id = request->id;
    message_free(request);
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < stats.n_lanes && counted[at].lane.lane != jobs[i].lane)
            at++;
        count_on(&counted[at], &jobs[i], detailed);
        lanes[at] = &counted[at].lane;
        stats.n_lanes += at == stats.n_lanes;
    }
    stats.lanes = lanes;
    reply.body_case = BODY(STATS_REPLY);
    reply.stats_reply = &stats;
    channel_send(aggregator->channel, &reply);
    return detailed;
}

/* Skips requests that the coordinator sent before it read the last answer. */
static void pass_over_requests(struct end *aggregator)
{
    rig_settle(aggregator->rig);
    for (size_t i = aggregator->inbox_count; i > 0; i--)
        if (aggregator->inbox[i - 1]->body_case == BODY(STATS_REQUEST))
            message_free(end_expect(aggregator, BODY(STATS_REQUEST)));
}

static uint64_t answer_known(struct end *aggregator, size_t index, uint64_t digest, size_t rows)
{
    WIRE(StatsReply) stats = GRADPOOL__WIRE__STATS_REPLY__INIT;
    WIRE(JobUse) row = GRADPOOL__WIRE__JOB_USE__INIT, *jobs = &row;
    WIRE(LaneUse) lane = GRADPOOL__WIRE__LANE_USE__INIT, *list = &lane;
    envelope reply = GRADPOOL__WIRE__ENVELOPE__INIT;
    pass_over_requests(aggregator);
    envelope *request = end_expect(aggregator, BODY(STATS_REQUEST));
    assert_int_equal(request->stats_request->n_known, aggregator->lanes_count);
    uint64_t known = request->stats_request->known[index];
    reply.id = request->id;
    message_free(request);
    lane.lane = aggregator->lanes[index];
    lane.is_known = true;
    lane.digest = digest;
    lane.jobs = &jobs;
    lane.n_jobs = rows;
    stats.lanes = &list;
    stats.n_lanes = 1;
    reply.body_case = BODY(STATS_REPLY);
    reply.stats_reply = &stats;
    channel_send(aggregator->channel, &reply);
    return known;
}

uint64_t trained_answer_known(struct end *aggregator, size_t index, uint64_t digest)
{
    return answer_known(aggregator, index, digest, 0);
}

void trained_answer_both(struct end *aggregator, size_t index, uint64_t digest)
{
    (void)answer_known(aggregator, index, digest, 1);
}

void trained_run(struct end *aggregator, struct trained *job, int looks, uint64_t period_ns,
                 uint64_t lane_ns)
{
    for (int i = 0; i < looks; i++) {
        trained_go_on(job, 10, period_ns, lane_ns);
        trained_answer(aggregator, job, 1);
    }
}

struct trained trained_start(struct rig *rig, const char *name, struct end **ret_worker)
{
    struct trained job = {.reference = 1, .begun_ns = 77};
    uint64_t session;
    *ret_worker = rig_join(rig, name, 0, 1, &session, &job.job);
    end_declare_one(*ret_worker, "w", 1000);
    envelope *reply = end_expect(*ret_worker, BODY(DECLARE_REPLY));
    job.lane = reply->declare_reply->tensors[0]->pieces[0]->lane;
    message_free(reply);
    return job;
}

envelope *measure_ask_job(struct rig *rig, const char *name, const WIRE(JobView) * *ret_view)
{
    struct end *asking = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    WIRE(JobsRequest) jobs = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    jobs.job = (char *)name;
    request.body_case = BODY(JOBS_REQUEST);
    request.jobs_request = &jobs;
    envelope *reply = end_ask(asking, &request);
    assert_int_equal(reply->body_case, BODY(JOBS_REPLY));
    assert_int_equal(reply->jobs_reply->n_jobs, 1);
    *ret_view = reply->jobs_reply->jobs[0];
    return reply;
}

envelope *measure_ask_why(struct rig *rig, const char *name)
{
    struct end *asking = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    WIRE(ExplainRequest) explain = GRADPOOL__WIRE__EXPLAIN_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    explain.job = (char *)name;
    request.body_case = BODY(EXPLAIN_REQUEST);
    request.explain_request = &explain;
    envelope *reply = end_ask(asking, &request);
    assert_int_equal(reply->body_case, BODY(EXPLAIN_REPLY));
    return reply;
}

uint32_t measure_lane_of(struct rig *rig, const char *name)
{
    struct end *worker;
    return trained_start(rig, name, &worker).lane;
}

void measure_know_ending(struct rig *rig, uint64_t lane_ns, uint64_t span_ns, uint64_t burst_ns,
                         size_t count, const char *const *names)
{
    struct end *aggregator = rig_aggregator(rig, 1);
    for (size_t i = 0; i < count; i++) {
        struct end *worker;
        struct trained job = trained_start(rig, names[i], &worker);
        job.span_ns = span_ns;
        job.burst_ns = burst_ns;
        aggregator->answers = false;
        trained_run(aggregator, &job, 12, 100 * NS_PER_MS, lane_ns);
        aggregator->answers = true;
        end_leave(worker);
        rig_settle(rig);
    }
    rig_crash(rig);
    rig_start(rig);
}

void measure_know(struct rig *rig, uint64_t lane_ns, size_t count, const char *const *names)
{
    measure_know_ending(rig, lane_ns, 0, 0, count, names);
}

void measure_open_store(struct rig *rig, struct store **ret_store)
{
    char path[128];
    struct err err;
    snprintf(path, sizeof path, "%s/state.db", rig->dir);
    assert_int_equal(store_sqlite_open(path, 0, ret_store, &err), 0);
}
