/* Recovery of pieces after an aggregator was lost or has returned. A lost aggregator is handled
 * only when its process can no longer write to workers' memory (K4). Tasks move as a whole, keep
 * their numbers, and get the job's next epoch. */
#include "svc/coordinator/recovery/recovery.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/copies/copies.h"
#include "svc/coordinator/declare/declaration.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/job/task.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/placement/apply_plan.h"
#include "svc/coordinator/placement/waiting.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/snapshot/snapshot.h"
#include "svc/coordinator/table/allow.h"
#include "svc/coordinator/table/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*piece_fn)(struct tensor *tensor, struct piece *piece, void *context);

static void each_piece(struct job *job, piece_fn visit, void *context)
{
    job_each_piece (piece, tensor, job)
        visit(tensor, piece, context);
}

/* --- new lanes --- */

struct stranded {
    struct service *service;
    struct task *tasks;
    size_t count;
};

static bool is_stranded(const struct tensor *tensor, const struct piece *piece, const void *context)
{
    return piece->state == PIECE_STRANDED && !tensor->failure;
}

static struct lane *new_lane(const struct stranded *list, const struct piece *piece)
{
    const struct task *task = tasks_find(list->tasks, list->count, piece->task);
    return task ? lane_find(list->service, task->lane) : NULL;
}

static void put_moved(struct tensor *tensor, struct piece *piece, void *context)
{
    struct lane *lane = is_stranded(tensor, piece, NULL) ? new_lane(context, piece) : NULL;
    struct store_row row;
    if (!lane)
        return;
    piece_row(tensor, piece, &row);
    row.piece.lane = lane->id;
    row.piece.epoch = tensor->job->epoch + 1;
    row.piece.lost_epoch = row.piece.epoch;
    row.piece.former_keeper = 0;
    store_put(tensor->job->service->store, &row);
}

static void move(struct tensor *tensor, struct piece *piece, void *context)
{
    struct lane *lane = is_stranded(tensor, piece, NULL) ? new_lane(context, piece) : NULL;
    if (!lane)
        return;
    piece->epoch = tensor->job->epoch;
    piece->recovering = true;
    piece->lost_epoch = piece->epoch;
    piece_attach(tensor, piece, lane);
    keeping_placed(tensor->job, piece, piece->keeping.holder);
}

/* Stores the new routes before they take effect (K1). If the store fails, the job waits, and the
 * tasks are placed again after RETRY_NS. */
static int keep_moved(struct job *job, struct stranded *list)
{
    struct service *s = job->service;
    struct store_row row;
    struct err err;
    jobs_row(job, &row);
    row.job.epoch++;
    store_begin(s->store);
    store_put(s->store, &row);
    each_piece(job, put_moved, list);
    int error = store_commit(s->store, &err);
    if (error < 0) {
        log_error("job %s waits for its new routes: %s", job->name, err.text);
        service_retry_later(s);
    }
    return error;
}

static bool more_may_come(const struct service *s)
{
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (a->state == AGGREGATOR_AWAY)
            return true;
    return fleet_expects_more(s);
}

static bool has_lanes(const struct service *s)
{
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        if (a->state == AGGREGATOR_UP && a->lanes_count > 0 && !a->is_stopping)
            return true;
    return false;
}

static void wait_for_lane(struct job *job, const struct aggregator *lost)
{
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text,
             "%s is gone, and no lane is left; the job continues when an aggregator joins; see "
             "`gradpool status'",
             lost ? AGGREGATOR_NAME(lost) : "its aggregator");
    if (lost || !job->waiting->waits_for)
        waiting_begin(job, text);
}

/* Handles stranded tasks for which the packer found no lane. If the service has no lane at all, the
 * job waits until its workers time out. If all lanes are full, the job fails. */
static void place_failed(struct job *job, const struct aggregator *lost, const struct err *err)
{
    char name[AGGREGATOR_NAME_BYTES];
    if (err->code == -ENOMEM) {
        log_error("job %s waits for lanes: %s", job->name, err->text);
        service_retry_later(job->service);
    } else if (err->code == -ENOSPC && (more_may_come(job->service) || !has_lanes(job->service))) {
        wait_for_lane(job, lost);
    } else if (lost) {
        jobs_fail(job, NULL, -ECONNRESET, "%s is gone; %s",
                  aggregator_name(lost, name, sizeof name), err->text);
    } else {
        jobs_fail(job, NULL, -ECONNRESET, "%s", err->text);
    }
}

static void move_all(struct job *job, struct stranded *list)
{
    job->epoch++;
    each_piece(job, move, list);
    log_info("job %s: %zu tasks have new lanes, epoch %u", job->name, list->count, job->epoch);
    telling_place(job);
    waiting_end(job, true);
}

