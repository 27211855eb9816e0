/* Owns the queue of regions to be mapped or unmapped. The lane's and the mapper's thread hold the
 * lock for a few instructions only. The lane locks only when a region is lent or withdrawn, or when
 * a record names a page for the first time. S12 of svc/fabric/shm/README.md. */
#include "svc/fabric/shm/map/mapper.h"

#include "svc/base/clock.h"
#include "svc/base/system/thread.h"
#include "svc/fabric/shm/map/warmth.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct shm_mapper {
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    /* regions (struct shm_lent) with ranges to be mapped; protected by the lock */
    struct list queue;
    /* regions (struct shm_warmth) with pages that were not accessed yet; for the mapper's thread
     * only */
    struct list cold;
    bool is_stopping;
    struct list tolls;        /* for the lane's thread only */
    atomic_bool has_unmapped; /* some toll may have time that is not charged to its job yet */
    int news_fd;
    pthread_t thread;
};

/* Allows the thread to run on all cores of the process. A new thread inherits the single core to
 * which the lane is bound. */
static void mapper_leave_core(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(getpid(), sizeof cores, &cores) == 0)
        (void)sched_setaffinity(0, sizeof cores, &cores);
}

/* Returns a region that is due. If no region is due, returns NULL and writes the earliest due time,
 * if it is before `ret_due_ns`. A region that has ended is always due. */
static struct shm_lent *mapper_find_due(struct shm_mapper *m, uint64_t now_ns, uint64_t *ret_due_ns)
{
    list_for_each_entry (struct shm_lent, lent, &m->queue, link) {
        if (lent->is_over || m->is_stopping || lent->due_ns <= now_ns)
            return lent;
        if (lent->due_ns < *ret_due_ns)
            *ret_due_ns = lent->due_ns;
    }
    return NULL;
}

/* Sleeps. May return early; the caller checks again. */
static void mapper_sleep_until(struct shm_mapper *m, uint64_t due_ns)
{
    struct timespec until = {.tv_sec = (time_t)(due_ns / NS_PER_S),
                             .tv_nsec = (long)(due_ns % NS_PER_S)};
    if (due_ns == UINT64_MAX)
        pthread_cond_wait(&m->has_work, &m->lock);
    else
        pthread_cond_timedwait(&m->has_work, &m->lock, &until);
}

static void mapper_note_cold(struct shm_mapper *m, struct shm_lent *lent)
{
    atomic_store_explicit(&lent->warmth->is_warm, false, memory_order_relaxed);
    list_append(&m->cold, &lent->warmth->link);
}

/* Reads some pages of one region while no region is due to be mapped. Regions take turns. */
static void mapper_warm(struct shm_mapper *m)
{
    struct shm_warmth *w = list_entry(m->cold.next, struct shm_warmth, link);
    pthread_mutex_unlock(&m->lock);
    list_remove(&w->link);
    if (shm_warmth_work(w))
        list_append(&m->cold, &w->link);
    pthread_mutex_lock(&m->lock);
}

static struct shm_lent *mapper_wait_for_work(struct shm_mapper *m)
{
    for (;;) {
        uint64_t due_ns = UINT64_MAX;
        struct shm_lent *lent = mapper_find_due(m, clock_now_ns(), &due_ns);
        if (lent)
            list_remove(&lent->link);
        if (lent || (m->is_stopping && list_is_empty(&m->queue)))
            return lent;
        if (!list_is_empty(&m->cold))
            mapper_warm(m);
        else
            mapper_sleep_until(m, due_ns);
    }
}

/* Called after a region's work was done in part (-EAGAIN) or completely. The region is appended to
 * the queue again if the lane has ended it, or if more of its pages have to be mapped. Otherwise
 * the lane is notified. */
static void mapper_settle(struct shm_mapper *m, struct shm_lent *lent, int error)
{
    if (lent->is_over || error == -EAGAIN) {
        list_append(&m->queue, &lent->link);
        return;
    }
    lent->is_given = false;
    atomic_store_explicit(&lent->is_done, true, memory_order_release);
    eventfd_write(m->news_fd, 1);
}

static void mapper_unmap(struct shm_mapper *m, struct shm_lent *lent)
{
    shm_lent_destroy(lent);
    atomic_store_explicit(&m->has_unmapped, true, memory_order_release);
}

static void *mapper_main(void *context)
{
    struct shm_mapper *m = context;
    struct shm_lent *lent;
    mapper_leave_core();
    (void)pthread_setname_np(pthread_self(), "gradpool-mapper");
    pthread_mutex_lock(&m->lock);
    while ((lent = mapper_wait_for_work(m))) {
        bool is_over = lent->is_over || m->is_stopping;
        pthread_mutex_unlock(&m->lock);
        int error = 0;
        list_remove(&lent->warmth->link);
        if (is_over)
            mapper_unmap(m, lent);
        else if ((error = shm_lent_work(lent)) == 0 && lent->result == 0)
            mapper_note_cold(m, lent);
        pthread_mutex_lock(&m->lock);
        if (!is_over)
            mapper_settle(m, lent, error);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static void mapper_free(struct shm_mapper *m)
{
    if (m->news_fd >= 0)
        close(m->news_fd);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->has_work);
    free(m);
}

int shm_mapper_create(struct shm_mapper **ret_mapper)
{
    struct shm_mapper *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    list_init(&m->queue);
    list_init(&m->cold);
    list_init(&m->tolls);
    pthread_mutex_init(&m->lock, NULL);
    thread_condition_init(&m->has_work);
    m->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = m->news_fd < 0 ? -errno : thread_start(&m->thread, mapper_main, m);
    if (error < 0) {
        mapper_free(m);
        return error;
    }
    *ret_mapper = m;
    return 0;
}

void shm_mapper_destroy(struct shm_mapper *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->is_stopping = true;
    pthread_cond_signal(&m->has_work);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    mapper_free(m);
}

struct list *shm_mapper_tolls(struct shm_mapper *m) { return m ? &m->tolls : NULL; }

const struct shm_toll *shm_mapper_next_toll(struct shm_mapper *m, uint64_t *ret_ns)
{
    if (!m || !atomic_load_explicit(&m->has_unmapped, memory_order_relaxed))
        return NULL;
    atomic_store(&m->has_unmapped, false);
    const struct shm_toll *toll = shm_toll_next(&m->tolls, ret_ns);
    if (toll)
        /* another toll may have time, so the next call must search again */
        atomic_store(&m->has_unmapped, true);
    return toll;
}

int shm_mapper_news_fd(const struct shm_mapper *m) { return m->news_fd; }

static void mapper_enqueue(struct shm_mapper *m, struct shm_lent *lent)
{
    list_append(&m->queue, &lent->link);
    pthread_cond_signal(&m->has_work);
}

void shm_mapper_give(struct shm_mapper *m, struct shm_lent *lent)
{
    atomic_store_explicit(&lent->is_done, false, memory_order_relaxed);
    pthread_mutex_lock(&m->lock);
    lent->is_given = true;
    mapper_enqueue(m, lent);
    pthread_mutex_unlock(&m->lock);
}

void shm_mapper_end(struct shm_mapper *m, struct shm_lent *lent)
{
    if (!lent)
        return;
    pthread_mutex_lock(&m->lock);
    lent->is_over = true;
    if (!lent->is_given)
        mapper_enqueue(m, lent);
    pthread_mutex_unlock(&m->lock);
}
