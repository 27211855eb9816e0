/* What moves data of a job: its fabrics, who drives them, and how that thread sleeps. One thread
 * drives at a time (W21). All functions want the job's lock held, but for those that say not. */
#ifndef GRADPOOL_WIRE_ENGINE_H
#define GRADPOOL_WIRE_ENGINE_H

#include "svc/wire/fabric.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum engine_driver { DRIVER_WAITER, DRIVER_PROGRESS, DRIVER_NONE };

struct engine {
    pthread_mutex_t *lock; /* the job's */
    void (*handle)(void *context, const struct fabric_event *event);
    bool (*needs_progress)(void *context); /* although nobody waits */
    void *context;
    struct fabric *shm, *ofi;      /* NULL until needed */
    uint32_t shm_conns, ofi_conns; /* those not closed yet */
    enum engine_driver driver;
    uint64_t tenure; /* changes with the driver */
    uint32_t waiters;
    pthread_cond_t turn;       /* for waiters that do not drive */
    bool is_asleep;            /* the driver is */
    uint32_t *bell;            /* what it sleeps on; NULL: descriptors */
    int kick_fds[DRIVER_NONE]; /* one each: nobody must drain what was meant for the other */
    int forward_fd;            /* the bell, as a descriptor */
    int handover_fd;           /* timer on which the progress thread is parked */
    bool is_handover_set;
    bool is_stopping;
    bool has_progress, has_forwarder;
    pthread_t progress, forwarder;
    uint32_t *forwarded_bell, forwarded_value;
    bool forwarder_ends; /* atomic */
};

/* `handle` gets every event, `needs_progress` is asked when the last waiter leaves; both run with
 * the lock held. */
int engine_init(struct engine *e, pthread_mutex_t *lock,
                void (*handle)(void *context, const struct fabric_event *event),
                bool (*needs_progress)(void *context), void *context);
/* Ends the threads. Not with the lock held; nobody may be in engine_run(). */
void engine_stop(struct engine *e);
/* Closes the fabrics, too. */
void engine_fini(struct engine *e);

/* Drives until `until` or the deadline; returns what `until` says then. The lock is released while
 * asleep. */
bool engine_run(struct engine *e, uint64_t deadline_ns, bool (*until)(void *context),
                void *context);
/* Takes what is there, unless somebody else drives. Never sleeps. */
void engine_poll(struct engine *e);
/* After posting: rings the doorbells, and makes sure that somebody will drive if needed. */
void engine_flush(struct engine *e);
/* After a change that the driver must see: ends its sleep. */
void engine_kick(struct engine *e);

void engine_abandon_in_child(struct engine *e);

/* engine_sleep.c: sleeps as the driver of `tenure` until something happens, at most until the
 * deadline. */
void engine_sleep(struct engine *e, uint64_t tenure, uint64_t deadline_ns);
void engine_end_forwarder(struct engine *e);
/* A thread without signals: those of the host process are for its own threads. */
int engine_start_thread(pthread_t *ret_thread, void *(*main)(void *), void *context);

#endif
