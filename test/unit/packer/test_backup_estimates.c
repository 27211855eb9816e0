/* Tests the estimates from which the rules decide about rounds (packer/backup/README.md, BK1 to
 * BK6, BK9). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packer/backup/cells.h"
#include "packer/backup/gain.h"
#include "packer/backup/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_near(double value, double wanted, double part)
{
    if (!(fabs(value - wanted) <= part * fabs(wanted)))
        fail_msg("%g is not within %g %% of %g", value, 100 * part, wanted);
}

static double normal(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += drand48();
    return sum - 6;
}

/* --- BK1: V and N --- */

static void the_variance_of_two_gradients_divides_by_one(void **state)
{
    struct gain_sample s;
    assert_true(gain_sample(2, 2, 0, &s)); /* in this round the gradients are 1 and -1 */
    assert_true(s.variance == 2);
    assert_true(s.signal == -1);
}

static void noise_and_signal_are_found_without_a_bias(void **state)
{
    enum { D = 20, K = 5, ROUNDS = 4000 };
    double variance = 0, signal = 0;
    srand48(3);
    for (int round = 0; round < ROUNDS; round++) {
        double mean[D] = {0}, squares = 0, mean_squares = 0;
        struct gain_sample s;
        for (int i = 0; i < K; i++)
            for (int j = 0; j < D; j++) {
                double g = 0.5 + 2 * normal();
                squares += g * g;
                mean[j] += g / K;
            }
        for (int j = 0; j < D; j++)
            mean_squares += mean[j] * mean[j];
        assert_true(gain_sample(K, squares, mean_squares, &s));
        variance += s.variance / ROUNDS;
        signal += s.signal / ROUNDS;
    }
    assert_near(variance, 4 * D, 0.02);
    assert_near(signal, 0.25 * D, 0.05);
}

static void gradients_without_a_sample_leave_the_estimate_unchanged(void **state)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, 1e308};
    struct gain_sample s = {.k = 7};
    assert_false(gain_sample(0, 1, 1, &s));
    assert_false(gain_sample(1, 1, 1, &s));
    for (size_t i = 0; i < 3; i++) {
        assert_false(gain_sample(4, bad[i], 1, &s));
        assert_false(gain_sample(4, 1, bad[i], &s));
    }
    assert_false(gain_sample(4, 1e308, -1e308, &s));
    assert_true(s.k == 7);
}

/* --- BK2: the gain --- */

static void the_gain_rises_with_k_towards_its_bound(void **state)
{
    const struct gain gain = {.noise = 10, .curvature = 1};
    assert_near(gain_value(&gain, 1, 10), 1 - 0.5 * 2, 1e-12);
    assert_near(gain_value(&gain, 1, 20), 1 - 0.5 * 1.5, 1e-12);
    assert_near(gain_value(&gain, 0.5, 10), 0.5 * (1 - 0.25 * 2), 1e-12);
    for (int k = 1; k < 64; k++)
        assert_true(gain_value(&gain, 1, k) < gain_value(&gain, 1, k + 1));
    assert_true(gain_value(&gain, 1, 1e9) < 0.5);
}

/* --- BK3: the windows of auto --- */

static struct gain_sample sample_of(double variance, double signal, double mean, double product)
{
    return (struct gain_sample){.k = 8,
                                .step = 1,
                                .variance = variance,
                                .signal = signal,
                                .mean = mean,
                                .product = product,
                                .loss = NAN,
                                .rate = NAN};
}

static void nothing_is_known_without_a_sample(void **state)
{
    struct gain_windows w = {0};
    struct gain_recent r = {0};
    assert_false(gain_windows_read(&w).is_known);
    assert_false(gain_recent_read(&r).is_known);
    assert_false(gain_recent_rises(&r));
}

