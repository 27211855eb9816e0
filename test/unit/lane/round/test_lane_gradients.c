/* Tests several gradients of one rank in a round (A125, A126): which slots a lane sums, and when
 * the leader lane requests and counts another gradient. The test acts as the workers and, for the
 * sums, as the leader lane. */
#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "svc/wire/round_set.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define MOST 5 /* maximum number of gradients of one rank in a round */
#define W 1
#define HIDDEN 2
#define ELEMENTS (100000 / TRANSFER_SHORTER) /* several chunks */
#define STRIDE (ELEMENTS * sizeof(float) + 64)
#define SEEDS (12 / TRANSFER_SHORTER)
#define ROUNDS (60 / TRANSFER_SHORTER) /* of random arrivals */
#define SLOW 3
#define BEGIN_NS (100 * NS_PER_S)
#define USUAL_NS (10 * NS_PER_MS) /* time of a gradient of ranks 0 to 2 */
#define CALM 3                    /* first rounds, in which no rank gets a GO_ON */

static const char *kind;
static struct rig rig;
static uint64_t random_state;
static bool is_scaled; /* the rate of the job is proportional to the gradients of a round */

static int stop(void **state)
{
    is_scaled = false;
    rig_stop(&rig);
    return 0;
}

/* xorshift64* */
static uint32_t draw(uint32_t below)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % below;
}

static void connect_all(void)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    rig.count = RANKS;
}

/* ---- sums ---- */

static void start_sums(void)
{
    const struct backup_terms terms = {.rule = BACKUP_TERMS_STATIC,
                                       .k = RANKS,
                                       .gradients = MOST,
                                       .absence = UINT32_MAX,
                                       .rate = is_scaled ? BACKUP_TERMS_PROPORTIONAL
                                                         : BACKUP_TERMS_FIXED};
    const struct lane_piece spec = {
        .id = W,
        .dtype = REDUCE_F32,
        .elements = ELEMENTS,
        .tensor = "w",
        .terms = {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = 4},
        .backup = &terms};
    rig_start(&rig, kind);
    rig_place_piece(&rig, RANKS, spec, false);
    connect_all();
}

static float *slot(uint32_t rank, uint32_t number)
{
    return rig_input(&rig, rank, (number - 1) * STRIDE);
}

static void push(uint32_t rank, uint64_t round)
{
    rig_say(&rig, rank,
            (struct say){.piece = W,
                         .word = (uint32_t)round,
                         .round = round,
                         .root = (uint32_t)round,
                         .elements = ELEMENTS,
                         .operation = RECORD_MEAN,
                         .stride = STRIDE});
}

static void choose(uint32_t by, uint64_t round, const uint8_t *counts)
{
    struct record_chosen chosen;
    assert_int_equal(round_set_of_counts(&chosen, round, counts, RANKS), 0);
    assert_int_equal(fabric_send(rig.workers[by].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

/* Fills every slot with random values. A slot that the set does not count gets NaN, as if its rank
 * were writing the slot. */
static void fill(const uint8_t *counts)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t g = 1; g <= MOST; g++)
            for (uint64_t e = 0; e < ELEMENTS; e++)
                slot(rank, g)[e] = g <= counts[rank] ? (float)draw(1 << 24) / 1000.f - 4000.f : NAN;
}

/* The computation of one process: by rank, then by number of the gradient. */
static float mean_of(const uint8_t *counts, uint64_t e)
{
    float sum = 0;
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t g = 1; g <= counts[rank]; g++)
            sum = count++ == 0 ? slot(rank, g)[e] : sum + slot(rank, g)[e];
    return sum / (float)(is_scaled ? RANKS : count);
}

static void expect_mean(const uint8_t *counts, uint64_t round)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct rig_worker *w = &rig.workers[rank];
        if (counts[rank] == 0)
            continue;
        rig_until(&rig, w->commits_count > 0 && w->commits[w->commits_count - 1] == round);
        assert_int_equal(w->errors_count, 0);
        for (uint64_t e = 0; e < ELEMENTS; e++) {
            float expected = mean_of(counts, e), found = rig_landing(&rig, rank, 0)[e];
            if (memcmp(&expected, &found, sizeof found) != 0)
                fail_msg("round %u, rank %u, element %u: %a instead of %a", (unsigned)round, rank,
                         (unsigned)e, (double)found, (double)expected);
        }
    }
}

static void slots_are_summed_by_rank_then_number_with_the_bits_of_one_process(void **state)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint8_t counts[RANKS] = {0};
        random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
        print_message("seed %u\n", (unsigned)seed);
        start_sums();
        for (uint32_t rank = 0; rank < RANKS; rank++)
            counts[rank] = (uint8_t)draw(MOST + 1);
        counts[draw(RANKS)] = 1; /* the set is not empty */
        fill(counts);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            if (counts[rank] > 0)
                push(rank, 1);
        }
        uint32_t by = 0;
        while (counts[by] == 0)
            by++;
        choose(by, 1, counts);
        expect_mean(counts, 1);
        rig_stop(&rig);
    }
    start_sums();
}

