/* A scripted pool, and workers with incarnations. The service has site "here" with 4 slots, and
 * site "small" with 1 slot. */
#ifndef GRADPOOL_TEST_POOL_CASE_H
#define GRADPOOL_TEST_POOL_CASE_H

#include "test/unit/coordinator/coordinator_rig.h"

#define POOL_PID 4242

/* Set-up for cmocka, instead of rig_setup(). */
int pools_setup(void **state);

/* An order of the coordinator, copied from its message. */
struct pool_order {
    int verb;
    char job[64], text[256];
    uint32_t rank, slot, workers, workers_max;
    uint64_t incarnation;
    int code;
};

/* Fields of a pool's join. Zeros: site "here", number 7, this host, POOL_PID, no worker. */
struct pool_joining {
    const char *site, *node;
    uint64_t number;
    uint32_t pid;
    const struct key *key;
    const struct pool_order *has; /* workers that still exist */
    size_t count;
};
struct end *pool_join(struct rig *rig, struct pool_joining how);
/* Like pool_join(), and also returns how many stale workers and how many jobs the welcome
 * contains. */
struct end *pool_rejoin(struct rig *rig, struct pool_joining how, size_t *ret_stale,
                        size_t *ret_jobs);
void pool_join_refused(struct rig *rig, struct pool_joining how, int code, const char *text);

void pool_submit(struct end *pool, const char *job, uint32_t workers, uint32_t workers_max);
void pool_submit_refused(struct end *pool, const char *job, uint32_t workers, uint32_t workers_max,
                         int code, const char *text);
void pool_withdraw(struct end *pool, const char *job);

/* Waits for the next order and checks its verb. */
struct pool_order pool_expect(struct end *pool, int verb);
/* Waits for an order for this job and rank, and checks its verb. */
struct pool_order pool_expect_for(struct end *pool, int verb, const char *job, uint32_t rank);

void pool_started(struct end *pool, const struct pool_order *worker);
/* Waits for the next order, which must be START, and reports the process. */
struct pool_order pool_expect_and_start(struct end *pool);
void pool_ended(struct end *pool, const struct pool_order *worker, uint32_t exit_code);
/* Sends a report about the worker. Expects Done. */
void pool_report(struct end *pool, const struct pool_order *worker, WIRE(PoolReport) report);

/* Joins the started worker to its job. `workers_max` 0: the job continues after a loss, and has the
 * workers_max of the order. Any other value: the job fails if a worker fails, and has this
 * workers_max. */
struct end *pool_worker_join(struct rig *rig, const struct pool_order *worker,
                             uint32_t workers_max);
void pool_worker_refused(struct rig *rig, const struct pool_order *worker, int code,
                         const char *text);

/* Ends the time in which a pool without a connection may connect again. */
void pools_let_miss(struct rig *rig);
/* Runs the check of all jobs that is due once a second. */
void pools_look(struct rig *rig);
/* Restarts the coordinator, whose connections are lost. */
void pools_restart(struct rig *rig);
/* Adds a tenant. Returns the tenant's key. */
struct key pools_add_tenant(struct rig *rig, const char *name);
/* Returns the reply to a request about jobs. `name`: "" for all jobs. */
envelope *pools_ask_jobs(struct rig *rig, const char *name);

#define POOL_START GRADPOOL__WIRE__POOL_VERB__POOL_START
#define POOL_LEAVE GRADPOOL__WIRE__POOL_VERB__POOL_LEAVE
#define POOL_END GRADPOOL__WIRE__POOL_VERB__POOL_END
#define POOL_OVER GRADPOOL__WIRE__POOL_VERB__POOL_OVER

#endif
