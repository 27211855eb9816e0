/* Grants table memory to lanes in steps of 2 to 64 MiB. The steps of all lanes of the job together
 * are a quarter of the memory that the limits leave, so that no lane gets all of this memory.
 * RULES.md: K145. */
#include "svc/coordinator/table/allow.h"

#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/placement/waiting.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"

#include <errno.h>

#define STEP_BYTES_MAX (UINT64_C(64) << 20)
#define STEP_BYTES_LEAST (UINT64_C(2) << 20) /* a long block of rows */
/* memory of a shard without rows: its structs and the first page of its index */
#define SHARD_START_BYTES (UINT64_C(8) << 10)

/* largest allowance that a report of a lane may name, so that sums do not overflow */
#define ALLOWED_BYTES_MAX (UINT64_C(1) << 50)

static uint64_t allow_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t allow_most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t allow_step(const struct job *job, uint64_t room)
{
    const struct row_allowances *all = job->index->tables.allowances;
    uint64_t lanes = all && all->count > 0 ? all->count : 1;
    uint64_t step = allow_most(room / (4 * lanes), STEP_BYTES_LEAST);
    return allow_least(allow_least(step, STEP_BYTES_MAX), room);
}

/* ---- declares ---- */

/* Returns the bytes for shards of the job that no allowance includes yet. */
static uint64_t allow_pending(const struct job *job)
{
    const struct row_allowances *all = job->index->tables.allowances;
    uint64_t declared = 0, counted = 0;
    job_each_table(table, job) declared += table->failure ? 0 : table->terms->shards;
    for (size_t i = 0; all && i < all->count; i++)
        counted += all->each[i].shards;
    return declared > counted ? (declared - counted) * SHARD_START_BYTES : 0;
}

int allow_check_table(const struct job_table *table, struct err *err)
{
    const struct table_terms *terms = table->terms;
    uint64_t each = terms->rows_hint > 0 ? shard_bytes(table) : SHARD_START_BYTES;
    uint64_t pending = allow_pending(table->job), own = terms->shards * SHARD_START_BYTES;
    /* of tables that the same request declares */
    uint64_t others = pending > own ? pending - own : 0;
    return quota_check_rows(table->job, others + terms->shards * each, err);
}

int allow_place(struct job *job, const struct lane *lane)
{
    uint32_t shards = job_shards_on(job, lane);
    struct row_allowance *a = job_allowance_add(job, lane->id);
    if (!a)
        return -ENOMEM;
    if (shards <= a->shards)
        return 0;
    bool is_first = a->shards == 0;
    a->bytes += (shards - a->shards) * SHARD_START_BYTES;
    a->shards = shards;
    uint64_t room = quota_rows_room(job), pending = allow_pending(job);
    if (is_first && room > pending) /* memory for shards on other lanes is set aside */
        a->bytes += allow_step(job, room - pending);
    return 0;
}

int allow_place_copy(struct job *job, const struct lane *lane, uint32_t shards)
{
    struct row_allowance *a = job_allowance_add(job, lane->id);
    if (!a)
        return -ENOMEM;
    if (shards <= a->copied)
        return 0;
    bool is_first = a->shards == 0 && a->copied == 0;
    a->bytes += (shards - a->copied) * SHARD_START_BYTES;
    a->copied = shards;
    uint64_t room = quota_rows_room(job), pending = allow_pending(job);
    if (is_first && room > pending)
        a->bytes += allow_step(job, room - pending);
    return 0;
}

/* ---- requests of lanes ---- */

static bool allow_is_short(const struct job *job)
{
    const struct row_allowances *all = job->index->tables.allowances;
    for (size_t i = 0; all && i < all->count; i++)
        if (all->each[i].needed_bytes > 0)
            return true;
    return false;
}

/* Writes the limit that is reached to `err`. Returns 0 if no limit is reached any more. */
static int allow_limit(const struct job *job, const struct row_allowance *a, struct err *err)
{
    uint64_t more = a->needed_bytes > a->bytes ? a->needed_bytes - a->bytes : 0;
    return quota_check_rows(job, more, err);
}