static void a_close_changes_no_gradient_in_flight(void **state)
{
    const uint8_t counts[RANKS] = {2, 1, 1, 0};
    start_sums();
    random_state = 7;
    fill(counts);
    for (uint32_t rank = 0; rank < SLOW; rank++)
        push(rank, 1);
    choose(0, 1, counts);
    rig_until(&rig, rig.workers[0].words_count == 1);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        slot(0, 3)[e] = 1e30f; /* the gradient in flight, which no lane reads or changes */
    expect_mean(counts, 1);
    for (uint64_t e = 0; e < ELEMENTS; e++)
        assert_true(slot(0, 3)[e] == 1e30f);
}

static void a_proportional_rate_divides_all_gradients_by_the_number_of_ranks(void **state)
{
    static const uint8_t sets[][RANKS] = {{1, 0, 2, 0}, {5, 1, 4, 3}, {1, 1, 1, 1}};
    is_scaled = true;
    start_sums();
    random_state = 3;
    for (uint64_t round = 1; round <= sizeof sets / sizeof sets[0]; round++) {
        fill(sets[round - 1]);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            push(rank, round);
        choose(0, round, sets[round - 1]);
        expect_mean(sets[round - 1], round);
    }
}

static void slots_beyond_the_lent_memory_are_refused(void **state)
{
    start_sums();
    rig_say(&rig, 0,
            (struct say){.piece = W,
                         .word = 1,
                         .round = 1,
                         .root = 1,
                         .elements = ELEMENTS,
                         .operation = RECORD_MEAN,
                         .stride = RIG_REGION_BYTES / (MOST - 1)});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_true(rig_says(&rig.workers[0], -EFAULT, "of lent memory"));
}

static void an_input_without_slots_is_refused(void **state)
{
    start_sums();
    rig_say(&rig, 0,
            (struct say){.piece = W,
                         .word = 1,
                         .round = 1,
                         .root = 1,
                         .elements = ELEMENTS,
                         .operation = RECORD_MEAN});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_true(rig_says(&rig.workers[0], -EFAULT, "of lent memory"));
}

static void a_set_with_more_gradients_than_slots_cuts_its_sender_off(void **state)
{
    start_sums();
    choose(1, 1, (const uint8_t[RANKS]){MOST + 1, 1});
    rig_until(&rig, rig.workers[1].is_closed && rig.failures == 1);
}

static void pieces_with_another_number_of_gradients_are_refused(void **state)
{
    const struct backup_terms terms = {.rule = BACKUP_TERMS_STATIC, .k = RANKS};
    const struct lane_piece other = {
        .id = W + 1,
        .dtype = REDUCE_F32,
        .elements = 4,
        .tensor = "v",
        .terms = {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = 4},
        .backup = &terms};
    start_sums();
    assert_int_equal(lane_place(rig.lane, RIG_JOB, "job", RANKS, 1, false, &other, 1), -EINVAL);
}

/* ---- the leader lane ---- */

static uint64_t opened_ns; /* time of the last close */

static void start_leader(struct backup_terms terms, bool recovering)
{
    const struct lane_piece hidden = {
        .id = HIDDEN,
        .terms = {.quorum = QUORUM_FIRST, .bound = 1, .role = LEADS_ROUNDS},
        .backup = &terms};
    rig_start(&rig, kind);
    rig.clock_ns = opened_ns = BEGIN_NS;
    rig_place_piece(&rig, RANKS, hidden, recovering);
    connect_all();
}

static bool has_read(uint32_t rank, uint64_t round, uint8_t gradient)
{
    struct rank *of = &piece_find(job_find(rig.lane, RIG_JOB), HIDDEN)->ranks[rank];
    return rank_said(of, round)->round == round && of->gradients >= gradient;
}

static void say(uint32_t rank, uint64_t round, uint8_t gradient, uint8_t standing)
{
    rig_say(&rig, rank,
            (struct say){.piece = HIDDEN,
                         .word = (uint32_t)round,
                         .round = round,
                         .operation = RECORD_BARRIER,
                         .standing = standing,
                         .gradient = gradient,
                         .has_no_input = true,
                         .has_no_output = true});
}

/* Announces the rank's gradients up to this number, and returns when the lane has read the
 * record. */
static void end(uint32_t rank, uint64_t round, uint8_t gradient)
{
    say(rank, round, gradient, RECORD_ANNOUNCE);
    rig_until(&rig, has_read(rank, round, gradient));
}

