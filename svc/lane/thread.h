/* A lane on its own thread, bound to its core. The control thread reaches it by calls that the lane
 * carries out between two turns: nothing is shared, only calls cross threads. */
#ifndef GRADPOOL_LANE_THREAD_H
#define GRADPOOL_LANE_THREAD_H

#include "svc/base/err.h"
#include "svc/host/cores.h"
#include "svc/lane/lane.h"

struct lane_thread;

struct lane_thread_options {
    uint64_t incarnation;
    const struct cores *cores; /* lent; NULL: not bound */
    size_t position;           /* in cores */
    const char *shm_address;   /* "@name"; NULL: none */
    const char *ofi_address;   /* "host:port"; NULL: none */
    const struct fabric_options *fabric_options;
    enum reduce_set kernels;
    enum lane_policy policy;
    void (*job_failed)(void *context); /* on the lane's thread, see lane.h */
    void (*moving_news)(void *context);
    void (*memory_wanted)(void *context);
    void *context;
};

/* Returns once the lane listens. Errors carry a text. */
int lane_thread_start(const struct lane_thread_options *options, struct lane_thread **ret_thread,
                      struct err *err);
/* Finishes rounds under way (at most two seconds), closes all connections, joins. NULL is fine. */
void lane_thread_stop(struct lane_thread *thread);

/* Runs `call` on the lane's thread between two turns and returns what it returned. Blocks for a
 * turn. */
int lane_thread_call(struct lane_thread *thread, int (*call)(struct lane *lane, void *context),
                     void *context);

/* For arena_prepare() and the like, which any thread may call. */
struct arena *lane_thread_arena(struct lane_thread *thread);

/* The lane sleeps, and nothing has come that it should wake for. Wakes it not, blocks not. */
bool lane_thread_is_idle(struct lane_thread *thread);

const char *lane_thread_shm(const struct lane_thread *thread); /* "" when not offered */
const char *lane_thread_ofi(const struct lane_thread *thread);
/* Its core and where it listens, for people. */
const char *lane_thread_about(const struct lane_thread *thread);

#endif
