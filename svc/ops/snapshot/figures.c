/* Table of a job's values, and values as text. An unknown value is never shown as a number (O4). */
#include "svc/ops/snapshot/figures.h"

#include "svc/base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double workers(const struct view_job *job) { return job->workers; }
static double rounds(const struct view_job *job) { return job->rate.rounds_per_s; }
static double bytes(const struct view_job *job) { return job->rate.bytes_per_s; }
static double allocated(const struct view_job *job) { return job->cores_allocated; }
static double used(const struct view_job *job) { return job->rate.cores; }
static double known_s(uint64_t ns) { return ns ? (double)ns / 1e9 : NAN; }
static double period(const struct view_job *job) { return known_s(job->period_ns); }
static double alone(const struct view_job *job) { return known_s(job->alone_period_ns); }
static double lane_time(const struct view_job *job) { return known_s(job->lane_ns); }
double job_loss(const struct view_job *job)
{
    return job->period_ns && job->alone_period_ns ? job->loss_ppm / 1e6 : NAN;
}
double job_shared_loss(const struct view_job *job)
{
    return isnan(job_loss(job)) ? NAN : job->shared_loss_ppm / 1e6;
}
static double by_itself(const struct view_job *job) { return job_loss(job) - job_shared_loss(job); }
static double known_ratio(uint32_t ppm) { return ppm ? ppm / 1e6 : NAN; }
static double predicted(const struct view_job *job)
{
    return job->is_predicted ? job->predicted_loss_ppm / 1e6 : NAN;
}
static double limit(const struct view_job *job) { return known_ratio(job->loss_limit_ppm); }
double job_dedicated(const struct view_job *job) { return job->workers > 1 ? job->workers : 0; }
static double saved(const struct view_job *job)
{
    return job_dedicated(job) - job->cores_allocated;
}

const struct figure job_figures[] = {
    {"workers", "WORKERS",
     "Workers of the job. With two or more workers, dedicated servers would use this number of "
     "cores.",
     FIGURE_COUNT, true, workers},
    {"rounds_per_s", "ROUNDS/S", "Rounds a second, summed over all tensors of the job.",
     FIGURE_COUNT, false, rounds},
    {"bytes_per_s", "IN/S", "Gradient bytes that lanes read a second.", FIGURE_BYTES_PER_S, false,
     bytes},
    {"cores_allocated", "CORES", "The job's shares of the cores of its lanes.", FIGURE_CORES, true,
     allocated},
    {"cores_used", "USED", "Seconds per second that lanes work for the job.", FIGURE_CORES, true,
     used},
    {"cores_saved", "SAVED", "Cores of dedicated servers for the job, minus its allocated cores.",
     FIGURE_CORES, true, saved},
    {"period_seconds", "PERIOD", "Present time of a round of the whole job.", FIGURE_SECONDS, true,
     period},
    {"alone_period_seconds", "ALONE",
     "Time of a round of the whole job while no other job was "
     "on its lanes.",
     FIGURE_SECONDS, true, alone},
    {"lane_seconds", "LANE TIME", "Lane time of a round, summed over the job's lanes.",
     FIGURE_SECONDS, true, lane_time},
    {"loss_ratio", "LOSS", "Slow-down against running alone: 1 - alone_period / period.",
     FIGURE_RATIO, true, job_loss},
    {"shared_loss_ratio", "BY LANES",
     "Part of the loss that is caused by waiting for other jobs "
     "on lanes.",
     FIGURE_RATIO, true, job_shared_loss},
    {"own_loss_ratio", "OWN",
     "Part of the loss with other causes than lanes: compute, a busy host, the network.",
     FIGURE_RATIO, true, by_itself},
    {"predicted_loss_ratio", "PREDICTED",
     "Loss that the packer predicts for the job beside the "
     "other jobs on its lanes.",
     FIGURE_RATIO, true, predicted},
    {"loss_limit_ratio", "LIMIT", "Smallest loss limit that applies to the job.", FIGURE_RATIO,
     true, limit},
    {0},
};

