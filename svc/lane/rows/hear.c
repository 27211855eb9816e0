/* Checks records of workers about tables. record_check() has made the checks that need no state of
 * the lane. This file checks tables, shapes, clocks, sequence numbers and lent memory. RULES.md:
 * A4. */
#include "svc/lane/rows/hear.h"

#include "svc/base/clock.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/rows/directory.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/rows.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>
#include <inttypes.h>

/* ---- requests ---- */

/* Returns whether the worker lends all bytes of a place. */
static bool place_is_lent(const struct worker *w, uint32_t region, uint64_t offset, uint64_t bytes)
{
    uint64_t lent = region < FABRIC_REGIONS_MAX ? fabric_region_bytes(w->conn, region) : 0;
    return offset <= lent && bytes <= lent - offset;
}

static bool request_is_lent(const struct worker *w, const struct lane_table *table,
                            const struct record_rows *r)
{
    return place_is_lent(w, r->directory_region, r->directory_offset,
                         r->spans * sizeof(struct row_span)) &&
           place_is_lent(w, r->keys_region, r->keys_offset, r->keys * sizeof(uint64_t)) &&
           place_is_lent(w, r->rows_region, r->rows_offset, r->keys * (uint64_t)table->wire_bytes);
}

static const char *request_fault(const struct worker *w, const struct lane_table *table,
                                 const struct record_rows *r)
{
    const struct row_rank *rank = &table->queues->ranks[w->number];
    if (r->dim != table->terms->dim || r->dtype != table->terms->wire)
        return "a request has rows of another length or dtype than its table; use one version of "
               "gradpool";
    if (r->clock != table_clocks_of(table->clocks, w->number) && !rank->must_stand)
        return "a request is for another clock than the worker's; use one version of gradpool";
    if (r->sequence <= rank->sequence)
        return "a request has a number that was used before; use one version of gradpool";
    if (list_is_empty(&rank->unused))
        return "a rank has more open requests than a lane stores; use one version of gradpool";
    return request_is_lent(w, table, r) ? NULL
                                        : "a request lies in memory that the worker does not lend; "
                                          "use one version of gradpool";
}

/* Adds a push to the list. With BSP, pushes are sorted by (rank, sequence), because the order of
 * arrival must not change the bits of a sum. Without BSP, pushes are applied one by one, in the
 * order of arrival. */
static void add_push(struct lane_table *table, struct row_request *push)
{
    struct list *at = &table->queues->pushes;
    while (table_is_bsp(table) && at->previous != &table->queues->pushes) {
        const struct row_request *before = list_entry(at->previous, struct row_request, link);
        if (before->worker->number <= push->worker->number)
            break;
        at = at->previous;
    }
    list_insert_before(at, &push->link);
}

static struct row_request *request_begin(struct lane_table *table, const struct worker *w,
                                         const struct record_rows *record)
{
    struct row_rank *rank = &table->queues->ranks[w->number];
    struct row_request *request = list_entry(list_first(&rank->unused), struct row_request, link);
    list_remove(&request->link);
    rank->sequence = record->sequence;
    *request->record = *record;
    request->entry = request->key = request->detail = request->spans_count = 0;
    request->error = 0;
    request->logged = 0;
    request->is_checked = false;
    table->job->tables->unchecked += !request_is_mapped(request);
    return request;
}

/* Returns whether the former owner of a promoted table has applied the push (A132). */
static bool request_was_applied(const struct lane_table *table, const struct row_request *push)
{
    const struct row_rank *rank = &table->queues->ranks[push->worker->number];
    if (!rank->must_stand || push->record->operation != RECORD_PUSH)
        return false;
    return table_is_bsp(table) ? push->record->clock < table->clock
                               : push->record->sequence <= rank->applied;
}

/* Returns whether the rows have updates that a repeated pull must not see: the former owner had
 * answered the pull and begun to apply its clock, but the answer was lost with this owner. */
