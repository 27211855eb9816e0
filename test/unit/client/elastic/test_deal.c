/* Tests the deal of an elastic job (the distribution of samples to ranks). In random histories
 * ranks die, leave and join. Each sample of each epoch must be confirmed exactly once. */
#include "client/lib/elastic/deal.h"
#include "svc/wire/mixed_key.h"
#include "test/lib/extent.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 8
#define SAMPLES_MAX 200
#define EPOCHS_MAX 3
#define STEPS_MAX 4000

static size_t left = SIZE_MAX; /* number of allocations that succeed before one fails */
void *__real_reallocarray(void *memory, size_t count, size_t bytes);
void *__wrap_reallocarray(void *memory, size_t count, size_t bytes);

void *__wrap_reallocarray(void *memory, size_t count, size_t bytes)
{
    if (left == 0)
        return NULL;
    left -= left != SIZE_MAX;
    return __real_reallocarray(memory, count, bytes);
}

enum life { ABSENT, ENTERING, MEMBER, LEAVING };

struct world {
    struct step_deal deal;
    struct deal_spec spec;
    uint64_t state;
    enum life life[RANKS];
    /* first step that a rank may train; 0: the rank was in the job from the start */
    uint64_t first_step[RANKS];
    uint32_t deaths_ppm, changes_ppm, alive;
    uint32_t confirmed[EPOCHS_MAX][SAMPLES_MAX], trained[EPOCHS_MAX][SAMPLES_MAX];
    /* number of samples in the last shares of dead ranks; at most this number of samples is trained
     * again */
    uint64_t repeated_most;
};

static uint64_t draw(struct world *w, uint64_t below) { return mixed_key(w->state++, 1) % below; }
static bool happens(struct world *w, uint32_t ppm) { return draw(w, 1000000) < ppm; }

static void world_init(struct world *w, uint64_t seed)
{
    uint64_t members[RANKS_WORDS] = {0};
    *w = (struct world){.state = seed << 32};
    uint32_t least = (uint32_t)draw(w, 4), batch = least + 1 + (uint32_t)draw(w, 60);
    bool is_per_worker = draw(w, 3) == 0;
    w->spec = (struct deal_spec){.samples = least + 1 + draw(w, SAMPLES_MAX - least),
                                 .epochs = 1 + draw(w, 3),
                                 .batch = is_per_worker ? 0 : batch,
                                 .batch_per_worker = is_per_worker ? 1 + batch / 3 + least : 0,
                                 .seed = seed,
                                 .prefetch = (uint32_t)draw(w, 5),
                                 .share_least = least};
    w->deaths_ppm = draw(w, 2) ? 0 : (uint32_t)draw(w, 100000);
    w->changes_ppm = draw(w, 3) ? (uint32_t)draw(w, 300000) : 0;
    w->alive = 1 + (uint32_t)draw(w, RANKS);
    for (uint32_t rank = 0; rank < w->alive; rank++) {
        w->life[rank] = MEMBER;
        ranks_add(members, rank);
    }
    assert_int_equal(deal_init(&w->deal, &w->spec, members), 0);
}

/* Counts the samples of a share of a step. */
static void count_share(struct world *w, uint64_t number, uint32_t rank,
                        uint32_t counts[][SAMPLES_MAX])
{
    uint64_t samples[SAMPLES_MAX];
    const struct deal_step *step = deal_step(&w->deal, number);
    if (step == NULL)
        return;
    size_t count = deal_samples(&w->deal, step, rank, 0, samples, SAMPLES_MAX);
    assert_int_equal(count, deal_share(step, rank));
    for (size_t i = 0; i < count; i++)
        counts[step->epoch][samples[i]]++;
}

