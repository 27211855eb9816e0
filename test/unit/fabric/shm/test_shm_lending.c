/* Tests memory that workers share over shm. The lane's mapping must never add a page (S12, S14). An
 * access of the lane to an absent page must fail, or the lane must check first whether the page
 * exists. */
#include "test/unit/fabric/fabric_suite.h"

#include "svc/base/clock.h"
#include "svc/fabric/group.h"
#include "svc/fabric/shm/map/absent.h"
#include "svc/wire/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 8 << 20, PART = 5 << 20 };

static bool kernel_helps;

bool __real_shm_absent_fail(void *base, uint64_t bytes);
bool __wrap_shm_absent_fail(void *base, uint64_t bytes);
bool __wrap_shm_absent_fail(void *base, uint64_t bytes)
{
    return kernel_helps && __real_shm_absent_fail(base, bytes);
}

static void name_address(char *ret_address)
{
    static int count;

    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "@gradpool-lending-%d-%d", (int)getpid(),
             count++);
}

static int open_shm(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("shm", options, ret_fabric);
}

static int set_up(void **state)
{
    static const struct fabric_factory factory = {
        .name = "shm_lending", .open = open_shm, .name_address = name_address};
    static struct rig rig;

    rig_open(&rig, &factory, NULL);
    rig_connect(&rig, 0);
    *state = &rig;
    return 0;
}

static int with_help(void **state)
{
    /* without userfaultfd these cases are the same as the cases in which the lane checks for absent
     * pages */
    kernel_helps = shm_absent_can_fail();
    return set_up(state);
}

static int with_looks(void **state)
{
    kernel_helps = false;
    return set_up(state);
}

static int tear_down(void **state)
{
    rig_close(*state);
    return 0;
}

static size_t pages_of(size_t bytes) { return bytes / (size_t)sysconf(_SC_PAGESIZE); }

/* Returns the number of pages mapped by this process, starting at `at`. */
static size_t mapped_pages(const char *at, size_t bytes)
{
    size_t mapped = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    for (size_t i = 0; i < pages_of(bytes); i++) {
        uint64_t entry = 0;
        off_t offset = (off_t)((pages_of((uintptr_t)at) + i) * sizeof entry);
        assert_int_equal(pread(fd, &entry, sizeof entry, offset), sizeof entry);
        mapped += entry >> 63;
    }
    close(fd);
    return mapped;
}

/* Returns the number of existing pages. Any process may have added them. */
static size_t pages_there(const struct region *region)
{
    unsigned char is_there[BYTES / 4096];
    size_t there = 0;

    assert_int_equal(mincore(region->base, region->bytes, is_there), 0);
    for (size_t i = 0; i < pages_of(region->bytes); i++)
        there += is_there[i] & 1;
    return there;
}

static struct region lend_untouched(struct rig *rig, uint32_t id)
{
    struct region region;

    assert_int_equal(region_reserve(BYTES, &region), 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, id), 0);
    assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION).event.word, id);
    return region;
}

static void announce(struct rig *rig, uint64_t offset, uint64_t bytes)
{
    const struct record_ready ready = {.kind = RECORD_READY,
                                       .operation = RECORD_SUM,
                                       .input_offset = offset,
                                       .input_bytes = bytes,
                                       .weight = RECORD_WEIGHT,
                                       .gradient = RECORD_GRADIENT};

    assert_int_equal(fabric_send(rig->at_worker[0], &ready, sizeof ready, NULL, 0), 0);
}

static void a_region_is_mapped_up_to_its_first_absent_page_(void **state)
{
    struct rig *rig = *state;
    struct region region;

    assert_int_equal(region_reserve(BYTES, &region), 0);
    memset(region.base, 1, PART);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION);
    const char *mapped = fabric_map(rig->at_lane[0], 0, 0, PART);
    /* the kernel may reclaim some pages at any time */
    assert_in_range(mapped_pages(mapped, BYTES), pages_of(PART) * 9 / 10, pages_of(PART));
    assert_int_equal(pages_there(&region), pages_of(PART));
    region_destroy(&region);
}

