/* The loop of a lane, and its functions for the control thread. Owns the list of jobs. RULES.md:
 * A1, A8. */
#include "svc/lane/lane.h"

#include "svc/base/clock.h"
#include "svc/lane/chunk/transfer.h"
#include "svc/lane/events.h"
#include "svc/lane/job.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/piece.h"
#include "svc/lane/piece/waits.h"
#include "svc/lane/round/holder.h"
#include "svc/lane/round/round.h"
#include "svc/lane/rows/rows.h"
#include "svc/lane/state/replica.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/serving.h"
#include "svc/lane/worker/worker.h"
#include "svc/wire/table/table_load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define EVENTS_PER_POLL 64
/* Number of shares of work between two polls of the fabrics: four long chunks, or as many bytes in
 * small chunks. */
#define SHARES_PER_TURN (4 * TRANSFER_SHARE)

int lane_create(const struct lane_options *options, struct lane **ret_lane)
{
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return -ENOMEM;
    lane->options = *options;
    list_init(&lane->jobs);
    lane->chunks_are_over = round_chunks_are_over;
    policy_init(lane);
    list_init(&lane->telling);
    list_init(&lane->tracings);
    *ret_lane = lane;
    return 0;
}

static void forget_connections(struct lane_job *job)
{
    for (uint32_t i = 0; i < job_peers(job); i++)
        worker_close(&job->workers[i], WORKER_ABSENT);
    for (int i = 0; i < TRANSFERS_PER_JOB; i++)
        job->transfers[i].outstanding = 0;
    servings_abandon(job);
    job->replaced = 0;
}

void lane_destroy(struct lane *lane)
{
    if (!lane)
        return;
    lane->options.fabrics_count = 0; /* closed by the caller */
    list_for_each_safe_entry (struct lane_job, job, &lane->jobs, link) {
        job->is_dropped = true;
        forget_connections(job);
        job_release(job);
    }
    policy_fini(lane);
    free(lane);
}

void lane_set_id(struct lane *lane, uint32_t id) { lane->options.id = id; }

/* Handles events. The clock is read before and after expensive work, so that account.c can charge
 * each job. Returns the time. */
static uint64_t take_events(struct lane *lane, size_t index, uint64_t began_ns)
{
    struct fabric_event events[EVENTS_PER_POLL];
    struct fabric *fabric = lane->options.fabrics[index];
    int count = fabric_poll(fabric, events, EVENTS_PER_POLL);
    uint64_t polled_ns = clock_now_ns();
    account_events(lane, index, events, count, polled_ns - began_ns - lane->billed_ns);
    lane->billed_ns = 0;
    for (int i = 0; i < count; i++)
        lane_handle(lane, fabric, &events[i]);
    if (count == 0)
        return polled_ns;
    uint64_t handled_ns = clock_now_ns();
    lane->unshared_ns[index] += handled_ns - polled_ns - lane->apart_ns;
    lane->apart_ns = 0;
    return handled_ns;
}

/* Returns whether the turn has to end. The time of a turn is limited, because no event is handled
 * during a turn. */
static bool is_over(const struct lane *lane, uint32_t given, uint64_t spent_ns)
{
    uint64_t most_ns = lane->options.turn_ns;
    return given >= SHARES_PER_TURN || (most_ns > 0 && spent_ns >= most_ns);
}

static void give_turns(struct lane *lane)
{
    uint64_t spent_ns = 0;
    for (uint32_t given = 0; !is_over(lane, given, spent_ns);) {
        struct lane_job *job = policy_next(lane);
        if (!job)
            return;
        uint64_t began_ns = job->busy_ns;
        uint32_t share = rows_turn(job);
        /* the time of tables is charged to no piece, because all pieces wait during this time */
        uint64_t rows_ns = job->busy_ns - began_ns;
        lane->now_ns += rows_ns;
        share += transfer_turn(job);
        spent_ns += job->busy_ns - began_ns;
        account_turn(job, job->busy_ns - began_ns - rows_ns);
        given += share ? share : TRANSFER_SHARE;
        if (share)
            policy_put_back(job);
        else
            job_release(job);
    }
}

