/* Tests fabric_mem as a network. Runs the cases of every fabric, and then cases with virtual time:
 * delays, deaths and refusals. With the same seed a case runs in exactly the same way. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/base/text.h"
#include "test/fabric_mem/fabric_mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DELAY_NS 1000
#define PAYLOAD_BYTES 400

static struct mem_network *network;

static int open_mem(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return mem_fabric_open(network, options, ret_fabric);
}

static void open_network(uint64_t seed, uint64_t delay_max_ns, uint32_t queue_depth)
{
    struct mem_network_options options = {.seed = seed,
                                          .delay_min_ns = DELAY_NS,
                                          .delay_max_ns = delay_max_ns,
                                          .queue_depth = queue_depth};
    assert_int_equal(mem_network_create(&options, &network), 0);
}

static void begin(void) { open_network(1, 5 * DELAY_NS, 32); }
static void end(void) { mem_network_destroy(network); }

static void name_address(char *ret_address)
{
    static int count;
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "lane %d", count++);
}

static void step(uint64_t ns) { mem_network_advance(network, mem_network_now_ns(network) + ns); }
static void advance(void) { step(DELAY_NS); }

/* --- a lane and a worker --------------------------------------------------------------------- */

struct world {
    struct fabric *lane, *worker;
    struct fabric_conn *at_lane, *at_worker;
    struct region region;
    char memory[256];
};

/* Returns the next event. Advances the clock only if no event is ready. Returns the kind NONE if no
 * event will follow. */
static struct fabric_event next_event(struct fabric *f)
{
    struct fabric_event event = {0};
    while (fabric_poll(f, &event, 1) == 0) {
        uint64_t next_ns = mem_network_next_ns(network);
        if (next_ns == UINT64_MAX)
            return (struct fabric_event){0};
        mem_network_advance(network, next_ns);
    }
    return event;
}

static struct fabric_event expect(struct fabric *f, enum fabric_event_kind kind)
{
    struct fabric_event event = next_event(f);
    if (event.kind != kind)
        fail_msg("expected event %d, got %d (error %d)", kind, event.kind, event.error);
    return event;
}

static void expect_no_event(struct fabric *f)
{
    struct fabric_event event;
    assert_int_equal(fabric_poll(f, &event, 1), 0);
}

static void world_open(struct world *w, uint64_t seed, uint64_t delay_max_ns)
{
    static const struct fabric_options options = {.payload_bytes_max = PAYLOAD_BYTES};
    char address[FABRIC_ADDRESS_BYTES_MAX];
    memset(w, 0, sizeof *w);
    open_network(seed, delay_max_ns, 8);
    assert_int_equal(mem_fabric_open(network, &options, &w->lane), 0);
    assert_int_equal(mem_fabric_open(network, &options, &w->worker), 0);
    assert_int_equal(fabric_listen(w->lane, "lane", address), 0);
    assert_int_equal(fabric_connect(w->worker, "lane", "t", 1, w, &w->at_worker), 0);
    w->at_lane = expect(w->lane, FABRIC_EVENT_REQUEST).conn;
    assert_int_equal(fabric_accept(w->at_lane, w), 0);
    expect(w->lane, FABRIC_EVENT_OPEN);
    expect(w->worker, FABRIC_EVENT_OPEN);
    region_wrap(w->memory, sizeof w->memory, &w->region);
    assert_int_equal(fabric_lend(w->at_worker, &w->region, 0), 0);
    expect(w->lane, FABRIC_EVENT_REGION);
}

static void world_close(struct world *w)
{
    fabric_close(w->lane);
    fabric_close(w->worker);
    mem_network_destroy(network);
}

static void say(struct fabric_conn *c, const char *text)
{
    assert_int_equal(fabric_send(c, text, strlen(text) + 1, NULL, 0), 0);
}

/* --- time ------------------------------------------------------------------------------------ */

