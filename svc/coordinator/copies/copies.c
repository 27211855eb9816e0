/* States of the copies of tables. Before the owner completes pushes without a copy, "no copy" is
 * stored. After the loss of the owner, a copy is promoted only if it is stored as whole (K168). */
#include "svc/coordinator/copies/internal.h"

#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/store/numbers.h"
#include "svc/wire/durability.h"

#include <stdio.h>
#include <stdlib.h>

/* Pause after the first fault of a copy. The pause doubles with each further fault, up to 26 s
 * (K182). */
#define PAUSE_NS (200 * NS_PER_MS)
#define FAILURES_MOST 8
#define LASTING_NS (10 * NS_PER_S)

struct lane *copy_owner(const struct shards_copy *copy)
{
    return lane_find(copy->job->service, copy->owner);
}

struct lane *copy_replica(const struct shards_copy *copy)
{
    return copy->replica ? lane_find(copy->job->service, copy->replica) : NULL;
}

static bool copy_lane_is_up(const struct lane *lane)
{
    return lane && lane->aggregator->state == AGGREGATOR_UP;
}

/* ---- entries ---- */

static void copy_timer_fired(struct timer *timer)
{
    struct shards_copy *copy = container_of(timer, struct shards_copy, timer);
    if (copy->state == COPY_FAILED)
        promote_forget(copy);
    else
        copy_step(copy);
}

struct shards_copy *copy_at(const struct job *job, uint32_t owner)
{
    list_for_each_entry (struct shards_copy, copy, &job->index->tables.copies, link)
        if (copy->owner == owner)
            return copy;
    return NULL;
}

static struct shards_copy *copy_add(struct job *job, uint32_t owner)
{
    struct shards_copy *copy = calloc(1, sizeof *copy);
    if (!copy) {
        service_retry_later(job->service);
        return NULL;
    }
    copy->job = job;
    copy->owner = owner;
    timer_init(&copy->timer, copy_timer_fired);
    list_append(&job->index->tables.copies, &copy->link);
    return copy;
}

void copy_remove(struct shards_copy *copy)
{
    timer_stop(&copy->timer);
    list_remove(&copy->link);
    free(copy);
}

void table_copies_free(struct job *job)
{
    list_for_each_safe_entry (struct shards_copy, copy, &job->index->tables.copies, link)
        copy_remove(copy);
}

void copy_later(struct shards_copy *copy, uint64_t delay_ns)
{
    copy->not_before_ns = clock_now_ns() + delay_ns;
    timer_start(copy->job->service->loop, &copy->timer, copy->not_before_ns);
}

/* ---- the store ---- */

/* Stores for each shard on the owner that lane `replica` has a whole copy; 0: no lane has one. */
static int copy_put(const struct shards_copy *copy, uint32_t replica)
{
    struct job *job = copy->job;
    struct err err;
    store_begin(job->service->store);
    service_put_numbers(job->service);
    job_each_table(table, job) table_each_shard(shard, table)
    {
        if (!shard->lane || shard->lane->id != copy->owner)
            continue;
        shard->replica = replica;
        shard->copy = replica ? copy->copy : 0;
        job_shard_put(table, (uint32_t)(shard - table->shards));
    }
    int error = store_commit(job->service->store, &err);
    if (error < 0)
        log_error("job %s: the state of a copy of its tables was not stored: %s", job->name,
                  err.text);
    return error;
}

/* ---- begin ---- */

static bool tables_want_copies(const struct job *job)
{
    job_each_table(table, job) if (!table->failure &&
                                   table->terms->durability == DURABILITY_REPLICA) return true;
    return false;
}

/* Returns whether the lane has shards, and has confirmed all of them. Failed tables are ignored. */
static bool owner_is_ready(const struct job *job, const struct lane *lane)
{
    bool has_shards = false;
    job_each_table(table, job) table_each_shard(shard, table)
    {
        if (shard->lane != lane)
            continue;
        if (!table->failure && shard->state != PIECE_READY)
            return false;
        has_shards |= !table->failure;
    }
    return has_shards;
}

/* Chooses the replica lane: the lane with the fewest pieces, of the aggregator that
 * keeping_choose_for() returns. Open lanes are preferred. Returns 0 if there is no other
 * aggregator. */
static uint32_t copy_choose(const struct job *job, const struct lane *owner)
{
    const struct aggregator *a = aggregator_find(job->service, keeping_choose_for(job, owner));
    const struct lane *best = NULL;
    for (size_t i = 0; a && i < a->lanes_count; i++) {
        const struct lane *lane = &a->lanes[i];
        bool is_better = !best || (lane->use == LANE_OPEN && best->use != LANE_OPEN) ||
                         (lane->use == best->use && lane->pieces < best->pieces);
        if (is_better)
            best = lane;
    }
    return best ? best->id : 0;
}

