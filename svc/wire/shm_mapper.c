/* Owns the queue of regions to be mapped or unmapped. The lock is held for a few instructions on
 * both sides, and the lane takes it only when something is lent, taken back, or named for the first
 * time. Invariant S12 of svc/wire/README.md. */
#include "svc/wire/shm_mapper.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Threads inherit the core that a lane is bound to; the main thread has what the process may use.
 */
static void leave_core(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(getpid(), sizeof cores, &cores) == 0)
        (void)sched_setaffinity(0, sizeof cores, &cores);
}

/* Work that is over is due at once. NULL: nothing is due before `ret_due_ns`, if ever. */
static struct shm_lent *find_due(struct shm_mapper *m, uint64_t now_ns, uint64_t *ret_due_ns)
{
    list_for_each (node, &m->queue) {
        struct shm_lent *lent = list_entry(node, struct shm_lent, link);
        if (lent->is_over || m->is_stopping || lent->due_ns <= now_ns)
            return lent;
        if (lent->due_ns < *ret_due_ns)
            *ret_due_ns = lent->due_ns;
    }
    return NULL;
}

/* Woken early, or late, it looks again. */
static void sleep_until(struct shm_mapper *m, uint64_t due_ns)
{
    struct timespec until = {.tv_sec = (time_t)(due_ns / NS_PER_S),
                             .tv_nsec = (long)(due_ns % NS_PER_S)};
    if (due_ns == UINT64_MAX)
        pthread_cond_wait(&m->has_work, &m->lock);
    else
        pthread_cond_timedwait(&m->has_work, &m->lock, &until);
}

static struct shm_lent *wait_for_work(struct shm_mapper *m)
{
    for (;;) {
        uint64_t due_ns = UINT64_MAX;
        struct shm_lent *lent = find_due(m, clock_now_ns(), &due_ns);
        if (lent)
            list_remove(&lent->link);
        if (lent || (m->is_stopping && list_is_empty(&m->queue)))
            return lent;
        sleep_until(m, due_ns);
    }
}

/* The lane may have ended it meanwhile; more of it waits behind the others. */
static void settle(struct shm_mapper *m, struct shm_lent *lent, int r)
{
    if (lent->is_over || r == -EAGAIN) {
        list_append(&m->queue, &lent->link);
        return;
    }
    lent->is_given = false;
    atomic_store_explicit(&lent->is_done, true, memory_order_release);
    eventfd_write(m->news_fd, 1);
}

static void *run(void *context)
{
    struct shm_mapper *m = context;
    struct shm_lent *lent;
    leave_core();
    (void)pthread_setname_np(pthread_self(), "gradpool-mapper");
    pthread_mutex_lock(&m->lock);
    while ((lent = wait_for_work(m))) {
        bool is_over = lent->is_over || m->is_stopping;
        pthread_mutex_unlock(&m->lock);
        int r = 0;
        if (is_over)
            shm_lent_destroy(lent);
        else
            r = shm_lent_work(lent);
        pthread_mutex_lock(&m->lock);
        if (!is_over)
            settle(m, lent, r);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static int start_thread(struct shm_mapper *m)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = -pthread_create(&m->thread, NULL, run, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

/* Waits by the clock that clock_now_ns() reads. */
static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int shm_mapper_start(struct shm_mapper *m)
{
    list_init(&m->queue);
    pthread_mutex_init(&m->lock, NULL);
    init_condition(&m->has_work);
    m->is_stopping = false;
    m->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->news_fd < 0)
        return -errno;
    int r = start_thread(m);
    m->is_running = r == 0;
    if (r < 0)
        close(m->news_fd);
    return r;
}

void shm_mapper_stop(struct shm_mapper *m)
{
    if (!m->is_running)
        return;
    pthread_mutex_lock(&m->lock);
    m->is_stopping = true;
    pthread_cond_signal(&m->has_work);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->is_running = false;
    close(m->news_fd);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->has_work);
}

static void enqueue(struct shm_mapper *m, struct shm_lent *lent)
{
    list_append(&m->queue, &lent->link);
    pthread_cond_signal(&m->has_work);
}

void shm_mapper_give(struct shm_mapper *m, struct shm_lent *lent)
{
    atomic_store_explicit(&lent->is_done, false, memory_order_relaxed);
    pthread_mutex_lock(&m->lock);
    lent->is_given = true;
    enqueue(m, lent);
    pthread_mutex_unlock(&m->lock);
}

void shm_mapper_end(struct shm_mapper *m, struct shm_lent *lent)
{
    if (!lent)
        return;
    pthread_mutex_lock(&m->lock);
    lent->is_over = true;
    if (!lent->is_given)
        enqueue(m, lent);
    pthread_mutex_unlock(&m->lock);
}
