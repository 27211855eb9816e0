/* Tests that each policy of the packer follows its rule (packer/README.md contains the rules). */
#include "svc/base/hash.h"
#include "test/unit/packer/packer_fixture.h"

static void set_elements(struct fixture *f, const uint64_t *elements)
{
    for (size_t i = 0; i < f->request.tensors_count; i++)
        f->tensors[i].elements = elements[i];
}

static void assert_lanes(const struct fixture *f, const size_t *lanes)
{
    for (size_t i = 0; i < f->request.tensors_count; i++)
        assert_int_equal(fixture_lane_of(f, i), lanes[i]);
}

/* -- least-loaded ------------------------------------------------------------------------------ */

static void least_loaded_places_the_largest_first(void **state)
{
    struct fixture *f = fixture_new(2, 5);

    set_elements(f, (uint64_t[]){3, 3, 4, 5, 5});
    fixture_place(f, NULL);
    /* one 5 is placed on each lane, then 4 on the first lane and 3 on the second; the last 3 is
     * placed on the second lane (8 is less than 9) */
    assert_lanes(f, (size_t[]){1, 1, 0, 0, 1});
    fixture_free(f);
}

static void least_loaded_counts_the_present_load_of_lanes(void **state)
{
    struct fixture *f = fixture_new(3, 1);

    f->lanes[0].load_bytes = 100;
    f->lanes[1].load_bytes = 90;
    f->lanes[2].load_bytes = 95;
    f->tensors[0].elements = 1;
    fixture_place(f, NULL);
    assert_int_equal(fixture_lane_of(f, 0), 1);
    fixture_free(f);
}

static void least_loaded_compares_measured_load_before_bytes(void **state)
{
    struct fixture *f = fixture_new(2, 1);

    f->tensors[0].elements = 1;
    f->lanes[0].load_ppm = 600000;
    f->lanes[1].load_bytes = 1000000;
    fixture_place(f, NULL);
    assert_int_equal(fixture_lane_of(f, 0), 1);
    /* if the loads differ by less than a quarter, the number of bytes decides */
    f->lanes[0].load_ppm = 249999;
    fixture_place(f, NULL);
    assert_int_equal(fixture_lane_of(f, 0), 0);
    fixture_free(f);
}

static void least_loaded_breaks_ties_by_the_job_then_by_id(void **state)
{
    struct fixture *f = fixture_new(3, 1);

    f->tensors[0].elements = 1;
    fixture_place(f, NULL);
    assert_int_equal(fixture_lane_of(f, 0), 0);
    for (size_t i = 0; i < 3; i++)
        f->lanes[i].load_bytes = 50;
    f->lanes[1].job_bytes = f->lanes[2].job_bytes = 50;
    fixture_place(f, NULL);
    assert_int_equal(fixture_lane_of(f, 0), 1);
    fixture_free(f);
}

static void least_loaded_goes_round_a_full_lane(void **state)
{
    struct fixture *f = fixture_new(3, 6);

    set_elements(f, (uint64_t[]){100, 100, 100, 100, 100, 100});
    f->lanes[0].memory_bytes = 399;
    f->lanes[1].memory_bytes = 800;
    fixture_place(f, NULL);
    assert_int_equal(fixture_lane_pieces(f, 0), 0);
    assert_int_equal(fixture_lane_pieces(f, 1), 2);
    assert_int_equal(fixture_lane_pieces(f, 2), 4);
    fixture_free(f);
}

static void least_loaded_spreads_the_pieces_of_one_tensor(void **state)
{
    struct fixture *f = fixture_new(4, 1);

    f->tensors[0].elements = 8 * MIB;
    fixture_place(f, NULL);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fixture_lane_bytes(f, i), 8 * MIB);
    fixture_free(f);
}

/* -- round-robin, hash ------------------------------------------------------------------------- */

