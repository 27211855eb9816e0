/* Tests the packer with random requests. Each plan must satisfy P2 to P7, and each refusal must be
 * right. */
#include "test/unit/packer/packer_fixture.h"

#include <time.h>

#define REQUESTS 400

/* Draws a random number by splitmix64: the same seed gives the same numbers on every machine. */
static uint64_t draw(uint64_t *seed, uint64_t below)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static uint64_t draw_elements(uint64_t *seed)
{
    switch (draw(seed, 4)) {
    case 0: return draw(seed, 3);
    case 1: return draw(seed, 5000);
    case 2: return 999990 + draw(seed, 20);
    default: return draw(seed, 6000000);
    }
}

static void draw_request(struct fixture *f, uint64_t *seed)
{
    static const uint32_t widths[] = {1, 2, 4, 8, 12};

    f->request.workers = 1 + (uint32_t)draw(seed, 8);
    f->request.job_key = draw(seed, UINT64_MAX);
    f->request.piece_bytes_max = draw(seed, 2) ? 0 : 4096 + draw(seed, 1 << 20);
    for (size_t i = 0; i < f->request.lanes_count; i++) {
        f->lanes[i].jobs = (uint32_t)draw(seed, 3);
        f->lanes[i].load_bytes = draw(seed, 1 << 28);
        f->lanes[i].job_bytes = draw(seed, 2) ? 0 : draw(seed, f->lanes[i].load_bytes + 1);
        f->lanes[i].load_ppm = draw(seed, 1000001);
        f->lanes[i].memory_bytes = draw(seed, 3) ? UINT64_MAX : draw(seed, 1 << 26);
    }
    for (size_t i = 0; i < f->request.tensors_count; i++) {
        f->tensors[i].elements = draw_elements(seed);
        f->tensors[i].element_bytes = widths[draw(seed, 5)];
        f->tensors[i].name_hash = (uint32_t)draw(seed, UINT32_MAX);
    }
}

static int place_once(struct fixture *f, const char *policy, struct packer_plan *ret_plan)
{
    f->request.policy = policy;
    return packer_place(&f->request, ret_plan, f->reason, sizeof(f->reason));
}

/* Returns whether the packer has made a plan. */
static bool check_request(struct fixture *f, const char *policy)
{
    struct packer_plan again = {0};
    int r;

    packer_plan_fini(&f->plan);
    r = place_once(f, policy, &f->plan);
    assert_int_equal(place_once(f, policy, &again), r);
    if (r < 0) {
        assert_int_equal(r, -ENOSPC);
        assert_null(again.pieces);
        assert_true(strlen(f->reason) > 20);
        return false;
    }
    fixture_check_plan(f);
    assert_int_equal(again.pieces_count, f->plan.pieces_count);
    assert_memory_equal(again.pieces, f->plan.pieces, again.pieces_count * sizeof(*again.pieces));
    packer_plan_fini(&again);
    return true;
}

static void any_request_is_covered_once_or_refused(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);
    size_t placed = 0, refused = 0;

    print_message("# seed %" PRIu64 "\n", seed);
    for (int i = 0; i < REQUESTS; i++) {
        struct fixture *f = fixture_new(1 + draw(&seed, 12), 1 + draw(&seed, 60));

        draw_request(f, &seed);
        for (const char *const *p = packer_policies(); *p; p++) {
            bool made = check_request(f, *p);

            placed += made;
            refused += !made;
        }
        fixture_free(f);
    }
    assert_true(placed > REQUESTS / 2);
    assert_true(refused > REQUESTS / 2);
}

static uint64_t plan_max(const struct fixture *f)
{
    uint64_t max = 0;

    for (size_t i = 0; i < f->request.lanes_count; i++)
        if (fixture_lane_bytes(f, i) > max)
            max = fixture_lane_bytes(f, i);
    return max;
}

/* Checks the known bound of list scheduling: no lane exceeds the mean by more than one piece. */
static void on_empty_lanes_least_loaded_is_within_a_piece_of_the_mean(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);

    print_message("# seed %" PRIu64 "\n", seed);
    for (int i = 0; i < REQUESTS / 4; i++) {
        struct fixture *f = fixture_new(1 + draw(&seed, 12), 1 + draw(&seed, 60));
        uint64_t total = 0;

        for (size_t t = 0; t < f->request.tensors_count; t++) {
            f->tensors[t].elements = draw_elements(&seed);
            total += 4 * f->tensors[t].elements;
        }
        fixture_place(f, NULL);
        assert_true(plan_max(f) <= total / f->request.lanes_count + PACKER_PIECE_BYTES_MAX);
        fixture_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_request_is_covered_once_or_refused),
        cmocka_unit_test(on_empty_lanes_least_loaded_is_within_a_piece_of_the_mean),
    };

    return cmocka_run_group_tests_name("packer random", tests, NULL, NULL);
}
