/* Watches of pools whose site has no slots. Such a pool starts workers by itself, and its requests
 * about the job name the pool. While its connection exists, a second pool of the same job is
 * refused: two pools would start the same ranks. Owns struct slots_watch. */
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct slots_watch {
    struct list link;
    struct peer *peer;
    uint64_t pool;
    uint32_t pid;
    char job[JOB_NAME_BYTES_MAX + 1];
    char node[HOST_NAME_MAX + 1];
};

static void watches_free(struct slots_watch *watch)
{
    list_remove(&watch->link);
    free(watch);
}

void slots_watches_forget(const struct slots *slots, const struct peer *peer)
{
    list_for_each_safe_entry (struct slots_watch, watch, &slots->watches, link)
        if (!peer || watch->peer == peer)
            watches_free(watch);
}

static struct slots_watch *watches_find(const struct service *s, const struct tenant *tenant,
                                        const char *job)
{
    list_for_each_entry (struct slots_watch, watch, &s->works->slots->watches, link)
        if (watch->peer->tenant == tenant && strcmp(watch->job, job) == 0)
            return watch;
    return NULL;
}

int slots_check_watch(const struct service *s, const struct tenant *tenant, const char *job,
                      uint64_t pool, struct err *err)
{
    const struct slots_watch *watch = watches_find(s, tenant, job);
    if (!watch || watch->pool == pool)
        return 0;
    return err_set(err, -EEXIST,
                   "job %s has a pool already, on %s (pid %u); end that pool, or give this job "
                   "another name",
                   job, watch->node, watch->pid);
}

static int watches_check(const struct peer *p, const WIRE(JobsRequest) * request, struct err *err)
{
    const WIRE(PoolWatch) *watch = request->watch;
    const struct slots_job *job = slots_find_job(p->service, p->tenant, request->job);
    char name[SLOTS_TEXT_BYTES];
    if (watch->pool == 0 || !*request->job || !text_is_plain(request->job) ||
        !text_is_node(watch->node) || !*watch->node)
        return err_set(err, -EINVAL,
                       "a pool names its job, a number other than 0, and its host; install the "
                       "same version of gradpool on both hosts");
    if (job)
        return err_set(err, -EEXIST,
                       "job %s was submitted by %s already; give this one another name",
                       request->job, slots_pool_name(job->pool, name, sizeof name));
    return slots_check_watch(p->service, p->tenant, request->job, watch->pool, err);
}

/* Replaces the watch of this connection, and the watch of an earlier connection of this pool, whose
 * end the coordinator has not detected yet. */
static int watches_keep(struct peer *p, const WIRE(JobsRequest) * request)
{
    struct slots *slots = p->service->works->slots;
    struct slots_watch *watch = watches_find(p->service, p->tenant, request->job);
    if (watch)
        watches_free(watch);
    slots_watches_forget(slots, p);
    watch = calloc(1, sizeof *watch);
    if (!watch)
        return -ENOMEM;
    watch->peer = p;
    watch->pool = request->watch->pool;
    watch->pid = request->watch->pid;
    memcpy(watch->job, request->job, strlen(request->job) + 1);
    memcpy(watch->node, request->watch->node, strlen(request->watch->node) + 1);
    list_append(&slots->watches, &watch->link);
    return 0;
}

bool slots_may_look(struct peer *p, uint64_t id, const WIRE(JobsRequest) * request)
{
    struct err err;
    if (!request->watch)
        return true;
    if (watches_check(p, request, &err) < 0) {
        peer_fail(p, id, err.code, "%s", err.text);
        return false;
    }
    if (watches_keep(p, request) < 0) {
        peer_fail_memory(p, id);
        return false;
    }
    return true;
}
