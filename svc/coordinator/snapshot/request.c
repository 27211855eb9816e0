/* Requests of `gradpool snapshot`: finds the job and the tensors, or continues with the next batch.
 * snapshot.c carries out the requests. RULES.md: K47. */
#include "svc/base/cleanup.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/snapshot/internal.h"

#include <errno.h>
#include <stdlib.h>

/* Sets the requested tensors. Returns 0, -ENOMEM, or -ENOENT if the job has no such tensor. */
static int take_wanted(struct saving *sv, const struct job *job,
                       const WIRE(SnapshotRequest) * request, struct err *err)
{
    if (request->n_tensors == 0)
        return 0;
    sv->wanted = calloc(request->n_tensors, sizeof *sv->wanted);
    if (!sv->wanted)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a snapshot of job %.64s; raise its memory limit",
            job->name);
    for (size_t i = 0; i < request->n_tensors; i++) {
        const struct tensor *tensor = jobs_tensor_named(job, request->tensors[i]);
        if (!tensor)
            return err_set(err, -ENOENT, "job %.64s has no tensor '%.255s'", job->name,
                           request->tensors[i]);
        sv->wanted[sv->wanted_count++] = tensor->id;
    }
    return 0;
}

static bool saving_has_rule(const struct job *job)
{
    for (size_t i = 0; i < job->tensors_count; i++)
        if (job->tensors[i]->terms.rule != 0)
            return true;
    return false;
}

/* Answers with the number of tables, which the caller then exports at one clock (K150). Refuses a
 * job that also has tensors with rules: the clock in which an iteration of these tensors ends is
 * known to the ranks alone. */
static void saving_answer_tables(struct peer *p, const envelope *request, const struct job *job)
{
    if (saving_has_rule(job))
        return peer_fail(p, request->id, -EOPNOTSUPP,
                         "job %.64s has tables and tensors with update rules, so only the ranks "
                         "know the clock in which an iteration ends; call gp_job_snapshot() in the "
                         "script",
                         job->name);
    peer_reply(p, request->id, SNAPSHOT_REPLY, snapshot_reply, .tables = job->index->tables.count);
}

void saving_handle_request(struct peer *p, const envelope *request)
{
    struct service *s = p->service;
    if (s->phase != SERVICE_UP)
        return peer_fail(p, request->id, -ESHUTDOWN, "gradpool serve is stopping");
    const WIRE(SnapshotRequest) *wanted = request->snapshot_request;
    const struct job *job = jobs_find_meant(p, request->id, wanted->job, wanted->tenant);
    if (!job)
        return;
    if (job->index->tables.count > 0 && wanted->n_tensors == 0)
        return saving_answer_tables(p, request, job);
    struct saving *sv = calloc(1, sizeof *sv);
    if (!sv)
        return peer_fail_memory(p, request->id);
    *sv = (struct saving){.service = s,
                          .peer = p,
                          .id = ++s->door->next_id,
                          .request = request->id,
                          .job = job->id,
                          .is_between = wanted->between};
    struct err err;
    if (take_wanted(sv, job, wanted, &err) < 0) {
        peer_fail(p, request->id, err.code, "%s", err.text);
        free(sv->wanted);
        return free(sv);
    }
    list_append(&s->works->savings, &sv->link);
    saving_begin(sv);
}

/* Returns the peer's snapshot if it is ready. If the peer has no snapshot, or the snapshot is
 * broken, sends the failure to the peer and returns NULL. */
static struct saving *find_own(struct peer *p, uint64_t request, uint64_t id)
{
    struct saving *sv = saving_find(p->service, id);
    if (sv && sv->peer == p && sv->state == SAVING_STANDS && !sv->request)
        return sv;
    if (!sv || sv->peer != p || sv->state != SAVING_BROKEN) {
        peer_fail(p, request, -EINVAL,
                  "the coordinator has no such snapshot: the snapshot is not ready, or this "
                  "request came too late; order the snapshot again");
        return NULL;
    }
    peer_fail(p, request, sv->why.code, "%s", sv->why.text);
    saving_free(sv);
    return NULL;
}

void saving_handle_next(struct peer *p, const envelope *request)
{
    struct saving *sv = find_own(p, request->id, request->snapshot_next_request->snapshot);
    if (!sv)
        return;
    sv->request = request->id;
    if (!saving_takes_long(sv))
        saving_read(sv);
}

void saving_handle_end(struct peer *p, const envelope *request)
{
    struct saving *sv = find_own(p, request->id, request->snapshot_end_request->snapshot);
    if (!sv)
        return;
    saving_let_go_on(sv);
    saving_free(sv);
    peer_reply_done(p, request->id);
}
