/* Tests packing under a loss limit: the lane of each piece, when lanes open, refusals and their
 * reasons. */
#include "test/unit/packer/packer_fleet.h"

#include <errno.h>
#include <time.h>

#define JOBS_PLACED 1000
#define TASKS 200
#define REPEATS 300

static const struct {
    const char *name;
    double margin;
} limited[] = {{"shared", 0.01}, {"rate", 0}, {"cycle", 0}};

#define LIMITED (sizeof(limited) / sizeof(limited[0]))

static struct fleet *fleet_of_job(size_t lanes, uint64_t period_ns)
{
    struct fleet *f = fleet_new(lanes);

    f->timing.period_ns = period_ns;
    return f;
}

/* --- the lane of each piece --- */

static void the_tightest_open_lane_that_holds_a_piece_gets_it(void **state)
{
    for (size_t p = 0; p < LIMITED; p++) {
        struct fleet *f = fleet_of_job(5, 100 * MS);
        struct packer_plan plan;

        fleet_add(f, 1, 10 * MS, 100 * MS);
        fleet_add(f, 2, 20 * MS, 100 * MS);
        fleet_add(f, 3, 95 * MS, 100 * MS);
        fleet_tensor(f, 15 * MS);
        plan = fleet_plan(f, limited[p].name);
        assert_int_equal(fleet_lane_of(&plan, 0), 2);
        assert_int_equal(plan.shares_count, 1);
        assert_int_equal(plan.shares[0].lane, 2);
        assert_int_equal(plan.shares[0].state, PACKER_LANE_OPEN);
        assert_int_equal(plan.shares[0].lane_ns, 15 * MS);
        packer_plan_fini(&plan);
        free(f);
    }
}

static void a_lane_opens_only_when_no_open_one_will_do(void **state)
{
    struct fleet *f = fleet_of_job(4, 100 * MS);
    struct packer_plan plan;

    f->lanes[0].state = PACKER_LANE_UNSTARTED;
    fleet_add(f, 3, 60 * MS, 100 * MS);
    fleet_tensor(f, 50 * MS);
    fleet_tensor(f, 4 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 1);
    assert_int_equal(fleet_lane_of(&plan, 1), 3);
    assert_int_equal(plan.shares_count, 2);
    assert_int_equal(plan.shares[0].state, PACKER_LANE_PARKED);
    packer_plan_fini(&plan);
    f->lanes[1].memory_bytes = f->lanes[2].memory_bytes = 3999;
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 0);
    assert_int_equal(plan.shares[0].state, PACKER_LANE_UNSTARTED);
    packer_plan_fini(&plan);
    free(f);
}

static void the_lane_that_the_job_is_on_wins_a_tie(void **state)
{
    struct fleet *f = fleet_of_job(4, 100 * MS);
    struct packer_plan plan;

    for (size_t i = 0; i < 4; i++)
        f->lanes[i].state = PACKER_LANE_OPEN;
    fleet_tensor(f, 10 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 0);
    packer_plan_fini(&plan);
    f->lanes[2].job_bytes = 4;
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 2);
    packer_plan_fini(&plan);
    free(f);
}

static void small_tensors_go_to_a_lane_of_the_job(void **state)
{
    struct fleet *f = fleet_of_job(8, 100 * MS);
    struct packer_plan plan;

    for (size_t i = 0; i < 8; i++)
        fleet_add(f, i, (5 + 5 * i) * MS, 100 * MS);
    fleet_tensor(f, 30 * MS);
    for (size_t i = 0; i < 100; i++)
        fleet_tensor(f, MS / 100);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 1);
    packer_plan_fini(&plan);
    free(f);
}

static void earlier_pieces_of_the_job_count(void **state)
{
    struct fleet *f = fleet_of_job(2, 100 * MS);
    struct packer_plan plan;

    f->lanes[0].state = PACKER_LANE_OPEN;
    f->lanes[0].job_lane_ns = 90 * MS;
    fleet_tensor(f, 10 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares[0].lane_ns, 100 * MS);
    packer_plan_fini(&plan);
    fleet_tensor(f, 10 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 2); /* with a limit of 5 %, a lane has room for 105 ms */
    packer_plan_fini(&plan);
    free(f);
}

