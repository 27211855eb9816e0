/* Lists the measured jobs on each lane. Owns nothing and changes nothing. The list is sorted by
 * lane and job, so sums are reproducible (P1 of packer). */
#include "svc/coordinator/placement/neighbour.h"

#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

#define JOB_IDLE_NS (60 * NS_PER_S)
#define LIMIT_NONE_PPM 999999

struct neighbour_row {
    uint32_t lane;
    struct packer_resident job;
};

static int compare_rows(const void *a, const void *b)
{
    const struct neighbour_row *left = a, *right = b;
    if (left->lane != right->lane)
        return left->lane < right->lane ? -1 : 1;
    return left->job.job < right->job.job ? -1 : left->job.job > right->job.job;
}

uint32_t job_limit_ppm(const struct job *job)
{
    uint32_t service_ppm = job->service->options->loss_limit_ppm,
             tenant_ppm = job->tenant->loss_limit_ppm;
    bool is_named = service_ppm || tenant_ppm || job->terms->loss_limit_ppm;
    return is_named ? packer_loss_limit_ppm(service_ppm, tenant_ppm, job->terms->loss_limit_ppm)
                    : 0;
}

struct packer_timing job_timing(const struct job *job)
{
    struct profile_times known = profile_known(job->profile);
    return (struct packer_timing){.period_ns = known.period_ns,
                                  .spread_ns = known.busiest_ns,
                                  .span_ns = known.span_ns,
                                  .burst_ns = known.burst_ns,
                                  .slack_ns = known.slack_ns,
                                  .spent_ppm = job->profile->narrow.spent_ppm,
                                  .loss_limit_ppm = job_limit_ppm(job)};
}

/* Sums the lane times of the job's shares. `gradpool jobs` and `gradpool explain` show these lane
 * times as rows, so the shown total equals the sum of the rows (K15). */
uint64_t job_lane_ns(const struct job *job)
{
    uint64_t known_ns = profile_known(job->profile).lanes_ns, sum_ns = 0;
    for (size_t i = 0; i < job->shares_count && known_ns > 0; i++)
        sum_ns += job->shares[i].pieces ? job->shares[i].lane_ns : 0;
    return sum_ns ? sum_ns : known_ns;
}

uint64_t job_tensors_ns(const struct job *job)
{
    uint64_t lanes_ns = profile_known(job->profile).lanes_ns, rows_ns = 0;
    for (size_t i = 0; i < job->shares_count; i++)
        rows_ns += share_rows_ns(job, &job->shares[i]);
    return lanes_ns > rows_ns ? lanes_ns - rows_ns : 0;
}

bool job_knows_shared_loss(const struct job *job)
{
    if (job->profile->now.period_ns == 0)
        return false;
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].pieces > 0 && job->shares[i].handled_ns > 0)
            return true;
    return false;
}

uint32_t job_shared_loss_ppm(const struct job *job)
{
    uint32_t loss_ppm = profile_loss_ppm(job->profile);
    uint64_t behind_ns = 0;
    for (size_t i = 0; i < job->shares_count; i++) {
        const struct share *share = &job->shares[i];
        behind_ns += share->pieces > 0 && share->lane->jobs > 1 ? share->behind_ns : 0;
    }
    if (loss_ppm == 0)
        return 0;
    double shared = (double)behind_ns * 1e6 / (double)job->profile->now.period_ns;
    return shared < loss_ppm ? (uint32_t)shared : loss_ppm;
}

static size_t count_shares(const struct service *s)
{
    size_t count = 0;
    list_for_each (node, &s->jobs)
        count += list_entry(node, struct job, link)->shares_count;
    return count;
}

bool job_is_idle(const struct job *job)
{
    uint64_t idle_ns = job->service->options->idle_ns;
    /* lanes do not measure pulls, so a job that only pulls rows is never counted as idle */
    if (job->index->tables.count > 0 && job->profile->now.period_ns == 0)
        return false;
    return clock_now_ns() - job->figures->trained_ns > (idle_ns ? idle_ns : JOB_IDLE_NS);
}

