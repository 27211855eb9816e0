/* S14: absent pages, where a process forks. */
#include "svc/fabric/shm/map/absent.h"

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

/* The child's part: the pages fail in its own memory, at an address where its parent has others. */
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
    memset(own, 1, BYTES); /* else: SIGBUS */
    munmap(own, BYTES);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_child_makes_no_page_of_its_parent_fail),
    };
    return cmocka_run_group_tests_name("shm_absent", cases, NULL, NULL);
}