/* A rank that dies before record t may have trained its shares of steps t - 1 and t. */
static void die(struct world *w, uint32_t rank, uint64_t t)
{
    for (uint64_t number = t > 1 ? t - 1 : 1; number <= t; number++) {
        const struct deal_step *step = deal_step(&w->deal, number);
        w->repeated_most += step ? deal_share(step, rank) : 0;
    }
    uint64_t steps = draw(w, 3);
    for (uint64_t number = t > 1 ? t - 1 : 1; steps > 0 && number <= t; number++, steps--)
        count_share(w, number, rank, w->trained);
    w->life[rank] = ABSENT;
    w->alive--;
}

static bool has_shares(const struct world *w, uint32_t rank, uint64_t t)
{
    for (uint64_t number = t > 1 ? t - 1 : 1; number <= t + w->spec.prefetch; number++) {
        const struct deal_step *step = deal_step(&w->deal, number);
        if (step && deal_share(step, rank) > 0)
            return true;
    }
    return false;
}

static uint32_t holders(const struct world *w)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        count += w->life[rank] >= MEMBER;
    return count;
}

/* Lets ranks die, leave and join between record t - 1 and record t. */
static void change_ranks(struct world *w, uint64_t t)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        bool is_last = w->life[rank] >= MEMBER && holders(w) == 1;
        if (w->life[rank] != ABSENT && !is_last && happens(w, w->deaths_ppm))
            die(w, rank, t);
        else if (w->life[rank] == ENTERING)
            w->life[rank] = MEMBER;
        else if (w->life[rank] == LEAVING && !is_last && !has_shares(w, rank, t))
            w->life[rank] = ABSENT;
        else if (w->life[rank] == ABSENT && happens(w, w->changes_ppm)) {
            w->life[rank] = ENTERING;
            w->first_step[rank] = t + 2 + w->spec.prefetch;
        } else if (w->life[rank] == MEMBER && happens(w, w->changes_ppm))
            w->life[rank] = LEAVING;
    }
}

static struct deal_record record_of(const struct world *w)
{
    struct deal_record record = {0};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (w->life[rank] != ABSENT)
            ranks_add(record.present, rank);
        if (w->life[rank] >= MEMBER)
            ranks_add(record.holds, rank);
        if (w->life[rank] == LEAVING)
            ranks_add(record.leaving, rank);
    }
    return record;
}

/* Shares of a step differ by at most one sample. A member without a share is allowed only if one
 * more share would make shares smaller than the minimum. */
static void assert_divided(const struct world *w, const struct deal_step *step)
{
    uint64_t least = UINT64_MAX, most = 0, sum = 0, sharers = 0;
    uint64_t members = ranks_count(step->members), allowed = w->spec.share_least ?: 1;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        uint64_t share = deal_share(step, rank);
        least = share > 0 && share < least ? share : least;
        most = share > most ? share : most;
        sum += share;
        sharers += share > 0;
    }
    assert_int_equal(sum, step->runs.samples);
    assert_true(sum == 0 || (most - least <= 1 && least >= allowed));
    assert_true(sharers == members || sum / (sharers + 1) < allowed);
    uint64_t batch = w->spec.batch ? w->spec.batch : w->spec.batch_per_worker * members;
    assert_true(sum < batch + allowed && sum <= deal_step_most(&w->spec));
    bool is_usual = sum >= batch && members * allowed <= batch;
    assert_true(!is_usual || w->spec.batch || least >= w->spec.batch_per_worker);
}

/* Runs a history to the end of the training. Returns the number of empty steps. */
static uint64_t run(struct world *w)
{
    uint64_t empty = 0;
    for (uint64_t t = 1; t < STEPS_MAX; t++) {
        change_ranks(w, t);
        struct deal_record record = record_of(w);
        for (uint32_t rank = 0; t > 1 && rank < RANKS; rank++) {
            if (!ranks_have(record.present, rank) || t - 1 < w->first_step[rank])
                continue;
            count_share(w, t - 1, rank, w->confirmed);
            count_share(w, t - 1, rank, w->trained);
        }
        assert_int_equal(deal_apply(&w->deal, &record), 0);
        assert_null(deal_step(&w->deal, t - 1));
        assert_divided(w, deal_step(&w->deal, t + 1 + w->spec.prefetch));
        const struct deal_step *step = deal_step(&w->deal, t);
        empty += step->runs.samples == 0;
        if (step->is_end)
            return empty - 1;
    }
    fail_msg("the training has not ended");
    return 0;
}

