/* Owns the virtual clock: jobs arrive, are measured, are placed, and leave. Between these events
 * the windows are simulated. Must never read a clock of the machine. */
#include "bench/sim/simulate.h"

#include "bench/sim/chance.h"
#include "bench/sim/input/csv.h"
#include "bench/sim/lanes/loss_window.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEAR 0.02

/* Order of events at the same time: lanes are freed before they are used. */
enum event_kind { EVENT_LEAVE, EVENT_ARRIVE, EVENT_PLACE };

struct event {
    uint64_t at_ns;
    enum event_kind kind;
    size_t job;
};

struct simulation {
    const struct workload *workload;
    const struct setting *setting;
    struct cluster cluster;
    struct job_profile *profiles; /* one profile for each kind of job */
    size_t profiles_count;
    size_t *profile_of; /* position of the profile of each job */
    struct event *events;
    size_t events_count;
    uint64_t *starts_ns; /* start of each job */
    bool *is_refused;
    struct window_sums *sums;
    uint64_t now_ns;
    double own_lanes;          /* lanes of jobs that are being measured or were refused */
    uint32_t window;           /* number of the next window */
    struct trail_part present; /* cores of the present jobs: used lane time, dedicated servers */
    struct trail *trail;       /* details of the run (trail.h); NULL: not recorded */
    struct simulated result;
    char *error;
};

/* --- setting up --- */

/* Finds the profile for the job's model and number of workers, or makes a new profile. */
static int find_profile(struct simulation *s, const struct workload_job *job, size_t *ret_profile)
{
    struct job_profile *all;
    size_t at = 0;
    int r;

    while (at < s->profiles_count &&
           (s->profiles[at].model != job->model || s->profiles[at].workers != job->workers))
        at++;
    *ret_profile = at;
    if (at < s->profiles_count)
        return 0;
    all = reallocarray(s->profiles, at + 1, sizeof(*all));
    if (!all)
        return -ENOMEM;
    s->profiles = all;
    r = job_profile_make(&all[at], job->model, job->workers, s->setting, s->error);
    s->profiles_count += r == 0;
    return r;
}

static void add_event(struct simulation *s, uint64_t at_ns, enum event_kind kind, size_t job)
{
    s->events[s->events_count++] = (struct event){at_ns, kind, job};
}

