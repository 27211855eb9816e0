/* Carries out orders of operators, one job after another, in batches of tasks (K21). Owns struct
 * order. migration/migration.c moves the tasks. An order never blocks other work. */
#include "svc/coordinator/order/order.h"

#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/job/hold.h"
#include "svc/coordinator/job/task.h"
#include "svc/coordinator/placement/apply_plan.h"
#include "svc/coordinator/recovery/recovery.h"
#include "svc/coordinator/session/wait.h"

#include <errno.h>
#include <stdlib.h>

#define ORDER_DEADLINE_NS (600 * NS_PER_S) /* deadline of the answer; the order has no deadline */
#define BUSY_NS (10 * NS_PER_S)            /* longest wait for a job that is busy or cannot move */
/* longest wait for a busy job if the order's aggregator is about to end */
#define BUSY_ENDING_NS NS_PER_S
#define TIMES_MOST 16 /* largest factor for the size of a batch */
/* pause before the second attempt; doubles before each further attempt */
#define AGAIN_NS (50 * NS_PER_MS)
#define AGAIN_MOST_NS NS_PER_S /* longest pause before an attempt; each attempt logs one line */

static void step(struct order *order);

/* --- the end --- */

void order_free(struct order *order)
{
    timer_stop(&order->again);
    list_remove(&order->link);
    free(order->jobs);
    free(order->tasks);
    free(order);
}

static struct order *order_find(struct service *s, uint64_t id)
{
    list_for_each (node, &s->works->orders)
        if (list_entry(node, struct order, link)->id == id)
            return list_entry(node, struct order, link);
    return NULL;
}

void orders_destroy(struct service *s)
{
    list_for_each_safe (node, &s->works->orders)
        order_free(list_entry(node, struct order, link));
}

/* Returns the length of the hold, for the answer. Only moves by growth and --explore wait for the
 * end of a hold, so the function returns 0 if neither is on. */
static uint64_t hold_told_ns(const struct service *s)
{
    return s->scaling->is_on || s->options->explores ? s->options->order_hold_ns : 0;
}

static void answer(struct wait *wait, const struct order *order)
{
    peer_reply(wait->peer, wait->request, MOVE_REPLY, move_reply, .tasks = order->moved,
               .bytes = order->state_bytes, .longest_ns = order->longest_ns,
               .stays = (char *)order->stays, .lanes = order->lanes, .undone = order->undone,
               .hold_ns = order->lane ? hold_told_ns(order->service) : 0);
    wait_destroy(wait);
}

/* Begins the hold of the moved jobs. */
static void hold_moved(const struct order *order)
{
    const struct lane *lane = lane_find(order->service, order->lane);
    for (size_t i = 0; lane && i < order->jobs_count; i++) {
        struct job *job = jobs_find_id(order->service, order->jobs[i]);
        if (job)
            order_hold_begin(job, lane);
    }
}

/* Opens the lanes of a failed drain again. A lane that stays withheld with tasks gets no new tasks,
 * and cannot be stopped either (K95). */
static void undo_drain(struct order *order)
{
    struct service *s = order->service;
    /* the order leaves the list first, so that orders_lane_back() skips it */
    list_remove(&order->link);
    list_for_each_entry (struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count && a->state != AGGREGATOR_LOST; i++) {
            struct lane *lane = &a->lanes[i];
            if (lane->use != LANE_WITHHELD || lane->withheld_by != order->id)
                continue;
            order_give_back(lane, "its drain failed");
            order->undone++;
        }
    }
    if (order->undone > 0)
        events_note(s->events, "undrain", "the drain of %s %u is undone: %s",
                    order->from_lane ? "lane" : "aggregator",
                    order->from_lane ? order->from_lane : order->from_aggregator, order->stays);
}

static void finish(struct order *order)
{
    struct service *s = order->service;
    hold_moved(order);
    if (order->has_failed && order->lane == 0)
        undo_drain(order);
    struct wait *wait = wait_find(s, order->wait);
    if (wait)
        answer(wait, order);
    bool has_lanes = order->undone > 0;
    if (order->done)
        order->done(s, order);
    order_free(order);
    if (has_lanes)
        recovery_place_stranded(s); /* jobs that wait for a lane may use these lanes */
}

static void too_late(struct wait *wait)
{
    peer_fail(wait->peer, wait->request, -ETIMEDOUT,
              "some tasks have not moved within the deadline of the command, and are still "
              "moving; see gradpool status and gradpool jobs");
    wait_destroy(wait);
}

/* --- the current job --- */

static struct job *job_at_hand(const struct order *order)
{
    return order->jobs_at > 0 ? jobs_find_id(order->service, order->jobs[order->jobs_at - 1])
                              : NULL;
}

static void forget_tasks(struct order *order)
{
    free(order->tasks);
    order->tasks = NULL;
    order->tasks_count = order->tasks_at = 0;
}

