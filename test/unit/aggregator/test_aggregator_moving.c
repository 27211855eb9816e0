/* Tests an aggregator's answers, and their order, when tasks move. The test sends requests like a
 * coordinator. Two lanes run on separate threads. While the test does not poll the worker, the
 * worker's round stays open. */
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/fabric/region.h"
#include "svc/reduce/reduce.h"
#include "svc/wire/record.h"
#include "test/unit/channel/channel_pair.h"

#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#define JOB 7
#define SOURCE 11
#define TARGET 12
#define ELEMENTS 2000
#define BYTES (ELEMENTS * sizeof(float))
#define DEADLINE_NS (60 * NS_PER_S)

static struct aggregator a;
static struct pair pair;
static struct channel *coordinator;
static struct fabric *worker;
static struct fabric_conn *conn;
static struct region region;
static uint64_t last_id;
static bool has_word;

static uint32_t one[] = {1}, both[] = {1, 2}, unknown[] = {99};

/* ---- requests to the aggregator ---- */

static void ask(envelope *request)
{
    request->id = ++last_id;
    assert_int_equal(serve_request(&a, request), 0);
}

static void expect_silence(void)
{
    envelope *message;
    assert_int_equal(channel_receive(coordinator, &message), -EAGAIN);
}

static envelope *take(uint64_t id)
{
    envelope *reply;
    assert_int_equal(channel_receive(coordinator, &reply), 0);
    assert_int_equal(reply->id, id);
    return reply;
}

static void expect_done(uint64_t id)
{
    envelope *reply = take(id);
    assert_int_equal(reply->body_case, GRADPOOL__WIRE__ENVELOPE__BODY_DONE);
    message_free(reply);
}

static void expect_refused_with(uint64_t id, int code, const char *words)
{
    envelope *reply = take(id);
    assert_int_equal(reply->body_case, GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE);
    assert_int_equal(reply->failure->code, code);
    assert_true(strlen(reply->failure->text) > 10);
    assert_non_null(strstr(reply->failure->text, words));
    message_free(reply);
}

static void expect_refused(uint64_t id, int code) { expect_refused_with(id, code, ""); }

static void expect_released(uint64_t id, size_t count, uint64_t round, bool has_state)
{
    envelope *reply = take(id);
    assert_int_equal(reply->body_case, GRADPOOL__WIRE__ENVELOPE__BODY_RELEASE_REPLY);
    assert_int_equal(reply->release_reply->n_rounds, count);
    assert_int_equal(reply->release_reply->n_state_bytes, count);
    assert_int_equal(reply->release_reply->rounds[0], round);
    assert_int_equal(reply->release_reply->state_bytes[0] > 0, has_state);
    message_free(reply);
}

#define ASK(Type, TYPE, member, ...)                                                         \
    do {                                                                                     \
        envelope request_ = GRADPOOL__WIRE__ENVELOPE__INIT;                                  \
        Gradpool__Wire__##Type body_ = {                                                     \
            PROTOBUF_C_MESSAGE_INIT(&gradpool__wire__##member##__descriptor), .job_id = JOB, \
            __VA_ARGS__};                                                                    \
        request_.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_##TYPE;                          \
        request_.member = &body_;                                                            \
        ask(&request_);                                                                      \
    } while (0)

static uint64_t release(uint32_t lane, uint32_t *pieces, size_t count)
{
    ASK(ReleaseRequest, RELEASE_REQUEST, release_request, .lane = lane, .pieces = pieces,
        .n_pieces = count);
    return last_id;
}

static uint64_t release_behind(uint32_t *pieces, size_t count)
{
    ASK(ReleaseRequest, RELEASE_REQUEST, release_request, .lane = SOURCE, .pieces = pieces,
        .n_pieces = count, .behind = true);
    return last_id;
}

static uint64_t thaw(uint32_t *pieces, size_t count)
{
    ASK(ThawRequest, THAW_REQUEST, thaw_request, .lane = SOURCE, .pieces = pieces,
        .n_pieces = count);
    return last_id;
}

static uint64_t drop(uint32_t *pieces, size_t count)
{
    ASK(DropRequest, DROP_REQUEST, drop_request, .lane = SOURCE, .pieces = pieces,
        .n_pieces = count);
    return last_id;
}