static void assert_trained(const struct world *w, uint64_t seed)
{
    uint64_t repeated = 0;
    for (uint64_t epoch = 0; epoch < w->spec.epochs; epoch++) {
        for (uint64_t sample = 0; sample < w->spec.samples; sample++) {
            if (w->confirmed[epoch][sample] != 1)
                fail_msg("seed %llu: epoch %llu, sample %llu: confirmed %u times",
                         (unsigned long long)seed, (unsigned long long)epoch,
                         (unsigned long long)sample, w->confirmed[epoch][sample]);
            repeated += w->trained[epoch][sample] - 1;
        }
    }
    assert_true(repeated <= w->repeated_most);
}

static void every_sample_is_confirmed_once_in_each_epoch(void **state)
{
    for (uint64_t seed = 1; seed <= extent(3000, 300, 24000); seed++) {
        struct world w;
        world_init(&w, seed);
        run(&w);
        assert_trained(&w, seed);
        deal_fini(&w.deal);
    }
}

static void without_a_death_an_epoch_ends_with_as_many_empty_steps_as_records_are_behind(void **s)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct world w;
        world_init(&w, seed);
        w.deaths_ppm = 0;
        assert_int_equal(run(&w), w.spec.epochs * (1 + w.spec.prefetch));
        assert_int_equal(w.repeated_most, 0);
        deal_fini(&w.deal);
    }
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

static void begin(struct step_deal *deal, uint64_t samples, uint32_t prefetch, uint32_t ranks)
{
    struct deal_spec spec = {.samples = samples, .epochs = 1, .batch = 6, .prefetch = prefetch};
    struct deal_record record = all_of(ranks);
    assert_int_equal(deal_init(deal, &spec, record.present), 0);
}

static void a_rank_that_leaves_has_its_last_share_in_the_step_before_the_next_deal(void **state)
{
    struct step_deal deal;
    struct deal_record record = all_of(3);
    begin(&deal, 1000, 2, 3);
    assert_int_equal(deal_apply(&deal, &record), 0);
    ranks_add(record.leaving, 2);
    assert_int_equal(deal_apply(&deal, &record), 0); /* record 2 deals step 5 */
    assert_int_equal(deal_share(deal_step(&deal, 4), 2), 2);
    assert_int_equal(deal_share(deal_step(&deal, 5), 2), 0);
    assert_int_equal(deal_share(deal_step(&deal, 5), 0), 3);
    deal_fini(&deal);
}

static void a_leave_of_the_last_member_has_no_effect(void **state)
{
    struct step_deal deal;
    struct deal_record record = all_of(2);
    begin(&deal, 1000, 0, 2);
    ranks_add(record.leaving, 0);
    ranks_add(record.leaving, 1);
    assert_int_equal(deal_apply(&deal, &record), 0);
    assert_int_equal(deal_share(deal_step(&deal, 2), 1), 3);
    deal_fini(&deal);
}

static void a_late_rank_has_a_share_once_it_holds_the_state(void **state)
{
    struct step_deal deal;
    struct deal_record record = all_of(2);
    begin(&deal, 1000, 1, 2);
    ranks_add(record.present, 700);
    assert_int_equal(deal_apply(&deal, &record), 0);
    assert_int_equal(deal_share(deal_step(&deal, 3), 700), 0);
    ranks_add(record.holds, 700);
    assert_int_equal(deal_apply(&deal, &record), 0);
    assert_int_equal(deal_share(deal_step(&deal, 4), 700), 2);
    deal_fini(&deal);
}

