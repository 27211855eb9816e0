/* Owns the input of one event simulation. Must never change the cluster. The two losses must stay
 * independent: the measured loss uses no formula, the predicted loss no events. */
#include "bench/sim/lanes/loss_window.h"

#include "bench/sim/chance.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define WARM_ROUNDS 2
#define ROUNDS_MIN 5 /* smallest number of rounds in a meaningful window */

struct window {
    const struct cluster *cluster;
    uint64_t seed;
    size_t count; /* number of placed jobs */
    size_t *ids;
    struct queue_job *jobs;
    struct queue_outcome *outcomes;
    struct queue_piece *pieces; /* pieces of all jobs */
};

/* Losses of a job by formulas: the largest loss over the job's lanes. */
struct formulas {
    double predicted, counted;
};

/* Returns the time from now to the next round of a job. Jitter changes each period a little, so the
 * phase of the rounds is a random walk since the start of the job. */
static double next_start_ns(const struct cluster_job *job, uint64_t age_ns, uint64_t seed)
{
    double period_ns = (double)job->timing.period_ns;
    double rounds = (double)age_ns / period_ns;
    double walked_ns = job->profile->deviation_ns * sqrt(rounds) * chance_normal(&seed);
    double phase_ns = fmod((double)age_ns + walked_ns, period_ns);

    return phase_ns < 0 ? -phase_ns : period_ns - phase_ns;
}

static int window_init(struct window *w, const struct cluster *cluster)
{
    size_t pieces = 0, jobs = 0;

    for (size_t i = 0; i < cluster->jobs_count; i++) {
        pieces += cluster->jobs[i].count;
        jobs += cluster->jobs[i].is_placed;
    }
    w->cluster = cluster;
    w->ids = calloc(jobs + 1, sizeof(*w->ids));
    w->jobs = calloc(jobs + 1, sizeof(*w->jobs));
    w->outcomes = calloc(jobs + 1, sizeof(*w->outcomes));
    w->pieces = calloc(pieces + 1, sizeof(*w->pieces));
    return w->ids && w->jobs && w->outcomes && w->pieces ? 0 : -ENOMEM;
}

static void window_fini(struct window *w)
{
    free(w->ids);
    free(w->jobs);
    free(w->outcomes);
    free(w->pieces);
}

static void add_jobs(struct window *w, const uint64_t *starts_ns, uint64_t now_ns)
{
    struct queue_piece *pieces = w->pieces;

    for (size_t id = 0; id < w->cluster->jobs_count; id++) {
        const struct cluster_job *job = &w->cluster->jobs[id];
        struct queue_job *queued = &w->jobs[w->count];

        if (!job->is_placed)
            continue;
        *queued = job_profile_queue_job(job->profile);
        queued->seed = chance_hash(w->seed, id);
        queued->start_ns =
            next_start_ns(job, now_ns - starts_ns[id], chance_hash(queued->seed, UINT64_MAX));
        queued->pieces = pieces;
        queued->pieces_count = job->count;
        job_profile_to_queue(job->profile, job->pieces, job->count, pieces);
        pieces += job->count;
        w->ids[w->count++] = id;
    }
}

static int predict_lane(const struct cluster *cluster, const struct cluster_lane *lane,
                        struct formulas *ret_jobs)
{
    const char *policy = cluster->setting->policy;
    double *predicted = calloc(2 * lane->count + 1, sizeof(*predicted));
    double *counted = predicted + lane->count;
    int r = predicted ? packer_predict(policy, lane->residents, lane->count, predicted) : -ENOMEM;

    if (r == 0)
        r = packer_losses(policy, lane->residents, lane->count, counted);
    for (size_t k = 0; k < lane->count && r == 0; k++) {
        struct formulas *job = &ret_jobs[lane->residents[k].job];

        job->predicted = fmax(job->predicted, predicted[k]);
        job->counted = fmax(job->counted, counted[k]);
    }
    free(predicted);
    return r;
}

static int predict(const struct cluster *cluster, struct formulas *ret_jobs)
{
    int r = 0;

    for (size_t i = 0; i < cluster->lanes_count && r == 0; i++)
        r = predict_lane(cluster, &cluster->lanes[i], ret_jobs);
    return r;
}

/* Simulates the same rounds with the same jitter three times: on as many lanes as workers, on the
 * job's lanes without other jobs, and with other jobs. */
static int measure_loss(const struct window *w, size_t at, struct window_sums *sums)
{
    const struct job_profile *profile = w->cluster->jobs[w->ids[at]].profile;
    const struct queue_outcome *outcome = &w->outcomes[at];
    struct queue_job alone = w->jobs[at];
    double dedicated_ns, own_ns;
    int r = queue_alone(&alone, outcome->first, outcome->count, &own_ns, NULL);

    alone.pieces = profile->dedicated;
    alone.pieces_count = profile->dedicated_count;
    if (r == 0)
        r = queue_alone(&alone, outcome->first, outcome->count, &dedicated_ns, NULL);
    if (r < 0)
        return r;
    sums->loss += 1 - dedicated_ns / outcome->elapsed_ns;
    sums->own += 1 - dedicated_ns / own_ns;
    return 0;
}

static int add_up(const struct window *w, const struct formulas *of, struct window_sums *sums)
{
    for (size_t i = 0; i < w->count; i++) {
        size_t id = w->ids[i];
        int r;

        if (w->outcomes[i].count < ROUNDS_MIN)
            continue;
        r = measure_loss(w, i, &sums[id]);
        if (r < 0)
            return r;
        sums[id].windows++;
        sums[id].predicted += of[id].predicted;
        sums[id].counted += of[id].counted;
    }
    return 0;
}

int window_look(const struct cluster *cluster, const uint64_t *starts_ns, uint64_t now_ns,
                uint32_t number, struct window_sums *sums)
{
    const struct setting *s = cluster->setting;
    struct window w = {.seed = chance_hash(s->seed, number)};
    struct formulas *formulas = calloc(cluster->jobs_count + 1, sizeof(*formulas));
    int r = formulas ? window_init(&w, cluster) : -ENOMEM;

    if (r == 0)
        r = predict(cluster, formulas);
    if (r == 0) {
        add_jobs(&w, starts_ns, now_ns);
        r = queue_run(w.jobs, w.count, job_profile_chunk_ns(s), s->window_s * 1e9, WARM_ROUNDS,
                      w.outcomes);
    }
    if (r == 0)
        r = add_up(&w, formulas, sums);
    free(formulas);
    window_fini(&w);
    return r;
}