bool figure_is_known(const struct figure *figure, const struct view_jobs *jobs)
{
    for (size_t i = 0; i < jobs->jobs_count; i++)
        if (!isnan(figure->value(&jobs->jobs[i])))
            return true;
    return false;
}

static void seconds_text(double seconds, char *buffer)
{
    if (seconds < 1e-3)
        snprintf(buffer, FIGURE_BYTES, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(buffer, FIGURE_BYTES, "%.3g ms", seconds * 1e3);
    else
        snprintf(buffer, FIGURE_BYTES, "%.3g s", seconds);
}

const char *figure_text(enum figure_unit unit, double value, char buffer[FIGURE_BYTES])
{
    char amount[32];
    snprintf(buffer, FIGURE_BYTES, "-");
    if (!isfinite(value))
        return buffer;
    switch (unit) {
    case FIGURE_COUNT: snprintf(buffer, FIGURE_BYTES, "%.0f", value); break;
    case FIGURE_CORES: snprintf(buffer, FIGURE_BYTES, "%.2f", value); break;
    case FIGURE_SECONDS: seconds_text(value, buffer); break;
    case FIGURE_RATIO: snprintf(buffer, FIGURE_BYTES, "%.1f %%", value * 100); break;
    case FIGURE_BYTES_PER_S:
        snprintf(buffer, FIGURE_BYTES, "%s/s",
                 text_bytes(value > 0 ? (uint64_t)value : 0, amount, sizeof amount));
        break;
    }
    return buffer;
}

const char *job_label(const struct view_job *job, char buffer[JOB_LABEL_BYTES])
{
    bool is_local = !job->tenant || !*job->tenant;
    snprintf(buffer, JOB_LABEL_BYTES, "%s%s%s", is_local ? "" : job->tenant, is_local ? "" : "/",
             job->job);
    return buffer;
}

/* Returns the part that comes after `last` when parts are sorted by falling share, or NULL. Parts
 * with equal shares keep their order. */
static const struct view_part *next_part(const struct view_lane *lane, const struct view_part *last)
{
    const struct view_part *best = NULL;
    for (size_t i = 0; i < lane->parts_count; i++) {
        const struct view_part *part = &lane->parts[i];
        bool is_shown =
            last && (part->share > last->share || (part->share == last->share && part <= last));
        if (!isnan(part->share) && !is_shown && (!best || part->share > best->share))
            best = part;
    }
    return best;
}

const char *shares_text(const struct snapshot *s, const struct view_lane *lane,
                        char buffer[SHARES_BYTES])
{
    const struct view_part *part = NULL;
    size_t shown = 0;
    *buffer = '\0';
    while (shown < SHARES_SHOWN && (part = next_part(lane, part))) {
        char label[JOB_LABEL_BYTES];
        const struct view_job *job = snapshot_job(s, part->job_id);
        text_append(buffer, SHARES_BYTES, "%s%s %.0f %%", shown++ ? ", " : "",
                    job ? job_label(job, label) : "other", part->share * 100);
    }
    if (shown == 0 && lane->parts_count > 0)
        text_append(buffer, SHARES_BYTES, "%zu job%s", lane->parts_count,
                    text_plural(lane->parts_count));
    else if (lane->parts_count > shown)
        text_append(buffer, SHARES_BYTES, ", %zu more", lane->parts_count - shown);
    return buffer;
}

double cores_saved(const struct view_cores *cores)
{
    return cores->dedicated > 0 ? cores->dedicated - cores->allocated : NAN;
}

bool lane_is_allocated(const struct view_lane *lane)
{
    bool is_closed = strcmp(lane->state, "parked") == 0 || strcmp(lane->state, "withheld") == 0;
    return !is_closed || lane->tasks > 0;
}

const char *lane_state_text(const struct view_aggregator *a, const struct view_lane *lane)
{
    bool is_closed = lane->state && *lane->state && strcmp(lane->state, "open") != 0;
    return is_closed && strcmp(a->state, "up") == 0 ? lane->state : a->state;
}
