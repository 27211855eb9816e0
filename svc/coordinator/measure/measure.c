/* Measures jobs while they train. A timer requests counters from aggregators at intervals, and the
 * difference between two replies is a sample for the job's profile. No function blocks until an
 * answer arrives. While no job trains, measurements are rare (K15). */
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/declare/declaration.h"
#include "svc/coordinator/job/counts.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/replica/replica.h"

#include "svc/base/log.h"
#include "svc/coordinator/growth/exploring.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/placement/history.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/view/display.h"
#include "svc/wire/table/table_load.h"

#include <errno.h>
#include <stdlib.h>

#define PPM_PER_PERCENT 1e4
#define IDLE_LOOKS 2 /* number of measurements without a round after which the intervals grow */

/* --- from counters to samples --- */

/* Difference between two measurements of a lane's counters for a job. */
struct window {
    uint64_t rounds, elapsed_ns, busy_ns;
    /* Mean times of the rounds in the window. 0: unknown, because rounds overlap. */
    uint64_t span_ns, burst_ns;
    uint64_t queue_ns, handled_ns, stalled_ns, core_wait_ns;
    bool is_alone; /* no other job had pieces on the lane during the window */
};

/* Returns whether the difference of the two sets of counters is a valid sample: the lane serves the
 * same pieces in the same process, and no counter has decreased. */
static bool is_next(const struct seen *was, const struct seen *is)
{
    return was->reference == is->reference && was->busy_ns <= is->busy_ns &&
           was->begun_ns <= is->begun_ns && was->rounds <= is->rounds &&
           was->ended_rounds <= is->ended_rounds && was->span_ns <= is->span_ns &&
           was->burst_ns <= is->burst_ns;
}

static void look_at_ending(const struct seen *was, const struct seen *is, struct window *window)
{
    uint64_t rounds = is->ended_rounds - was->ended_rounds;
    if (rounds == 0)
        return;
    window->span_ns = (is->span_ns - was->span_ns) / rounds;
    window->burst_ns = (is->burst_ns - was->burst_ns) / rounds;
}

/* Returns the job's part of the time for which the lane waited for its core. All jobs of the lane
 * share this time in proportion to their busy time. */
static uint64_t core_wait(const struct seen *was, const struct seen *is)
{
    uint64_t lane_ns = is->lane_busy_ns - was->lane_busy_ns, own_ns = is->busy_ns - was->busy_ns;
    if (is->core_wait_ns < was->core_wait_ns || is->lane_busy_ns < was->lane_busy_ns)
        return 0; /* the counters are smaller than before, because the lane has restarted */
    double part = lane_ns > own_ns ? (double)own_ns / (double)lane_ns : 1;
    return (uint64_t)((double)(is->core_wait_ns - was->core_wait_ns) * part);
}

/* Sets `feedback_ns`, the time from the first join to the end of the first round. The clock of a
 * lane on this host (its process has a pidfd) is the coordinator's clock. For other lanes the
 * arrival of the message counts as the end of the round. */
static void note_first_round(struct job *job, const struct share *share, const WIRE(JobUse) * use)
{
    bool is_ours = share->lane->aggregator->process.fd >= 0;
    uint64_t done_ns = is_ours ? use->first_done_ns : clock_now_ns();
    if (use->first_done_ns == 0 || job->figures->arrived_ns == 0 ||
        done_ns <= job->figures->arrived_ns)
        return;
    uint64_t feedback_ns = done_ns - job->figures->arrived_ns;
    if (job->figures->feedback_ns == 0 || (is_ours && feedback_ns < job->figures->feedback_ns))
        job->figures->feedback_ns = feedback_ns;
}

/* Computes the window since the last measurement that had rounds. Returns false if there is no
 * window. Measurements from before the job's last move are ignored, because other lanes served the
 * pieces then. */
