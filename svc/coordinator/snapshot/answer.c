/* The answer that all stands still: what a snapshot has of each tensor. Owns nothing. README: K47.
 * */
#include "svc/coordinator/snapshot/internal.h"

#include "svc/base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

static void describe(const struct tensor *tensor, const struct saved_piece *first,
                     WIRE(SnapshotTensor) * ret)
{
    gradpool__wire__snapshot_tensor__init(ret);
    ret->name = tensor->name;
    ret->dtype = tensor->dtype;
    ret->rule = tensor->terms.rule;
    ret->elements = tensor->elements;
    ret->steps = first->steps - 1;
}

int saving_answer(struct saving *sv, const struct job *job)
{
    WIRE(SnapshotReply) reply = GRADPOOL__WIRE__SNAPSHOT_REPLY__INIT;
    _cleanup_free_ WIRE(SnapshotTensor) *tensors = calloc(sv->tensors_count, sizeof *tensors);
    _cleanup_free_ WIRE(SnapshotTensor) **list = calloc(sv->tensors_count, sizeof *list);
    if (!tensors || !list)
        return -ENOMEM;
    for (size_t i = 0; i < sv->tensors_count; i++) {
        const struct tensor *tensor = jobs_tensor(job, sv->tensors[i].tensor);
        if (!tensor)
            return -EAGAIN;
        describe(tensor, &sv->pieces[sv->tensors[i].first], &tensors[i]);
        list[i] = &tensors[i];
    }
    reply.snapshot = sv->id;
    reply.round = sv->pieces[0].round;
    reply.tensors = list;
    reply.n_tensors = sv->tensors_count;
    envelope e = ENVELOPE(sv->request, SNAPSHOT_REPLY, snapshot_reply, &reply);
    if (gradpool__wire__envelope__get_packed_size(&e) > CHANNEL_FRAME_BYTES_MAX)
        return -EMSGSIZE;
    peer_send(sv->peer, &e);
    return 0;
}
