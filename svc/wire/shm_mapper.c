/* Owns the queue of regions to be mapped or unmapped. The lock is held for a few instructions on
 * both sides, and the lane takes it only when something is lent, taken back, or named for the first
 * time. Invariant S12 of svc/wire/README.md. */
#include "svc/wire/shm_mapper.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Threads inherit the core that a lane is bound to; the main thread has what the process may use.
 */
static void leave_core(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(getpid(), sizeof cores, &cores) == 0)
        (void)sched_setaffinity(0, sizeof cores, &cores);
}

static struct shm_lent *wait_for_work(struct shm_mapper *m)
{
    while (list_is_empty(&m->queue) && !m->is_stopping)
        pthread_cond_wait(&m->has_work, &m->lock);
    struct list *node = list_first(&m->queue);
    if (!node)
        return NULL;
    list_remove(node);
    return list_entry(node, struct shm_lent, link);
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

int shm_mapper_start(struct shm_mapper *m)
{
    list_init(&m->queue);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->has_work, NULL);
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
