/* Undeclares of tensors. After the last rank has undeclared a tensor, the lanes drop its pieces. */
#include "svc/coordinator/declare/undeclare.h"

#include "svc/base/cleanup.h"
#include "svc/coordinator/declare/declaration.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

static int forget(struct job *job, struct tensor *const *tensors, size_t count, struct err *err)
{
    struct store *store = job->service->store;
    struct store_row row;
    store_begin(store);
    for (size_t i = 0; i < count; i++) {
        tensor_row(tensors[i], &row);
        if (tensors[i]->ranks_count > 0)
            store_put(store, &row);
        else
            store_erase(store, &row);
    }
    return store_commit(store, err);
}

/* Drops the tensor, with one message to each lane that has pieces of it. */
static void drop(struct job *job, struct tensor *tensor)
{
    _cleanup_free_ uint32_t *pieces = calloc(tensor->pieces_count, sizeof *pieces);
    for (size_t share = 0; pieces && share < job->shares_count; share++) {
        size_t count = 0;
        for (size_t i = 0; i < tensor->pieces_count; i++)
            if (tensor->pieces[i].lane == job->shares[share].lane)
                pieces[count++] = tensor->pieces[i].id;
        if (count > 0)
            telling_drop(job->shares[share].lane, job->id, pieces, count);
    }
    keeping_end_tensor(tensor);
    jobs_remove_tensor(job, tensor);
}

/* Stores the undeclare. The caller has removed the rank from `tensors`. After an error this
 * function adds the rank again. */
static int undeclare(struct session *session, struct tensor **tensors, size_t count,
                     struct err *err)
{
    struct job *job = session->job;
    int error = forget(job, tensors, count, err);
    for (size_t i = 0; i < count; i++) {
        if (error < 0)
            tensor_set_rank(tensors[i], session->rank, true);
        else if (tensors[i]->ranks_count == 0)
            drop(job, tensors[i]);
    }
    return error;
}

void undeclare_handle(struct peer *p, const envelope *request)
{
    const WIRE(UndeclareRequest) *wanted = request->undeclare_request;
    struct session *session = p->session;
    if (!session)
        return peer_fail(p, request->id, -ENOTCONN, "this connection has no job; join a job first");
    _cleanup_free_ struct tensor **tensors = calloc(wanted->n_tensors + 1, sizeof *tensors);
    if (!tensors)
        return peer_fail_memory(p, request->id);
    size_t count = 0;
    for (size_t i = 0; i < wanted->n_tensors; i++) {
        struct tensor *tensor = jobs_tensor(session->job, wanted->tensors[i]);
        /* A worker that did not receive the reply repeats its request, so a tensor that this rank
         * has not declared is skipped. */
        if (!tensor || !tensor_has_rank(tensor, session->rank))
            continue;
        tensor_set_rank(tensor, session->rank, false);
        tensors[count++] = tensor;
    }
    struct err err;
    int error = undeclare(session, tensors, count, &err);
    if (error < 0)
        return peer_fail(p, request->id, error, "%s", err.text);
    declare_check_waits(session->job);
    peer_reply_done(p, request->id);
}