static void shares_of_a_lost_rank_are_dealt_at_the_end_of_the_epoch(void **state)
{
    struct step_deal deal;
    struct deal_record both = all_of(2), one = all_of(1);
    begin(&deal, 18, 0, 2);
    assert_int_equal(deal_apply(&deal, &both),
                     0); /* record 1 deals step 2, which has the places 6 to 11 */
    /* rank 1 is lost with samples 3 to 5 and 9 to 11 */
    assert_int_equal(deal_apply(&deal, &one), 0);
    assert_int_equal(deal_step(&deal, 3)->runs.samples, 6);
    assert_int_equal(deal_apply(&deal, &one), 0);
    const struct deal_step *again = deal_step(&deal, 4);
    assert_int_equal(again->runs.count, 2);
    assert_int_equal(again->runs.runs[0].first, 3);
    assert_int_equal(again->runs.runs[1].first, 9);
    assert_int_equal(deal_share(again, 0), 6);
    deal_fini(&deal);
}

static void a_member_that_comes_back_without_the_state_is_lost(void **state)
{
    struct step_deal deal;
    struct deal_record both = all_of(2), back = all_of(2);
    memset(back.holds, 0, sizeof back.holds);
    ranks_add(back.holds, 0);
    begin(&deal, 18, 0, 2);
    assert_int_equal(deal_apply(&deal, &both), 0);
    assert_int_equal(deal_apply(&deal, &back), 0); /* rank 1 loses samples 3 to 5 and 9 to 11 */
    assert_int_equal(deal_share(deal_step(&deal, 3), 0), 6);
    assert_int_equal(deal_share(deal_step(&deal, 2), 1), 0);
    assert_int_equal(deal_apply(&deal, &both), 0);
    assert_int_equal(deal_share(deal_step(&deal, 4), 1), 3);
    assert_int_equal(deal_step(&deal, 4)->runs.samples, 6);
    deal_fini(&deal);
}

static void a_batch_per_worker_grows_with_the_members(void **state)
{
    struct deal_spec spec = {.samples = 40, .epochs = 1, .batch_per_worker = 4};
    struct deal_record two = all_of(2), three = all_of(3);
    struct step_deal deal;
    assert_int_equal(deal_init(&deal, &spec, two.present), 0);
    assert_int_equal(deal_step(&deal, 1)->runs.samples, 8);
    assert_int_equal(deal_apply(&deal, &three), 0);
    assert_int_equal(deal_step(&deal, 2)->runs.samples, 12);
    assert_int_equal(deal_share(deal_step(&deal, 2), 2), 4);
    assert_int_equal(deal_apply(&deal, &two), 0); /* rank 2 is lost with 4 of its samples */
    assert_int_equal(deal_step(&deal, 3)->runs.samples, 8);
    deal_fini(&deal);
}

static void no_share_is_smaller_than_the_least(void **state)
{
    struct deal_spec spec = {.samples = 13, .epochs = 1, .batch = 6, .share_least = 2};
    struct deal_record four = all_of(4);
    struct step_deal deal;
    assert_int_equal(deal_init(&deal, &spec, four.present), 0);
    assert_int_equal(deal_share(deal_step(&deal, 1), 2), 2);
    assert_int_equal(deal_share(deal_step(&deal, 1), 3), 0);
    assert_int_equal(deal_apply(&deal, &four), 0);
    assert_int_equal(deal_step(&deal, 2)->runs.samples, 7); /* the step has all remaining samples,
                                                             * because one sample alone would be too
                                                             * few */
    assert_int_equal(deal_share(deal_step(&deal, 2), 0), 3);
    deal_fini(&deal);
}

static void a_job_without_members_is_over(void **state)
{
    struct step_deal deal;
    struct deal_record record = {0};
    begin(&deal, 18, 0, 2);
    ranks_add(record.present, 5); /* rank 5 has joined late, and has no state */
    assert_int_equal(deal_apply(&deal, &record), -EOWNERDEAD);
    deal_fini(&deal);
}