static bool is_closed(uint32_t rank, uint64_t round)
{
    const struct rig_worker *w = &rig.workers[rank];
    return w->commits_count > 0 && w->commits[w->commits_count - 1] == round;
}

static void expect_set(uint64_t round, const uint8_t *counts)
{
    rig_until(&rig, is_closed(0, round));
    const struct record_chosen *chosen = &rig.workers[0].chosen;
    assert_int_equal(chosen->round, round);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(round_set_count(chosen, rank), counts[rank]);
    opened_ns = rig.clock_ns;
}

/* The slow rank takes twice the usual time in these rounds, and ten times the usual time later. */
static void calm_rounds(void)
{
    for (uint64_t round = 1; round <= CALM; round++) {
        rig.clock_ns = opened_ns + USUAL_NS;
        for (uint32_t rank = 0; rank < SLOW; rank++)
            end(rank, round, 1);
        rig.clock_ns = opened_ns + 2 * USUAL_NS;
        end(SLOW, round, 1);
        expect_set(round, (const uint8_t[RANKS]){1, 1, 1, 1});
    }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(rig.workers[rank].go_on_count, 0);
}

static const struct backup_terms all_four = {
    .rule = BACKUP_TERMS_STATIC, .k = RANKS, .gradients = MOST, .absence = UINT32_MAX};

/* Ranks 0 to 2 announce the round. The slow rank is far behind, so a rank gets a GO_ON. Returns
 * this rank. */
static uint32_t open_round(uint64_t round)
{
    rig.clock_ns = opened_ns + USUAL_NS;
    for (uint32_t rank = 0; rank < SLOW; rank++)
        end(rank, round, 1);
    uint32_t found = SLOW;
    for (uint32_t i = 0; i < 100 && found == SLOW; i++) {
        rig_settle(&rig);
        for (uint32_t rank = 0; rank < SLOW; rank++)
            found = rig.workers[rank].go_on.round == round ? rank : found;
    }
    assert_true(found < SLOW);
    assert_int_equal(rig.workers[found].go_on.gradient, 2);
    return found;
}

static void static_counts_gradients(void **state)
{
    uint8_t counts[RANKS] = {1, 1, 1, 0};
    start_leader(all_four, false);
    calm_rounds();
    uint32_t again = open_round(CALM + 1);
    assert_false(is_closed(0, CALM + 1));
    rig.clock_ns += USUAL_NS;
    end(again, CALM + 1, 2);
    counts[again] = 2;
    expect_set(CALM + 1, counts);
    assert_int_equal(rig.workers[0].chosen.form, RECORD_FORM_COUNTS);
    assert_int_equal(round_set_gradients(&rig.workers[0].chosen), RANKS);
}

static void a_gradient_after_the_close_is_dropped_unanswered(void **state)
{
    start_leader(all_four, false);
    calm_rounds();
    uint32_t again = open_round(CALM + 1);
    end(SLOW, CALM + 1, 1);
    expect_set(CALM + 1, (const uint8_t[RANKS]){1, 1, 1, 1});
    int commits = rig.workers[again].commits_count, closed = rig.workers[again].closed_count;
    say(again, CALM + 1, 2, RECORD_ANNOUNCE);
    rig_settle(&rig);
    assert_int_equal(rig.workers[again].commits_count, commits);
    assert_int_equal(rig.workers[again].closed_count, closed);
    assert_int_equal(rig.workers[again].errors_count, 0);
    rig.clock_ns = opened_ns + USUAL_NS;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        end(rank, CALM + 2, 1);
    expect_set(CALM + 2, (const uint8_t[RANKS]){1, 1, 1, 1});
}

static void a_repeated_record_counts_once(void **state)
{
    start_leader(all_four, false);
    calm_rounds();
    uint32_t again = open_round(CALM + 1);
    say(again, CALM + 1, 1, RECORD_ANNOUNCE);
    rig_settle(&rig);
    assert_false(is_closed(0, CALM + 1));
}

static void a_new_leader_lane_counts_all_gradients_of_one_record(void **state)
{
    start_leader(all_four, true);
    say(0, 9, 2, RECORD_ANNOUNCE);
    say(1, 9, 1, RECORD_ANNOUNCE);
    say(2, 8, 1, RECORD_IDLE);
    say(SLOW, 8, 1, RECORD_IDLE);
    rig_settle(&rig);
    assert_false(is_closed(0, 9));
    say(2, 9, 1, RECORD_ANNOUNCE);
    expect_set(9, (const uint8_t[RANKS]){2, 1, 1, 0});
}

/* The rule still counts the gradients of rank 0, but a set needs a new announcement of them. Only
 * with libfabric may a new connection replace another. */
