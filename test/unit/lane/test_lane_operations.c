/* Tests each row of the operation table between a lane and workers, over shared memory and over
 * libfabric: the results, the commit, and the recovery by a new owner. */
#include "svc/reduce/reduce.h"
#include "test/unit/lane/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
/* Several chunks in each block. */
#define LONG 150000

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

/* Returns element e of block `block` of the rank's input. */
static float value(uint32_t rank, uint32_t block, uint64_t e)
{
    uint32_t x = (uint32_t)(e * 2654435761u ^ (block + 3) * 40503u ^ (rank + 1) * 97u);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

static void fill(uint32_t rank, uint32_t blocks, uint64_t elements)
{
    for (uint32_t block = 0; block < blocks; block++)
        for (uint64_t e = 0; e < elements; e++)
            rig_input(&rig, rank, 0)[block * elements + e] = value(rank, block, e);
}

static void expect(uint32_t rank, uint32_t block, uint64_t elements, uint64_t e, float want)
{
    float got = rig_landing(&rig, rank, 0)[block * elements + e];
    if (memcmp(&got, &want, sizeof got) != 0)
        fail_msg("rank %u block %u element %llu: %.9g, not %.9g", rank, block,
                 (unsigned long long)e, got, want);
}

static void all_say(struct say say)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        say.word = 100 + rank;
        rig_say(&rig, rank, say);
    }
}

static void expect_commits(int count)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        rig_until(&rig, rig.workers[rank].commits_count == count);
        assert_int_equal(rig.workers[rank].words_count, count);
        assert_int_equal(rig.workers[rank].words[count - 1], 100 + rank);
        assert_int_equal(rig.workers[rank].errors_count, 0);
    }
}

/* --- reductions --- */

static float reduced(uint8_t operation, uint64_t e)
{
    float a = value(0, 0, e);
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        float b = value(rank, 0, e);
        if (operation == RECORD_PRODUCT)
            a *= b;
        else if (operation == RECORD_MIN ? b < a : b > a)
            a = b;
    }
    return a;
}

static void min_max_and_product_are_over_all_ranks(void **state)
{
    static const uint8_t operations[] = {RECORD_MIN, RECORD_MAX, RECORD_PRODUCT};
    rig_start_job(&rig, kind, RANKS, 1, 1000);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        fill(rank, 1, 1000);
    for (uint64_t round = 1; round <= 3; round++) {
        uint8_t operation = operations[round - 1];
        all_say((struct say){.piece = 1, .round = round, .elements = 1000, .operation = operation});
        expect_commits((int)round);
        for (uint64_t e = 0; e < 1000; e++)
            expect(2, 0, 1000, e, reduced(operation, e));
    }
}

static void say_halves(uint32_t rank, uint8_t operation, uint64_t round, uint16_t bits)
{
    uint16_t *input = (uint16_t *)rig_input(&rig, rank, 0);
    input[0] = input[1] = bits;
    rig_say(&rig, rank, /* in this case two halves (f16) have the length of one float */
            (struct say){.piece = 2,
                         .word = 100 + rank,
                         .round = round,
                         .elements = 1,
                         .dtype = REDUCE_F16,
                         .operation = operation});
}

static void halves_are_summed_in_float_and_rounded_once(void **state)
{
    rig_start_job(&rig, kind, RANKS, 1, 10);
    rig_place_piece(&rig, RANKS, (struct lane_piece){.id = 2, .dtype = REDUCE_F16, .elements = 2},
                    false);
    /* the f16 number 2048; the sum with 1 needs a bit that f16 lacks */
    say_halves(0, RECORD_SUM, 1, 0x6800);
    say_halves(1, RECORD_SUM, 1, 0x3c00); /* the value 1 */
    say_halves(2, RECORD_SUM, 1, 0x3c00);
    expect_commits(1);
    /* the value is 2050, and not 2048 */
    assert_int_equal(*(uint16_t *)rig_landing(&rig, 1, 0), 0x6801);
}

static void a_mean_of_integers_is_refused(void **state)
{
    rig_start_job(&rig, kind, RANKS, 1, 10);
    rig_place_piece(&rig, RANKS, (struct lane_piece){.id = 2, .dtype = REDUCE_I32, .elements = 4},
                    false);
    rig_say(
        &rig, 0,
        (struct say){
            .piece = 2, .round = 1, .elements = 4, .dtype = REDUCE_I32, .operation = RECORD_MEAN});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EINVAL);
}

/* --- blocks --- */

static void a_gather_puts_each_rank_s_values_in_rank_order(void **state)
{
    static const uint64_t lengths[] = {1, 1000, LONG};
    for (int i = 0; i < 3; i++) {
        uint64_t elements = lengths[i];
        rig_start_job(&rig, kind, RANKS, 1, elements);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            fill(rank, 1, elements);
        all_say((struct say){.piece = 1,
                             .round = 1,
                             .elements = elements,
                             .operation = RECORD_GATHER,
                             .output_blocks = RANKS});
        expect_commits(1);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            for (uint32_t from = 0; from < RANKS; from++)
                for (uint64_t e = 0; e < elements; e++)
                    expect(rank, from, elements, e, value(from, 0, e));
        if (i < 2)
            rig_stop(&rig);
    }
}