static bool look(struct job *job, struct share *share, struct window *ret_window)
{
    if (share->looked_ns > 0 && share->lane->rows_ns <= share->looked_ns)
        return false; /* the lane has sent no newer measurement (K61) */
    const WIRE(JobUse) *use = stats_of_job(share->lane, job->id);
    const WIRE(LaneUse) *lane_use = stats_of_lane(share->lane);
    if (use)
        note_first_round(job, share, use);
    if (!use || use->reference == 0 ||
        share->lane->aggregator->measured_ns < job->figures->moved_ns)
        return false;
    struct seen was = share->seen, is = {.at_ns = share->lane->aggregator->measured_ns,
                                         .reference = use->reference,
                                         .rounds = use->begun_rounds,
                                         .begun_ns = use->begun_ns,
                                         .busy_ns = use->busy_ns,
                                         .ended_rounds = use->ended_rounds,
                                         .span_ns = use->span_ns,
                                         .burst_ns = use->burst_ns,
                                         .queue_ns = use->queue_ns,
                                         .handled_ns = use->handled_ns,
                                         .stalled_ns = use->stalled_ns,
                                         .lane_busy_ns = lane_use->busy_ns,
                                         .core_wait_ns = lane_use->core_wait_ns};
    share->looked_ns = is.at_ns;
    if (is_next(&was, &is) && was.rounds == is.rounds)
        return false;
    share->seen = is;
    *ret_window =
        (struct window){.rounds = is.rounds - was.rounds,
                        .elapsed_ns = is.begun_ns - was.begun_ns,
                        .busy_ns = is.busy_ns - was.busy_ns,
                        .queue_ns = is.queue_ns - was.queue_ns,
                        .handled_ns = is.handled_ns - was.handled_ns,
                        .stalled_ns = is.stalled_ns - was.stalled_ns,
                        .core_wait_ns = core_wait(&was, &is),
                        .is_alone = share->lane->jobs == 1 && share->lane->shared_ns <= was.at_ns};
    look_at_ending(&was, &is, ret_window);
    return is_next(&was, &is);
}

/* Adds a sample of lane time. A job needs more lane time beside other jobs than alone (R3 of
 * packer), so the estimate begins anew when the lane's last other job leaves or a first one
 * arrives. Until there are enough samples, the earlier or predicted value stays in use. */
static void add_lane_time(struct share *share, const struct window *window)
{
    if (share->was_alone != window->is_alone)
        estimate_restart(&share->time);
    share->was_alone = window->is_alone;
    estimate_add(&share->time, window->busy_ns / window->rounds);
    if (share->lane_ns == 0 || share->time.samples >= PROFILE_LEAST_SAMPLES)
        share->lane_ns = share->time.value;
}

/* Computes waiting times for each round. A lane that waits for its core does not see arrivals, so
 * the time of a round is at least its busy time plus its waits for the core. */
static void note_waits(struct share *share, const struct window *window, uint32_t workers)
{
    uint64_t least_ns = window->busy_ns + window->core_wait_ns;
    share->queue_ns = window->queue_ns / window->rounds;
    share->handled_ns =
        (window->handled_ns > least_ns ? window->handled_ns : least_ns) / window->rounds;
    share->stalled_ns = window->stalled_ns / window->rounds / workers;
    share->behind_ns =
        window->handled_ns > least_ns ? (window->handled_ns - least_ns) / window->rounds : 0;
}

/* Divides the lane time of the job's tensors among the tensors, in proportion to the busy time of
 * their pieces. The counters of moved pieces restart at 0, so the proportions from before the first
 * move are kept. */
static void share_lane_time(struct job *job)
{
    job->figures->has_pieces = false;
    if (job->figures->moved_ns > 0 && job->figures->knows_tensors)
        return profiles_keep(job);
    double all_ns = 0, lanes_ns = (double)job_tensors_ns(job);
    job_each_piece (piece, tensor, job)
        all_ns += (double)piece->busy_ns;
    for (size_t t = 0; t < job->tensors_count && all_ns > 0; t++) {
        double own_ns = 0;
        for (size_t i = 0; i < job->tensors[t]->pieces_count; i++)
            own_ns += (double)job->tensors[t]->pieces[i].busy_ns;
        job->tensors[t]->lane_ns = (uint64_t)(lanes_ns * (own_ns / all_ns));
    }
    job->figures->knows_tensors = job->figures->knows_tensors || all_ns > 0;
    profiles_keep(job);
}

static void note(struct job *job, enum profile_news news)
{
    char prefix[TENANT_PREFIX_BYTES];
    if (news == PROFILE_NOTHING)
        return;
    profile_use(job->profile);
    job->figures->wants_pieces = job->tensors_count > 0;
    /* a declare may wait for this measurement */
    kept_check_soon(job->service, declare_handle);
    if (news == PROFILE_NARROWED)
        return log_info("job %s%s runs alone on %u lanes: %u lanes are enough, %u are too few; its "
                        "loss is %.1f %%",
                        tenant_prefix(job->tenant, prefix), job->name, job->profile->lanes,
                        job->profile->narrow.enough, job->profile->narrow.few,
                        profile_loss_ppm(job->profile) / PPM_PER_PERCENT);
    struct profile_times known = profile_known(job->profile);
    log_info("job %s%s %s%s: a round takes %.1f ms, and needs %.3f ms of lane time",
             tenant_prefix(job->tenant, prefix), job->name,
             news == PROFILE_MEASURED ? "is measured" : "has changed",
             profile_knows_alone(job->profile) ? "" : " beside others",
             (double)known.period_ns / NS_PER_MS, (double)known.lanes_ns / NS_PER_MS);
}

