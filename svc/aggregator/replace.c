/* A firewall forgets a connection: packets vanish, the worker finds out and makes another, the lane
 * still takes the first one for alive. What was said on that holds no longer, its memory is gone
 * (W4); the worker says where it stands, as to a new owner that knows its rounds (A28). Never
 * decides that a worker is lost. README: A69. */
#include "svc/aggregator/replace.h"
#include "svc/aggregator/backup.h"

#include "svc/base/log.h"

#include <errno.h>

/* Said of the open round, and counted there: not while the standing after KEEPS is to come. */
static bool counts(const struct piece *p, struct rank *rank)
{
    uint64_t round = quorum_round(p, rank);
    const struct announcement *a = rank_said(rank, round);
    bool is_counted = p->round > 0 && rank->has_spoken;
    return is_counted && a->round == round && a->standing != RECORD_IDLE;
}

static void forget_said(struct rank *rank)
{
    for (int k = 0; k < 2; k++) {
        announcement_drop_payload(rank->worker, &rank->said[k]);
        list_remove(&rank->said[k].tell_link);
        rank->said[k].round = 0;
    }
    rank->piece->spoken -= rank->has_spoken;
    rank->piece->late -= rank->late != NULL;
    rank->late = NULL;
    rank->has_spoken = rank->is_entering = false;
    rank->comes_back = true;
}

/* Reads or writes that are under way need its memory. */
static bool is_needed(const struct piece *p, const struct rank *rank)
{
    bool is_of_copy = backup_is_fetched(p) || backup_is_filled(p);
    bool has_copy = is_of_copy && p->parameters->backup.worker == rank->worker;
    return p->state != PIECE_COLLECTING && (rank->part || has_copy);
}

/* Of the first that come, others may make the round next time, while somebody holds the result of
 * these. The first n of n, and chosen ranks, are the same again. */
static bool may_differ(const struct piece *p, bool is_under_way)
{
    bool is_same = p->terms.bound == p->members && !p->job->is_elastic;
    bool is_first = p->terms.quorum == QUORUM_FIRST && !is_same;
    bool has_made = is_under_way && !p->is_answer;
    return (is_first && has_made) || (quorum_is_partial(p) && p->is_copy);
}

static void rank_replace(struct rank *rank)
{
    struct piece *p = rank->piece;
    bool is_under_way = is_needed(p, rank), differs = may_differ(p, is_under_way);
    p->announced -= counts(p, rank);
    forget_said(rank);
    if (differs)
        piece_fail(p, -EOWNERDEAD, "tensor '%s': the connection of rank %u was lost in mid-round",
                   p->tensor, rank->worker->number);
    if (p->announced == 0 && !is_under_way && p->state == PIECE_COLLECTING && !p->is_copy)
        p->operation = NULL; /* whoever announces next says what the round does */
    if (is_under_way)
        round_interrupt(p);
}

void replace_connection(struct worker *w)
{
    struct lane_job *job = w->job;
    bool is_seen = fabric_peer_pid(w->conn) != 0; /* memory is shared: its end would be told */
    if (w->state != WORKER_OPEN || w->is_gone || is_seen || job->failure)
        return;
    log_info("job '%s' rank %u: another connection takes the place of that from %s", job->name,
             w->number, w->peer);
    list_for_each_safe (node, &job->pieces) {
        struct rank *rank = piece_rank(list_entry(node, struct piece, link), w->number);
        if (rank)
            rank_replace(rank);
    }
    fabric_disconnect(w->conn);
    job->replaced++;
    worker_close(w, WORKER_ABSENT);
    job_wake(job);
}

void replace_ended(struct lane_job *job)
{
    if (job->replaced > 0)
        job->replaced--;
    job_wake(job);
    job_release(job);
}