static void note_stay(struct order *order, const struct job *job, const char *why)
{
    if (job)
        text_append(order->stays, sizeof order->stays, "%sjob %.64s: %s", *order->stays ? "; " : "",
                    job->name, why);
    order->has_failed = true;
    forget_tasks(order);
}

static bool is_drained_by(const struct order *order, const struct lane *lane)
{
    return order->from_lane == lane->id || order->from_aggregator == lane->aggregator->id;
}

static bool is_ordered(const struct tensor *tensor, const struct piece *piece, const void *context)
{
    const struct order *order = context;
    if (!piece->lane || tensor->failure)
        return false;
    if (order->lane == 0)
        return is_drained_by(order, piece->lane) &&
               (order->ends || piece->lane->use == LANE_WITHHELD);
    return piece->lane->id != order->lane && (order->task == 0 || order->task == piece->task);
}

/* Checks the target lane again, because time may have passed since the request. */
static int check_lane(const struct lane *lane, uint32_t id, struct err *err)
{
    if (!lane || lane->aggregator->state == AGGREGATOR_LOST)
        return err_set(err, -ENOENT, "lane %u is gone", id);
    if (lane->use == LANE_WITHHELD)
        return err_set(err, -EINVAL, "lane %u is drained", id);
    if (lane->use == LANE_CLOSING)
        return err_set(err, -EBUSY, "lane %u is being emptied; choose another lane", id);
    if (lane->use == LANE_PARKED && lanes_room(lane->aggregator->service) == 0)
        return err_set(
            err, -ENOSPC,
            "lane %u is parked, and the maximum number of lanes is open: raise --lanes-max", id);
    return 0;
}

static int choose_lanes(struct order *order, struct job *job, struct err *err)
{
    if (order->ends)
        return placing_plan_ending(job, order->tasks, order->tasks_count, err);
    if (order->lane == 0)
        return placing_plan_leaving(job, order->tasks, order->tasks_count, err);
    struct lane *lane = lane_find(order->service, order->lane);
    int error = check_lane(lane, order->lane, err);
    if (error < 0)
        return error;
    lane_open(lane);
    order_hold_begin(job, lane);
    for (size_t i = 0; i < order->tasks_count; i++)
        order->tasks[i].lane = lane->id;
    return 0;
}

static void be_patient(struct order *order)
{
    order->patience_ns = clock_now_ns() + (order->ends ? BUSY_ENDING_NS : BUSY_NS);
    order->pause_ns = AGAIN_NS;
}

/* Starts the timer of another attempt, unless the job has been busy for too long. Returns whether
 * the timer was started. */
static bool try_later(struct order *order, const char *why)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= order->patience_ns)
        return false;
    log_debug("a move waits: %s", why);
    timer_start(order->service->loop, &order->again, now_ns + order->pause_ns);
    order->pause_ns = order->pause_ns < AGAIN_MOST_NS / 2 ? 2 * order->pause_ns : AGAIN_MOST_NS;
    return true;
}

/* Plans the moves of the job. Returns false if a move in progress has to end first. */
static bool plan(struct order *order, struct job *job)
{
    struct err err;
    forget_tasks(order);
    order->is_stale = false;
    bool goes_astray = order->lane == 0 && moving_goes_astray(job);
    static const char astray[] = "its tasks are still moving to a lane that is being emptied";
    if (goes_astray && try_later(order, astray))
        return false;
    if (goes_astray)
        note_stay(order, job, astray);
    int error = tasks_list(job, is_ordered, order, &order->tasks, &order->tasks_count);
    if (error < 0)
        note_stay(
            order, job,
            "gradpool serve has no memory for the list of tasks to move; raise its memory limit");
    else if (order->tasks_count > 0 && choose_lanes(order, job, &err) < 0)
        note_stay(order, job, err.text);
    return true;
}

/* --- batches --- */

static void tell_progress(const struct order *order)
{
    const struct job *job = job_at_hand(order);
    struct wait *wait = wait_find(order->service, order->wait);
    if (wait)
        peer_reply(wait->peer, 0, MOVE_PROGRESS, move_progress, .job = job ? job->name : NULL,
                   .tasks = order->moved, .bytes = order->state_bytes);
}

/* Returns whether the error may be temporary: a job is busy, or an aggregator or worker is away.
 * Also returns true if a piece no longer exists, because the next plan leaves the piece out. */
static bool may_pass(int error)
{
    return error == -EBUSY || error == -ECANCELED || error == -EAGAIN || error == -ENOENT ||
           error == -ECONNRESET || error == -ETIMEDOUT;
}

/* Doubles the size of batches if the order spent most of its time waiting for moments without
 * rounds. Each batch needs a moment without rounds (K39). */
static void choose_batch(struct order *order, const struct moved *moved)
{
    bool has_waited = clock_now_ns() - order->began_ns > 2 * moved->longest_ns;
    if (order->ends && has_waited && order->times < TIMES_MOST)
        order->times *= 2;
}

