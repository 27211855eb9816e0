/* Sleep of the driver: on the bell of shared memory, on the descriptor of a network, or on both. A
 * bell is a counter in shared memory; a change of the counter (ring) wakes the driver through a
 * futex. engine_kick() ends every sleep, even if the driver has only decided to sleep (W21). Never
 * spins, and never uses a fabric without the lock. */
#include "svc/fabric/engine_sleep.h"

#include "svc/base/clock.h"
#include "svc/base/system/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct engine_sleep {
    bool is_asleep; /* the driver sleeps */
    uint32_t *bell; /* bell on which the driver sleeps; NULL: the driver sleeps on descriptors */
    /* one eventfd for each kind of driver; engine_kick() writes to the eventfd of the current
     * driver (a kick), so a driver receives only its own kicks */
    int kick_fds[DRIVER_NONE];
    int forward_fd; /* eventfd that the forwarder signals */
    bool has_forwarder;
    pthread_t forwarder;
    uint32_t *forwarded_bell, forwarded_value;
    bool forwarder_ends; /* read and written as an atomic */
};

/* Combined results of fabric_arm() for all fabrics. */
struct sleep_plan {
    int fd;         /* -1: no descriptor */
    uint32_t *bell; /* NULL: no bell */
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

/* Rings the bell. The value of the bell changes, so a thread that is about to sleep on the old
 * value does not sleep. */
static void sleep_ring(uint32_t *bell)
{
    __atomic_fetch_add(bell, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int engine_sleep_create(struct engine_sleep **ret_sleep)
{
    struct engine_sleep *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    bool all = (s->forward_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0;
    for (int i = 0; i < DRIVER_NONE; i++) {
        s->kick_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        all &= s->kick_fds[i] >= 0;
    }
    if (!all) {
        engine_sleep_destroy(s);
        return -EMFILE;
    }
    *ret_sleep = s;
    return 0;
}

void engine_sleep_abandon(struct engine_sleep *s)
{
    const int fds[] = {s->forward_fd, s->kick_fds[DRIVER_WAITER], s->kick_fds[DRIVER_PROGRESS]};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

void engine_sleep_destroy(struct engine_sleep *s)
{
    if (s)
        engine_sleep_abandon(s);
    free(s);
}

void engine_forget_sleep(struct engine_sleep *s) { s->is_asleep = false; }

void engine_end_sleep(struct engine *e)
{
    struct engine_sleep *s = e->sleep;
    if (!s->is_asleep)
        return;
    if (s->bell)
        sleep_ring(s->bell);
    else
        eventfd_write(s->kick_fds[e->driver], 1);
}

/* ---- both at once ---- */

/* Signals forward_fd at each ring of the bell. A bell is rung only for a sleeping thread, so the
 * forwarder uses no CPU time while data flows. */
static void *forwarder_main(void *context)
{
    struct engine_sleep *s = context;
    uint32_t seen = s->forwarded_value;
    while (!__atomic_load_n(&s->forwarder_ends, __ATOMIC_ACQUIRE)) {
        futex_wait(s->forwarded_bell, seen, UINT64_MAX);
        uint32_t value = __atomic_load_n(s->forwarded_bell, __ATOMIC_ACQUIRE);
        if (value != seen)
            eventfd_write(s->forward_fd, 1);
        seen = value;
    }
    return NULL;
}

static bool sleep_ensure_forwarder(struct engine_sleep *s, const struct sleep_plan *plan)
{
    if (s->has_forwarder)
        return true;
    s->forwarded_bell = plan->bell;
    s->forwarded_value = plan->bell_value;
    s->has_forwarder = thread_start(&s->forwarder, forwarder_main, s) == 0;
    return s->has_forwarder;
}

bool engine_has_forwarder(const struct engine_sleep *s) { return s->has_forwarder; }

void engine_end_forwarder(struct engine_sleep *s)
{
    if (!s->has_forwarder)
        return;
    __atomic_store_n(&s->forwarder_ends, true, __ATOMIC_RELEASE);
    sleep_ring(s->forwarded_bell);
    pthread_join(s->forwarder, NULL);
    s->has_forwarder = false;
}

/* ---- one sleep ---- */

static int sleep_arm(struct fabric *fabric, struct sleep_plan *plan)
{
    struct fabric_wait wait = {.fd = -1};
    int error = fabric_arm(fabric, &wait);
    if (error < 0)
        return error;
    if (wait.fd >= 0) {
        plan->fd = wait.fd;
    } else {
        plan->bell = wait.bell;
        plan->bell_value = wait.bell_value;
    }
    return 0;
}

static bool sleep_make_plan(struct engine *e, struct sleep_plan *plan)
{
    *plan = (struct sleep_plan){.fd = -1};
    if (e->shm_conns > 0 && sleep_arm(e->shm, plan) < 0)
        return false;
    if (e->ofi_conns > 0 && sleep_arm(e->ofi, plan) < 0)
        return false;
    return plan->fd < 0 || !plan->bell || sleep_ensure_forwarder(e->sleep, plan);
}

static void sleep_drain(int fd)
{
    eventfd_t value;
    eventfd_read(fd, &value);
}

/* Sleeps on the descriptors. Only the driver for which a kick was sent reads the kick, even if this
 * thread no longer drives. Otherwise a driver could miss its kick. Returns whether the bell has
 * rung. */
static bool sleep_poll(int kick_fd, int forward_fd, int fabric_fd, uint64_t deadline_ns)
{
    struct pollfd fds[] = {{.fd = kick_fd, .events = POLLIN},
                           {.fd = forward_fd, .events = POLLIN},
                           /* if fabric_fd is -1, poll() ignores this entry */
                           {.fd = fabric_fd, .events = POLLIN}};
    uint64_t now_ns = clock_now_ns();
    struct timespec left = timespec_of(deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    if (ppoll(fds, 3, deadline_ns == UINT64_MAX ? NULL : &left, NULL) <= 0)
        return false;
    if (fds[0].revents)
        sleep_drain(kick_fd);
    return fds[1].revents;
}

void engine_sleep(struct engine *e, uint64_t tenure, uint64_t deadline_ns)
{
    struct engine_sleep *s = e->sleep;
    struct sleep_plan plan;
    bool is_forwarded = false;
    if (!sleep_make_plan(e, &plan))
        return;
    bool by_bell = plan.bell && plan.fd < 0;
    int kick_fd = s->kick_fds[e->driver];
    s->bell = by_bell ? plan.bell : NULL;
    s->is_asleep = true;
    pthread_mutex_unlock(e->lock);
    if (by_bell)
        futex_wait(plan.bell, plan.bell_value, deadline_ns);
    else
        is_forwarded = sleep_poll(kick_fd, plan.bell ? s->forward_fd : -1, plan.fd, deadline_ns);
    pthread_mutex_lock(e->lock);
    if (e->tenure != tenure)
        return;
    s->is_asleep = false;
    if (is_forwarded)
        sleep_drain(s->forward_fd);
}
