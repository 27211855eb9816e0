/* Makes a copy the tables of this lane. The log shows up to which key the owner has applied which
 * clock or push, so no update is lost or applied twice. RULES.md: A131, A132. */
#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/rows/copy/copy.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>

/* ---- one table ---- */

/* Sets the progress of the shards. With BSP, the owner has applied the present clock to one shard
 * after the other. Without BSP the progress begins anew, and parts_first_key() skips the keys to
 * which the owner has applied the push in progress. */
static void promote_shards(struct lane_table *table, uint32_t epoch)
{
    bool is_bsp = table_is_bsp(table);
    for (uint32_t i = 0; i < table->terms->shards; i++) {
        struct lane_shard *shard = table->shards[i];
        if (!shard)
            continue;
        shard->epoch = epoch;
        shard->progress = (struct shard_progress){.clock = CLOCK_FIRST};
        if (is_bsp && i < table->shard)
            shard->progress.clock = table->clock + 1;
        else if (is_bsp)
            shard->progress = (struct shard_progress){
                .clock = table->clock,
                .next = i == table->shard ? table->queues->logged.progress.next : 0};
    }
    if (!is_bsp)
        table->shard = 0;
}

/* Enters the members at the first clock that is not applied, because they have ended all earlier
 * clocks. If a member has ended later clocks, it repeats the last one to this lane. */
static int promote_clocks(struct lane_table *table)
{
    struct allowance *allowance = &table->job->tables->allowance;
    uint32_t workers = table->job->workers_count;
    uint64_t first = table_is_bsp(table) ? table->clock : table->queues->logged.progress.minimum;
    table_clocks_fini(table->clocks);
    *table->clocks = (struct table_clocks){0};
    int error = table_clocks_init(table->clocks, allowance, workers, first);
    for (uint32_t rank = 0; error == 0 && rank < workers; rank++) {
        table->queues->ranks[rank].must_stand = true;
        if (table->queues->ranks[rank].clock != CLOCK_NONE)
            error = table_clocks_enter(table->clocks, rank, first);
    }
    /* a rank that has left repeats nothing, so the state contains its clock */
    for (uint32_t rank = 0; error == 0 && rank < workers; rank++)
        if (table->queues->ranks[rank].clock > first)
            (void)table_clocks_end(table->clocks, rank, table->queues->ranks[rank].clock - 1);
    return error;
}

/* Forgets the push in progress if its rank is no member or has left. Such a rank repeats no push,
 * because the former owner has applied its pushes to all shards. With BSP the push is from a time
 * when the table had another consistency. */
static void promote_push(struct lane_table *table)
{
    struct row_progress *before = &table->queues->logged.progress;
    uint64_t clock = table->queues->ranks[before->rank].clock;
    bool has_left = table->job->workers[before->rank].state == WORKER_LEFT;
    if (table_is_bsp(table) || clock == CLOCK_NONE || clock > CLOCK_FIRST || has_left)
        before->sequence = 0;
}

static int promote_table(struct lane_table *table, const struct lane_promotion *promotion)
{
    int error = promote_clocks(table);
    if (error < 0)
        return error;
    promote_shards(table, promotion->epoch);
    promote_push(table);
    table->id = copy_table_id(table->id, promotion->group);
    list_remove(&table->link);
    list_append(&table->job->tables->tables, &table->link);
    if (promotion->stage.number > table->queues->logged.stage)
        stage_begin_table(table, &promotion->stage);
    return 0;
}

/* ---- the copy ---- */

static bool table_has_epoch(const struct lane_table *table, uint32_t epoch)
{
    for (uint32_t i = 0; i < table->terms->shards; i++)
        if (table->shards[i] && table->shards[i]->epoch == epoch)
            return true;
    return false;
}

static bool is_promoted(const struct lane_job *job, uint32_t epoch)
{
    list_for_each_entry (const struct lane_table, table, &job->tables->tables, link)
        if (row_group_of(table->id) && table_has_epoch(table, epoch))
            return true;
    return false;
}

static bool promotion_is_sound(const struct lane_promotion *promotion)
{
    const struct lane_stage *stage = &promotion->stage;
    bool has_stage = stage->number > 0;
    return promotion->group >= 1 && promotion->group <= ROW_GROUP_MAX && promotion->epoch > 0 &&
           (!has_stage || (stage->ranks && stage->first_clock >= CLOCK_FIRST &&
                           stage->consistency <= TABLE_TERMS_ASP));
}

/* Applies all blocks that count. There are at most LOG_RING_BYTES of them. */
static int promote_apply(struct row_copy *copy)
{
    int result;
    do
        result = copy_apply(copy);
    while (result > 0);
    if (result < 0)
        return result;
    return copy->is_whole ? 0 : -EBADMSG;
}

int lane_promote_copy(struct lane *lane, uint32_t job_id, const struct lane_promotion *promotion)
{
    struct lane_job *job = job_find(lane, job_id);
    struct row_copy *copy = copy_find(job, promotion->owner);
    if (!promotion_is_sound(promotion))
        return -EINVAL;
    if (!copy || copy->copy != promotion->copy)
        return job && job->tables && is_promoted(job, promotion->epoch) ? 0 : -ENOENT;
    int error = promote_apply(copy);
    if (error < 0)
        return error;
    list_for_each_safe_entry (struct lane_table, table, &copy->copied, link)
        if (error == 0)
            error = promote_table(table, promotion);
    if (error < 0)
        return error;
    copy_free(copy);
    if (promotion->stage.number > job->tables->stage)
        job->tables->stage = promotion->stage.number;
    tables_open_network(job);
    job_wake(job);
    return 0;
}
