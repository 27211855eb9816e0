/* See members_case.h. */
#include "test/unit/coordinator/members_case.h"

#include "svc/base/clock.h"

#include <string.h>

#define PATIENCE_NS (60 * NS_PER_S)

/* --- workers --- */

static void joining_request(envelope *e, WIRE(JoinRequest) * join, struct joining how)
{
    join_request(e, join, MEMBERS_JOB, how.rank, how.workers);
    join->workers_max = how.workers_max;
    join->continues = how.continues;
    join->asks_entry = how.asks_entry;
    if (how.pid)
        join_request_of_process(join, how.pid);
}

struct end *members_ask(struct rig *rig, struct joining how, uint64_t *ret_id)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    joining_request(&request, &join, how);
    *ret_id = end_send(e, &request);
    return e;
}

struct member members_joined(struct end *e, uint64_t id, uint32_t rank)
{
    envelope *reply = end_expect_reply(e, id);
    if (reply->body_case != BODY(JOIN_REPLY))
        fail_msg("rank %u did not join: %s", rank, reply->failure ? reply->failure->text : "?");
    struct member m = {.end = e,
                       .session = reply->join_reply->session,
                       .rank = rank,
                       .job = reply->join_reply->job_id,
                       .is_late = reply->join_reply->is_late};
    message_free(reply);
    return m;
}

struct member members_join(struct rig *rig, struct joining how)
{
    uint64_t id;
    struct end *e = members_ask(rig, how, &id);
    return members_joined(e, id, how.rank);
}

void members_join_refused(struct rig *rig, struct joining how, int code, const char *text)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    joining_request(&request, &join, how);
    end_ask_refused(e, &request, code, text);
    end_close(e);
}

void members_resume(struct rig *rig, struct member *m, struct joining how)
{
    envelope request;
    WIRE(JoinRequest) join;
    m->end = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    joining_request(&request, &join, how);
    join.session = m->session;
    join.job_id = m->job;
    envelope *reply = end_ask(m->end, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

uint64_t members_declare(struct end *e, const char *name, const struct terms *terms)
{
    WIRE(DeclareRequest) declare = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    WIRE(TensorSpec) spec = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *specs[] = {&spec};
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    spec.name = (char *)name;
    spec.dtype = 1;
    spec.elements = 100;
    spec.terms.data = (uint8_t *)terms;
    spec.terms.len = terms ? sizeof *terms : 0;
    declare.tensors = specs;
    declare.n_tensors = 1;
    request.body_case = BODY(DECLARE_REQUEST);
    request.declare_request = &declare;
    return end_send(e, &request);
}

static uint64_t first_word(const ProtobufCBinaryData *ranks)
{
    uint64_t word = 0;
    if (ranks->len > 0)
        memcpy(&word, ranks->data, sizeof word);
    return word;
}

uint32_t members_declared(struct end *e, uint64_t id, uint64_t *ret_ranks)
{
    envelope *reply = end_expect_reply(e, id);
    if (reply->body_case != BODY(DECLARE_REPLY))
        fail_msg("not declared: %s", reply->failure ? reply->failure->text : "?");
    uint32_t tensor = reply->declare_reply->tensors[0]->tensor;
    if (ret_ranks)
        *ret_ranks = first_word(&reply->declare_reply->tensors[0]->ranks);
    message_free(reply);
    return tensor;
}

void members_resize(struct end *e, uint32_t workers)
{
    WIRE(ResizeRequest) resize = GRADPOOL__WIRE__RESIZE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    resize.workers = workers;
    request.body_case = BODY(RESIZE_REQUEST);
    request.resize_request = &resize;
    envelope *reply = end_ask(e, &request);
    if (reply->body_case != BODY(DONE))
        fail_msg("not resized: %s", reply->failure ? reply->failure->text : "?");
    message_free(reply);
}

/* Returns the first message of this kind and removes it. NULL: there is none. */
static envelope *take_first(struct end *e, int body)
{
    for (size_t i = 0; i < e->inbox_count; i++) {
        envelope *message = e->inbox[i];
        if ((int)message->body_case != body)
            continue;
        e->inbox_count--;
        memmove(&e->inbox[i], &e->inbox[i + 1], (e->inbox_count - i) * sizeof *e->inbox);
        return message;
    }
    return NULL;
}

struct told members_told(struct end *e)
{
    struct told told = {0};
    envelope *message;
    rig_settle(e->rig);
    while ((message = take_first(e, BODY(MEMBERSHIP)))) {
        assert_true(message->membership->version >= told.version);
        told = (struct told){.version = message->membership->version,
                             .wanted = message->membership->workers,
                             .ranks = first_word(&message->membership->ranks)};
        message_free(message);
    }
    if (told.wanted == 0)
        fail_msg("it was told of no membership");
    return told;
}

static void say_lost(struct end *lane, uint32_t lane_id, uint32_t job, uint32_t rank,
                     uint32_t entered, bool may_return)
{
    WIRE(WorkerLost) lost = GRADPOOL__WIRE__WORKER_LOST__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    lost.lane = lane_id;
    lost.job_id = job;
    lost.rank = rank;
    lost.entered = entered;
    lost.may_return = may_return;
    lost.text = "";
    message.body_case = BODY(WORKER_LOST);
    message.worker_lost = &lost;
    channel_send(lane->channel, &message);
}

void members_lose(struct end *lane, uint32_t lane_id, uint32_t job, uint32_t rank)
{
    say_lost(lane, lane_id, job, rank, 0, false);
}

void members_lose_late(struct end *lane, const struct member *m, uint32_t entered)
{
    say_lost(lane, lane->lanes[0], m->job, m->rank, entered, false);
}

void members_break(struct end *lane, uint32_t job, uint32_t rank)
{
    say_lost(lane, lane->lanes[0], job, rank, 0, true);
}

uint32_t members_routed(struct end *e, uint32_t tensor, uint64_t *ret_ranks)
{
    uint32_t epoch = 0;
    envelope *message;
    while ((message = take_first(e, BODY(ROUTE_CHANGE)))) {
        for (size_t i = 0; i < message->route_change->n_tensors; i++) {
            const WIRE(TensorRoute) *route = message->route_change->tensors[i];
            if (route->tensor != tensor)
                continue;
            epoch = route->pieces[0]->epoch;
            *ret_ranks = first_word(&route->ranks);
        }
        message_free(message);
    }
    return epoch;
}

/* --- lanes --- */

static struct shadow_piece *find(struct shadow *s, uint32_t id)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->pieces[i].id == id)
            return &s->pieces[i];
    return NULL;
}

