/* Runs the holder of an aggregator (svc/replica) on a thread of its own. The test plays the lanes
 * of its copies, and answers the requests of the holder. */
#ifndef GRADPOOL_TEST_KEEPING_RIG_H
#define GRADPOOL_TEST_KEEPING_RIG_H

#include "svc/base/clock.h"
#include "svc/fabric/fabric.h"
#include "svc/replica/holder.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define JOB 7
#define AGGREGATOR 5
#define LANES 3
#define TOLD_MOST 16
#define BYTES 100000 /* bytes of a state; not a multiple of a stamp's alignment */
#define DEADLINE_NS (60 * NS_PER_S)
#define QUIET_NS (20 * NS_PER_MS)

/* A simulated lane, which has at most one connection at a time. */
struct scripted_lane {
    struct fabric *shm, *ofi;
    char shm_address[FABRIC_ADDRESS_BYTES_MAX], ofi_address[FABRIC_ADDRESS_BYTES_MAX];
    struct fabric_conn *conn;
    struct record_connect ticket; /* ticket of the last connection */
    bool refuses, is_stopped;
    int opened, closed, by_ofi, regions; /* numbers of events so far */
    struct record_backup told[TOLD_MOST];
    int told_count;
    union record last; /* last record */
};

static struct holder *k;
static struct scripted_lane lanes[LANES + 1]; /* the index starts at 1 */
static _Atomic int asks;

/* ---- lanes ---- */

static inline void lane_takes_message(struct scripted_lane *lane, const struct fabric_event *event)
{
    union record record;
    size_t bytes;
    assert_int_equal(record_check(event->data, event->bytes, &record, &bytes), 0);
    fabric_message_done(event->conn, event->data);
    lane->last = record;
    if (record.kind != RECORD_BACKUP)
        return;
    assert_true(lane->told_count < TOLD_MOST);
    lane->told[lane->told_count++] = record.backup;
}

static inline void lane_takes_request(struct scripted_lane *lane, const struct fabric_event *event)
{
    assert_int_equal(event->bytes, sizeof lane->ticket);
    memcpy(&lane->ticket, event->data, sizeof lane->ticket);
    if (lane->refuses)
        return fabric_refuse(event->conn, EBUSY);
    assert_null(lane->conn); /* at most one connection at a time */
    lane->conn = event->conn;
    assert_int_equal(fabric_accept(event->conn, lane), 0);
}

static inline void lane_takes(struct scripted_lane *lane, const struct fabric_event *event)
{
    switch (event->kind) {
    case FABRIC_EVENT_REQUEST: lane_takes_request(lane, event); break;
    case FABRIC_EVENT_OPEN: lane->opened++; break;
    case FABRIC_EVENT_REGION: lane->regions++; break;
    case FABRIC_EVENT_MESSAGE: lane_takes_message(lane, event); break;
    case FABRIC_EVENT_CLOSED:
        lane->closed++;
        lane->conn = NULL;
        break;
    default: break;
    }
}

static inline void poll_lane(struct scripted_lane *lane, struct fabric *fabric)
{
    struct fabric_event events[16];
    int count = fabric && !lane->is_stopped ? fabric_poll(fabric, events, 16) : 0;
    for (int i = 0; i < count; i++) {
        lane->by_ofi += fabric == lane->ofi && events[i].kind == FABRIC_EVENT_OPEN;
        lane_takes(lane, &events[i]);
    }
}

static inline void turn(void)
{
    for (int i = 1; i <= LANES; i++) {
        poll_lane(&lanes[i], lanes[i].shm);
        poll_lane(&lanes[i], lanes[i].ofi);
    }
    sched_yield();
}

