/* A lane on its own thread, bound to its core. The control thread calls the functions of this
 * header. With lane_thread_call() the control thread runs a function on the lane's thread, between
 * two turns. The two threads share no other data. */
#ifndef GRADPOOL_LANE_THREAD_H
#define GRADPOOL_LANE_THREAD_H

#include "svc/base/err.h"
#include "svc/host/cores.h"
#include "svc/lane/lane.h"

struct lane_thread;

struct lane_thread_options {
    uint64_t incarnation;
    const struct cores *cores; /* borrowed; NULL: the thread is not bound to a core */
    size_t position;           /* index of the lane's core in `cores` */
    const char *shm_address;   /* address such as "@name"; NULL: no shared memory */
    const char *ofi_address;   /* address such as "host:port"; NULL: no network */
    const struct fabric_options *fabric_options;
    enum reduce_set kernels;
    enum lane_policy policy;
    void (*job_failed)(void *context); /* callbacks on the lane's thread, see lane.h */
    void (*moving_news)(void *context);
    void (*memory_wanted)(void *context);
    void *context;
};

/* Starts the thread, and returns when the lane listens. Returns 0 or a negative errno; after an
 * error `err` has a text, and no thread runs. */
int lane_thread_start(const struct lane_thread_options *options, struct lane_thread **ret_thread,
                      struct err *err);
/* Completes rounds in progress for at most two seconds, closes all connections, and joins the
 * thread. NULL is allowed. */
void lane_thread_stop(struct lane_thread *thread);

/* Runs `call` on the lane's thread between two turns, and returns its result. Blocks for at most
 * one turn. */
int lane_thread_call(struct lane_thread *thread, int (*call)(struct lane *lane, void *context),
                     void *context);

/* Returns the arena of the lane, for functions that any thread may call (arena_prepare(),
 * arena_warm()). */
struct arena *lane_thread_arena(struct lane_thread *thread);

/* Returns whether the lane sleeps and no descriptor that would wake the lane is readable. The call
 * does not wake the lane, and does not block. */
bool lane_thread_is_idle(struct lane_thread *thread);

/* Return the address of the lane; "": none. */
const char *lane_thread_shm(const struct lane_thread *thread);
const char *lane_thread_ofi(const struct lane_thread *thread);
/* Returns the core and the addresses of the lane, for log lines. */
const char *lane_thread_about(const struct lane_thread *thread);

#endif
