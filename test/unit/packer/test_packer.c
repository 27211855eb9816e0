/* Tests properties of every policy: forms of requests and plans, limits, and refusals. */
#include "test/unit/packer/packer_fixture.h"

#define for_each_policy(p) for (const char *const *p = packer_policies(); *p; p++)

static void without_a_lane_everything_is_refused(void **state)
{
    struct fixture *f = fixture_new(0, 2);

    f->tensors[0].elements = 250;
    for_each_policy(p) fixture_refuse(f, *p, -ENOSPC, "2 tensors of 1000 bytes need a lane");
    fixture_free(f);
}

static void without_a_tensor_the_plan_is_empty(void **state)
{
    struct fixture *f = fixture_new(2, 0), *no_lanes = fixture_new(0, 0);

    for_each_policy(p)
    {
        fixture_place(f, *p);
        assert_int_equal(f->plan.pieces_count, 0);
        fixture_place(no_lanes, *p);
    }
    fixture_free(f);
    fixture_free(no_lanes);
}

static void a_tensor_without_elements_gets_one_empty_piece(void **state)
{
    struct fixture *f = fixture_new(3, 3);

    f->tensors[1].elements = 5;
    for_each_policy(p)
    {
        size_t empty = 0;

        fixture_place(f, *p);
        for (size_t i = 0; i < f->plan.pieces_count; i++)
            empty += f->plan.pieces[i].elements == 0;
        assert_int_equal(empty, 2);
        assert_int_equal(f->plan.pieces[0].tensor, 1000);
        assert_int_equal(f->plan.pieces[0].elements, 0);
    }
    fixture_free(f);
}

static void an_unknown_policy_is_refused_and_the_known_ones_are_listed(void **state)
{
    struct fixture *f = fixture_new(1, 1);

    fixture_refuse(f, "fastest", -EINVAL, "unknown policy \"fastest\"");
    for_each_policy(p) assert_non_null(strstr(f->reason, *p));
    fixture_refuse(f, "", -EINVAL, "unknown policy");
    fixture_free(f);
}

static bool is_known_policy(const char *name)
{
    for_each_policy(p) if (strcmp(*p, name) == 0) return true;
    return false;
}

static void a_service_is_offered_known_policies_and_no_baseline(void **state)
{
    static const char *const baselines[] = {"round-robin", "hash", "mxnet", "paa", "rate", "cycle"};
    const char *const *offered = packer_offered_policies();

    assert_string_equal(offered[0], "shared");
    for (; *offered; offered++) {
        assert_true(is_known_policy(*offered));
        for (size_t i = 0; i < 6; i++)
            assert_string_not_equal(*offered, baselines[i]);
    }
    for (size_t i = 0; i < 6; i++)
        assert_true(is_known_policy(baselines[i]));
}

static void no_policy_means_the_first_of_the_list(void **state)
{
    struct fixture *f = fixture_new(4, 3);
    struct packer_plan first;

    for (size_t i = 0; i < 3; i++)
        f->tensors[i].elements = 100 * i;
    assert_string_equal(packer_policies()[0], "least-loaded");
    fixture_place(f, packer_policies()[0]);
    first = f->plan;
    f->plan = (struct packer_plan){0};
    fixture_place(f, NULL);
    assert_int_equal(f->plan.pieces_count, first.pieces_count);
    assert_memory_equal(f->plan.pieces, first.pieces, first.pieces_count * sizeof(*first.pieces));
    packer_plan_fini(&first);
    fixture_free(f);
}

static void lanes_out_of_order_are_refused(void **state)
{
    struct fixture *f = fixture_new(3, 1);

    f->lanes[2].id = f->lanes[1].id - 1;
    fixture_refuse(f, NULL, -EINVAL, "lane 12 comes after lane 13");
    f->lanes[2].id = f->lanes[1].id;
    fixture_refuse(f, NULL, -EINVAL, "lane 13 comes after lane 13");
    fixture_free(f);
}

