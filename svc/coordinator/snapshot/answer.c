/* The answer after all pieces are released. The answer lists the arrays of each tensor in the
 * snapshot. Owns nothing. RULES.md: K47. */
#include "svc/coordinator/snapshot/internal.h"

#include "svc/base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

static WIRE(SnapshotTensor) describe(const struct tensor *tensor, const struct saved_piece *first)
{
    return MESSAGE_PART(SnapshotTensor, snapshot_tensor, .name = tensor->name,
                        .dtype = tensor->dtype, .rule = tensor->terms.rule,
                        .elements = tensor->elements, .steps = first->steps - 1);
}

int saving_answer(struct saving *sv, const struct job *job)
{
    size_t count = sv->tensors_count;
    _cleanup_free_ WIRE(SnapshotTensor) *tensors = calloc(count, sizeof *tensors);
    _cleanup_free_ WIRE(SnapshotTensor) **list = calloc(count, sizeof *list);
    if (!tensors || !list)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = jobs_tensor(job, sv->tensors[i].tensor);
        if (!tensor)
            return -EAGAIN;
        tensors[i] = describe(tensor, &sv->pieces[sv->tensors[i].first]);
        list[i] = &tensors[i];
    }
    envelope e = MESSAGE(sv->request, SNAPSHOT_REPLY, snapshot_reply, .snapshot = sv->id,
                         .round = sv->pieces[0].round, .tensors = list, .n_tensors = count);
    if (gradpool__wire__envelope__get_packed_size(&e) > CHANNEL_FRAME_BYTES_MAX)
        return -EMSGSIZE;
    peer_send(sv->peer, &e);
    return 0;
}
