/* Goodbyes of workers. Rounds that waited for the worker fail, or continue without the worker.
 * RULES.md: A5. */
#include "svc/lane/hear/leave.h"

#include "svc/lane/job/table.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/round/piece_failure.h"
#include "svc/lane/round/round.h"
#include "svc/lane/round/standing.h"
#include "svc/lane/rows/rows.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/serving.h"

#include <errno.h>

/* Ends the wait of a late rank for a result. A release of the piece may have waited for the answer
 * to the rank. */
static void rank_is_not_late(struct rank *rank)
{
    if (!rank->late)
        return;
    serving_forget(rank);
    rank->late = NULL;
    rank->piece->late--;
    release_note(rank->piece->job);
}

static void rank_leave(struct rank *rank)
{
    struct piece *p = rank->piece;
    uint32_t left;
    rank_is_not_late(rank);
    if (p->round == 0 && p->spoken > 0 && !p->failure) {
        round_recover(p);
    } else if (p->state == PIECE_COLLECTING && p->round > 0 && p->announced > 0) {
        struct announcement *a = rank_said(rank, quorum_round(p, rank));
        p->announced -= a->round == quorum_round(p, rank) && a->standing == RECORD_ANNOUNCE;
        if (round_is_hopeless(p, &left))
            piece_fail(p, -EPIPE,
                       "rank %u has left job '%s'; leave after the same round on all ranks", left,
                       p->job->name);
        else
            round_go_on(p); /* the round may have waited only for the rank that has left */
    }
    round_check_late(p);
}

/* Handles a goodbye. A round in progress has read all inputs and can complete; a round that still
 * waits for this rank cannot complete. */
void worker_leave(struct worker *w, bool after_failure)
{
    struct lane_job *job = w->job;
    w->state = WORKER_LEFT;
    if (after_failure || job->is_elastic)
        /* the other ranks receive the failure after which this worker leaves, or the coordinator's
         * decision about the elastic job */
        return;
    job->has_left = true;
    list_for_each_safe_entry (struct piece, p, &job->pieces, link) {
        struct rank *rank = piece_rank(p, w->number);
        if (rank)
            rank_leave(rank);
    }
}

void lane_leave(struct lane *lane, uint32_t job_id, const uint64_t *left)
{
    struct lane_job *job = job_find(lane, job_id);
    if (!job)
        return;
    for (uint32_t i = 0; i < job->workers_count; i++) {
        struct worker *w = &job->workers[i];
        bool has_left = ranks_have(left, i);
        if (!has_left || (w->state != WORKER_ABSENT && w->state != WORKER_AWAY))
            continue;
        worker_leave(w, false);
        rows_forget(w);
    }
    job_wake(job);
}