static void too_many_lanes_are_refused(void **state)
{
    struct packer_lane *lanes = calloc(65537, sizeof(*lanes));
    struct fixture *f = fixture_new(0, 1);

    f->request.lanes = lanes;
    f->request.lanes_count = 65537;
    fixture_refuse(f, NULL, -EINVAL, "at most 65536");
    free(lanes);
    fixture_free(f);
}

static void elements_without_bytes_or_larger_than_a_piece_are_refused(void **state)
{
    struct fixture *f = fixture_new(1, 1);

    f->tensors[0].element_bytes = 0;
    fixture_refuse(f, NULL, -EINVAL, "tensor 1000 has elements of 0 bytes");
    f->tensors[0].element_bytes = 8;
    f->request.piece_bytes_max = 7;
    fixture_refuse(f, NULL, -EINVAL, "1 to 7");
    fixture_free(f);
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
    struct fixture *f = fixture_new(1, 2);

    f->request.piece_bytes_max = UINT64_C(1) << 62;
    f->tensors[1].elements = UINT64_C(1) << 62;
    fixture_refuse(f, NULL, -EINVAL, "tensor 1001");
    f->tensors[0].elements = f->tensors[1].elements = UINT64_C(1) << 61;
    fixture_refuse(f, NULL, -EINVAL, "tensor 1001");
    f->tensors[1].elements -= 1;
    f->tensors[0].elements = UINT64_C(1) << 60;
    for_each_policy(p) fixture_place(f, *p);
    fixture_free(f);
}

static void a_plan_of_millions_of_pieces_is_refused(void **state)
{
    struct fixture *f = fixture_new(2, 1);

    f->tensors[0].elements = UINT64_C(1) << 60;
    fixture_refuse(f, NULL, -EINVAL, "more than 4194304 pieces of 4194304 bytes");
    fixture_free(f);
}

static void a_rule_that_cuts_finer_meets_the_same_bound(void **state)
{
    struct fixture *f = fixture_new(64, 1);

    f->request.piece_bytes_max = 4;
    f->tensors[0].elements = (UINT64_C(1) << 22) - 1;
    fixture_place(f, "mxnet");
    f->tensors[0].elements++;
    fixture_place(f, "mxnet");
    f->tensors[0].elements++;
    fixture_refuse(f, "mxnet", -EINVAL, "pieces");
    fixture_free(f);
}

static void a_refusal_can_be_had_without_its_reason(void **state)
{
    struct fixture *f = fixture_new(0, 1);
    struct packer_plan plan;
    char small[8];

    assert_int_equal(packer_place(&f->request, &plan, NULL, 0), -ENOSPC);
    f->request.policy = "none";
    assert_int_equal(packer_place(&f->request, &plan, NULL, 0), -EINVAL);
    assert_int_equal(packer_place(&f->request, &plan, small, sizeof(small)), -EINVAL);
    assert_string_equal(small, "unknown");
    fixture_free(f);
}

static void one_lane_takes_all(void **state)
{
    struct fixture *f = fixture_new(1, 20);

    for (size_t i = 0; i < 20; i++)
        f->tensors[i].elements = i * i * 10000;
    for_each_policy(p) fixture_place(f, *p);
    fixture_free(f);
}

static void a_job_with_one_worker_gets_a_plan(void **state)
{
    struct fixture *f = fixture_new(8, 2);

    f->tensors[0].elements = f->tensors[1].elements = 3000000;
    for_each_policy(p)
    {
        fixture_place(f, *p);
        assert_true(f->plan.pieces_count >= 2);
    }
    fixture_free(f);
}

static void no_piece_is_larger_than_the_limit(void **state)
{
    static const uint64_t limits[] = {4, 7, 64, 100, 4096, 65535, MIB, 0};
    struct fixture *f = fixture_new(3, 3);

    f->tensors[0].elements = 30001;
    f->tensors[1].elements = 17;
    f->tensors[2].elements = 1;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        f->request.piece_bytes_max = limits[i];
        for_each_policy(p) fixture_place(f, *p); /* fixture_place() checks the pieces */
    }
    fixture_free(f);
}

