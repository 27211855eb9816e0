/* Owns the slots of words of tables. A word consists of a bit, a slot and the slot's generation, so
 * a late word matches no part. */
#include "client/lib/table/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GENERATION_BITS 8
#define SLOTS_MAX (1u << 23)
#define NO_SLOT UINT32_MAX

void exchanges_init(struct table_exchanges *exchanges, uint32_t workers)
{
    *exchanges = (struct table_exchanges){.workers = workers, .free_slot = NO_SLOT};
    list_init(&exchanges->open);
}

void exchanges_fini(struct table_exchanges *exchanges)
{
    free(exchanges->slots);
    exchanges_init(exchanges, exchanges->workers);
}

/* Reserves slots for `more` further parts. The number of slots at least doubles, so that many small
 * batches cost few allocations. */
static int exchanges_reserve(struct table_exchanges *exchanges, uint32_t more)
{
    uint32_t wanted = exchanges->reserved + more, count = exchanges->slots_count;
    if (wanted > SLOTS_MAX)
        return -ENOSPC;
    if (wanted > count) {
        count = wanted > 2 * count ? wanted : 2 * count;
        count = count < SLOTS_MAX ? count : SLOTS_MAX;
        struct exchange_slot *slots = realloc(exchanges->slots, count * sizeof *slots);
        if (!slots)
            return -ENOMEM;
        for (uint32_t i = exchanges->slots_count; i < count; i++) {
            slots[i] = (struct exchange_slot){.next_free = exchanges->free_slot};
            exchanges->free_slot = i;
        }
        exchanges->slots = slots;
        exchanges->slots_count = count;
    }
    exchanges->reserved = wanted;
    return 0;
}

int exchange_prepare(struct table_exchanges *exchanges, struct table_exchange *exchange,
                     uint32_t lanes)
{
    if (lanes <= exchange->parts_room)
        return 0;
    int error = exchanges_reserve(exchanges, lanes - exchange->parts_room);
    if (error < 0)
        return error;
    struct exchange_part *parts = realloc(exchange->parts, lanes * sizeof *parts);
    if (!parts) {
        exchanges->reserved -= lanes - exchange->parts_room;
        return -ENOMEM;
    }
    if (!exchange->parts)
        list_init(&exchange->node);
    exchange->parts = parts;
    exchange->parts_room = lanes;
    return 0;
}

void exchange_fini(struct table_exchanges *exchanges, struct table_exchange *exchange)
{
    exchanges->reserved -= exchange->parts_room;
    free(exchange->parts);
    *exchange = (struct table_exchange){0};
}

static uint32_t exchange_word_of(const struct table_exchanges *exchanges, uint32_t slot)
{
    return EXCHANGE_WORD | slot << GENERATION_BITS | exchanges->slots[slot].generation;
}

/* Takes a free slot, which the caller has reserved, and creates a new word for the slot.
 * RECORD_WORD_NONE is skipped, because an ERROR with this value concerns the whole job. */
static uint32_t exchange_take_slot(struct table_exchanges *exchanges,
                                   struct table_exchange *exchange, uint32_t part)
{
    uint32_t number = exchanges->free_slot;
    struct exchange_slot *slot = &exchanges->slots[number];
    exchanges->free_slot = slot->next_free;
    slot->exchange = exchange;
    slot->part = part;
    do
        slot->generation++;
    while (exchange_word_of(exchanges, number) == RECORD_WORD_NONE);
    return number;
}

/* Returns the number of the worker's open requests to a table on a lane. */
static uint32_t exchanges_count(const struct table_exchanges *exchanges, uint32_t table,
                                uint32_t lane)
{
    uint32_t count = 0;
    list_for_each_entry (const struct table_exchange, e, &exchanges->open, node) {
        for (uint32_t i = 0; i < e->parts_count; i++)
            count += e->parts[i].is_open && e->parts[i].lane == lane &&
                     e->parts[i].record.table == table;
    }
    return count;
}

uint32_t exchanges_room(const struct table_exchanges *exchanges, uint32_t table, uint32_t lane)
{
    uint32_t most = record_row_requests_open(exchanges->workers);
    uint32_t count = exchanges_count(exchanges, table, lane);
    return count < most ? most - count : 0;
}

static bool exchanges_have_room(const struct table_exchanges *exchanges,
                                const struct table_request *request)
{
    for (uint32_t i = 0; i < request->parts_count; i++)
        if (exchanges_room(exchanges, request->parts[i].number, request->parts[i].lane) == 0)
            return false;
    return true;
}

