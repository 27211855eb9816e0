/* Promotion: after the loss of an owner, the replica lane serves the owner's shards. The new routes
 * are stored in one transaction with the next epoch of the job, before the replica lane or a worker
 * receives them (K169). */
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/copies/internal.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/table/allow.h"
#include "svc/coordinator/table/place.h"
#include "svc/wire/table/record_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define each_promoted_shard(shard, table, copy) \
    job_each_table(table, (copy)->job)          \
        table_each_shard(shard, table) if ((shard)->former == (copy)->owner)

void promote_begin(struct shards_copy *copy)
{
    const struct lane *owner = copy_owner(copy);
    log_warn("job %s: lane %u was lost; lane %u has a whole copy of its tables and continues",
             copy->job->name, copy->owner, copy->replica);
    job_each_table(table, copy->job) table_each_shard(shard, table)
    {
        if (table->failure || shard->lane != owner || shard->copy != copy->copy)
            /* The owner received this shard after the begin of the copy, so the copy lacks the
             * shard. */
            continue;
        shard_detach(table, shard);
        shard->former = copy->owner;
    }
    copy->state = COPY_PROMOTED;
    copy->asked = 0;
    copy_step(copy);
}

/* Returns a new group for the promoted shards that have no group; 0: all groups are used (K170). */
static uint32_t promote_group(const struct job *job)
{
    uint32_t group = 0;
    job_each_table(table, job) table_each_shard(shard, table) if (shard->group > group) group =
        shard->group;
    return group < ROW_GROUP_MAX ? group + 1 : 0;
}

static void promote_put_job(const struct job *job)
{
    struct store_row row;
    jobs_row(job, &row);
    row.job.epoch++;
    store_put(job->service->store, &row);
}

static int promote_keep(const struct shards_copy *copy, uint32_t group)
{
    struct job *job = copy->job;
    struct store_row row;
    struct err err;
    store_begin(job->service->store);
    promote_put_job(job);
    each_promoted_shard(shard, table, copy)
    {
        job_shard_row(table, (uint32_t)(shard - table->shards), &row);
        row.piece.lane = copy->replica;
        row.piece.epoch = row.piece.lost_epoch = job->epoch + 1;
        row.piece.first = shard->group ? shard->group : group;
        row.piece.elements = STORE_SHARD_PROMOTED;
        row.piece.keeper = copy->owner;
        row.piece.former_keeper = copy->copy;
        store_put(job->service->store, &row);
    }
    int error = store_commit(job->service->store, &err);
    if (error < 0)
        log_error("job %s waits for the new routes of its tables: %s", job->name, err.text);
    return error;
}

void promote_store(struct shards_copy *copy)
{
    struct job *job = copy->job;
    struct lane *replica = copy_replica(copy);
    uint32_t group = promote_group(job);
    if (!replica || replica->aggregator->state == AGGREGATOR_LOST)
        return promote_fail(copy, "was lost before it served the rows");
    if (group == 0)
        return promote_fail(copy, "cannot serve the rows, because the job has used all groups");
    if (promote_keep(copy, group) < 0)
        return copy_later(copy, NS_PER_S);
    job->epoch++;
    each_promoted_shard(shard, table, copy)
    {
        shard->group = shard->group ? shard->group : group;
        shard->epoch = job->epoch;
        shard_attach(table, shard, replica);
    }
    copy->state = COPY_PROMOTING;
    copy_step(copy);
}

void promote_done(struct shards_copy *copy)
{
    struct job *job = copy->job;
    struct lane *replica = copy_replica(copy);
    each_promoted_shard(shard, table, copy)
    {
        shard->state = shard->lane ? PIECE_READY : shard->state;
        shard->former = shard->replica = shard->copy = 0;
    }
    log_info("job %s: lane %u serves the tables of lane %u, epoch %u", job->name, copy->replica,
             copy->owner, job->epoch);
    copy_remove(copy);
    if (replica)
        (void)allow_place(job, replica);
    tables_send_routes(job, NULL);
    job->service->on->job->tensors_are_settled(job);
    table_copies_check(job);
}

static bool shard_was_on_owner(const struct job_shard *shard, const void *copy)
{
    return shard->former == ((const struct shards_copy *)copy)->owner;
}

static void promote_fail_table(struct job_table *table, const struct shards_copy *copy,
                               const char *why)
{
    char text[2 * ERR_TEXT_BYTES], shards[64];
    shards_name(table, shard_was_on_owner, copy, shards, sizeof shards);
    if (!*shards)
        return;
    snprintf(text, sizeof text,
             "table '%s' of job %.127s: lane %u was lost, which served shards %s, and lane %u with "
             "their copy %.200s; start the job again",
             table->name, table->job->name, copy->owner, shards, copy->replica, why);
    job_table_fail(table, NULL, -EOWNERDEAD, text);
    table_each_shard(shard, table) if (shard->former == copy->owner)
    {
        shard_detach(table, shard);
        shard->former = shard->copy = shard->replica = 0;
    }
}

void promote_fail(struct shards_copy *copy, const char *why)
{
    copy_tell_end(copy);
    job_each_table(table, copy->job) promote_fail_table(table, copy, why);
    copy->state = COPY_FAILED;
    copy_later(copy, 0);
}

void promote_forget(struct shards_copy *copy)
{
    struct job *job = copy->job;
    copy_remove(copy);
    job->service->on->job->tensors_are_settled(job);
}