static void a_large_tensor_is_packed_by_pieces(void **state)
{
    struct fleet *f = fleet_of_job(8, 100 * MS);
    struct packer_tensor *tensor = fleet_tensor(f, 300 * MS);
    struct packer_plan plan;

    tensor->elements = 24 << 20; /* 24 pieces of 4 MiB */
    for (size_t p = 0; p < LIMITED; p++) {
        plan = fleet_plan(f, limited[p].name);
        assert_int_equal(plan.pieces_count, 24);
        assert_int_equal(plan.shares_count, 3);
        assert_int_equal(plan.shares[0].lane_ns, 100 * MS);
        packer_plan_fini(&plan);
    }
    free(f);
}

/* --- limits --- */

static void a_strict_resident_keeps_others_away(void **state)
{
    struct fleet *f = fleet_of_job(2, 100 * MS);
    struct packer_resident *resident = fleet_add(f, 0, 20 * MS, 100 * MS);
    struct packer_plan plan;

    fleet_tensor(f, 10 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 0);
    packer_plan_fini(&plan);
    resident->timing.loss_limit_ppm = 20000; /* the loss is 0.2 x 0.1 / 1.02, plus the margin */
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 1);
    packer_plan_fini(&plan);
    free(f);
}

static void a_limit_within_the_margin_means_lanes_of_its_own(void **state)
{
    struct fleet *f = fleet_of_job(2, 100 * MS);
    struct packer_plan plan;

    fleet_add(f, 0, MS / 1000, 100 * MS);
    f->timing.loss_limit_ppm = 9999;
    fleet_tensor(f, MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 1);
    assert_int_equal(plan.shares[0].loss_ppm, 0);
    packer_plan_fini(&plan);
    free(f);
}

static void a_lane_over_its_limit_or_not_measured_gets_no_piece(void **state)
{
    struct fleet *f = fleet_of_job(2, 100 * MS);

    fleet_add(f, 0, 50 * MS, 100 * MS);
    fleet_add(f, 0, 50 * MS, 100 * MS);
    f->lanes[1].state = PACKER_LANE_OPEN;
    f->lanes[1].jobs = 1;
    fleet_tensor(f, 0);
    fleet_refuse(f, "shared", -ENOSPC, "lanes over a loss limit: 1 (most free time: 0 us)");
    assert_non_null(strstr(f->reason, "lanes with an unmeasured job: 1"));
    free(f);
}

static void the_plan_has_the_predicted_losses(void **state)
{
    struct fleet *f = fleet_of_job(1, 100 * MS);
    struct packer_plan plan;
    double losses[3];

    fleet_add(f, 0, 10 * MS, 100 * MS);
    fleet_add(f, 0, 20 * MS, 100 * MS)->job = 77;
    fleet_tensor(f, 5 * MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares[0].worst_job, 77);
    fleet_add(f, 0, 5 * MS, 100 * MS);
    packer_losses("shared", f->residents[0], 3, losses);
    assert_true(plan.shares[0].loss_ppm - (uint32_t)(losses[2] * 1e6) - 10000 <= 1);
    assert_true(plan.shares[0].worst_ppm - (uint32_t)(losses[1] * 1e6) - 10000 <= 1);
    assert_true(plan.shares[0].spare_ns > MS);
    packer_plan_fini(&plan);
    free(f);
}

/* --- memory, network, nodes --- */