/* An idle job that was never measured needs no lane time and has no limit, so its period may have
 * any value. An idle job that was measured keeps its loss limit, because it may continue to
 * train. */
struct packer_timing job_resident_timing(const struct job *job)
{
    struct packer_timing timing = job_timing(job);
    if (timing.period_ns == 0 && job_is_idle(job))
        timing = (struct packer_timing){.period_ns = NS_PER_S, .loss_limit_ppm = LIMIT_NONE_PPM};
    return timing;
}

/* Returns whether growth is testing how many lanes the job needs. During the test no other job is
 * placed on these lanes (G12 of packer). */
static bool is_tried(const struct job *job)
{
    return job->growth->memory.narrowed > 0 && job->growth->memory.narrowed < SCALE_ALONE_WINDOWS;
}

static size_t add_job(const struct job *job, struct neighbour_row *rows)
{
    if (is_tried(job))
        return 0;
    struct packer_timing timing = job_resident_timing(job);
    bool is_known = job_timing(job).period_ns > 0;
    size_t count = 0;
    for (size_t i = 0; i < job->shares_count && timing.period_ns > 0; i++) {
        const struct share *share = &job->shares[i];
        if (share->pieces > 0)
            rows[count++] = (struct neighbour_row){
                share->lane->id,
                {.job = job->id, .lane_ns = is_known ? share->lane_ns : 0, .timing = timing}};
    }
    return count;
}

int residents_gather(const struct service *s, const struct job *except,
                     struct residents *ret_residents)
{
    size_t most = count_shares(s) + 1;
    struct neighbour_row *rows = calloc(most, sizeof *rows);
    struct residents r = {.lanes = calloc(most, sizeof *r.lanes),
                          .jobs = calloc(most, sizeof *r.jobs)};
    if (!rows || !r.lanes || !r.jobs) {
        free(rows);
        residents_free(&r);
        return -ENOMEM;
    }
    list_for_each_entry (const struct job, job, &s->jobs, link)
        if (job != except)
            r.count += add_job(job, rows + r.count);
    qsort(rows, r.count, sizeof *rows, compare_rows);
    for (size_t i = 0; i < r.count; i++) {
        r.lanes[i] = rows[i].lane;
        r.jobs[i] = rows[i].job;
    }
    free(rows);
    *ret_residents = r;
    return 0;
}

int residents_predict(const struct service *s, struct residents *r)
{
    double none;
    bool has_rule = packer_losses(s->options->policy, r->jobs, 0, &none) == 0;
    const char *policy = has_rule ? s->options->policy : "shared";
    r->losses = calloc(r->count + 1, sizeof *r->losses);
    if (!r->losses)
        return -ENOMEM;
    for (size_t first = 0, end; first < r->count; first = end) {
        for (end = first; end < r->count && r->lanes[end] == r->lanes[first];)
            end++;
        packer_predict(policy, r->jobs + first, end - first, r->losses + first);
    }
    return 0;
}

void residents_free(struct residents *r)
{
    free(r->lanes);
    free(r->jobs);
    free(r->losses);
    *r = (struct residents){0};
}

size_t residents_of_lane(const struct residents *r, uint32_t lane, size_t *ret_first)
{
    size_t low = 0, high = r->count, end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->lanes[middle] < lane)
            low = middle + 1;
        else
            high = middle;
    }
    for (end = low; end < r->count && r->lanes[end] == lane;)
        end++;
    *ret_first = low;
    return end - low;
}

uint32_t residents_loss_ppm(const struct residents *r, uint32_t job_id, uint32_t lane)
{
    double worst = 0;
    for (size_t i = 0; r->losses && i < r->count; i++)
        if (r->jobs[i].job == job_id && (lane == 0 || r->lanes[i] == lane) && r->losses[i] > worst)
            worst = r->losses[i];
    return (uint32_t)(worst * 1e6);
}

bool residents_predicted(const struct residents *r, const struct job *job)
{
    if (!r->losses || job_timing(job).period_ns == 0)
        return false;
    for (size_t i = 0; i < r->count; i++)
        if (r->jobs[i].job == job->id)
            return true;
    return false;
}