static void a_whole_tensor_is_one_piece_of_any_size(void **state)
{
    struct fixture *f = fixture_new(3, 4);

    f->request.piece_bytes_max = 1 << 10;
    for (size_t i = 0; i < 4; i++) {
        f->tensors[i].elements = i == 3 ? 0 : 100000;
        f->tensors[i].is_whole = true;
    }
    for_each_policy(p)
    {
        fixture_place(f, *p);
        assert_int_equal(f->plan.pieces_count, 4);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(f->plan.pieces[i].elements, f->tensors[i].elements);
    }
    fixture_free(f);
}

static void the_standard_limit_is_four_mebibytes(void **state)
{
    struct fixture *f = fixture_new(1, 1);

    f->tensors[0].elements = MIB;
    fixture_place(f, NULL);
    assert_int_equal(f->plan.pieces_count, 1);
    f->tensors[0].elements++;
    fixture_place(f, NULL);
    assert_int_equal(f->plan.pieces_count, 2);
    fixture_free(f);
}

static void a_tensor_is_cut_into_the_fewest_equal_pieces(void **state)
{
    struct fixture *f = fixture_new(2, 1);

    f->tensors[0].elements = 6 * MIB / 4;
    fixture_place(f, NULL);
    assert_int_equal(f->plan.pieces_count, 2);
    assert_int_equal(f->plan.pieces[0].elements, 3 * MIB / 4);
    assert_int_equal(f->plan.pieces[1].elements, 3 * MIB / 4);
    fixture_free(f);
}

static void pieces_start_on_a_cache_line_of_their_tensor(void **state)
{
    struct fixture *f = fixture_new(4, 2);

    f->tensors[0].elements = 5000001;
    f->tensors[1].elements = 2999999;
    f->tensors[1].element_bytes = 2;
    fixture_place(f, NULL);
    assert_int_equal(f->plan.pieces_count, 5 + 2);
    for (size_t i = 0; i < f->plan.pieces_count; i++) {
        const struct packer_piece *piece = &f->plan.pieces[i];

        assert_int_equal(piece->first * f->tensors[piece->tensor - 1000].element_bytes % 64, 0);
    }
    fixture_free(f);
}

static void memory_may_be_used_to_the_last_byte(void **state)
{
    struct fixture *f = fixture_new(1, 2);

    f->tensors[0].elements = 1000;
    f->tensors[1].elements = 500;
    f->lanes[0].memory_bytes = 6000;
    for_each_policy(p) fixture_place(f, *p);
    f->lanes[0].memory_bytes = 5999;
    for_each_policy(p)
        fixture_refuse(f, *p, -ENOSPC, "need 6000 bytes, but the 1 lanes have only 5999 bytes");
    fixture_free(f);
}

static void too_small_parts_of_memory_are_refused_with_the_piece_that_does_not_fit(void **state)
{
    struct fixture *f = fixture_new(3, 1);

    f->request.workers = 3;
    f->tensors[0].elements = 1000;
    for (size_t i = 0; i < 3; i++)
        f->lanes[i].memory_bytes = 1500 + i;
    fixture_refuse(f, "least-loaded", -ENOSPC,
                   "tensor 1000 needs 4000 bytes on one lane, but the lane with the "
                   "most free memory has only 1502 bytes");
    fixture_refuse(f, "dedicated", -ENOSPC,
                   "the lane with the most free memory has only 1502 bytes");
    fixture_refuse(f, "round-robin", -ENOSPC,
                   "lane 10 would have to take 4000 bytes of tensor "
                   "1000, but has only 1500 bytes");
    fixture_refuse(f, "hash", -ENOSPC, "but has only 1500 bytes");
    fixture_refuse(f, "mxnet", -ENOSPC, "but has only 1500 bytes");
    fixture_free(f);
}

static void lanes_without_a_limit_never_run_full(void **state)
{
    struct fixture *f = fixture_new(2, 1);

    f->request.piece_bytes_max = UINT64_C(1) << 62;
    f->tensors[0].elements = (UINT64_C(1) << 62) - 1;
    f->lanes[0].load_bytes = f->lanes[1].load_bytes = UINT64_MAX; /* the sums must not overflow */
    for_each_policy(p) fixture_place(f, *p);
    fixture_free(f);
}