static void steady_samples_are_their_own_mean(void **state)
{
    struct gain_windows w = {0};
    const struct gain_sample s = sample_of(30, 2, 4, 0);
    for (int i = 0; i < 4000; i++)
        gain_windows_add(&w, &s);
    struct gain gain = gain_windows_read(&w);
    assert_near(gain.noise, 15, 1e-9);
    /* the samples give (2 - 0)/4; the assumed curvature of 1 still has the weight of 5 rounds */
    assert_near(gain.curvature, 0.5, 0.01);
}

/* Late in a run c is 0.05 and V/N 450. After 100 rounds the estimated curvature still contains a
 * few hundredths of the assumption that c is 1, so the estimated gain is negative. The measured
 * gain is exact. */
static void the_measured_gain_has_no_assumption(void **state)
{
    struct gain_windows w = {0};
    struct gain_sample s = sample_of(450, 1, 29, NAN);
    double made = (1 + 1 - 0.05 * 29) / 2;
    gain_windows_add(&w, &s);
    s.product = 1 - 0.05 * 29;
    for (int i = 1; i <= 100; i++) {
        gain_windows_add(&w, &s);
        if (i < GAIN_MADE_ROUNDS)
            assert_true(isnan(gain_windows_read(&w).made));
        else
            assert_near(gain_windows_read(&w).made, made, 1e-9);
    }
    struct gain gain = gain_windows_read(&w);
    assert_true(gain_value(&gain, 1, 450 / 28.0) < 0);
    assert_near(gain_value(&(struct gain){.noise = 450, .curvature = 0.05}, 1, 450 / 28.0), made,
                1e-9);
}

/* When a signal becomes smaller, the estimate of a short window follows soon. */
static void a_fallen_signal_is_noticed_within_a_few_rounds(void **state)
{
    struct gain_windows w = {0};
    struct gain_sample s = sample_of(30, 2, 4, 0);
    for (int i = 0; i < 400; i++)
        gain_windows_add(&w, &s);
    s.signal = 0.1;
    for (int i = 0; i < 30; i++)
        gain_windows_add(&w, &s);
    assert_true(gain_windows_read(&w).noise > 100);
}

/* For samples near zero the upper bound of the longest window decides, and no single window has an
 * effect. */
static void noise_without_a_signal_stays_bounded(void **state)
{
    struct gain_windows w = {0};
    srand48(5);
    for (int i = 0; i < 1000; i++) {
        struct gain_sample s = sample_of(30, normal(), 4, 4 * normal());
        gain_windows_add(&w, &s);
        struct gain gain = gain_windows_read(&w);
        assert_true(gain.noise >= 0 && gain.noise <= GAIN_NOISE_MAX);
        assert_true(gain.curvature >= 0 && gain.curvature <= GAIN_CURVATURE_MAX);
    }
    struct gain_sample s = sample_of(30, -1, 4, 0);
    struct gain_windows negative = {0};
    for (int i = 0; i < 400; i++)
        gain_windows_add(&negative, &s);
    assert_true(gain_windows_read(&negative).noise == GAIN_NOISE_MAX);
}

/* Simulates noisy gradient descent on the loss h |w|^2/2 with rate 0.4 and h = 1, so c is 0.4. */
static void curvature_is_found_from_the_fall_of_the_product(void **state)
{
    enum { D = 20, K = 4 };
    struct gain_windows w = {0};
    double weights[D] = {0}, former[D] = {0};
    srand48(19);
    for (int round = 0; round < 2000; round++) {
        double mean[D] = {0}, squares = 0, mean_squares = 0, product = 0;
        struct gain_sample s;
        for (int i = 0; i < K; i++)
            for (int j = 0; j < D; j++) {
                double g = weights[j] + normal();
                squares += g * g;
                mean[j] += g / K;
            }
        for (int j = 0; j < D; j++) {
            mean_squares += mean[j] * mean[j];
            product += mean[j] * former[j];
            former[j] = mean[j];
            weights[j] -= 0.4 * mean[j];
        }
        assert_true(gain_sample(K, squares, mean_squares, &s));
        s.product = round > 0 ? product : NAN;
        gain_windows_add(&w, &s);
    }
    assert_near(gain_windows_read(&w).curvature, 0.4, 0.3);
}

