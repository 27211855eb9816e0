/* Tests svc/base/system/slice: the scheduler's time slice of a thread, and of the threads and
 * processes that this thread starts. */
#include "svc/base/clock.h"
#include "svc/base/system/slice.h"
#include "test/unit/skip.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel's header and <pthread.h> both have a struct sched_param. */
#define sched_param linux_sched_param
#include <linux/sched/types.h>
#undef sched_param

#include <cmocka.h>

#define SLICE_NS (300 * NS_PER_US)

static struct sched_attr mine(void)
{
    struct sched_attr attributes = {0};
    assert_int_equal(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0), 0);
    return attributes;
}

/* Before Linux 6.12 the slice of a normal thread is always 0. */
static int is_settable(void **state)
{
    *state = mine().sched_runtime > 0 ? "" : NULL;
    return 0;
}

#define needs_slices(state)                                                                    \
    do {                                                                                       \
        if (!*(state))                                                                         \
            skip_because("this kernel has no slices of threads: it is older than Linux 6.12"); \
    } while (0)

static void *slice_of_thread(void *ret_ns)
{
    *(uint64_t *)ret_ns = mine().sched_runtime;
    return NULL;
}

static void threads_and_children_have_the_slice_of_their_starter(void **state)
{
    needs_slices(state);
    uint64_t of_thread = 0;
    pthread_t thread;
    int status;
    slice_set(SLICE_NS);
    assert_int_equal(mine().sched_runtime, SLICE_NS);
    assert_int_equal(pthread_create(&thread, NULL, slice_of_thread, &of_thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(of_thread, SLICE_NS);
    pid_t child = fork();
    if (child == 0)
        _exit(mine().sched_runtime != SLICE_NS);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void policy_and_niceness_stay(void **state)
{
    assert_int_equal(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1), 0);
    struct sched_attr before = mine();
    slice_set(SLICE_NS);
    assert_int_equal(mine().sched_nice, before.sched_nice);
    assert_int_equal(mine().sched_policy, before.sched_policy);
}

static void *as_batch(void *ignored)
{
    struct sched_attr batch = mine();
    batch.sched_policy = SCHED_BATCH;
    assert_int_equal(syscall(SYS_sched_setattr, 0, &batch, 0), 0);
    slice_set(SLICE_NS);
    assert_int_equal(mine().sched_policy, SCHED_BATCH);
    struct sched_attr idle = mine();
    idle.sched_policy = SCHED_IDLE;
    assert_int_equal(syscall(SYS_sched_setattr, 0, &idle, 0), 0);
    slice_set(SLICE_NS);
    assert_int_equal(mine().sched_policy, SCHED_IDLE);
    return NULL;
}

static void a_thread_of_another_policy_keeps_the_policy(void **state)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, as_batch, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_and_children_have_the_slice_of_their_starter, is_settable),
        cmocka_unit_test(policy_and_niceness_stay),
        cmocka_unit_test(a_thread_of_another_policy_keeps_the_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