static void pages_that_come_later_are_mapped_before_the_record_that_names_them_(void **state)
{
    struct rig *rig = *state;
    struct region region = lend_untouched(rig, 0);
    char *part = (char *)region.base + BYTES - PART;

    memset(part, 1, PART);
    rig_send(rig->at_worker[0], "before");
    announce(rig, BYTES - PART, PART);
    rig_send(rig->at_worker[0], "after");
    rig_expect_text(rig, &rig->lane, "before");
    struct seen seen = rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
    assert_int_equal(seen.data[0], RECORD_READY);
    const char *mapped = fabric_map(rig->at_lane[0], 0, BYTES - PART, PART);
    assert_in_range(mapped_pages(mapped, PART), pages_of(PART) * 9 / 10, pages_of(PART));
    assert_int_equal(pages_there(&region), pages_of(PART));
    rig_expect_text(rig, &rig->lane, "after");
    region_destroy(&region);
}

static void memory_that_is_announced_without_its_pages_ends_the_connection_(void **state)
{
    struct rig *rig = *state;
    struct region region = lend_untouched(rig, 0);

    memset(region.base, 1, PART);
    announce(rig, PART - 4096, 2 * 4096);
    rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], -EFAULT);
    assert_int_equal(pages_there(&region), pages_of(PART));
    region_destroy(&region);
}

/* If a lane reads a removed page, it gets zeros from a page that belongs to the lane. */
static void pages_removed_after_the_announcement_are_not_added_again_(void **state)
{
    struct rig *rig = *state;
    struct region region = rig_lend(rig, 0, 0, BYTES);

    announce(rig, 0, BYTES);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
    assert_int_equal(madvise(region.base, PART, MADV_REMOVE), 0);
    volatile char *mapped = fabric_map(rig->at_lane[0], 0, 0, BYTES);
    assert_int_equal(mapped != NULL, kernel_helps);
    for (size_t i = 0; kernel_helps && i < 10; i++)
        mapped[i * 4096] = 1;
    assert_int_equal(fabric_is_sound(rig->at_lane[0]), !kernel_helps);
    if (kernel_helps)
        rig_expect_closed(rig, &rig->lane, &rig->at_lane[0], -EFAULT);
    assert_int_equal(pages_there(&region), pages_of(BYTES - PART));
    region_destroy(&region);
}

static void wait_until_warm(struct rig *rig)
{
    struct fabric_event events[8];
    uint64_t deadline_ns = clock_now_ns() + 20 * NS_PER_S;
    while (!fabric_is_warm(rig->at_lane[0])) {
        assert_int_equal(fabric_poll(rig->lane.fabric, events, 8), 0);
        assert_true(clock_now_ns() < deadline_ns);
    }
}

/* The lane skips pages that their owner has returned to the kernel, and still accesses the pages
 * after the skipped pages. */
static void existing_pages_are_mapped_early_and_no_page_is_added_(void **state)
{
    struct rig *rig = *state;
    struct region region = lend_untouched(rig, 0);

    wait_until_warm(rig);
    memset(region.base, 1, PART);
    announce(rig, 0, PART);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
    wait_until_warm(rig);
    assert_int_equal(madvise(region.base, 4096, MADV_REMOVE), 0);
    memset((char *)region.base + PART, 1, BYTES - PART);
    announce(rig, PART, BYTES - PART);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_MESSAGE);
    wait_until_warm(rig);
    assert_true(fabric_is_sound(rig->at_lane[0]));
    assert_int_equal(pages_there(&region), pages_of(BYTES) - 1);
    region_destroy(&region);
}

