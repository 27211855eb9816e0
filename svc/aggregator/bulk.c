/* Handles the coordinator's requests for exports and imports of tables: hold, read, write,
 * continue. A held table applies no push. All holds end with the connection to the coordinator, so
 * a lost coordinator blocks no table. svc/lane/RULES.md: A104. */
#include "svc/lane/rows/bulk/bulk.h"

#include "svc/aggregator/internal.h"

#include <errno.h>
#include <stdio.h>

#define BULK_BYTES_MAX (1u << 20) /* maximum bytes of the rows in one reply */

struct bulk_serving {
    const Gradpool__Wire__TableBulk *request;
    char *buffer;
    Gradpool__Wire__TableBulkReply reply;
};

static int bulk_serve_hold(struct lane *lane, struct bulk_serving *b)
{
    const Gradpool__Wire__TableBulk *r = b->request;
    struct bulk_standing standing;
    int error = bulk_hold(lane, r->job_id, r->table, r->clock, r->loads, &standing);
    if (error < 0)
        return error;
    b->reply.is_held = standing.is_held;
    b->reply.any_clock = !standing.is_bsp;
    b->reply.clock = standing.clock;
    b->reply.steps = standing.steps;
    b->reply.count = standing.rows;
    return 0;
}

static int bulk_serve_read(struct lane *lane, struct bulk_serving *b)
{
    const Gradpool__Wire__TableBulk *r = b->request;
    struct bulk_part part;
    int error =
        bulk_read(lane, r->job_id, r->table, r->shard, r->from, b->buffer, BULK_BYTES_MAX, &part);
    if (error < 0)
        return error;
    b->reply.rows.data = (uint8_t *)b->buffer;
    b->reply.rows.len = part.bytes;
    b->reply.next = part.next;
    b->reply.is_end = part.is_end;
    return 0;
}

static int bulk_on_lane(struct lane *lane, void *context)
{
    struct bulk_serving *b = context;
    const Gradpool__Wire__TableBulk *r = b->request;
    const struct bulk_updates updates = {.count = r->steps, .clock = r->clock};
    switch (r->step) {
    case GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_HOLD: return bulk_serve_hold(lane, b);
    case GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_READ: return bulk_serve_read(lane, b);
    case GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_WRITE:
        return bulk_write(lane, r->job_id, r->table, r->rows.data, r->rows.len);
    case GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_CONTINUE:
        return bulk_continue(lane, r->job_id, r->table, r->has_steps ? &updates : NULL);
    default: return -EOPNOTSUPP;
    }
}

static const char *bulk_why(int code)
{
    switch (code) {
    case -ENOENT: return "this lane has no such shard";
    case -EBUSY: return "the table is not held";
    case -ERANGE: return "a key belongs to another lane, or is beyond the table's bound of keys";
    case -EBADMSG: return "the rows have another length";
    case -EAGAIN: return "the allowance for table memory is used up";
    case -ENOSPC:
    case -ENOMEM: return "no memory for the rows; raise --lane-memory-max, or use more lanes";
    default: return err_text(code);
    }
}

bool bulk_knows(const envelope *request)
{
    return request->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_BULK;
}

int bulk_serve(struct aggregator *a, const envelope *request)
{
    const Gradpool__Wire__TableBulk *r = request->table_bulk;
    struct bulk_serving b = {.request = r, .reply = MESSAGE_PART(TableBulkReply, table_bulk_reply)};
    char text[ERR_TEXT_BYTES];
    b.buffer = moving_state_buffer(a);
    int error = b.buffer ? serve_call(a, r->lane, bulk_on_lane, &b) : -ENOMEM;
    if (error == -EAGAIN)
        /* sent before the reply, so that the coordinator can raise the allowance before it repeats
         * the request */
        (void)allow_ask(a, false);
    if (error == 0)
        return channel_send(a->channel,
                            &ENVELOPE(request->id, TABLE_BULK_REPLY, table_bulk_reply, &b.reply));
    snprintf(text, sizeof text, "lane %u, job %u, table %u: %s", r->lane, r->job_id, r->table,
             bulk_why(error));
    return serve_reply_failure(a, request->id, error, text);
}

static int bulk_end_holds(struct lane *lane, void *context)
{
    (void)context;
    bulk_continue_all(lane);
    return 0;
}

void bulk_abandon(struct aggregator *a)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        lane_thread_call(a->lanes[i], bulk_end_holds, NULL);
}
