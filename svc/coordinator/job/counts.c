/* Counts over the rounds of a job with backup workers. Owns struct job_counts. A lane never resets
 * its counts while it serves the job, so the sum over all lanes only grows. A lane's counts are
 * ignored if their lists have different lengths, or more ranks than the job. */
#include "svc/coordinator/job/counts.h"

#include "svc/base/log.h"
#include "svc/coordinator/job/share.h"
#include "svc/wire/record.h"

#include <inttypes.h>
#include <stdlib.h>

struct job_counts {
    WIRE(RoundCounts) left;   /* sums of the counts of lanes that no longer serve the job */
    WIRE(RoundCounts) before; /* sum over all lanes at the beginning of the window */
    bool is_told[WORKERS_MAX];
};

static void *counts_take(void *context, size_t bytes)
{
    (void)context;
    return calloc(1, bytes);
}

static void counts_release(WIRE(RoundCounts) * sum)
{
    free(sum->reasons);
    free(sum->counted);
    free(sum->dropped);
    free(sum->scale_ns);
    gradpool__wire__round_counts__init(sum);
}

void counts_destroy(struct job *job)
{
    struct job_counts *c = job->left ? job->left->counts : NULL;
    if (!c)
        return;
    counts_release(&c->left);
    counts_release(&c->before);
    free(c);
    job->left->counts = NULL;
}

static struct job_counts *counts_of(struct job *job)
{
    struct job_counts *c = job->left->counts;
    if (c)
        return c;
    c = job->left->counts = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    gradpool__wire__round_counts__init(&c->left);
    gradpool__wire__round_counts__init(&c->before);
    return c;
}

/* Allocates the arrays of an empty sum, with one element for each rank of the job. */
static bool counts_make_room(const struct job *job, void *(*take)(void *, size_t), void *context,
                             WIRE(RoundCounts) * sum)
{
    size_t ranks = job->workers;
    if (sum->reasons)
        return true;
    sum->reasons = take(context, RECORD_REASONS * sizeof *sum->reasons);
    sum->counted = take(context, ranks * sizeof *sum->counted);
    sum->dropped = take(context, ranks * sizeof *sum->dropped);
    sum->scale_ns = take(context, ranks * sizeof *sum->scale_ns);
    if (!sum->reasons || !sum->counted || !sum->dropped || !sum->scale_ns)
        return false;
    sum->n_reasons = RECORD_REASONS;
    sum->n_counted = sum->n_dropped = sum->n_scale_ns = ranks;
    return true;
}

static bool counts_are_valid(const struct job *job, const WIRE(RoundCounts) * counts)
{
    return counts->n_reasons == RECORD_REASONS && counts->n_counted <= job->workers &&
           counts->n_dropped == counts->n_counted && counts->n_scale_ns == counts->n_counted;
}

/* Adds the valid counts of one lane. The times of ranks replace the earlier times, because only the
 * lane that leads the rounds now has such times. */
static void counts_add(WIRE(RoundCounts) * sum, const WIRE(RoundCounts) * counts)
{
    sum->rounds += counts->rounds;
    sum->gradients += counts->gradients;
    for (size_t i = 0; i < RECORD_REASONS; i++)
        sum->reasons[i] += counts->reasons[i];
    for (size_t i = 0; i < counts->n_counted && i < sum->n_counted; i++) {
        sum->counted[i] += counts->counted[i];
        sum->dropped[i] += counts->dropped[i];
        if (counts->scale_ns[i] > 0)
            sum->scale_ns[i] = counts->scale_ns[i];
    }
}

void counts_leave(struct job *job, const WIRE(RoundCounts) * counts)
{
    if (!counts || !counts_are_valid(job, counts))
        return;
    struct job_counts *c = counts_of(job);
    if (c && counts_make_room(job, counts_take, NULL, &c->left))
        counts_add(&c->left, counts);
}

bool counts_sum(const struct job *job, void *(*take)(void *context, size_t bytes), void *context,
                WIRE(RoundCounts) * ret_sum)
{
    const struct job_counts *c = job->left->counts;
    if (c && c->left.rounds > 0) {
        if (!counts_make_room(job, take, context, ret_sum))
            return false;
        counts_add(ret_sum, &c->left);
    }
    for (size_t i = 0; i < job->shares_count; i++) {
        const WIRE(JobUse) *use = jobs_use_of(job, &job->shares[i]);
        if (!use || !use->counts || !counts_are_valid(job, use->counts))
            continue;
        if (!counts_make_room(job, take, context, ret_sum))
            return false;
        counts_add(ret_sum, use->counts);
    }
    return ret_sum->rounds > 0;
}

/* ---- the warning ---- */

static void counts_warn(struct job *job, uint32_t rank, uint64_t dropped, uint64_t rounds)
{
    char prefix[TENANT_PREFIX_BYTES];
    const struct session *session = job->sessions[rank];
    log_warn("job %s%s: rank %u on %s was dropped in %" PRIu64 " of the last %" PRIu64
             " rounds, because its gradients came late; look for the load that slows rank %u",
             tenant_prefix(job->tenant, prefix), job->name, rank, session ? session->node : "?",
             dropped, rounds, rank);
}

static uint64_t counts_grown(const uint64_t *now, const uint64_t *before, size_t rank)
{
    uint64_t from = before ? before[rank] : 0;
    return now[rank] > from ? now[rank] - from : 0;
}

static void counts_look_at(struct job *job, struct job_counts *c, const WIRE(RoundCounts) * now)
{
    for (uint32_t rank = 0; rank < now->n_counted; rank++) {
        uint64_t dropped = counts_grown(now->dropped, c->before.dropped, rank);
        uint64_t rounds = dropped + counts_grown(now->counted, c->before.counted, rank);
        if (c->is_told[rank] || rounds < COUNTS_WINDOW || 2 * dropped < rounds)
            continue;
        c->is_told[rank] = true;
        counts_warn(job, rank, dropped, rounds);
    }
}

void counts_look(struct job *job)
{
    WIRE(RoundCounts) now = GRADPOOL__WIRE__ROUND_COUNTS__INIT;
    bool is_known = counts_sum(job, counts_take, NULL, &now);
    struct job_counts *c = is_known ? counts_of(job) : NULL;
    /* after the loss of a lane's counts the sum may be smaller than at the last measurement */
    if (!c || now.rounds < c->before.rounds + COUNTS_WINDOW)
        return counts_release(&now);
    counts_look_at(job, c, &now);
    counts_release(&c->before);
    c->before = now;
}