/* Sends messages. Their time is charged together with the next events of the fabric whose events
 * were handled last. */
static void tell(struct lane *lane)
{
    uint64_t began_ns = clock_now_ns();
    tell_flush(lane);
    for (size_t i = 0; i < lane->options.fabrics_count; i++)
        fabric_flush(lane->options.fabrics[i]);
    lane->unshared_ns[lane->heard] += clock_now_ns() - began_ns;
}

/* Continues rounds whose wait for takers has ended, and rounds whose rule has to decide now. */
static void end_waits(struct lane *lane)
{
    struct piece *p;
    while ((p = waits_due(lane)))
        round_go_on(p);
}

uint64_t lane_next_ns(const struct lane *lane) { return waits_next_ns(lane); }

void lane_pass_over(struct lane *lane, size_t fabric) { lane->passes_over[fabric] = true; }

bool lane_poll(struct lane *lane, uint64_t now_ns)
{
    uint64_t at_ns = clock_now_ns();
    lane->now_ns = now_ns;
    for (size_t i = 0; i < lane->options.fabrics_count; i++) {
        if (!lane->passes_over[i])
            at_ns = take_events(lane, i, at_ns);
        lane->passes_over[i] = false;
    }
    end_waits(lane);
    give_turns(lane);
    tell(lane);
    return !line_is_empty(&lane->running);
}

static bool specs_are_valid(const struct lane_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t element_bytes = reduce_element_bytes(pieces[i].dtype);
        if (element_bytes == 0 || pieces[i].elements > UINT64_MAX / 2 / element_bytes)
            return false;
    }
    return true;
}

/* Places all pieces, or none. New pieces are appended to the list of the job, and are freed after
 * an error. */
static int place_all(struct lane_job *job, uint32_t epoch, bool recovering,
                     const struct lane_piece *pieces, size_t count)
{
    size_t made = 0;
    int error = 0;
    for (size_t i = 0; error >= 0 && i < count; i++) {
        error = piece_place(job, &pieces[i], epoch, recovering);
        made += error > 0;
    }
    for (; error < 0 && made > 0; made--)
        piece_free(list_entry(job->pieces.previous, struct piece, link));
    return error < 0 ? error : 0;
}

/* Returns the maximum number of gradients of one rank in a round of the job. */
static uint32_t specs_gradients(const struct lane_piece *pieces, size_t count)
{
    const struct backup_terms *terms = count > 0 ? pieces->backup : NULL;
    return terms && terms->gradients > 1 ? terms->gradients : 1;
}

int lane_place(struct lane *lane, uint32_t job_id, const char *name, uint32_t workers,
               uint32_t epoch, bool recovering, const struct lane_piece *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    uint32_t gradients = specs_gradients(pieces, count);
    if (workers == 0 || workers > LANE_WORKERS_MAX || !specs_are_valid(pieces, count))
        return -EINVAL;
    if (job &&
        (job->workers_count != workers || (count > 0 && job->sampling->gradients != gradients)))
        return -EINVAL;
    bool is_new = !job;
    uint64_t began_ns = clock_now_ns();
    int error = job ? 0 : job_create(lane, job_id, name, workers, gradients, &job);
    if (error == 0)
        error = place_all(job, epoch, recovering, pieces, count);
    if (job)
        account_bill(job, clock_now_ns() - began_ns);
    if (error < 0 && is_new && job) {
        job->is_dropped = true;
        job_release(job);
    }
    return error == -ENOMEM ? arena_lack(lane->options.arena) : error;
}

void lane_set_holder(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count,
                     uint32_t holder, bool when_known)
{
    struct lane_job *job = job_find(lane, job_id);
    for (size_t i = 0; job && i < count; i++) {
        struct piece *p = piece_find(job, pieces[i]);
        if (p && p->parameters && !p->is_dropped)
            replica_set_holder(p, holder, when_known);
    }
}

size_t lane_piece_bytes(void) { return sizeof(struct piece); }
size_t lane_rank_bytes(void) { return sizeof(struct rank); }

void lane_set_memory_limit(struct lane *lane, uint64_t bytes)
{
    arena_set_limit(lane->options.arena, bytes);
}

