/* Changes the members of tables between two stages. All requests of the former stage must have
 * ended, and all its clocks must be applied. Therefore no row changes, and the members of the next
 * stage begin together. RULES.md: A1, A102. */
#include "svc/lane/rows/stage/stage.h"

#include "svc/lane/job/table.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/turn/policy.h"
#include "svc/wire/ranks.h"

#include <errno.h>

/* Returns whether no request to the table is open, and each member has ended all clocks before
 * `clock`. The lane then has all records of the former stage, because each worker sends the end of
 * a clock last. */
static bool stage_is_over(const struct lane_table *table, uint64_t clock)
{
    const struct row_queues *queues = table->queues;
    bool is_quiet = list_is_empty(&queues->pushes) && list_is_empty(&queues->pulls) &&
                    list_is_empty(&queues->done);
    return is_quiet && table->job->tables->apply->table != table &&
           (table->clocks->members == 0 || table->clocks->minimum >= clock) &&
           (!table_is_bsp(table) || table->clock >= clock || table->clocks->members == 0);
}

/* Returns 0 if the stage may begin, or an error of lane_begin_stage(). */
static int stage_check(const struct lane_job *job, const struct lane_stage *stage)
{
    if (ranks_are_none(stage->ranks) || stage->consistency > TABLE_TERMS_ASP ||
        stage->first_clock < CLOCK_FIRST)
        return -EINVAL;
    if (stage->number < job->tables->stage)
        return -ESTALE;
    list_for_each_entry (const struct lane_table, table, &job->tables->tables, link)
        if (table->clocks->largest > stage->first_clock)
            return -EINVAL;
    list_for_each_entry (const struct lane_table, table, &job->tables->tables, link)
        if (!stage_is_over(table, stage->first_clock))
            return -EAGAIN;
    return 0;
}

/* Sets the progress of each shard for the new stage. With BSP a shard counts clocks, otherwise
 * pushes; all clocks and pushes of the former stage are applied. */
static void stage_begin_shards(struct lane_table *table, uint64_t clock)
{
    table->clock = clock;
    table->shard = 0;
    for (uint32_t i = 0; i < table->terms->shards; i++)
        if (table->shards[i])
            table->shards[i]->progress = (struct shard_progress){.clock = clock};
}

void stage_begin_table(struct lane_table *table, const struct lane_stage *stage)
{
    table_clocks_regroup(table->clocks, stage->ranks, stage->first_clock);
    stage_begin_shards(table, stage->first_clock);
    if (!table->inherits)
        return;
    table->terms->consistency = stage->consistency ? stage->consistency : TABLE_TERMS_BSP;
    table->terms->staleness = stage->staleness;
}

int lane_begin_stage(struct lane *lane, uint32_t job_id, const struct lane_stage *stage)
{
    struct lane_job *job = job_find(lane, job_id);
    if (!job)
        return -ENOENT;
    if (job->failure)
        return -ECONNABORTED;
    if (!job->tables || stage->number == job->tables->stage)
        return 0;
    int error = stage_check(job, stage);
    if (error < 0)
        return error;
    list_for_each_entry (struct lane_table, table, &job->tables->tables, link)
        stage_begin_table(table, stage);
    job->tables->stage = stage->number;
    row_log_states_changed(job->tables);
    job_wake(job);
    return 0;
}