static void nothing_arrives_before_its_time(void **state)
{
    struct world w;
    char local[8];
    world_open(&w, 1, DELAY_NS);
    say(w.at_worker, "hello");
    step(DELAY_NS - 1);
    expect_no_event(w.lane);
    assert_int_equal(mem_network_next_ns(network), mem_network_now_ns(network) + 1);
    step(1);
    struct fabric_event event;
    assert_int_equal(fabric_poll(w.lane, &event, 1), 1);
    fabric_message_done(w.at_lane, event.data);

    assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 8, NULL), 0);
    step(DELAY_NS);
    expect_no_event(w.worker); /* a read of its memory causes no event at the worker */
    step(DELAY_NS - 1);
    expect_no_event(w.lane);
    step(1);
    assert_int_equal(fabric_poll(w.lane, &event, 1), 1);
    assert_int_equal(event.kind, FABRIC_EVENT_READ);
    assert_true(mem_network_next_ns(network) == UINT64_MAX);
    world_close(&w);
}

static void the_target_of_a_read_is_undefined_until_the_read_ends(void **state)
{
    struct world w;
    char local[4] = "old";
    world_open(&w, 1, DELAY_NS);
    memcpy(w.memory, "new", 4);
    assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 4, NULL), 0);
    assert_memory_equal(local, "\xa5\xa5\xa5\xa5", 4);
    step(DELAY_NS);
    expect_no_event(w.worker);
    expect(w.lane, FABRIC_EVENT_READ);
    assert_string_equal(local, "new");
    world_close(&w);
}

static void packets_stay_in_order_under_random_delays(void **state)
{
    struct world w;
    world_open(&w, 3, 1000 * DELAY_NS);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(fabric_send(w.at_worker, &i, sizeof i, NULL, 0), 0);
        if (i % 8 < 7)
            continue;
        for (uint32_t j = i - 7; j <= i; j++) {
            struct fabric_event event = expect(w.lane, FABRIC_EVENT_MESSAGE);
            assert_memory_equal(event.data, &j, sizeof j);
            fabric_message_done(w.at_lane, event.data);
        }
    }
    world_close(&w);
}

/* Performs random operations on both sides. Writes every event and its time as text. */
static void write_transcript(uint64_t seed, char *text, size_t text_bytes)
{
    struct world w;
    char local[64];
    bool is_open = true;
    /* a fixed seed: the operations are the same in every transcript, while the network's seed
     * differs */
    unsigned random = 99;
    world_open(&w, seed, 20 * DELAY_NS);
    text[0] = '\0';
    for (int i = 0; i < 300; i++) {
        struct fabric_event event;
        int what = is_open ? rand_r(&random) % 4 : 3;
        if (what == 0)
            (void)fabric_send(w.at_worker, "announce", 9, NULL, 0);
        else if (what == 1)
            (void)fabric_read(w.at_lane, 0, 8, local, 8, local);
        else if (what == 2)
            (void)fabric_notify(w.at_lane, (uint32_t)i, NULL);
        step(2 * DELAY_NS);
        for (int side = 0; side < 2; side++) {
            struct fabric *f = side ? w.worker : w.lane;
            while (fabric_poll(f, &event, 1) == 1) {
                text_append(text, text_bytes, "%d %d %u;", i, event.kind, event.word);
                if (event.kind == FABRIC_EVENT_MESSAGE)
                    fabric_message_done(event.conn, event.data);
                is_open &= event.kind != FABRIC_EVENT_CLOSED;
            }
        }
        if (i == 250)
            mem_fabric_kill(w.worker);
    }
    world_close(&w);
}

static void one_seed_gives_one_transcript(void **state)
{
    enum { BYTES = 1 << 16 };
    char *texts = malloc(3 * BYTES);
    assert_non_null(texts);
    write_transcript(7, texts, BYTES);
    write_transcript(7, texts + BYTES, BYTES);
    write_transcript(8, texts + 2 * BYTES, BYTES);
    assert_true(strlen(texts) > 1000 && strlen(texts) < BYTES - 10);
    assert_string_equal(texts, texts + BYTES);
    assert_string_not_equal(texts, texts + 2 * BYTES);
    free(texts);
}

