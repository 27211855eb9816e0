/* Requests about copies of tables to owners and replica lanes. A lane answers a repeated request
 * without doing anything again, so the coordinator may repeat each request. */
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/channel/table_spec.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/copies/internal.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/coordinator/table/allow.h"
#include "svc/wire/ranks.h"
#include "svc/wire/table/record_rows.h"

#include <errno.h>
#include <stdlib.h>

#define REPEAT_NS (20 * NS_PER_MS)
#define PAUSE_NS (200 * NS_PER_MS)

struct copy_told {
    uint32_t job, copy;
    enum copy_state state;
};

static struct copy_told copy_told_of(const struct shards_copy *copy)
{
    return (struct copy_told){copy->job->id, copy->copy, copy->state};
}

/* Finds the copy of a request. Returns NULL if the copy has ended, or has left the state in which
 * the request was sent; the answer is then ignored. */
static struct shards_copy *copy_told_find(struct service *s, const struct copy_told *told)
{
    struct job *job = jobs_find_id(s, told->job);
    if (!job)
        return NULL;
    list_for_each_entry (struct shards_copy, copy, &job->index->tables.copies, link)
        if (copy->copy == told->copy && copy->state == told->state)
            return copy;
    return NULL;
}

static bool copy_reaches(const struct lane *lane)
{
    return lane && lane->aggregator->state == AGGREGATOR_UP;
}

/* ---- the owner's log ---- */

static void copy_pause(struct shards_copy *copy)
{
    copy->state = COPY_ABSENT;
    copy->copy = copy->replica = 0;
    copy_later(copy, copy_pause_ns(copy));
}

static void copy_log_told(struct service *s, void *data, const envelope *reply, int code,
                          const char *text)
{
    struct shards_copy *copy = copy_told_find(s, data);
    if (!copy)
        return;
    copy->asked = 0;
    if (!reply && (call_went_unanswered(code) || code == -ENOMEM))
        /* When the owner has reconnected or was lost, the copy continues without this pause. */
        return copy_later(copy, PAUSE_NS);
    if (!reply) {
        copy_note_end(copy, text, true);
        log_warn("job %s: lane %u did not change its log of changed rows: %s; see the log of its "
                 "aggregator",
                 copy->job->name, copy->owner, text);
    }
    if (copy->state == COPY_ENDING || !reply)
        return copy_pause(copy);
    copy->state = COPY_PLACING;
    copy_step(copy);
}

/* Lists the numbers of the job's failed tables, and returns how many there are. */
static size_t copy_failed_tables(const struct job *job, uint32_t *ret_numbers)
{
    size_t count = 0;
    job_each_table(table, job)
    {
        ret_numbers[count] = table->id;
        count += table->failure != NULL;
    }
    return count;
}

void copy_tell_log(struct shards_copy *copy, bool begins)
{
    _cleanup_free_ uint32_t *failed = calloc(copy->job->index->tables.count + 1, sizeof *failed);
    size_t failed_count = failed ? copy_failed_tables(copy->job, failed) : 0;
    const struct copy_told told = copy_told_of(copy);
    struct lane *owner = copy_owner(copy);
    const struct lane *replica = copy_replica(copy);
    if (!copy_reaches(owner) || (begins && !replica))
        return;
    int error =
        !failed ? -ENOMEM
                : lane_call(owner, copy_log_told, &told, sizeof told, TABLE_LOG, table_log,
                            .job_id = copy->job->id, .holder = begins ? replica->aggregator->id : 0,
                            .copy = begins ? copy->copy : 0, .failed = failed,
                            .n_failed = failed_count);
    copy->asked = error == 0;
    if (error < 0)
        copy_later(copy, PAUSE_NS);
}

/* ---- the replica lane ---- */

static void copy_table_told(struct service *s, void *data, const envelope *reply, int code,
                            const char *text)
{
    struct shards_copy *copy = copy_told_find(s, data);
    if (!copy || copy->asked == 0)
        return;
    copy->asked--;
    copy->is_repeated |= !reply && (code == -EAGAIN || code == -ETIMEDOUT);
    if (!reply && code != -EAGAIN && code != -ETIMEDOUT)
        return copy_lose(copy, text, true);
    if (copy->asked > 0)
        return;
    if (copy->is_repeated)
        return copy_later(copy, REPEAT_NS);
    copy->state = COPY_COPYING;
    copy_step(copy);
}