static void memory_is_that_of_the_lane_and_of_its_node(void **state)
{
    struct fleet *f = fleet_of_job(3, 100 * MS);
    struct packer_plan plan;

    f->nodes_count = 2;
    f->nodes[0] = (struct packer_node){.memory_bytes = 7999, .nic_bytes_per_s = UINT64_MAX};
    f->nodes[1] = (struct packer_node){.memory_bytes = 4000, .nic_bytes_per_s = UINT64_MAX};
    f->lanes[2].node = 1;
    for (size_t i = 0; i < 2; i++)
        fleet_tensor(f, MS);
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 0);
    assert_int_equal(fleet_lane_of(&plan, 1), 2);
    packer_plan_fini(&plan);
    f->tensors[0].state_bytes = 8000; /* includes moments */
    fleet_refuse(f, "shared", -ENOSPC, "lanes short of memory: 3 (most free: 7999 bytes)");
    fleet_refuse(f, "least-loaded", -ENOSPC,
                 "the lane with the most free memory has only 7999 bytes");
    fleet_refuse(f, "hash", -ENOSPC, "but has only 7999 bytes");
    f->nodes[0].memory_bytes = UINT64_MAX;
    f->lanes[0].memory_bytes = 11999;
    f->lanes[1].memory_bytes = 3999;
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 1), 2);
    packer_plan_fini(&plan);
    free(f);
}

static void network_is_that_of_the_lane_and_of_its_node(void **state)
{
    struct fleet *f = fleet_of_job(3, 100 * MS);
    struct packer_plan plan;

    f->nodes_count = 2;
    f->nodes[0] = (struct packer_node){.memory_bytes = UINT64_MAX, .nic_bytes_per_s = 199999};
    f->nodes[1] = (struct packer_node){.memory_bytes = UINT64_MAX, .nic_bytes_per_s = 100000};
    f->lanes[2].node = 1;
    for (size_t i = 0; i < 2; i++)
        fleet_tensor(f, MS)->wire_bytes = 10000; /* ten rounds a second */
    plan = fleet_plan(f, "shared");
    assert_int_equal(fleet_lane_of(&plan, 0), 0);
    assert_int_equal(fleet_lane_of(&plan, 1), 2);
    packer_plan_fini(&plan);
    f->lanes[2].nic_bytes_per_s = 99999;
    fleet_refuse(f, "shared", -ENOSPC,
                 "lanes short of 100000 bytes/s of network: 3 (most free: 99999)");
    fleet_refuse(f, "hash", -ENOSPC, ", but has only 99999 bytes/s");
    f->lanes[0].nic_bytes_per_s = f->lanes[1].nic_bytes_per_s = 50000;
    fleet_refuse(f, "least-loaded", -ENOSPC, "100000 bytes/s of network on one lane");
    free(f);
}

static void nodes_and_residents_that_make_no_sense_are_refused(void **state)
{
    struct fleet *f = fleet_of_job(2, 100 * MS);

    fleet_tensor(f, MS);
    f->nodes_count = 1;
    f->lanes[1].node = 1;
    fleet_refuse(f, "shared", -EINVAL, "lane 1 is on node 1, there are 1");
    f->nodes_count = 0;
    fleet_add(f, 1, MS, 0)->job = 42;
    fleet_refuse(f, "shared", -EINVAL, "job 42 on lane 1 has a period of 0 ns");
    f->residents[1][0].timing.period_ns = UINT64_MAX;
    fleet_refuse(f, "shared", -EINVAL, "job 42 on lane 1 has a period");
    f->timing.period_ns = UINT64_MAX;
    fleet_refuse(f, "shared", -EINVAL, "a period of 18446744073709551615 ns");
    free(f);
}

/* --- the number of lanes --- */

static void a_job_does_not_use_up_its_lanes_on_lanes_with_little_room(void **state)
{
    struct fleet *f = fleet_of_job(20, 100 * MS);
    struct packer_plan plan;

    /* twelve lanes have room for 2 ms of the job each, and four lanes have room for more */
    for (size_t i = 0; i < 16; i++)
        fleet_add(f, i, (i < 12 ? 83 : 30) * MS, 100 * MS);
    for (size_t i = 0; i < 20; i++)
        fleet_tensor(f, 2 * MS);
    plan = fleet_plan(f, "shared");
    assert_true(plan.shares_count <= 8);
    for (size_t i = 0; i < plan.shares_count; i++)
        assert_int_equal(plan.shares[i].state, PACKER_LANE_OPEN);
    packer_plan_fini(&plan);
    for (size_t i = 12; i < 16; i++)
        f->residents[i][0].lane_ns = 83 * MS;
    plan = fleet_plan(f, "shared");
    assert_true(plan.shares_count <= 8);
    assert_int_equal(plan.shares[plan.shares_count - 1].state, PACKER_LANE_PARKED);
    packer_plan_fini(&plan);
    free(f);
}

