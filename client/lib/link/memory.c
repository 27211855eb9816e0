/* Memory that a job lends to its lanes: gp_alloc() and related functions. A slab is lent on every
 * link before the first READY that uses it (L6). */
#include "client/lib/link/link.h"
#include "client/lib/session/process.h"
#include "svc/base/system/populate.h"
#include "svc/base/system/shortage.h"

#include <errno.h>

/* Frees memory. In a failed job the pages stay until the worker leaves: a lane may still read the
 * last gradient, and would report missing pages to the other ranks before they receive the
 * reason. */
static void memory_free(struct gp_job *job, void *memory)
{
    pthread_mutex_lock(&job->lock);
    if (!job->failure.code)
        slabs_free(&job->slabs, memory);
    pthread_mutex_unlock(&job->lock);
}

/* Allocates a slab. Its pages are populated without the lock, so that other threads of the job
 * continue (L94). */
static int memory_alloc(struct gp_job *job, size_t bytes, void **ret_memory)
{
    void *memory;
    pthread_mutex_lock(&job->lock);
    int error = slabs_reserve(&job->slabs, bytes, &memory);
    if (error == 0)
        link_flush_all(job); /* lanes map the new slab before the first round needs it */
    pthread_mutex_unlock(&job->lock);
    if (error == 0 && populate(memory, bytes) < 0) {
        memory_free(job, memory);
        error = -ENOMEM;
    }
    if (error == 0)
        *ret_memory = memory;
    return error;
}

int gp_alloc(gp_job *job, size_t bytes, void **ret_memory)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!ret_memory)
        return client_error(-EINVAL, "gp_alloc: ret_memory is NULL; pass a pointer");
    error = memory_alloc(job, bytes, ret_memory);
    if (error == -ENOSPC)
        return client_error(error,
                            "gp_alloc of %zu bytes: a worker can lend at most 512 GiB to a job, in "
                            "at most %d slabs; allocate less, or free memory that is unused",
                            bytes, FABRIC_REGIONS_MAX);
    char lack[SHORTAGE_BYTES];
    return error < 0 ? client_error(error, "gp_alloc of %zu bytes: %s", bytes,
                                    shortage_text(error, SHORTAGE_OTHER, lack, sizeof lack))
                     : 0;
}

int gp_keep(gp_job *job, void *memory)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    error = slabs_keep(&job->slabs, memory);
    pthread_mutex_unlock(&job->lock);
    return error < 0 ? client_error(error, "gp_keep: the memory is not from gp_alloc(); pass a "
                                           "pointer that gp_alloc() has returned")
                     : 0;
}

void gp_free(gp_job *job, void *memory)
{
    if (!memory || !job || generation_is_foreign(job->client->generation))
        return;
    memory_free(job, memory);
}
