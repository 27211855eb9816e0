/* test_bench_stragglers.py preloads this library into `gradpool-bench`. In each process the first
 * element of every group's result becomes wrong, except in the first group. A bench that checks
 * only its first round would not detect the error. */
#include "client/gradpool.h"

#include <dlfcn.h>

#define SEEN_BY_ALL __attribute__((visibility("default")))

static float *result;
static unsigned groups;

SEEN_BY_ALL int gp_push_pull_group(gp_job *job, const gp_item *items, size_t count,
                                   enum gp_operation operation, gp_request **ret_request)
{
    int (*next)(gp_job *, const gp_item *, size_t, enum gp_operation, gp_request **) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "gp_push_pull_group");
    result = items[0].result;
    groups++;
    return next(job, items, count, operation, ret_request);
}

SEEN_BY_ALL int gp_wait(gp_request *request, int timeout_ms)
{
    int (*next)(gp_request *, int) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "gp_wait");
    int r = next(request, timeout_ms);
    if (r == 0 && groups > 1)
        *result += 1;
    return r;
}
