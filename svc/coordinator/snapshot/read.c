/* Reads the arrays of one tensor after another from lanes, several parts at a time, and sends the
 * parts unchanged to the caller. Owns the cursor and the parts in transit. At most one answer is in
 * memory (RULES.md: K47). */
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/snapshot/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES (UINT64_C(1) << 20) /* maximum bytes of one StateReply */
#define BATCH_BYTES (4 * PART_BYTES)
#define PARTS_MAX 64

struct snapshot_part {
    uint32_t tensor;
    uint64_t offset, bytes; /* position in the tensor's arrays */
    uint8_t *data;
};

struct saving_batch {
    size_t count, pending;
    uint64_t bytes;
    struct snapshot_part parts[PARTS_MAX];
};

/* Context of a call. */
struct read_asked {
    uint64_t saving;
    uint32_t turn;
    size_t at;
};

void saving_forget_batch(struct saving *sv)
{
    for (size_t i = 0; sv->batch && i < sv->batch->count; i++)
        free(sv->batch->parts[i].data);
    free(sv->batch);
    sv->batch = NULL;
}

static void send_batch(struct saving *sv)
{
    struct saving_batch *b = sv->batch;
    WIRE(SnapshotPart) parts[PARTS_MAX], *list[PARTS_MAX];
    for (size_t i = 0; i < b->count; i++) {
        parts[i] = MESSAGE_PART(SnapshotPart, snapshot_part, .tensor = b->parts[i].tensor,
                                .offset = b->parts[i].offset,
                                .data = {b->parts[i].bytes, b->parts[i].data});
        list[i] = &parts[i];
    }
    peer_reply(sv->peer, sv->request, SNAPSHOT_PARTS, snapshot_parts, .parts = list,
               .n_parts = b->count);
    sv->request = 0;
    saving_forget_batch(sv);
    saving_await(sv);
}

static void got(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    const struct read_asked *asked = data;
    struct saving *sv = saving_find(s, asked->saving);
    if (!sv || sv->turn != asked->turn || !sv->batch)
        return;
    struct snapshot_part *part = &sv->batch->parts[asked->at];
    if (!reply)
        return saving_break(sv, code, "no snapshot: %s", text);
    if (reply->body_case != BODY(STATE_REPLY) || reply->state_reply->data.len < part->bytes)
        return saving_break(sv, -EBADMSG,
                            "a lane did not send all of the state that it had announced");
    memcpy(part->data, reply->state_reply->data.data, part->bytes);
    if (--sv->batch->pending == 0)
        send_batch(sv);
}

/* --- next parts --- */

/* Moves the cursor to the next element to read. Returns false if everything was read. */
static bool skip(struct saving *sv)
{
    struct saving_cursor *c = &sv->cursor;
    while (c->tensor < sv->tensors_count) {
        const struct saved_tensor *t = &sv->tensors[c->tensor];
        size_t end = t->first + t->count;
        c->piece = c->piece < t->first ? t->first : c->piece;
        while (c->piece < end && c->element == sv->pieces[c->piece].elements) {
            c->element = 0;
            if (++c->array < t->arrays && sv->pieces[c->piece].elements > 0)
                continue;
            c->array = 0;
            c->piece++;
        }
        if (c->piece < end)
            return true;
        c->tensor++;
    }
    return false;
}

/* Requests a part. In the state of a piece, the arrays are at the end (A27 of svc/lane). */
static int ask(struct saving *sv, const struct saved_tensor *t, const struct saved_piece *p,
               uint64_t bytes)
{
    const struct saving_cursor *c = &sv->cursor;
    struct saving_batch *b = sv->batch;
    struct lane *lane = lane_find(sv->service, p->lane);
    uint64_t arrays_bytes = p->elements * t->arrays * sizeof(float);
    uint64_t from = p->state_bytes - arrays_bytes;
    const struct read_asked asked = {.saving = sv->id, .turn = sv->turn, .at = b->count};
    uint8_t *data = lane ? malloc(bytes) : NULL;
    int error =
        data ? lane_call(lane, got, &asked, sizeof asked, STATE_REQUEST, state_request,
                         .job_id = sv->job, .piece = p->piece,
                         .offset = from + (c->array * p->elements + c->element) * sizeof(float))
             : -ENOMEM;
    if (error < 0) {
        free(data);
        return error;
    }
    b->parts[b->count++] = (struct snapshot_part){
        .tensor = (uint32_t)c->tensor,
        .offset = (c->array * t->elements + p->first + c->element) * sizeof(float),
        .bytes = bytes,
        .data = data};
    b->pending++;
    b->bytes += bytes;
    return 0;
}

/* Requests the next part. Returns 0, -ENOMEM, or -EBADMSG if the lane's state is too short for the
 * arrays. */
static int ask_next(struct saving *sv)
{
    struct saving_cursor *c = &sv->cursor;
    const struct saved_tensor *t = &sv->tensors[c->tensor];
    const struct saved_piece *p = &sv->pieces[c->piece];
    uint64_t bytes = (p->elements - c->element) * sizeof(float);
    if (p->state_bytes < p->elements * t->arrays * sizeof(float))
        return -EBADMSG;
    bytes = bytes < PART_BYTES ? bytes : PART_BYTES;
    int error = ask(sv, t, p, bytes);
    if (error == 0)
        c->element += bytes / sizeof(float);
    return error;
}

void saving_read(struct saving *sv)
{
    int error = 0;
    /* the timer stops while calls are open, because each call has its own deadline */
    timer_stop(&sv->timer);
    sv->batch = calloc(1, sizeof *sv->batch);
    if (!sv->batch)
        return saving_break(
            sv, -ENOMEM,
            "gradpool serve has no memory for the parts of a snapshot; raise its memory limit");
    while (error == 0 && sv->batch->count < PARTS_MAX && sv->batch->bytes < BATCH_BYTES && skip(sv))
        error = ask_next(sv);
    if (error < 0)
        saving_break(sv, error, "no snapshot: %s", err_text(error));
    else if (sv->batch->pending == 0)
        send_batch(sv);
}