/* Sends the replica lane those shards of one table that are on the owner and have this group. Adds
 * the request to copy->asked. */
static int copy_tell_table(struct shards_copy *copy, struct job_table *table, uint32_t group,
                           uint32_t *numbers)
{
    const struct copy_told told = copy_told_of(copy);
    const struct lane *owner = copy_owner(copy);
    uint32_t epoch = 0, count = 0;
    for (uint32_t i = 0; i < table->terms->shards; i++) {
        if (table->shards[i].lane != owner || table->shards[i].group != group)
            continue;
        epoch = table->shards[i].epoch;
        numbers[count++] = i;
    }
    if (count == 0)
        return 0;
    WIRE(TableSpec) spec = table_spec_of(table->terms, table->name);
    WIRE(TablePlace)
    place = MESSAGE_PART(TablePlace, table_place, .table = row_table_id(table->id, group),
                         .spec = &spec, .salt = table->salt, .shards = numbers, .n_shards = count);
    int error = telling_ask_copy(copy->job, copy_replica(copy), epoch, &place, copy->owner,
                                 copy->copy, copy_table_told, &told, sizeof told);
    copy->asked += error == 0;
    return error;
}

void copy_tell_tables(struct shards_copy *copy)
{
    struct job *job = copy->job;
    struct lane *replica = copy_replica(copy);
    const struct lane *owner = copy_owner(copy);
    if (!copy_reaches(replica) || !owner)
        return;
    copy->is_repeated = false;
    int error = allow_place_copy(job, replica, job_shards_on(job, owner));
    job_each_table(table, job)
    {
        _cleanup_free_ uint32_t *numbers = calloc(table->terms->shards, sizeof *numbers);
        if (!numbers)
            error = -ENOMEM;
        for (uint32_t group = 0; error == 0 && group <= ROW_GROUP_MAX; group++)
            if (!table->failure)
                error = copy_tell_table(copy, table, group, numbers);
    }
    copy->is_repeated |= error < 0;
    if (copy->asked == 0)
        copy_later(copy, PAUSE_NS);
}

static void copy_end_told(struct service *s, void *data, const envelope *reply, int code,
                          const char *text)
{
}

void copy_tell_end(const struct shards_copy *copy)
{
    struct lane *replica = copy_replica(copy);
    if (copy_reaches(replica))
        (void)call_send(replica->aggregator,
                        &MESSAGE(0, TABLE_COPY_END, table_copy_end, .job_id = copy->job->id,
                                 .owner = copy->owner),
                        CALL_DEADLINE_NS, copy_end_told, NULL, 0);
}

static void copy_promotion_told(struct service *s, void *data, const envelope *reply, int code,
                                const char *text)
{
    struct shards_copy *copy = copy_told_find(s, data);
    if (!copy)
        return;
    copy->asked = 0;
    if (reply)
        promote_done(copy);
    else if (code == -EAGAIN)
        copy_later(copy, REPEAT_NS);
    else if (call_went_unanswered(code))
        copy_later(copy, PAUSE_NS);
    else
        promote_fail(copy, text);
}

void copy_tell_promotion(struct shards_copy *copy)
{
    struct job *job = copy->job;
    const struct copy_told told = copy_told_of(copy);
    struct lane *replica = copy_replica(copy);
    const struct job_shard *shard = job_shard_from(job, copy->owner);
    uint64_t ranks[RANKS_WORDS];
    WIRE(LaneStageRequest) stage;
    if (!copy_reaches(replica) || !shard)
        return;
    bool has_stage = stage_message(job, ranks, &stage);
    int error =
        lane_call(replica, copy_promotion_told, &told, sizeof told, TABLE_PROMOTE, table_promote,
                  .job_id = job->id, .owner = copy->owner, .copy = copy->copy,
                  .group = shard->group, .epoch = shard->epoch, .stage = has_stage ? &stage : NULL);
    copy->asked = error == 0;
    if (error < 0)
        copy_later(copy, PAUSE_NS);
}