static void curvature_is_one_before_it_is_measured(void **state)
{
    struct gain_windows w = {0};
    const struct gain_sample s = sample_of(1, 1, 1, NAN);
    for (int i = 0; i < 50; i++)
        gain_windows_add(&w, &s);
    assert_true(gain_windows_read(&w).curvature == 1);
}

/* --- BK4: the means of DBW --- */

/* Simulates gradient descent with the loss h w^2/2, rate 0.1 and h = 4, so c is 0.4. */
static void curvature_is_found_from_losses_and_rate(void **state)
{
    struct gain_recent r = {0};
    double w = 1, h = 4, rate = 0.1;
    for (int i = 0; i < 50; i++) {
        struct gain_sample s = sample_of(0, h * h * w * w, h * h * w * w, NAN);
        s.loss = h * w * w / 2;
        s.rate = rate;
        gain_recent_add(&r, &s);
        w -= rate * h * w;
    }
    assert_near(gain_recent_read(&r).curvature, rate * h, 1e-6);
}

static void a_changed_rate_drops_the_former_rounds(void **state)
{
    struct gain_recent r = {0};
    struct gain_sample s = sample_of(100, 1, 4, NAN);
    s.loss = 1;
    s.rate = 0.3;
    for (int i = 0; i < 50; i++)
        gain_recent_add(&r, &s);
    assert_near(gain_recent_read(&r).noise, 100, 1e-9);
    s.rate = 0.09;
    s.variance = 10;
    gain_recent_add(&r, &s);
    assert_near(gain_recent_read(&r).noise, 10, 1e-9);
}

static void only_the_last_twenty_rounds_count(void **state)
{
    struct gain_recent r = {0};
    struct gain_sample s = sample_of(100, 1, 4, NAN);
    for (int i = 0; i < 137; i++)
        gain_recent_add(&r, &s);
    s.variance = 10;
    for (int i = 0; i < 19; i++)
        gain_recent_add(&r, &s);
    assert_near(gain_recent_read(&r).noise, (100 + 19 * 10) / 20.0, 1e-9);
    gain_recent_add(&r, &s);
    assert_near(gain_recent_read(&r).noise, 10, 1e-9);
}

static void a_rise_of_the_loss_is_more_than_a_hundredth(void **state)
{
    struct gain_recent r = {0};
    struct gain_sample s = sample_of(1, 1, 1, NAN);
    s.loss = 1;
    gain_recent_add(&r, &s);
    s.loss = 1.009;
    gain_recent_add(&r, &s);
    assert_false(gain_recent_rises(&r));
    s.loss = 1.03;
    gain_recent_add(&r, &s);
    assert_true(gain_recent_rises(&r));
}

/* --- BK5, BK6: scales and the curve --- */

static void a_scale_is_the_time_of_a_completed_gradient(void **state)
{
    struct pace_curve curve;
    struct pace_rank rank = {0};
    pace_curve_init(&curve, 4);
    assert_true(pace_scale_ns(&rank) == 0);
    pace_finished(&curve, &rank, 100);
    assert_near(pace_scale_ns(&rank), 100, 1e-12);
    for (int i = 0; i < 60; i++)
        pace_finished(&curve, &rank, 500);
    assert_near(pace_scale_ns(&rank), 500, 0.01);
}

/* The time of an interrupted gradient adds to the scale. Half of the gradients are interrupted
 * after half of their time. */
static void interrupted_work_lengthens_the_scale(void **state)
{
    struct pace_curve curve;
    struct pace_rank rank = {0};
    pace_curve_init(&curve, 4);
    for (int i = 0; i < 100; i++) {
        pace_finished(&curve, &rank, 100);
        pace_interrupted(&curve, &rank, 50);
    }
    assert_near(pace_scale_ns(&rank), 150, 0.05);
}

