/* Owns batches and calls. A call whose caller no longer waits stays open until the last lane has
 * answered, because lanes may use its memory until then (W27). */
#include "client/lib/job/row_call.h"

#include "client/lib/job/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- batches ---- */

int batch_create(struct gp_table *t, struct gp_batch **ret_batch)
{
    struct gp_batch *b = calloc(1, sizeof *b);
    if (!b)
        return -ENOMEM;
    b->table = t;
    list_init(&b->idle);
    list_append(&t->batches, &b->node);
    *ret_batch = b;
    return 0;
}

static void row_call_free(struct row_call *call)
{
    struct gp_batch *b = call->batch;
    for (uint32_t i = 0; call->blocks && i < b->keys.blocks_count; i++)
        exchange_fini(&b->table->job->tables->exchanges, &call->blocks[i].exchange);
    list_remove(&call->node);
    free(call->requests);
    free(call->parts);
    free(call->spans);
    free(call->blocks);
    free(call);
}

static void batch_destroy(struct gp_batch *b)
{
    list_for_each_safe_entry (struct row_call, call, &b->idle, node)
        row_call_free(call);
    list_remove(&b->node);
    table_batch_fini(&b->keys);
    free(b);
}

void batch_free(struct gp_batch *b)
{
    b->is_freed = true;
    if (b->calls_used == 0)
        batch_destroy(b);
}

/* ---- calls ---- */

struct row_call *row_call_take(struct gp_batch *b)
{
    struct list *node = list_first(&b->idle);
    if (!node)
        return NULL;
    list_remove(node);
    b->calls_used++;
    return list_entry(node, struct row_call, node);
}

static int row_call_prepare(struct row_call *call)
{
    const struct gp_batch *b = call->batch;
    uint32_t lanes = b->table->route.lanes_count, blocks = b->keys.blocks_count;
    call->requests = calloc(blocks, sizeof *call->requests);
    call->parts = calloc((size_t)blocks * lanes, sizeof *call->parts);
    call->spans = calloc(table_route_shards(&b->table->route), sizeof *call->spans);
    call->blocks = calloc(blocks, sizeof *call->blocks);
    if (!call->requests || !call->parts || !call->spans || !call->blocks)
        return -ENOMEM;
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < blocks; i++) {
        call->blocks[i].call = call;
        error =
            exchange_prepare(&b->table->job->tables->exchanges, &call->blocks[i].exchange, lanes);
    }
    return error;
}

int row_call_create(struct gp_batch *b, struct row_call **ret_call)
{
    struct row_call *call = calloc(1, sizeof *call);
    if (!call)
        return -ENOMEM;
    call->batch = b;
    list_init(&call->node);
    int error = row_call_prepare(call);
    if (error < 0) {
        row_call_free(call);
        return error;
    }
    b->calls_used++;
    *ret_call = call;
    return 0;
}

void row_call_end(struct row_call *call)
{
    struct gp_batch *b = call->batch;
    list_remove(&call->node);
    if (call->memory)
        row_pool_put(b->table->job->tables->pool, call->memory);
    call->memory = NULL;
    call->request = NULL;
    call->rows = NULL;
    call->is_copied = false;
    list_append(&b->idle, &call->node);
    if (--b->calls_used == 0 && b->is_freed)
        batch_destroy(b);
}

void row_call_abandon(struct row_call *call)
{
    call->request = NULL;
    if (call->open == 0)
        row_call_end(call);
}

/* Returns whether each lane of the table has room for as many further requests as the batch has
 * blocks. */
static bool row_call_has_room(const struct row_call *call)
{
    const struct gp_batch *b = call->batch;
    const struct table_route *route = &b->table->route;
    const struct table_exchanges *exchanges = &b->table->job->tables->exchanges;
    for (uint32_t i = 0; i < route->lanes_count; i++)
        if (exchanges_room(exchanges, table_route_number(route, i), route->lanes[i]) <
            b->keys.blocks_count)
            return false;
    return true;
}

int row_call_begin(struct row_call *call, enum record_rows_operation operation)
{
    struct gp_table *t = call->batch->table;
    struct job_tables *tables = t->job->tables;
    uint32_t blocks = call->batch->keys.blocks_count;
    if (!row_call_has_room(call))
        return -EBUSY;
    if (tables->clock.sequence >= RECORD_CLOCK_MOST - blocks)
        return -EOVERFLOW;
    for (uint32_t i = 0; i < blocks; i++)
        exchange_begin(&tables->exchanges, &call->blocks[i].exchange, &call->requests[i], operation,
                       &tables->clock);
    call->open = blocks;
    call->is_push = operation == RECORD_PUSH;
    call->clock = worker_clock_now(&tables->clock);
    call->late = (struct row_late){0};
    list_append(&tables->calls, &call->node);
    return 0;
}

