/* Shards of tables on lanes. A shard is PIECE_ASKED between request and answer. The loss of an
 * aggregator fails the tables that have shards there without a whole copy (copies/copies.h). */
#include "svc/coordinator/table/place.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/channel/table_spec.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/table/allow.h"
#include "svc/coordinator/table/ranks.h"
#include "svc/wire/durability.h"
#include "svc/wire/table/record_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SHARDS_NAMED 4

struct shards_told {
    uint32_t job, table, lane;
};

bool shards_are_ready(const struct job_table *table)
{
    table_each_shard(shard, table) if (shard->state != PIECE_READY) return false;
    return true;
}

/* --- placing --- */

/* Returns whether the shards are sent again later. The codes have the same meaning as for pieces
 * (tell_lane.c). */
static bool shards_are_told_again(int code)
{
    return call_went_unanswered(code) || code == -EAGAIN;
}

static void shards_settle(struct job_table *table, struct lane *lane, int code, const char *why)
{
    char text[2 * ERR_TEXT_BYTES];
    table_each_shard(shard, table) if (shard->lane == lane && shard->state == PIECE_ASKED)
        shard->state = code < 0 ? PIECE_PLACED : PIECE_READY;
    if (code == 0)
        shards_forget_ranks_on(table->job, lane);
    if (code == 0 || shards_are_told_again(code))
        return;
    snprintf(text, sizeof text,
             "table '%s' of job %.127s: lane %u did not accept its shards: %s; see the log of its "
             "aggregator",
             table->name, table->job->name, lane->id, why);
    job_table_fail(table, NULL, code, text);
}

static void shards_answered(struct service *s, void *data, const envelope *reply, int code,
                            const char *text)
{
    const struct shards_told *told = data;
    struct job *job = jobs_find_id(s, told->job);
    struct job_table *table = job ? job_table_find(job, told->table) : NULL;
    struct lane *lane = lane_find(s, told->lane);
    if (!table || !lane)
        return;
    if (!reply)
        log_warn("job %s: lane %u did not accept shards of table '%s': %s; see the log of its "
                 "aggregator",
                 job->name, told->lane, table->name, text);
    shards_settle(table, lane, reply ? 0 : code, text);
    if (!reply && (code == -ETIMEDOUT || code == -EAGAIN))
        service_retry_later(s);
    s->on->job->tensors_are_settled(job);
}

/* Collects the shards of the table on the lane that have to be sent. All shards of a table were
 * placed together, so they have one epoch. */
static size_t shards_gather(struct job_table *table, const struct lane *lane, uint32_t *ret_numbers,
                            uint32_t *ret_epoch, uint32_t *ret_group)
{
    size_t count = 0;
    for (uint32_t i = 0; i < table->terms->shards; i++) {
        struct job_shard *shard = &table->shards[i];
        if (shard->lane != lane || shard->state != PIECE_PLACED || shard->former > 0)
            continue;
        if (count > 0 && shard->group != *ret_group)
            continue;
        *ret_group = shard->group;
        shard->state = PIECE_ASKED;
        *ret_epoch = shard->epoch;
        ret_numbers[count++] = i;
    }
    return count;
}

static void shards_tell_lane(struct job_table *table, struct lane *lane, uint32_t *numbers)
{
    struct job *job = table->job;
    struct shards_told told = {job->id, table->id, lane->id};
    uint32_t epoch = 0, group = 0;
    size_t count = shards_gather(table, lane, numbers, &epoch, &group);
    WIRE(TableSpec) spec = table_spec_of(table->terms, table->name);
    WIRE(TablePlace)
    place = MESSAGE_PART(TablePlace, table_place, .table = row_table_id(table->id, group),
                         .spec = &spec, .salt = table->salt, .shards = numbers, .n_shards = count);
    int error = count > 0 ? allow_place(job, lane) : 0;
    if (error == 0 && count > 0)
        error = telling_ask_table(job, lane, epoch, &place, shards_answered, &told, sizeof told);
    if (error < 0)
        shards_settle(
            table, lane, -ENOMEM,
            "gradpool serve has no memory for a request to a lane; raise its memory limit");
}

static void shards_tell_table(struct job_table *table)
{
    struct job *job = table->job;
    _cleanup_free_ uint32_t *numbers = calloc(table->terms->shards, sizeof *numbers);
    if (!numbers)
        return service_retry_later(job->service);
    for (size_t i = 0; i < job->shares_count; i++) {
        struct lane *lane = job->shares[i].lane;
        if (lane->shards > 0 && lane->aggregator->state == AGGREGATOR_UP)
            shards_tell_lane(table, lane, numbers);
    }
}

