/* Tests of the bench preload this library into `gradpool-bench`. In each process the first element
 * of every group's result, and of every pull of rows, becomes wrong, except in the first group and
 * the first pull. A bench that checks only its first round would not detect the error. */
#include "client/gradpool_table.h"

#include <dlfcn.h>

#define SEEN_BY_ALL __attribute__((visibility("default")))

static float *result;
static unsigned results;

SEEN_BY_ALL int gp_push_pull_group(gp_job *job, const gp_item *items, size_t count,
                                   enum gp_operation operation, gp_request **ret_request)
{
    int (*next)(gp_job *, const gp_item *, size_t, enum gp_operation, gp_request **) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "gp_push_pull_group");
    result = items[0].result;
    results++;
    return next(job, items, count, operation, ret_request);
}

SEEN_BY_ALL int gp_pull(gp_batch *batch, void *rows, gp_request **ret_request)
{
    int (*next)(gp_batch *, void *, gp_request **) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "gp_pull");
    result = rows;
    results++;
    return next(batch, rows, ret_request);
}

SEEN_BY_ALL int gp_wait(gp_request *request, int timeout_ms)
{
    int (*next)(gp_request *, int) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "gp_wait");
    int r = next(request, timeout_ms);
    if (r == 0 && results > 1)
        *result += 1;
    return r;
}