/* Measures one job. Returns whether the job has trained since the last measurement. If the job has
 * several lanes, the period of a round comes from the lane with the most lane time for this job. */
static bool measure(struct job *job)
{
    struct window busiest = {0};
    bool is_alone = true;
    uint32_t lanes = 0;
    uint64_t lanes_ns = 0, most_ns = 0, longest_ns = 0;
    if (job->figures->has_pieces)
        share_lane_time(job);
    for (size_t i = 0; i < job->shares_count; i++) {
        struct share *share = &job->shares[i];
        struct window window;
        if (share->pieces == 0)
            continue;
        lanes++;
        if (!look(job, share, &window)) {
            /* The lane time counts only if it was measured, not predicted. */
            lanes_ns += share->seen.reference ? share->lane_ns : 0;
            is_alone &= share->lane->jobs == 1;
            continue;
        }
        is_alone &= window.is_alone;
        add_lane_time(share, &window);
        note_waits(share, &window, members_training(job));
        if (busiest.rounds == 0 || window.busy_ns / window.rounds > most_ns)
            busiest = window;
        most_ns = busiest.busy_ns / busiest.rounds;
        lanes_ns += window.busy_ns / window.rounds;
        if (window.span_ns > longest_ns)
            longest_ns = window.span_ns;
    }
    if (busiest.rounds == 0)
        return false;
    struct profile_sample sample = {.rounds = busiest.rounds,
                                    .elapsed_ns = busiest.elapsed_ns,
                                    .busiest_ns = most_ns,
                                    .lanes_ns = lanes_ns,
                                    .span_ns = busiest.span_ns,
                                    .burst_ns = busiest.burst_ns,
                                    .slack_ns = longest_ns - busiest.span_ns,
                                    .lanes = lanes,
                                    .loss_limit_ppm =
                                        packer_loss_limit_ppm(job_limit_ppm(job), 0, 0),
                                    .is_alone = is_alone};
    note(job, profile_add(job->profile, &sample));
    /* Requests the times of pieces until the times of the tensors are known, because an earlier run
     * may not have measured these times, and a reply may be lost. A job that has only tables has no
     * pieces: requests about this job would never end, and would delay those of other jobs. */
    job->figures->wants_pieces |=
        job->tensors_count > 0 && job->profile->now.period_ns > 0 && !job->figures->knows_tensors;
    job->figures->trained_ns = clock_now_ns();
    exploring_look(job, busiest.rounds, busiest.elapsed_ns);
    return true;
}

/* --- at intervals --- */

struct measuring {
    struct service *service;
    struct timer timer;
    uint64_t scaled_ns;  /* time at which the last window of growth ended */
    uint64_t wait_ns;    /* time until the next measurement */
    uint32_t idle_looks; /* number of consecutive measurements during which no job trained */
};

static uint64_t least_ns(const struct service *s)
{
    uint64_t usual_ns = s->options->explores ? EXPLORE_LOOK_NS : MEASURE_NS;
    return s->options->measure_ns ? s->options->measure_ns : usual_ns;
}

/* Gives each of the job's shards on the lane an equal part of the lane time of the job's tables. */
static void measure_take_rows(struct job *job, const struct lane *lane, uint64_t busy_ns)
{
    uint64_t count = 0;
    job_each_table(table, job) table_each_shard(shard, table) count += shard->lane == lane;
    job_each_table(table, job) table_each_shard(shard, table) if (shard->lane == lane)
        shard->busy_ns = busy_ns / count;
}

static void measure_take_piece(struct job *job, const struct lane *lane, uint32_t id,
                               uint64_t busy_ns)
{
    struct piece *piece = jobs_piece(job, id, NULL);
    if (id == TABLE_LOAD_CLOCKS)
        return measure_take_rows(job, lane, busy_ns);
    if (!piece || piece->lane != lane)
        return;
    piece->busy_ns = busy_ns;
    job->figures->has_pieces = true;
}

/* Stores the lane times in the reply, which belong to one job: one time for each piece, and one for
 * all tables. */
static void take_pieces(const struct lane *lane)
{
    const WIRE(LaneUse) *use = stats_of_lane(lane);
    for (size_t i = 0; use && i < use->n_jobs; i++) {
        const WIRE(JobUse) *of = use->jobs[i];
        struct job *job = of->n_pieces ? jobs_find_id(lane->aggregator->service, of->job_id) : NULL;
        for (size_t k = 0; job && k < of->n_pieces && k < of->n_pieces_busy_ns; k++)
            measure_take_piece(job, lane, of->pieces[k], of->pieces_busy_ns[k]);
    }
}

