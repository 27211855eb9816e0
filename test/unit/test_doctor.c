/* What gradpool doctor reckons itself: CPU time that cgroups grant, versions that fit. */
#include "svc/cli/doctor.h"

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

/* With the folders above it. */
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
    assert_float_equal(doctor_cgroup_cores(root), expected, 1e-9);
}

static void a_host_without_cgroups_has_no_limit(void **state)
{
    assert_cores(0);
    write_file("/proc/self/cgroup", "0::/\n");
    assert_cores(0);
}

static void the_least_of_a_cgroup_and_those_above_it_counts(void **state)
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

static void what_is_no_number_is_no_limit(void **state)
{
    write_file("/proc/self/cgroup", "nonsense\n0:\n0::/a\n");
    write_file("/sys/fs/cgroup/a/cpu.max", "many few\n");
    assert_cores(0);
    write_file("/sys/fs/cgroup/a/cpu.max", "100000 0\n");
    assert_cores(0);
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
        cmocka_unit_test_setup_teardown(the_least_of_a_cgroup_and_those_above_it_counts, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(version_1_is_read_where_cpu_is_among_its_controllers,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_path_that_is_not_mounted_falls_back_to_the_top, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(what_is_no_number_is_no_limit, make_root, remove_root),
        cmocka_unit_test(a_version_fits_if_it_is_not_older_and_of_the_same_first_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
