/* When the bursts of jobs come, as lanes tell it, people are shown it and the packer counts on it:
 * K36. The aggregators are scripted, and so is their time. */
#include "svc/base/clock.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/measure_rig.h"

#include <stdlib.h>

#define PERIOD_NS (100 * NS_PER_MS)
#define LANE_NS (30 * NS_PER_MS)
#define SPAN_NS (32 * NS_PER_MS)

/* What is told of a job: its phase, and what it is to lose where it is. */
struct told {
    uint64_t begun_ns, window_ns;
    uint32_t predicted_ppm, lost_ppm;
};

static struct told ask(struct rig *rig, const char *name)
{
    envelope *reply = measure_ask_why(rig, name);
    const WIRE(ExplainedJob) *job = reply->explain_reply->jobs[0];
    struct told told = {.begun_ns = job->burst_begun_ns,
                        .window_ns = job->burst_window_ns,
                        .predicted_ppm = job->job->predicted_loss_ppm,
                        .lost_ppm = job->job->loss_ppm};
    message_free(reply);
    return told;
}

static struct end *local(struct rig *rig, uint32_t lanes)
{
    return rig_local_aggregator(rig, lanes, "");
}

static struct trained start(struct rig *rig, const char *name)
{
    struct end *worker;
    struct trained job = trained_start(rig, name, &worker);
    job.span_ns = SPAN_NS;
    return job;
}

/* So many looks at all of them, ten rounds between two. */
static void train(struct rig *rig, struct end *aggregator, struct trained *jobs, size_t count,
                  int looks)
{
    aggregator->answers = false;
    for (int i = 0; i < looks; i++) {
        for (size_t k = 0; k < count; k++)
            trained_go_on(&jobs[k], 10, PERIOD_NS, LANE_NS);
        trained_answer(aggregator, jobs, count);
    }
    aggregator->answers = true;
    rig_settle(rig);
}

static void rounds_that_begin_on_time_are_a_phase(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = local(rig, 1);
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 5);
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
    train(rig, aggregator, &job, 1, 7);
    struct told told = ask(rig, "resnet");
    assert_int_equal(told.window_ns, SPAN_NS);
    assert_int_equal(told.begun_ns % PERIOD_NS, job.begun_ns % PERIOD_NS);
}

static void a_round_that_begins_late_ends_the_phase(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = local(rig, 1);
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 12);
    assert_true(ask(rig, "resnet").window_ns > 0);
    job.begun_ns += PERIOD_NS / 4;
    train(rig, aggregator, &job, 1, 2);
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
    train(rig, aggregator, &job, 1, 8);
    assert_int_equal(ask(rig, "resnet").begun_ns % PERIOD_NS, job.begun_ns % PERIOD_NS);
}

static void clocks_of_other_hosts_say_nothing(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1); /* came over TCP */
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 12);
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
}

static void who_does_not_go_on_has_no_phase(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = local(rig, 1);
    struct trained job = start(rig, "resnet");
    train(rig, aggregator, &job, 1, 12);
    uint64_t began_ns = clock_now_ns();
    aggregator->answers = false;
    while (clock_now_ns() - began_ns < 3 * (PERIOD_NS + LOOK_NS) + PERIOD_NS)
        trained_answer(aggregator, &job, 1);
    aggregator->answers = true;
    assert_int_equal(ask(rig, "resnet").window_ns, 0);
    train(rig, aggregator, &job, 1, 1);
    assert_int_equal(ask(rig, "resnet").window_ns, SPAN_NS); /* a pause of whole rounds */
}

/* Two jobs on one lane, the second so much after the first; what the first is to lose. */
static uint32_t predicted_ppm(struct rig *rig, const char *policy, uint64_t lag_ns,
                              uint64_t late_ns)
{
    rig->options.policy = policy;
    rig_start_afresh(rig);
    struct end *aggregator = local(rig, 1);
    struct trained jobs[] = {start(rig, "first"), start(rig, "second")};
    jobs[1].begun_ns += lag_ns;
    train(rig, aggregator, jobs, 2, 12);
    jobs[0].begun_ns += late_ns;
    jobs[1].begun_ns += late_ns;
    train(rig, aggregator, jobs, 2, 1);
    return ask(rig, "first").predicted_ppm;
}

static void bursts_that_stay_apart_cost_nothing_under_phased(void **state)
{
    struct rig *rig = *state;
    uint32_t met_ppm = predicted_ppm(rig, "shared", PERIOD_NS / 2, 0);
    assert_in_range(met_ppm, 80000, 85000); /* 0.3 x 0.3 / (1 + 0.3 x 0.3) */
    assert_int_equal(predicted_ppm(rig, "phased", PERIOD_NS / 2, 0), 0);
    assert_int_equal(predicted_ppm(rig, "phased", PERIOD_NS / 4, 0), met_ppm);
    assert_int_equal(predicted_ppm(rig, "phased", PERIOD_NS / 2, PERIOD_NS / 4), met_ppm);
}

