/* Tests how a job's pieces are distributed over lanes with known shares (P14). Gradients become
 * ready one after the other. Every lane must have work until the last gradients are ready. */
#include "test/unit/packer/packer_fleet.h"

#include <math.h>

#define JOBS 300

static struct fleet *fleet_of_job(size_t lanes, uint64_t period_ns)
{
    struct fleet *f = fleet_new(lanes);

    f->timing.period_ns = period_ns;
    return f;
}

static void a_lane_gets_pieces_from_all_over_the_request(void **state)
{
    struct fleet *f = fleet_of_job(4, 100 * MS);
    struct packer_plan plan;
    int balance = 0;

    for (size_t i = 0; i < 40; i++)
        fleet_tensor(f, 5 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 2);
    for (size_t i = 0; i < 40; i++) {
        balance += plan.pieces[i].lane == plan.shares[0].lane ? 1 : -1;
        assert_in_range(balance + 3, 0, 6); /* 21 and 19 pieces */
    }
    packer_plan_fini(&plan);
    free(f);
}

static void a_large_tensor_that_is_ready_last_is_summed_on_all_lanes(void **state)
{
    struct fleet *f = fleet_of_job(8, 100 * MS);
    size_t of_last[8] = {0};
    struct packer_plan plan;

    for (size_t i = 0; i < 60; i++)
        fleet_tensor(f, 3 * MS);
    fleet_tensor(f, 120 * MS)->elements = 24 << 20; /* 24 pieces of 4 MiB */
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 3);
    for (size_t i = 60; i < plan.pieces_count; i++)
        of_last[plan.pieces[i].lane]++;
    for (size_t i = 0; i < plan.shares_count; i++)
        assert_in_range(of_last[plan.shares[i].lane], 7, 9);
    packer_plan_fini(&plan);
    free(f);
}

static void small_tensors_open_no_lane(void **state)
{
    struct fleet *f = fleet_of_job(8, 100 * MS);
    struct packer_plan plan;

    for (size_t i = 0; i < 100; i++)
        fleet_tensor(f, i % 2 ? MS / 100 : 4 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 2);
    packer_plan_fini(&plan);
    free(f);
}

/* Pieces of 51 + 51 ms and of 34 + 34 + 34 ms fill two lanes of 105 ms each. If the pieces were
 * distributed in order, they would need three lanes. */
static void the_distribution_of_few_pieces_needs_no_additional_lane(void **state)
{
    struct fleet *f = fleet_of_job(8, 100 * MS);
    struct packer_plan plan;

    fleet_tensor(f, 51 * MS);
    fleet_tensor(f, 51 * MS);
    for (size_t i = 0; i < 3; i++)
        fleet_tensor(f, 34 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 2);
    assert_int_equal(plan.shares[0].lane_ns, 102 * MS);
    packer_plan_fini(&plan);
    free(f);
}

/* The job needs 60 ms of lane time in a period of 100 ms. The loss limit would allow 35 ms on one
 * of its two lanes, but each lane should get 30 ms. */
static void own_lanes_are_levelled_before_the_limit_is_used_up(void **state)
{
    struct fleet *f = fleet_of_job(8, 100 * MS);
    struct packer_plan plan;

    f->timing.spread_ns = 30 * MS;
    for (size_t i = 0; i < 60; i++)
        fleet_tensor(f, MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 2);
    assert_true(plan.shares[0].lane_ns <= 33 * MS && plan.shares[1].lane_ns <= 33 * MS);
    packer_plan_fini(&plan);
    free(f);
}

/* Goes through the pieces in their order. Returns the largest time in ns by which the pieces of a
 * lane so far differ from the lane's share of the work so far. */
static double worst_lead_ns(const struct fleet *f, const struct packer_plan *plan)
{
    double all_ns = 0, so_far_ns = 0, had_ns[FLEET_LANES_MAX] = {0}, worst_ns = 0;

    for (size_t i = 0; i < f->tensors_count; i++)
        all_ns += (double)f->tensors[i].lane_ns;
    for (size_t i = 0; i < plan->pieces_count; i++) {
        double ns = (double)f->tensors[plan->pieces[i].tensor - 1000].lane_ns;

        so_far_ns += ns;
        had_ns[plan->pieces[i].lane] += ns;
        for (size_t k = 0; k < plan->shares_count; k++) {
            double part = (double)plan->shares[k].lane_ns / all_ns;

            worst_ns = fmax(worst_ns, fabs(had_ns[plan->shares[k].lane] - part * so_far_ns));
        }
    }
    return worst_ns;
}

static void draw_job(struct fleet *f, uint64_t *seed, uint64_t *ret_largest_ns)
{
    size_t count = 100 + fleet_draw(seed, 150);

    *ret_largest_ns = 0;
    f->tensors_count = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t ns = MS + fleet_draw(seed, 3 * MS);

        fleet_tensor(f, ns);
        *ret_largest_ns = ns > *ret_largest_ns ? ns : *ret_largest_ns;
    }
}

static void no_lane_is_ahead_or_behind_by_more_than_a_few_pieces(void **state)
{
    uint64_t seed = 20261121, largest_ns;
    size_t uneven = 0;

    print_message("# seed %" PRIu64 "\n", seed);
    for (size_t job = 0; job < JOBS; job++) {
        struct fleet *f = fleet_of_job(12, 100 * MS);
        struct packer_plan plan;

        for (size_t i = 0; i < 6; i++)
            fleet_add(f, i, fleet_draw(&seed, 30) * MS, 100 * MS);
        draw_job(f, &seed, &largest_ns);
        f->lanes_max = 12;
        plan = fleet_plan(f, "shared");
        uneven += worst_lead_ns(f, &plan) > 5 * (double)largest_ns;
        packer_plan_fini(&plan);
        free(f);
    }
    assert_true(uneven <= JOBS / 100); /* the lanes are full, and there is no other lane */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_gets_pieces_from_all_over_the_request),
        cmocka_unit_test(a_large_tensor_that_is_ready_last_is_summed_on_all_lanes),
        cmocka_unit_test(small_tensors_open_no_lane),
        cmocka_unit_test(the_distribution_of_few_pieces_needs_no_additional_lane),
        cmocka_unit_test(own_lanes_are_levelled_before_the_limit_is_used_up),
        cmocka_unit_test(no_lane_is_ahead_or_behind_by_more_than_a_few_pieces),
    };

    return cmocka_run_group_tests_name("packer_deal", tests, NULL, NULL);
}
