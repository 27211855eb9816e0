/* A lane on its own thread, bound to its core. The control thread runs functions on it between two
 * turns; no data is shared otherwise. Functions of this header are for the control thread. */
#ifndef GRADPOOL_LANE_THREAD_H
#define GRADPOOL_LANE_THREAD_H

#include "svc/base/err.h"
#include "svc/host/cores.h"
#include "svc/lane/lane.h"

struct lane_thread;

struct lane_thread_options {
    uint64_t incarnation;
    const struct cores *cores; /* lent; NULL: the thread is not bound to a core */
    size_t position;           /* index of the lane's core in `cores` */
    const char *shm_address;   /* "@name"; NULL: none */
    const char *ofi_address;   /* "host:port"; NULL: none */
    const struct fabric_options *fabric_options;
    enum reduce_set kernels;
    enum lane_policy policy;
    void (*job_failed)(void *context); /* called on the lane's thread, see lane.h */
    void (*moving_news)(void *context);
    void (*memory_wanted)(void *context);
    void *context;
};

/* Returns once the lane listens. On an error `err` has a text, and no thread runs. */
int lane_thread_start(const struct lane_thread_options *options, struct lane_thread **ret_thread,
                      struct err *err);
/* Finishes rounds in progress (at most two seconds), closes all connections, joins the thread. NULL
 * is fine. */
void lane_thread_stop(struct lane_thread *thread);

/* Runs `call` on the lane's thread between two turns, and returns its result. Blocks for up to a
 * turn. */
int lane_thread_call(struct lane_thread *thread, int (*call)(struct lane *lane, void *context),
                     void *context);

/* The lane's arena, for the functions that any thread may call (arena_prepare(), arena_warm()). */
struct arena *lane_thread_arena(struct lane_thread *thread);

/* True when the lane sleeps and no descriptor is readable for which it would wake. Neither wakes
 * the lane nor blocks. */
bool lane_thread_is_idle(struct lane_thread *thread);

const char *lane_thread_shm(const struct lane_thread *thread); /* address; "" when not offered */
const char *lane_thread_ofi(const struct lane_thread *thread);
/* Core and addresses of the lane, for log lines. */
const char *lane_thread_about(const struct lane_thread *thread);

#endif