static void settings_without_sense_are_refused(void **state)
{
    static const struct deal_spec sound = {.samples = 1, .epochs = 1, .batch = 1};
    struct deal_record one = all_of(1), none = {0};
    struct step_deal deal;
    for (int wrong = 0; wrong < 8; wrong++) {
        struct deal_spec spec = sound;
        spec.samples = wrong == 0 ? 0 : 1;
        spec.epochs = wrong == 1 ? 0 : 1;
        spec.batch = wrong == 2 ? 0 : 1;
        spec.prefetch = wrong == 3 ? DEAL_PREFETCH_MAX + 1 : 0;
        spec.batch_per_worker = wrong == 5 ? 1 : 0;
        spec.share_least = wrong >= 6 ? 2 : 0;
        spec.batch = wrong == 6 ? 2 : spec.batch; /* one sample is too few for a share of two */
        spec.samples = wrong == 7 ? 2 : spec.samples;
        assert_int_equal(deal_init(&deal, &spec, wrong == 4 ? none.present : one.present), -EINVAL);
        deal_fini(&deal);
    }
}

static void the_order_of_an_epoch_is_a_permutation_of_its_own(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 100, 4096, 4097, 70000};
    uint64_t same = 0;
    bool *seen = calloc(70000, sizeof *seen);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct deal_spec spec = {.samples = sizes[i], .seed = 7};
        memset(seen, 0, 70000 * sizeof *seen);
        for (uint64_t place = 0; place < spec.samples; place++) {
            uint64_t sample = deal_sample(&spec, 3, place);
            assert_true(sample < spec.samples && !seen[sample]);
            seen[sample] = true;
            same += spec.samples == 70000 && sample == deal_sample(&spec, 4, place);
        }
    }
    assert_true(same < 20); /* by chance, on average one sample has the same place in both epochs */
    free(seen);
}

/* Compares with stored samples: the order must be the same in every release. */
static void the_order_of_an_epoch_is_known(void **state)
{
    struct deal_spec spec = {.samples = 1797, .seed = 1};
    uint64_t samples[4];
    for (uint64_t place = 0; place < 4; place++)
        samples[place] = deal_sample(&spec, 0, place);
    static const uint64_t known[4] = {16, 1735, 1559, 1345};
    assert_memory_equal(samples, known, sizeof known);
}

static void the_nth_allocation_fails(void **state)
{
    int error = -ENOMEM;
    for (size_t n = 0; error == -ENOMEM; n++) {
        struct deal_spec spec = {.samples = 100, .epochs = 1, .batch = 10, .prefetch = 3};
        struct deal_record three = all_of(3), two = all_of(2);
        struct step_deal deal;
        left = n;
        error = deal_init(&deal, &spec, three.present);
        error = error ? error : deal_apply(&deal, &three);
        error = error ? error : deal_apply(&deal, &two);
        left = SIZE_MAX;
        assert_true(error == 0 || error == -ENOMEM);
        assert_true(n > 0 || error == -ENOMEM);
        deal_fini(&deal);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_confirmed_once_in_each_epoch),
        cmocka_unit_test(
            without_a_death_an_epoch_ends_with_as_many_empty_steps_as_records_are_behind),
        cmocka_unit_test(a_rank_that_leaves_has_its_last_share_in_the_step_before_the_next_deal),
        cmocka_unit_test(a_leave_of_the_last_member_has_no_effect),
        cmocka_unit_test(a_late_rank_has_a_share_once_it_holds_the_state),
        cmocka_unit_test(shares_of_a_lost_rank_are_dealt_at_the_end_of_the_epoch),
        cmocka_unit_test(a_member_that_comes_back_without_the_state_is_lost),
        cmocka_unit_test(a_batch_per_worker_grows_with_the_members),
        cmocka_unit_test(no_share_is_smaller_than_the_least),
        cmocka_unit_test(a_job_without_members_is_over),
        cmocka_unit_test(settings_without_sense_are_refused),
        cmocka_unit_test(the_order_of_an_epoch_is_a_permutation_of_its_own),
        cmocka_unit_test(the_order_of_an_epoch_is_known),
        cmocka_unit_test(the_nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
