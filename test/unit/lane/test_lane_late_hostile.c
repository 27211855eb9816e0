/* Tests answers to late ranks while peers send invalid records, are slow, or leave (A16). Also
 * tests random orders of events. Ranks 0 and 2 take part in all rounds. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "svc/lane/move/moved_state.h"
#include "svc/lane/move/release.h"
#include "svc/lane/types.h"
#include "svc/lane/worker/serving.h"
#include "svc/reduce/reduce.h"
#include "svc/wire/round_set.h"
#include "test/lib/kept_log.h"
#include "test/unit/lane/lane_rig.h"
#include "test/unit/skip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK (65536 / TRANSFER_SHORTER)
#define PIECE 2
#define OTHER 3
#define RANKS 4
#define AGAIN RANKS
#define SEEDS 3
#define EVENTS 3000
#define TOO_LONG_NS (101 * NS_PER_MS)

static const struct lane_terms first_two = {.quorum = QUORUM_FIRST, .bound = 2};
static const struct lane_terms chosen = {.quorum = QUORUM_CHOSEN};
static const char *kind;
static struct rig rig;
static uint64_t elements;
static uint64_t rounds;

static bool is_mapped(void) { return strcmp(kind, "shm") == 0; }

static void start_with(struct lane_terms terms, uint64_t count, uint32_t pieces)
{
    rounds = 0;
    elements = count;
    rig_start(&rig, kind);
    for (uint32_t i = 0; i < pieces; i++)
        rig_place_piece(&rig, RANKS,
                        (struct lane_piece){.id = PIECE + i, .elements = count, .terms = terms},
                        false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.clock_ns = clock_now_ns();
}

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void say(uint32_t i, uint32_t piece, uint64_t round, uint8_t standing)
{
    rig_say(&rig, i,
            (struct say){.piece = piece,
                         .word = piece * 100000 + (uint32_t)round,
                         .round = round,
                         .elements = elements,
                         .operation = RECORD_MEAN,
                         .standing = standing});
}

static void push(uint32_t i, uint32_t piece, uint64_t round, float value)
{
    for (uint64_t e = 0; e < elements; e++)
        rig_input(&rig, i, 0)[e] = value;
    say(i, piece, round, RECORD_ANNOUNCE);
}

static struct piece *the_piece(uint32_t id) { return piece_find(job_find(rig.lane, RIG_JOB), id); }

static const struct serving *answer_to(uint32_t rank)
{
    return &job_find(rig.lane, RIG_JOB)->servings->of[rank];
}

static void make_round(uint32_t piece)
{
    uint64_t round = the_piece(piece)->round;
    push(0, piece, round, (float)round - 1);
    push(2, piece, round, (float)round + 1);
    rig_until(&rig, the_piece(piece)->round == round + 1);
    rounds = round;
}

/* ---- a peer's two announcements of a piece with QUORUM_CHOSEN ---- */

static void choose(uint64_t round)
{
    uint64_t ranks[RECORD_MISSING_WORDS] = {5};
    struct record_chosen set;
    round_set_of_ranks(&set, round, ranks);
    set.reason = RECORD_REASON_GAIN;
    set.epoch = 1;
    assert_int_equal(fabric_send(rig.workers[0].conn, &set, sizeof set, NULL, 0), 0);
}

static void two_announcements_of_a_rank_outside_two_sets(void **state)
{
    start_with(chosen, 2 * CHUNK, 2);
    if (is_mapped())
        skip_because("needs a write that does not complete");
    choose(1);
    choose(2);
    make_round(PIECE);
    push(1, OTHER, 1, 1000);
    push(1, OTHER, 2, 1000);
    rig_settle(&rig);
    push(1, PIECE, 1, 1000); /* this late rank receives a result, and stops */
    rig.workers[1].is_stopped = true;
    rig_settle(&rig);
    assert_true(answer_to(1)->is_posted);
    make_round(OTHER);
    make_round(OTHER);
    /* the lane has not answered the second announcement */
    assert_int_equal(the_piece(OTHER)->late, 1);
    rig.workers[1].is_stopped = false;
    rig_until(&rig, the_piece(PIECE)->late == 0 && the_piece(OTHER)->late == 0);
}

static void flush_stopped(uint32_t rank)
{
    rig.workers[rank].is_stopped = false;
    for (int k = 0; k < 3; k++)
        (void)rig_turn(&rig);
    rig.workers[rank].is_stopped = true;
    rig_settle(&rig);
}

