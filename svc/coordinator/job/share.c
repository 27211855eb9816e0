/* Shares of lanes. Owns struct share, and each lane's numbers of jobs, pieces and bytes. Only this
 * file attaches pieces to lanes and detaches pieces, so these numbers are always correct. */
#include "svc/coordinator/job/share.h"

#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/job/counts.h"
#include "svc/coordinator/service.h"
#include "svc/reduce/reduce.h"
#include "svc/reduce/rows/rows.h"

#include <stdlib.h>

#define SHARD_ROW_BYTES 25u /* bytes of a row's key and of its entry in the index */
#define SHARD_BYTES_LEAST (UINT64_C(64) << 10)
/* upper limit of the bytes of a shard, because a user's hint may be any number */
#define SHARD_BYTES_MOST (UINT64_C(1) << 40)

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

/* Adds the counters of an ended share to the job's sums, so that the job's totals never decrease
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
    counts_leave(job, use->counts);
}

const struct share *share_in_use(const struct job *job, const struct lane *lane)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane == lane && job->shares[i].pieces > 0)
            return &job->shares[i];
    return NULL;
}

/* Sums over the present pieces and shards of a job on one lane. pieces_ns, shards_ns: lane time
 * since the pieces and shards are on this lane. pieces: number of pieces. */
struct share_times {
    double pieces_ns, shards_ns;
    size_t pieces;
};

static struct share_times share_sum(const struct job *job, const struct lane *lane)
{
    struct share_times sum = {0};
    job_each_piece (piece, tensor, job) {
        sum.pieces += piece->lane == lane;
        sum.pieces_ns += piece->lane == lane ? (double)piece->busy_ns : 0;
    }
    job_each_table(table, job) table_each_shard(shard, table) if (shard->lane == lane)
        sum.shards_ns += (double)shard->busy_ns;
    return sum;
}

uint64_t share_rows_ns(const struct job *job, const struct share *share)
{
    if (job->index->tables.count == 0)
        return 0;
    struct share_times sum = share_sum(job, share->lane);
    double all_ns = sum.pieces_ns + sum.shards_ns;
    if (sum.pieces == 0)
        return share->lane_ns;
    return all_ns > 0 ? (uint64_t)((double)share->lane_ns * (sum.shards_ns / all_ns)) : 0;
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

/* Adds a piece or a shard to the sums of the lane and of the job's share. Returns false if memory
 * is missing. The piece then has no lane until another attempt succeeds. */
static bool share_add(struct job *job, struct lane *lane, uint64_t bytes)
{
    struct share *share = jobs_share(job, lane);
    if (!share) {
        service_retry_later(job->service);
        return false;
    }
    lane->jobs += share->pieces == 0;
    lane->pieces++;
    lane->ranks += job->workers;
    lane->load_bytes += bytes;
    share->pieces++;
    share->bytes += bytes;
    return true;
}

static void share_remove(struct job *job, struct lane *lane, uint64_t bytes)
{
    struct share *share = jobs_share(job, lane);
    share->pieces--;
    share->bytes -= bytes;
    lane->load_bytes -= bytes;
    lane->pieces--;
    lane->ranks -= job->workers;
    if (share->pieces == 0 && lane->jobs-- > 1)
        lane->shared_ns = clock_now_ns();
}

void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane)
{
    if (!share_add(tensor->job, lane, tensor_bytes(tensor, piece->elements)))
        return;
    piece->lane = lane;
    piece->state = PIECE_PLACED;
}

void piece_detach(struct tensor *tensor, struct piece *piece)
{
    if (!piece->lane)
        return;
    share_remove(tensor->job, piece->lane, tensor_bytes(tensor, piece->elements));
    /* the piece can be sent to its next lane without a release by the former lane */
    piece->regroups = false;
    piece->lane = NULL;
    piece->state = PIECE_STRANDED;
}

uint64_t shard_bytes(const struct job_table *table)
{
    const struct table_terms *terms = table->terms;
    uint64_t rows = terms->rows_hint / terms->shards + 1;
    int moments = row_moments(terms->rule, terms->dim);
    uint64_t row_bytes = SHARD_ROW_BYTES + terms->dim * reduce_element_bytes(terms->dtype) +
                         (moments > 0 ? (uint64_t)moments * sizeof(float) : 0);
    uint64_t bytes = rows < SHARD_BYTES_MOST / row_bytes ? rows * row_bytes : SHARD_BYTES_MOST;
    return bytes > SHARD_BYTES_LEAST ? bytes : SHARD_BYTES_LEAST;
}

void shard_attach(struct job_table *table, struct job_shard *shard, struct lane *lane)
{
    if (!share_add(table->job, lane, shard_bytes(table)))
        return;
    lane->shards++;
    shard->lane = lane;
    shard->state = PIECE_PLACED;
}

void shard_detach(struct job_table *table, struct job_shard *shard)
{
    if (!shard->lane)
        return;
    share_remove(table->job, shard->lane, shard_bytes(table));
    shard->lane->shards--;
    shard->lane = NULL;
    shard->state = PIECE_STRANDED;
}
