/* Transfers state (parameters, moments, a running sum) from source to target. The coordinator
 * requests parts of the state from the source, and sends them to the target. At most PARTS_MAX
 * parts are in transit, which keeps both lanes busy and limits memory. The contents are not
 * interpreted. */
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/migration/internal.h"

#include <errno.h>
#include <stdlib.h>

/* bytes of a StateReply; the last reply of a piece may have fewer */
#define PART_BYTES (UINT64_C(1) << 20)
/* maximum number of parts that were requested, or were sent to the target without an answer yet */
#define PARTS_MAX 4

/* The transfer of state in one migration. */
struct state_way {
    size_t at;       /* index of the traveller whose state the next request reads */
    uint64_t offset; /* offset of the next request in this state */
    uint32_t parts;  /* number of parts in transit */
};

static void fill(struct migration *m);

/* A part of the state of one piece. All parts use the same connection, so they arrive in order. */
struct state_part {
    uint64_t migration;
    size_t at; /* index of the traveller */
    uint64_t offset, bytes;
};

/* Returns the migration of the part; NULL: the migration has ended, or no longer transfers
 * state. */
static struct migration *waiting(struct service *s, const struct state_part *part)
{
    struct migration *m = migration_find(s, part->migration);
    return m && m->state == MIGRATOR_C_MOVING ? m : NULL;
}

static bool is_gone(const struct migration *m, size_t at)
{
    return !jobs_piece(migration_job(m), m->travellers[at].piece, NULL);
}

/* Handles a failed part. If the piece was undeclared in the meantime, the failure is ignored;
 * otherwise the migration is aborted. */
static void failed(struct migration *m, const struct state_part *part, int code, const char *text)
{
    if (!is_gone(m, part->at))
        return migration_refused(m, code, text);
    m->way->parts--;
    fill(m);
}

static void put(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    const struct state_part *part = data;
    struct migration *m = waiting(s, part);
    if (!m)
        return;
    if (!reply)
        return failed(m, part, code, text);
    m->way->parts--;
    fill(m);
}

static void got(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    const struct state_part *part = data;
    struct migration *m = waiting(s, part);
    if (!m)
        return;
    if (!reply)
        return failed(m, part, code, text);
    if (reply->body_case != BODY(STATE_REPLY) || reply->state_reply->data.len != part->bytes)
        return failed(m, part, -EBADMSG, "a lane sent more or less state than it had announced");
    const struct traveller *t = &m->travellers[part->at];
    struct lane *lane = lane_find(s, t->target);
    m->moved.state_bytes += part->bytes;
    if (!lane ||
        lane_call(lane, put, part, sizeof *part, STATE_PUT, state_put, .job_id = m->job,
                  .piece = t->piece, .offset = part->offset, .data = reply->state_reply->data) < 0)
        migration_refused(m, -ENOMEM,
                          "gradpool serve has no memory for a part of a state that moves; raise "
                          "its memory limit");
}

static void skip(struct migration *m)
{
    m->way->at++;
    m->way->offset = 0;
}

static int pull(struct migration *m)
{
    const struct traveller *t = &m->travellers[m->way->at];
    struct lane *lane = lane_find(m->service, t->source);
    uint64_t left = t->state_bytes - m->way->offset;
    const struct state_part part = {.migration = m->id,
                                    .at = m->way->at,
                                    .offset = m->way->offset,
                                    .bytes = left < PART_BYTES ? left : PART_BYTES};
    m->way->offset += part.bytes;
    m->way->parts++;
    if (!lane)
        return -ENOMEM;
    return lane_call(lane, got, &part, sizeof part, STATE_REQUEST, state_request, .job_id = m->job,
                     .piece = t->piece, .offset = part.offset);
}

/* Requests parts until PARTS_MAX are in transit. When all parts of all pieces have arrived, calls
 * the next step. */
static void fill(struct migration *m)
{
    int error = 0;
    while (error == 0 && m->way->parts < PARTS_MAX) {
        while (m->way->at < m->count &&
               (is_gone(m, m->way->at) || m->way->offset == m->travellers[m->way->at].state_bytes))
            skip(m);
        if (m->way->at == m->count)
            break;
        error = pull(m);
    }
    if (error < 0)
        migration_refused(m, -ENOMEM,
                          "gradpool serve has no memory for a part of a state that moves; raise "
                          "its memory limit");
    else if (m->way->parts == 0)
        m->then(m);
}

void migration_send_state(struct migration *m, migration_fn then)
{
    m->then = then;
    migration_forget_state(m);
    m->way = calloc(1, sizeof *m->way);
    if (!m->way)
        return migration_refused(
            m, -ENOMEM,
            "gradpool serve has no memory for the states of a move; raise its memory limit");
    fill(m);
}

void migration_forget_state(struct migration *m)
{
    free(m->way);
    m->way = NULL;
}
