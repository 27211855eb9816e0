/* Tests how the members of an elastic job with an update rule compute from its parameters which
 * gradients were used. */
#include "test/lib/extent.h"

#include "bench/faults/worker/mirror.h"

#include "svc/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEED 3
#define GRACE_NS (5 * NS_PER_MS)

static struct mirror_book *book;
static struct mirror service, member, late; /* `service` computes its steps like the lanes */
static float *values;

static int begin(void **state)
{
    book = calloc(1, sizeof *book);
    values = calloc(PUSH_ELEMENTS, sizeof *values);
    assert_true(book && values);
    assert_int_equal(mirror_init(&service, book, SEED), 0);
    assert_int_equal(mirror_init(&member, book, SEED), 0);
    assert_int_equal(mirror_init(&late, book, SEED), 0);
    mirror_set(&service, values);
    mirror_set(&member, values);
    return 0;
}

static int end(void **state)
{
    mirror_fini(&service);
    mirror_fini(&member);
    mirror_fini(&late);
    free(book);
    free(values);
    return 0;
}

/* Computes the lanes' result of these pushes, and stores it in `values`. `ends`: one of the
 * gradients announces the last round. */
static void step(const struct pushes *pushes, bool ends)
{
    const void *gradients[LEDGER_RANKS];
    const struct update_settings settings = mirror_settings();
    uint32_t count = pushes_draw_all(SEED, pushes, service.gradients, gradients);
    void *target = values;
    service.gradients[PUSH_END] = ends;
    const struct reduce_pass sums = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = gradients,
                                     .sources_count = (int)count,
                                     .elements = PUSH_ELEMENTS,
                                     .divisor = count};
    const struct update_state state = {.parameters = service.now->parameters,
                                       .moments = {service.now->moment},
                                       .ret_parameters = service.now->parameters,
                                       .ret_moments = {service.now->moment}};
    update_pick(REDUCE_C, UPDATE_MOMENTUM, REDUCE_F32, REDUCE_F32)(&sums, &settings,
                                                                   ++service.now->step, &state);
    memcpy(values, service.now->parameters, sizeof service.now->parameters);
}

/* Returns pushes of ranks 0 to 2. At some counts a fourth rank, which has joined twice, also
 * pushes. */
static struct pushes round_of(uint32_t count)
{
    struct pushes pushes = {.of = {{1, count}, {1, count}, {1, count}}};
    if (count % 8 > 4)
        pushes.of[3] = (struct ledger_push){1 + count / 8, count % 8 - 4};
    return pushes;
}

static void a_step_shows_its_gradients_even_after_many_steps(void **state)
{
    struct pushes read;
    for (uint32_t count = 1; count < extent(600, 60, 600); count++) {
        const struct pushes pushes = round_of(count);
        step(&pushes, false);
        assert_int_equal(mirror_follow(&member, values, &read), 0);
        assert_memory_equal(&read, &pushes, sizeof read);
        assert_true(trail_follow(&member.now->trail, read.of));
        assert_false(mirror_ends(&member));
    }
}

static void large_numbers_are_read_too(void **state)
{
    struct pushes read;
    for (uint32_t i = 1; i < extent(100, 20, 100); i++) {
        const struct pushes pushes = {.of = {{1000, 50000 + i}, {3, i}, {900, 49000 + i}, {1, i}}};
        step(&pushes, false);
        assert_int_equal(mirror_follow(&member, values, &read), 0);
        assert_memory_equal(&read, &pushes, sizeof read);
    }
}

static void a_change_of_one_bit_is_detected(void **state)
{
    struct pushes read;
    const struct pushes pushes = round_of(1);
    uint32_t bits;
    step(&pushes, false);
    memcpy(&bits, &values[PUSH_ELEMENTS - 1], sizeof bits);
    bits ^= 1;
    memcpy(&values[PUSH_ELEMENTS - 1], &bits, sizeof bits);
    assert_int_equal(mirror_follow(&member, values, &read), 1);
}

/* Simulates a lane that has lost its moments: its parameters are right, and all its moments are
 * zero. */
static void the_loss_of_moments_is_detected(void **state)
{
    struct pushes read;
    for (uint32_t count = 1; count < 4; count++) {
        const struct pushes pushes = round_of(count);
        step(&pushes, false);
        assert_int_equal(mirror_follow(&member, values, &read), 0);
    }
    const struct pushes pushes = round_of(4);
    service.now->step = 0;
    step(&pushes, false);
    assert_true(mirror_follow(&member, values, &read) > PUSH_ELEMENTS / 2);
}

static void a_repeated_step_is_detected(void **state)
{
    struct pushes read;
    const struct pushes pushes = round_of(1);
    step(&pushes, false);
    step(&pushes, false);
    assert_true(mirror_follow(&member, values, &read) > PUSH_ELEMENTS / 2);
}

static void the_last_round_is_announced_by_any_rank(void **state)
{
    struct pushes read;
    const struct pushes pushes = round_of(1);
    step(&pushes, true);
    assert_int_equal(mirror_follow(&member, values, &read), 0);
    assert_true(mirror_ends(&member));
}

/* The page of the other member contains the state after the last step, or the state before this
 * step. */
static void a_late_member_finds_the_states_of_others(void **state)
{
    for (uint32_t behind = 0; behind < 2; behind++) {
        struct pushes read, found;
        for (uint32_t count = 1; count < 4; count++) {
            const struct pushes pushes = round_of(count + 3 * behind);
            step(&pushes, false);
            assert_int_equal(mirror_follow(&member, values, &read), 0);
            assert_true(trail_follow(&member.now->trail, read.of));
            if (behind == 0 || count < 3)
                mirror_show(&member, count % 3);
        }
        assert_true(mirror_find(&late, values, GRACE_NS, &found));
        assert_memory_equal(&found, &read, sizeof found);
        assert_memory_equal(late.now->moment, member.now->moment, sizeof late.now->moment);
        memset(book, 0, sizeof *book);
    }
}

static void parameters_of_two_unseen_steps_are_not_found(void **state)
{
    struct pushes read;
    const struct pushes first = round_of(1), second = round_of(2);
    mirror_show(&member, 0);
    step(&first, false);
    step(&second, false);
    assert_false(mirror_find(&late, values, GRACE_NS, &read));
}

/* the other member was killed while it wrote the page */
static void a_torn_page_is_not_taken(void **state)
{
    struct pushes read;
    const struct pushes pushes = round_of(1);
    step(&pushes, false);
    assert_int_equal(mirror_follow(&member, values, &read), 0);
    mirror_show(&member, 1);
    book->pages[1][1].turn |= 1;
    assert_false(mirror_find(&late, values, GRACE_NS, &read));
    mirror_show(&member, 1);
    assert_true(mirror_find(&late, values, GRACE_NS, &read));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_shows_its_gradients_even_after_many_steps, begin,
                                        end),
        cmocka_unit_test_setup_teardown(large_numbers_are_read_too, begin, end),
        cmocka_unit_test_setup_teardown(a_change_of_one_bit_is_detected, begin, end),
        cmocka_unit_test_setup_teardown(the_loss_of_moments_is_detected, begin, end),
        cmocka_unit_test_setup_teardown(a_repeated_step_is_detected, begin, end),
        cmocka_unit_test_setup_teardown(the_last_round_is_announced_by_any_rank, begin, end),
        cmocka_unit_test_setup_teardown(a_late_member_finds_the_states_of_others, begin, end),
        cmocka_unit_test_setup_teardown(parameters_of_two_unseen_steps_are_not_found, begin, end),
        cmocka_unit_test_setup_teardown(a_torn_page_is_not_taken, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
