/* Owns the profile of one kind of job (model, workers). Must never use the packer's formula: all
 * times come from the event simulation, as the times in a service come from clocks. */
#include "bench/sim/lanes/job_profile.h"

#include "bench/sim/chance.h"
#include "bench/sim/input/csv.h"
#include "packer/profile/narrow.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((double)(1 << 30))
/* part of a step that is the forward pass; the backward pass takes twice as long */
#define FORWARD_PART (1.0 / 3)
/* number of simulated rounds; the service measures 20, and refines its mean with later rounds */
#define ROUNDS 100
/* 5 rounds of warm-up and 20 counted rounds; the job keeps its lanes during these rounds */
#define MEASURED_ROUNDS 25
/* time for which a job keeps its lanes before growth tries fewer lanes (G5, G12 of packer) */
#define HOLD_NS UINT64_C(30000000000)
#define TRIED_ROUNDS 50
/* Shortest length of a trial: its move, 3 windows to settle, and 2 more windows. */
#define TRIED_NS UINT64_C(6000000000)
#define CHUNK_BYTES (2 << 20) /* size of a chunk: 512 KiB of each of four workers */

static double lane_ns_of(const struct job_profile *profile, uint64_t elements)
{
    const struct setting *s = profile->setting;

    return (double)elements * s->element_bytes * profile->workers / (s->x_gib_per_s * GIB) * 1e9;
}

double job_profile_chunk_ns(const struct setting *setting)
{
    return CHUNK_BYTES / (setting->x_gib_per_s * GIB) * 1e9;
}

uint64_t job_profile_piece_ns(const struct job_profile *profile, const struct packer_piece *piece)
{
    double ns = lane_ns_of(profile, piece->elements);

    return ns < 1 ? 1 : (uint64_t)ns;
}

void job_profile_to_queue(const struct job_profile *profile, const struct packer_piece *pieces,
                          size_t count, struct queue_piece *ret_pieces)
{
    const struct setting *s = profile->setting;
    double line_bytes_per_ns = s->line_gbit_per_s / 8;

    for (size_t i = 0; i < count; i++) {
        const struct model_tensor *tensor = &profile->model->tensors[pieces[i].tensor];
        double wire_ns = (double)pieces[i].elements * s->element_bytes / line_bytes_per_ns;

        ret_pieces[i] = (struct queue_piece){
            .lane = pieces[i].lane,
            .ready = s->overlaps ? tensor->ready : 1,
            .wire_ns = wire_ns,
            .lane_ns = fmax((double)job_profile_piece_ns(profile, &pieces[i]),
                            wire_ns * profile->workers / SETTING_LANE_LINES),
        };
    }
}

struct queue_job job_profile_queue_job(const struct job_profile *profile)
{
    double step_ns = profile->model->step_ns;

    return (struct queue_job){
        .forward_ns = step_ns * FORWARD_PART,
        .backward_ns = step_ns * (1 - FORWARD_PART),
        .jitter = profile->setting->jitter,
        .workers = profile->workers,
        .seed = profile->setting->seed,
    };
}

static int make_tensors(struct job_profile *profile)
{
    const struct model *model = profile->model;
    const struct setting *s = profile->setting;
    uint64_t most = s->piece_bytes_max ? s->piece_bytes_max : PACKER_PIECE_BYTES_MAX, bytes = 0;

    profile->tensors_count = model->tensors_count;
    profile->tensors = calloc(model->tensors_count, sizeof(*profile->tensors));
    if (!profile->tensors)
        return -ENOMEM;
    for (size_t i = 0; i < model->tensors_count; i++) {
        uint64_t elements = model->tensors[i].elements;
        struct packer_piece whole = {.tensor = (uint32_t)i, .elements = elements};

        profile->tensors[i] = (struct packer_tensor){
            .id = (uint32_t)i,
            .elements = elements,
            .element_bytes = s->element_bytes,
            .lane_ns = job_profile_piece_ns(profile, &whole),
            .wire_bytes = 2 * profile->workers * elements * s->element_bytes,
        };
        profile->lane_ns += profile->tensors[i].lane_ns;
        bytes += profile->tensors[i].elements * profile->tensors[i].element_bytes;
    }
    profile->piece_bytes = packer_piece_bytes(most, bytes, profile->workers);
    return 0;
}

/* --- measurements on lanes of its own --- */

struct measurement {
    struct queue_piece *pieces;
    size_t count;
    double period_ns, deviation_ns, busiest_ns;
    struct queue_ending ending; /* end of a round on the busiest lane */
    double slack_ns;
};

static int place_alone(const struct job_profile *profile, uint32_t lanes_count,
                       struct packer_plan *ret_plan, char *error)
{
    struct packer_lane *lanes = calloc(lanes_count, sizeof(*lanes));
    struct packer_request request = {
        .policy = "dedicated",
        .workers = lanes_count,
        .lanes = lanes,
        .lanes_count = lanes_count,
        .tensors = profile->tensors,
        .tensors_count = profile->tensors_count,
        .piece_bytes_max = profile->piece_bytes,
    };
    int r;

    if (!lanes)
        return -ENOMEM;
    for (uint32_t i = 0; i < lanes_count; i++)
        lanes[i] = (struct packer_lane){
            .id = i, .memory_bytes = UINT64_MAX, .nic_bytes_per_s = UINT64_MAX};
    r = packer_place(&request, ret_plan, error, TABLE_ERROR_BYTES);
    free(lanes);
    return r;
}

