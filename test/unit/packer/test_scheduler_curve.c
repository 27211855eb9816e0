/* Tests the speed of jobs as a function of their workers (F1 of packer/elastic). */
#include "packer/elastic/curve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_near(double value, double wanted, double part)
{
    if (!(fabs(value - wanted) <= part * fabs(wanted)))
        fail_msg("%g is not near %g", value, wanted);
}

static double step_s(double one_s, double split, double serial, double wide, uint32_t workers)
{
    return one_s * (split / workers + serial + wide * workers);
}

static void the_first_shape_is_nine_tenths_split(void **state)
{
    struct curve_study study;
    struct curve curve;
    curve_study_init(&study, 7);
    curve_init(&curve, &study);
    assert_near(curve_relative(&curve, 1), 1, 1e-12);
    assert_near(curve_relative(&curve, 4), 1 / (0.9 / 4 + 0.1), 1e-12);
    assert_true(curve_relative(&curve, 0) == 0);
    assert_true(curve_step_s(&curve, 2) == 0);
}

static void one_point_gives_the_time_and_leaves_the_shape(void **state)
{
    struct curve_study study;
    struct curve curve;
    curve_study_init(&study, 7);
    curve_init(&curve, &study);
    curve_add(&curve, 2, 1.1);
    assert_near(curve_step_s(&curve, 1), 2, 1e-6);
    assert_near(curve_step_s(&curve, 2), 1.1, 1e-6);
}

static void the_points_of_a_job_give_its_shape(void **state)
{
    static const double shapes[][3] = {
        {0.6, 0.4, 0}, {0.95, 0.03, 0.02}, {1, 0, 0}, {0.2, 0.8, 0}, {0.7, 0, 0.3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const double *p = shapes[i];
        struct curve_study study;
        curve_study_init(&study, 7);
        for (int trial = 0; trial < 40; trial++) {
            struct curve curve;
            curve_init(&curve, &study);
            for (uint32_t w = 1; w <= 8; w++)
                curve_add(&curve, w, step_s(1 + trial, p[0], p[1], p[2], w));
            if (trial >= 2)
                assert_near(curve_step_s(&curve, 1), 1 + trial, 0.1);
        }
        assert_near(study.shape.split, p[0], 0.04);
        assert_true(fabs(study.shape.serial - p[1]) < 0.02);
        assert_true(fabs(study.shape.wide - p[2]) < 0.02);
    }
}

static void no_part_of_a_shape_is_negative(void **state)
{
    uint64_t seed = 1;
    struct curve_study study;
    curve_study_init(&study, 7);
    for (int trial = 0; trial < 500; trial++) {
        struct curve curve;
        curve_init(&curve, &study);
        for (uint32_t w = 1; w <= 5; w++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            curve_add(&curve, 1 + (uint32_t)(seed >> 60), 1e-9 + (double)(seed >> 40) / 1e3);
        }
        assert_true(study.shape.split >= 0 && study.shape.serial >= 0 && study.shape.wide >= 0);
        assert_near(study.shape.split + study.shape.serial + study.shape.wide, 1, 1e-9);
        assert_true(curve_step_s(&curve, 3) > 0 && isfinite(curve_step_s(&curve, 3)));
    }
}

static void trials_of_a_study_share_their_shape_and_not_their_time(void **state)
{
    struct curve_study study;
    struct curve first, second;
    curve_study_init(&study, 7);
    curve_init(&first, &study);
    curve_init(&second, &study);
    for (int i = 0; i < 10; i++)
        for (uint32_t w = 1; w <= 8; w *= 2)
            curve_add(&first, w, step_s(1, 0.5, 0.5, 0, w));
    curve_add(&second, 1, 30);
    assert_near(curve_relative(&second, 4), 1 / (0.5 / 4 + 0.5), 0.15);
    assert_near(curve_step_s(&second, 1), 30, 1e-6);
}

static void lane_time_counts_by_the_number_of_lanes(void **state)
{
    struct curve_study study;
    struct curve curve;
    curve_study_init(&study, 7);
    curve_init(&curve, &study);
    curve.lanes = 2;
    curve.lane_s = 0.5;
    curve_add(&curve, 1, 2.25); /* a step has 2 s of the job's own time, and 0.25 s of lane time */
    assert_near(curve_step_s(&curve, 1), 2.25, 1e-6);
    assert_near(curve_step_s(&curve, 4), 2 * (0.9 / 4 + 0.1) + 1, 1e-6);
}

static void a_point_that_cannot_be_is_ignored(void **state)
{
    static const double times[] = {0, -1, NAN, INFINITY};
    struct curve_study study;
    struct curve curve;
    curve_study_init(&study, 7);
    curve_init(&curve, &study);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        curve_add(&curve, 1, times[i]);
    curve_add(&curve, 0, 1);
    assert_int_equal(curve.count, 0);
    assert_true(curve_step_s(&curve, 1) == 0);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_first_shape_is_nine_tenths_split),
        cmocka_unit_test(one_point_gives_the_time_and_leaves_the_shape),
        cmocka_unit_test(the_points_of_a_job_give_its_shape),
        cmocka_unit_test(no_part_of_a_shape_is_negative),
        cmocka_unit_test(trials_of_a_study_share_their_shape_and_not_their_time),
        cmocka_unit_test(lane_time_counts_by_the_number_of_lanes),
        cmocka_unit_test(a_point_that_cannot_be_is_ignored),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