static void no_job_gets_more_lanes_than_it_may_have(void **state)
{
    struct fleet *f = fleet_of_job(12, 100 * MS);
    struct packer_plan plan;

    for (size_t i = 0; i < 9; i++)
        fleet_tensor(f, 80 * MS);
    fleet_refuse(f, "shared", -ENOSPC, "lanes beyond the job's maximum of 8: 4");
    f->workers = 9;
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 9);
    packer_plan_fini(&plan);
    f->lanes_max = 3;
    fleet_refuse(f, "shared", -ENOSPC, "lanes beyond the job's maximum of 3: 9");
    f->lanes[10].job_bytes = 4; /* this lane was opened by an earlier call */
    f->lanes[10].state = PACKER_LANE_OPEN;
    f->tensors_count = 3;
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 3);
    assert_int_equal(plan.shares[2].lane, 10);
    packer_plan_fini(&plan);
    free(f);
}

static void a_refusal_names_the_scarce_resource_and_the_missing_amount(void **state)
{
    struct fleet *f = fleet_of_job(4, 100 * MS);

    fleet_add(f, 0, 50 * MS, 100 * MS);
    f->lanes[1].memory_bytes = 100;
    f->lanes[2].nic_bytes_per_s = 7;
    f->lanes[3].jobs = 1;
    fleet_tensor(f, 40 * MS)->wire_bytes = 1000;
    fleet_refuse(
        f, "shared", -ENOSPC,
        "tensor 1000 needs 40000 us of lane time a round and 4000 bytes of memory, but none "
        "of 4 lanes can take the piece; lanes over a loss limit: 1 (most free time: 8333 "
        "us); lanes short of memory: 1 (most free: 100 bytes); lanes short of 10000 "
        "bytes/s of network: 1 (most free: 7); lanes with an unmeasured job: 1");
    free(f);
}

static void a_job_that_is_not_measured_gets_lanes_of_its_own(void **state)
{
    struct fleet *f = fleet_of_job(4, 0);
    struct packer_plan plan;

    f->workers = 3;
    fleet_add(f, 1, MS, 100 * MS);
    fleet_tensor(f, 0)->elements = 3 << 20;
    for (size_t p = 0; p < LIMITED; p++) {
        plan = fleet_plan(f, limited[p].name);
        assert_int_equal(plan.shares_count, 3);
        assert_int_equal(plan.shares[0].lane, 0);
        assert_int_equal(plan.shares[1].lane, 2);
        assert_int_equal(plan.shares[1].loss_ppm, 0);
        packer_plan_fini(&plan);
    }
    f->workers = 4; /* as many workers as lanes */
    f->lanes[0].state = f->lanes[2].state = PACKER_LANE_UNSTARTED;
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 3);
    packer_plan_fini(&plan);
    fleet_refuse(f, "dedicated", -ENOSPC,
                 "dedicated needs 4 lanes without another job, but only 3 of 4");
    f->workers = 1; /* the job has as many workers as the pool has running lanes */
    plan = fleet_plan(f, "shared");
    assert_int_equal(plan.shares_count, 1);
    assert_int_equal(plan.shares[0].lane, 3);
    packer_plan_fini(&plan);
    for (size_t i = 0; i < 4; i++)
        f->lanes[i].jobs = 1;
    fleet_refuse(f, "shared", -ENOSPC, "a job that is not measured needs 1 lanes without another");
    free(f);
}

/* --- random jobs and extreme numbers --- */

static void draw_job(struct fleet *f, uint64_t *seed)
{
    size_t tensors = 1 + fleet_draw(seed, 30);
    uint64_t period_ns = fleet_draw(seed, 2) ? 100 * MS : (20 + fleet_draw(seed, 400)) * MS;

    f->workers = 1 + (uint32_t)fleet_draw(seed, 10);
    f->timing = (struct packer_timing){.period_ns = period_ns,
                                       .spread_ns = fleet_draw(seed, 2) ? period_ns / 20 : 0,
                                       .loss_limit_ppm = (uint32_t)fleet_draw(seed, 5) * 20000};
    for (size_t i = 0; i < tensors; i++) {
        struct packer_tensor *t = fleet_tensor(f, 0);

        t->elements =
            fleet_draw(seed, 8) ? 100 + fleet_draw(seed, 100000) : fleet_draw(seed, 3000000);
        t->lane_ns = period_ns / 100 * fleet_draw(seed, 20) * (1 + t->elements % 3) / tensors;
    }
}