#define until(condition)                                   \
    do {                                                   \
        uint64_t until_ns_ = clock_now_ns() + DEADLINE_NS; \
        while (!(condition)) {                             \
            turn();                                        \
            if (clock_now_ns() > until_ns_)                \
                fail_msg("never: %s", #condition);         \
        }                                                  \
    } while (0)

/* Waits longer than the holder's thread needs for any message. */
static inline void settle(void)
{
    uint64_t until_ns = clock_now_ns() + QUIET_NS;
    while (clock_now_ns() < until_ns)
        turn();
}

static inline void listen_shm(struct scripted_lane *lane)
{
    static int serial;
    char name[FABRIC_ADDRESS_BYTES_MAX];
    snprintf(name, sizeof name, "@gradpool-holder-%d-%d", (int)getpid(), serial++);
    assert_int_equal(fabric_open("shm", NULL, &lane->shm), 0);
    assert_int_equal(fabric_listen(lane->shm, name, lane->shm_address), 0);
}

static inline void listen_ofi(struct scripted_lane *lane)
{
    assert_int_equal(fabric_open("ofi", NULL, &lane->ofi), 0);
    assert_int_equal(fabric_listen(lane->ofi, "127.0.0.1:0", lane->ofi_address), 0);
}

/* ---- start and end ---- */

static inline void note_ask(void *context)
{
    (void)context;
    atomic_fetch_add(&asks, 1);
}

static inline int start(void **state)
{
    const struct holder_options options = {.asks = note_ask};
    memset(lanes, 0, sizeof lanes);
    atomic_store(&asks, 0);
    for (int i = 1; i <= LANES; i++)
        listen_shm(&lanes[i]);
    assert_int_equal(holder_create(&options, &k), 0);
    return 0;
}

static inline int stop(void **state)
{
    holder_destroy(k);
    k = NULL;
    for (int i = 1; i <= LANES; i++) {
        fabric_close(lanes[i].shm);
        fabric_close(lanes[i].ofi);
    }
    return 0;
}

/* ---- messages to the holder, and its requests ---- */

static inline struct holder_copy copy(uint32_t piece, uint32_t epoch)
{
    return (struct holder_copy){.piece = piece, .epoch = epoch, .bytes = BYTES};
}

static inline void keep(uint32_t lane, struct holder_copy what)
{
    assert_int_equal(holder_keep(k, JOB, "job", lane, &what, 1), 0);
}

static inline void expect_ask(uint32_t lane, uint32_t failures)
{
    struct holder_ask ask;
    until(holder_next_ask(k, &ask));
    assert_int_equal(ask.job, JOB);
    assert_int_equal(ask.lane, lane);
    assert_int_equal(ask.failures, failures);
}

static inline void expect_no_ask(void)
{
    struct holder_ask ask;
    settle();
    assert_false(holder_next_ask(k, &ask));
    assert_int_equal(holder_timeout_ms(k), -1);
}

static inline struct record_connect ticket_for(uint32_t lane)
{
    static uint8_t number;
    return (struct record_connect){.magic = RECORD_MAGIC,
                                   .job = JOB,
                                   .rank = RECORD_HOLDER | AGGREGATOR,
                                   .lane = lane,
                                   .token = {++number}};
}

static inline void grant(uint32_t lane)
{
    const struct record_connect ticket = ticket_for(lane);
    holder_ticket(k, JOB, lane, 0, lanes[lane].shm_address, lanes[lane].ofi_address, &ticket);
}

static inline void refuse(uint32_t lane, int code)
{
    holder_ticket(k, JOB, lane, code, "", "", &(struct record_connect){0});
}

/* Requests a ticket and connects with it. Sends the lane no other message. */
static inline void connect_lane(uint32_t lane)
{
    int before = lanes[lane].opened;
    struct holder_ask ask;
    until(holder_next_ask(k, &ask));
    assert_int_equal(ask.lane, lane);
    grant(lane);
    until(lanes[lane].opened == before + 1);
}

static inline const struct record_backup *expect_told(uint32_t lane, int count)
{
    until(lanes[lane].told_count == count);
    return &lanes[lane].told[count - 1];
}

/* Assigns a copy of a piece to a lane. The copy is still empty. */
static inline const struct record_backup *keep_at(uint32_t lane, struct holder_copy what)
{
    keep(lane, what);
    connect_lane(lane);
    return expect_told(lane, 1);
}

static inline struct holder_use use(void)
{
    struct holder_use use;
    holder_measure(k, &use);
    return use;
}

/* ---- writes of a lane ---- */

static inline char *half_of(uint32_t lane, const struct record_backup *told, uint64_t half)
{
    char *at = fabric_map(lanes[lane].conn, told->region, told->offset[half],
                          BYTES + sizeof(struct record_stamp));
    assert_non_null(at);
    return at;
}

static inline void stamp_half(uint32_t lane, const struct record_backup *told, uint64_t half,
                              struct record_stamp stamp)
{
    memcpy(half_of(lane, told, half) + BYTES, &stamp, sizeof stamp);
}

static inline void write_state(uint32_t lane, const struct record_backup *told, uint64_t round)
{
    memset(half_of(lane, told, round & 1), (int)round, BYTES);
    stamp_half(lane, told, round & 1, (struct record_stamp){.round = round, .steps = 10 * round});
}

static inline bool holds(const struct record_backup *told, uint64_t round)
{
    return told->rounds[round & 1] == round && told->steps[round & 1] == 10 * round;
}

static inline bool holds_nothing(const struct record_backup *told)
{
    return told->rounds[0] + told->rounds[1] + told->steps[0] + told->steps[1] == 0;
}

static inline void let_go(uint32_t lane, uint32_t piece, uint32_t note)
{
    const struct record_backed told = {.kind = RECORD_BACKED, .piece = piece, .note = note};
    assert_int_equal(fabric_send(lanes[lane].conn, &told, sizeof told, NULL, 0), 0);
    fabric_flush(lanes[lane].shm);
}

/* Closes the connection. The holder detects the end. */
static inline void end_connection(uint32_t lane)
{
    int before = lanes[lane].closed;
    fabric_disconnect(lanes[lane].conn);
    fabric_flush(lanes[lane].shm);
    until(lanes[lane].closed == before + 1);
}

#endif
