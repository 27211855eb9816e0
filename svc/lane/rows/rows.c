/* One turn of the tables of a job. Pulls go first: an update waits for the pulls of its clock, and
 * no pull waits for an update of a later one. RULES.md: A1, A22, A90, A93. */
#include "svc/lane/rows/rows.h"

#include "svc/base/clock.h"
#include "svc/lane/rows/apply.h"
#include "svc/lane/rows/pull.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/turn/account.h"

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
    bool has_work = pull_work(tables);
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
    account_bill(job, clock_now_ns() - began_ns);
    return has_work ? ROWS_TURN_SHARE : 0;
}

static void drop_requests(struct lane_table *table, struct list *requests, const struct worker *w)
{
    list_for_each_safe_entry (struct row_request, request, requests, link)
        if (request->worker == w)
            table_drop_request(table, request);
}

void rows_forget(struct worker *w)
{
    struct lane_tables *tables = w->job->tables;
    if (!tables || worker_is_keeper(w))
        return;
    apply_forget(tables, w->number);
    list_for_each_entry (struct lane_table, table, &tables->tables, link) {
        drop_requests(table, &table->queues->pushes, w);
        drop_requests(table, &table->queues->pulls, w);
        drop_requests(table, &table->queues->done, w);
        if (table_clocks_of(table->clocks, w->number) != CLOCK_NONE)
            (void)table_clocks_leave(table->clocks, w->number);
    }
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
