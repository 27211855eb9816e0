/* How the driver sleeps: on the bell of shared memory, on the descriptor of a network, or on both.
 * Every sleep can be ended by engine_kick(), also one that has been decided but not begun (W21).
 * Nothing here spins or touches a fabric without the lock. */
#include "svc/base/clock.h"
#include "svc/wire/engine.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What the armed fabrics said. */
struct sleep_plan {
    int fd;         /* -1: none */
    uint32_t *bell; /* NULL: none */
    uint32_t bell_value;
};

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static void futex_wait(uint32_t *bell, uint32_t value, uint64_t deadline_ns)
{
    struct timespec until = timespec_of(deadline_ns);
    syscall(SYS_futex, bell, FUTEX_WAIT_BITSET, value, deadline_ns == UINT64_MAX ? NULL : &until,
            NULL, FUTEX_BITSET_MATCH_ANY);
}

/* The value changes too: who was about to sleep on the old one does not. */
static void ring(uint32_t *bell)
{
    __atomic_fetch_add(bell, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void engine_kick(struct engine *e)
{
    pthread_cond_broadcast(&e->turn);
    if (!e->is_asleep)
        return;
    if (e->bell)
        ring(e->bell);
    else
        eventfd_write(e->kick_fds[e->driver], 1);
}

/* ---- both at once ---- */

/* Turns rings of the bell into kicks. A bell is rung only for a sleeper, so this thread uses no
 * time while data flows. */
static void *forwarder_main(void *context)
{
    struct engine *e = context;
    uint32_t seen = e->forwarded_value;
    while (!__atomic_load_n(&e->forwarder_ends, __ATOMIC_ACQUIRE)) {
        futex_wait(e->forwarded_bell, seen, UINT64_MAX);
        uint32_t value = __atomic_load_n(e->forwarded_bell, __ATOMIC_ACQUIRE);
        if (value != seen)
            eventfd_write(e->forward_fd, 1);
        seen = value;
    }
    return NULL;
}

static bool ensure_forwarder(struct engine *e, const struct sleep_plan *plan)
{
    if (e->has_forwarder)
        return true;
    e->forwarded_bell = plan->bell;
    e->forwarded_value = plan->bell_value;
    e->has_forwarder = engine_start_thread(&e->forwarder, forwarder_main, e) == 0;
    return e->has_forwarder;
}

void engine_end_forwarder(struct engine *e)
{
    if (!e->has_forwarder)
        return;
    __atomic_store_n(&e->forwarder_ends, true, __ATOMIC_RELEASE);
    ring(e->forwarded_bell);
    pthread_join(e->forwarder, NULL);
    e->has_forwarder = false;
}

/* ---- one sleep ---- */

static int arm(struct fabric *fabric, struct sleep_plan *plan)
{
    struct fabric_wait wait = {.fd = -1};
    int r = fabric_arm(fabric, &wait);
    if (r < 0)
        return r;
    if (wait.fd >= 0) {
        plan->fd = wait.fd;
    } else {
        plan->bell = wait.bell;
        plan->bell_value = wait.bell_value;
    }
    return 0;
}

static bool make_plan(struct engine *e, struct sleep_plan *plan)
{
    *plan = (struct sleep_plan){.fd = -1};
    if (e->shm_conns > 0 && arm(e->shm, plan) < 0)
        return false;
    if (e->ofi_conns > 0 && arm(e->ofi, plan) < 0)
        return false;
    return plan->fd < 0 || !plan->bell || ensure_forwarder(e, plan);
}

static void drain(int fd)
{
    eventfd_t value;
    eventfd_read(fd, &value);
}

/* A kick is drained by whom it was meant for, even if it has lost the role: another would sleep on
 * for want of it. Returns whether the bell was forwarded. */
static bool poll_until(int kick_fd, int forward_fd, int fabric_fd, uint64_t deadline_ns)
{
    struct pollfd fds[] = {{.fd = kick_fd, .events = POLLIN},
                           {.fd = forward_fd, .events = POLLIN},
                           {.fd = fabric_fd, .events = POLLIN}}; /* -1 is skipped */
    uint64_t now_ns = clock_now_ns();
    struct timespec left = timespec_of(deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    if (ppoll(fds, 3, deadline_ns == UINT64_MAX ? NULL : &left, NULL) <= 0)
        return false;
    if (fds[0].revents)
        drain(kick_fd);
    return fds[1].revents;
}

void engine_sleep(struct engine *e, uint64_t tenure, uint64_t deadline_ns)
{
    struct sleep_plan plan;
    bool is_forwarded = false;
    if (!make_plan(e, &plan))
        return;
    bool by_bell = plan.bell && plan.fd < 0;
    int kick_fd = e->kick_fds[e->driver];
    e->bell = by_bell ? plan.bell : NULL;
    e->is_asleep = true;
    pthread_mutex_unlock(e->lock);
    if (by_bell)
        futex_wait(plan.bell, plan.bell_value, deadline_ns);
    else
        is_forwarded = poll_until(kick_fd, plan.bell ? e->forward_fd : -1, plan.fd, deadline_ns);
    pthread_mutex_lock(e->lock);
    if (e->tenure != tenure)
        return;
    e->is_asleep = false;
    if (is_forwarded)
        drain(e->forward_fd);
}

int engine_start_thread(pthread_t *ret_thread, void *(*main)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(ret_thread, NULL, main, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}