/* --- queues ---------------------------------------------------------------------------------- */

static void a_third_message_waits_with_all_messages_behind_it(void **state)
{
    struct world w;
    const void *held[2];
    world_open(&w, 1, DELAY_NS);
    assert_int_equal(fabric_messages_held_max(w.lane), 1);
    for (int i = 0; i < 3; i++)
        say(w.at_lane, "commit");
    assert_int_equal(fabric_notify(w.at_lane, 4, NULL), 0);
    for (int i = 0; i < 2; i++)
        held[i] = expect(w.worker, FABRIC_EVENT_MESSAGE).data;
    step(100 * DELAY_NS);
    expect_no_event(w.worker);
    fabric_message_done(w.at_worker, held[0]);
    held[0] = expect(w.worker, FABRIC_EVENT_MESSAGE).data;
    assert_int_equal(expect(w.worker, FABRIC_EVENT_WORD).word, 4);
    fabric_message_done(w.at_worker, held[1]);
    fabric_message_done(w.at_worker, held[0]);
    world_close(&w);
}

static void a_full_queue_returns_an_error_and_one_room_event_follows(void **state)
{
    struct world w;
    char local[8];
    world_open(&w, 1, DELAY_NS);
    for (int i = 0; i < 8; i++)
        assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 8, NULL), 0);
    assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 8, NULL), -EAGAIN);
    assert_int_equal(fabric_send(w.at_lane, "x", 1, NULL, 0), -EAGAIN);
    assert_int_equal(fabric_notify(w.at_lane, 1, NULL), -EAGAIN);
    assert_int_equal(mem_fabric_counters(w.lane).refused, 3);
    step(DELAY_NS);
    expect_no_event(w.worker);
    for (int i = 0; i < 8; i++)
        expect(w.lane, FABRIC_EVENT_READ);
    expect(w.lane, FABRIC_EVENT_ROOM);
    expect_no_event(w.lane);
    assert_int_equal(fabric_notify(w.at_lane, 1, NULL), 0);
    world_close(&w);
}

static void packets_are_counted(void **state)
{
    struct world w;
    char local[16];
    world_open(&w, 1, DELAY_NS);
    assert_int_equal(fabric_send(w.at_worker, "head", 4, w.memory, 100), 0);
    assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 16, NULL), 0);
    assert_int_equal(fabric_write(w.at_lane, 0, 32, local, 8, NULL), 0);
    assert_int_equal(fabric_write_word(w.at_lane, 0, 32, local, 4, 1, NULL), 0);
    assert_int_equal(fabric_notify(w.at_lane, 2, NULL), 0);
    struct mem_counters lane = mem_fabric_counters(w.lane), worker = mem_fabric_counters(w.worker);
    assert_int_equal(worker.posts, 1);
    assert_int_equal(worker.messages, 1);
    assert_int_equal(worker.message_bytes, 104);
    assert_int_equal(lane.posts, 4);
    assert_int_equal(lane.reads, 1);
    assert_int_equal(lane.read_bytes, 16);
    assert_int_equal(lane.writes, 2);
    assert_int_equal(lane.written_bytes, 12);
    assert_int_equal(lane.words, 2);
    world_close(&w);
}

static void bytes_that_change_before_written_are_noticed(void **state)
{
    for (int changes = 0; changes < 2; changes++) {
        struct world w;
        char local[] = "result";
        world_open(&w, 1, DELAY_NS);
        assert_int_equal(fabric_write(w.at_lane, 0, 0, local, sizeof local, NULL), 0);
        if (changes)
            local[3] = '!';
        step(DELAY_NS);
        expect_no_event(w.worker);
        expect(w.lane, FABRIC_EVENT_WRITTEN);
        assert_string_equal(w.memory, "result");
        assert_int_equal(mem_fabric_counters(w.lane).changed_early, changes);
        world_close(&w);
    }
}

/* --- accidents ------------------------------------------------------------------------------- */

