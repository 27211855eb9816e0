/* Tests the cores of this machine and of simulated machines. */
#include "svc/host/cores.h"

#include "svc/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define TWO_PACKAGES "pack:2 numa:1 core:32 pu:2"

static struct cores *machine(const char *synthetic, const char *list)
{
    struct cores *c = NULL;
    struct err err = {0};
    setenv("HWLOC_SYNTHETIC", synthetic, 1);
    int r = cores_create(list, &c, &err);
    unsetenv("HWLOC_SYNTHETIC");
    if (r < 0)
        fail_msg("%s", err.text);
    return c;
}

static void a_lane_is_a_core_not_a_hyperthread(void **state)
{
    struct cores *c = machine(TWO_PACKAGES, NULL);
    assert_int_equal(cores_count(c), 64);
    for (size_t i = 0; i < 64; i++) {
        struct core core = cores_at(c, i);
        assert_int_equal(core.index, i);
        assert_int_equal(core.pu, 2 * i);
        assert_int_equal(core.numa, i / 32);
        assert_true(core.numa_memory_bytes > 0);
    }
    cores_destroy(c);
}

static void cores_come_in_order_of_node_then_core(void **state)
{
    /* on this simulated machine, node numbers are in the reverse order of packages */
    struct cores *c = machine("pack:2 [numa(indexes=1,0)] core:2 pu:1", NULL);
    static const uint32_t order[] = {2, 3, 0, 1};
    assert_int_equal(cores_count(c), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(cores_at(c, i).index, order[i]);
        assert_int_equal(cores_at(c, i).numa, i / 2);
    }
    char text[32];
    assert_string_equal(cores_format(c, 0, 4, text, sizeof(text)), "2-3,0-1");
    cores_destroy(c);
}

static void a_list_narrows_to_holes_and_keeps_the_order(void **state)
{
    struct cores *c = machine(TWO_PACKAGES, "40,3,0-1,62-63");
    static const uint32_t kept[] = {0, 1, 3, 40, 62, 63};
    assert_int_equal(cores_count(c), 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(cores_at(c, i).index, kept[i]);
        assert_int_equal(cores_at(c, i).pu, 2 * kept[i]);
    }
    cores_destroy(c);
}

