/* Finds the ranks that delay a table: a lane has the clocks of all ranks, and answers a query with
 * the ranks that are behind. README: L11. */
#include "client/lib/round/row_stall.h"

#include "client/lib/job/row_call.h"
#include "client/lib/link/link.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"
#include "svc/base/text.h"

#include <errno.h>
#include <inttypes.h>

/* Returns the clock that all ranks must have ended before the call can end; 0: the call waits for
 * no rank. With BSP a push waits for its own clock, and a pull for the previous clock. With SSP a
 * pull waits for a clock that is `staleness` clocks earlier. */
static uint64_t row_stall_clock(const struct row_call *call)
{
    const struct gp_table *table = call->batch->table;
    if (table->consistency == TABLE_TERMS_BSP)
        return call->is_push ? call->clock : call->clock - 1;
    if (table->consistency == TABLE_TERMS_ASP || call->is_push)
        return 0;
    return call->clock > table->staleness ? call->clock - table->staleness - 1 : 0;
}

int row_stall_is_due(const struct gp_request *q)
{
    const struct row_call *call = q->rows;
    if (!call || call->open == 0 || !call->is_push || q->err.code ||
        row_stall_clock(call) <= q->job->tables->clock.ended)
        return 0;
    return client_error(-EDEADLK,
                        "table '%s': a push of clock %" PRIu64 " ends after this rank has ended "
                        "the clock; call gp_clock(), then wait again",
                        call->batch->table->name, call->clock);
}

/* Finds an open part of the call; NULL: every lane has answered. */
static const struct exchange_part *row_stall_part(const struct row_call *call)
{
    for (uint32_t i = 0; i < call->batch->keys.blocks_count; i++) {
        const struct table_exchange *exchange = &call->blocks[i].exchange;
        for (uint32_t k = 0; exchange->open > 0 && k < exchange->parts_count; k++)
            if (exchange->parts[k].is_open)
                return &exchange->parts[k];
    }
    return NULL;
}

static struct link *row_stall_link(const struct gp_job *job, uint32_t lane)
{
    for_each_link (l, job)
        if (l->lane == lane)
            return l;
    return NULL;
}

void row_stall_query(struct gp_request *q)
{
    struct row_call *call = q->rows;
    const struct exchange_part *part = row_stall_part(call);
    struct link *l = part ? row_stall_link(q->job, part->lane) : NULL;
    call->late = (struct row_late){0};
    if (!l || !link_query_rows(l, part, row_stall_clock(call) + 1))
        return;
    call->late.word = part->record.word;
    q->queries++;
}

bool row_stall_names_ranks(const struct gp_request *q) { return q->rows->late.count > 0; }

int row_stall_lacks(const struct gp_request *q, uint64_t timeout_ns)
{
    const struct err *lack = q->rows ? &q->job->tables->errors->lack : NULL;
    if (!lack || !lack->code)
        return 0;
    return client_error(
        lack->code,
        "table '%.100s' clock %" PRIu64 ": pushes wait for table memory, after %" PRIu64
        " ms: %s. The request is open: wait again when there is room",
        q->rows->batch->table->name, q->rows->clock, timeout_ns / NS_PER_MS, lack->text);
}

static void append_behind(const struct row_late *late, char *text)
{
    for (uint32_t i = 0; i < late->count; i++)
        text_append(text, ERR_TEXT_BYTES, "%srank %u (in clock %" PRIu64 ")", i ? ", " : "",
                    late->ranks[i], late->clocks[i]);
    if (late->behind > late->count)
        text_append(text, ERR_TEXT_BYTES, " and %u more", late->behind - late->count);
}

static void append_lane(const struct gp_request *q, const struct link *l, char *text)
{
    char name[128];
    link_name(l, name, sizeof name);
    if (l->state != LINK_OPEN)
        text_append(text, ERR_TEXT_BYTES, "not connected to %s yet", name);
    else if (q->queries > 0)
        text_append(text, ERR_TEXT_BYTES, "%s does not answer", name);
    else if (row_stall_clock(q->rows) == 0)
        text_append(text, ERR_TEXT_BYTES, "no answer with rows from %s yet", name);
    else
        text_append(text, ERR_TEXT_BYTES,
                    "every rank has ended clock %" PRIu64 ", no answer to this rank from %s yet",
                    row_stall_clock(q->rows), name);
}

void row_stall_describe(const struct gp_request *q, char *text)
{
    const struct row_call *call = q->rows;
    const struct exchange_part *part = row_stall_part(call);
    const struct link *l = part ? row_stall_link(q->job, part->lane) : NULL;
    text_append(text, ERR_TEXT_BYTES, "table '%.100s' clock %" PRIu64 ": ",
                call->batch->table->name, call->clock);
    if (call->late.count > 0) {
        text_append(text, ERR_TEXT_BYTES, "no end of clock %" PRIu64 " from ",
                    row_stall_clock(call));
        append_behind(&call->late, text);
    } else if (l) {
        append_lane(q, l, text);
    }
}