static bool pull_is_late(const struct lane_table *table, const struct row_request *pull)
{
    const struct row_rank *rank = &table->queues->ranks[pull->worker->number];
    if (!rank->must_stand || pull->record->operation != RECORD_PULL || !table_is_bsp(table))
        return false;
    return pull->record->clock + !table_has_begun_clock(table) <= table->clock;
}

const char *rows_hear_request(struct worker *w, const struct record_rows *record)
{
    struct lane_table *table = table_find(w->job, record->table);
    if (w->job->failure)
        return NULL; /* no request of a failed job is answered */
    const char *fault = table ? request_fault(w, table, record)
                              : "a request is for an unknown table; use one version of gradpool";
    if (fault)
        return fault;
    struct row_request *request = request_begin(table, w, record);
    int error = request_is_mapped(request) ? directory_check(table, request) : 0;
    request->error = error == 0 && pull_is_late(table, request) ? -EOWNERDEAD : error;
    if (error == -EBADMSG || error == -EFAULT) {
        table_drop_request(table, request);
        return DIRECTORY_FAULT;
    }
    if (request->error < 0 || request_was_applied(table, request))
        list_append(&table->queues->done, &request->link);
    else if (record->operation == RECORD_PUSH)
        add_push(table, request);
    else
        list_append(&table->queues->pulls, &request->link);
    job_wake(w->job);
    return NULL;
}

/* ---- clocks ---- */

static const char *clock_fault(const struct worker *w, const struct lane_table *table,
                               const struct record_clock *record)
{
    if (!table)
        return "a clock is of an unknown table; use one version of gradpool";
    if (record->form == RECORD_CLOCK_STANDING)
        return table->queues->ranks[w->number].must_stand
                   ? NULL
                   : "a standing of tables came without a query; use one version of gradpool";
    if (table->queues->ranks[w->number].must_stand)
        return "a clock came before the standing of its rank; use one version of gradpool";
    if (record->clock > table_clocks_of(table->clocks, w->number))
        return "a clock does not follow the last one; use one version of gradpool";
    if (record->sequence < table->queues->ranks[w->number].sequence)
        return "a clock has fewer requests than the worker sent; use one version of gradpool";
    return NULL;
}

/* Called when the minimum of a table has increased. Counts each clock of the job once, for the
 * first table that has ended the clock. */
static void clock_has_ended(const struct lane_table *table)
{
    struct lane_tables *tables = table->job->tables;
    uint64_t minimum = table->clocks->minimum;
    if (minimum > tables->largest) {
        tables->ended += minimum - tables->largest;
        tables->ended_ns = clock_now_ns();
        tables->largest = minimum;
    }
    job_wake(table->job);
}

/* Called when the rank has repeated all its open requests. If the rank has not repeated the push in
 * progress, the former owner had applied this push to all shards and answered it. */
static void rank_stands(struct lane_table *table, uint32_t number)
{
    struct row_progress *before = &table->queues->logged.progress;
    struct row_rank *rank = &table->queues->ranks[number];
    rank->must_stand = false;
    if (table_is_bsp(table) || before->sequence == 0 || before->rank != number)
        return;
    list_for_each_entry (const struct row_request, push, &table->queues->pushes, link)
        if (row_logged_is_of(&table->queues->logged, push))
            return;
    rank->applied = before->sequence > rank->applied ? before->sequence : rank->applied;
    before->sequence = 0;
    job_wake(table->job);
}

static const char *hear_ended(struct worker *w, const struct record_clock *record)
{
    for (uint32_t i = 0; i < record->count; i++) {
        struct lane_table *table = table_find(w->job, record->tables[i]);
        const char *fault = clock_fault(w, table, record);
        if (fault)
            return fault;
        if (table_clocks_end(table->clocks, w->number, record->clock) > 0)
            clock_has_ended(table);
        if (table->queues->ranks[w->number].must_stand)
            rank_stands(table, w->number);
        if (w->job->has_left || w->job->tables->has_left)
            rows_check_left(table);
    }
    return NULL;
}