static void equal_durations_end_at_one_scale(void **state)
{
    struct pace_curve curve;
    struct pace_rank rank = {0};
    pace_curve_init(&curve, 4);
    for (int i = 0; i < 100; i++)
        pace_finished(&curve, &rank, 100);
    pace_curve_fit(&curve);
    assert_true(pace_survival(&curve, 0) == 1);
    assert_true(pace_survival(&curve, 0.9) == 1);
    assert_true(pace_survival(&curve, 1.2) == 0);
    assert_true(pace_survival(&curve, 1e30) == 0);
}

static void the_curve_of_an_exponential_is_found(void **state)
{
    struct pace_curve curve;
    struct pace_rank rank = {.time_ns = 1e12, .gradients = 1e9}; /* the scale is 1000 */
    pace_curve_init(&curve, 200);
    srand48(9);
    for (int i = 0; i < 40000; i++) {
        struct pace_rank one = rank;
        pace_finished(&curve, &one, -1000 * log(1 - drand48()));
    }
    pace_curve_fit(&curve);
    for (double x = 0.25; x < 3; x += 0.25)
        assert_near(pace_survival(&curve, x), exp(-x), 0.1);
}

/* Half of the gradients are interrupted at a random time. The estimated survival must not
 * change. */
static void an_interrupted_gradient_is_not_an_end(void **state)
{
    struct pace_curve curve;
    struct pace_rank rank = {.time_ns = 1e12, .gradients = 1e9};
    pace_curve_init(&curve, 200);
    srand48(11);
    for (int i = 0; i < 40000; i++) {
        struct pace_rank one = rank;
        double end = -1000 * log(1 - drand48()), cut = -1000 * log(1 - drand48());
        if (end < cut)
            pace_finished(&curve, &one, end);
        else
            pace_interrupted(&curve, &one, cut);
    }
    pace_curve_fit(&curve);
    for (double x = 0.25; x < 2; x += 0.25)
        assert_near(pace_survival(&curve, x), exp(-x), 0.15);
}

static void survival_never_rises(void **state)
{
    struct pace_curve curve;
    struct pace_rank rank = {0};
    pace_curve_init(&curve, 16);
    srand48(13);
    for (int i = 0; i < 5000; i++) {
        double ns = exp(8 * drand48());
        if (drand48() < 0.5)
            pace_finished(&curve, &rank, ns);
        else
            pace_interrupted(&curve, &rank, ns);
    }
    pace_curve_fit(&curve);
    double before = 1;
    for (double x = 1e-4; x < 1e4; x *= 1.01) {
        double now = pace_survival(&curve, x);
        assert_true(now <= before && now >= 0);
        before = now;
    }
}

/* --- BK9: the cells --- */

#define W 6

static void fill(struct cells *cells, float *memory) { cells_init(cells, W, memory); }

static void a_monotone_table_is_its_own_fit(void **state)
{
    float memory[5 * W * W];
    struct cells cells;
    fill(&cells, memory);
    for (uint32_t h = 1; h <= W; h++)
        for (uint32_t i = 1; i <= W; i++)
            cells_add(&cells, h, i, 100 * i + 10 * (W - h));
    cells_fit(&cells);
    for (uint32_t h = 1; h <= W; h++)
        for (uint32_t i = 1; i <= W; i++)
            assert_near(cells_time(&cells, h, i), 100 * i + 10 * (W - h), 1e-5);
}

static void a_fit_is_monotone_in_both_directions(void **state)
{
    float memory[5 * W * W];
    struct cells cells;
    srand48(17);
    for (int table = 0; table < 50; table++) {
        fill(&cells, memory);
        for (int i = 0; i < 100; i++)
            cells_add(&cells, 1 + (uint32_t)(drand48() * W), 1 + (uint32_t)(drand48() * W),
                      1000 * drand48());
        cells_fit(&cells);
        for (uint32_t h = 1; h <= W; h++)
            for (uint32_t i = 1; i <= W; i++) {
                double time = cells_time(&cells, h, i);
                assert_true(i == W || time <= cells_time(&cells, h, i + 1) + 5);
                assert_true(h == W || time >= cells_time(&cells, h + 1, i) - 5);
            }
    }
}