static void copy_begin(struct shards_copy *copy)
{
    struct job *job = copy->job;
    const struct lane *owner = copy_owner(copy);
    if (!copy_lane_is_up(owner) || !owner_is_ready(job, owner))
        return;
    copy->replica = copy_choose(job, owner);
    if (!copy->replica) {
        if (copy->is_lacking)
            return;
        log_warn("job %s: no other aggregator can store the copy of the tables on lane %u; "
                 "until another aggregator joins, a loss of this lane loses their rows",
                 job->name, copy->owner);
        copy->is_lacking = true;
        snprintf(copy->fault, sizeof copy->fault, "there is no other aggregator");
        /* The owner may still have a log from before a restart, and would wait for the copy
         * before it completes pushes. In this state the owner is ordered to end its log (K168). */
        copy->state = COPY_ENDING;
        return copy_step(copy);
    }
    copy->copy = job->service->numbers->next_task++;
    /* The number is stored first, so that no later copy gets the same number. */
    if (copy_put(copy, 0) < 0)
        return copy_later(copy, NS_PER_S);
    if (copy->is_lacking)
        *copy->fault = 0;
    copy->is_lacking = copy->is_whole = false;
    copy->whole_ns = 0;
    copy->state = COPY_BEGUN;
    copy_step(copy);
}

/* ---- steps ---- */

static void copy_note_whole(struct shards_copy *copy)
{
    if (!copy->is_whole)
        return;
    if (copy_put(copy, copy->replica) < 0)
        return copy_later(copy, NS_PER_S);
    copy->state = COPY_WHOLE;
    copy->whole_ns = clock_now_ns();
    *copy->fault = 0;
    log_info("job %s: lane %u has a whole copy of the tables on lane %u", copy->job->name,
             copy->replica, copy->owner);
}

static void copy_note_lost(struct shards_copy *copy)
{
    if (copy_put(copy, 0) < 0)
        return copy_later(copy, NS_PER_S);
    copy->state = COPY_ENDING;
    copy_step(copy);
}

/* Counts consecutive faults. The count starts anew after a copy that was whole for LASTING_NS,
 * because the faults before that copy had another cause. */
void copy_note_end(struct shards_copy *copy, const char *why, bool is_fault)
{
    bool has_lasted = copy->whole_ns && clock_now_ns() - copy->whole_ns >= LASTING_NS;
    copy->failures = has_lasted ? 0 : copy->failures;
    copy->failures += is_fault && copy->failures < FAILURES_MOST;
    copy->whole_ns = 0;
    snprintf(copy->fault, sizeof copy->fault, "%s", why);
}

uint64_t copy_pause_ns(const struct shards_copy *copy)
{
    return PAUSE_NS << (copy->failures > 0 ? copy->failures - 1 : 0);
}

void copy_lose(struct shards_copy *copy, const char *why, bool is_fault)
{
    bool has_begun = copy->state >= COPY_BEGUN && copy->state <= COPY_WHOLE;
    if (!has_begun)
        return;
    copy_note_end(copy, why, is_fault);
    log_warn("job %s: lane %u lost its copy of the tables on lane %u: %s; another copy begins in "
             "%.1f s",
             copy->job->name, copy->replica, copy->owner, why,
             (double)copy_pause_ns(copy) / NS_PER_S);
    copy_tell_end(copy);
    copy->asked = 0;
    copy->state = copy->state == COPY_WHOLE ? COPY_LOST : COPY_ENDING;
    copy_step(copy);
}

void copy_step(struct shards_copy *copy)
{
    if (copy->job->failure || copy->job->service->phase != SERVICE_UP)
        return;
    if (copy->asked > 0 || clock_now_ns() < copy->not_before_ns)
        return;
    switch (copy->state) {
    case COPY_ABSENT: copy_begin(copy); break;
    case COPY_BEGUN: copy_tell_log(copy, true); break;
    case COPY_PLACING: copy_tell_tables(copy); break;
    case COPY_COPYING: copy_note_whole(copy); break;
    case COPY_WHOLE:
    case COPY_FAILED: break;
    case COPY_LOST: copy_note_lost(copy); break;
    case COPY_ENDING: copy_tell_log(copy, false); break;
    case COPY_PROMOTED: promote_store(copy); break;
    case COPY_PROMOTING: copy_tell_promotion(copy); break;
    }
}

static void copies_add_missing(struct job *job)
{
    for (size_t i = 0; i < job->shares_count; i++) {
        const struct lane *lane = job->shares[i].lane;
        if (job_table_on(job, lane) && !copy_at(job, lane->id))
            (void)copy_add(job, lane->id);
    }
}

/* Returns whether the owner has received a table or shard after the begin of the copy. Such a table
 * is missing in the copy, which therefore has to begin again. */