static struct row_settings row_settings_of(const struct record_row_settings *r)
{
    return (struct row_settings){.rate = r->rate,
                                 .weight_decay = r->weight_decay,
                                 .beta1 = r->beta1,
                                 .beta2 = r->beta2,
                                 .epsilon = r->epsilon,
                                 .beta = r->beta,
                                 .l1 = r->l1,
                                 .l2 = r->l2};
}

/* Returns whether no member of the table has a lower number than the rank. */
static bool is_lowest(const struct lane_table *table, uint32_t rank)
{
    for (uint32_t lower = 0; lower < rank; lower++)
        if (table_clocks_of(table->clocks, lower) != CLOCK_NONE)
            return false;
    return true;
}

/* Returns whether the lane uses the settings of the rank. Settings of an idle rank are used only
 * until a member has sent its first settings, because every member sends its settings again at the
 * beginning of its stage. */
static bool has_a_say(const struct lane_table *table, uint32_t rank)
{
    bool is_idle =
        table->job->tables->stage > 0 && table_clocks_of(table->clocks, rank) == CLOCK_NONE;
    return is_idle ? table->changes->count == 0 : is_lowest(table, rank);
}

/* Stores the settings of the lowest member. The settings of other ranks are checked and ignored. */
static const char *hear_settings(struct worker *w, const struct record_clock *record)
{
    struct lane_table *table = table_find(w->job, record->settings.table);
    const struct row_settings settings = row_settings_of(&record->settings);
    if (!table)
        return "settings are for an unknown table; use one version of gradpool";
    bool is_repeated = table->queues->ranks[w->number].must_stand;
    if (record->clock < table_clocks_of(table->clocks, w->number) && !is_repeated)
        return "settings arrived for a clock whose end the worker has announced; use one version "
               "of gradpool on all hosts";
    const char *wrong = row_wrong(table->terms->rule, &settings);
    if (wrong) {
        job_fail(w->job, -EINVAL,
                 "table '%s' of job '%s': rank %u set %s to a value that rule %s does not allow; "
                 "see gp_row_settings",
                 table->name, w->job->name, w->number, wrong, row_rule_name(table->terms->rule));
        return NULL;
    }
    int error = has_a_say(table, w->number) ? table_set(table, record->clock, &settings) : 0;
    if (!table_is_bsp(table))
        job_wake(w->job); /* a push may wait for the first settings */
    if (error == -ENOBUFS)
        job_fail(w->job, error,
                 "table '%s' of job '%s': rank %u changed the settings of %d clocks that other "
                 "ranks have not ended; pull rows in each clock, or change settings less often",
                 table->name, w->job->name, w->number, ROW_SETTINGS_MAX);
    return error == -ERANGE && !is_repeated
               ? "settings are for an earlier clock than the last ones; use one version of gradpool"
               : NULL;
}

const char *rows_hear_clock(struct worker *w, const struct record_clock *record)
{
    switch (record->form) {
    case RECORD_CLOCK_SETTINGS: return hear_settings(w, record);
    default: return hear_ended(w, record);
    }
}

void rows_answer_query(struct worker *w, const struct record_query *query)
{
    const struct lane_table *table = table_find(w->job, query->piece);
    struct clock_rank behind[RECORD_CLOCKS_RANKS_MAX];
    if (!table)
        return;
    struct record_clocks clocks = {.kind = RECORD_CLOCKS,
                                   .is_answer = 1,
                                   .table = table->id,
                                   .minimum = table->clocks->minimum,
                                   .word = query->word};
    clocks.behind =
        table_clocks_behind(table->clocks, query->round, behind, RECORD_CLOCKS_RANKS_MAX);
    for (uint32_t i = 0; i < clocks.behind && i < RECORD_CLOCKS_RANKS_MAX; i++) {
        clocks.ranks[i] = behind[i].rank;
        clocks.clocks[i] = behind[i].clock;
        clocks.count++;
    }
    /* If the send queue is full, the answer is dropped, because the worker repeats its query. */
    (void)fabric_send(w->conn, &clocks, sizeof clocks, NULL, 0);
}