static void round_robin_chooses_by_position_under_any_load(void **state)
{
    struct fixture *f = fixture_new(3, 5);

    set_elements(f, (uint64_t[]){1, 1000000, 0, 5, 5});
    f->lanes[1].load_ppm = 1000000;
    f->lanes[1].load_bytes = 1 << 30;
    fixture_place(f, "round-robin");
    assert_lanes(f, (size_t[]){0, 1, 2, 0, 1});
    fixture_free(f);
}

static void round_robin_starts_at_the_key_of_the_job(void **state)
{
    struct fixture *f = fixture_new(3, 4);

    f->request.job_key = 5;
    fixture_place(f, "round-robin");
    assert_lanes(f, (size_t[]){2, 0, 1, 2});
    f->request.job_key = UINT64_MAX; /* 2^64 - 1 is a multiple of 3 */
    fixture_place(f, "round-robin");
    assert_lanes(f, (size_t[]){0, 1, 2, 0});
    fixture_free(f);
}

static void round_robin_and_hash_keep_a_tensor_on_one_lane(void **state)
{
    struct fixture *f = fixture_new(4, 1);

    f->tensors[0].elements = 8 * MIB;
    f->tensors[0].name_hash = 6;
    fixture_place(f, "round-robin");
    assert_int_equal(f->plan.pieces_count, 8);
    assert_int_equal(fixture_lane_bytes(f, 0), 32 * MIB);
    fixture_place(f, "hash");
    assert_int_equal(fixture_lane_bytes(f, 2), 32 * MIB);
    fixture_free(f);
}

static void hash_finds_the_lane_by_name_alone(void **state)
{
    static const char *const names[] = {"fc.bias", "fc.weight", "conv1.weight"};
    struct fixture *f = fixture_new(5, 3), *turned = fixture_new(5, 3);

    for (size_t i = 0; i < 3; i++) {
        f->tensors[i].name_hash = turned->tensors[2 - i].name_hash = hash_text(names[i]);
        f->tensors[i].elements = i;
    }
    fixture_place(f, "hash");
    fixture_place(turned, "hash");
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fixture_lane_of(f, i), hash_text(names[i]) % 5);
        assert_int_equal(fixture_lane_of(f, i), fixture_lane_of(turned, 2 - i));
    }
    fixture_free(f);
    fixture_free(turned);
}

/* -- mxnet ------------------------------------------------------------------------------------- */

static void mxnet_sends_a_small_tensor_to_the_lane_of_its_key(void **state)
{
    struct fixture *f = fixture_new(8, 4);

    set_elements(f, (uint64_t[]){1, 1, 999999, 1});
    fixture_place(f, "mxnet");
    assert_lanes(f, (size_t[]){0, 9973 % 8, 2 * 9973 % 8, 3 * 9973 % 8});
    assert_int_equal(f->plan.pieces_count, 4);
    fixture_free(f);
}

static void mxnet_splits_a_million_elements_over_all_lanes(void **state)
{
    struct fixture *f = fixture_new(8, 1);

    f->tensors[0].elements = 1000000;
    fixture_place(f, "mxnet");
    assert_int_equal(f->plan.pieces_count, 8);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(fixture_lane_bytes(f, i), 500000);
    fixture_free(f);
}

static void mxnet_rounds_the_split_points(void **state)
{
    static const uint64_t first[] = {0, 142858, 285715, 428573, 571430, 714288, 857145};
    struct fixture *f = fixture_new(7, 1);

    /* a seventh, two sevenths, ... of this number are 142857.57, 285715.14, 428572.71, ... */
    f->tensors[0].elements = 1000003;
    fixture_place(f, "mxnet");
    assert_int_equal(f->plan.pieces_count, 7);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(f->plan.pieces[i].first, first[i]);
    fixture_free(f);
}

static void mxnet_caps_the_parts_on_their_lane(void **state)
{
    struct fixture *f = fixture_new(2, 1);

    f->tensors[0].elements = 4 * MIB; /* 8 MiB for each lane */
    fixture_place(f, "mxnet");
    assert_int_equal(f->plan.pieces_count, 4);
    assert_int_equal(fixture_lane_position(f, f->plan.pieces[1].lane), 0);
    assert_int_equal(fixture_lane_position(f, f->plan.pieces[2].lane), 1);
    fixture_free(f);
}