static void a_round_waits_for_counted_gradients_of_a_lost_connection(void **state)
{
    const struct record_chosen *chosen = &rig.workers[1].chosen;
    const char *given = kind;
    kind = "ofi";
    start_leader(all_four, true);
    kind = given;
    say(0, 9, 2, RECORD_ANNOUNCE);
    say(1, 9, 1, RECORD_ANNOUNCE);
    say(2, 8, 1, RECORD_IDLE);
    say(SLOW, 8, 1, RECORD_IDLE);
    rig_until(&rig, has_read(0, 9, 2) && has_read(1, 9, 1));
    rig_settle(&rig);
    rig.workers[0].is_stopped = true;
    rig_connect(&rig, RANKS, RIG_JOB, 0);
    end(2, 9, 1);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].commits_count, 0);
    say(RANKS, 9, 2, RECORD_ANNOUNCE);
    rig_until(&rig, is_closed(1, 9));
    assert_int_equal(round_set_count(chosen, 0), 2);
    assert_int_equal(round_set_count(chosen, 1), 1);
    assert_int_equal(round_set_count(chosen, 2), 1);
    assert_int_equal(round_set_count(chosen, SLOW), 0);
}

static void a_set_that_a_worker_knows_is_kept(void **state)
{
    start_leader(all_four, true);
    choose(1, 9, (const uint8_t[RANKS]){1, 1, 2, 0});
    say(0, 9, 2, RECORD_ANNOUNCE);
    say(1, 9, 1, RECORD_ANNOUNCE);
    say(2, 9, 2, RECORD_ANNOUNCE);
    say(SLOW, 8, 1, RECORD_IDLE);
    expect_set(9, (const uint8_t[RANKS]){1, 1, 2, 0});
}

static void more_gradients_than_the_terms_permit_are_refused(void **state)
{
    start_leader(all_four, false);
    end(0, 1, 1);
    say(0, 1, MOST + 1, RECORD_ANNOUNCE);
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_true(rig_says(&rig.workers[0], -EPROTO, "gradient 6 of a rank in a job with at most 5"));
}

/* Random arrivals of all ranks. Every set has exactly the gradients that were announced in time,
 * and at least k of them or all ranks. */
static void random_arrivals_are_counted_exactly(void **state)
{
    start_leader(all_four, false);
    random_state = 20261201;
    print_message("seed %u\n", 20261201);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint8_t counts[RANKS] = {0};
        uint32_t sum = 0, ranks = 0;
        rig.clock_ns = opened_ns;
        while (sum < RANKS && ranks < RANKS) {
            uint32_t rank = draw(RANKS);
            if (rank == SLOW && counts[rank] == 0 && draw(8) > 0)
                continue; /* this rank is slow */
            bool goes_on = rig.workers[rank].go_on.round == round &&
                           rig.workers[rank].go_on.gradient == counts[rank] + 1;
            rig.clock_ns += USUAL_NS / 4 + draw((uint32_t)USUAL_NS / 4);
            rig_settle(&rig);
            if (counts[rank] > 0 && !goes_on)
                continue;
            ranks += counts[rank] == 0;
            sum++;
            end(rank, round, ++counts[rank]);
            rig_settle(&rig);
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            if (counts[rank] == 0)
                continue;
            rig_until(&rig, is_closed(rank, round));
            for (uint32_t i = 0; i < RANKS; i++)
                assert_int_equal(round_set_count(&rig.workers[rank].chosen, i), counts[i]);
        }
        opened_ns = rig.clock_ns;
    }
    uint32_t requests = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        requests += (uint32_t)rig.workers[rank].go_on_count;
    assert_true(requests > 0);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)

int main(int argc, char **argv)
{
    const struct CMUnitTest cases[] = {
        CASE(slots_are_summed_by_rank_then_number_with_the_bits_of_one_process),
        CASE(a_close_changes_no_gradient_in_flight),
        CASE(a_proportional_rate_divides_all_gradients_by_the_number_of_ranks),
        CASE(slots_beyond_the_lent_memory_are_refused),
        CASE(an_input_without_slots_is_refused),
        CASE(a_set_with_more_gradients_than_slots_cuts_its_sender_off),
        CASE(pieces_with_another_number_of_gradients_are_refused),
        CASE(static_counts_gradients),
        CASE(a_gradient_after_the_close_is_dropped_unanswered),
        CASE(a_repeated_record_counts_once),
        CASE(a_new_leader_lane_counts_all_gradients_of_one_record),
        CASE(a_round_waits_for_counted_gradients_of_a_lost_connection),
        CASE(a_set_that_a_worker_knows_is_kept),
        CASE(more_gradients_than_the_terms_permit_are_refused),
        CASE(random_arrivals_are_counted_exactly),
    };
    kind = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(cases, NULL, NULL);
}
