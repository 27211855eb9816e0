/* Tests tenants' shares of the resources of an aggregator process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/lane/memory/shares.h"

/* limit of 1600, of which tenants may use 1500; 200 of these are reserved for tenants that use
 * at most 12 */
#define MOST 1600

static int setup(void **state)
{
    for (enum share_kind kind = 0; kind < SHARE_KINDS; kind++) {
        assert_true(shares_most(kind) > 0);
        shares_pretend(kind, MOST);
    }
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"evil", "good", "third"};
    for (int i = 0; i < 3; i++)
        for (enum share_kind kind = 0; kind < SHARE_KINDS; kind++)
            shares_add(names[i], kind, -(int64_t)shares_used(names[i], kind));
    return 0;
}

static void a_tenant_has_half_beside_another_tenant(void **state)
{
    assert_true(shares_allow("evil", true, SHARE_LENT, MOST / 2));
    assert_false(shares_allow("evil", true, SHARE_LENT, MOST / 2 + 1));
    shares_add("evil", SHARE_LENT, MOST / 2);
    assert_false(shares_allow("evil", true, SHARE_LENT, 1));
    assert_true(shares_allow("good", true, SHARE_LENT, 500));
    assert_true(shares_allow("evil", true, SHARE_DESCRIPTORS, 1)); /* each resource has its own
                                                                    * limit */
}

static void a_single_tenant_may_use_all_but_the_share_of_the_process(void **state)
{
    assert_true(shares_allow("evil", false, SHARE_MAPPINGS, 1500));
    assert_false(shares_allow("evil", false, SHARE_MAPPINGS, 1501));
    assert_false(shares_allow("evil", false, SHARE_MAPPINGS, UINT64_MAX));
}

static void the_last_part_is_reserved_for_small_tenants(void **state)
{
    shares_add("evil", SHARE_DESCRIPTORS, 700);
    shares_add("good", SHARE_DESCRIPTORS, 600);
    assert_false(shares_allow("good", true, SHARE_DESCRIPTORS, 1));
    assert_true(shares_allow("third", true, SHARE_DESCRIPTORS, 12));
    assert_false(shares_allow("third", true, SHARE_DESCRIPTORS, 13));
}

static void a_returned_share_can_be_used_again(void **state)
{
    shares_add("evil", SHARE_LENT, 800);
    shares_add("evil", SHARE_LENT, -300);
    assert_int_equal(shares_used("evil", SHARE_LENT), 500);
    assert_true(shares_allow("evil", true, SHARE_LENT, 300));
    shares_add("evil", SHARE_LENT, -900); /* a tenant returns more than it uses */
    assert_int_equal(shares_used("evil", SHARE_LENT), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_tenant_has_half_beside_another_tenant),
        CASE(a_single_tenant_may_use_all_but_the_share_of_the_process),
        CASE(the_last_part_is_reserved_for_small_tenants),
        CASE(a_returned_share_can_be_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