static uint32_t find_busiest(const struct measurement *m, uint32_t lanes, double *ret_ns)
{
    uint32_t busiest = 0;

    *ret_ns = 0;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        double ns = 0;

        for (size_t i = 0; i < m->count; i++)
            ns += m->pieces[i].lane == lane ? m->pieces[i].lane_ns : 0;
        if (ns <= *ret_ns)
            continue;
        *ret_ns = ns;
        busiest = lane;
    }
    return busiest;
}

/* Measures the end of a round as the service does: from the times of one lane, because a lane does
 * not know the ends of other lanes. Rounds begin almost at the same time on all lanes. */
static int measure_ending(const struct queue_job *job, uint32_t lanes, uint32_t rounds,
                          struct measurement *m)
{
    struct queue_ending *endings = calloc(lanes, sizeof(*endings));
    int r = endings ? queue_endings(job, rounds, endings) : -ENOMEM;

    if (r == 0) {
        double longest_ns = 0;

        m->ending = endings[find_busiest(m, lanes, &m->busiest_ns)];
        for (uint32_t i = 0; i < lanes; i++)
            longest_ns = fmax(longest_ns, endings[i].span_ns);
        m->slack_ns = longest_ns - m->ending.span_ns;
    }
    free(endings);
    return r;
}

/* Measures the job on `lanes` lanes. Each number of lanes is measured in different rounds, as in
 * the service. */
static int measure(const struct job_profile *profile, uint32_t lanes, uint32_t rounds,
                   struct measurement *ret, char *error)
{
    struct packer_plan plan = {0};
    struct measurement m = {0};
    struct queue_job job = job_profile_queue_job(profile);
    job.seed = chance_hash(job.seed, lanes);
    int r = place_alone(profile, lanes, &plan, error);

    if (r < 0)
        return r;
    m.count = plan.pieces_count;
    m.pieces = calloc(m.count, sizeof(*m.pieces));
    r = m.pieces ? 0 : -ENOMEM;
    if (r == 0) {
        job_profile_to_queue(profile, plan.pieces, m.count, m.pieces);
        job.pieces = m.pieces;
        job.pieces_count = m.count;
        r = measure_ending(&job, lanes, rounds, &m);
    }
    if (r == 0) {
        r = queue_alone(&job, 0, rounds, &m.period_ns, &m.deviation_ns);
    }
    packer_plan_fini(&plan);
    if (r < 0) {
        free(m.pieces);
        return r;
    }
    m.period_ns /= rounds;
    *ret = m;
    return 0;
}

/* Sets the packer's spread and the end of a round. */
static void take_ending(struct packer_timing *timing, const struct measurement *m)
{
    timing->spread_ns = (uint64_t)m->busiest_ns;
    timing->span_ns = (uint64_t)m->ending.span_ns;
    timing->burst_ns = (uint64_t)m->ending.burst_ns;
    timing->slack_ns = (uint64_t)m->slack_ns;
}

static uint64_t trial_ns(double period_ns)
{
    uint64_t rounds_ns = (uint64_t)(TRIED_ROUNDS * period_ns);

    return rounds_ns > TRIED_NS ? rounds_ns : TRIED_NS;
}

/* Tries fewer lanes as the service does (R10, G12 of packer). */
static int try_fewer(struct job_profile *profile, char *error)
{
    struct packer_timing *timing = &profile->timing;
    struct narrow narrow;

    narrow_begin(&narrow, profile->workers);
    if (narrow_next(&narrow) > 0)
        profile->measuring_ns += HOLD_NS;
    while (narrow_next(&narrow) > 0) {
        struct measurement m;
        int r = measure(profile, narrow_next(&narrow), TRIED_ROUNDS, &m, error);

        if (r < 0)
            return r;
        free(m.pieces);
        profile->measuring_ns += trial_ns(m.period_ns);
        if (narrow_add(&narrow, timing->period_ns, (uint64_t)m.period_ns, timing->loss_limit_ppm))
            take_ending(timing, &m);
    }
    timing->spent_ppm = narrow.spent_ppm;
    return 0;
}

/* Measures first on as many lanes as workers (P12 of packer). */
static int make_timing(struct job_profile *profile, char *error)
{
    struct measurement m;
    int r = measure(profile, profile->workers, ROUNDS, &m, error);

    if (r < 0)
        return r;
    profile->dedicated = m.pieces;
    profile->dedicated_count = m.count;
    profile->deviation_ns = m.deviation_ns;
    profile->timing = (struct packer_timing){
        .period_ns = (uint64_t)m.period_ns,
        .loss_limit_ppm = profile->setting->loss_limit_ppm,
    };
    take_ending(&profile->timing, &m);
    if (profile->setting->is_known)
        return 0;
    profile->measuring_ns = (uint64_t)(MEASURED_ROUNDS * m.period_ns);
    return try_fewer(profile, error);
}

int job_profile_make(struct job_profile *profile, const struct model *model, uint32_t workers,
                     const struct setting *setting, char *error)
{
    int r;

    *profile = (struct job_profile){.model = model, .workers = workers, .setting = setting};
    snprintf(error, TABLE_ERROR_BYTES, "no memory to profile %s", model->name);
    r = make_tensors(profile);
    if (r == 0)
        r = make_timing(profile, error);
    if (r < 0)
        job_profile_fini(profile);
    return r;
}

void job_profile_fini(struct job_profile *profile)
{
    free(profile->tensors);
    free(profile->dedicated);
    memset(profile, 0, sizeof(*profile));
}
