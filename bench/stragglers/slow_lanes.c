/* Lanes of `gradpool-bench-slow`. This program is `gradpool`, in which the linker wraps three
 * functions of lanes. Owns the remaining sleep of each lane's thread. */
#include "bench/stragglers/slowing.h"

#include "svc/base/log.h"
#include "svc/lane/chunk/transfer.h"
#include "svc/lane/lane.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/types.h"

#include <errno.h>
#include <stdlib.h>

int __real_lane_create(const struct lane_options *options, struct lane **ret_lane);
int __wrap_lane_create(const struct lane_options *options, struct lane **ret_lane);
uint32_t __real_transfer_turn(struct lane_job *job);
uint32_t __wrap_transfer_turn(struct lane_job *job);
void __real_account_started(struct piece *p);
void __wrap_account_started(struct piece *p);

static _Thread_local struct slowing own;

/* Sets the position of the thread's lane. An aggregator creates its lanes one after the other, each
 * on the thread that will run the lane. */
int __wrap_lane_create(const struct lane_options *options, struct lane **ret_lane)
{
    static uint32_t lanes;
    const char *path = getenv(SLOWING_VARIABLE);
    own = (struct slowing){.lane = __atomic_fetch_add(&lanes, 1, __ATOMIC_RELAXED)};
    if (path)
        own.numbers = slowing_map(path);
    if (path && !own.numbers) {
        log_error("environment variable " SLOWING_VARIABLE
                  ": %s is no file with the numbers of %d lanes",
                  path, SLOWING_LANES);
        return -EINVAL;
    }
    return __real_lane_create(options, ret_lane);
}

uint32_t __wrap_transfer_turn(struct lane_job *job)
{
    slowing_pay(&own);
    uint64_t due_bytes = job->due_bytes;
    uint32_t share = __real_transfer_turn(job);
    if (job->due_bytes < due_bytes)
        slowing_owe(&own, due_bytes - job->due_bytes);
    return share;
}

void __wrap_account_started(struct piece *p)
{
    slowing_owe_task(&own, p->id);
    __real_account_started(p);
}
