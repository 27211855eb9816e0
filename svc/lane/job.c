/* A job on one lane: creation, end, tickets, worker structs. Memory is freed only when no posted
 * operation uses it (job_release()). RULES.md: A3, A5. */
#include "svc/lane/job.h"

#include "svc/lane/chunk/transfer.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/counts.h"
#include "svc/lane/piece/piece.h"
#include "svc/lane/rows/rows.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/serving.h"
#include "svc/lane/worker/window.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Maximum number of unused tickets for each rank. With these tickets a rank can connect again a few
 * times without the coordinator. */
#define LANE_GRANTS_PER_RANK 4

static size_t grants_max(const struct lane_job *job)
{
    return (size_t)job_peers(job) * LANE_GRANTS_PER_RANK;
}

static void job_free(struct lane_job *job)
{
    struct arena *arena = job->lane->options.arena;
    list_for_each_safe (node, &job->pieces) {
        piece_free(list_entry(node, struct piece, link));
    }
    rows_free(job);
    list_remove(&job->link);
    policy_forget(job);
    arena_free(arena, &job->account, job->workers);
    arena_free(arena, &job->account, job->table.buckets);
    arena_free(arena, &job->account, job->grants);
    arena_free(arena, &job->account, job->squares);
    counts_free(job);
    arena_free(arena, &job->account, job->sampling);
    window_close(job);
    servings_free(job);
    /* a copy, because arena_free() frees the job that contains the account */
    struct arena_account last = job->account;
    arena_free(arena, &last, job);
}

static void workers_init(struct lane_job *job)
{
    for (uint32_t i = 0; i < job_peers(job); i++) {
        job->workers[i].job = job;
        job->workers[i].number = i < job->workers_count ? i : RECORD_HOLDER;
        list_init(&job->workers[i].owed);
        list_init(&job->workers[i].tell_link);
    }
}

size_t job_bytes(uint32_t workers)
{
    size_t peers = workers + LANE_HOLDERS_MAX;
    return sizeof(struct lane_job) + sizeof(struct lane_squares) + sizeof(struct sampling) +
           peers * sizeof(struct worker) + TABLE_SIZE_LEAST * sizeof(struct hash_link *) +
           peers * LANE_GRANTS_PER_RANK * sizeof(struct record_connect);
}

int job_create(struct lane *lane, uint32_t id, const char *name, uint32_t workers,
               uint32_t gradients, struct lane_job **ret_job)
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
    list_init(&job->turn.link);
    policy_set_tenant(job, "");
    job->group.charge = account_polled;
    list_init(&job->pieces);
    list_init(&job->runnable);
    list_append(&lane->jobs, &job->link);
    job->workers = arena_alloc(arena, &job->account, job_peers(job) * sizeof *job->workers);
    job->table = (struct hash_table){
        arena_alloc(arena, &job->account, TABLE_SIZE_LEAST * sizeof(struct hash_link *)),
        .size = TABLE_SIZE_LEAST};
    job->grants = arena_alloc(arena, &job->account, grants_max(job) * sizeof *job->grants);
    job->squares = arena_alloc(arena, &job->account, sizeof *job->squares);
    job->sampling = arena_alloc(arena, &job->account, sizeof *job->sampling);
    if (!job->workers || !job->table.buckets || !job->grants || !job->squares || !job->sampling) {
        job_free(job);
        return -ENOMEM;
    }
    job->sampling->gradients = gradients;
    workers_init(job);
    window_init(job);
    tracing_find(job);
    *ret_job = job;
    return 0;
}

void job_release(struct lane_job *job)
{
    bool is_posted = transfer_is_active(job) || servings_are_posted(job);
    if (!job->is_dropped || is_posted || job->replaced > 0)
        return;
    for (uint32_t i = 0; i < job_peers(job); i++) {
        if (job->workers[i].conn)
            return;
    }
    job_free(job);
}

/* Ends the record of a lost worker when a later worker of its rank gets a ticket. Rounds then wait
 * for the later worker, and the loss is no longer reported. */
static void end_loss_record(struct lane_job *job, const struct record_connect *ticket)
{
    struct worker *w = ticket->rank < job->workers_count ? &job->workers[ticket->rank] : NULL;
    bool is_away = w && (w->state == WORKER_LOST || w->state == WORKER_AWAY);
    if (is_away && w->entered != ticket->entered)
        w->state = WORKER_ABSENT;
}

int job_grant(struct lane_job *job, const struct record_connect *ticket)
{
    if (ticket->rank >= job->workers_count && !(ticket->rank & RECORD_HOLDER))
        return -EINVAL;
    if (job->grants_count == grants_max(job)) { /* the array is full: the oldest grant is dropped */
        memmove(job->grants, job->grants + 1, (grants_max(job) - 1) * sizeof *job->grants);
        job->grants_count--;
    }
    job->grants[job->grants_count++] = *ticket;
    end_loss_record(job, ticket);
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

/* Finds a worker struct. While an aggregator is connected as a replica holder, its struct is
 * reserved. */
struct worker *job_peer(struct lane_job *job, uint32_t number)
{
    struct worker *unused = NULL;
    if (!(number & RECORD_HOLDER))
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