/* Also with QUORUM_FIRST, the lane accepts a late rank's HOLDS for the round in progress. */
static void a_late_rank_that_says_holds_during_the_next_round(void **state)
{
    start_with(first_two, 15 * CHUNK, 2);
    if (is_mapped())
        skip_because("needs a write that does not complete");
    make_round(PIECE);
    make_round(OTHER);
    push(1, PIECE, 1, 1000);
    rig.workers[1].is_stopped = true;
    rig_settle(&rig);
    push(1, OTHER, 1, 1000);
    flush_stopped(1);
    assert_int_equal(the_piece(OTHER)->late, 1);
    push(2, OTHER, 2, 1);
    rig_settle(&rig);
    rig.workers[2].is_stopped = true;
    push(0, OTHER, 2, 3);
    rig_settle(&rig);
    assert_int_not_equal(the_piece(OTHER)->state, PIECE_COLLECTING);
    say(1, OTHER, 2, RECORD_HOLDS);
    flush_stopped(1);
    assert_true(answer_to(1)->rank && answer_to(1)->rank->piece == the_piece(PIECE));
    rig.workers[2].is_stopped = false;
    rig_until(&rig, the_piece(OTHER)->round == 3);
    assert_int_equal(the_piece(OTHER)->late, 1);
    rig.workers[1].is_stopped = false;
    rig_until(&rig, rig.workers[1].closed_count == 2);
}

/* ---- two late ranks over slow links ---- */

static void two_late_ranks_that_need_longer_than_the_patience_for_a_chunk(void **state)
{
    start_with(first_two, 15 * CHUNK, 1);
    if (is_mapped())
        skip_because("needs writes that take time");
    make_round(PIECE);
    for (uint32_t rank = 1; rank < RANKS; rank += 2) {
        push(rank, PIECE, 1, 1000);
        rig.workers[rank].is_stopped = true;
        rig_settle(&rig);
        make_round(PIECE);
    }
    print_message("slot %zu bytes, result %llu bytes\n",
                  serving_slot_bytes(job_find(rig.lane, RIG_JOB)),
                  (unsigned long long)elements * sizeof(float));
    /* both ranks make progress all the time: between two rounds each link transfers one chunk */
    for (int k = 0; k < 200; k++) {
        rig.clock_ns += TOO_LONG_NS;
        make_round(PIECE);
        for (uint32_t rank = 1; rank < RANKS; rank += 2) {
            uint64_t moved = answer_to(rank)->next;
            bool was = answer_to(rank)->is_posted;
            rig.workers[rank].is_stopped = false;
            for (int t = 0;
                 t < 400 && answer_to(rank)->is_posted == was && answer_to(rank)->next == moved;
                 t++)
                rig_turn_gently(&rig);
            rig.workers[rank].is_stopped = true;
            if (getenv("REVIEW_SHOW"))
                print_message("round %llu rank %u: result of %llu, next %llu of %llu\n",
                              (unsigned long long)rounds, rank,
                              (unsigned long long)answer_to(rank)->round,
                              (unsigned long long)answer_to(rank)->next / CHUNK,
                              (unsigned long long)elements / CHUNK);
        }
        if (rig.workers[1].closed_count + rig.workers[3].closed_count > 0)
            break;
    }
    print_message("after %llu rounds: CLOSED %d and %d\n", (unsigned long long)rounds,
                  rig.workers[1].closed_count, rig.workers[3].closed_count);
    rig.workers[1].is_stopped = rig.workers[3].is_stopped = false;
    assert_true(rig.workers[1].closed_count + rig.workers[3].closed_count > 0);
}

/* ---- a late rank leaves ---- */

static void a_late_rank_that_leaves_waits_for_nothing(void **state)
{
    struct record_leave record = {.kind = RECORD_LEAVE};
    start_with(first_two, 2 * CHUNK, 1);
    if (is_mapped())
        skip_because("needs a write that does not complete");
    make_round(PIECE);
    push(1, PIECE, 1, 1000);
    rig.workers[1].is_stopped = true;
    rig_settle(&rig);
    assert_int_equal(fabric_send(rig.workers[1].conn, &record, sizeof record, NULL, 0), 0);
    rig.workers[1].is_stopped = false;
    fabric_disconnect(rig.workers[1].conn);
    rig_until(&rig, !job_find(rig.lane, RIG_JOB)->workers[1].conn);
    make_round(PIECE);
    make_round(PIECE);
    assert_int_equal(the_piece(PIECE)->failure, 0);
    assert_int_equal(the_piece(PIECE)->late, 0);
}

/* ---- random ---- */

static uint64_t seed;
static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

static uint32_t worker_of[RANKS], spare;
static uint64_t at[RANKS]; /* newest announced round; 0: none is open */
static int closed[RANKS];
static uint64_t base[RANKS]; /* newest round that the rank knows */
static uint64_t pulls;

static void check_values(uint32_t rank, uint64_t round)
{
    for (uint64_t e = 0; e < elements; e++) {
        float is = rig_landing(&rig, worker_of[rank], 0)[e];
        if (is != (float)round)
            fail_msg("rank %u element %llu: %g instead of %llu (announced %llu)", rank,
                     (unsigned long long)e, is, (unsigned long long)round,
                     (unsigned long long)at[rank]);
    }
}

/* When CLOSED arrives, all values must belong to the round that the lane has named. No word may
 * have arrived before. */