/* -- paa --------------------------------------------------------------------------------------- */

static void paa_gives_tiny_tensors_to_the_lane_of_fewest_keys(void **state)
{
    struct fixture *f = fixture_new(2, 6);

    /* the mean is 10,000, so a tensor of 100 is tiny; each large tensor is at first the only key of
     * its lane */
    set_elements(f, (uint64_t[]){9800, 9800, 100, 100, 100, 100});
    fixture_place(f, "paa");
    assert_lanes(f, (size_t[]){0, 1, 0, 1, 0, 1});
    fixture_free(f);
}

static void paa_uses_best_fit_below_the_mean(void **state)
{
    struct fixture *f = fixture_new(2, 4);

    /* The mean is 10. The tensor of 7 opens lane 0, the lower of two equal lanes. The first tensor
     * of 5 does not fit on lane 0 and opens lane 1. The second tensor of 5 fills lane 1, and the
     * tensor of 3 fills lane 0. */
    set_elements(f, (uint64_t[]){7, 5, 5, 3});
    fixture_place(f, "paa");
    assert_lanes(f, (size_t[]){0, 1, 1, 0});
    assert_int_equal(fixture_lane_bytes(f, 0), fixture_lane_bytes(f, 1));
    fixture_free(f);
}

static void paa_overflows_onto_the_emptiest_lane(void **state)
{
    struct fixture *f = fixture_new(2, 3);

    set_elements(f, (uint64_t[]){6, 6, 6}); /* the mean is 9: the third tensor fits on no lane */
    fixture_place(f, "paa");
    assert_lanes(f, (size_t[]){0, 1, 0});
    fixture_free(f);
}

static void paa_fills_lanes_to_the_mean_with_a_large_tensor(void **state)
{
    struct fixture *f = fixture_new(4, 2);

    set_elements(f, (uint64_t[]){1000, 3000}); /* the mean is 1000 */
    fixture_place(f, "paa");
    assert_int_equal(f->plan.pieces_count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fixture_lane_bytes(f, i), 4000);
    assert_int_equal(fixture_lane_of(f, 0), 3);
    fixture_free(f);
}

static void paa_reads_this_job_alone(void **state)
{
    struct fixture *f = fixture_new(2, 2);

    set_elements(f, (uint64_t[]){10, 10});
    f->lanes[0].load_bytes = 1 << 30;
    f->lanes[0].load_ppm = 999999;
    fixture_place(f, "paa");
    assert_lanes(f, (size_t[]){0, 1});
    fixture_free(f);
}

static void paa_keeps_to_the_memory_of_a_lane(void **state)
{
    struct fixture *f = fixture_new(3, 2);

    set_elements(f, (uint64_t[]){3000, 3}); /* the mean is 1001: lane 0 receives 500 elements */
    f->lanes[0].memory_bytes = 2003;
    fixture_place(f, "paa");
    assert_int_equal(fixture_lane_bytes(f, 0), 2000);
    f->lanes[1].memory_bytes = 5000;
    f->lanes[2].memory_bytes = 5009;
    fixture_refuse(f, "paa", -ENOSPC, "most free memory");
    fixture_free(f);
}

/* -- dedicated --------------------------------------------------------------------------------- */

static void dedicated_takes_a_lane_a_worker(void **state)
{
    struct fixture *f = fixture_new(6, 8);

    set_elements(f, (uint64_t[]){10, 10, 10, 10, 10, 10, 10, 10});
    f->request.workers = 4;
    f->lanes[0].jobs = 2;
    fixture_place(f, "dedicated");
    assert_int_equal(fixture_lane_pieces(f, 0), 0);
    for (size_t i = 1; i <= 4; i++)
        assert_int_equal(fixture_lane_pieces(f, i), 2);
    assert_int_equal(fixture_lane_pieces(f, 5), 0);
    fixture_free(f);
}