static bool copy_lacks_table(const struct shards_copy *copy)
{
    bool has_begun = copy->state >= COPY_PLACING && copy->state <= COPY_WHOLE;
    const struct lane *owner = copy_owner(copy);
    return has_begun && owner && !owner_is_ready(copy->job, owner) && copy_lane_is_up(owner);
}

void table_copies_check(struct job *job)
{
    if (!tables_want_copies(job) || job->failure || job->service->phase != SERVICE_UP)
        return;
    copies_add_missing(job);
    list_for_each_safe_entry (struct shards_copy, copy, &job->index->tables.copies, link) {
        if (copy_lacks_table(copy))
            copy_lose(copy, "another table was declared", false);
        copy_step(copy);
    }
}

void table_copies_check_all(struct service *s)
{
    list_for_each_safe_entry (struct job, job, &s->jobs, link)
        table_copies_check(job);
}

/* ---- events ---- */

static void copy_replica_lost(struct shards_copy *copy)
{
    if (copy->state == COPY_PROMOTED || copy->state == COPY_PROMOTING)
        return promote_fail(copy, "was lost before it served the rows");
    copy_lose(copy, "its aggregator was lost", false);
}

static bool copy_is_at(const struct lane *lane, const struct aggregator *a)
{
    return lane && lane->aggregator == a;
}

/* The aggregator has either the owner or the replica lane of a copy, never both. */
void table_copies_aggregator_lost(struct job *job, const struct aggregator *a)
{
    list_for_each_safe_entry (struct shards_copy, copy, &job->index->tables.copies, link) {
        if (copy_is_at(copy_replica(copy), a))
            copy_replica_lost(copy);
        else if (!copy_is_at(copy_owner(copy), a) || copy->state >= COPY_PROMOTED)
            continue;
        else if (copy->state == COPY_WHOLE)
            promote_begin(copy);
        else {
            copy_tell_end(copy);
            copy_remove(copy);
        }
    }
}

void table_copies_end(struct job *job)
{
    list_for_each_entry (struct shards_copy, copy, &job->index->tables.copies, link)
        copy_tell_end(copy);
}

bool table_copies_are_at(const struct job *job, const struct aggregator *a, const struct lane *lane)
{
    list_for_each_entry (const struct shards_copy, copy, &job->index->tables.copies, link) {
        bool is_current = copy->state >= COPY_BEGUN && copy->state <= COPY_WHOLE;
        if (is_current && copy_is_at(copy_replica(copy), a) && (!lane || lane->id == copy->owner))
            return true;
    }
    return false;
}

static struct shards_copy *copy_numbered(const struct job *job, uint32_t number)
{
    list_for_each_entry (struct shards_copy, copy, &job->index->tables.copies, link)
        if (copy->copy == number)
            return copy;
    return NULL;
}

void table_copies_handle_report(struct peer *p, const envelope *message)
{
    const WIRE(TableLogReport) *report = message->table_log_report;
    struct job *job = jobs_find_id(p->service, report->job_id);
    const struct lane *lane = lane_find(p->service, report->lane);
    struct shards_copy *copy = job && report->copy ? copy_numbered(job, report->copy) : NULL;
    if (!p->aggregator || !lane || lane->aggregator != p->aggregator || !copy)
        return;
    bool is_owner = lane->id == copy->owner;
    if (!is_owner && lane->id != copy->replica)
        return;
    if (!report->is_whole)
        return copy_lose(copy, is_owner ? "the owner's log has ended" : "a block does not fit",
                         true);
    copy->is_whole |= is_owner;
    copy_step(copy);
}

/* Creates the entry of the copy that the store names for this shard, unless the entry exists. */
static void copy_restore(struct job *job, const struct job_shard *shard)
{
    uint32_t owner = shard->former ? shard->former : shard->lane ? shard->lane->id : shard->stored;
    bool is_known = owner && copy_at(job, owner);
    struct shards_copy *copy = shard->copy && owner && !is_known ? copy_add(job, owner) : NULL;
    if (!copy)
        return;
    copy->copy = shard->copy;
    copy->is_whole = true;
    copy->replica = shard->former ? shard->lane->id : shard->replica;
    copy->state = shard->former ? COPY_PROMOTING : shard->lane ? COPY_WHOLE : COPY_PROMOTED;
}

/* Restores the copies from the rows of all shards. A shard that has lost its lane is promoted if
 * the copy is whole. If the promotion was stored, but the replica lane is lost as well, the shard
 * stays without a lane, and its table fails. */
void table_copies_restore(struct job *job)
{
    job_each_table(table, job) table_each_shard(shard, table)
    {
        bool is_over = table->failure || (shard->former && !shard->lane);
        if (is_over)
            shard->former = shard->copy = shard->replica = 0;
        if (is_over)
            continue;
        copy_restore(job, shard);
        if (!shard->lane && shard->copy)
            shard->former = shard->stored;
    }
}
