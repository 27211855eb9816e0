/* Tests absent pages in a process that forks (S14). */
#include "svc/fabric/shm/map/absent.h"
#include "svc/fabric/shm/map/sigbus.h"

#include "test/unit/skip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 1 << 20 };

static void *map(void *at, int fd, int flags)
{
    void *base = mmap(at, BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    return base;
}

static void *map_shared(void *at)
{
    int fd = memfd_create("absent", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    void *base = map(at, fd, at ? MAP_SHARED | MAP_FIXED : MAP_SHARED);
    close(fd);
    return base;
}

/* Runs in the child. The child has memory with absent pages at an address where its parent has
 * other memory. */
static void be_child(void *at)
{
    map_shared(at);
    bool fails = shm_absent_fail(at, BYTES);
    uint64_t filled = shm_absent_fill(at, BYTES, fails, -1, 0);
    _exit(fails && filled == 0 ? 0 : 1);
}

static int end_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_child_makes_no_page_of_its_parent_fail(void **state)
{
    (void)state;
    if (!shm_absent_can_fail())
        skip_because("this host has no userfaultfd");
    assert_true(shm_absent_fail(map_shared(NULL), BYTES));
    char *own = map(NULL, -1, MAP_PRIVATE | MAP_ANONYMOUS);
    pid_t child = fork();
    if (child == 0)
        be_child(own);
    assert_int_equal(end_of(child), 0);
    memset(own, 1, BYTES); /* if a page were absent, this access would raise SIGBUS */
    munmap(own, BYTES);
}

static size_t count_pages(void *base)
{
    unsigned char is_there[BYTES / 4096];
    size_t there = 0;
    assert_int_equal(mincore(base, BYTES, is_there), 0);
    for (size_t i = 0; i < sizeof is_there; i++)
        there += is_there[i] & 1;
    return there;
}

/* Tests memory of which every second page is absent. The test runs once with an existing and once
 * with an absent first page. */
static void a_touch_leaves_absent_pages_out(void **state)
{
    (void)state;
    _Atomic bool is_poisoned = false;
    if (!shm_absent_can_fail())
        skip_because("this host has no userfaultfd");
    for (size_t first = 0; first < 2; first++) {
        char *base = map_shared(NULL);
        for (size_t at = first * 4096; at < BYTES; at += 2 * 4096)
            base[at] = 1;
        assert_int_equal(shm_sigbus_guard(base, BYTES, &is_poisoned), 0);
        assert_true(shm_absent_fail(base, BYTES));
        shm_sigbus_touch(base, BYTES);
        assert_int_equal(count_pages(base), BYTES / 4096 / 2);
        assert_false(is_poisoned);
        /* the page was replaced by a page of zeros */
        assert_int_equal(base[(1 - first) * 4096], 0);
        assert_true(is_poisoned);
        is_poisoned = false;
        shm_sigbus_release(base);
        munmap(base, BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_child_makes_no_page_of_its_parent_fail),
        cmocka_unit_test(a_touch_leaves_absent_pages_out),
    };
    return cmocka_run_group_tests_name("shm_absent", cases, NULL, NULL);
}