static void batch_done(struct service *s, uint64_t context, const struct moved *moved)
{
    struct order *order = order_find(s, context);
    if (!order)
        return;
    if (moved->code < 0) {
        if (may_pass(moved->code) && try_later(order, moved->text))
            return;
        note_stay(order, job_at_hand(order), moved->text);
        return step(order);
    }
    order->tasks_at += order->batch;
    order->moved += moved->tasks;
    order->state_bytes += moved->state_bytes;
    choose_batch(order, moved);
    be_patient(order);
    if (moved->longest_ns > order->longest_ns)
        order->longest_ns = moved->longest_ns;
    tell_progress(order);
    step(order);
}

static int start_batch(struct order *order, struct job *job, struct err *err)
{
    order->batch = tasks_larger_batch(order->tasks + order->tasks_at,
                                      order->tasks_count - order->tasks_at, order->times);
    order->began_ns = clock_now_ns();
    struct task_move *moves = calloc(order->batch, sizeof *moves);
    if (!moves)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a move of job %.64s; raise its memory limit",
            job->name);
    for (size_t i = 0; i < order->batch; i++) {
        const struct task *task = &order->tasks[order->tasks_at + i];
        moves[i] = (struct task_move){.task = task->id,
                                      .lane = task->lane,
                                      .is_forced = order->ends,
                                      .how = order->lane ? SHARE_ORDERED : SHARE_UNKNOWN};
    }
    int error = moving_start(job, moves, order->batch, batch_done, order->id, err);
    free(moves);
    if (error == 0)
        log_info("job %s: %zu tasks leave for %s%u: %s", job->name, order->batch,
                 order->lane ? "lane " : "open lanes, the first for lane ",
                 order->tasks[order->tasks_at].lane,
                 order->lane   ? "an operator ordered it"
                 : order->ends ? "their aggregator is ending"
                               : "their lane is drained");
    return error;
}

/* Returns whether a batch is in progress or will be tried again. */
static bool go_on(struct order *order, struct job *job)
{
    struct err err;
    int error = start_batch(order, job, &err);
    if (error == 0)
        return true;
    if (may_pass(error) && try_later(order, err.text))
        return true;
    note_stay(order, job, err.text);
    return false;
}

static void step(struct order *order)
{
    for (;;) {
        struct job *job = job_at_hand(order);
        bool has_tasks = job && order->tasks_at < order->tasks_count;
        if (has_tasks && order->is_stale) {
            if (!plan(order, job))
                return;
            continue;
        }
        if (has_tasks && go_on(order, job))
            return;
        if (has_tasks)
            continue;
        if (order->jobs_at == order->jobs_count)
            return finish(order);
        order->jobs_at++;
        be_patient(order);
        if ((job = job_at_hand(order)) && !plan(order, job))
            return;
    }
}

void orders_lane_back(const struct lane *lane)
{
    list_for_each_entry (struct order, order, &lane->aggregator->service->works->orders, link) {
        if (!is_drained_by(order, lane))
            continue;
        order->is_stale = true;
        if (lane->jobs == 0)
            continue;
        text_append(order->stays, sizeof order->stays,
                    "%sthe tasks left on lane %u, whose drain was undone meanwhile",
                    *order->stays ? "; " : "", lane->id);
    }
}

/* Makes a new plan, because tasks and lanes may have changed since the last attempt. */
static void try_again(struct timer *timer)
{
    struct order *order = container_of(timer, struct order, again);
    struct job *job = job_at_hand(order);
    if (!job || plan(order, job))
        step(order);
}

static void begin(struct order *order)
{
    order->times = 1;
    list_append(&order->service->works->orders, &order->link);
    step(order);
}

void order_begin(struct order *order, struct peer *p, uint64_t request)
{
    struct wait *wait = wait_create(p, request, ORDER_DEADLINE_NS, too_late, NULL);
    if (!wait)
        return order_free(order);
    order->wait = wait->id;
    begin(order);
}

static size_t count_jobs(const struct service *s)
{
    size_t count = 0;
    list_for_each (node, &s->jobs)
        count++;
    return count;
}

struct order *order_create(struct service *s)
{
    struct order *order = calloc(1, sizeof *order);
    if (order)
        order->jobs = calloc(count_jobs(s) + 1, sizeof *order->jobs);
    if (!order || !order->jobs) {
        free(order);
        return NULL;
    }
    order->service = s;
    order->id = ++s->door->next_id;
    timer_init(&order->again, try_again);
    list_init(&order->link);
    return order;
}

void order_add_jobs(struct order *order)
{
    list_for_each (node, &order->service->jobs)
        order->jobs[order->jobs_count++] = list_entry(node, struct job, link)->id;
}

bool order_leave(struct aggregator *a, order_done_fn done)
{
    struct order *order = order_create(a->service);
    if (!order)
        return false;
    order->from_aggregator = a->id;
    order->ends = true;
    order->done = done;
    order_add_jobs(order);
    begin(order);
    return true;
}
