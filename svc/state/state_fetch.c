/* Requests to a coordinator about a job's state. The functions block, but never beyond their
 * deadlines. None of the data is stored here. README: D3. */
#include "svc/state/state_fetch.h"

#define REST_TIMEOUT_MS 90000 /* longest wait until no round of the job is in progress */
#define PART_TIMEOUT_MS 20000

int state_fetch_begin(struct state_fetch *f, const struct state_wish *wish, struct err *err)
{
    int error =
        channel_ask(f->channel,
                    &MESSAGE(0, SNAPSHOT_REQUEST, snapshot_request, .job = (char *)wish->job,
                             .tenant = (char *)wish->tenant, .between = wish->is_between,
                             .tensors = wish->tensors, .n_tensors = wish->tensors_count),
                    REST_TIMEOUT_MS, GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_REPLY, &f->reply, err);
    if (error == 0)
        f->what = f->reply->snapshot_reply;
    return error;
}

int64_t state_fetch_next(struct state_fetch *f, state_part_fn take, void *context, struct err *err)
{
    envelope *reply;
    int error = channel_ask(
        f->channel,
        &MESSAGE(0, SNAPSHOT_NEXT_REQUEST, snapshot_next_request, .snapshot = f->what->snapshot),
        PART_TIMEOUT_MS, GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_PARTS, &reply, err);
    if (error < 0)
        return error;
    const Gradpool__Wire__SnapshotParts *parts = reply->snapshot_parts;
    for (size_t i = 0; i < parts->n_parts && error == 0; i++) {
        const Gradpool__Wire__SnapshotPart *part = parts->parts[i];
        error = take(context, part->tensor, part->offset, part->data.data, part->data.len, err);
    }
    int64_t count = (int64_t)parts->n_parts;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error < 0 ? error : count;
}

int state_fetch_end(struct state_fetch *f, struct err *err)
{
    envelope *reply = NULL;
    int error = channel_ask(
        f->channel,
        &MESSAGE(0, SNAPSHOT_END_REQUEST, snapshot_end_request, .snapshot = f->what->snapshot),
        PART_TIMEOUT_MS, GRADPOOL__WIRE__ENVELOPE__BODY_DONE, &reply, err);
    if (error == 0)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

void state_fetch_free(struct state_fetch *f)
{
    gradpool__wire__envelope__free_unpacked(f->reply, NULL);
    f->reply = NULL;
    f->what = NULL;
}