static void a_rank_without_an_output_gets_only_the_word_of_a_gather(void **state)
{
    rig_start_job(&rig, kind, RANKS, 1, 100);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        fill(rank, 1, 100);
        rig_say(&rig, rank,
                (struct say){.piece = 1,
                             .word = 100 + rank,
                             .round = 1,
                             .elements = 100,
                             .operation = RECORD_GATHER,
                             .output_blocks = RANKS,
                             .has_no_output = rank != 1});
    }
    expect_commits(1);
    expect(1, 2, 100, 99, value(2, 0, 99));
    assert_true(rig_landing(&rig, 0, 0)[0] == 0.0f);
}

static void an_all_to_all_gives_rank_i_block_i_of_every_rank(void **state)
{
    rig_start_job(&rig, kind, RANKS, 1, LONG);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        fill(rank, RANKS, LONG);
    all_say((struct say){.piece = 1,
                         .round = 1,
                         .elements = LONG,
                         .operation = RECORD_ALL_TO_ALL,
                         .input_blocks = RANKS,
                         .output_blocks = RANKS});
    expect_commits(1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t from = 0; from < RANKS; from++)
            for (uint64_t e = 0; e < LONG; e++)
                expect(rank, from, LONG, e, value(from, rank, e));
}

static void a_reduce_scatter_gives_rank_i_the_sum_of_the_blocks_i(void **state)
{
    rig_start_job(&rig, kind, RANKS, 1, LONG);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        fill(rank, RANKS, LONG);
    all_say((struct say){.piece = 1,
                         .round = 1,
                         .elements = LONG,
                         .operation = RECORD_REDUCE_SCATTER,
                         .input_blocks = RANKS});
    expect_commits(1);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint64_t e = 0; e < LONG; e++)
            expect(rank, 0, LONG, e, (value(0, rank, e) + value(1, rank, e)) + value(2, rank, e));
}

static void blocks_that_are_not_all_lent_are_refused(void **state)
{
    rig_start_job(&rig, kind, RANKS, 1, 1u << 19); /* 2 MiB in each block */
    rig_say(&rig, 0,
            (struct say){.piece = 1,
                         .round = 1,
                         .elements = 1u << 19,
                         .operation = RECORD_GATHER,
                         .output_blocks = RANKS});
    rig_until(&rig, rig.workers[0].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EFAULT);
    rig_say(&rig, 0,
            (struct say){.piece = 1, .round = 1, .elements = 1u << 19, .operation = RECORD_GATHER});
    /* the rank has sent one block instead of three */
    rig_until(&rig, rig.workers[0].errors_count == 2);
    assert_int_equal(rig.workers[0].error.code, -EMSGSIZE);
}

/* --- sets of ranks --- */

static const uint64_t zero_and_two[RECORD_MISSING_WORDS] = {5};

static void start_set(uint64_t elements, bool recovering)
{
    rig_start_job(&rig, kind, RANKS, 1, 16);
    rig_place_piece(&rig, RANKS,
                    (struct lane_piece){.id = 2, .elements = elements, .ranks = zero_and_two},
                    recovering);
}

static void a_send_waits_for_its_receiver_and_for_no_other_rank(void **state)
{
    start_set(500, false);
    fill(0, 1, 500);
    struct say say = {
        .piece = 2, .word = 100, .round = 1, .elements = 500, .operation = RECORD_SEND};
    say.has_no_output = true;
    rig_say(&rig, 0, say);
    rig_settle(&rig);
    assert_int_equal(rig.workers[0].words_count, 0);
    say.has_no_output = false;
    say.has_no_input = true;
    say.word = 102;
    rig_say(&rig, 2, say);
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[2].commits_count == 1);
    for (uint64_t e = 0; e < 500; e++)
        expect(2, 0, 500, e, value(0, 0, e));
    assert_int_equal(rig.workers[1].words_count, 0);
}

static void two_that_both_send_get_an_error(void **state)
{
    start_set(10, false);
    struct say say = {
        .piece = 2, .round = 1, .elements = 10, .operation = RECORD_SEND, .has_no_output = true};
    rig_say(&rig, 0, say);
    say.root = 2;
    rig_say(&rig, 2, say);
    rig_until(&rig, rig.workers[0].errors_count == 1 && rig.workers[2].errors_count == 1);
    assert_int_equal(rig.workers[0].error.code, -EINVAL);
}

static void the_mean_over_a_set_is_divided_by_the_set(void **state)
{
    start_set(10, false);
    for (uint32_t rank = 0; rank < RANKS; rank += 2) {
        fill(rank, 1, 10);
        rig_say(&rig, rank,
                (struct say){.piece = 2, .round = 1, .elements = 10, .operation = RECORD_MEAN});
    }
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[2].commits_count == 1);
    for (uint64_t e = 0; e < 10; e++)
        expect(2, 0, 10, e, (value(0, 0, e) + value(2, 0, e)) / 2.0f);
}

