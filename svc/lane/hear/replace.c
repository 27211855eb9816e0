/* A live worker connects again after a firewall has dropped or reset its connection. The lane may
 * have detected the end of the old connection (A70), or may still consider the old connection open
 * (A69). Announcements of the old connection become invalid, because the memory that it lent is
 * gone (W4). The worker then reports its standing, as it does to a new owner (A28). Only the
 * coordinator decides whether a worker is lost. */
#include "svc/lane/hear/replace.h"

#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/base/log.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/round/piece_failure.h"
#include "svc/lane/round/round.h"
#include "svc/lane/state/replica.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/serving.h"
#include "svc/lane/worker/worker.h"

#include <errno.h>
#include <stdio.h>

/* Time to reconnect. A worker detects a silent connection within 16 s (O33). */
#define AWAY_NS (20 * NS_PER_S)
/* Number of connection ends within BREAKS_NS after which the job fails. Without this limit, a
 * network that ends every connection would make a round begin again forever. */
#define BREAKS_MAX 10
#define BREAKS_NS (60 * NS_PER_S)

/* Returns whether piece.announced includes the rank. After a KEEPS record the rank is not included
 * until its next announcement. */
static bool counts(const struct piece *p, struct rank *rank)
{
    uint64_t round = quorum_round(p, rank);
    const struct announcement *a = rank_said(rank, round);
    bool is_counted = p->round > 0 && rank->has_spoken;
    bool is_pushed = a->standing != RECORD_IDLE && a->standing != RECORD_TAKES;
    return is_counted && a->round == round && is_pushed;
}

static void forget_said(struct rank *rank)
{
    serving_forget(rank);
    for (int k = 0; k < 2; k++) {
        announcement_drop_payload(rank->worker, &rank->said[k]);
        list_remove(&rank->said[k].tell_link);
        rank->said[k].round = 0;
    }
    rank->piece->spoken -= rank->has_spoken;
    rank->piece->late -= rank->late != NULL;
    rank->late = NULL;
    takers_forget(rank);
    rank->has_spoken = rank->is_entering = false;
    rank->comes_back = true;
}

/* Returns whether operations in progress need the rank's memory. */
static bool is_needed(const struct piece *p, const struct rank *rank)
{
    bool is_of_copy = replica_is_fetched(p) || replica_is_filled(p);
    bool has_copy = is_of_copy && p->parameters->replica.worker == rank->worker;
    return p->state != PIECE_COLLECTING && (rank->part || has_copy);
}

/* Returns whether the repeated round could have another set of ranks than the interrupted round
 * (QUORUM_FIRST). Some rank may already have the result of the interrupted round, so the results
 * would differ. The set stays the same if all ranks take part, or if another lane has chosen the
 * set. A rank that does not take part in the copy of a result, such as a late rank, does not change
 * the set. */
static bool may_differ(const struct piece *p, struct rank *rank, bool is_under_way)
{
    bool takes_part = is_under_way || counts(p, rank);
    bool is_same = p->terms.bound == p->members && !p->job->is_elastic;
    bool is_first = p->terms.quorum == QUORUM_FIRST && !is_same;
    return (is_first && is_under_way) || (quorum_is_partial(p) && p->is_copy && takes_part);
}

static void rank_replace(struct rank *rank)
{
    struct piece *p = rank->piece;
    bool is_under_way = is_needed(p, rank), differs = may_differ(p, rank, is_under_way);
    p->announced -= counts(p, rank);
    forget_said(rank);
    if (differs)
        piece_fail(p, -EOWNERDEAD, "tensor '%s': the connection of rank %u was lost during a round",
                   p->tensor, rank->worker->number);
    if (p->announced == 0 && !is_under_way && p->state == PIECE_COLLECTING && !p->is_copy)
        p->operation = NULL; /* the next announcement sets the operation */
    if (is_under_way)
        round_interrupt(p);
}

/* Makes all announcements of the connection invalid. */
static void forget_connection(struct worker *w)
{
    list_for_each_safe (node, &w->job->pieces) {
        struct rank *rank = piece_rank(list_entry(node, struct piece, link), w->number);
        if (rank)
            rank_replace(rank);
    }
}

/* Returns whether rounds or requests on this lane may need the ranks of the job. Without pieces and
 * tables no rank waits for a missing connection, and no rank counts as lost because of the
 * connection. */
static bool serves_job(const struct lane_job *job)
{
    return job->tables || !list_is_empty(&job->pieces);
}