int exchange_begin(struct table_exchanges *exchanges, struct table_exchange *exchange,
                   const struct table_request *request, enum record_rows_operation operation,
                   struct worker_clock *clock)
{
    if (!exchanges_have_room(exchanges, request))
        return -EAGAIN;
    uint64_t sequence = worker_clock_next_request(clock);
    if (sequence == 0)
        return -EOVERFLOW;
    for (uint32_t i = 0; i < request->parts_count; i++) {
        uint32_t slot = exchange_take_slot(exchanges, exchange, i);
        uint32_t word = exchange_word_of(exchanges, slot);
        exchange->parts[i] = (struct exchange_part){
            .record = table_request_record(request, &request->parts[i], operation,
                                           request->parts[i].number, word, worker_clock_now(clock),
                                           sequence),
            .lane = request->parts[i].lane,
            .slot = slot,
            .is_open = true};
    }
    exchange->parts_count = exchange->open = request->parts_count;
    exchange->code = 0;
    list_append(&exchanges->open, &exchange->node);
    return 0;
}

/* Ends a part and frees its slot. Returns whether the exchange is over. */
static bool exchange_end_part(struct table_exchanges *exchanges, struct table_exchange *exchange,
                              struct exchange_part *part)
{
    struct exchange_slot *slot = &exchanges->slots[part->slot];
    part->is_open = false;
    slot->exchange = NULL;
    slot->next_free = exchanges->free_slot;
    exchanges->free_slot = part->slot;
    if (--exchange->open > 0)
        return false;
    list_remove(&exchange->node);
    return true;
}

/* Finds the open part with this word of this lane. NULL: no part has the word; the word is counted
 * as stale. */
static struct exchange_part *exchange_find(struct table_exchanges *exchanges, uint32_t lane,
                                           uint32_t word, struct table_exchange **ret_exchange)
{
    uint32_t number = (word & ~EXCHANGE_WORD) >> GENERATION_BITS;
    bool is_known = word & EXCHANGE_WORD && number < exchanges->slots_count &&
                    exchanges->slots[number].exchange &&
                    exchange_word_of(exchanges, number) == word;
    struct exchange_slot *slot = is_known ? &exchanges->slots[number] : NULL;
    struct exchange_part *part = slot ? &slot->exchange->parts[slot->part] : NULL;
    if (!part || part->lane != lane) {
        exchanges->stale++;
        return NULL;
    }
    *ret_exchange = slot->exchange;
    return part;
}

struct table_exchange *exchange_word(struct table_exchanges *exchanges, uint32_t lane,
                                     uint32_t word)
{
    struct table_exchange *exchange;
    struct exchange_part *part = exchange_find(exchanges, lane, word, &exchange);
    return part && exchange_end_part(exchanges, exchange, part) ? exchange : NULL;
}

static void exchange_note_error(struct table_exchange *exchange, int code, const char *text,
                                size_t bytes)
{
    if (exchange->code)
        return;
    bytes = bytes < RECORD_TEXT_BYTES ? bytes : RECORD_TEXT_BYTES;
    exchange->code = code;
    memcpy(exchange->text, text, bytes);
    exchange->text[bytes] = '\0';
}

struct table_exchange *exchange_error(struct table_exchanges *exchanges, uint32_t lane,
                                      const struct record_error *error)
{
    struct table_exchange *exchange;
    struct exchange_part *part = exchange_find(exchanges, lane, error->word, &exchange);
    if (!part)
        return NULL;
    exchange_note_error(exchange, error->code, error->text, error->text_bytes);
    return exchange_end_part(exchanges, exchange, part) ? exchange : NULL;
}

bool exchange_lose(struct table_exchanges *exchanges, struct table_exchange *exchange,
                   uint32_t lane, int code, const char *text)
{
    for (uint32_t i = 0; exchange->open > 0 && i < exchange->parts_count; i++) {
        struct exchange_part *part = &exchange->parts[i];
        if (!part->is_open || part->lane != lane)
            continue;
        exchange_note_error(exchange, code, text, strlen(text));
        return exchange_end_part(exchanges, exchange, part);
    }
    return false;
}

const struct exchange_part *exchanges_next(const struct table_exchanges *exchanges, uint32_t lane,
                                           uint32_t group, uint64_t sequence)
{
    list_for_each_entry (const struct table_exchange, e, &exchanges->open, node) {
        if (e->parts[0].record.sequence <= sequence)
            continue;
        for (uint32_t i = 0; i < e->parts_count; i++)
            if (exchange_part_is_at(&e->parts[i], lane, group))
                return &e->parts[i];
    }
    return NULL;
}