void lane_set_job_memory_limit(struct lane *lane, uint64_t bytes)
{
    arena_set_account_limit(lane->options.arena, bytes);
}

void lane_set_lent_limits(struct lane *lane, uint32_t job_id, const struct lane_lent *limits)
{
    struct lane_job *job = job_find(lane, job_id);
    if (!job)
        return;
    snprintf(job->tenant, sizeof job->tenant, "%s", limits->tenant);
    job->lent_max = *limits;
    job->lent_max.tenant = job->tenant;
    job->account.limit_bytes = limits->memory_bytes_max;
    policy_set_tenant(job, job->tenant);
}

uint64_t lane_job_memory(const struct lane *lane, uint32_t job_id)
{
    const struct lane_job *job = job_find((struct lane *)lane, job_id);
    return job ? job->account.bytes : 0;
}

void lane_memory(const struct lane *lane, uint64_t *ret_bytes, uint64_t *ret_limit_bytes)
{
    *ret_bytes = arena_counted_bytes(lane->options.arena);
    *ret_limit_bytes = arena_limit(lane->options.arena);
}

static void drop_job(struct lane_job *job)
{
    job->is_dropped = true;
    for (uint32_t i = 0; i < job_peers(job); i++) {
        if (job->workers[i].conn)
            fabric_disconnect(job->workers[i].conn);
    }
    job_wake(job); /* the job is freed in its turn, or when its last connection has closed */
}

/* Ends a copy in progress that is no longer needed. The posted writes of this copy may never
 * complete, but they end with the connection. Afterwards the piece can be placed on this lane
 * again. */
static void drop_fill(struct lane_job *job, struct piece *p)
{
    struct fabric_conn *conn = p->parameters->replica.worker->conn;
    uint32_t id = p->id;
    round_give_up(p);
    if (piece_find(job, id))
        fabric_disconnect(conn);
}

static void drop_piece(struct lane_job *job, uint32_t id)
{
    struct piece *p = piece_find(job, id);
    if (p && p->state == PIECE_COLLECTING)
        return piece_free(p);
    if (!p)
        return;
    p->is_dropped = true;
    bool is_begun = replica_is_filled(p) && replica_is_kept(p);
    if (is_begun && worker_is_holder(p->parameters->replica.worker))
        /* writes to a replica holder may never complete; writes to a rank always do */
        drop_fill(job, p);
}

void lane_drop(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    if (!job)
        return;
    if (count == 0)
        drop_job(job);
    for (size_t i = 0; i < count; i++)
        drop_piece(job, pieces[i]);
}

int lane_grant(struct lane *lane, const struct record_connect *ticket)
{
    struct lane_job *job = job_find(lane, ticket->job);
    if (!job)
        return -ENOENT;
    if (ticket->magic != RECORD_MAGIC || ticket->lane != lane->options.id ||
        ticket->incarnation != lane->options.incarnation)
        return -EINVAL;
    return job_grant(job, ticket);
}

static void count_copies(const struct lane_job *job, struct lane_job_use *use)
{
    for (struct list *node = job->pieces.next; job->has_states && node != &job->pieces;
         node = node->next) {
        const struct piece *p = list_entry(node, struct piece, link);
        bool has_state = p->parameters && p->elements > 0;
        use->states += has_state;
        use->copied += has_state && replica_is_whole(p);
        use->empty += has_state && !replica_is_whole(p) && replica_is_needless(p);
    }
}

static void measure_job(struct lane_job *job, struct lane_job_use *use)
{
    account_looks(job);
    *use = (struct lane_job_use){.job = job->id,
                                 .heap_bytes = job->account.bytes,
                                 .busy_ns = job->busy_ns,
                                 .pushed_bytes = job->pushed_bytes,
                                 .rounds = job->rounds,
                                 .queue_ns = job->queue_ns,
                                 .round_begun_ns = job->ending.begun_ns,
                                 .first_done_ns = job->ending.first_done_ns,
                                 .handled_ns = job->ending.handled_ns,
                                 .stalled_ns = job->ending.stalled_ns,
                                 .endings = job->ending.sums,
                                 .squares = *job->squares};
    if (job->reference) {
        use->reference = job->reference->id;
        use->begun_rounds = job->reference->begun_rounds;
        use->begun_ns = job->reference->begun_ns;
    }
    rows_measure(job, use);
    count_copies(job, use);
    for (uint32_t i = 0; i < job->workers_count; i++) {
        if (!job->workers[i].conn)
            continue;
        struct lent lent = lending_count(&job->workers[i]);
        use->connections++;
        use->registered_bytes += lent.bytes;
        use->registered_regions += lent.regions;
    }
}

