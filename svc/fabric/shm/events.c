/* Reports the events of a connection of fabric_shm, in this order: OPEN, completions, ROOM, the
 * peer's records, CLOSED. A record is copied from the ring before any of it is used. A malformed
 * record ends the connection (S1), never the process. */
#include "svc/fabric/shm/events.h"

#include "svc/fabric/shm/lending.h"
#include "svc/fabric/shm/map/lent.h"
#include "svc/fabric/shm/verbs.h"

#include <errno.h>

static struct fabric_event events_make(const struct shm_conn *c, enum fabric_event_kind kind)
{
    return (struct fabric_event){
        .kind = kind, .conn = (struct fabric_conn *)&c->base, .owner = c->owner};
}

static int events_take_request(struct shm_conn *c, struct fabric_event *event)
{
    if (c->is_surfaced)
        return 0;
    c->is_surfaced = true;
    *event = events_make(c, FABRIC_EVENT_REQUEST);
    event->data = c->ticket;
    event->bytes = c->ticket_bytes;
    return 1;
}

static int events_take_closed(struct shm_conn *c, struct fabric_event *event)
{
    *event = events_make(c, FABRIC_EVENT_CLOSED);
    event->error = c->error;
    event->word = c->reason;
    shm_conn_drop(c);
    return 1;
}

static int events_take_completions(struct shm_conn *c, struct fabric_event *events, int events_max)
{
    int n = 0;

    while (n < events_max && c->completions_head != c->completions_tail) {
        const struct shm_completion *done =
            &c->completions[c->completions_head++ % SHM_COMPLETIONS_MAX];
        events[n] = events_make(c, done->kind);
        events[n++].context = done->context;
    }
    return n;
}

static int events_take_message(struct shm_conn *c, const struct shm_record *record,
                               struct fabric_event *event)
{
    c->messages_free &= ~(UINT64_C(1) << (record - c->messages));
    *event = events_make(c, FABRIC_EVENT_MESSAGE);
    event->data = record->body;
    event->bytes = record->bytes;
    return 1;
}

static int events_take_word(struct shm_conn *c, const struct shm_record *record,
                            struct fabric_event *event)
{
    *event = events_make(c, FABRIC_EVENT_WORD);
    event->word = record->word;
    return 1;
}

/* Converts a record to an event. Only workers may send LEND and WITHDRAW, and only lanes may send
 * WORD. Returns 1 for an event, 0 for none, or an error, after which the connection has ended. */
static int events_take_record(struct shm_conn *c, struct shm_record *record,
                              struct fabric_event *event)
{
    bool is_lane = shm_is_lane(c);

    if (record->kind == SHM_RECORD_MESSAGE)
        return is_lane && shm_lending_waits(c, record) ? 0 : events_take_message(c, record, event);
    if (record->kind == SHM_RECORD_WORD && !is_lane)
        return events_take_word(c, record, event);
    if (record->kind == SHM_RECORD_LEND && is_lane)
        return shm_lending_begin(c, record);
    if (record->kind == SHM_RECORD_WITHDRAW && is_lane)
        return shm_lending_withdraw(c, record->word);
    return -EBADMSG;
}

static bool events_are_drained(const struct shm_conn *c)
{
    return c->hung_up && !c->waits && c->in.head == c->final_tail;
}

/* Copies each record into a free message buffer, and reports it. Only a record of kind MESSAGE
 * keeps its buffer. If no buffer is free, all records stay in the ring, so that their order is
 * kept. */
static int events_take_records(struct shm_conn *c, struct fabric_event *events, int events_max)
{
    uint32_t before = c->in.head;
    int n = 0, r = 1;

    for (int budget = events_max; budget > 0 && r >= 0; budget--) {
        if (c->messages_free == 0 || c->waits || events_are_drained(c))
            break;
        struct shm_record *record = &c->messages[__builtin_ctzll(c->messages_free)];
        r = shm_take(&c->in, record);
        if (r == 0)
            break;
        if (r > 0)
            r = events_take_record(c, record, &events[n]);
        if (r > 0)
            n++;
    }
    if (c->in.head != before) {
        shm_consumer_publish(&c->in);
        shm_conn_note(c);
    }
    if (r < 0)
        shm_conn_end(c, r, (uint32_t)-r);
    return n;
}

/* Reports the region or the record whose pages the mapper has finished. */
static int events_take_mapped(struct shm_conn *c, struct fabric_event *event)
{
    struct shm_record *record;
    const struct shm_lent *lent = c->waits;
    int error = shm_lending_resume(c, event, &record);

    if (record) {
        error = events_take_message(c, record, event);
        event->spent_ns = lent->spent_ns;
    }
    if (error < 0)
        shm_conn_end(c, error, (uint32_t)-error);
    return error > 0;
}

/* Returns whether a page was missing. The handler of SIGBUS sets this flag on the same thread. */
static bool events_page_has_failed(const struct shm_conn *c)
{
    return atomic_load_explicit(&c->is_poisoned, memory_order_relaxed);
}

static int events_take_open(struct shm_conn *c, struct fabric_event *events, int events_max)
{
    int n = 0;

    if (events_page_has_failed(c)) {
        shm_conn_end(c, -EFAULT, EFAULT);
        return 0;
    }
    if (c->open_due) {
        c->open_due = false;
        events[n++] = events_make(c, FABRIC_EVENT_OPEN);
    }
    n += events_take_completions(c, events + n, events_max - n);
    if (c->withdrawals != 0)
        shm_verb_withdraw_rest(c);
    if (n < events_max && c->room_wanted && shm_conn_has_room(c)) {
        c->room_wanted = false;
        events[n++] = events_make(c, FABRIC_EVENT_ROOM);
    }
    if (n < events_max)
        n += events_take_mapped(c, events + n);
    if (c->state == SHM_OPEN)
        n += events_take_records(c, events + n, events_max - n);
    if (c->state == SHM_OPEN && events_are_drained(c))
        shm_conn_farewell(c);
    return n;
}

int shm_events_take(struct shm_conn *c, struct fabric_event *events, int events_max)
{
    int n = 0;

    if (c->state == SHM_ASKED)
        return events_take_request(c, events);
    if (c->state == SHM_OPEN)
        n = events_take_open(c, events, events_max);
    if (c->state != SHM_ENDED)
        return n;
    n += events_take_completions(c, events + n, events_max - n);
    if (n < events_max)
        n += events_take_closed(c, events + n);
    return n;
}

static bool events_of_open_are_due(struct shm_conn *c)
{
    if (events_page_has_failed(c) || c->open_due || c->completions_head != c->completions_tail ||
        events_are_drained(c))
        return true;
    if (c->waits)
        return !shm_lending_is_stuck(c) || (c->room_wanted && shm_conn_has_room(c));
    if (c->messages_free != 0 && !shm_consumer_is_empty(&c->in))
        return true;
    return c->room_wanted && shm_conn_has_room(c);
}

bool shm_events_are_due(struct shm_conn *c)
{
    switch (c->state) {
    case SHM_ASKED: return !c->is_surfaced;
    case SHM_OPEN: return events_of_open_are_due(c) || c->state == SHM_ENDED;
    case SHM_ENDED: return true;
    default: return false;
    }
}