static void blocks_of_a_set_are_counted_within_it(void **state)
{
    start_set(10, false);
    for (uint32_t rank = 0; rank < RANKS; rank += 2) {
        fill(rank, 2, 10);
        rig_say(&rig, rank,
                (struct say){.piece = 2,
                             .round = 1,
                             .elements = 10,
                             .operation = RECORD_ALL_TO_ALL,
                             .input_blocks = 2,
                             .output_blocks = 2});
    }
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[2].commits_count == 1);
    expect(0, 1, 10, 3, value(2, 0, 3));
    expect(2, 0, 10, 3, value(0, 1, 3));
}

static void a_rank_outside_the_set_is_refused(void **state)
{
    start_set(10, false);
    rig_say(&rig, 1, (struct say){.piece = 2, .round = 1, .elements = 10});
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_int_equal(rig.workers[1].error.code, -EINVAL);
    rig_say(&rig, 0, (struct say){.piece = 2, .round = 1, .elements = 10});
    rig_say(&rig, 2, (struct say){.piece = 2, .round = 1, .elements = 10});
    rig_until(&rig, rig.workers[2].commits_count == 1);
}

static void a_leaver_ends_no_round_of_a_set_without_it(void **state)
{
    start_set(10, false);
    struct record_leave leave = {.kind = RECORD_LEAVE};
    rig_say(&rig, 0, (struct say){.piece = 2, .round = 1, .elements = 10});
    rig_settle(&rig);
    assert_int_equal(fabric_send(rig.workers[1].conn, &leave, sizeof leave, NULL, 0), 0);
    rig_settle(&rig);
    rig_say(&rig, 2, (struct say){.piece = 2, .round = 1, .elements = 10});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[2].commits_count == 1);
}

/* --- W5 --- */

/* One rank has received its result in its landing area, and another rank has not. The results of
 * the ranks differ. */
static void a_new_owner_repeats_results_that_differ_between_ranks(void **state)
{
    rig_start(&rig, kind);
    rig_place(&rig, RIG_JOB, RANKS, 1, 1, 100, true);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        rig_connect(&rig, rank, RIG_JOB, rank);
        fill(rank, RANKS, 100);
        rig_landing(&rig, rank, 0)[0] = 42.0f;
    }
    struct say say = {.piece = 1,
                      .round = 7,
                      .elements = 100,
                      .operation = RECORD_ALL_TO_ALL,
                      .input_blocks = RANKS,
                      .output_blocks = RANKS};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        say.word = 100 + rank;
        say.standing = rank == 1 ? RECORD_HOLDS : RECORD_ANNOUNCE;
        rig_say(&rig, rank, say);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rig_until(&rig, rig.workers[rank].commits_count == 1);
    assert_int_equal(rig.workers[1].words_count, 0);
    /* a received result must not be overwritten */
    assert_true(rig_landing(&rig, 1, 0)[0] == 42.0f);
    for (uint32_t from = 0; from < RANKS; from++) {
        expect(0, from, 100, 50, value(from, 0, 50));
        expect(2, from, 100, 50, value(from, 2, 50));
    }
}

static void a_new_owner_awaits_standings_of_the_set_only(void **state)
{
    start_set(10, true);
    fill(0, 1, 10);
    rig_say(&rig, 2,
            (struct say){.piece = 2,
                         .word = 2,
                         .round = 4,
                         .elements = 10,
                         .has_no_input = true,
                         .operation = RECORD_SEND});
    rig_settle(&rig);
    rig_say(&rig, 0,
            (struct say){.piece = 2,
                         .word = 1,
                         .round = 4,
                         .elements = 10,
                         .has_no_output = true,
                         .operation = RECORD_SEND});
    rig_until(&rig, rig.workers[0].commits_count == 1 && rig.workers[2].commits_count == 1);
    expect(2, 0, 10, 9, value(0, 0, 9));
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(min_max_and_product_are_over_all_ranks),
    CASE(halves_are_summed_in_float_and_rounded_once),
    CASE(a_mean_of_integers_is_refused),
    CASE(a_gather_puts_each_rank_s_values_in_rank_order),
    CASE(a_rank_without_an_output_gets_only_the_word_of_a_gather),
    CASE(an_all_to_all_gives_rank_i_block_i_of_every_rank),
    CASE(a_reduce_scatter_gives_rank_i_the_sum_of_the_blocks_i),
    CASE(blocks_that_are_not_all_lent_are_refused),
    CASE(a_send_waits_for_its_receiver_and_for_no_other_rank),
    CASE(two_that_both_send_get_an_error),
    CASE(the_mean_over_a_set_is_divided_by_the_set),
    CASE(blocks_of_a_set_are_counted_within_it),
    CASE(a_rank_outside_the_set_is_refused),
    CASE(a_leaver_ends_no_round_of_a_set_without_it),
    CASE(a_new_owner_repeats_results_that_differ_between_ranks),
    CASE(a_new_owner_awaits_standings_of_the_set_only),
};

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name(kind, cases, NULL, NULL);
}