static void a_stopped_worker_serves_nothing_until_it_goes_on(void **state)
{
    struct world w;
    char local[8];
    world_open(&w, 1, DELAY_NS);
    mem_fabric_stop(w.worker, true);
    memcpy(w.memory, "late", 5);
    assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 5, NULL), 0);
    for (int i = 0; i < 100; i++) {
        step(DELAY_NS);
        expect_no_event(w.worker);
        expect_no_event(w.lane);
    }
    mem_fabric_stop(w.worker, false);
    expect_no_event(w.worker);
    expect(w.lane, FABRIC_EVENT_READ);
    assert_string_equal(local, "late");
    world_close(&w);
}

/* A killed worker has sent eight messages. The lane receives the first few of these messages,
 * without a gap. Over many seeds every number of messages occurs. */
static void a_kill_keeps_some_first_part_of_the_sent_bytes(void **state)
{
    bool seen[9] = {0};
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct world w;
        struct fabric_event event;
        uint32_t got = 0;
        world_open(&w, seed, 5 * DELAY_NS);
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(fabric_send(w.at_worker, &i, sizeof i, NULL, 0), 0);
        mem_fabric_kill(w.worker);
        expect_no_event(w.lane);
        while ((event = next_event(w.lane)).kind == FABRIC_EVENT_MESSAGE) {
            assert_memory_equal(event.data, &got, sizeof got);
            fabric_message_done(w.at_lane, event.data);
            got++;
        }
        assert_int_equal(event.kind, FABRIC_EVENT_CLOSED);
        assert_int_equal(event.error, -ECONNRESET);
        assert_int_equal(next_event(w.lane).kind, FABRIC_EVENT_NONE);
        seen[got] = true;
        world_close(&w);
    }
    for (int i = 0; i <= 8; i++)
        assert_true(seen[i]);
}

/* A killed lane's write arrives completely with its word, partly without the word, or not at
 * all. */
static void a_write_of_a_killed_lane_lands_whole_in_part_or_not(void **state)
{
    int whole = 0, part = 0, none = 0;
    char local[64];
    memset(local, 'r', sizeof local);
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct world w;
        struct fabric_event event;
        size_t landed = 0;
        world_open(&w, seed, 5 * DELAY_NS);
        assert_int_equal(fabric_write_word(w.at_lane, 0, 16, local, sizeof local, 5, NULL), 0);
        mem_fabric_kill(w.lane);
        event = next_event(w.worker);
        while (landed < sizeof local && w.memory[16 + landed] == 'r')
            landed++;
        assert_int_equal(w.memory[16 + landed], 0);
        assert_int_equal(event.kind == FABRIC_EVENT_WORD, landed == sizeof local);
        if (event.kind == FABRIC_EVENT_WORD)
            event = next_event(w.worker);
        assert_int_equal(event.kind, FABRIC_EVENT_CLOSED);
        assert_int_equal(event.error, -ECONNRESET);
        whole += landed == sizeof local;
        none += landed == 0;
        part += landed > 0 && landed < sizeof local;
        world_close(&w);
    }
    assert_true(whole > 30 && part > 30 && none > 0);
}

static void check_all_end(struct fabric *lane, int posted, int error)
{
    for (int i = 0; i < posted; i++) {
        struct fabric_event event = next_event(lane);
        assert_true(event.kind == FABRIC_EVENT_READ || event.kind == FABRIC_EVENT_WRITTEN);
        assert_int_equal(event.error, -ECONNRESET);
    }
    assert_int_equal(expect(lane, FABRIC_EVENT_CLOSED).error, error);
    expect_no_event(lane);
}

static void every_posted_operation_ends_before_the_connection_does(void **state)
{
    for (int way = 0; way < 4; way++) {
        struct world w;
        char local[16] = "";
        world_open(&w, 1, DELAY_NS);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 8, NULL), 0);
            assert_int_equal(fabric_write(w.at_lane, 0, 8, local + 8, 8, NULL), 0);
        }
        if (way == 0)
            mem_fabric_kill(w.worker);
        if (way == 1)
            fabric_disconnect(w.at_worker);
        if (way == 2)
            fabric_disconnect(w.at_lane);
        if (way == 3)
            fabric_close(w.worker);
        check_all_end(w.lane, 4, way == 0 ? -ECONNRESET : 0);
        if (way == 3)
            w.worker = NULL;
        world_close(&w);
    }
}