static void look(uint32_t rank)
{
    struct rig_worker *w = &rig.workers[worker_of[rank]];
    assert_int_equal(w->errors_count, 0);
    assert_int_equal(w->words_count, 0);
    if (at[rank] && w->closed_count > closed[rank]) {
        const struct record_closed *c = &w->closed[closed[rank] % 16];
        assert_int_equal(c->word, PIECE * 100000 + at[rank]);
        check_values(rank, c->round);
        base[rank] = c->round;
        at[rank] = 0;
        closed[rank]++;
        pulls++;
    }
}

static void late_push(uint32_t rank)
{
    if (at[rank] || base[rank] + 1 >= the_piece(PIECE)->round)
        return;
    at[rank] = base[rank] + 1;
    for (uint64_t e = 0; e < elements; e++)
        rig_landing(&rig, worker_of[rank], 0)[e] = -1;
    push(worker_of[rank], PIECE, at[rank], 100000);
}

/* State of a random case. */
static bool is_held;    /* the piece is released */
static uint64_t opened; /* number of the newest round that ranks 0 and 2 have announced */

static void begin_case(void)
{
    uint64_t most = 1 + draw(4 * CHUNK);
    start_with(first_two, most, 1);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        worker_of[rank] = rank;
        at[rank] = base[rank] = 0;
        closed[rank] = 0;
    }
    spare = RANKS;
    pulls = opened = 0;
    is_held = false;
}

/* Announces the open round for both ranks that make all rounds. */
static void open_round(void)
{
    opened = the_piece(PIECE)->round;
    push(0, PIECE, opened, (float)opened - 1);
    push(2, PIECE, opened, (float)opened + 1);
}

static void hold_or_thaw(void)
{
    static const uint32_t piece = PIECE;
    if (is_held)
        lane_thaw(rig.lane, RIG_JOB, &piece, 1);
    else
        assert_int_equal(lane_release(rig.lane, RIG_JOB, &piece, 1), 0);
    is_held = !is_held;
}

/* Replaces the connection of a late rank before CLOSED has arrived. */
static void connect_again(uint32_t rank)
{
    uint32_t old = worker_of[rank];
    if (is_mapped() || spare == RANKS + 6 || !at[rank] ||
        rig.workers[old].closed_count > closed[rank])
        return;
    rig_connect(&rig, spare, RIG_JOB, rank);
    worker_of[rank] = spare++;
    closed[rank] = 0;
    for (uint64_t e = 0; e < elements; e++)
        rig_landing(&rig, worker_of[rank], 0)[e] = -1;
    push(worker_of[rank], PIECE, at[rank], 100000);
    rig.workers[old].is_stopped = false;
}

static void random_event(void)
{
    uint32_t rank = 1 + 2 * draw(2), event = draw(100);
    struct rig_worker *w = &rig.workers[worker_of[rank]];
    if (event < 12)
        w->is_stopped = !w->is_stopped;
    else if (event < 30)
        late_push(rank);
    else if (event < 50 && opened != the_piece(PIECE)->round)
        open_round();
    else if (event < 55)
        rig.clock_ns += draw(3) * 60 * NS_PER_MS;
    else if (event < (is_held ? 61 : 57))
        hold_or_thaw();
    else if (event == 62)
        connect_again(rank);
    else
        for (uint32_t n = 1 + draw(20); n > 0; n--)
            (void)rig_turn(&rig);
}

/* Lets all ranks run. Each late rank must receive its answer. */
static void end_case(void)
{
    if (is_held)
        hold_or_thaw();
    for (uint32_t i = 0; i < RIG_WORKERS_MAX; i++)
        rig.workers[i].is_stopped = false;
    for (uint32_t rank = 1; rank < RANKS; rank += 2) {
        uint64_t until = rig_now() + 20 * NS_PER_S;
        while (at[rank]) {
            rig_turn_gently(&rig);
            look(rank);
            if (rig_now() > until)
                fail_msg("rank %u never gets an answer to %llu", rank,
                         (unsigned long long)at[rank]);
        }
    }
    print_message("%llu rounds, %llu pulls\n", (unsigned long long)the_piece(PIECE)->round,
                  (unsigned long long)pulls);
    assert_true(pulls > 0);
    rig_stop(&rig);
}

static void random_case(void)
{
    begin_case();
    for (int k = 0; k < EVENTS; k++) {
        random_event();
        look(1);
        look(3);
    }
    end_case();
}

static void random_interleavings(void **state)
{
    for (uint64_t k = 1; k <= SEEDS; k++) {
        seed = k * 7919;
        print_message("seed %llu\n", (unsigned long long)k);
        random_case();
    }
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(two_announcements_of_a_rank_outside_two_sets),
    CASE(a_late_rank_that_says_holds_during_the_next_round),
    CASE(two_late_ranks_that_need_longer_than_the_patience_for_a_chunk),
    CASE(a_late_rank_that_leaves_waits_for_nothing),
    cmocka_unit_test(random_interleavings),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