static void place(struct job *job, const struct aggregator *lost)
{
    struct stranded list = {.service = job->service};
    struct err err = {0};
    if (job->failure)
        return;
    if (tasks_list(job, is_stranded, NULL, &list.tasks, &list.count) < 0)
        err_set(&err, -ENOMEM,
                "gradpool serve has no memory for a placement of job %.64s; raise its memory limit",
                job->name);
    else if (list.count > 0)
        placing_plan_tasks(job, list.tasks, list.count, &err);
    if (err.code < 0)
        place_failed(job, lost, &err);
    else if (list.count > 0 && keep_moved(job, &list) == 0)
        move_all(job, &list);
    free(list.tasks);
}

static void place_all(struct service *s, const struct aggregator *lost)
{
    list_for_each_safe (node, &s->jobs)
        place(list_entry(node, struct job, link), lost);
}

void recovery_place_stranded(struct service *s)
{
    place_all(s, NULL);
    list_for_each_safe_entry (struct job, job, &s->jobs, link) {
        telling_place(job);
        shards_tell(job);
    }
    allow_retry(s);
    table_copies_check_all(s);
    keeping_check_all(s);
    regrouping_check_all(s);
}

/* --- an aggregator is lost --- */

static void strand(struct tensor *tensor, struct piece *piece, void *context)
{
    if (piece->lane && piece->lane->aggregator == context)
        piece_detach(tensor, piece);
}

void recovery_aggregator_lost(struct aggregator *a)
{
    moving_aggregator_lost(a);
    saving_aggregator_gone(a);
    regrouping_aggregator_gone(a);
    list_for_each_entry (struct job, job, &a->service->jobs, link) {
        each_piece(job, strand, a);
        table_copies_aggregator_lost(job, a);
        shards_aggregator_lost(job, a);
        jobs_forget_shares(job, a);
    }
    if (a->service->phase == SERVICE_UP)
        place_all(a->service, a);
    keeping_aggregator_lost(a);
}

/* --- an aggregator is back --- */

static void expect(struct tensor *tensor, struct piece *piece, void *context)
{
    if (!piece->lane || piece->lane->aggregator != context)
        return;
    piece->recovering = piece->recovering || piece->state == PIECE_READY;
    piece->regroups = false;
    piece->state = PIECE_PLACED;
}

/* Returns whether the lane released the piece for a change of ranks, but was disconnected when the
 * new ranks were sent. If no lane was lost in the meantime, only the ranks of the piece have
 * changed (K41). */
static bool missed_regrouping(const struct job *job, const struct piece *piece,
                              const WIRE(PieceHeld) * held)
{
    return (job->terms->is_elastic || job->ranks->stage) && held->is_frozen &&
           held->epoch < piece->epoch && held->epoch >= piece->lost_epoch;
}

/* Sets the state of a piece that the aggregator lists. Returns false if the piece no longer belongs
 * to this lane. */
static bool take_held(struct service *s, struct lane *lane, const WIRE(PieceHeld) * held)
{
    struct job *job = jobs_find_id(s, held->job_id);
    struct piece *piece = job ? jobs_piece(job, held->piece, NULL) : NULL;
    if (!piece || piece->lane != lane)
        return false;
    piece->regroups = missed_regrouping(job, piece, held);
    if (piece->regroups)
        return true; /* the new ranks are sent to the lane with the next PlaceRequest */
    if (piece->epoch != held->epoch)
        return false;
    piece->state = PIECE_READY;
    if (held->is_frozen) /* the move or regrouping that froze the piece was aborted (K19, K41) */
        telling_thaw(lane, job->id, (uint32_t[]){held->piece}, 1);
    return true;
}

static bool is_back(const struct piece *piece, const void *aggregator)
{
    return piece->lane->aggregator == aggregator && piece->state == PIECE_READY &&
           piece->recovering && piece->epoch > 1;
}

void recovery_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join)
{
    struct service *s = a->service;
    list_for_each (node, &s->jobs)
        each_piece(list_entry(node, struct job, link), expect, a);
    for (size_t i = 0; i < join->n_held; i++) {
        struct lane *lane = lane_find(s, join->held[i]->lane);
        if (!lane || lane->aggregator != a)
            continue;
        if (!take_held(s, lane, join->held[i]))
            telling_drop(lane, join->held[i]->job_id, &join->held[i]->piece, 1);
    }
    shards_reconcile(a, join);
    list_for_each_safe_entry (struct job, job, &s->jobs, link) {
        telling_place(job);
        tensors_send_routes(job, NULL, is_back, a);
        s->on->job->tensors_are_settled(job);
        regrouping_check(job);
        tables_send_routes(job, NULL);
    }
}
