/* Migrations: beginning, steps, end. Carries out the actions of migrator_step(), and stores all new
 * routes in one transaction, so that the store names one owner of each piece at any time (K19).
 * calls.c sends the messages. Only the event loop calls done(). */
#include "svc/coordinator/migration/migration.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/internal.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/session/goodbye.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* --- lookup --- */

bool moving_is_busy(const struct job *job)
{
    list_for_each_entry (const struct migration, m, &job->service->works->migrations, link)
        if (m->job == job->id && !migration_is_over(m))
            return true;
    return false;
}

static bool is_switched(const struct migration *m)
{
    return migrator_owner(m->state) == MIGRATOR_TARGET;
}

static const struct traveller *find_traveller(const struct migration *m, uint32_t piece)
{
    size_t first = 0, end = m->count;
    while (first < end) {
        size_t middle = (first + end) / 2;
        if (m->travellers[middle].piece < piece)
            first = middle + 1;
        else
            end = middle;
    }
    return first < m->count && m->travellers[first].piece == piece ? &m->travellers[first] : NULL;
}

bool moving_has(const struct job *job, uint32_t piece)
{
    list_for_each_entry (const struct migration, m, &job->service->works->migrations, link)
        if (m->job == job->id && !migration_is_over(m) && !is_switched(m) &&
            find_traveller(m, piece))
            return true;
    return false;
}

static bool has_holder(const struct migration *m, const struct aggregator *holder,
                       const struct lane *lane)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct traveller *t = &m->travellers[i];
        if (t->is_copied && t->holder == holder->id && (!lane || t->target == lane->id))
            return true;
    }
    return false;
}

bool moving_has_holder(const struct job *job, const struct aggregator *holder,
                       const struct lane *lane)
{
    list_for_each_entry (const struct migration, m, &job->service->works->migrations, link)
        if (m->job == job->id && !migration_is_over(m) && has_holder(m, holder, lane))
            return true;
    return false;
}

static bool has_withheld_target(const struct migration *m)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct lane *lane = lane_find(m->service, m->travellers[i].target);
        if (lane && (lane->use == LANE_WITHHELD || lane->aggregator->is_stopping))
            return true;
    }
    return false;
}

bool moving_goes_astray(const struct job *job)
{
    list_for_each_entry (const struct migration, m, &job->service->works->migrations, link)
        if (m->job == job->id && !migration_is_over(m) && has_withheld_target(m))
            return true;
    return false;
}

/* Adds 1 to `arriving` of each target, or subtracts 1 at the end. Growth does not park such a
 * target before the routes are stored. */
static void note_arriving(const struct migration *m, bool begins)
{
    uint32_t last = 0;
    for (size_t i = 0; i < m->count; i++) {
        uint32_t id = m->travellers[m->by_target[i]].target;
        struct lane *lane = id == last ? NULL : lane_find(m->service, id);
        last = id;
        if (lane && begins)
            lane->arriving++;
        else if (lane)
            lane->arriving--;
    }
}

static void report(struct timer *timer);
static void migration_feed(struct migration *m, enum migrator_event event);

/* Reserves the epoch for the new routes, which are stored later. If a recovery begins in the
 * meantime, its epoch is higher. */
void migration_begin(struct migration *m, struct job *job)
{
    timer_init(&m->over, report);
    m->feed = migration_feed;
    list_append(&m->service->works->migrations, &m->link);
    m->epoch = ++job->epoch;
    note_arriving(m, true);
    migration_feed(m, MIGRATOR_E_START);
}

/* --- the end --- */

#define FINISH_BYTES (ERR_TEXT_BYTES + 256)

static void migration_free(struct migration *m)
{
    timer_stop(&m->over);
    list_remove(&m->link);
    migration_forget_state(m);
    free(m->travellers);
    free(m->by_source);
    free(m->by_target);
    free(m);
}

static void report(struct timer *timer)
{
    struct migration *m = container_of(timer, struct migration, over);
    struct service *s = m->service;
    uint32_t id = m->job;
    m->moved.text = m->text;
    if (m->done)
        m->done(s, m->context, &m->moved);
    migration_free(m);
    struct job *job = jobs_find_id(s, id);
    if (!job)
        return;
    keeping_check(job);
    s->on->job->may_regroup(job);
}

/* Ends the migration. The event loop calls done() later. */
static void finish(struct migration *m)
{
    const struct job *job = migration_job(m);
    const char *name = job ? job->name : "(ended)";
    bool stays = m->state == MIGRATOR_C_ABORTED, is_one = m->moved.tasks == 1;
    char text[FINISH_BYTES];
    if (stays)
        snprintf(text, sizeof text, "job %s: %u %s: %s", name, m->moved.tasks,
                 is_one ? "task stays on its lane" : "tasks stay on their lanes", m->text);
    else
        snprintf(text, sizeof text,
                 "job %s: %u %s moved, epoch %u: %.1f MiB of state, interrupted %.2f ms", name,
                 m->moved.tasks, is_one ? "task has" : "tasks have", m->epoch,
                 (double)m->moved.state_bytes / (1 << 20), (double)m->moved.longest_ns / NS_PER_MS);
    if (stays || m->moved.longest_ns > 0) {
        log_write(stays ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, "%s", text);
        events_note(m->service->events, stays ? "stay" : "move", "%s", text);
    }
    note_arriving(m, false);
    timer_start(m->service->loop, &m->over, 0);
}

