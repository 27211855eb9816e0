/* In an elastic job a piece receives another set of ranks under the next epoch, and stays on its
 * lane. The ranks then send their standing, as they do to a new owner. This file makes the change;
 * other rooms decide which ranks a job has. RULES.md: A40 to A44; svc/wire/README.md: W15. */
#include "svc/lane/move/regroup.h"

#include "svc/lane/chunk/transfer.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/piece.h"
#include "svc/lane/round/round.h"
#include "svc/lane/rows/rows.h"
#include "svc/lane/state/replica.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>

void lane_set_elastic(struct lane *lane, uint32_t job_id)
{
    struct lane_job *job = job_find(lane, job_id);
    if (job)
        job->is_elastic = true;
}

/* ---- ranks that are gone ---- */

static void forget_grants(struct lane_job *job, uint32_t rank)
{
    size_t kept = 0;
    for (size_t i = 0; i < job->grants_count; i++) {
        if (job->grants[i].rank != rank)
            job->grants[kept++] = job->grants[i];
    }
    job->grants_count = kept;
}

static void let_go(struct worker *w)
{
    forget_grants(w->job, w->number);
    if (!w->conn) {
        w->state = WORKER_ABSENT;
        /* rows_forget() removes the rank from the tables, because a rank that has never connected
         * is a member of all tables, too */
        rows_forget(w);
        job_wake(w->job);
        return;
    }
    w->is_gone = true;
    fabric_disconnect(w->conn);
}

/* Returns whether the round in progress needs a copy in the memory of a rank that has left the
 * job. */
static bool needs_copy(const struct piece *p, const uint64_t *gone)
{
    const struct worker *holder = p->parameters ? p->parameters->replica.worker : NULL;
    bool is_taken = p->parameters && p->parameters->replica.is_taken;
    if (!replica_is_fetched(p) && !replica_is_filled(p) && !is_taken)
        return false;
    return !holder || (!worker_is_holder(holder) && ranks_have(gone, holder->number));
}

static bool needs(const struct piece *p, const uint64_t *gone)
{
    if (needs_copy(p, gone) || transfer_is_stuck(p))
        return true;
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].part && ranks_have(gone, p->ranks[i].worker->number))
            return true;
    }
    return false;
}

void lane_let_go(struct lane *lane, uint32_t job_id, const uint64_t *gone)
{
    struct lane_job *job = job_find(lane, job_id);
    if (!job)
        return;
    list_for_each_safe_entry (struct piece, p, &job->pieces, link)
        if (p->state != PIECE_COLLECTING && needs(p, gone))
            round_give_up(p);
    for (uint32_t i = 0; i < job->workers_count; i++) {
        if (ranks_have(gone, i))
            let_go(&job->workers[i]);
    }
}

/* Returns whether the coordinator has to decide whether the rank is lost (A40, A70). */
static bool is_to_be_told(const struct worker *w)
{
    return w->state == WORKER_AWAY || (w->state == WORKER_LOST && w->job->is_elastic);
}

void lane_each_lost(const struct lane *lane,
                    void (*each)(void *context, const struct lane_lost *lost), void *context)
{
    for (struct list *node = lane->jobs.next; node != &lane->jobs; node = node->next) {
        const struct lane_job *job = list_entry(node, struct lane_job, link);
        for (uint32_t i = 0; !job->failure && !job->is_dropped && i < job->workers_count; i++) {
            const struct worker *w = &job->workers[i];
            if (is_to_be_told(w))
                each(context, &(struct lane_lost){.job = job->id,
                                                  .rank = i,
                                                  .entered = w->entered,
                                                  .peer = w->peer,
                                                  .may_return = w->state == WORKER_AWAY});
        }
    }
}

/* ---- another set of ranks ---- */

int lane_regroup(struct lane *lane, uint32_t job_id, uint32_t epoch,
                 const struct lane_piece *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    int error = job ? 0 : -ENOENT;
    for (size_t i = 0; error >= 0 && i < count; i++)
        error = piece_regroup(job, &pieces[i], epoch);
    if (error == -ENOMEM)
        return arena_lack(lane->options.arena);
    return error < 0 ? error : 0;
}
