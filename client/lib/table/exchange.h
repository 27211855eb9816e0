/* Open pulls and pushes of a worker, and the words with which lanes end them. A request has one
 * part for each lane with keys, and is over when for every part a word or an error has arrived. The
 * caller holds the job's lock, sends the records, and lends the memory until the request is
 * over. */
#ifndef GRADPOOL_CLIENT_TABLE_EXCHANGE_H
#define GRADPOOL_CLIENT_TABLE_EXCHANGE_H

#include "client/lib/table/clock.h"
#include "client/lib/table/request.h"
#include "svc/base/err.h"
#include "svc/base/list.h"

#include <stdbool.h>

/* Bit that is set in each word of a table's request, and in no word of a piece. */
#define EXCHANGE_WORD 0x80000000u

struct exchange_part {
    struct record_rows record; /* record that is sent again on each new connection to the lane */
    uint32_t lane, slot;
    bool is_open; /* neither word nor error has arrived */
};

/* One pull or push. A zeroed exchange has no memory. */
struct table_exchange {
    struct list node; /* node in exchanges.open, in the order of sequence numbers */
    struct exchange_part *parts;
    uint32_t parts_count, parts_room;
    /* number of parts for which neither word nor error has arrived; 0: the exchange is over */
    uint32_t open;
    int code; /* 0, or the first error of a lane */
    char text[RECORD_TEXT_BYTES + 1];
};

struct exchange_slot {
    struct table_exchange *exchange; /* NULL: the slot is free */
    uint32_t part, next_free;
    uint8_t generation;
};

struct table_exchanges {
    struct list open;
    struct exchange_slot *slots;
    uint32_t slots_count, free_slot;
    uint32_t reserved; /* number of slots that prepared exchanges may need */
    uint32_t workers;  /* number of workers of the job */
    uint64_t stale;    /* number of words and errors that matched no open part */
};

void exchanges_init(struct table_exchanges *exchanges, uint32_t workers);
void exchanges_fini(struct table_exchanges *exchanges);

/* Allocates the memory of a request to at most `lanes` lanes, so that exchange_begin() allocates
 * nothing. -ENOMEM; -ENOSPC: the exchanges need more than 2^23 words. After an error the exchange
 * is unchanged. */
int exchange_prepare(struct table_exchanges *exchanges, struct table_exchange *exchange,
                     uint32_t lanes);
/* Frees a prepared exchange that is over. */
void exchange_fini(struct table_exchanges *exchanges, struct table_exchange *exchange);

/* Begins a request that was laid out, with the next number of the clock. The exchange must be over,
 * and prepared for the lanes of the request. Afterwards the parts have the records, which the
 * caller sends. -EAGAIN: a lane stores no further request to the table; -EOVERFLOW: no number is
 * left. After an error no request has begun. */
int exchange_begin(struct table_exchanges *exchanges, struct table_exchange *exchange,
                   const struct table_request *request, enum record_rows_operation operation,
                   struct worker_clock *clock);

/* Ends the part with this word of this lane. Returns its exchange if the exchange is over now;
 * NULL: parts are left, or the word is stale. */
struct table_exchange *exchange_word(struct table_exchanges *exchanges, uint32_t lane,
                                     uint32_t word);
/* Ends a part like exchange_word(), with an error of the lane. The exchange keeps its first
 * error. */
struct table_exchange *exchange_error(struct table_exchanges *exchanges, uint32_t lane,
                                      const struct record_error *error);
/* Ends the exchange's open part for a lost lane with this error. Returns whether the exchange is
 * over now; false if the exchange has no such part. */
bool exchange_lose(struct table_exchanges *exchanges, struct table_exchange *exchange,
                   uint32_t lane, int code, const char *text);
/* Returns the number of further requests for which a lane has room, to the table with this number
 * on the lane. */
uint32_t exchanges_room(const struct table_exchanges *exchanges, uint32_t table, uint32_t lane);
/* Returns whether the part is open, and of this lane and group. */
static inline bool exchange_part_is_at(const struct exchange_part *part, uint32_t lane,
                                       uint32_t group)
{
    return part->is_open && part->lane == lane && row_group_of(part->record.table) == group;
}
/* Returns the next open part of the lane and group, behind the request with number `sequence`; 0:
 * the first one. NULL: no further part is open. The caller repeats the records of these parts on a
 * new connection. */
const struct exchange_part *exchanges_next(const struct table_exchanges *exchanges, uint32_t lane,
                                           uint32_t group, uint64_t sequence);

#endif
