/* S12: what a lane maps ahead of memory that workers lend to it over shm. */
#include "test/unit/fabric_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void name_address(char *ret_address)
{
    static int count;

    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "@gradpool-prefault-%d-%d", (int)getpid(),
             count++);
}

static int open_shm(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("shm", options, ret_fabric);
}

static int set_up(void **state)
{
    static const struct fabric_factory factory = {
        .name = "shm_prefault", .open = open_shm, .name_address = name_address};
    static struct rig rig;

    rig_open(&rig, &factory, NULL);
    *state = &rig;
    return 0;
}

static int tear_down(void **state)
{
    rig_close(*state);
    return 0;
}

/* Of the pages from `at` on, those that this process has mapped there. */
static size_t mapped_pages(const char *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    for (size_t i = 0; i < bytes / page; i++) {
        uint64_t entry = 0;
        off_t offset = (off_t)(((uintptr_t)at / page + i) * sizeof entry);
        assert_int_equal(pread(fd, &entry, sizeof entry, offset), sizeof entry);
        mapped += entry >> 63;
    }
    close(fd);
    return mapped;
}

static void a_lane_that_may_sleep_maps_what_is_there_of_a_region_and_adds_nothing(void **state)
{
    enum { BYTES = 8 << 20, WRITTEN = 5 << 20 };
    struct rig *rig = *state;
    struct fabric_wait wait;
    struct region region;
    unsigned char is_there[BYTES / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), there = 0;

    rig_connect(rig, 0);
    assert_int_equal(region_create(BYTES, &region), 0);
    memset(region.base, 1, WRITTEN);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION).event.word, 0);
    for (int i = 0; i < 100 && fabric_arm(rig->lane.fabric, &wait) == -EAGAIN; i++)
        rig_expect_nothing(rig, &rig->lane);
    assert_int_equal(fabric_arm(rig->lane.fabric, &wait), 0);
    const char *mapped = fabric_map(rig->at_lane[0], 0, 0, BYTES);
    /* The kernel may take some back at any time. */
    assert_in_range(mapped_pages(mapped, WRITTEN), WRITTEN / page * 9 / 10, WRITTEN / page);
    assert_int_equal(mincore(region.base, BYTES, is_there), 0);
    for (size_t i = 0; i < BYTES / page; i++)
        there += is_there[i] & 1;
    assert_int_equal(there, WRITTEN / page);
    region_destroy(&region);
}

static void a_region_that_goes_while_it_is_mapped_ahead_is_no_harm(void **state)
{
    struct rig *rig = *state;
    struct fabric_wait wait;

    rig_connect(rig, 0);
    for (uint32_t id = 0; id < 3; id++) {
        struct region region = rig_lend(rig, 0, id, 8 << 20);
        memset(region.base, 1, 8 << 20);
        (void)fabric_arm(rig->lane.fabric, &wait);
        fabric_withdraw(rig->at_worker[0], id);
        rig_expect_nothing(rig, &rig->lane);
        region_destroy(&region);
    }
    assert_int_equal(fabric_arm(rig->lane.fabric, &wait), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(
            a_lane_that_may_sleep_maps_what_is_there_of_a_region_and_adds_nothing, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(a_region_that_goes_while_it_is_mapped_ahead_is_no_harm,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests_name("shm_prefault", cases, NULL, NULL);
}
