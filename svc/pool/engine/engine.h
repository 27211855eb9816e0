/* An engine runs the processes of a pool's workers: it starts, signals and ends them, finds those
 * of an earlier pool of the folder, and reports their ends. A rank has at most one worker. All
 * calls are made in one thread, and none waits for another host, except adopt(). */
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
    uint64_t incarnation; /* larger than those of all earlier starts of the rank */
};

enum engine_event_kind {
    ENGINE_NOTHING,
    ENGINE_RUNS,    /* the worker runs */
    ENGINE_WAITS,   /* the worker cannot run yet, for the reason `text` */
    ENGINE_REFUSED, /* no process was started, for the reason `text`; another try may succeed */
    ENGINE_ENDED,   /* all processes of the worker have ended */
    ENGINE_SAYS,    /* `text` is for the user; without a rank */
};

struct engine_event {
    enum engine_event_kind kind;
    uint32_t rank;
    enum rank_end end; /* ENGINE_ENDED: how, and its number */
    int number;
    uint32_t left; /* ENGINE_ENDED: processes of the worker that have not ended after SIGKILL */
    char text[ENGINE_TEXT_BYTES];
};

struct pool_engine {
    const struct engine_calls *calls;
};

struct engine_calls {
    const char *name; /* in --engine, and in the state of the folder */
    bool is_spread;   /* each worker has the devices of its own allocation: LOCAL_RANK is 0 */
    /* Finds the living workers of an earlier pool of the folder. An older one of two of a rank is
     * ended. */
    int (*adopt)(struct pool_engine *engine, struct err *err);
    /* Ends the processes of earlier pools that belong to no worker of adopt(). */
    void (*end_strays)(struct pool_engine *engine);
    /* Returns whether the rank has a worker, and its cookie. Its `pid` is 0 if the engine does not
     * know it, or if it belongs to another host. */
    bool (*find)(struct pool_engine *engine, uint32_t rank, struct cookie *ret_cookie);
    /* Starts a worker, whose number is stored in the folder. Returns 1 if it runs, 0 if an event
     * follows, or an error. `ret_is_final`: the program cannot be executed, so another try would
     * fail, too. */
    int (*start)(struct pool_engine *engine, const struct engine_start *start, bool *ret_is_final,
                 struct err *err);
    /* Sends a signal to the worker's process. Without one, its start is undone, and ENGINE_ENDED
     * follows. No effect for a rank without a worker. */
    void (*signal)(struct pool_engine *engine, uint32_t rank, int signal);
    /* Returns a descriptor that is readable when next() has work or an event. */
    int (*fd)(struct pool_engine *engine);
    /* Returns the next event, and false if there is none. After ENGINE_REFUSED and ENGINE_ENDED
     * the rank has no worker. */
    bool (*next)(struct pool_engine *engine, struct engine_event *ret_event);
    /* Returns the number of the pool that has started this process of this host as a worker; 0:
     * none, or unknown. */
    uint64_t (*pool_of)(struct pool_engine *engine, uint32_t pid);
    /* Called once, after the workers have ended. Ends all other processes, and frees the engine. */
    void (*end)(struct pool_engine *engine);
};

/* Processes of this host. `folder` outlives the engine. SIGCHLD is blocked in this process. */
int engine_local_create(const struct pool_folder *folder, struct pool_engine **ret_engine,
                        struct err *err);

#endif