static void check_determinism(struct fleet *f, const char *policy, const struct packer_plan *plan)
{
    struct packer_plan again = fleet_plan(f, policy);

    assert_int_equal(again.pieces_count, plan->pieces_count);
    assert_memory_equal(again.pieces, plan->pieces, plan->pieces_count * sizeof(*plan->pieces));
    assert_int_equal(again.shares_count, plan->shares_count);
    for (size_t i = 0; i < plan->shares_count; i++) {
        assert_int_equal(again.shares[i].lane, plan->shares[i].lane);
        assert_int_equal(again.shares[i].loss_ppm, plan->shares[i].loss_ppm);
        assert_int_equal(again.shares[i].spare_ns, plan->shares[i].spare_ns);
    }
    packer_plan_fini(&again);
}

/* Places at most 40 arriving jobs. Returns the number of placed jobs. */
static size_t fill(struct fleet *f, const char *policy, uint64_t *seed)
{
    size_t placed = 0;

    for (int j = 0; j < 40; j++) {
        struct packer_plan plan = {0};

        draw_job(f, seed);
        if (fleet_try(f, policy, &plan) == 0) {
            placed++;
            assert_true(plan.shares_count <= (f->workers > 8 ? f->workers : 8));
            check_determinism(f, policy, &plan);
            fleet_commit(f, &plan); /* fleet_commit() checks the memory */
        } else {
            assert_non_null(strstr(f->reason, "lanes"));
        }
        f->tensors_count = 0;
    }
    return placed;
}

static void no_job_exceeds_its_limit_in_any_sequence(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);
    size_t placed = 0;

    print_message("# seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 40; i++) {
        size_t p = (size_t)i % LIMITED;
        struct fleet *f = fleet_new(4 + fleet_draw(&seed, 12));

        f->nodes_count = 2;
        f->nodes[0] = f->nodes[1] = (struct packer_node){UINT64_MAX, UINT64_MAX};
        if (i % 8 >= 4) {
            f->nodes[0].memory_bytes = 8000000 + fleet_draw(&seed, 20000000);
            f->lanes[1].memory_bytes = fleet_draw(&seed, 20000000);
        }
        for (size_t l = 0; l < f->lanes_count; l++)
            f->lanes[l].node = (uint32_t)(l % 2);
        placed += fill(f, limited[p].name, &seed);
        if (fleet_worst_excess(f, limited[p].name, limited[p].margin) > 2e-6)
            fail_msg("a job exceeds its limit under %s", limited[p].name);
        free(f);
    }
    assert_true(placed > 200);
    print_message("# %zu of 1600 jobs placed\n", placed);
}

/* Uses numbers at the ends of their ranges. The result must be a plan or a refusal, and no
 * computation may overflow. */
static void extreme_numbers_are_placed_or_refused(void **state)
{
    static const uint64_t ends[] = {1, 2, PACKER_PERIOD_NS_MAX - 1, PACKER_PERIOD_NS_MAX};
    static const uint64_t costs[] = {0, 1, PACKER_PERIOD_NS_MAX, UINT64_MAX};

    for (size_t i = 0; i < 4 * 4 * 4 * LIMITED; i++) {
        struct fleet *f = fleet_of_job(3, ends[i % 4]);
        struct packer_resident *resident = fleet_add(f, 0, costs[i / 4 % 4], ends[i / 16 % 4]);
        struct packer_plan plan = {0};

        resident->timing.spread_ns = costs[i / 4 % 4];
        f->timing.spread_ns = UINT64_MAX - i;
        f->timing.loss_limit_ppm = i % 2 ? UINT32_MAX : 1;
        f->lanes[1].job_lane_ns = costs[i / 16 % 4];
        for (size_t t = 0; t < 3; t++) {
            struct packer_tensor *tensor = fleet_tensor(f, costs[(i + t) % 4]);

            tensor->wire_bytes = costs[(i + 1) % 4];
            tensor->state_bytes = costs[(i + 2) % 4];
        }
        if (fleet_try(f, limited[i / 64].name, &plan) < 0)
            assert_true(strlen(f->reason) > 20);
        packer_plan_fini(&plan);
        free(f);
    }
}