void shards_tell(struct job *job)
{
    job_each_table(table, job) if (!table->failure && !job->failure && !shards_are_ready(table))
        shards_tell_table(table);
}

/* --- an aggregator is lost --- */

void shards_name(const struct job_table *table, shard_test_fn is_named, const void *context,
                 char *text, size_t text_bytes)
{
    uint32_t count = 0;
    *text = '\0';
    for (uint32_t i = 0; i < table->terms->shards; i++) {
        if (!is_named(&table->shards[i], context))
            continue;
        if (count++ < SHARDS_NAMED)
            text_append(text, text_bytes, "%s%u", count > 1 ? ", " : "", i);
    }
    if (count > SHARDS_NAMED)
        text_append(text, text_bytes, " and %u more", count - SHARDS_NAMED);
}

static bool shard_is_on(const struct job_shard *shard, const void *aggregator)
{
    return shard->lane && shard->lane->aggregator == aggregator;
}

static void shards_fail_lost(struct job_table *table, const struct aggregator *a)
{
    char text[ERR_TEXT_BYTES], shards[64];
    shards_name(table, shard_is_on, a, shards, sizeof shards);
    if (!*shards)
        return;
    snprintf(text, sizeof text,
             "table '%s' of job %.127s: %s was lost with the rows of shards %s, and the table has "
             "no %s; start the job again",
             table->name, table->job->name, AGGREGATOR_NAME(a), shards,
             table->terms->durability == DURABILITY_REPLICA ? "whole copy yet"
                                                            : "copy (durability none)");
    job_table_fail(table, NULL, -EOWNERDEAD, text);
    table_each_shard(shard, table) if (shard->lane && shard->lane->aggregator == a)
        shard_detach(table, shard);
}

void shards_aggregator_lost(struct job *job, struct aggregator *a)
{
    job_each_table(table, job) shards_fail_lost(table, a);
    allow_aggregator_lost(job, a);
    job->service->on->job->tensors_are_settled(job);
}

static bool table_has_stranded(const struct job_table *table)
{
    table_each_shard(shard,
                     table) if (shard->state == PIECE_STRANDED && shard->former == 0) return true;
    return false;
}

void shards_check_restored(struct job *job)
{
    char text[ERR_TEXT_BYTES];
    job_each_table(table, job)
    {
        if (table->failure || !table_has_stranded(table))
            continue;
        snprintf(text, sizeof text,
                 "table '%s' of job %.127s: an aggregator with rows of the table was lost before "
                 "the coordinator started; start the job again",
                 table->name, job->name);
        job_table_fail(table, NULL, -EOWNERDEAD, text);
    }
}

void tables_send_failures(const struct session *to)
{
    job_each_table(table, to->job) if (table->failure) job_table_send_failure(table, to);
}

/* --- an aggregator is back --- */

static void shards_expect(struct job *job, const struct aggregator *a)
{
    job_each_table(table, job)
        table_each_shard(shard, table) if (shard->lane && shard->lane->aggregator == a)
            shard->state = PIECE_PLACED;
}

static void shards_take_held(struct job_table *table, const struct lane *lane,
                             const WIRE(TableHeld) * held)
{
    for (size_t i = 0; i < held->n_shards && i < held->n_epochs; i++) {
        struct job_shard *shard =
            held->shards[i] < table->terms->shards ? &table->shards[held->shards[i]] : NULL;
        bool is_held = shard && shard->lane == lane && shard->epoch == held->epochs[i] &&
                       shard->group == row_group_of(held->table);
        if (is_held && shard->former == 0) /* a promotion ends with the answer of the lane */
            shard->state = PIECE_READY;
    }
}

/* Compares the returning aggregator's tables with the store. No request orders a lane to drop a
 * single table, so a table that is not in the store stays on its lane until its job ends. */
void shards_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join)
{
    struct service *s = a->service;
    list_for_each_entry (struct job, job, &s->jobs, link)
        shards_expect(job, a);
    for (size_t i = 0; i < join->n_tables; i++) {
        const WIRE(TableHeld) *held = join->tables[i];
        struct lane *lane = lane_find(s, held->lane);
        struct job *job = jobs_find_id(s, held->job_id);
        struct job_table *table = job ? job_table_find(job, row_table_of(held->table)) : NULL;
        if (!lane || lane->aggregator != a)
            continue;
        if (!job)
            telling_drop(lane, held->job_id, NULL, 0);
        else if (table)
            shards_take_held(table, lane, held);
        if (table)
            allow_restore(job, lane, held->allowed_bytes);
    }
    list_for_each_entry (struct job, job, &s->jobs, link) {
        shards_tell(job);
        shards_forget_ranks(job);
    }
}
