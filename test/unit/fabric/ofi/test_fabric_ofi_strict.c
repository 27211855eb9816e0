/* Tests fabric_ofi on a provider with all requirements (strict_provider.h): the cases of every
 * fabric, then words, keys and addresses. */
#include "test/unit/fabric/fabric_suite.h"
#include "test/unit/fabric/ofi/strict_provider.h"

#include "svc/fabric/ofi/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void name_address(char *ret_address)
{
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "127.0.0.1:0");
}

static const struct fabric_factory strict = {
    .name = "fabric_ofi_strict",
    .open = strict_open,
    .name_address = name_address,
    .dead_address = "127.0.0.1:1",
    .payload_bytes_max = 65536,
    .ping_pongs = 500,
};

static void each_word_of_a_write_uses_up_a_receive_that_is_posted_again(void **state)
{
    enum { WORDS = 100 };
    struct rig *rig = *state;
    static char slot[WORDS];
    unsigned before = strict_counts().words;
    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, slot, sizeof slot), 0);
    memset(slot, 7, sizeof slot);
    for (uint32_t i = 0; i < WORDS; i++) {
        assert_int_equal(
            fabric_write_word(rig->at_lane[0], 0, i, slot + i, 1, UINT32_MAX - i, NULL), 0);
        fabric_flush(rig->lane.fabric); /* sends each word alone (O13) */
    }
    for (uint32_t i = 0; i < WORDS; i++)
        assert_int_equal(rig_expect(rig, &rig->workers[0], FABRIC_EVENT_WORD).event.word,
                         UINT32_MAX - i);
    assert_int_equal(strict_counts().words - before, WORDS);
    assert_memory_equal(region.base, slot, sizeof slot);
    rig_send(rig->at_lane[0], "still there");
    rig_expect_text(rig, &rig->workers[0], "still there");
    region_destroy(&region);
}

static void regions_are_named_by_virtual_address_and_the_providers_key(void **state)
{
    struct rig *rig = *state;
    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 3, 8192);
    const struct ofi_foreign *there = &((struct ofi_conn *)rig->at_lane[0])->foreign[3];
    const struct ofi_conn *worker = (const struct ofi_conn *)rig->at_worker[0];
    assert_int_equal(there->address, (uintptr_t)region.base);
    assert_int_equal(there->key, fi_mr_key(worker->lent[3]->mr));
    region_destroy(&region);
}

static void memory_that_is_not_registered_is_refused_before_it_is_posted(void **state)
{
    struct rig *rig = *state;
    static char slot[64];
    rig_connect(rig, 0);
    struct region region = rig_lend(rig, 0, 0, 4096);
    assert_int_equal(fabric_read(rig->at_lane[0], 0, 0, slot, sizeof slot, NULL), -EINVAL);
    assert_int_equal(fabric_pool_register(rig->lane.fabric, slot, sizeof slot), 0);
    unsigned before = strict_counts().descriptors;
    assert_int_equal(fabric_read(rig->at_lane[0], 0, 0, slot, sizeof slot, NULL), 0);
    assert_int_equal(strict_counts().descriptors, before + 1);
    assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_READ).event.error, 0);
    region_destroy(&region);
}

static void the_cases_above_found_receives_missing_and_lost_nothing(void **state)
{
    (void)state;
    assert_true(strict_counts().waits > 0);
}

int main(void)
{
    const struct CMUnitTest own[] = {
        FABRIC_CASE(each_word_of_a_write_uses_up_a_receive_that_is_posted_again),
        FABRIC_CASE(regions_are_named_by_virtual_address_and_the_providers_key),
        FABRIC_CASE(memory_that_is_not_registered_is_refused_before_it_is_posted),
        cmocka_unit_test(the_cases_above_found_receives_missing_and_lost_nothing),
    };
    return fabric_suite_run(&strict, own, sizeof own / sizeof own[0]);
}