/* ---- answers ---- */

static const struct table_exchange *row_call_failure(const struct row_call *call)
{
    for (uint32_t i = 0; i < call->batch->keys.blocks_count; i++)
        if (call->blocks[i].exchange.code)
            return &call->blocks[i].exchange;
    return NULL;
}

static void row_call_set_error(const struct row_call *call, struct err *err)
{
    const struct table_exchange *failed = row_call_failure(call);
    const char *name = call->batch->table->name;
    if (!failed || err->code)
        return;
    if (strncmp(failed->text, "table '", strlen("table '")) == 0)
        err_set(err, failed->code, "%s", failed->text);
    else
        err_set(err, failed->code, "table '%s': %s", name,
                failed->text[0] ? failed->text : err_text(failed->code));
}

/* Counts a block that is over. After the last block, ends the call and sets the result of its
 * request. */
static void row_call_end_block(struct table_exchange *exchange)
{
    struct row_call *call = container_of(exchange, struct row_block, exchange)->call;
    struct job_tables *tables = call->batch->table->job->tables;
    if (--call->open > 0)
        return;
    if (call->request)
        row_call_set_error(call, &call->request->err);
    else if (call->is_copied)
        row_call_set_error(call, &tables->errors->copied);
    if (!call->request)
        row_call_end(call);
}

void row_calls_word(struct gp_job *job, uint32_t lane, uint32_t word)
{
    struct table_exchange *exchange =
        job->tables ? exchange_word(&job->tables->exchanges, lane, word) : NULL;
    if (exchange)
        row_call_end_block(exchange);
}

void row_calls_error(struct gp_job *job, uint32_t lane, const struct record_error *error)
{
    struct table_exchange *exchange =
        job->tables ? exchange_error(&job->tables->exchanges, lane, error) : NULL;
    if (exchange)
        row_call_end_block(exchange);
}

static bool exchange_needs(const struct table_exchange *exchange, uint32_t lane)
{
    for (uint32_t i = 0; exchange->open > 0 && i < exchange->parts_count; i++)
        if (exchange->parts[i].is_open && exchange->parts[i].lane == lane)
            return true;
    return false;
}

/* Finds a block of the table with an open part for the lane; NULL: none. */
static struct table_exchange *row_calls_find(struct job_tables *tables, const struct gp_table *t,
                                             uint32_t lane)
{
    list_for_each_entry (struct table_exchange, exchange, &tables->exchanges.open, node) {
        const struct row_call *call = container_of(exchange, struct row_block, exchange)->call;
        if ((!t || call->batch->table == t) && exchange_needs(exchange, lane))
            return exchange;
    }
    return NULL;
}

void row_calls_lose(struct gp_job *job, const struct gp_table *t, uint32_t lane, int code,
                    const char *text)
{
    struct table_exchange *exchange;
    while (job->tables && (exchange = row_calls_find(job->tables, t, lane)))
        if (exchange_lose(&job->tables->exchanges, exchange, lane, code, text))
            row_call_end_block(exchange);
}

/* Returns whether the push is applied without a further call of this rank, such as gp_clock(). */
static bool row_call_ends_alone(const struct row_call *call)
{
    bool is_bsp = call->batch->table->consistency == TABLE_TERMS_BSP;
    return call->is_push &&
           (!is_bsp || call->clock <= call->batch->table->job->tables->clock.ended);
}

bool row_calls_are_settled(const struct gp_job *job)
{
    if (!job->tables)
        return true;
    list_for_each_entry (const struct row_call, call, &job->tables->calls, node)
        if (call->open > 0 && row_call_ends_alone(call))
            return false;
    return true;
}

struct gp_request *row_calls_late(struct gp_job *job, const struct record_clocks *clocks)
{
    if (!job->tables || !clocks->is_answer)
        return NULL;
    list_for_each_entry (struct row_call, call, &job->tables->calls, node) {
        struct row_late *late = &call->late;
        if (late->word != clocks->word || !call->request)
            continue;
        late->word = 0;
        late->behind = clocks->behind;
        late->count = clocks->count;
        memcpy(late->ranks, clocks->ranks, sizeof late->ranks);
        memcpy(late->clocks, clocks->clocks, sizeof late->clocks);
        memset(call->request->missing, 0, sizeof call->request->missing);
        for (uint32_t i = 0; i < late->count; i++)
            if (late->ranks[i] < job->workers)
                ranks_add(call->request->missing, late->ranks[i]);
        return call->request;
    }
    return NULL;
}
