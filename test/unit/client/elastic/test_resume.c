/* Tests cursors of deals (a deal distributes samples to ranks): a later job with other ranks uses
 * each sample that no step has used, exactly once. */
#include "client/lib/elastic/resume.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 6
#define SAMPLES 211
#define EPOCHS 3
#define STEPS_MAX 4000

/* Number of times that steps have used each sample. */
struct use {
    uint32_t times[EPOCHS][SAMPLES];
};

static struct deal_spec spec_of(uint64_t seed)
{
    uint32_t prefetch = (uint32_t)(mixed_key(seed, 3) % 5);
    return (struct deal_spec){.samples = SAMPLES,
                              .epochs = EPOCHS,
                              .seed = seed,
                              .batch = 24,
                              .prefetch = prefetch,
                              .share_least = 1 + (uint32_t)(seed % 3)};
}

static struct deal_record all_of(uint32_t ranks)
{
    struct deal_record record = {0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        ranks_add(record.present, rank);
        ranks_add(record.holds, rank);
    }
    return record;
}

/* Returns the record of a step. If `loses`, some ranks have died, but never rank 0. */
static struct deal_record record_of(uint64_t seed, uint64_t t, uint32_t ranks, bool loses)
{
    struct deal_record record = all_of(1);
    for (uint32_t rank = 1; rank < ranks; rank++) {
        if (loses && mixed_key(t * RANKS + rank, seed) % 8 == 0)
            continue;
        ranks_add(record.present, rank);
        ranks_add(record.holds, rank);
    }
    return record;
}

/* Counts the samples of a step, in the shares of the ranks that confirm the step. */
static void use_step(struct use *use, const struct step_deal *deal, uint64_t number,
                     const uint64_t *confirm)
{
    uint64_t samples[SAMPLES];
    const struct deal_step *step = deal_step(deal, number);
    for (uint32_t rank = 0; step && rank < RANKS; rank++) {
        if (!ranks_have(confirm, rank))
            continue;
        size_t count = deal_samples(deal, step, rank, 0, samples, SAMPLES);
        for (size_t i = 0; i < count; i++)
            use->times[step->epoch][samples[i]]++;
    }
}

/* Makes steps until step `last` is complete on all ranks, or until the end. Returns whether the
 * end was reached. */
static bool make_steps(struct step_deal *deal, uint64_t seed, uint32_t ranks, bool loses,
                       uint64_t last, struct use *use)
{
    while (deal->record < last) {
        struct deal_record record = record_of(seed, deal->record + 1, ranks, loses);
        if (deal->record > 0)
            use_step(use, deal, deal->record, record.holds);
        assert_int_equal(deal_apply(deal, &record), 0);
        if (deal_step(deal, deal->record)->is_end)
            return true;
    }
    struct deal_record all = all_of(RANKS);
    use_step(use, deal, deal->record, all.holds);
    return false;
}

static uint64_t *cursor_of(const struct step_deal *deal, uint64_t before, size_t *ret_count)
{
    *ret_count = resume_words(deal);
    uint64_t *words = malloc(*ret_count * sizeof *words);
    assert_non_null(words);
    resume_write(deal, before, words);
    return words;
}

static void each_sample_is_used_once_over_any_number_of_rests(void **state)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct deal_spec spec = spec_of(seed);
        struct deal_record first = all_of(1 + seed % RANKS);
        struct step_deal deal, next;
        struct use use = {0};
        uint64_t before = 0, steps = 0;
        assert_int_equal(deal_init(&deal, &spec, first.present), 0);
        for (uint64_t job = 0;; job++) {
            uint32_t ranks = 1 + (uint32_t)((seed + job) % RANKS);
            size_t count;
            if (make_steps(&deal, seed + job, ranks, seed % 2, 1 + mixed_key(job, seed) % 14, &use))
                break;
            steps += deal.record;
            uint64_t *words = cursor_of(&deal, before, &count);
            struct deal_record members = all_of(1 + (uint32_t)((seed + job + 1) % RANKS));
            assert_int_equal(resume_read(words, count, &spec, members.present, &next, &before), 0);
            assert_int_equal(before, steps);
            free(words);
            deal_fini(&deal);
            deal = next;
            assert_true(job < STEPS_MAX);
        }
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
            for (uint32_t i = 0; i < SAMPLES; i++)
                assert_int_equal(use.times[epoch][i], 1);
        deal_fini(&deal);
    }
}

/* Lists the samples of rank 1 in all steps from now on. */
static size_t list_samples(struct step_deal *deal, uint64_t *ret_samples)
{
    struct deal_record all = all_of(3);
    size_t count = 0;
    for (uint64_t t = deal->record + 1; !deal_step(deal, t)->is_end; t++) {
        count += deal_samples(deal, deal_step(deal, t), 1, 0, ret_samples + count, SAMPLES);
        assert_int_equal(deal_apply(deal, &all), 0);
    }
    return count;
}

static void the_same_ranks_get_the_same_shares_in_the_same_order(void **state)
{
    static uint64_t without[EPOCHS * SAMPLES], with[EPOCHS * SAMPLES];
    struct deal_record all = all_of(3);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct deal_spec spec = spec_of(seed);
        struct step_deal deal, next;
        uint64_t before;
        size_t count;
        assert_int_equal(deal_init(&deal, &spec, all.present), 0);
        for (uint64_t t = 1 + mixed_key(seed, 9) % 20; t > 0; t--)
            assert_int_equal(deal_apply(&deal, &all), 0);
        uint64_t *words = cursor_of(&deal, 5, &count);
        assert_int_equal(resume_read(words, count, &spec, all.present, &next, &before), 0);
        assert_int_equal(before, 5 + deal.record);
        size_t samples = list_samples(&deal, without);
        assert_int_equal(list_samples(&next, with), samples);
        assert_memory_equal(with, without, samples * sizeof with[0]);
        free(words);
        deal_fini(&deal);
        deal_fini(&next);
    }
}

static void a_cursor_of_another_deal_or_with_other_words_is_refused(void **state)
{
    static const uint64_t values[] = {0, 1, SAMPLES, SAMPLES + 1, UINT32_MAX, UINT64_MAX};
    struct deal_spec spec = spec_of(2), other = spec;
    struct deal_record all = all_of(3);
    struct step_deal deal, next;
    uint64_t before;
    size_t count, refused = 0;
    assert_int_equal(deal_init(&deal, &spec, all.present), 0);
    for (int t = 0; t < 4; t++)
        assert_int_equal(deal_apply(&deal, &all), 0);
    uint64_t *words = cursor_of(&deal, 0, &count);
    other.samples++;
    assert_int_equal(resume_read(words, count, &other, all.present, &next, &before), -EINVAL);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(resume_read(words, i, &spec, all.present, &next, &before), -EBADMSG);
    uint64_t print = resume_print(words, count);
    for (size_t i = 0; i < count * 6; i++) {
        uint64_t kept = words[i / 6];
        words[i / 6] = values[i % 6];
        assert_true(words[i / 6] == kept || resume_print(words, count) != print);
        int error = resume_read(words, count, &spec, all.present, &next, &before);
        refused += error < 0;
        if (error == 0)
            deal_fini(&next);
        words[i / 6] = kept;
    }
    assert_true(refused > count);
    free(words);
    deal_fini(&deal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_is_used_once_over_any_number_of_rests),
        cmocka_unit_test(the_same_ranks_get_the_same_shares_in_the_same_order),
        cmocka_unit_test(a_cursor_of_another_deal_or_with_other_words_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