static int compare_events(const void *a, const void *b)
{
    const struct event *x = a, *y = b;

    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

static int schedule(struct simulation *s)
{
    for (size_t i = 0; i < s->workload->count; i++) {
        const struct workload_job *job = &s->workload->jobs[i];
        int r = find_profile(s, job, &s->profile_of[i]);

        if (r < 0)
            return r;
        if (job->end_ns <= job->submit_ns)
            continue;
        s->starts_ns[i] = job->submit_ns;
        add_event(s, job->submit_ns, EVENT_ARRIVE, i);
        add_event(s, job->end_ns, EVENT_LEAVE, i);
        if (job->submit_ns + s->profiles[s->profile_of[i]].measuring_ns < job->end_ns)
            add_event(s, job->submit_ns + s->profiles[s->profile_of[i]].measuring_ns, EVENT_PLACE,
                      i);
    }
    qsort(s->events, s->events_count, sizeof(*s->events), compare_events);
    return 0;
}

static int simulation_init(struct simulation *s)
{
    size_t jobs = s->workload->count;

    s->profile_of = calloc(jobs + 1, sizeof(*s->profile_of));
    s->events = calloc(3 * jobs + 1, sizeof(*s->events));
    s->starts_ns = calloc(jobs + 1, sizeof(*s->starts_ns));
    s->is_refused = calloc(jobs + 1, sizeof(*s->is_refused));
    s->sums = calloc(jobs + 1, sizeof(*s->sums));
    if (!s->profile_of || !s->events || !s->starts_ns || !s->is_refused || !s->sums)
        return -ENOMEM;
    return cluster_init(&s->cluster, s->setting, jobs);
}

static void simulation_fini(struct simulation *s)
{
    cluster_fini(&s->cluster);
    for (size_t i = 0; i < s->profiles_count; i++)
        job_profile_fini(&s->profiles[i]);
    free(s->profiles);
    free(s->profile_of);
    free(s->events);
    free(s->starts_ns);
    free(s->is_refused);
    free(s->sums);
}

/* --- passing of time --- */

static void advance(struct simulation *s, uint64_t to_ns)
{
    double hours = (double)(to_ns - s->now_ns) / (double)NS_PER_HOUR;
    double cores = (double)s->cluster.lanes_open + s->own_lanes;

    s->result.allocated += cores * hours;
    s->result.measuring += s->own_lanes * hours;
    s->result.peak = fmax(s->result.peak, cores);
    s->present.allocated = cores;
    if (s->trail)
        trail_add(s->trail, s->workload->end_ns, s->now_ns, to_ns, &s->present);
    s->now_ns = to_ns;
}

/* Returns the time of a window. The run is divided into as many equal parts as there are windows.
 * Each part has one window at a random time. */
static uint64_t window_ns(const struct simulation *s, uint32_t window)
{
    uint64_t state = chance_hash(s->setting->seed, UINT64_C(1) << 32 | window);
    double part_ns = (double)s->workload->end_ns / s->setting->windows;

    return (uint64_t)((window + chance_unit(&state)) * part_ns);
}

static int look_until(struct simulation *s, uint64_t to_ns)
{
    for (; s->window < s->setting->windows && window_ns(s, s->window) < to_ns; s->window++) {
        int r;

        advance(s, window_ns(s, s->window));
        r = window_look(&s->cluster, s->starts_ns, s->now_ns, s->window, s->sums);
        if (r < 0)
            return r;
        s->result.windows++;
    }
    return 0;
}

/* --- events --- */

static const struct job_profile *profile_of(const struct simulation *s, size_t job)
{
    return &s->profiles[s->profile_of[job]];
}

static double used_by(const struct simulation *s, size_t job)
{
    const struct job_profile *profile = profile_of(s, job);

    return (double)profile->lane_ns / (double)profile->timing.period_ns;
}

static void arrive(struct simulation *s, size_t job)
{
    const struct workload_job *work = &s->workload->jobs[job];
    double hours = (double)(work->end_ns - work->submit_ns) / (double)NS_PER_HOUR;

    s->own_lanes += work->workers;
    s->result.dedicated += work->workers * hours;
    s->result.fluid += used_by(s, job) * hours;
    s->present.dedicated += work->workers;
    s->present.fluid += used_by(s, job);
}

static int place(struct simulation *s, size_t job)
{
    int r = cluster_place(&s->cluster, job, profile_of(s, job));

    if (r == -ENOSPC) {
        s->is_refused[job] = true; /* the job keeps the lanes of its measurement */
        s->result.refused++;
        return 0;
    }
    if (r < 0)
        return r;
    s->own_lanes -= s->workload->jobs[job].workers;
    s->result.placed++;
    return 0;
}

static int leave(struct simulation *s, size_t job)
{
    s->present.dedicated -= s->workload->jobs[job].workers;
    s->present.fluid -= used_by(s, job);
    if (!s->cluster.jobs[job].is_placed) {
        s->own_lanes -= s->workload->jobs[job].workers;
        s->result.brief += !s->is_refused[job];
        return 0;
    }
    cluster_remove(&s->cluster, job);
    return s->setting->moves ? cluster_consolidate(&s->cluster) : 0;
}

static int handle(struct simulation *s, const struct event *event)
{
    switch (event->kind) {
    case EVENT_ARRIVE: arrive(s, event->job); return 0;
    case EVENT_PLACE: return place(s, event->job);
    default: return leave(s, event->job);
    }
}

/* Handles the event, and counts the opened lanes, the closed lanes, and the moves. */
static int handle_noted(struct simulation *s, const struct event *event)
{
    size_t open = s->cluster.lanes_open;
    uint64_t moves = s->cluster.moves;
    int r = handle(s, event);
    struct trail_span change = {.moves = s->cluster.moves - moves};

    if (s->cluster.lanes_open > open)
        change.opened = s->cluster.lanes_open - open;
    else
        change.closed = open - s->cluster.lanes_open;
    if (s->trail)
        trail_count(s->trail, s->workload->end_ns, event->at_ns, &change);
    return r;
}

static int run_clock(struct simulation *s)
{
    int r = 0;

    for (size_t i = 0; i < s->events_count && r == 0; i++) {
        r = look_until(s, s->events[i].at_ns);
        if (r < 0)
            return r;
        advance(s, s->events[i].at_ns);
        r = handle_noted(s, &s->events[i]);
        if (r < 0)
            memcpy(s->error, s->cluster.reason, sizeof(s->cluster.reason));
    }
    return r == 0 ? look_until(s, UINT64_MAX) : r;
}

/* --- the result --- */

static int compare_losses(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void add_job(struct simulated *result, const struct window_sums *sums, double limit,
                    double *ret_loss)
{
    double loss = sums->loss / sums->windows, predicted = sums->predicted / sums->windows;

    result->sampled++;
    result->within_limit += loss <= limit;
    result->loss_mean += loss;
    result->loss_predicted += predicted;
    result->loss_own += sums->own / sums->windows;
    result->loss_counted += sums->counted / sums->windows;
    result->predicted_near += fabs(loss - predicted) <= NEAR;
    *ret_loss = loss;
}

static int sum_up(struct simulation *s)
{
    struct simulated *result = &s->result;
    double *losses = calloc(s->workload->count + 1, sizeof(*losses)), count;

    if (!losses)
        return -ENOMEM;
    for (size_t i = 0; i < s->workload->count; i++)
        if (s->sums[i].windows > 0)
            add_job(result, &s->sums[i], s->setting->loss_limit_ppm / 1e6,
                    &losses[result->sampled]);
    result->hours = (double)s->workload->end_ns / (double)NS_PER_HOUR;
    result->moves = s->cluster.moves;
    if (result->sampled > 0) {
        count = (double)result->sampled;
        qsort(losses, result->sampled, sizeof(*losses), compare_losses);
        result->loss_worst = losses[result->sampled - 1];
        result->loss_p99 = losses[(size_t)ceil(0.99 * count) - 1];
        result->within_limit /= count;
        result->loss_mean /= count;
        result->loss_predicted /= count;
        result->loss_counted /= count;
        result->loss_own /= count;
        result->predicted_near /= count;
    }
    free(losses);
    return 0;
}

/* Stores the losses of each job with a window, in the order of the workload. */
static int keep_jobs(const struct simulation *s, struct trail *trail)
{
    trail->jobs = calloc(s->workload->count + 1, sizeof(*trail->jobs));
    if (!trail->jobs)
        return -ENOMEM;
    for (size_t i = 0; i < s->workload->count; i++)
        if (s->sums[i].windows > 0)
            trail->jobs[trail->jobs_count++] = (struct trail_job){
                i, s->sums[i].loss / s->sums[i].windows, s->sums[i].predicted / s->sums[i].windows,
                (double)profile_of(s, i)->timing.period_ns};
    return 0;
}

int simulate(const struct workload *workload, const struct setting *setting, struct trail *trail,
             struct simulated *ret_result, char *error)
{
    struct simulation s = {
        .workload = workload, .setting = setting, .trail = trail, .error = error};
    int r;

    error[0] = 0;
    r = simulation_init(&s);
    if (r == 0)
        r = schedule(&s);
    if (r == 0)
        r = run_clock(&s);
    if (r == 0)
        r = sum_up(&s);
    if (r == 0 && trail)
        r = keep_jobs(&s, trail);
    if (r == -ENOMEM)
        snprintf(error, TABLE_ERROR_BYTES, "no memory");
    if (r == 0)
        *ret_result = s.result;
    simulation_fini(&s);
    return r;
}
