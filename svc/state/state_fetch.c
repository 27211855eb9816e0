/* The conversation about a job's state. Blocks, and never past its deadlines; keeps nothing of what
 * it reads. README: D3. */
#include "svc/state/state_fetch.h"

#include "svc/base/clock.h"

#include <errno.h>

#define REST_TIMEOUT_MS 90000 /* until all stands still */
#define PART_TIMEOUT_MS 20000

static int call(struct state_fetch *f, envelope *request, int timeout_ms, int expected,
                envelope **ret_reply, struct err *err)
{
    uint64_t deadline_ns = clock_deadline_ns(clock_now_ns(), timeout_ms);
    int r = channel_call(f->channel, request, deadline_ns, NULL, NULL, ret_reply, err);
    if (r < 0 || (int)(*ret_reply)->body_case == expected)
        return r;
    gradpool__wire__envelope__free_unpacked(*ret_reply, NULL);
    return err_set(err, -EPROTO, "the service answered something else");
}

int state_fetch_begin(struct state_fetch *f, const struct state_wish *wish, struct err *err)
{
    Gradpool__Wire__SnapshotRequest ask = GRADPOOL__WIRE__SNAPSHOT_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    ask.job = (char *)wish->job;
    ask.tenant = (char *)wish->tenant;
    ask.between = wish->is_between;
    ask.tensors = wish->tensors;
    ask.n_tensors = wish->tensors_count;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_REQUEST;
    request.snapshot_request = &ask;
    int r = call(f, &request, REST_TIMEOUT_MS, GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_REPLY,
                 &f->reply, err);
    if (r == 0)
        f->what = f->reply->snapshot_reply;
    return r;
}

int64_t state_fetch_next(struct state_fetch *f, state_part_fn take, void *context, struct err *err)
{
    Gradpool__Wire__SnapshotNextRequest ask = GRADPOOL__WIRE__SNAPSHOT_NEXT_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    ask.snapshot = f->what->snapshot;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_NEXT_REQUEST;
    request.snapshot_next_request = &ask;
    int r = call(f, &request, PART_TIMEOUT_MS, GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_PARTS,
                 &reply, err);
    if (r < 0)
        return r;
    const Gradpool__Wire__SnapshotParts *parts = reply->snapshot_parts;
    for (size_t i = 0; i < parts->n_parts && r == 0; i++) {
        const Gradpool__Wire__SnapshotPart *part = parts->parts[i];
        r = take(context, part->tensor, part->offset, part->data.data, part->data.len, err);
    }
    int64_t count = (int64_t)parts->n_parts;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return r < 0 ? r : count;
}

int state_fetch_end(struct state_fetch *f, struct err *err)
{
    Gradpool__Wire__SnapshotEndRequest ask = GRADPOOL__WIRE__SNAPSHOT_END_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    ask.snapshot = f->what->snapshot;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_END_REQUEST;
    request.snapshot_end_request = &ask;
    int r = call(f, &request, PART_TIMEOUT_MS, GRADPOOL__WIRE__ENVELOPE__BODY_DONE, &reply, err);
    if (r == 0)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return r;
}

void state_fetch_free(struct state_fetch *f)
{
    if (f->reply)
        gradpool__wire__envelope__free_unpacked(f->reply, NULL);
    f->reply = NULL;
    f->what = NULL;
}
