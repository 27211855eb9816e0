/* An engine runs the processes of a pool's workers: it starts, signals and ends them, finds workers
 * of an earlier pool of the folder, and reports their ends. A rank has at most one worker. One
 * thread makes all calls. Only adopt() waits for another host. */
#ifndef GRADPOOL_POOL_ENGINE_ENGINE_H
#define GRADPOOL_POOL_ENGINE_ENGINE_H

#include "svc/base/err.h"
#include "svc/pool/cookie.h"
#include "svc/pool/folder.h"

#define ENGINE_TEXT_BYTES 512

struct engine_start {
    char **program;         /* arguments; ends with NULL */
    char *const *variables; /* "NAME=VALUE", added to the environment of this process; NULL ends */
    uint32_t rank;
    uint64_t incarnation; /* larger than the number of every earlier start of the rank */
};

enum engine_event_kind {
    ENGINE_NOTHING,
    ENGINE_RUNS,    /* the worker runs */
    ENGINE_WAITS,   /* the worker cannot run yet, for the reason `text` */
    ENGINE_REFUSED, /* no process was started, for the reason `text`; another try may succeed */
    ENGINE_ENDED,   /* the worker has ended, and all its processes */
    ENGINE_SAYS,    /* `text` is a message for the user; `rank` is not set */
};

struct engine_event {
    enum engine_event_kind kind;
    uint32_t rank;
    enum rank_end end; /* ENGINE_ENDED: kind of the end; `number`: exit code or signal */
    int number;
    uint32_t left; /* ENGINE_ENDED: processes that have not ended after SIGKILL */
    char text[ENGINE_TEXT_BYTES];
};

struct pool_engine {
    const struct engine_calls *calls;
};

struct engine_calls {
    const char *name; /* name in --engine, and in the state of the folder */
    bool is_spread;   /* each worker has an allocation of its own, so LOCAL_RANK is 0 */
    /* Finds the living workers of an earlier pool of the folder. If a rank has two workers, the
     * older one is ended. */
    int (*adopt)(struct pool_engine *engine, struct err *err);
    /* Ends processes of earlier pools that do not belong to a worker found by adopt(). */
    void (*end_strays)(struct pool_engine *engine);
    /* Returns whether the rank has a worker, and the worker's cookie. The cookie's `pid` is 0 if
     * the engine does not know the process, or if the process is on another host. */
    bool (*find)(struct pool_engine *engine, uint32_t rank, struct cookie *ret_cookie);
    /* Starts a worker. The number of the start was stored in the folder before. Returns 1 if the
     * worker runs, 0 if an event will report this, or a negative errno. `ret_is_final`: the program
     * cannot be executed, so another try would fail, too. */
    int (*start)(struct pool_engine *engine, const struct engine_start *start, bool *ret_is_final,
                 struct err *err);
    /* Sends a signal to the worker's process. If the worker has no process yet, its start is
     * undone, and ENGINE_ENDED follows. No effect for a rank without a worker. */
    void (*signal)(struct pool_engine *engine, uint32_t rank, int signal);
    /* Returns a descriptor that is readable when next() has work or an event. */
    int (*fd)(struct pool_engine *engine);
    /* Returns false if there is no event. After ENGINE_REFUSED and ENGINE_ENDED the rank has no
     * worker. */
    bool (*next)(struct pool_engine *engine, struct engine_event *ret_event);
    /* Returns the number of the pool that has started this process as a worker on this host; 0: no
     * pool, or not known. */
    uint64_t (*pool_of)(struct pool_engine *engine, uint32_t pid);
    /* Called once, after the workers have ended. Ends all other processes of workers, and frees the
     * engine. */
    void (*end)(struct pool_engine *engine);
};

/* Creates the engine for processes on this host. `folder` outlives the engine. SIGCHLD is blocked
 * in this process. */
int engine_local_create(const struct pool_folder *folder, struct pool_engine **ret_engine,
                        struct err *err);

#endif