static bool breaks_too_often(struct worker *w, uint64_t now_ns)
{
    if (!serves_job(w->job))
        return false;
    if (w->breaks.count == 0 || now_ns - w->breaks.since_ns > BREAKS_NS)
        w->breaks = (struct breaks){.since_ns = now_ns};
    return ++w->breaks.count > BREAKS_MAX;
}

void replace_fail(struct worker *w, int error)
{
    struct lane_job *job = w->job;
    char how[32] = "";
    if (w->breaks.count > BREAKS_MAX)
        snprintf(how, sizeof how, " %u times in %u s", w->breaks.count,
                 (unsigned)(BREAKS_NS / NS_PER_S));
    else if (w->state == WORKER_AWAY)
        snprintf(how, sizeof how, " for %u s", (unsigned)(AWAY_NS / NS_PER_S));
    job_fail(job, -ECONNRESET,
             "rank %u of job '%s' (%s) has lost its connection to lane %u%s: %s%s", w->number,
             job->name, w->peer, job->lane->options.id, how, err_text(error),
             how[0] ? "; look for a firewall or NAT between that host and the lane's"
                    : "; see the log of that process");
}

void replace_connection(struct worker *w)
{
    struct lane_job *job = w->job;
    if (!worker_is_replaceable(w) || job->tables || job->failure)
        return;
    if (!job->is_elastic && breaks_too_often(w, clock_now_ns()))
        return replace_fail(w, -ECONNRESET);
    log_info("job '%s' rank %u: a new connection replaces the one from %s", job->name, w->number,
             w->peer);
    forget_connection(w);
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
}

/* ---- the lane has detected the end (A70) ---- */

/* Returns whether the network caused the error. All other errors come from the peer, or from a lack
 * of resources in this process. */
static bool is_of_network(int error)
{
    switch (error) {
    case -ECONNRESET:
    case -ECONNABORTED:
    case -ETIMEDOUT:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ENETDOWN: return true;
    default: return false;
    }
}

static void tell_coordinator(struct lane *lane)
{
    if (lane->options.job_failed)
        lane->options.job_failed(lane->options.context);
}

bool replace_await(struct worker *w, int error)
{
    struct lane_job *job = w->job;
    uint64_t now_ns = clock_now_ns();
    if (!worker_may_return(w) || job->tables || job->failure || !is_of_network(error) ||
        breaks_too_often(w, now_ns))
        return false;
    log_warn("job '%s': the connection of rank %u (%s) to lane %u has ended: %s; the rank has %u s "
             "to connect again",
             job->name, w->number, w->peer, job->lane->options.id, err_text(error),
             (unsigned)(AWAY_NS / NS_PER_S));
    forget_connection(w);
    worker_close(w, WORKER_AWAY);
    w->breaks.until_ns = now_ns + AWAY_NS;
    w->breaks.error = error;
    tell_coordinator(job->lane);
    return true;
}

/* Ends the wait for the rank. In an elastic job the coordinator decides whether the rank is lost
 * (A40). If the lane has no pieces and no tables of the job, only the wait ends. */
static void give_up(struct worker *w)
{
    if (!serves_job(w->job)) {
        w->state = WORKER_ABSENT;
        return;
    }
    if (!w->job->is_elastic)
        return replace_fail(w, w->breaks.error);
    log_warn("job '%s': rank %u (%s) has not connected again to lane %u within %u s", w->job->name,
             w->number, w->peer, w->job->lane->options.id, (unsigned)(AWAY_NS / NS_PER_S));
    w->state = WORKER_LOST;
    tell_coordinator(w->job->lane);
}

static void expire(struct lane_job *job, uint64_t now_ns, uint64_t *next_ns)
{
    for (uint32_t i = 0; i < job->workers_count && !job->failure && !job->is_dropped; i++) {
        struct worker *w = &job->workers[i];
        if (w->state != WORKER_AWAY)
            continue;
        if (now_ns >= w->breaks.until_ns)
            give_up(w);
        else if (*next_ns == 0 || w->breaks.until_ns < *next_ns)
            *next_ns = w->breaks.until_ns;
    }
}

uint64_t lane_expire_away(struct lane *lane, uint64_t now_ns)
{
    uint64_t next_ns = 0;
    list_for_each_entry (struct lane_job, job, &lane->jobs, link)
        expire(job, now_ns, &next_ns);
    return next_ns;
}