static void the_last_level_cache_is_found(void **state)
{
    struct cores *c = machine("pack:1 l3:2(size=33554432) l2:2(size=1048576) core:1 pu:1", NULL);
    assert_int_equal(cores_count(c), 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(cores_at(c, i).cache_bytes, 32 << 20);
    cores_destroy(c);
    c = machine("pack:1 core:2 pu:1", NULL);
    assert_int_equal(cores_at(c, 1).cache_bytes, 0);
    cores_destroy(c);
}

static void a_machine_of_one_pu_has_one_core(void **state)
{
    struct cores *c = machine("pu:1", NULL);
    assert_int_equal(cores_count(c), 1);
    assert_int_equal(cores_at(c, 0).index, 0);
    assert_int_equal(cores_at(c, 0).pu, 0);
    cores_destroy(c);
}

static void a_formatted_list_can_be_read_again(void **state)
{
    struct cores *c = machine(TWO_PACKAGES, "0,2-5,9,11-12,63");
    char text[64], again[64];
    assert_string_equal(cores_format(c, 0, cores_count(c), text, sizeof(text)), "0,2-5,9,11-12,63");
    assert_string_equal(cores_format(c, 2, 4, again, sizeof(again)), "3-5,9");
    assert_string_equal(cores_format(c, 3, 0, again, sizeof(again)), "");
    struct cores *same = machine(TWO_PACKAGES, text);
    assert_int_equal(cores_count(same), cores_count(c));
    cores_format(same, 0, cores_count(same), again, sizeof(again));
    assert_string_equal(again, text);
    assert_string_equal(cores_format(c, 0, cores_count(c), again, 8) + 4, "...");
    cores_destroy(same);
    cores_destroy(c);
}

static void assert_refused(const char *list, const char *names)
{
    struct cores *c = (struct cores *)&c;
    struct err err = {0};
    setenv("HWLOC_SYNTHETIC", "core:4 pu:1", 1);
    int r = cores_create(list, &c, &err);
    unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(r, -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_ptr_equal(c, &c);
    if (!strstr(err.text, names))
        fail_msg("list \"%s\": \"%s\" does not say \"%s\"", list, err.text, names);
}

static void bad_lists_are_refused_with_a_reason(void **state)
{
    static const char *const malformed[] = {
        "",    ",",   "a",     "1,",  ",1",   "1,,2", "3-1",
        "-1",  "1-",  "1-2-3", "+1",  " 1",   "1 ",   "1;2",
        "0x1", "1-a", "--",    "1.5", "0-1,", "é",    "99999999999999999999"};
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
        assert_refused(malformed[i], "is not a core or a range");
    assert_refused("0,3-1", "\"3-1\"");
    assert_refused("99", "may not use core 99; it may use 0-3");
    assert_refused("2-9", "core 4");
    /* such a list is refused at once, without a loop over all these numbers */
    assert_refused("0-999999999", "core 4");
    assert_refused("1,1", "core 1 is listed twice");
    assert_refused("0-2,1-3", "core 1 is listed twice");
    struct cores *c;
    assert_int_equal(cores_create("nonsense", &c, NULL), -EINVAL);
}

static void on_a_synthetic_machine_no_thread_is_bound(void **state)
{
    struct cores *c = machine(TWO_PACKAGES, NULL);
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (size_t i = 0; i < cores_count(c); i++)
        assert_int_equal(cores_bind_thread(c, i), -ENOTSUP);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    char page[64];
    assert_int_equal(cores_bind_memory(c, 63, page, sizeof(page)), 0);
    cores_destroy(c);
}

static void *bind_to_each(void *argument)
{
    struct cores *c = argument;
    for (size_t i = 0; i < cores_count(c); i++) {
        cpu_set_t mask;
        if (cores_bind_thread(c, i) != 0 || sched_getaffinity(0, sizeof(mask), &mask) != 0)
            return "binding failed";
        if (CPU_COUNT(&mask) != 1 || !CPU_ISSET(cores_at(c, i).pu, &mask))
            return "bound elsewhere";
    }
    return NULL;
}

static void a_thread_is_bound_to_its_core_alone(void **state)
{
    struct cores *c;
    struct err err = {0};
    cpu_set_t before, after;
    assert_int_equal(cores_create(NULL, &c, &err), 0);
    assert_true(cores_count(c) >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    pthread_t thread;
    void *complaint;
    assert_int_equal(pthread_create(&thread, NULL, bind_to_each, c), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    if (complaint)
        fail_msg("%s", (const char *)complaint);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    cores_destroy(c);
}

static void memory_of_this_machine_can_be_bound(void **state)
{
    struct cores *c;
    assert_int_equal(cores_create(NULL, &c, NULL), 0);
    size_t bytes = 1 << 20;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    int r = cores_bind_memory(c, 0, memory, bytes);
    assert_true(r == 0 || r == -EPERM); /* containers may forbid the call */
    memset(memory, 1, bytes);
    munmap(memory, bytes);
    cores_destroy(c);
}

/* Restricts all threads like taskset, because a sanitizer has its own thread. */
static void restrict_process(const cpu_set_t *mask)
{
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        uint64_t id;
        if (text_parse_u64(entry->d_name, 1, INT32_MAX, &id) == 0)
            assert_int_equal(sched_setaffinity((pid_t)id, sizeof(*mask), mask), 0);
    }
    closedir(tasks);
}

static void the_affinity_mask_narrows_the_cores(void **state)
{
    struct cores *all, *one;
    cpu_set_t before, mask;
    assert_int_equal(cores_create(NULL, &all, NULL), 0);
    size_t last = cores_count(all) - 1;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&mask);
    CPU_SET(cores_at(all, last).pu, &mask);
    restrict_process(&mask);
    int r = cores_create(NULL, &one, NULL);
    restrict_process(&before);
    assert_int_equal(r, 0);
    assert_int_equal(cores_count(one), 1);
    /* the index of a core does not depend on the cores that a process may use */
    assert_int_equal(cores_at(one, 0).index, cores_at(all, last).index);
    assert_int_equal(cores_at(one, 0).pu, cores_at(all, last).pu);
    cores_destroy(one);
    cores_destroy(all);
}

/* Destroys NULL, like a function that fails before it has created a topology. */
static void destroying_no_topology_affects_no_other_topology(void **state)
{
    struct cores *c = machine(TWO_PACKAGES, NULL), *none = NULL;
    size_t count = cores_count(c);
    assert_true(cores_create("no-number", &none, NULL) < 0);
    assert_null(none);
    cores_destroy(none);
    assert_int_equal(cores_count(c), count);
    assert_int_equal(cores_at(c, count - 1).index, count - 1);
    cores_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_is_a_core_not_a_hyperthread),
        cmocka_unit_test(cores_come_in_order_of_node_then_core),
        cmocka_unit_test(a_list_narrows_to_holes_and_keeps_the_order),
        cmocka_unit_test(the_last_level_cache_is_found),
        cmocka_unit_test(a_machine_of_one_pu_has_one_core),
        cmocka_unit_test(a_formatted_list_can_be_read_again),
        cmocka_unit_test(bad_lists_are_refused_with_a_reason),
        cmocka_unit_test(on_a_synthetic_machine_no_thread_is_bound),
        cmocka_unit_test(a_thread_is_bound_to_its_core_alone),
        cmocka_unit_test(memory_of_this_machine_can_be_bound),
        cmocka_unit_test(the_affinity_mask_narrows_the_cores),
        cmocka_unit_test(destroying_no_topology_affects_no_other_topology),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