static uint64_t state_of(uint32_t piece, uint64_t offset)
{
    ASK(StateRequest, STATE_REQUEST, state_request, .lane = SOURCE, .piece = piece,
        .offset = offset);
    return last_id;
}

static uint64_t put_state(uint32_t piece, uint64_t offset, ProtobufCBinaryData data)
{
    ASK(StatePut, STATE_PUT, state_put, .lane = TARGET, .piece = piece, .offset = offset,
        .data = data);
    return last_id;
}

static uint64_t install(size_t count, uint64_t *rounds, size_t rounds_count)
{
    ASK(InstallRequest, INSTALL_REQUEST, install_request, .lane = TARGET, .pieces = both,
        .n_pieces = count, .rounds = rounds, .n_rounds = rounds_count);
    return last_id;
}

static uint64_t wait_for_copies(uint32_t *pieces, size_t count)
{
    ASK(CopiesWait, COPIES_WAIT, copies_wait, .lane = TARGET, .pieces = pieces, .n_pieces = count);
    return last_id;
}

static uint64_t drop_from_target(uint32_t *pieces, size_t count)
{
    ASK(DropRequest, DROP_REQUEST, drop_request, .lane = TARGET, .pieces = pieces,
        .n_pieces = count);
    return last_id;
}

/* ---- lanes and a worker ---- */

static void note_moving(void *context)
{
    eventfd_write(((struct aggregator *)context)->moving_fd, 1);
}

static void start_lane(uint32_t id)
{
    struct fabric_options fabric = {.payload_bytes_max = 4096};
    struct lane_thread_options options = {.ofi_address = "127.0.0.1:0",
                                          .fabric_options = &fabric,
                                          .moving_news = note_moving,
                                          .context = &a};
    struct err err = {0};
    assert_int_equal(lane_thread_start(&options, &a.lanes[a.lanes_count], &err), 0);
    a.lane_ids[a.lanes_count++] = id;
}

static int name_lane(struct lane *lane, void *context)
{
    lane_set_id(lane, *(uint32_t *)context);
    return 0;
}

struct placement {
    enum quorum quorum;
    bool is_recovering;
    /* number of the aggregator that stores copies of the first piece; 0: the piece has no update
     * rule */
    uint32_t holder;
};

static int place(struct lane *lane, void *context)
{
    const struct placement *p = context;
    struct lane_piece pieces[2];
    for (uint32_t i = 0; i < 2; i++)
        pieces[i] = (struct lane_piece){.id = i + 1,
                                        .dtype = REDUCE_F32,
                                        .elements = ELEMENTS,
                                        .tensor = "w",
                                        .terms = {.quorum = p->quorum}};
    if (p->holder > 0) {
        pieces[0].terms.rule = UPDATE_SGD;
        pieces[0].holder = p->holder;
    }
    return lane_place(lane, JOB, "job", 1, 1, p->is_recovering, pieces, 2);
}

static int grant(struct lane *lane, void *context) { return lane_grant(lane, context); }

static void poll_worker(void)
{
    struct fabric_event events[8];
    int count = fabric_poll(worker, events, 8);
    for (int i = 0; i < count; i++) {
        has_word |= events[i].kind == FABRIC_EVENT_WORD;
        if (events[i].kind == FABRIC_EVENT_OPEN)
            assert_int_equal(fabric_lend(conn, &region, 0), 0);
        if (events[i].kind == FABRIC_EVENT_MESSAGE)
            fabric_message_done(events[i].conn, events[i].data);
    }
}

static int count_regions(struct lane *lane, void *context)
{
    struct lane_use use;
    struct lane_job_use job = {0};
    lane_measure(lane, &use, &job, 1);
    return (int)job.registered_regions;
}

static int is_busy(struct lane *lane, void *context) { return !lane_is_quiet(lane); }

