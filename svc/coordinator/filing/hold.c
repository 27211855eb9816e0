/* Stops tables on all their lanes, those with BSP at one clock. With BSP, a lane has applied a
 * clock only if all members have ended this clock, so every lane will reach the largest clock of
 * any lane. RULES.md: K115. */
#include "svc/base/cleanup.h"
#include "svc/channel/table_spec.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/copies/copies.h"
#include "svc/coordinator/filing/internal.h"
#include "svc/coordinator/table/allow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define AGAIN_NS (5 * NS_PER_MS)
#define PATIENCE_NS (10 * NS_PER_S) /* longest wait until all lanes have stopped the tables */

/* Combines the last answers of all lanes, for each table: the largest clock, the largest number of
 * updates, and the number of rows. */
static void filing_sum_lanes(struct filing *f)
{
    for (size_t at = 0; at < f->lanes_count; at++) {
        const struct filing_lane *lane = &f->lanes[at];
        struct filing_table *table = &f->tables->each[lane->place];
        table->clock = lane->clock > table->clock ? lane->clock : table->clock;
        table->steps = lane->steps > table->steps ? lane->steps : table->steps;
        table->count += lane->count;
    }
}

/* Parts of a message that describe one table to the operator or rank. */
struct filing_view {
    WIRE(TableFileTable) table;
    WIRE(TableSpec) spec;
};

static void filing_view_table(const struct filing_table *from, const struct job_table *table,
                              struct filing_view *view)
{
    view->spec = table_spec_of(table->terms, table->name);
    view->table = MESSAGE_PART(TableFileTable, table_file_table, .spec = &view->spec,
                               .clock = from->clock, .steps = from->steps, .count = from->count);
}

/* Answers the open request: all lanes hold the tables. */
static void filing_answer_held(struct filing *f)
{
    _cleanup_free_ struct filing_view *views = calloc(f->tables->count, sizeof *views);
    _cleanup_free_ WIRE(TableFileTable) **list = calloc(f->tables->count, sizeof *list);
    if (!views || !list)
        return filing_break(f, -ENOMEM,
                            "gradpool serve has no memory for an export or import of %u tables; "
                            "raise its memory limit",
                            f->tables->count);
    for (uint32_t place = 0; place < f->tables->count; place++) {
        const struct job_table *table = filing_table_at(f, place);
        if (!table)
            return filing_break(f, -ECONNRESET, "the job has ended");
        filing_view_table(&f->tables->each[place], table, &views[place]);
        list[place] = &views[place].table;
    }
    f->is_ready = true;
    f->since_ns = clock_now_ns();
    filing_answer(f, MESSAGE_PART(TableFileReply, table_file_reply, .spec = &views->spec,
                                  .clock = f->clock, .steps = f->tables->each->steps,
                                  .count = f->tables->each->count, .tables = list,
                                  .n_tables = f->tables->count));
    filing_await(f);
}

static void filing_stands(struct filing *f)
{
    filing_sum_lanes(f);
    for (uint32_t place = 0; f->is_import && place < f->tables->count; place++) {
        const struct job_table *table = filing_table_at(f, place);
        if (table && f->tables->each[place].count > 0)
            return filing_break(f, -EEXIST,
                                "table '%s' of job %.64s has %" PRIu64
                                " rows already; import before the first push of a new table",
                                table->name, table->job->name, f->tables->each[place].count);
    }
    struct job *job = jobs_find_id(f->peer->service, f->job);
    if (f->is_import && job && table_copies_forget(job) < 0)
        return filing_break(f, -EAGAIN,
                            "job %.64s: the coordinator could not store that no copy of the tables "
                            "is whole, which is needed before an import; see the log of gradpool "
                            "serve, and try again",
                            job->name);
    filing_answer_held(f);
}

static void filing_hold_again(struct timer *timer)
{
    filing_hold(container_of(timer, struct filing, timer));
}

static bool filing_has_bsp(const struct filing *f)
{
    for (size_t at = 0; at < f->lanes_count; at++)
        if (!f->lanes[at].any_clock)
            return true;
    return false;
}

/* Returns whether all lanes have stopped all tables. With BSP, all lanes must also have stopped at
 * the same clock. Sets f->clock to the largest clock of any lane. Tables without BSP count only if
 * no table has BSP, because their clocks continue to rise. */
static bool filing_is_level(struct filing *f)
{
    uint64_t least = UINT64_MAX;
    bool is_held = true, has_bsp = filing_has_bsp(f);
    for (size_t at = 0; at < f->lanes_count; at++) {
        const struct filing_lane *lane = &f->lanes[at];
        is_held &= lane->is_held;
        if (has_bsp && lane->any_clock)
            continue;
        least = lane->clock < least ? lane->clock : least;
        f->clock = lane->clock > f->clock ? lane->clock : f->clock;
    }
    return is_held && (!has_bsp || least == f->clock);
}

/* Ends the request with an error. If pushes wait for table memory, no clock ends before the limit
 * is raised, so the error names this limit. */
static void filing_give_up(struct filing *f, const struct job_table *table)
{
    struct err lack;
    for (size_t at = 0; at < f->lanes_count; at++) {
        const struct lane *lane = lane_find(f->peer->service, f->lanes[at].lane);
        if (lane && allow_is_refused(table->job, lane, &lack))
            return filing_break(f, -EDQUOT,
                                "table '%s' of job %.64s: pushes wait for table memory, so no "
                                "clock is complete: %s",
                                table->name, table->job->name, lack.text);
    }
    filing_break(f, -ETIMEDOUT,
                 "table '%s' of job %.64s: its lanes did not complete one clock, or a pull in "
                 "progress, in time; try again",
                 table->name, table->job->name);
}

static void filing_look(struct filing *f)
{
    const struct job_table *table = filing_table(f);
    if (!table)
        return filing_break(f, -ECONNRESET, "the job has ended");
    if (filing_is_level(f))
        return filing_stands(f);
    if (clock_now_ns() - f->since_ns >= PATIENCE_NS)
        return filing_give_up(f, table);
    timer_stop(&f->timer);
    timer_init(&f->timer, filing_hold_again);
    timer_start(f->peer->service->loop, &f->timer, clock_now_ns() + AGAIN_NS);
}

static void filing_held(struct service *s, void *data, const envelope *reply, int code,
                        const char *text)
{
    const struct filing_asked *asked = data;
    struct filing *f = filing_of(s, asked);
    if (!f)
        return;
    if (!reply)
        return filing_break(f, code, "%s", text);
    if (reply->body_case != BODY(TABLE_BULK_REPLY))
        return filing_break(
            f, -EBADMSG, "an aggregator sent a reply of another kind; use one version of gradpool");
    const WIRE(TableBulkReply) *said = reply->table_bulk_reply;
    struct filing_lane *lane = &f->lanes[asked->at];
    lane->is_held = said->is_held;
    lane->any_clock = said->any_clock;
    lane->clock = said->clock;
    lane->steps = said->steps;
    lane->count = said->count;
    if (--f->pending == 0)
        filing_look(f);
}

void filing_hold(struct filing *f)
{
    int error = 0;
    f->turn++;
    f->pending = 0;
    for (size_t at = 0; error == 0 && at < f->lanes_count; at++) {
        WIRE(TableBulk)
        m = MESSAGE_PART(TableBulk, table_bulk, .clock = f->clock, .loads = f->is_import);
        m.step = GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_HOLD;
        error = filing_call(f, at, m, filing_held);
    }
    if (error < 0)
        filing_break(f, error, "the order to hold the table cannot be sent to its lanes: %s",
                     err_text(error));
}
