/* Owns the fabrics of a job, and decides which thread drives them. A waiting thread drives: it
 * polls the fabrics and handles their events. If no thread waits but the job must continue, the
 * progress thread drives (svc/wire, W21). This file knows no tensors. */
#include "svc/fabric/engine.h"

#include "svc/base/clock.h"
#include "svc/base/system/thread.h"
#include "svc/fabric/engine_sleep.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define EVENTS_MAX 32
/* Pause between the end of the last wait and the first turn of the progress thread. In training,
 * the next wait usually begins within this pause, so the progress thread does not wake up. */
#define HANDOVER_NS (200 * NS_PER_US)

static void engine_set_handover(struct engine *e, uint64_t in_ns)
{
    struct itimerspec when = {.it_value = {.tv_nsec = (long)in_ns}};
    timerfd_settime(e->handover_fd, 0, &when, NULL);
    e->is_handover_set = in_ns > 0;
}

/* Makes the caller the driver. If the progress thread was the driver and sleeps, this thread
 * detects the new driver by the changed tenure when it wakes up. */
static uint64_t engine_take_over(struct engine *e, enum engine_driver driver)
{
    if (e->driver == DRIVER_PROGRESS)
        engine_kick(e);
    if (driver == DRIVER_WAITER && e->is_handover_set)
        engine_set_handover(e, 0);
    e->driver = driver;
    engine_forget_sleep(e->sleep);
    return ++e->tenure;
}

static void engine_hand_over(struct engine *e)
{
    e->driver = DRIVER_NONE;
    e->tenure++;
}

/* Finds a driver if there is none: a waiting thread, or without one the progress thread if the
 * engine needs to be driven. */
static void engine_find_driver(struct engine *e)
{
    if (e->driver != DRIVER_NONE)
        return;
    if (e->waiters > 0)
        pthread_cond_broadcast(&e->turn);
    else if (!e->is_handover_set && e->needs_progress(e->context))
        engine_set_handover(e, HANDOVER_NS);
}

static int engine_take_events(struct engine *e, struct fabric *fabric)
{
    struct fabric_event events[EVENTS_MAX];
    int n = fabric_poll(fabric, events, EVENTS_MAX);
    for (int i = 0; i < n; i++)
        e->handle(e->context, &events[i]);
    return n;
}

static void ring_doorbells(struct engine *e)
{
    if (e->shm_conns > 0)
        fabric_flush(e->shm);
    if (e->ofi_conns > 0)
        fabric_flush(e->ofi);
}

static int engine_step(struct engine *e)
{
    int n = 0;
    if (e->shm_conns > 0)
        n += engine_take_events(e, e->shm);
    if (e->ofi_conns > 0)
        n += engine_take_events(e, e->ofi);
    if (n > 0)
        /* the driver may stop after this call, so its posted operations are sent first */
        ring_doorbells(e);
    if (n > 0 && e->waiters > 1)
        pthread_cond_broadcast(&e->turn);
    return n;
}

static void engine_drive(struct engine *e, uint64_t deadline_ns, bool (*until)(void *),
                         void *context)
{
    uint64_t tenure = engine_take_over(e, DRIVER_WAITER);
    do {
        engine_sleep(e, tenure, deadline_ns); /* returns at once if an event is pending */
        engine_step(e);
    } while (!until(context) && clock_now_ns() < deadline_ns);
    engine_hand_over(e);
}

static void wait_for_turn(struct engine *e, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                             .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    pthread_cond_timedwait(&e->turn, e->lock, &until);
}

bool engine_run(struct engine *e, uint64_t deadline_ns, bool (*until)(void *context), void *context)
{
    bool is_over;
    e->waiters++;
    while (!(is_over = until(context)) && clock_now_ns() < deadline_ns) {
        if (e->driver == DRIVER_WAITER)
            wait_for_turn(e, deadline_ns);
        else
            engine_drive(e, deadline_ns, until, context);
    }
    e->waiters--;
    engine_find_driver(e);
    return is_over;
}

void engine_poll(struct engine *e)
{
    if (e->driver == DRIVER_NONE)
        engine_step(e);
}

void engine_kick(struct engine *e)
{
    pthread_cond_broadcast(&e->turn);
    engine_end_sleep(e);
}

void engine_flush(struct engine *e)
{
    ring_doorbells(e);
    engine_find_driver(e);
}

/* ---- the progress thread ---- */

static bool progress_is_due(struct engine *e)
{
    return e->driver == DRIVER_NONE && e->waiters == 0 && e->needs_progress(e->context);
}

static void progress_drive(struct engine *e)
{
    uint64_t tenure = engine_take_over(e, DRIVER_PROGRESS);
    while (e->tenure == tenure && !e->is_stopping && e->needs_progress(e->context)) {
        if (engine_step(e) == 0)
            engine_sleep(e, tenure, UINT64_MAX);
    }
    if (e->tenure == tenure)
        e->driver = DRIVER_NONE;
}

static void progress_park(struct engine *e)
{
    uint64_t expirations;
    pthread_mutex_unlock(e->lock);
    ssize_t got = read(e->handover_fd, &expirations, sizeof expirations);
    pthread_mutex_lock(e->lock);
    if (got > 0)
        e->is_handover_set = false;
}

static void *progress_main(void *context)
{
    struct engine *e = context;
    pthread_mutex_lock(e->lock);
    while (!e->is_stopping) {
        if (progress_is_due(e))
            progress_drive(e);
        else
            progress_park(e);
    }
    pthread_mutex_unlock(e->lock);
    return NULL;
}

/* ---- life ---- */

int engine_init(struct engine *e, pthread_mutex_t *lock,
                void (*handle)(void *context, const struct fabric_event *event),
                bool (*needs_progress)(void *context), void *context)
{
    memset(e, 0, sizeof *e);
    e->lock = lock;
    e->handle = handle;
    e->needs_progress = needs_progress;
    e->context = context;
    thread_condition_init(&e->turn);
    e->driver = DRIVER_NONE;
    e->handover_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    int error = e->handover_fd < 0 ? -EMFILE : engine_sleep_create(&e->sleep);
    if (error == 0)
        error = thread_start(&e->progress, progress_main, e);
    e->has_progress = error == 0;
    if (error < 0)
        engine_fini(e);
    return error;
}

void engine_stop(struct engine *e)
{
    if (!e->has_progress)
        return;
    pthread_mutex_lock(e->lock);
    e->is_stopping = true;
    engine_kick(e);
    engine_set_handover(e, 1);
    pthread_mutex_unlock(e->lock);
    pthread_join(e->progress, NULL);
    e->has_progress = false;
    engine_end_forwarder(e->sleep);
}

void engine_fini(struct engine *e)
{
    fabric_close(e->shm);
    fabric_close(e->ofi);
    engine_sleep_destroy(e->sleep);
    if (e->handover_fd >= 0)
        close(e->handover_fd);
    pthread_cond_destroy(&e->turn);
}

void engine_abandon_in_child(struct engine *e)
{
    if (e->shm)
        fabric_abandon_in_child(e->shm);
    if (e->ofi)
        fabric_abandon_in_child(e->ofi);
    engine_sleep_abandon(e->sleep);
    close(e->handover_fd);
}
