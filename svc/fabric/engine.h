/* The engine moves a job's data. It consists of the job's fabrics and the thread that drives the
 * fabrics, which means that the thread polls them and handles their events. One thread drives at a
 * time (W21). The caller of a function holds the job's lock, unless the comment says otherwise. */
#ifndef GRADPOOL_FABRIC_ENGINE_H
#define GRADPOOL_FABRIC_ENGINE_H

#include "svc/fabric/fabric.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum engine_driver { DRIVER_WAITER, DRIVER_PROGRESS, DRIVER_NONE };

struct engine_sleep;

struct engine {
    pthread_mutex_t *lock; /* lock of the job */
    void (*handle)(void *context, const struct fabric_event *event);
    /* returns whether the engine has to be driven although no thread waits */
    bool (*needs_progress)(void *context);
    void *context;
    struct fabric *shm, *ofi;      /* NULL until first used */
    uint32_t shm_conns, ofi_conns; /* connections that are not closed yet */
    enum engine_driver driver;
    uint64_t tenure; /* changes with each change of the driver */
    uint32_t waiters;
    /* signalled when a waiting thread that does not drive the fabrics has to check its condition
     * again */
    pthread_cond_t turn;
    struct engine_sleep *sleep;
    int handover_fd; /* timer on which the idle progress thread waits */
    bool is_handover_set;
    bool is_stopping;
    bool has_progress;
    pthread_t progress;
};

/* Creates an engine. `handle` receives every event. `needs_progress` is called when the last waiter
 * has left. Both are called with the lock held. Returns 0, -ENOMEM, -EMFILE, or -EAGAIN if no
 * thread could be created. */
int engine_init(struct engine *e, pthread_mutex_t *lock,
                void (*handle)(void *context, const struct fabric_event *event),
                bool (*needs_progress)(void *context), void *context);
/* Ends the threads. The caller must not hold the lock, and no thread may be in engine_run(). */
void engine_stop(struct engine *e);
/* Closes the fabrics and frees everything. */
void engine_fini(struct engine *e);

/* Drives the fabrics until `until` returns true or the deadline has passed. Returns the last result
 * of `until`. The lock is released while the thread sleeps. */
bool engine_run(struct engine *e, uint64_t deadline_ns, bool (*until)(void *context),
                void *context);
/* Calls `handle` for all pending events, unless another thread drives. Never sleeps. */
void engine_poll(struct engine *e);
/* Called after operations were posted. Wakes the peers, and makes sure that a thread drives if one
 * is needed. */
void engine_flush(struct engine *e);
/* Ends the driver's sleep, because the driver has to check changed state. */
void engine_kick(struct engine *e);

void engine_abandon_in_child(struct engine *e);

#endif
