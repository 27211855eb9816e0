/* What a lane keeps for a task (parameters, moments, a sum that goes on) on its way to the next:
 * pulled from the source, put to the target, one message at a time, so that neither the
 * coordinator nor a connection ever holds more than one. It is not looked at. */
#include "svc/coordinator/migration.h"

#include <errno.h>
#include <stdlib.h>

static void next_part(struct migration *m);

static int ask(struct migration *m, uint32_t lane_id, envelope *e, call_done_fn done)
{
    struct lane *lane = lane_find(m->service, lane_id);
    uint64_t *id = lane ? malloc(sizeof *id) : NULL;
    if (!id)
        return -ENOMEM;
    *id = m->id;
    int error = call_send(lane->aggregator, e, CALL_DEADLINE_NS, done, id);
    if (error < 0)
        free(id);
    return error;
}

/* One call at a time: any answer while state travels is that of the piece at hand. */
static struct migration *waiting(struct service *s, const void *data)
{
    struct migration *m = migration_find(s, *(const uint64_t *)data);
    return m && m->state == MIGRATOR_C_MOVING ? m : NULL;
}

static void skip(struct migration *m)
{
    m->at++;
    m->offset = 0;
}

static bool is_gone(const struct migration *m)
{
    return !jobs_piece(migration_job(m), m->travellers[m->at].piece, NULL);
}

/* Who was undeclared meanwhile needs nothing any more, and its lanes may say so. */
static void failed(struct migration *m, int code, const char *text)
{
    if (!is_gone(m))
        return migration_refused(m, code, text);
    next_part(m);
}

static void put(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    struct migration *m = waiting(s, data);
    if (!m)
        return;
    if (!reply)
        return failed(m, code, text);
    next_part(m);
}

static void got(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    struct migration *m = waiting(s, data);
    if (!m)
        return;
    if (!reply)
        return failed(m, code, text);
    const struct traveller *t = &m->travellers[m->at];
    if (reply->body_case != BODY(STATE_REPLY) || reply->state_reply->data.len == 0 ||
        reply->state_reply->data.len > t->state_bytes - m->offset)
        return failed(m, -EBADMSG, "a lane did not send the state that it said it had");
    WIRE(StatePut) request = GRADPOOL__WIRE__STATE_PUT__INIT;
    request.lane = t->target;
    request.job_id = m->job;
    request.piece = t->piece;
    request.offset = m->offset;
    request.data = reply->state_reply->data;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(STATE_PUT);
    e.state_put = &request;
    m->offset += request.data.len;
    m->moved.state_bytes += request.data.len;
    if (ask(m, t->target, &e, put) < 0)
        migration_refused(m, -ENOMEM, "gradpool serve is out of memory");
}

static void next_part(struct migration *m)
{
    while (m->at < m->count && (is_gone(m) || m->offset == m->travellers[m->at].state_bytes))
        skip(m);
    if (m->at == m->count)
        return migration_install(m);
    const struct traveller *t = &m->travellers[m->at];
    WIRE(StateRequest) request = GRADPOOL__WIRE__STATE_REQUEST__INIT;
    request.lane = t->source;
    request.job_id = m->job;
    request.piece = t->piece;
    request.offset = m->offset;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(STATE_REQUEST);
    e.state_request = &request;
    if (ask(m, t->source, &e, got) < 0)
        migration_refused(m, -ENOMEM, "gradpool serve is out of memory");
}

void migration_send_state(struct migration *m)
{
    m->at = 0;
    m->offset = 0;
    next_part(m);
}