struct measure_asked {
    uint32_t aggregator;
    uint64_t at_ns;
};

static void got_stats(struct service *s, void *data, const envelope *reply, int code,
                      const char *text)
{
    const struct measure_asked *asked = data;
    struct aggregator *a = aggregator_find(s, asked->aggregator);
    if (!a || !reply || reply->body_case != BODY(STATS_REPLY))
        return;
    if (!stats_keep(a, reply))
        return;
    for (size_t i = 0; i < a->lanes_count; i++) {
        if (a->lanes[i].rows_ns == a->measured_ns)
            take_pieces(&a->lanes[i]);
        list_for_each (node, &s->jobs)
            keeping_look(list_entry(node, struct job, link), &a->lanes[i], asked->at_ns);
    }
}

static bool has_work(const struct aggregator *a)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        if (a->lanes[i].jobs > 0)
            return a->state == AGGREGATOR_UP;
    return false;
}

/* Returns the next job whose pieces have to be measured. A request names one job at most, because a
 * reply for several jobs could be too long. */
static uint32_t job_with_wish(struct service *s)
{
    list_for_each_entry (struct job, job, &s->jobs, link) {
        if (!job->figures->wants_pieces)
            continue;
        job->figures->wants_pieces = false;
        return job->id;
    }
    return 0;
}

void stats_ask(struct aggregator *a, uint32_t job_id)
{
    const struct measure_asked asked = {.aggregator = a->id, .at_ns = clock_now_ns()};
    stats_request(a, job_id, CALL_DEADLINE_NS, got_stats, &asked, sizeof asked);
}

/* Returns whether a window of growth has ended. A window lasts MEASURE_NS, even if --explore makes
 * measurements more frequent. */
static bool is_window(struct service *s)
{
    uint64_t now_ns = clock_now_ns();
    bool is_due = s->options->measure_ns ||
                  now_ns + EXPLORE_LOOK_NS / 2 >= s->measuring->scaled_ns + MEASURE_NS;
    if (is_due)
        s->measuring->scaled_ns = now_ns;
    return is_due;
}

static void look_around(struct timer *timer)
{
    struct service *s = container_of(timer, struct measuring, timer)->service;
    uint64_t most_ns = MEASURE_IDLE_TIMES * least_ns(s);
    bool trains = false;
    list_for_each_entry (struct job, job, &s->jobs, link) {
        trains |= measure(job);
        counts_look(job);
    }
    s->measuring->idle_looks = trains ? 0 : s->measuring->idle_looks + 1;
    if (trains)
        s->on->service->view_has_changed(s);
    s->measuring->wait_ns =
        s->measuring->idle_looks < IDLE_LOOKS ? least_ns(s) : 2 * s->measuring->wait_ns;
    if (s->measuring->wait_ns > most_ns)
        s->measuring->wait_ns = most_ns;
    if (is_window(s))
        scaling_window(s);
    if ((list_is_empty(&s->jobs) && !scaling_is_due(s)) || s->phase != SERVICE_UP)
        return;
    uint32_t job_id = job_with_wish(s);
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (has_work(a))
            stats_ask(a, job_id);
    timer_start(s->loop, timer, clock_now_ns() + s->measuring->wait_ns);
}

int measuring_create(struct service *s)
{
    s->measuring = calloc(1, sizeof *s->measuring);
    if (!s->measuring)
        return -ENOMEM;
    s->measuring->service = s;
    timer_init(&s->measuring->timer, look_around);
    s->measuring->wait_ns = least_ns(s);
    return 0;
}

void measuring_destroy(struct service *s)
{
    if (!s->measuring)
        return;
    timer_stop(&s->measuring->timer);
    free(s->measuring);
}

bool measuring_is_idle(const struct service *s)
{
    return list_is_empty(&s->jobs) || s->measuring->idle_looks >= IDLE_LOOKS;
}

/* Never postpones a running timer. A job that declares one tensor after another calls this function
 * so often that the timer would otherwise never fire. */
void measuring_wake(struct service *s)
{
    uint64_t next_ns = clock_now_ns() + least_ns(s);
    bool is_armed = !list_is_empty(&s->measuring->timer.link);
    s->measuring->wait_ns = least_ns(s);
    s->measuring->idle_looks = 0;
    s->on->service->view_has_changed(s);
    if (!is_armed || s->measuring->timer.deadline_ns > next_ns)
        timer_start(s->loop, &s->measuring->timer, next_ns);
}

bool measuring_is_asleep(const struct service *s)
{
    return list_is_empty(&s->measuring->timer.link);
}
