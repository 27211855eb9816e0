/* Tests the memory that a worker shares, as a lane on the same host uses this memory. */
#include "svc/fabric/region.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void a_region_is_whole_zeroed_pages(void **state)
{
    size_t sizes[] = {0, 1, page_bytes() - 1, page_bytes(), page_bytes() + 1, 1 << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct region r;
        assert_int_equal(region_create(sizes[i], &r), 0);
        assert_true(r.bytes >= sizes[i] && r.bytes > 0);
        assert_true(r.bytes < sizes[i] + page_bytes() || sizes[i] == 0);
        assert_int_equal(r.bytes % page_bytes(), 0);
        assert_int_equal((uintptr_t)r.base % page_bytes(), 0);
        for (size_t at = 0; at < r.bytes; at++)
            assert_int_equal(((uint8_t *)r.base)[at], 0);
        region_destroy(&r);
    }
}

static void the_file_of_a_region_is_sealed_and_has_the_size(void **state)
{
    struct region r;
    struct stat status;
    assert_int_equal(region_create(3 * page_bytes(), &r), 0);
    assert_int_equal(fstat(r.fd, &status), 0);
    assert_int_equal(status.st_size, r.bytes);
    int seals = fcntl(r.fd, F_GET_SEALS);
    assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE),
                     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(ftruncate(r.fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(r.fd, (off_t)r.bytes * 2), -1);
    assert_int_equal(errno, EPERM);
    assert_true(fcntl(r.fd, F_GETFD) & FD_CLOEXEC);
    region_destroy(&r);
}

static void another_mapping_sees_the_same_bytes(void **state)
{
    struct region r;
    assert_int_equal(region_create(page_bytes(), &r), 0);
    uint8_t *other = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
    assert_ptr_not_equal(other, MAP_FAILED);
    ((uint8_t *)r.base)[17] = 42;
    assert_int_equal(other[17], 42);
    other[18] = 43;
    assert_int_equal(((uint8_t *)r.base)[18], 43);
    munmap(other, r.bytes);
    region_destroy(&r);
}

static void wrapped_memory_stays_the_callers(void **state)
{
    struct region r;
    char *memory = strdup("mine");
    region_wrap(memory, 5, &r);
    assert_ptr_equal(r.base, memory);
    assert_int_equal(r.bytes, 5);
    assert_int_equal(r.fd, -1);
    region_destroy(&r);
    assert_string_equal(memory, "mine");
    free(memory);
}

static void destroying_nothing_or_twice_is_fine(void **state)
{
    struct region r;
    region_destroy(NULL);
    assert_int_equal(region_create(1, &r), 0);
    int fd = r.fd;
    region_destroy(&r);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    region_destroy(&r);
}

static void sizes_beyond_the_address_space_are_refused(void **state)
{
    struct region r = {.fd = -7};
    assert_int_equal(region_create(SIZE_MAX, &r), -ENOMEM);
    assert_int_equal(region_create(PTRDIFF_MAX, &r), -ENOMEM);
    int code = region_create((size_t)1 << 60, &r);
    assert_true(code == -ENOMEM || code == -ENOSPC);
    assert_int_equal(r.fd, -7);
}

static void running_out_of_descriptors_is_emfile(void **state)
{
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    struct region r = {.fd = -7};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int code = region_create(1, &r);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(code, -EMFILE);
    assert_int_equal(r.fd, -7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_is_whole_zeroed_pages),
        cmocka_unit_test(the_file_of_a_region_is_sealed_and_has_the_size),
        cmocka_unit_test(another_mapping_sees_the_same_bytes),
        cmocka_unit_test(wrapped_memory_stays_the_callers),
        cmocka_unit_test(destroying_nothing_or_twice_is_fine),
        cmocka_unit_test(sizes_beyond_the_address_space_are_refused),
        cmocka_unit_test(running_out_of_descriptors_is_emfile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