#define UNTIL(condition, step)                                \
    do {                                                      \
        uint64_t deadline_ns_ = clock_now_ns() + DEADLINE_NS; \
        while (!(condition)) {                                \
            step;                                             \
            if (clock_now_ns() > deadline_ns_)                \
                fail_msg("never: %s", #condition);            \
        }                                                     \
    } while (0)

static void connect_worker(void)
{
    struct record_connect ticket = {.magic = RECORD_MAGIC, .job = JOB, .lane = SOURCE};
    assert_int_equal(lane_thread_call(a.lanes[0], grant, &ticket), 0);
    assert_int_equal(fabric_open("ofi", NULL, &worker), 0);
    assert_int_equal(region_create(2 * BYTES, &region), 0);
    assert_int_equal(
        fabric_connect(worker, lane_thread_ofi(a.lanes[0]), &ticket, sizeof ticket, &a, &conn), 0);
    UNTIL(lane_thread_call(a.lanes[0], count_regions, NULL) == 1, poll_worker());
}

/* Starts a round of piece 1. The round stays open until the worker is polled again. */
static void begin_round_number(uint64_t round)
{
    struct record_ready ready = {
        .kind = RECORD_READY,
        .operation = RECORD_SUM,
        .dtype = REDUCE_F32,
        .outputs = 1,
        .piece = 1,
        .word = 5,
        .round = round,
        .epoch = 1,
        .input_bytes = BYTES,
        .loss = NAN,
        .output = {{.source = RECORD_SOURCE_RESULT, .count = 1, .offset = BYTES, .bytes = BYTES}},
        .weight = RECORD_WEIGHT,
        .gradient = RECORD_GRADIENT};
    assert_int_equal(fabric_send(conn, &ready, sizeof ready, NULL, 0), 0);
    fabric_flush(worker);
    UNTIL(lane_thread_call(a.lanes[0], is_busy, NULL) == 1, (void)0);
}

static void begin_round(void) { begin_round_number(1); }

static void end_round(void)
{
    struct pollfd rest = {.fd = a.moving_fd, .events = POLLIN};
    eventfd_t rests;
    UNTIL(poll(&rest, 1, 0) == 1, poll_worker());
    assert_int_equal(eventfd_read(a.moving_fd, &rests), 0);
}

static void start_with(enum quorum quorum, uint32_t holder)
{
    struct placement first = {.quorum = quorum};
    struct placement next = {.quorum = quorum, .is_recovering = true, .holder = holder};
    a = (struct aggregator){.moving_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pair = pair_open();
    a.channel = pair.channel;
    assert_int_equal(channel_create(dup(pair.peer), &coordinator), 0);
    start_lane(SOURCE);
    start_lane(TARGET);
    for (int i = 0; i < 2; i++)
        lane_thread_call(a.lanes[i], name_lane, &a.lane_ids[i]);
    assert_int_equal(lane_thread_call(a.lanes[0], place, &first), 0);
    assert_int_equal(lane_thread_call(a.lanes[1], place, &next), 0);
    connect_worker();
}

static void start(enum quorum quorum) { start_with(quorum, 0); }

static int stop(void **state)
{
    fabric_close(worker);
    region_destroy(&region);
    aggregator_end_lanes(&a);
    channel_destroy(coordinator);
    pair_close(&pair);
    close(a.moving_fd);
    return 0;
}

/* ---- when a release is answered ---- */

static void a_release_is_answered_when_its_rounds_have_ended(void **state)
{
    start(QUORUM_ALL);
    begin_round();
    uint64_t first = release(SOURCE, both, 2);
    expect_silence();
    assert_int_equal(moving_rested(&a), 0); /* the piece belongs to another job */
    uint64_t second = release(SOURCE, both, 2);
    expect_silence();
    end_round();
    assert_int_equal(moving_rested(&a), 0);
    expect_released(second, 2, 1, false);
    expect_released(first, 2, 1, false);
    expect_released(release(SOURCE, one, 1), 1, 1, false); /* answered at once */
    expect_silence();
}

static void a_thaw_ends_a_release_that_waits(void **state)
{
    start(QUORUM_ALL);
    begin_round();
    uint64_t waiting = release(SOURCE, both, 2);
    expect_done(thaw(both + 1, 1)); /* the piece was already idle */
    expect_refused(waiting, -ECANCELED);
    expect_done(thaw(both, 2));
    expect_done(thaw(unknown, 1));
    expect_silence();
}

static void a_drop_ends_a_release_that_waits(void **state)
{
    start(QUORUM_ALL);
    begin_round();
    uint64_t waiting = release(SOURCE, both, 2);
    expect_done(drop(one, 1));
    expect_refused(waiting, -ECANCELED);
    waiting = release(SOURCE, both + 1, 1);
    expect_released(waiting, 1, 0, false);
    expect_done(drop(NULL, 0));
    expect_refused(release(SOURCE, both, 1), -ENOENT);
}

static void a_job_that_fails_ends_its_releases(void **state)
{
    start(QUORUM_ALL);
    begin_round();
    uint64_t waiting = release(SOURCE, both, 2);
    fabric_close(worker);
    worker = NULL;
    UNTIL(moving_waits(&a) == 0, assert_int_equal(moving_recheck(&a), 0));
    expect_refused(waiting, -ECONNABORTED);
}

static void no_request_is_answered_after_the_coordinator_was_away(void **state)
{
    Gradpool__Wire__PieceHeld **rows;
    size_t count;
    start(QUORUM_ALL);
    begin_round();
    (void)release(SOURCE, one, 1);
    moving_abandon(&a);
    end_round();
    assert_int_equal(moving_rested(&a), 0);
    expect_silence();
    assert_int_equal(serve_held(&a, &rows, &count), 0);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(rows[i]->is_frozen, rows[i]->lane == SOURCE && rows[i]->piece == 1);
    serve_held_free(rows, count);
}

/* The release waits for the end of the next round. The lane expects that this round takes as long
 * as the last round. */
static void a_release_that_waits_ends_with_the_lanes(void **state)
{
    start(QUORUM_ALL);
    begin_round();
    UNTIL(lane_thread_call(a.lanes[0], is_busy, NULL) == 0, poll_worker());
    nanosleep(&(struct timespec){0, 500 * NS_PER_MS}, NULL);
    begin_round_number(2);
    (void)release_behind(one, 1);
    (void)release_behind(both, 2);
    assert_int_equal(moving_waits(&a), 2);
    aggregator_end_lanes(&a);
    assert_int_equal(moving_waits(&a), 0);
    assert_int_equal(moving_rested(&a), 0);
    expect_silence();
    expect_refused(release(SOURCE, one, 1), -ENOENT);
    assert_int_equal(serve_connections(&a), 0);
}

/* ---- moved state ---- */

static void state_and_rounds_go_from_lane_to_lane(void **state)
{
    uint64_t rounds[] = {1, 0};
    start(QUORUM_ANY);
    begin_round();
    uint64_t waiting = release(SOURCE, both, 2);
    end_round();
    assert_int_equal(moving_rested(&a), 0);
    expect_released(waiting, 2, 1, true);
    for (uint32_t piece = 1; piece <= 2; piece++) {
        envelope *reply = take(state_of(piece, 0));
        assert_int_equal(reply->body_case, GRADPOOL__WIRE__ENVELOPE__BODY_STATE_REPLY);
        assert_int_equal(reply->state_reply->data.len > BYTES, piece == 1);
        expect_done(put_state(piece, 0, reply->state_reply->data));
        expect_refused(put_state(piece, 0, reply->state_reply->data), -EINVAL);
        message_free(reply);
    }
    expect_done(install(2, rounds, 2));
    expect_refused(install(2, rounds, 2), -EBUSY);
}

static void requests_without_sense_get_a_text(void **state)
{
    uint64_t rounds[] = {1, 1};
    uint8_t noise[9000] = {1, 2, 3};
    start(QUORUM_ANY);
    expect_refused(release(SOURCE, NULL, 0), -EINVAL);
    expect_refused(release(SOURCE, unknown, 1), -ENOENT);
    expect_refused(release(99, one, 1), -ENOENT);
    expect_refused(state_of(1, 0), -EBUSY);
    expect_refused(state_of(99, 0), -ENOENT);
    expect_refused(put_state(1, 0, (ProtobufCBinaryData){sizeof noise, noise}), -EBADMSG);
    expect_refused(put_state(1, 0, (ProtobufCBinaryData){0, NULL}), -EBADMSG);
    expect_refused(put_state(99, 0, (ProtobufCBinaryData){0, NULL}), -ENOENT);
    expect_refused(install(2, rounds, 1), -EINVAL);
    expect_refused(install(2, rounds, 2), -EBADMSG);
    expect_released(release(SOURCE, one, 1), 1, 0, true);
    expect_refused(state_of(1, UINT64_MAX), -EINVAL);
}

/* ---- when copies are waited for ---- */

static void copies_of_pieces_without_a_holder_are_not_awaited(void **state)
{
    start(QUORUM_ALL);
    expect_done(wait_for_copies(both, 2));
    expect_done(wait_for_copies(NULL, 0));
    expect_refused_with(wait_for_copies(unknown, 1), -ENOENT,
                        "lane 12, job 7: this aggregator lacks a piece to be copied");
    expect_silence();
}

static void a_drop_ends_the_wait_for_copies(void **state)
{
    start_with(QUORUM_ALL, 9);
    uint64_t waiting = wait_for_copies(both, 2);
    expect_silence();
    expect_done(wait_for_copies(both + 1, 1));
    assert_int_equal(keeping_copied(&a), 0);
    expect_silence();
    expect_done(drop_from_target(one, 1));
    expect_refused(waiting, -ENOENT);
}

static void no_message_about_copies_is_sent_without_a_coordinator(void **state)
{
    start_with(QUORUM_ALL, 9);
    wait_for_copies(one, 1);
    keeping_abandon(&a);
    expect_done(drop_from_target(one, 1));
    expect_silence();
}

/* ---- when workers are waited for ---- */

static bool is_answered(void)
{
    struct pollfd fd = {.fd = channel_fd(coordinator), .events = POLLIN};
    assert_int_equal(ahead_look(&a), 0);
    return poll(&fd, 1, ahead_timeout_ms(&a)) == 1;
}

static void workers_that_are_connected_are_not_waited_for(void **state)
{
    start(QUORUM_ALL);
    assert_int_equal(ahead_await(&a, 7, SOURCE, JOB), 0);
    expect_silence();
    UNTIL(is_answered(), (void)0);
    expect_done(7);
    assert_int_equal(ahead_timeout_ms(&a), -1);
}

/* no worker connects to the target */
static void workers_that_do_not_come_hold_nothing_up(void **state)
{
    start(QUORUM_ALL);
    uint64_t began_ns = clock_now_ns();
    assert_int_equal(ahead_await(&a, 7, TARGET, JOB), 0);
    UNTIL(is_answered(), (void)0);
    assert_true(clock_now_ns() - began_ns >= 3 * NS_PER_S);
    expect_done(7);
    assert_int_equal(ahead_await(&a, 8, TARGET, JOB + 1), 0); /* job unknown to the aggregator */
    UNTIL(is_answered(), (void)0);
    expect_refused(8, -ENOENT);
}

static void no_message_about_workers_is_sent_without_a_coordinator(void **state)
{
    start(QUORUM_ALL);
    assert_int_equal(ahead_await(&a, 7, TARGET, JOB), 0);
    ahead_abandon(&a);
    assert_int_equal(ahead_timeout_ms(&a), -1);
    assert_int_equal(ahead_look(&a), 0);
    expect_silence();
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_release_is_answered_when_its_rounds_have_ended),
        CASE(a_thaw_ends_a_release_that_waits),
        CASE(a_drop_ends_a_release_that_waits),
        CASE(a_job_that_fails_ends_its_releases),
        CASE(no_request_is_answered_after_the_coordinator_was_away),
        CASE(a_release_that_waits_ends_with_the_lanes),
        CASE(state_and_rounds_go_from_lane_to_lane),
        CASE(requests_without_sense_get_a_text),
        CASE(copies_of_pieces_without_a_holder_are_not_awaited),
        CASE(a_drop_ends_the_wait_for_copies),
        CASE(no_message_about_copies_is_sent_without_a_coordinator),
        CASE(workers_that_are_connected_are_not_waited_for),
        CASE(workers_that_do_not_come_hold_nothing_up),
        CASE(no_message_about_workers_is_sent_without_a_coordinator),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
