/* The engine that moves a job's data: the fabrics, and the thread that drives them. One thread
 * drives at a time (W21). All functions want the job's lock held, except where they name another
 * rule. */
#ifndef GRADPOOL_FABRIC_ENGINE_H
#define GRADPOOL_FABRIC_ENGINE_H

#include "svc/fabric/fabric.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum engine_driver { DRIVER_WAITER, DRIVER_PROGRESS, DRIVER_NONE };

struct engine_sleep;

struct engine {
    pthread_mutex_t *lock; /* the job's */
    void (*handle)(void *context, const struct fabric_event *event);
    bool (*needs_progress)(void *context); /* although no thread waits */
    void *context;
    struct fabric *shm, *ofi;      /* NULL until needed */
    uint32_t shm_conns, ofi_conns; /* connections that are not closed yet */
    enum engine_driver driver;
    uint64_t tenure; /* changes with the driver */
    uint32_t waiters;
    pthread_cond_t turn; /* signalled for waiters that do not drive */
    struct engine_sleep *sleep;
    int handover_fd; /* timer on which the progress thread is parked */
    bool is_handover_set;
    bool is_stopping;
    bool has_progress;
    pthread_t progress;
};

/* `handle` gets every event, `needs_progress` is called when the last waiter leaves; both run with
 * the lock held. -ENOMEM, -EMFILE, -EAGAIN (no thread). */
int engine_init(struct engine *e, pthread_mutex_t *lock,
                void (*handle)(void *context, const struct fabric_event *event),
                bool (*needs_progress)(void *context), void *context);
/* Ends the threads. The lock must not be held, and no thread may be in engine_run(). */
void engine_stop(struct engine *e);
/* Frees all, and closes the fabrics. */
void engine_fini(struct engine *e);

/* Drives until `until` is true or the deadline has come; returns the last result of `until`. The
 * lock is released while the thread sleeps. */
bool engine_run(struct engine *e, uint64_t deadline_ns, bool (*until)(void *context),
                void *context);
/* Takes the events that are there, unless another thread drives. Never sleeps. */
void engine_poll(struct engine *e);
/* After posting: rings the doorbells, and finds a driver if one is needed. */
void engine_flush(struct engine *e);
/* After a change that the driver must see: ends its sleep. */
void engine_kick(struct engine *e);

void engine_abandon_in_child(struct engine *e);

#endif