/* Returns the allocator's count of bytes. This count is expensive, so it is read only after the
 * lane's own count has changed. */
static size_t arena_bytes(struct lane *lane)
{
    size_t counted_bytes = arena_counted_bytes(lane->options.arena);
    if (counted_bytes != lane->counted_bytes)
        lane->arena_bytes = arena_allocated_bytes(lane->options.arena);
    lane->counted_bytes = counted_bytes;
    return lane->arena_bytes;
}

void lane_measure(struct lane *lane, struct lane_use *ret_use, struct lane_job_use *ret_jobs,
                  size_t jobs_max)
{
    *ret_use = (struct lane_use){.arena_bytes = arena_bytes(lane),
                                 .helped_ns = lane->helped_ns,
                                 .rounds = lane->rounds,
                                 .pushed_bytes = lane->pushed_bytes};
    for (struct list *node = lane->jobs.next; node != &lane->jobs; node = node->next) {
        if (ret_use->jobs_count < jobs_max)
            measure_job(list_entry(node, struct lane_job, link), &ret_jobs[ret_use->jobs_count]);
        ret_use->jobs_count++;
    }
    ret_use->busy_ns = lane->busy_ns;
}

size_t lane_measure_pieces(const struct lane *lane, uint32_t job_id,
                           struct lane_piece_use *ret_rows, size_t rows_max)
{
    const struct lane_job *job = job_find((struct lane *)lane, job_id);
    size_t count = 0;
    if (job && job->tables && rows_max > 0)
        ret_rows[count++] =
            (struct lane_piece_use){.piece = TABLE_LOAD_CLOCKS, .busy_ns = rows_busy_ns(job)};
    for (struct list *at = job ? job->pieces.next : NULL;
         at && at != &job->pieces && count < rows_max; at = at->next) {
        const struct piece *p = list_entry(at, struct piece, link);
        ret_rows[count++] = (struct lane_piece_use){.piece = p->id, .busy_ns = p->busy_ns};
    }
    return count;
}

void lane_each_piece(const struct lane *lane,
                     void (*each)(void *context, const struct lane_held *held), void *context)
{
    for (struct list *node = lane->jobs.next; node != &lane->jobs; node = node->next) {
        struct lane_job *job = list_entry(node, struct lane_job, link);
        if (job->is_dropped)
            continue; /* a new job may already have this number */
        list_for_each_entry (const struct piece, p, &job->pieces, link) {
            each(context, &(struct lane_held){job->id, p->id, p->epoch, p->is_held});
        }
    }
}

void lane_each_failure(const struct lane *lane,
                       void (*each)(void *context, uint32_t job, int code, const char *text),
                       void *context)
{
    for (struct list *node = lane->jobs.next; node != &lane->jobs; node = node->next) {
        const struct lane_job *job = list_entry(node, struct lane_job, link);
        if (job->failure && !job->is_dropped)
            each(context, job->id, job->failure, job->failure_text);
    }
}

void lane_fail_jobs(struct lane *lane, int code, const char *text)
{
    list_for_each_safe_entry (struct lane_job, job, &lane->jobs, link)
        if (!job->is_dropped)
            job_fail(job, code, "job '%s': %s", job->name, text);
}

bool lane_is_quiet(const struct lane *lane)
{
    if (!line_is_empty(&lane->running) || !list_is_empty(&lane->telling))
        return false;
    for (struct list *node = lane->jobs.next; node != &lane->jobs; node = node->next) {
        const struct lane_job *job = list_entry(node, struct lane_job, link);
        if (transfer_is_active(job) || servings_are_posted(job))
            return false;
    }
    return rows_are_quiet(lane);
}

size_t lane_connections(const struct lane *lane) { return lane->connections; }