/* --- two jobs that train, on lanes that share their time, while growth looks on --- */

#define STEP_NS (500 * NS_PER_US) /* of a round alone */
#define WORK_NS (150 * NS_PER_US) /* of it on the lane, all at its end */
#define JITTER 0.0005             /* of what it computes */
#define HOLD_NS (60 * NS_PER_MS)

struct emulated {
    struct trained told;
    double at_ns;   /* until then it computes ... */
    double left_ns; /* ... and this is still to be done on the lane; 0: it computes */
    double begun_ns;
    double pause_ns; /* after the round that is open now */
};

struct pair {
    struct emulated jobs[2];
    double now_ns;
    struct end *aggregator;
};

static double computes_ns(void)
{
    double noise = 0;
    for (int i = 0; i < 12; i++)
        noise += (double)rand() / RAND_MAX;
    return (double)(STEP_NS - WORK_NS) * (1 + JITTER * (noise - 6));
}

static bool share_a_lane(const struct emulated *jobs)
{
    return jobs[0].told.lane == jobs[1].told.lane;
}

/* How many times as long its work takes now. */
static double slowness(const struct emulated *jobs, int i)
{
    return share_a_lane(jobs) && jobs[1 - i].left_ns > 0 ? 2 : 1;
}

static void turn(struct emulated *e, double now_ns)
{
    if (e->left_ns > 0) {
        e->told.late_ns += (uint64_t)(now_ns - e->begun_ns + 0.5) - WORK_NS;
        e->left_ns = 0;
        e->at_ns = now_ns + computes_ns() + e->pause_ns;
        e->pause_ns = 0;
        return;
    }
    e->begun_ns = now_ns;
    e->left_ns = WORK_NS;
    e->told.rounds++;
    e->told.begun_ns = (uint64_t)now_ns;
    e->told.busy_ns += WORK_NS;
}

/* Event after event, until it is that late. */
static void emulate(struct pair *p, double until_ns)
{
    for (;;) {
        double ends_ns[2];
        for (int i = 0; i < 2; i++)
            ends_ns[i] = p->jobs[i].left_ns > 0
                             ? p->now_ns + p->jobs[i].left_ns * slowness(p->jobs, i)
                             : p->jobs[i].at_ns;
        int first = ends_ns[1] < ends_ns[0];
        struct emulated *other = &p->jobs[1 - first];
        if (ends_ns[first] > until_ns)
            return;
        if (other->left_ns > 0)
            other->left_ns -= (ends_ns[first] - p->now_ns) / slowness(p->jobs, 1 - first);
        p->now_ns = ends_ns[first];
        turn(&p->jobs[first], p->now_ns);
    }
}

/* Where growth has put it. */
static uint32_t lane_now(struct rig *rig, uint32_t id)
{
    const struct job *job = jobs_find_id(rig->coordinator->service, id);
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].pieces > 0)
            return job->shares[i].lane->id;
    fail_msg("it is nowhere");
    return 0;
}

static bool is_asked_for_figures(const struct end *aggregator)
{
    for (size_t i = 0; i < aggregator->inbox_count; i++)
        if (aggregator->inbox[i]->body_case == BODY(STATS_REQUEST))
            return true;
    return false;
}

/* Answers what comes, figures as they are then, until it is asked for them. */
static void answer(struct rig *rig, struct end *aggregator)
{
    while (!is_asked_for_figures(aggregator)) {
        while (aggregator->inbox_count > 0) {
            envelope *request = aggregator->inbox[--aggregator->inbox_count];
            end_answer(aggregator, request);
            message_free(request);
        }
        rig_step_within(rig, NS_PER_MS);
    }
}

/* So many looks. How many lanes are in use then. */
static size_t live(struct rig *rig, struct pair *p, int looks)
{
    p->aggregator->answers = false;
    for (int i = 0; i < looks; i++) {
        answer(rig, p->aggregator);
        for (int k = 0; k < 2; k++)
            p->jobs[k].told.lane = lane_now(rig, p->jobs[k].told.job);
        emulate(p, (double)clock_now_ns());
        const struct trained told[] = {p->jobs[0].told, p->jobs[1].told};
        trained_answer(p->aggregator, told, 2);
    }
    answer(rig, p->aggregator);
    p->aggregator->answers = true;
    return share_a_lane(p->jobs) ? 1 : 2;
}

/* Until so many lanes are in use, or for long. */
static size_t live_until(struct rig *rig, struct pair *p, size_t lanes, int looks)
{
    size_t used;
    do {
        used = live(rig, p, 10);
        looks -= 10;
    } while (used != lanes && looks > 0);
    return used;
}