static void a_killed_fabric_neither_receives_nor_sends(void **state)
{
    struct world w;
    struct fabric_conn *c;
    char address[FABRIC_ADDRESS_BYTES_MAX];
    world_open(&w, 1, DELAY_NS);
    say(w.at_worker, "never heard");
    assert_int_equal(fabric_connect(w.worker, "lane", "t", 1, NULL, &c), 0);
    mem_fabric_kill(w.lane);
    expect_no_event(w.lane);
    assert_int_equal(fabric_send(w.at_lane, "x", 1, NULL, 0), -ECONNRESET);
    assert_int_equal(fabric_connect(w.lane, "lane", "t", 1, NULL, &c), -ECONNRESET);
    assert_int_equal(fabric_connect(w.worker, "lane", "t", 1, NULL, &c), -ECONNREFUSED);
    /* the address can be used again */
    assert_int_equal(fabric_listen(w.worker, "lane", address), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(expect(w.worker, FABRIC_EVENT_CLOSED).error, -ECONNRESET);
    step(100 * DELAY_NS);
    expect_no_event(w.worker);
    expect_no_event(w.lane);
    world_close(&w);
}

static void withdrawn_memory_is_not_accessed(void **state)
{
    struct world w;
    char local[8] = "late";
    world_open(&w, 1, DELAY_NS);
    assert_int_equal(fabric_read(w.at_lane, 0, 0, local, 8, NULL), 0);
    assert_int_equal(fabric_write_word(w.at_lane, 0, 0, local, 8, 1, NULL), 0);
    fabric_withdraw(w.at_worker, 0);
    step(DELAY_NS);
    expect_no_event(w.worker); /* no word arrives for bytes that did not arrive */
    assert_int_equal(expect(w.lane, FABRIC_EVENT_READ).error, -EFAULT);
    assert_int_equal(expect(w.lane, FABRIC_EVENT_WRITTEN).error, -EFAULT);
    assert_int_equal(w.memory[0], 0);
    assert_int_equal(fabric_region_bytes(w.at_lane, 0), 0);
    world_close(&w);
}

/* --- the n-th post fails --------------------------------------------------------------------- */

struct post {
    struct world *world;
    char local[8];
    int number;
};

static int post_one(struct post *p)
{
    struct world *w = p->world;
    switch (p->number) {
    case 0: return fabric_send(w->at_lane, "hello", 6, NULL, 0);
    case 1: return fabric_read(w->at_lane, 0, 0, p->local, 8, NULL);
    case 2: return fabric_write(w->at_lane, 0, 16, p->local, 8, NULL);
    case 3: return fabric_write_word(w->at_lane, 0, 24, p->local, 8, 7, NULL);
    default: return fabric_notify(w->at_lane, 8, NULL);
    }
}
#define POSTS 5

/* Performs one round of operations. A post that returns -EAGAIN is repeated after the event ROOM.
 * Returns the first other error. */
static int work(struct world *w, int *ret_rooms)
{
    struct post p = {.world = w};
    for (; p.number < POSTS; p.number++) {
        int r;
        while ((r = post_one(&p)) == -EAGAIN) {
            expect(w->lane, FABRIC_EVENT_ROOM);
            ++*ret_rooms;
        }
        if (r < 0)
            return r;
        struct fabric_event at_worker = {0};
        step(DELAY_NS);
        if (fabric_poll(w->worker, &at_worker, 1) == 1 && at_worker.kind == FABRIC_EVENT_MESSAGE)
            fabric_message_done(w->at_worker, at_worker.data);
        if (p.number > 0)
            assert_int_equal(next_event(w->lane).error, 0);
    }
    return 0;
}

static void a_refused_post_changes_nothing_but_the_time(void **state)
{
    for (uint64_t n = 1; n <= POSTS + 1; n++) {
        struct world w;
        int rooms = 0;
        world_open(&w, 1, DELAY_NS);
        memcpy(w.memory, "input", 6);
        mem_fabric_fail_post(w.lane, n, MEM_FAULT_AGAIN);
        assert_int_equal(work(&w, &rooms), 0);
        assert_int_equal(rooms, n <= POSTS);
        assert_string_equal(w.memory + 16, "input");
        assert_string_equal(w.memory + 24, "input");
        world_close(&w);
    }
}

static void a_post_that_kills_the_connection_ends_both_sides(void **state)
{
    for (uint64_t n = 1; n <= POSTS; n++) {
        struct world w;
        int rooms = 0;
        world_open(&w, n, DELAY_NS);
        mem_fabric_fail_post(w.lane, n, MEM_FAULT_RESET);
        assert_int_equal(work(&w, &rooms), -ECONNRESET);
        assert_int_equal(expect(w.lane, FABRIC_EVENT_CLOSED).error, -ECONNRESET);
        expect_no_event(w.worker);
        assert_int_equal(expect(w.worker, FABRIC_EVENT_CLOSED).error, -ECONNRESET);
        world_close(&w);
    }
}

static void a_network_with_delays_that_make_no_sense_is_refused(void **state)
{
    struct mem_network_options options = {.delay_min_ns = 2, .delay_max_ns = 1};
    struct mem_network *none = NULL;
    assert_int_equal(mem_network_create(&options, &none), -EINVAL);
    assert_null(none);
    mem_network_destroy(NULL);
}

static void a_name_is_taken_once(void **state)
{
    struct rig *rig = *state;
    char address[FABRIC_ADDRESS_BYTES_MAX], longest[FABRIC_ADDRESS_BYTES_MAX + 1];
    struct fabric *f = rig->workers[0].fabric;
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(fabric_listen(f, rig->address, address), -EADDRINUSE);
    assert_int_equal(fabric_listen(f, "", address), -EINVAL);
    assert_int_equal(fabric_listen(f, longest, address), -EINVAL);
    assert_int_equal(fabric_listen(f, "another", address), 0);
    assert_string_equal(address, "another");
}

int main(void)
{
    static const struct fabric_factory remote = {
        .name = "fabric_mem",
        .begin = begin,
        .end = end,
        .open = open_mem,
        .name_address = name_address,
        .dead_address = "nobody",
        .advance = advance,
        .payload_bytes_max = PAYLOAD_BYTES,
    };
    const struct CMUnitTest own[] = {
        cmocka_unit_test(nothing_arrives_before_its_time),
        cmocka_unit_test(the_target_of_a_read_is_undefined_until_the_read_ends),
        cmocka_unit_test(packets_stay_in_order_under_random_delays),
        cmocka_unit_test(one_seed_gives_one_transcript),
        cmocka_unit_test(a_third_message_waits_with_all_messages_behind_it),
        cmocka_unit_test(a_full_queue_returns_an_error_and_one_room_event_follows),
        cmocka_unit_test(packets_are_counted),
        cmocka_unit_test(bytes_that_change_before_written_are_noticed),
        cmocka_unit_test(a_stopped_worker_serves_nothing_until_it_goes_on),
        cmocka_unit_test(a_kill_keeps_some_first_part_of_the_sent_bytes),
        cmocka_unit_test(a_write_of_a_killed_lane_lands_whole_in_part_or_not),
        cmocka_unit_test(every_posted_operation_ends_before_the_connection_does),
        cmocka_unit_test(a_killed_fabric_neither_receives_nor_sends),
        cmocka_unit_test(withdrawn_memory_is_not_accessed),
        cmocka_unit_test(a_refused_post_changes_nothing_but_the_time),
        cmocka_unit_test(a_post_that_kills_the_connection_ends_both_sides),
        cmocka_unit_test(a_network_with_delays_that_make_no_sense_is_refused),
        FABRIC_CASE(a_name_is_taken_once),
    };
    return fabric_suite_run(&remote, own, sizeof own / sizeof own[0]);
}