static void give_up(struct migration *m, struct job *job)
{
    if (m->moved.code == 0) {
        m->moved.code = -ECONNRESET;
        snprintf(m->text, sizeof m->text, "an aggregator has ended");
    }
    migration_drop_targets(m, job, false);
    migration_end_copies(m, job, true);
    if (job)
        migration_thaw_sources(m, job);
    finish(m);
}

/* --- the switch --- */

static int write_route(struct migration *m)
{
    struct service *s = m->service;
    struct job *job = migration_job(m);
    struct store_row row;
    struct err err;
    store_begin(s->store);
    jobs_row(job, &row);
    store_put(s->store, &row);
    for (size_t i = 0; i < m->count; i++) {
        struct tensor *tensor;
        const struct piece *piece = jobs_piece(job, m->travellers[i].piece, &tensor);
        if (!piece)
            continue;
        piece_row(tensor, piece, &row);
        row.piece.lane = m->travellers[i].target;
        row.piece.epoch = m->epoch;
        row.piece.keeper = m->travellers[i].holder;
        row.piece.former_keeper = 0;
        store_put(s->store, &row);
    }
    int error = store_commit(s->store, &err);
    if (error < 0) {
        m->moved.code = error;
        snprintf(m->text, sizeof m->text, "%s", err.text);
    }
    return error;
}

/* Subtracts the piece's part of the source's lane time, in proportion to bytes, and returns this
 * part. The target uses the value until its lane time is measured. */
static uint64_t take_lane_time(const struct tensor *tensor, const struct piece *piece)
{
    struct share *share = jobs_share(tensor->job, piece->lane);
    double part =
        share->bytes ? (double)tensor_bytes(tensor, piece->elements) / (double)share->bytes : 0;
    uint64_t lane_ns = (uint64_t)((double)share->lane_ns * part);
    share->lane_ns -= lane_ns;
    return lane_ns;
}

/* Moves the piece to its target. Cannot fail: moving_start() has created the share. */
static void settle(struct migration *m, struct job *job, const struct traveller *t)
{
    struct tensor *tensor;
    struct piece *piece = jobs_piece(job, t->piece, &tensor);
    struct lane *target = lane_find(m->service, t->target);
    if (!piece)
        return;
    uint64_t lane_ns = take_lane_time(tensor, piece);
    piece_detach(tensor, piece);
    piece_attach(tensor, piece, target);
    lane_open(target); /* growth may have parked the target during the move */
    struct share *share = jobs_share(job, target);
    share->lane_ns += lane_ns;
    share->how = t->how ? t->how : share->how;
    piece->epoch = m->epoch;
    piece->state = PIECE_READY;
    piece->recovering = true;
    keeping_moved(job, piece, t->holder, t->is_copied);
}

/* Moves all pieces to their targets. The lanes have other pieces now, so all shares of the job are
 * measured anew (K20). */
static void settle_all(struct migration *m)
{
    struct job *job = migration_job(m);
    for (size_t i = 0; i < m->count; i++)
        settle(m, job, &m->travellers[i]);
    for (size_t i = 0; i < job->shares_count; i++) {
        job->shares[i].seen = (struct seen){0};
        estimate_restart(&job->shares[i].time);
    }
    job->figures->moved_ns = clock_now_ns();
}

static bool has_moved(const struct piece *piece, const void *context)
{
    const struct migration *m = context;
    return piece->epoch == m->epoch && piece->lost_epoch < m->epoch;
}

/* Sends the routes to the workers. The target receives no message: the first messages of workers
 * make its pieces active. */
static void activate(struct migration *m)
{
    struct job *job = migration_job(m);
    tensors_send_routes(job, NULL, has_moved, m);
    keeping_check(job);
    if (m->moved.longest_ns == 0 && m->rested_ns > 0)
        m->moved.longest_ns = clock_now_ns() - m->rested_ns;
    migration_drop_targets(m, job, true);
    migration_end_copies(m, job, false);
    leavers_changed(job);
    migration_let_go(m);
    migration_feed(m, MIGRATOR_E_ACTIVATED);
}

static void switch_over(struct migration *m)
{
    bool is_written = write_route(m) == 0;
    if (is_written)
        settle_all(m);
    migration_feed(m, is_written ? MIGRATOR_E_ROUTE_WRITTEN : MIGRATOR_E_REFUSED);
}

/* --- the order of the calls --- */

static void step_prepared(struct migration *m) { migration_feed(m, MIGRATOR_E_PREPARED); }
static void step_await_holders(struct migration *m) { migration_await_copies(m, step_prepared); }
static void step_begin_copies(struct migration *m)
{
    migration_begin_copies(m, step_await_holders);
}
static void step_prepare(struct migration *m) { migration_prepare(m, step_begin_copies); }

