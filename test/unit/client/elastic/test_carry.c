/* Tests the state of a deal that a late worker gets (a deal distributes samples to ranks). Also
 * tests the words of step records. */
#include "client/lib/elastic/carry.h"
#include "client/lib/elastic/step_words.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 6
#define STEPS_MAX 4000

static const struct deal_spec spec = {
    .samples = 500, .epochs = 2, .seed = 7, .batch = 24, .prefetch = 3, .share_least = 2};

static struct deal_record all_of(uint32_t ranks)
{
    struct deal_record record = {0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        ranks_add(record.present, rank);
        ranks_add(record.holds, rank);
    }
    return record;
}

/* Returns a random record: some ranks have died, one rank leaves, and one rank has no state. Rank 0
 * always stays. */
static struct deal_record any_record(uint64_t seed, uint64_t t)
{
    struct deal_record record = {0};
    uint64_t bits = mixed_key(t, seed);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank > 0 && (bits >> 4 * rank & 15) == 0)
            continue;
        ranks_add(record.present, rank);
        if (rank == 0 || (bits >> 4 * rank & 15) != 1)
            ranks_add(record.holds, rank);
        if (rank > 0 && (bits >> 4 * rank & 15) == 2)
            ranks_add(record.leaving, rank);
    }
    return record;
}

static void begin(struct step_deal *deal, uint64_t seed, uint64_t records)
{
    struct deal_record all = all_of(RANKS);
    assert_int_equal(deal_init(deal, &spec, all.present), 0);
    for (uint64_t t = 1; t <= records; t++) {
        struct deal_record record = any_record(seed, t);
        assert_int_equal(deal_apply(deal, &record), 0);
    }
}

static uint64_t *words_of(const struct step_deal *deal, size_t *ret_count)
{
    *ret_count = carry_words(deal);
    uint64_t *words = malloc(*ret_count * sizeof *words);
    assert_non_null(words);
    carry_write(deal, words);
    return words;
}

static void assert_same_step(const struct step_deal *a, const struct step_deal *b, uint64_t number)
{
    static uint64_t left[25], right[25];
    const struct deal_step *here = deal_step(a, number), *there = deal_step(b, number);
    assert_true(here && there);
    assert_int_equal(here->is_end, there->is_end);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        size_t count = deal_samples(a, here, rank, 0, left, 25);
        assert_int_equal(deal_samples(b, there, rank, 0, right, 25), count);
        assert_memory_equal(left, right, count * sizeof left[0]);
    }
}

static void a_late_worker_deals_as_the_giver_does(void **state)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct step_deal giver, late;
        size_t count;
        begin(&giver, seed, 1 + mixed_key(seed, 1) % 40);
        uint64_t *words = words_of(&giver, &count), t = giver.record;
        assert_int_equal(carry_read(words, count, &spec, &late), 0);
        bool is_end = false;
        for (; !is_end && t < STEPS_MAX; t++) {
            for (uint64_t number = t; number <= t + 1 + spec.prefetch; number++)
                assert_same_step(&giver, &late, number);
            is_end = deal_step(&giver, t)->is_end;
            struct deal_record record = any_record(seed, t + 1);
            assert_int_equal(deal_apply(&giver, &record), 0);
            assert_int_equal(deal_apply(&late, &record), 0);
        }
        assert_true(is_end);
        free(words);
        deal_fini(&giver);
        deal_fini(&late);
    }
}