static struct pair begin(struct rig *rig, const char *policy)
{
    rig->options.policy = policy;
    rig->options.scales = true;
    rig->options.scale_hold_ns = HOLD_NS;
    rig_start_afresh(rig);
    srand(5);
    struct pair p = {.aggregator = local(rig, 2), .now_ns = (double)clock_now_ns()};
    for (int k = 0; k < 2; k++) {
        p.jobs[k].told = start(rig, k == 0 ? "first" : "second");
        p.jobs[k].told.span_ns = p.jobs[k].told.burst_ns = WORK_NS;
        p.jobs[k].at_ns = p.now_ns + k * (STEP_NS / 2.0);
    }
    assert_int_not_equal(p.jobs[0].told.lane, p.jobs[1].told.lane);
    return p;
}

/* Both are within their limit; what is told of each. */
static void tell(struct rig *rig, const char *policy, size_t lanes)
{
    for (int k = 0; k < 2; k++) {
        struct told told = ask(rig, k == 0 ? "first" : "second");
        print_message("# %s, %zu lanes: lost %.2f %%, predicted %.2f %%, window %.0f us\n", policy,
                      lanes, told.lost_ppm / 1e4, told.predicted_ppm / 1e4,
                      (double)told.window_ns / 1e3);
        assert_true(told.lost_ppm < 50000);
    }
}

static void under_phased_one_lane_does_where_shared_needs_two(void **state)
{
    static const char *const policies[] = {"shared", "phased"};
    struct rig *rig = *state;
    for (size_t i = 0; i < 2; i++) {
        struct pair p = begin(rig, policies[i]);
        size_t lanes = live_until(rig, &p, 1, 300);
        live(rig, &p, 40);
        tell(rig, policies[i], lanes);
        assert_int_equal(lanes, 2 - i);
    }
}

/* One pauses for half a period: processor sharing then keeps their bursts together. */
static void bursts_that_come_to_meet_are_moved_apart(void **state)
{
    struct rig *rig = *state;
    struct pair p = begin(rig, "phased");
    assert_int_equal(live_until(rig, &p, 1, 1000), 1);
    live(rig, &p, 40);
    p.jobs[1].pause_ns = STEP_NS / 2.0;
    live(rig, &p, 10);
    assert_int_equal(live_until(rig, &p, 2, 1000), 2);
    assert_int_equal(live_until(rig, &p, 1, 100), 2); /* and they stay there */
}

/* --- its first results --- */

static uint64_t feedback_of(struct rig *rig)
{
    const WIRE(JobView) * view;
    envelope *reply = measure_ask_job(rig, "resnet", &view);
    uint64_t feedback_ns = view->feedback_ns;
    message_free(reply);
    return feedback_ns;
}

static void early_feedback_is_from_the_arrival_to_the_end_of_the_first_round(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = local(rig, 1);
    uint64_t before_ns = clock_now_ns();
    struct trained job = trained_start(rig, "resnet", &worker);
    aggregator->answers = false;
    trained_run(aggregator, &job, 1, 100 * NS_PER_MS, NS_PER_MS);
    aggregator->answers = true;
    assert_int_equal(feedback_of(rig), 0); /* the first round goes on */
    job.first_done_ns = clock_now_ns() + 7 * NS_PER_S;
    aggregator->answers = false;
    trained_run(aggregator, &job, 2, 100 * NS_PER_MS, NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    assert_in_range(feedback_of(rig), 7 * NS_PER_S, job.first_done_ns - before_ns);
}

static void what_a_foreign_clock_says_of_it_is_known_when_it_is_heard(void **state)
{
    struct rig *rig = *state;
    struct end *worker, *aggregator = rig_aggregator(rig, 1);
    uint64_t before_ns = clock_now_ns();
    struct trained job = trained_start(rig, "resnet", &worker);
    job.first_done_ns = 1;
    aggregator->answers = false;
    trained_run(aggregator, &job, 1, 100 * NS_PER_MS, NS_PER_MS);
    aggregator->answers = true;
    rig_settle(rig);
    assert_in_range(feedback_of(rig), 1, clock_now_ns() - before_ns);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(rounds_that_begin_on_time_are_a_phase),
        CASE(a_round_that_begins_late_ends_the_phase),
        CASE(clocks_of_other_hosts_say_nothing),
        CASE(who_does_not_go_on_has_no_phase),
        CASE(bursts_that_stay_apart_cost_nothing_under_phased),
        CASE(under_phased_one_lane_does_where_shared_needs_two),
        CASE(bursts_that_come_to_meet_are_moved_apart),
        CASE(early_feedback_is_from_the_arrival_to_the_end_of_the_first_round),
        CASE(what_a_foreign_clock_says_of_it_is_known_when_it_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