static void place(struct shadow *s, const WIRE(PlaceRequest) * request)
{
    for (size_t i = 0; i < request->n_pieces; i++) {
        struct shadow_piece *piece = find(s, request->pieces[i]->piece);
        struct terms terms;
        assert_int_equal(
            terms_read(request->pieces[i]->terms.data, request->pieces[i]->terms.len, &terms), 0);
        if (piece && piece->epoch != request->epoch) {
            assert_true(request->regroups); /* without `regroups` the lane would answer -EBUSY */
            assert_true(piece->is_frozen);
            assert_true(piece->epoch < request->epoch);
        }
        if (!piece) {
            assert_true(s->count < SHADOW_PIECES_MAX);
            piece = &s->pieces[s->count++];
        }
        s->regroupings += request->regroups;
        *piece = (struct shadow_piece){
            .id = request->pieces[i]->piece, .epoch = request->epoch, .ranks = terms.ranks[0]};
    }
}

static void freeze(struct shadow *s, const uint32_t *pieces, size_t count, bool on)
{
    for (size_t i = 0; i < count; i++) {
        struct shadow_piece *piece = find(s, pieces[i]);
        if (piece)
            piece->is_frozen = on;
    }
}

static void drop(struct shadow *s, const WIRE(DropRequest) * request)
{
    if (request->n_pieces == 0)
        s->count = 0;
    for (size_t i = 0; i < request->n_pieces; i++) {
        struct shadow_piece *piece = find(s, request->pieces[i]);
        if (piece)
            *piece = s->pieces[--s->count];
    }
}

void shadow_do(struct shadow *s, const envelope *message)
{
    switch ((int)message->body_case) {
    case BODY(PLACE_REQUEST): place(s, message->place_request); break;
    case BODY(DROP_REQUEST): drop(s, message->drop_request); break;
    case BODY(RELEASE_REQUEST):
        s->gone |= first_word(&message->release_request->gone);
        freeze(s, message->release_request->pieces, message->release_request->n_pieces, true);
        break;
    case BODY(THAW_REQUEST):
        s->thaws++;
        freeze(s, message->thaw_request->pieces, message->thaw_request->n_pieces, false);
        break;
    default: break;
    }
}

const struct shadow_piece *shadow_piece(struct shadow *s, uint32_t id) { return find(s, id); }

void shadow_take(struct shadow *s, struct end *lane)
{
    for (size_t i = 0; i < lane->inbox_count; i++) {
        int body = (int)lane->inbox[i]->body_case;
        if (body != lane->refuses && body != lane->ignores)
            shadow_do(s, lane->inbox[i]);
        message_free(lane->inbox[i]);
    }
    lane->inbox_count = 0;
}

void shadow_until(struct shadow *s, struct end *lane, uint32_t piece, uint64_t ranks)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    for (;;) {
        shadow_take(s, lane);
        const struct shadow_piece *here = find(s, piece);
        if (here && here->ranks == ranks && !here->is_frozen)
            return;
        if (clock_now_ns() > deadline_ns)
            fail_msg("piece %u: ranks %llx%s, not %llx", piece,
                     (unsigned long long)(here ? here->ranks : 0),
                     here && here->is_frozen ? ", frozen" : "", (unsigned long long)ranks);
        rig_step_within(lane->rig, 5 * NS_PER_MS);
    }
}

struct end *shadow_rejoin(struct shadow *s, struct rig *rig, const struct end *old, uint32_t job)
{
    WIRE(PieceHeld) held[SHADOW_PIECES_MAX];
    for (size_t i = 0; i < s->count; i++) {
        gradpool__wire__piece_held__init(&held[i]);
        held[i].job_id = job;
        held[i].piece = s->pieces[i].id;
        held[i].lane = old->lanes[0];
        held[i].epoch = s->pieces[i].epoch;
        held[i].is_frozen = s->pieces[i].is_frozen;
    }
    return rig_rejoin(rig, old, s->count, held);
}