static void a_state_of_any_other_length_is_refused(void **state)
{
    struct step_deal giver, late;
    size_t count;
    begin(&giver, 3, 20);
    uint64_t *words = words_of(&giver, &count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(carry_read(words, i, &spec, &late), -EBADMSG);
    free(words);
    deal_fini(&giver);
}

static void the_state_of_another_deal_is_refused(void **state)
{
    struct step_deal giver, late;
    struct deal_spec other = spec;
    size_t count;
    begin(&giver, 3, 20);
    uint64_t *words = words_of(&giver, &count);
    other.seed++;
    assert_int_equal(carry_read(words, count, &other, &late), -EINVAL);
    other = spec;
    other.prefetch--;
    assert_int_equal(carry_read(words, count, &other, &late), -EINVAL);
    other = spec;
    other.share_least = 3;
    assert_int_equal(carry_read(words, count, &other, &late), -EINVAL);
    other = spec;
    other.batch_per_worker = 1;
    assert_int_equal(carry_read(words, count, &other, &late), -EINVAL);
    free(words);
    deal_fini(&giver);
}

/* Words come from another process and may have any value. If a state passes the checks, its deal
 * contains only samples of the data set. */
static void changed_words_are_refused_or_harmless(void **state)
{
    static const uint64_t values[] = {0, 1, 500, 501, UINT32_MAX, UINT64_MAX};
    struct step_deal giver, late;
    uint64_t samples[24];
    size_t count, refused = 0;
    begin(&giver, 5, 30);
    uint64_t *words = words_of(&giver, &count);
    for (size_t i = 0; i < count * 6; i++) {
        uint64_t kept = words[i / 6];
        words[i / 6] = values[i % 6];
        int error = carry_read(words, count, &spec, &late);
        words[i / 6] = kept;
        refused += error < 0;
        for (uint64_t t = late.record; error == 0 && t <= late.record + 1 + spec.prefetch; t++) {
            const struct deal_step *step = deal_step(&late, t);
            for (uint32_t rank = 0; step && rank < DEAL_RANKS_MAX; rank++) {
                size_t found = deal_samples(&late, step, rank, 0, samples, 24);
                for (size_t k = 0; k < found; k++)
                    assert_true(samples[k] < spec.samples);
            }
        }
        if (error == 0)
            deal_fini(&late);
    }
    assert_true(refused > count);
    free(words);
    deal_fini(&giver);
}

/* ---- words of records ---- */

static void add(uint64_t *sum, struct step_word word)
{
    uint64_t words[STEP_WORDS_COUNT];
    step_words_write(&word, words);
    for (int i = 0; i < STEP_WORDS_COUNT; i++)
        sum[i] += words[i];
}

static void the_sum_of_the_ranks_words_is_the_record(void **state)
{
    uint64_t words[STEP_WORDS_COUNT] = {0};
    struct step_sum sum;
    add(words,
        (struct step_word){.rank = 0, .holds = true, .is_full = true, .rounds = 9, .print = 5});
    add(words, (struct step_word){.rank = 63,
                                  .holds = true,
                                  .is_full = true,
                                  .is_leaving = true,
                                  .rounds = 9,
                                  .print = 5});
    add(words, (struct step_word){.rank = 700, .is_full = true, .rounds = 9, .print = 5});
    assert_int_equal(step_words_read(words, 701, 700, 5, &sum), 0);
    assert_true(sum.kind == STEP_FULL && sum.rounds == 9 && sum.late_are_level);
    assert_int_equal(ranks_count(sum.record.present), 3);
    assert_int_equal(ranks_count(sum.record.holds), 2);
    assert_true(ranks_have(sum.record.leaving, 63) && !ranks_have(sum.record.holds, 700));
}

static void a_record_names_the_rest_that_a_rank_knows(void **state)
{
    uint64_t words[STEP_WORDS_COUNT] = {0};
    struct step_sum sum;
    add(words, (struct step_word){.rank = 0, .holds = true});
    assert_int_equal(step_words_rest(words), 0);
    add(words, (struct step_word){.rank = 1, .holds = true, .rest = 7});
    add(words, (struct step_word){.rank = 2, .holds = true, .rest = 7});
    assert_int_equal(step_words_read(words, 3, 0, 0, &sum), 0);
    assert_int_equal(step_words_rest(words), 7);
    words[STEP_WORDS_REST] += UINT64_C(8) << 16 | 1;
    assert_int_equal(step_words_rest(words), 0);
}

static void all_ranks_detect_a_late_rank_with_another_number_of_rounds(void **state)
{
    uint64_t words[STEP_WORDS_COUNT] = {0};
    struct step_sum sum;
    add(words, (struct step_word){.rank = 0, .holds = true, .rounds = 9});
    add(words, (struct step_word){.rank = 1, .rounds = 8});
    assert_int_equal(step_words_read(words, 2, 0, 0, &sum), 0);
    assert_false(sum.late_are_level);
    assert_int_equal(sum.kind, STEP_EMPTY);
}

static void late_ranks_get_the_end_of_the_training(void **state)
{
    uint64_t words[STEP_WORDS_COUNT] = {0};
    struct step_sum sum;
    add(words, (struct step_word){.rank = 0, .holds = true, .is_end = true, .rounds = 9});
    add(words, (struct step_word){.rank = 1, .is_end = true, .rounds = 8});
    assert_int_equal(step_words_read(words, 2, 1, 0, &sum), 0);
    assert_true(sum.kind == STEP_END);
    /* rank 2 has the state, but does not report the end of the training */
    add(words, (struct step_word){.rank = 2, .holds = true, .rounds = 9});
    assert_int_equal(step_words_read(words, 3, 1, 0, &sum), -EPROTO);
}

static void sums_that_no_ranks_send_are_refused(void **state)
{
    uint64_t sound[STEP_WORDS_COUNT] = {0}, words[STEP_WORDS_COUNT];
    struct step_sum sum;
    add(sound,
        (struct step_word){.rank = 0, .holds = true, .is_full = true, .rounds = 9, .print = 5});
    add(sound,
        (struct step_word){.rank = 1, .holds = true, .is_full = true, .rounds = 9, .print = 5});
    assert_int_equal(step_words_read(sound, 2, 1, 5, &sum), 0);
    /* the record belongs to another deal */
    assert_int_equal(step_words_read(sound, 2, 1, 6, &sum), -EINVAL);
    assert_int_equal(step_words_read(sound, 3, 2, 5, &sum), -EPROTO); /* the sum lacks the word of
                                                                       * rank 2 */
    /* the record names a rank that the job does not have */
    assert_int_equal(step_words_read(sound, 1, 0, 5, &sum), -EPROTO);
    for (int i = 0; i < STEP_WORDS_DEAL; i++) {
        memcpy(words, sound, sizeof words);
        words[i] += i == STEP_WORDS_ROUNDS_LATE ? 0 : UINT64_C(1) << 63 | 4;
        int error = step_words_read(words, 2, 1, 5, &sum);
        assert_true(i == STEP_WORDS_ROUNDS_LATE || i == STEP_WORDS_ROUNDS ? error == 0
                                                                          : error == -EPROTO);
    }
    memset(words, 0, sizeof words);
    add(words, (struct step_word){.rank = 0});
    assert_int_equal(step_words_read(words, 1, 0, 0, &sum), -EOWNERDEAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_worker_deals_as_the_giver_does),
        cmocka_unit_test(a_state_of_any_other_length_is_refused),
        cmocka_unit_test(the_state_of_another_deal_is_refused),
        cmocka_unit_test(changed_words_are_refused_or_harmless),
        cmocka_unit_test(the_sum_of_the_ranks_words_is_the_record),
        cmocka_unit_test(a_record_names_the_rest_that_a_rank_knows),
        cmocka_unit_test(all_ranks_detect_a_late_rank_with_another_number_of_rounds),
        cmocka_unit_test(late_ranks_get_the_end_of_the_training),
        cmocka_unit_test(sums_that_no_ranks_send_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