static void a_large_region_without_pages_costs_nothing_(void **state)
{
    struct rig *rig = *state;
    struct region region;

    assert_int_equal(region_reserve((size_t)1 << 36, &region), 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    assert_int_equal(rig_expect(rig, &rig->lane, FABRIC_EVENT_REGION).event.bytes, region.bytes);
    region_destroy(&region);
}

static void a_region_withdrawn_while_it_is_mapped_does_no_harm_(void **state)
{
    struct rig *rig = *state;
    struct fabric_wait wait;

    for (uint32_t id = 0; id < 3; id++) {
        struct region region = rig_lend(rig, 0, id, BYTES);
        fabric_withdraw(rig->at_worker[0], id);
        rig_expect_nothing(rig, &rig->lane);
        region_destroy(&region);
    }
    assert_int_equal(fabric_arm(rig->lane.fabric, &wait), 0);
}

static void a_connection_that_ends_while_its_region_is_mapped_does_no_harm_(void **state)
{
    struct rig *rig = *state;
    struct fabric_event events[4];
    struct region region;

    assert_int_equal(region_create(BYTES, &region), 0);
    assert_int_equal(fabric_lend(rig->at_worker[0], &region, 0), 0);
    (void)fabric_poll(rig->lane.fabric, events, 4);
    fabric_disconnect(rig->at_lane[0]);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    region_destroy(&region);
}

static uint64_t charged_ns;

static void charge_job(struct fabric_group *group, uint64_t polled_ns, uint64_t helped_ns)
{
    assert_non_null(group->above);
    assert_int_equal(polled_ns, 0);
    charged_ns += helped_ns;
}

/* The mapper's thread unmaps some time after WITHDRAW. */
static void the_job_pays_for_the_end_of_its_mappings_(void **state)
{
    struct rig *rig = *state;
    struct fabric_group tenant, job;
    uint64_t deadline_ns = clock_now_ns() + 10 * NS_PER_S;

    fabric_group_init(&tenant, NULL);
    fabric_group_init(&job, &tenant);
    job.charge = charge_job;
    charged_ns = 0;
    fabric_join_group(rig->at_lane[0], &job);
    struct region region = rig_lend(rig, 0, 0, BYTES);
    assert_int_equal(charged_ns, 0);
    uint64_t mapped_ns = job.until_ns[FABRIC_BILL_MAPPING];
    fabric_withdraw(rig->at_worker[0], 0);
    while (charged_ns == 0 && clock_now_ns() < deadline_ns)
        rig_pump(rig);
    assert_true(charged_ns > 0);
    assert_true(job.until_ns[FABRIC_BILL_MAPPING] > mapped_ns);
    fabric_disconnect(rig->at_lane[0]);
    rig_expect(rig, &rig->lane, FABRIC_EVENT_CLOSED);
    assert_true(list_is_empty(&tenant.turns[FABRIC_TURN_SHM].link));
    region_destroy(&region);
}

#define CASE(f, how) #f #how, f, how, tear_down, NULL
#define CASES(how)                                                                        \
    {CASE(a_region_is_mapped_up_to_its_first_absent_page_, how)},                         \
        {CASE(pages_that_come_later_are_mapped_before_the_record_that_names_them_, how)}, \
        {CASE(memory_that_is_announced_without_its_pages_ends_the_connection_, how)},     \
        {CASE(pages_removed_after_the_announcement_are_not_added_again_, how)},           \
        {CASE(existing_pages_are_mapped_early_and_no_page_is_added_, how)},               \
        {CASE(a_large_region_without_pages_costs_nothing_, how)},                         \
        {CASE(a_region_withdrawn_while_it_is_mapped_does_no_harm_, how)},                 \
        {CASE(a_connection_that_ends_while_its_region_is_mapped_does_no_harm_, how)},     \
    {                                                                                     \
        CASE(the_job_pays_for_the_end_of_its_mappings_, how)                              \
    }

int main(void)
{
    const struct CMUnitTest cases[] = {CASES(with_help), CASES(with_looks)};
    return cmocka_run_group_tests_name("shm_lending", cases, NULL, NULL);
}
