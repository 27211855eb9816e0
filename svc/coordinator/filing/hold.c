/* Stops a table on all its lanes at one clock. With BSP, a lane has applied a clock only if all
 * members have ended this clock, so every lane will reach the largest clock of any lane. RULES.md:
 * K115. */
#include "svc/channel/table_spec.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/filing/internal.h"

#include <errno.h>
#include <inttypes.h>

#define AGAIN_NS (5 * NS_PER_MS)

static uint64_t filing_count(const struct filing *f)
{
    uint64_t count = 0;
    for (size_t at = 0; at < f->lanes_count; at++)
        count += f->lanes[at].count;
    return count;
}

static uint64_t filing_steps(const struct filing *f)
{
    uint64_t steps = 0;
    for (size_t at = 0; at < f->lanes_count; at++)
        steps = f->lanes[at].steps > steps ? f->lanes[at].steps : steps;
    return steps;
}

static void filing_stands(struct filing *f, const struct job_table *table)
{
    WIRE(TableFileReply)
    reply = MESSAGE_PART(TableFileReply, table_file_reply, .clock = f->clock,
                         .steps = filing_steps(f), .count = filing_count(f));
    WIRE(TableSpec) spec = table_spec_of(table->terms, table->name);
    reply.spec = &spec;
    if (f->is_import && reply.count > 0)
        return filing_break(f, -EEXIST,
                            "table '%s' of job %.64s has %" PRIu64
                            " rows already; import before the first push of a new table",
                            table->name, table->job->name, reply.count);
    f->is_ready = true;
    f->stood_ns = clock_now_ns();
    filing_answer(f, reply);
    filing_await(f);
}

static void filing_hold_again(struct timer *timer)
{
    filing_hold(container_of(timer, struct filing, timer));
}

/* Returns whether all lanes have stopped the table. With BSP, all lanes must also have stopped at
 * the same clock. Sets f->clock to the largest clock of any lane. */
static bool filing_is_level(struct filing *f, bool is_bsp)
{
    uint64_t least = UINT64_MAX;
    bool is_held = true;
    for (size_t at = 0; at < f->lanes_count; at++) {
        const struct filing_lane *lane = &f->lanes[at];
        is_held &= lane->is_held;
        least = lane->clock < least ? lane->clock : least;
        f->clock = lane->clock > f->clock ? lane->clock : f->clock;
    }
    return is_held && (!is_bsp || least == f->clock);
}

static void filing_look(struct filing *f)
{
    const struct job_table *table = filing_table(f);
    if (!table)
        return filing_break(f, -ECONNRESET, "the job has ended");
    bool is_bsp = table->terms->consistency <= TABLE_TERMS_BSP; /* BSP, in a job without stages */
    if (filing_is_level(f, is_bsp))
        return filing_stands(f, table);
    if (clock_now_ns() >= f->patience_ns)
        return filing_break(
            f, -ETIMEDOUT,
            "table '%s' of job %.64s: its lanes did not complete one clock, or a pull "
            "in progress, in time; try again",
            table->name, table->job->name);
    timer_stop(&f->timer);
    timer_init(&f->timer, filing_hold_again);
    timer_start(f->service->loop, &f->timer, clock_now_ns() + AGAIN_NS);
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