/* Records why the job waits for memory. Only the reason of the job's first lane is used: with the
 * different reasons of all lanes, workers and the log would receive a new reason at each
 * attempt. */
static void allow_refuse(struct job *job)
{
    const struct row_allowances *all = job->index->tables.allowances;
    int error = 0;
    for (size_t i = 0; all && i < all->count && error == 0; i++) {
        const struct row_allowance *a = &all->each[i];
        struct err err;
        error = a->needed_bytes > 0 ? allow_limit(job, a, &err) : 0;
        if (error < 0)
            waiting_for_rows(job, err.text);
    }
    service_retry_later(job->service);
}

/* Ends the wait for memory on one lane. */
static void allow_suffices(struct job *job, struct row_allowance *a)
{
    a->needed_bytes = 0;
    if (!allow_is_short(job))
        waiting_for_rows_end(job);
}

/* Raises the allowance by a step, or by the need of a waiting push if this is more. If the limits
 * have no room for the whole amount, the allowance stays the same, because a part of the memory
 * would not help the push. While a push waits, the allowance is sent even if it stays the same,
 * because the last message may have been lost. */
static void allow_grant(struct job *job, struct lane *lane, struct row_allowance *a)
{
    uint64_t needed = a->needed_bytes > a->bytes ? a->needed_bytes - a->bytes : 0;
    uint64_t room = quota_rows_room(job), more = allow_most(allow_step(job, room), needed);
    if (more > room)
        return allow_refuse(job);
    a->bytes += more;
    if (more > 0 || a->needed_bytes > 0)
        telling_limits_of(job, lane);
    allow_suffices(job, a);
}

void allow_handle(struct peer *p, const envelope *message)
{
    const WIRE(RowsWanted) *wanted = message->rows_wanted;
    struct lane *lane = lane_find(p->service, wanted->lane);
    struct job *job = jobs_find_id(p->service, wanted->job_id);
    struct row_allowance *a = job && lane ? job_allowance(job, lane->id) : NULL;
    if (!p->aggregator || !lane || lane->aggregator != p->aggregator || !a || job->failure)
        return;
    a->bytes = allow_most(a->bytes, allow_least(wanted->allowed_bytes, ALLOWED_BYTES_MAX));
    a->needed_bytes = allow_least(wanted->needed_bytes, ALLOWED_BYTES_MAX);
    if (wanted->needed_bytes == 0 && wanted->allowed_bytes < a->bytes)
        return allow_suffices(job, a); /* a message with more memory was already sent to the lane */
    allow_grant(job, lane, a);
}

bool allow_is_refused(const struct job *job, const struct lane *lane, struct err *ret_err)
{
    const struct row_allowance *a = job_allowance(job, lane->id);
    return a && a->needed_bytes > 0 && allow_limit(job, a, ret_err) < 0;
}

static void allow_retry_job(struct job *job)
{
    const struct row_allowances *all = job->index->tables.allowances;
    for (size_t i = 0; all && i < all->count; i++) {
        struct row_allowance *a = job_allowance(job, all->each[i].lane);
        struct lane *lane = lane_find(job->service, a->lane);
        if (a->needed_bytes > 0 && lane && !job->failure)
            allow_grant(job, lane, a);
    }
}

void allow_retry(struct service *s)
{
    list_for_each_entry (struct job, job, &s->jobs, link)
        allow_retry_job(job);
}

/* ---- aggregators ---- */

void allow_restore(struct job *job, const struct lane *lane, uint64_t bytes)
{
    struct row_allowance *a = bytes > 0 ? job_allowance_add(job, lane->id) : NULL;
    if (!a)
        return;
    a->bytes = allow_most(a->bytes, allow_least(bytes, ALLOWED_BYTES_MAX));
    a->shards = job_shards_on(job, lane);
}

void allow_aggregator_lost(struct job *job, const struct aggregator *a)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        job_allowance_end(job, a->lanes[i].id);
    if (!allow_is_short(job))
        waiting_for_rows_end(job);
}