static void neighbours_in_the_wrong_order_share_their_mean(void **state)
{
    float memory[5 * 4];
    struct cells cells;
    cells_init(&cells, 2, memory);
    for (uint32_t h = 1; h <= 2; h++) {
        for (int i = 0; i < 3; i++)
            cells_add(&cells, h, 1, 200);
        cells_add(&cells, h, 2, 100);
    }
    cells_fit(&cells);
    for (uint32_t i = 1; i <= 2; i++)
        assert_near(cells_time(&cells, 2, i), (3 * 200 + 100) / 4.0, 1e-5);
}

/* The estimate of an empty cell is the least time that is consistent with the times of its
 * neighbours. */
static void an_empty_cell_takes_the_least_time_that_its_neighbours_allow(void **state)
{
    float memory[5 * W * W];
    struct cells cells;
    fill(&cells, memory);
    for (uint32_t i = 1; i <= 4; i++)
        cells_add(&cells, W, i, 100 * i);
    cells_fit(&cells);
    assert_near(cells_time(&cells, W, W), 400, 0.03);
    assert_near(cells_time(&cells, 1, 2), 200, 0.03);
}

static void forgotten_times_give_way_to_new_ones(void **state)
{
    float memory[5 * W * W];
    struct cells cells;
    fill(&cells, memory);
    for (int i = 0; i < 1000; i++)
        cells_add(&cells, 1, W, 100);
    for (int i = 0; i < 400; i++) {
        cells_add(&cells, 1, W, 900);
        cells_forget(&cells, 0.97);
    }
    cells_fit(&cells);
    assert_near(cells_time(&cells, 1, W), 900, 0.05);
    cells_clear(&cells);
    assert_true(cells_time(&cells, 1, W) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_variance_of_two_gradients_divides_by_one),
        cmocka_unit_test(noise_and_signal_are_found_without_a_bias),
        cmocka_unit_test(gradients_without_a_sample_leave_the_estimate_unchanged),
        cmocka_unit_test(the_gain_rises_with_k_towards_its_bound),
        cmocka_unit_test(nothing_is_known_without_a_sample),
        cmocka_unit_test(steady_samples_are_their_own_mean),
        cmocka_unit_test(the_measured_gain_has_no_assumption),
        cmocka_unit_test(a_fallen_signal_is_noticed_within_a_few_rounds),
        cmocka_unit_test(noise_without_a_signal_stays_bounded),
        cmocka_unit_test(curvature_is_found_from_the_fall_of_the_product),
        cmocka_unit_test(curvature_is_one_before_it_is_measured),
        cmocka_unit_test(curvature_is_found_from_losses_and_rate),
        cmocka_unit_test(a_changed_rate_drops_the_former_rounds),
        cmocka_unit_test(only_the_last_twenty_rounds_count),
        cmocka_unit_test(a_rise_of_the_loss_is_more_than_a_hundredth),
        cmocka_unit_test(a_scale_is_the_time_of_a_completed_gradient),
        cmocka_unit_test(interrupted_work_lengthens_the_scale),
        cmocka_unit_test(equal_durations_end_at_one_scale),
        cmocka_unit_test(the_curve_of_an_exponential_is_found),
        cmocka_unit_test(an_interrupted_gradient_is_not_an_end),
        cmocka_unit_test(survival_never_rises),
        cmocka_unit_test(a_monotone_table_is_its_own_fit),
        cmocka_unit_test(a_fit_is_monotone_in_both_directions),
        cmocka_unit_test(neighbours_in_the_wrong_order_share_their_mean),
        cmocka_unit_test(an_empty_cell_takes_the_least_time_that_its_neighbours_allow),
        cmocka_unit_test(forgotten_times_give_way_to_new_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