static void dedicated_is_refused_when_too_few_lanes_are_free(void **state)
{
    struct fixture *f = fixture_new(3, 1);

    f->request.workers = 3;
    f->lanes[1].jobs = 1;
    fixture_refuse(f, "dedicated", -ENOSPC,
                   "needs 3 lanes without another job, but only 2 of 3 lanes have no other job");
    f->request.workers = 0;
    fixture_refuse(f, "dedicated", -EINVAL, "no workers");
    fixture_free(f);
}

static void dedicated_stays_on_the_lanes_that_the_job_has(void **state)
{
    struct fixture *f = fixture_new(4, 4);

    set_elements(f, (uint64_t[]){10, 10, 10, 10});
    f->request.workers = 2;
    f->lanes[2].job_bytes = f->lanes[2].load_bytes = 40;
    f->lanes[3].job_bytes = f->lanes[3].load_bytes = 40;
    f->lanes[3].load_ppm = 900000; /* the job's own work must not move its pieces */
    fixture_place(f, "dedicated");
    assert_int_equal(fixture_lane_pieces(f, 2), 2);
    assert_int_equal(fixture_lane_pieces(f, 3), 2);
    fixture_free(f);
}

static void dedicated_adds_a_lane_to_those_that_the_job_has(void **state)
{
    struct fixture *f = fixture_new(3, 3);

    set_elements(f, (uint64_t[]){10, 10, 10});
    f->request.workers = 2;
    f->lanes[2].job_bytes = f->lanes[2].load_bytes = 40;
    fixture_place(f, "dedicated");
    /* equal to the 40 bytes that follow the first piece */
    assert_int_equal(fixture_lane_pieces(f, 0), 2);
    assert_int_equal(fixture_lane_pieces(f, 1), 0);
    assert_int_equal(fixture_lane_pieces(f, 2), 1);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_loaded_places_the_largest_first),
        cmocka_unit_test(least_loaded_counts_the_present_load_of_lanes),
        cmocka_unit_test(least_loaded_compares_measured_load_before_bytes),
        cmocka_unit_test(least_loaded_breaks_ties_by_the_job_then_by_id),
        cmocka_unit_test(least_loaded_goes_round_a_full_lane),
        cmocka_unit_test(least_loaded_spreads_the_pieces_of_one_tensor),
        cmocka_unit_test(round_robin_chooses_by_position_under_any_load),
        cmocka_unit_test(round_robin_starts_at_the_key_of_the_job),
        cmocka_unit_test(round_robin_and_hash_keep_a_tensor_on_one_lane),
        cmocka_unit_test(hash_finds_the_lane_by_name_alone),
        cmocka_unit_test(mxnet_sends_a_small_tensor_to_the_lane_of_its_key),
        cmocka_unit_test(mxnet_splits_a_million_elements_over_all_lanes),
        cmocka_unit_test(mxnet_rounds_the_split_points),
        cmocka_unit_test(mxnet_caps_the_parts_on_their_lane),
        cmocka_unit_test(paa_gives_tiny_tensors_to_the_lane_of_fewest_keys),
        cmocka_unit_test(paa_uses_best_fit_below_the_mean),
        cmocka_unit_test(paa_overflows_onto_the_emptiest_lane),
        cmocka_unit_test(paa_fills_lanes_to_the_mean_with_a_large_tensor),
        cmocka_unit_test(paa_reads_this_job_alone),
        cmocka_unit_test(paa_keeps_to_the_memory_of_a_lane),
        cmocka_unit_test(dedicated_takes_a_lane_a_worker),
        cmocka_unit_test(dedicated_is_refused_when_too_few_lanes_are_free),
        cmocka_unit_test(dedicated_stays_on_the_lanes_that_the_job_has),
        cmocka_unit_test(dedicated_adds_a_lane_to_those_that_the_job_has),
    };

    return cmocka_run_group_tests_name("packer policies", tests, NULL, NULL);
}
