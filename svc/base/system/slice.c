/* The scheduler's slice. Owns nothing. */
#include "svc/base/system/slice.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

void slice_set(uint64_t ns)
{
    struct sched_attr attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) < 0 ||
        (attributes.sched_policy != SCHED_NORMAL && attributes.sched_policy != SCHED_BATCH))
        return;
    attributes.sched_runtime = ns;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}
