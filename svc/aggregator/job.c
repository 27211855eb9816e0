/* A job as one lane sees it: its workers' connections, tickets, failure, memory account.
 * Never frees anything that a posted operation may still touch (job_release). README: A3, A5. */
#include "svc/aggregator/backup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Tickets granted and not yet used, per job and rank: a few reconnects ahead. */
#define LANE_GRANTS_PER_RANK 4

#define TABLE_SIZE_LEAST 64

struct lane_job *job_find(struct lane *lane, uint32_t id)
{
    list_for_each (node, &lane->jobs) {
        struct lane_job *job = list_entry(node, struct lane_job, link);
        if (job->id == id && !job->is_dropped)
            return job;
    }
    return NULL;
}

static void job_free(struct lane_job *job)
{
    struct arena *arena = job->lane->options.arena;
    list_for_each_safe (node, &job->pieces) {
        piece_free(list_entry(node, struct piece, link));
    }
    list_remove(&job->link);
    list_remove(&job->run_link);
    arena_free(arena, &job->account, job->workers);
    arena_free(arena, &job->account, job->table);
    arena_free(arena, &job->account, job->grants);
    window_close(job);
    struct arena_account last = job->account; /* the job itself: its account goes with it */
    arena_free(arena, &last, job);
}

static void workers_init(struct lane_job *job)
{
    for (uint32_t i = 0; i < job_peers(job); i++) {
        job->workers[i].job = job;
        job->workers[i].number = i < job->workers_count ? i : RECORD_KEEPER;
        list_init(&job->workers[i].owed);
        list_init(&job->workers[i].tell_link);
    }
}

size_t job_bytes(uint32_t workers)
{
    size_t peers = workers + LANE_KEEPERS_MAX;
    return sizeof(struct lane_job) + peers * sizeof(struct worker) +
           TABLE_SIZE_LEAST * sizeof(struct piece *) +
           peers * LANE_GRANTS_PER_RANK * sizeof(struct record_connect);
}

int job_create(struct lane *lane, uint32_t id, const char *name, uint32_t workers,
               struct lane_job **ret_job)
{
    struct arena *arena = lane->options.arena;
    struct arena_account first = {0};
    struct lane_job *job = arena_alloc(arena, &first, sizeof *job);
    if (!job)
        return -ENOMEM;
    job->account = first;
    job->lane = lane;
    job->id = id;
    job->workers_count = workers;
    snprintf(job->name, sizeof job->name, "%s", name);
    list_init(&job->run_link);
    list_init(&job->pieces);
    list_init(&job->runnable);
    job->table_size = TABLE_SIZE_LEAST;
    job->grants_max = (size_t)job_peers(job) * LANE_GRANTS_PER_RANK;
    list_append(&lane->jobs, &job->link);
    job->workers = arena_alloc(arena, &job->account, job_peers(job) * sizeof *job->workers);
    job->table = arena_alloc(arena, &job->account, job->table_size * sizeof(struct piece *));
    job->grants = arena_alloc(arena, &job->account, job->grants_max * sizeof *job->grants);
    if (!job->workers || !job->table || !job->grants) {
        job_free(job);
        return -ENOMEM;
    }
    workers_init(job);
    window_init(job);
    tracing_find(job);
    *ret_job = job;
    return 0;
}

void job_release(struct lane_job *job)
{
    if (!job->is_dropped || transfer_is_active(job) || job->replaced > 0)
        return;
    for (uint32_t i = 0; i < job_peers(job); i++) {
        if (job->workers[i].conn)
            return;
    }
    job_free(job);
}

void job_wake(struct lane_job *job)
{
    if (list_is_empty(&job->run_link))
        list_append(&job->lane->running, &job->run_link);
}

/* The first failure is the cause; what follows from it is noise. Who is connected hears it from
 * here; whose connection it was that ended, by way of the coordinator (A12). */
void job_fail(struct lane_job *job, int code, const char *format, ...)
{
    if (job->failure)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(job->failure_text, sizeof job->failure_text, format, arguments);
    va_end(arguments);
    job->failure = code;
    for (uint32_t i = 0; i < job->workers_count; i++)
        tell_job_failure(&job->workers[i]);
    if (job->lane->options.job_failed)
        job->lane->options.job_failed(job->lane->options.context);
    job_wake(job); /* what is under way ends in transfer_turn() */
}

