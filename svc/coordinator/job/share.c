/* Shares of lanes. Owns struct share and the sums of each lane (jobs, pieces, bytes). Therefore
 * only this file attaches pieces to lanes and detaches them. */
#include "svc/coordinator/job/share.h"

#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/service.h"

#include <stdlib.h>

struct share *jobs_share(struct job *job, struct lane *lane)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane == lane)
            return &job->shares[i];
    struct share *grown = realloc(job->shares, (job->shares_count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    job->shares = grown;
    grown[job->shares_count] = (struct share){.lane = lane, .since_ns = clock_now_ns()};
    return &grown[job->shares_count++];
}

const WIRE(JobUse) * jobs_use_of(const struct job *job, const struct share *share)
{
    bool is_current = share->lane->aggregator->measured_ns >= share->since_ns;
    return is_current ? stats_of_job(share->lane, job->id) : NULL;
}

/* Adds the counters of an ended share to the job's sums, so that a job's totals never decrease
 * (K15). */
static void leave(struct job *job, const struct share *share)
{
    const WIRE(JobUse) *use = jobs_use_of(job, share);
    if (!use)
        return;
    job->left->rounds += use->rounds;
    job->left->pushed_bytes += use->pushed_bytes;
    job->left->busy_ns += use->busy_ns;
    job->left->queue_ns += use->queue_ns;
    job->left->handled_ns += use->handled_ns;
    job->left->stalled_ns += use->stalled_ns;
}

const struct share *share_in_use(const struct job *job, const struct lane *lane)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane == lane && job->shares[i].pieces > 0)
            return &job->shares[i];
    return NULL;
}

bool share_takes_workers(const struct job *job, const struct lane *lane)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane == lane)
            return true;
    return false;
}

void jobs_forget_share(struct job *job, const struct lane *lane)
{
    size_t kept = 0;
    for (size_t i = 0; i < job->shares_count; i++) {
        if (job->shares[i].lane != lane)
            job->shares[kept++] = job->shares[i];
        else
            leave(job, &job->shares[i]);
    }
    job->shares_count = kept;
}

void jobs_forget_shares(struct job *job, const struct aggregator *a)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        jobs_forget_share(job, &a->lanes[i]);
}

void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane)
{
    struct share *share = jobs_share(tensor->job, lane);
    uint64_t bytes = tensor_bytes(tensor, piece->elements);
    if (!share)
        /* until the retry the piece stays stranded */
        return service_retry_later(tensor->job->service);
    lane->jobs += share->pieces == 0;
    lane->pieces++;
    lane->ranks += tensor->job->workers;
    lane->load_bytes += bytes;
    share->pieces++;
    share->bytes += bytes;
    piece->lane = lane;
    piece->state = PIECE_PLACED;
}

void piece_detach(struct tensor *tensor, struct piece *piece)
{
    if (!piece->lane)
        return;
    struct share *share = jobs_share(tensor->job, piece->lane);
    uint64_t bytes = tensor_bytes(tensor, piece->elements);
    share->pieces--;
    share->bytes -= bytes;
    piece->regroups = false; /* the next lane receives the piece without a release */
    piece->lane->load_bytes -= bytes;
    piece->lane->pieces--;
    piece->lane->ranks -= tensor->job->workers;
    if (share->pieces == 0 && piece->lane->jobs-- > 1)
        piece->lane->shared_ns = clock_now_ns();
    piece->lane = NULL;
    piece->state = PIECE_STRANDED;
}