static void step_installed(struct migration *m) { migration_feed(m, MIGRATOR_E_INSTALLED); }
static void step_await_copies(struct migration *m) { migration_await_copies(m, step_installed); }
static void step_install(struct migration *m) { migration_install(m, step_await_copies); }
static void step_send_state(struct migration *m) { migration_send_state(m, step_install); }
static void step_release(struct migration *m) { migration_release(m, step_send_state); }

/* --- events --- */

static void carry_out(struct migration *m, enum migrator_action action, enum migrator_state was)
{
    switch (action) {
    case MIGRATOR_A_SEND_PREPARE: return step_prepare(m);
    case MIGRATOR_A_SEND_MOVE: return step_release(m);
    case MIGRATOR_A_WRITE_ROUTE: return switch_over(m);
    case MIGRATOR_A_SEND_ACTIVATE: return activate(m);
    case MIGRATOR_A_SEND_ABORT: return give_up(m, migration_job(m));
    case MIGRATOR_A_RECOVER: /* recovery.c places the pieces of the lost lane */
        if (m->state == MIGRATOR_C_ABORTED && was != MIGRATOR_C_ABORTED)
            give_up(m, migration_job(m));
        else if (m->state == MIGRATOR_C_DONE && was != MIGRATOR_C_DONE)
            finish(m);
        return;
    case MIGRATOR_A_FINISH: return finish(m);
    default: return;
    }
}

static void migration_feed(struct migration *m, enum migrator_event event)
{
    enum migrator_state was = m->state;
    struct migrator_transition next = migrator_step(was, event, false);
    m->state = next.state;
    carry_out(m, next.action, was);
}

static bool has_lane_of(const struct migration *m, const struct aggregator *a, bool as_source)
{
    for (size_t i = 0; i < m->count; i++)
        for (size_t k = 0; k < a->lanes_count; k++)
            if (a->lanes[k].id == (as_source ? m->travellers[i].source : m->travellers[i].target))
                return true;
    return false;
}

/* Returns whether `a` stores, or begins to store, replicas of moving pieces. When `a` ends, the
 * rounds of these pieces cannot complete without a new replica holder, and a moving piece gets
 * none. The migration then has to end (K57). */
static bool waits_for_holder(const struct migration *m, const struct aggregator *a)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct piece *piece = jobs_piece(migration_job(m), m->travellers[i].piece, NULL);
        if (piece && piece->keeping.holder == a->id)
            return true;
    }
    return has_holder(m, a, NULL);
}

void moving_worker_leaves(const struct job *job)
{
    list_for_each_entry (struct migration, m, &job->service->works->migrations, link)
        if (m->job == job->id && !migration_is_over(m) && !is_switched(m))
            migration_refused(m, -EAGAIN, "a worker left the job during the move");
}

void moving_aggregator_away(struct aggregator *a)
{
    list_for_each_entry (struct migration, m, &a->service->works->migrations, link) {
        bool takes_part =
            has_lane_of(m, a, true) || has_lane_of(m, a, false) || has_holder(m, a, NULL);
        if (!migration_is_over(m) && !is_switched(m) && takes_part)
            migration_refused(m, -ECONNRESET, "the control connection of an aggregator has ended");
    }
}

void moving_holder_unfit(const struct job *job, const struct aggregator *holder,
                         const struct lane *lane)
{
    list_for_each_entry (struct migration, m, &job->service->works->migrations, link)
        if (m->job == job->id && !migration_is_over(m) && !is_switched(m) &&
            has_holder(m, holder, lane))
            migration_refused(m, -EAGAIN,
                              "no replica holder has memory for copies of the moving tasks");
}

void moving_aggregator_lost(struct aggregator *a)
{
    list_for_each_entry (struct migration, m, &a->service->works->migrations, link) {
        if (!migration_is_over(m) && has_lane_of(m, a, false))
            migration_feed(m, MIGRATOR_E_TARGET_LOST);
        if (!migration_is_over(m) && has_lane_of(m, a, true) && !is_switched(m))
            migration_feed(m, MIGRATOR_E_SOURCE_LOST);
        if (!migration_is_over(m) && !is_switched(m) && waits_for_holder(m, a))
            migration_refused(m, -ECONNRESET, "the replica holder of the moving tasks was lost");
    }
}

/* Ends the migrations of a job that is ending. Sources receive no message here, because the end of
 * the job drops all its pieces. */
void moving_end_job(struct job *job)
{
    list_for_each_entry (struct migration, m, &job->service->works->migrations, link) {
        if (m->job != job->id || migration_is_over(m))
            continue;
        bool is_late = is_switched(m);
        m->state = is_late ? MIGRATOR_C_DONE : MIGRATOR_C_ABORTED;
        if (is_late) {
            finish(m);
            continue;
        }
        m->moved.code = -ECANCELED;
        snprintf(m->text, sizeof m->text, "the job has ended");
        give_up(m, NULL);
    }
}

void moving_destroy(struct service *s)
{
    list_for_each_safe_entry (struct migration, m, &s->works->migrations, link)
        migration_free(m);
}
