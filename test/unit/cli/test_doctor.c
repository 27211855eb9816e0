/* Tests computations of gradpool doctor: CPU time and memory granted by cgroups, and whether
 * versions match. */
#include "svc/base/system/cgroup.h"
#include "svc/cli/doctor/doctor.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[64];

/* Writes a file, after it has created the folders above the file. */
static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_root(void **state)
{
    snprintf(root, sizeof root, "/tmp/gradpool-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    return remove(path);
}

static int remove_root(void **state) { return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

static void assert_cores(double expected)
{
    assert_float_equal(cgroup_cores(root), expected, 1e-9);
}

static void a_host_without_cgroups_has_no_limit(void **state)
{
    assert_cores(0);
    write_file("/proc/self/cgroup", "0::/\n");
    assert_cores(0);
}

static void the_lowest_limit_of_a_cgroup_and_its_parents_counts(void **state)
{
    write_file("/proc/self/cgroup", "0::/a/b\n");
    write_file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_cores(0);
    write_file("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    assert_cores(1.5);
    write_file("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_cores(1.5);
    write_file("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_cores(0.5);
}

static void version_1_is_read_where_cpu_is_among_its_controllers(void **state)
{
    write_file("/proc/self/cgroup", "5:memory:/m\n4:cpuset:/s\n3:cpu,cpuacct:/job\n0::/\n");
    write_file("/sys/fs/cgroup/cpu/s/cpu.cfs_quota_us", "10000\n");
    write_file("/sys/fs/cgroup/cpu/s/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    write_file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_cores(0);
    write_file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
    assert_cores(3);
}

static void a_path_that_is_not_mounted_falls_back_to_the_top(void **state)
{
    write_file("/proc/self/cgroup", "0::/elsewhere/pod\n");
    write_file("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_cores(2);
}

static void a_text_that_is_no_number_is_no_limit(void **state)
{
    write_file("/proc/self/cgroup", "nonsense\n0:\n0::/a\n");
    write_file("/sys/fs/cgroup/a/cpu.max", "many few\n");
    assert_cores(0);
    write_file("/sys/fs/cgroup/a/cpu.max", "100000 0\n");
    assert_cores(0);
}

static void assert_memory(uint64_t limit_bytes, uint64_t left_bytes)
{
    struct cgroup_memory memory = cgroup_memory(root);
    assert_int_equal(memory.limit_bytes, limit_bytes);
    assert_int_equal(memory.left_bytes, left_bytes);
}

static void the_group_with_the_least_memory_left_counts(void **state)
{
    assert_memory(0, UINT64_MAX);
    write_file("/proc/self/cgroup", "0::/a/b\n");
    write_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_memory(0, UINT64_MAX);
    write_file("/sys/fs/cgroup/a/memory.max", "1000\n");
    write_file("/sys/fs/cgroup/a/memory.current", "400\n");
    write_file("/sys/fs/cgroup/a/memory.stat", "anon 100\nfile 300\nkernel 0\nshmem 200\n");
    assert_memory(1000, 700); /* 100 of the 300 bytes used for files can be reclaimed */
    write_file("/sys/fs/cgroup/a/b/memory.max", "900\n");
    write_file("/sys/fs/cgroup/a/b/memory.current", "100\n");
    assert_memory(1000, 700);
    write_file("/sys/fs/cgroup/a/b/memory.current", "800\n");
    assert_memory(900, 100);
    assert_non_null(strstr(cgroup_memory(root).file, "/sys/fs/cgroup/a/b/memory.max"));
}

static void memory_of_version_1_is_read_where_it_is_mounted(void **state)
{
    write_file("/proc/self/cgroup", "5:memory:/pod\n4:cpu,cpuacct:/job\n0::/\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "268435456\n");
    write_file("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "100000000\n");
    write_file("/sys/fs/cgroup/memory/pod/memory.stat",
               "cache 1\nshmem 1\ntotal_cache 60000000\ntotal_shmem 20000000\n");
    assert_memory(268435456, 208435456);
    struct cgroup_memory memory = cgroup_memory(root);
    assert_true(cgroup_memory_fits(&memory, 190000000));
    /* a sixteenth of the memory is reserved */
    assert_false(cgroup_memory_fits(&memory, 200000000));
    write_file("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "300000000\n");
    assert_memory(268435456, 8435456);
    memory = cgroup_memory(root);
    assert_false(cgroup_memory_fits(&memory, 1));
}

/* Checks the verdict of the doctor about the memory limit, and its words. `advice` NULL: none. */
static void assert_said(enum view_verdict verdict, const char *text, const char *advice)
{
    struct view_checks checks = {0};
    doctor_memory(&checks, root);
    const struct view_check *first = &checks.list[0];
    assert_string_equal(first->name, "memory");
    assert_int_equal(first->verdict, verdict);
    assert_non_null(strstr(first->text, text));
    if (advice)
        assert_non_null(strstr(first->advice, advice));
    else
        assert_int_equal(first->advice[0], 0);
}

static void the_doctor_names_a_memory_limit_below_the_need_of_a_service(void **state)
{
    assert_said(VIEW_OK, "no cgroup limits it", NULL);
    write_file("/proc/self/cgroup", "0::/pod\n");
    write_file("/sys/fs/cgroup/pod/memory.max", "268435456\n");
    write_file("/sys/fs/cgroup/pod/memory.current", "100663296\n");
    assert_said(VIEW_OK, "grants 256 MiB of memory, of which 160 MiB are free", NULL);
    write_file("/sys/fs/cgroup/pod/memory.current", "251658240\n");
    assert_said(VIEW_WARN, "of which 16 MiB are free", "raise the limit (memory.max");
}

static void the_doctor_reads_memory_limits_of_version_1(void **state)
{
    write_file("/proc/self/cgroup", "5:memory:/pod\n0::/\n");
    write_file("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "134217728\n");
    write_file("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "4194304\n");
    assert_said(VIEW_OK, "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", NULL);
    write_file("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "33554432\n");
    assert_said(VIEW_WARN, "grants 32 MiB of memory, of which 28 MiB are free",
                "raise the limit (memory.max");
}

static void a_version_fits_if_it_is_not_older_and_of_the_same_first_number(void **state)
{
    assert_true(doctor_version_fits("1.17", "1.17"));
    assert_true(doctor_version_fits("3.0.19", "3.0.2"));
    assert_true(doctor_version_fits("3.41", "3.40.1"));
    assert_true(doctor_version_fits("3.40.1.1", "3.40.1"));
    assert_false(doctor_version_fits("1.16.9", "1.17"));
    assert_false(doctor_version_fits("3.40", "3.40.1"));
    assert_false(doctor_version_fits("3.0.0", "1.1.1"));
    assert_false(doctor_version_fits("2.0", "3.0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_host_without_cgroups_has_no_limit, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(the_lowest_limit_of_a_cgroup_and_its_parents_counts,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(version_1_is_read_where_cpu_is_among_its_controllers,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_path_that_is_not_mounted_falls_back_to_the_top, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(a_text_that_is_no_number_is_no_limit, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(the_group_with_the_least_memory_left_counts, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(memory_of_version_1_is_read_where_it_is_mounted, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(the_doctor_names_a_memory_limit_below_the_need_of_a_service,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_doctor_reads_memory_limits_of_version_1, make_root,
                                        remove_root),
        cmocka_unit_test(a_version_fits_if_it_is_not_older_and_of_the_same_first_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