static void thousands_of_tiny_tensors_are_spread_evenly(void **state)
{
    struct fixture *f = fixture_new(64, 10000);

    f->request.workers = 64;
    for (size_t i = 0; i < 10000; i++)
        f->tensors[i].elements = 1 + i % 7;
    for_each_policy(p) fixture_place(f, *p);
    fixture_place(f, NULL);
    for (size_t i = 0; i < 64; i++)
        assert_in_range(fixture_lane_bytes(f, i), 39996 * 4 / 64 - 28, 39996 * 4 / 64 + 28);
    fixture_free(f);
}

static void the_same_request_gives_the_same_plan(void **state)
{
    struct fixture *f = fixture_new(7, 300);
    struct packer_plan first;

    f->request.workers = 4;
    for (size_t i = 0; i < 300; i++) {
        f->tensors[i].elements = (i * 7919 % 50) * 40000; /* many tensors of equal size */
        f->tensors[i].name_hash = (uint32_t)(i * 2654435761u);
    }
    for_each_policy(p)
    {
        fixture_place(f, *p);
        first = f->plan;
        f->plan = (struct packer_plan){0};
        for (int again = 0; again < 5; again++) {
            fixture_place(f, *p);
            assert_int_equal(f->plan.pieces_count, first.pieces_count);
            assert_memory_equal(f->plan.pieces, first.pieces,
                                first.pieces_count * sizeof(*first.pieces));
        }
        packer_plan_fini(&first);
    }
    fixture_free(f);
}

static void a_plan_may_be_finished_twice_or_never_made(void **state)
{
    struct packer_plan plan = {0};

    packer_plan_fini(NULL);
    packer_plan_fini(&plan);
    packer_plan_fini(&plan);
    assert_null(plan.pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_lane_everything_is_refused),
        cmocka_unit_test(without_a_tensor_the_plan_is_empty),
        cmocka_unit_test(a_tensor_without_elements_gets_one_empty_piece),
        cmocka_unit_test(an_unknown_policy_is_refused_and_the_known_ones_are_listed),
        cmocka_unit_test(a_service_is_offered_known_policies_and_no_baseline),
        cmocka_unit_test(no_policy_means_the_first_of_the_list),
        cmocka_unit_test(lanes_out_of_order_are_refused),
        cmocka_unit_test(too_many_lanes_are_refused),
        cmocka_unit_test(elements_without_bytes_or_larger_than_a_piece_are_refused),
        cmocka_unit_test(sizes_beyond_64_bits_are_refused),
        cmocka_unit_test(a_plan_of_millions_of_pieces_is_refused),
        cmocka_unit_test(a_rule_that_cuts_finer_meets_the_same_bound),
        cmocka_unit_test(a_refusal_can_be_had_without_its_reason),
        cmocka_unit_test(one_lane_takes_all),
        cmocka_unit_test(a_job_with_one_worker_gets_a_plan),
        cmocka_unit_test(no_piece_is_larger_than_the_limit),
        cmocka_unit_test(a_whole_tensor_is_one_piece_of_any_size),
        cmocka_unit_test(the_standard_limit_is_four_mebibytes),
        cmocka_unit_test(a_tensor_is_cut_into_the_fewest_equal_pieces),
        cmocka_unit_test(pieces_start_on_a_cache_line_of_their_tensor),
        cmocka_unit_test(memory_may_be_used_to_the_last_byte),
        cmocka_unit_test(too_small_parts_of_memory_are_refused_with_the_piece_that_does_not_fit),
        cmocka_unit_test(lanes_without_a_limit_never_run_full),
        cmocka_unit_test(thousands_of_tiny_tensors_are_spread_evenly),
        cmocka_unit_test(the_same_request_gives_the_same_plan),
        cmocka_unit_test(a_plan_may_be_finished_twice_or_never_made),
    };

    return cmocka_run_group_tests_name("packer", tests, NULL, NULL);
}