int job_grant(struct lane_job *job, const struct record_connect *ticket)
{
    if (ticket->rank >= job->workers_count && !(ticket->rank & RECORD_KEEPER))
        return -EINVAL;
    if (job->grants_count == job->grants_max) { /* the oldest was never used */
        memmove(job->grants, job->grants + 1, (job->grants_max - 1) * sizeof *job->grants);
        job->grants_count--;
    }
    job->grants[job->grants_count++] = *ticket;
    return 0;
}

int job_redeem(struct lane_job *job, const struct record_connect *ticket)
{
    for (size_t i = 0; i < job->grants_count; i++) {
        if (memcmp(&job->grants[i], ticket, sizeof *ticket) != 0)
            continue;
        job->grants[i] = job->grants[--job->grants_count];
        return 0;
    }
    return -EACCES;
}

/* A keeper's place is for whichever aggregator comes, as long as it is there. */
struct worker *job_peer(struct lane_job *job, uint32_t number)
{
    struct worker *unused = NULL;
    if (!(number & RECORD_KEEPER))
        return number < job->workers_count ? &job->workers[number] : NULL;
    for (uint32_t i = job->workers_count; i < job_peers(job); i++) {
        struct worker *w = &job->workers[i];
        if (w->conn && w->number == number)
            return w;
        unused = w->conn ? unused : w;
    }
    if (unused)
        unused->number = number;
    return unused;
}

void worker_open(struct worker *w, struct fabric *fabric, struct fabric_conn *conn)
{
    w->state = WORKER_OPEN;
    w->is_gone = w->has_settings = false;
    w->fabric = fabric;
    w->conn = conn;
    w->job->lane->connections += !worker_is_keeper(w);
    snprintf(w->peer, sizeof w->peer, "%s", fabric_peer(conn));
}

void worker_drop_payload(struct worker *w)
{
    if (!w->holding)
        return;
    if (w->conn)
        fabric_message_done(w->conn, w->held);
    w->holding->payload = NULL;
    w->holding = NULL;
    w->held = NULL;
}

/* Its lent memory is gone with the connection: nothing it said holds any longer (W4, W5). */
void worker_close(struct worker *w, enum worker_state state)
{
    if (!w->conn)
        return;
    w->conn = NULL;
    lending_forget(w);
    lending_disconnect(w);
    backup_forget(w);
    worker_drop_payload(w);
    list_for_each_safe (node, &w->owed) {
        list_remove(node);
    }
    list_remove(&w->tell_link);
    w->owes_failure = false;
    w->state = state;
    w->job->lane->connections -= !worker_is_keeper(w);
}

static void rank_leave(struct rank *rank)
{
    struct piece *p = rank->piece;
    uint32_t left;
    if (p->round == 0 && p->spoken > 0 && !p->failure) {
        round_recover(p);
    } else if (p->state == PIECE_COLLECTING && p->round > 0 && p->announced > 0) {
        struct announcement *a = rank_said(rank, quorum_round(p, rank));
        p->announced -= a->round == quorum_round(p, rank) && a->standing == RECORD_ANNOUNCE;
        if (quorum_is_hopeless(p, &left))
            piece_fail(p, -EPIPE, "rank %u has left job '%s'", left, p->job->name);
        else
            round_go_on(p); /* nobody waits for the slowest any more */
    }
}

/* A round that is being summed has its input and may end; one that waits never will. */
void worker_leave(struct worker *w, bool after_failure)
{
    struct lane_job *job = w->job;
    w->state = WORKER_LEFT;
    if (after_failure || job->is_elastic)
        return; /* the cause is another, and reaches the others on the way it reached this one */
    job->has_left = true;
    list_for_each_safe (node, &job->pieces) {
        struct piece *p = list_entry(node, struct piece, link);
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
        bool has_left = left[i / 64] >> (i % 64) & 1;
        if (has_left && (w->state == WORKER_ABSENT || w->state == WORKER_AWAY))
            worker_leave(w, false);
    }
    job_wake(job);
}
