/* One turn of the tables of a job. Pulls are handled first: an update waits for the pulls of its
 * clock, and no pull waits for an update of a later clock. RULES.md: A1, A22, A90, A93. */
#include "svc/lane/rows/rows.h"

#include "svc/base/clock.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/lane.h"
#include "svc/lane/rows/apply/apply.h"
#include "svc/lane/rows/copy/copy.h"
#include "svc/lane/rows/directory.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/pull.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/turn/account.h"
#include "svc/wire/table/table_load.h"

#include <errno.h>
#include <inttypes.h>

static bool rows_answer(struct lane_tables *tables)
{
    bool has_sent = false;
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        has_sent |= requests_answer(table);
    return has_sent;
}

static bool rows_work(struct lane_tables *tables)
{
    const struct lane_job *job = tables->job;
    bool has_work = directories_work(tables);
    has_work |= row_log_work(tables);
    has_work |= copies_work(tables);
    if (!job->failure)
        has_work |= pull_work(tables);
    if (!job->failure)
        has_work |= apply_work(tables);
    return !job->failure && (rows_answer(tables) || has_work);
}

uint32_t rows_turn(struct lane_job *job)
{
    if (!job->tables || job->failure || job->is_dropped)
        return 0;
    uint64_t began_ns = clock_now_ns();
    bool has_work = rows_work(job->tables);
    uint64_t spent_ns = clock_now_ns() - began_ns;
    job->tables->busy_ns += spent_ns;
    account_bill(job, spent_ns);
    return has_work ? ROWS_TURN_SHARE : 0;
}

void rows_free(struct lane_job *job)
{
    if (!job->tables)
        return;
    row_log_free(job->tables);
    copies_free(job->tables);
    tables_free(job);
}

uint64_t rows_busy_ns(const struct lane_job *job) { return job->tables ? job->tables->busy_ns : 0; }

void rows_measure(const struct lane_job *job, struct lane_job_use *use)
{
    const struct lane_tables *tables = job->tables;
    if (!tables || use->reference || (tables->ended == 0 && tables->pushes == 0))
        return;
    bool has_clocks = tables->ended > 0;
    use->reference = has_clocks ? TABLE_LOAD_CLOCKS : TABLE_LOAD_PUSHES;
    use->begun_rounds = has_clocks ? tables->ended : tables->pushes;
    use->begun_ns = has_clocks ? tables->ended_ns : tables->pushed_ns;
}

static void drop_requests(struct lane_table *table, struct list *requests, const struct worker *w)
{
    list_for_each_safe_entry (struct row_request, request, requests, link)
        if (request->worker == w)
            table_drop_request(table, request);
}

/* ---- workers that end ---- */

/* Returns whether a push of the worker must still be applied. With BSP only pushes of clocks that
 * the worker has ended must be applied, otherwise all its pushes. */
static bool owes_push(const struct lane_table *table, const struct worker *w)
{
    uint64_t clock = table_clocks_of(table->clocks, w->number);
    list_for_each_entry (const struct row_request, push, &table->queues->pushes, link)
        if (push->worker == w && (push->record->clock < clock || !table_is_bsp(table)))
            return true;
    return false;
}

/* Fails the job if another rank has ended a clock that this rank, which has left, did not end. With
 * ASP no rank waits for this clock. */
static void table_check_left(const struct lane_table *table, const struct worker *w)
{
    uint64_t clock = table_clocks_of(table->clocks, w->number);
    bool is_awaited = table->terms->consistency != TABLE_TERMS_ASP;
    if (is_awaited && clock != CLOCK_NONE && table->clocks->largest > clock)
        job_fail(table->job, -EPIPE,
                 "rank %u has left job '%s' before the end of clock %" PRIu64 " of table '%s', "
                 "which other ranks have ended; end the same clocks on all ranks",
                 w->number, table->job->name, clock, table->name);
}

void rows_check_left(struct lane_table *table)
{
    struct lane_job *job = table->job;
    for (uint32_t rank = 0; rank < job->workers_count && !job->is_elastic; rank++)
        if (job->workers[rank].state == WORKER_LEFT)
            table_check_left(table, &job->workers[rank]);
}

/* Fails the job if a push or the end of a clock of the rank, which has left, is missing. The rank
 * stays a member, because a clock without its gradient would have a wrong result. */
static void table_leave(const struct lane_table *table, const struct worker *w)
{
    if (owes_push(table, w))
        job_fail(table->job, -EPIPE,
                 "rank %u has left job '%s' before its pushes to table '%s' were applied; leave "
                 "after all ranks have ended the clock, or raise GRADPOOL_TIMEOUT_MS",
                 w->number, table->job->name, table->name);
    else
        table_check_left(table, w);
}

/* Resets the progress of the first push, if the push belongs to the worker and will be dropped.
 * This progress consists of table->shard and of a key in that shard. With BSP, it is the progress
 * of a clock and stays. */
static void table_forget_progress(struct lane_table *table, const struct worker *w)
{
    const struct list *node = list_first(&table->queues->pushes);
    struct lane_shard *shard = table_shard_at(table, table->shard);
    if (!node || table_is_bsp(table) || list_entry(node, struct row_request, link)->worker != w)
        return;
    if (shard)
        shard->progress.next = 0;
    table->shard = 0;
}

static void table_forget(struct lane_table *table, const struct worker *w)
{
    bool is_member = table_clocks_of(table->clocks, w->number) != CLOCK_NONE;
    struct row_progress *before = &table->queues->logged.progress;
    if (before->rank == w->number)
        before->sequence = 0; /* the rank repeats no push any more */
    if (w->state == WORKER_LEFT && !w->job->is_elastic && !w->job->is_dropped)
        table_leave(table, w);
    else if (is_member)
        (void)table_clocks_leave(table->clocks, w->number);
    table_forget_progress(table, w);
    drop_requests(table, &table->queues->pushes, w);
    drop_requests(table, &table->queues->pulls, w);
    drop_requests(table, &table->queues->done, w);
}

void rows_forget(struct worker *w)
{
    struct lane_tables *tables = w->job->tables;
    if (!tables)
        return;
    if (worker_is_holder(w))
        return row_log_forget(w);
    row_log_states_changed(tables);
    tables->has_left |= w->state == WORKER_LEFT;
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        table_forget(table, w);
    apply_forget(tables, w->number);
    network_forget(tables, w);
}

static bool table_is_quiet(const struct lane_table *table)
{
    return list_is_empty(&table->queues->pushes) && list_is_empty(&table->queues->pulls) &&
           list_is_empty(&table->queues->done);
}

bool rows_are_quiet(const struct lane *lane)
{
    list_for_each_entry (const struct lane_job, job, &lane->jobs, link) {
        if (!job->tables || job->failure)
            continue;
        list_for_each_entry (const struct lane_table, table, &job->tables->tables, link)
            if (!table_is_quiet(table))
                return false;
    }
    return true;
}