/* --- duration --- */

static struct fleet *busy_fleet(uint64_t *seed)
{
    struct fleet *f = fleet_new(FLEET_LANES_MAX);

    f->workers = 4;
    for (int j = 0; j < JOBS_PLACED; j++) {
        struct packer_plan plan;
        uint64_t period_ns = (50 + fleet_draw(seed, 500)) * MS;

        f->timing = (struct packer_timing){.period_ns = period_ns};
        for (size_t t = 0; t < 8; t++)
            fleet_tensor(f, period_ns * (1 + fleet_draw(seed, 30)) / 1000);
        plan = fleet_plan(f, "shared");
        fleet_commit(f, &plan);
    }
    return f;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Prints the duration of the test, but does not check it. */
static void two_hundred_tasks_find_room_beside_a_thousand_jobs(void **state)
{
    uint64_t seed = 7;
    struct fleet *f = busy_fleet(&seed);
    static double ms[REPEATS];

    f->timing = (struct packer_timing){.period_ns = 100 * MS};
    for (size_t t = 0; t < TASKS; t++)
        fleet_tensor(f, 10000 * (1 + fleet_draw(&seed, 30)));
    for (size_t i = 0; i < REPEATS; i++) {
        struct timespec start, end;
        struct packer_plan plan;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        plan = fleet_plan(f, "shared");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        ms[i] =
            (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
        assert_int_equal(plan.pieces_count, TASKS);
        packer_plan_fini(&plan);
    }
    qsort(ms, REPEATS, sizeof(ms[0]), compare_doubles);
    print_message("# %d tasks beside %d jobs on %zu lanes: median %.2f ms, p99 %.2f ms of CPU\n",
                  TASKS, JOBS_PLACED, fleet_lanes_open(f), ms[REPEATS / 2], ms[REPEATS * 99 / 100]);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tightest_open_lane_that_holds_a_piece_gets_it),
        cmocka_unit_test(a_lane_opens_only_when_no_open_one_will_do),
        cmocka_unit_test(the_lane_that_the_job_is_on_wins_a_tie),
        cmocka_unit_test(small_tensors_go_to_a_lane_of_the_job),
        cmocka_unit_test(earlier_pieces_of_the_job_count),
        cmocka_unit_test(a_large_tensor_is_packed_by_pieces),
        cmocka_unit_test(a_strict_resident_keeps_others_away),
        cmocka_unit_test(a_limit_within_the_margin_means_lanes_of_its_own),
        cmocka_unit_test(a_lane_over_its_limit_or_not_measured_gets_no_piece),
        cmocka_unit_test(the_plan_has_the_predicted_losses),
        cmocka_unit_test(memory_is_that_of_the_lane_and_of_its_node),
        cmocka_unit_test(network_is_that_of_the_lane_and_of_its_node),
        cmocka_unit_test(nodes_and_residents_that_make_no_sense_are_refused),
        cmocka_unit_test(a_job_does_not_use_up_its_lanes_on_lanes_with_little_room),
        cmocka_unit_test(no_job_gets_more_lanes_than_it_may_have),
        cmocka_unit_test(a_refusal_names_the_scarce_resource_and_the_missing_amount),
        cmocka_unit_test(a_job_that_is_not_measured_gets_lanes_of_its_own),
        cmocka_unit_test(no_job_exceeds_its_limit_in_any_sequence),
        cmocka_unit_test(extreme_numbers_are_placed_or_refused),
        cmocka_unit_test(two_hundred_tasks_find_room_beside_a_thousand_jobs),
    };

    return cmocka_run_group_tests_name("packer loss", tests, NULL, NULL);
}
