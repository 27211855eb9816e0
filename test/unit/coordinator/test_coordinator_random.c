/* Clients and aggregators send random requests in random order. Sometimes the coordinator is
 * killed. Every request must get exactly one answer. At the end the coordinator must have no object
 * left. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CLIENTS 6
#define AGGREGATORS 3
#define STEPS 1500
#define GONE_NS (60 * NS_PER_S)
/* time much shorter than the time after which the coordinator considers an aggregator lost */
#define FORGOTTEN_NS (5 * NS_PER_S)
#define STRAYS_MAX STEPS

struct client {
    struct end *end; /* NULL: not connected */
    char job[16];
    uint32_t rank, workers, job_id;
    uint64_t session; /* session of the client; 0: the client is in no job */
    uint64_t asked;   /* id of the unanswered request; 0: none */
    bool joins;       /* the open request is a join; its answer contains the session */
};

struct world {
    struct rig *rig;
    struct client clients[CLIENTS];
    struct end *aggregators[AGGREGATORS];
    struct end former[AGGREGATORS]; /* state at the last connection */
    uint64_t left_ns[AGGREGATORS];
    struct client stray[STRAYS_MAX]; /* sessions abandoned by their clients */
    size_t strays;
    uint64_t random;
};

static uint32_t any(struct world *w, uint32_t below)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->random >> 33) % below;
}

static void forget_inbox(struct end *e)
{
    for (size_t i = 0; i < e->inbox_count; i++)
        message_free(e->inbox[i]);
    e->inbox_count = 0;
}

/* --- clients --- */

static void hang_up(struct client *c)
{
    end_close(c->end);
    c->end = NULL;
    c->asked = 0;
}

/* Reads the answer to the client's request if the answer has arrived. Skips other messages. */
static void take_answer(struct client *c)
{
    size_t answers = 0;
    for (size_t i = 0; i < c->end->inbox_count; i++) {
        const envelope *message = c->end->inbox[i];
        if (message->id == 0)
            continue;
        assert_int_equal(message->id, c->asked);
        answers++;
        if (message->body_case == BODY(JOIN_REPLY)) {
            c->session = message->join_reply->session;
            c->job_id = message->join_reply->job_id;
        }
    }
    assert_true(answers <= 1);
    if (answers)
        c->asked = c->joins = 0;
    forget_inbox(c->end);
}

static void connect_and_join(struct world *w, struct client *c)
{
    envelope request;
    WIRE(JoinRequest) join;
    bool resumes = c->session && any(w, 4) > 0;
    if (c->session && !resumes)
        w->stray[w->strays++] = *c;
    c->end = rig_connect(w->rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    if (!resumes) {
        snprintf(c->job, sizeof c->job, "job-%u", any(w, 3));
        c->workers = 1 + any(w, 3);
        c->rank = any(w, c->workers + 1);
        c->session = 0;
    }
    join_request(&request, &join, c->job, c->rank, c->workers);
    join.session = c->session;
    join.job_id = c->job_id;
    c->session = 0;
    c->joins = true;
    c->asked = end_send(c->end, &request);
}

static void declare_any(struct world *w, struct client *c)
{
    static const uint64_t sizes[] = {0, 10, 10, 10, 11, 3 << 20, UINT64_MAX / 4};
    char texts[4][8];
    const char *names[4];
    uint64_t elements[4];
    uint32_t count = any(w, 5);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t which = any(w, 10);
        snprintf(texts[i], sizeof texts[i], "t%u", which);
        names[i] = texts[i];
        elements[i] = sizes[any(w, 8) ? which % 6 : any(w, 7)];
    }
    c->asked = end_declare(c->end, count, names, elements);
}

static void send_small(struct world *w, struct client *c, int body)
{
    WIRE(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    WIRE(TicketRequest) ticket = GRADPOOL__WIRE__TICKET_REQUEST__INIT;
    WIRE(UndeclareRequest) undeclare = GRADPOOL__WIRE__UNDECLARE_REQUEST__INIT;
    uint32_t tensors[] = {1 + any(w, 12), 1 + any(w, 12)};
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = body;
    ticket.lane = any(w, 12);
    undeclare.tensors = tensors;
    undeclare.n_tensors = any(w, 3);
    if (body == BODY(LEAVE_REQUEST)) {
        request.leave_request = &leave;
        c->session = 0;
    } else if (body == BODY(TICKET_REQUEST)) {
        request.ticket_request = &ticket;
    } else {
        request.undeclare_request = &undeclare;
    }
    c->asked = end_send(c->end, &request);
}

static void send_garbage(struct world *w, struct client *c)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)any(w, 256);
    send(channel_fd(c->end->channel), bytes, 1 + any(w, sizeof bytes), MSG_NOSIGNAL);
    hang_up(c);
}

static void client_acts(struct world *w, struct client *c)
{
    if (!c->end)
        return connect_and_join(w, c);
    take_answer(c);
    if (c->end->is_gone)
        return hang_up(c);
    uint32_t what = any(w, 100);
    if (c->joins || (c->asked && what >= 5))
        return; /* a client sends one request at a time, but may disconnect before the answer */
    if (what < 5)
        hang_up(c);
    else if (what < 7)
        send_garbage(w, c);
    else if (what < 17)
        send_small(w, c, BODY(LEAVE_REQUEST));
    else if (what < 35)
        send_small(w, c, BODY(UNDECLARE_REQUEST));
    else if (what < 55)
        send_small(w, c, BODY(TICKET_REQUEST));
    else
        declare_any(w, c);
}

/* --- aggregators --- */

static void aggregator_acts(struct world *w, size_t i)
{
    struct end **e = &w->aggregators[i];
    WIRE(PieceHeld) held = GRADPOOL__WIRE__PIECE_HELD__INIT;
    if (!*e) {
        *e = rig_aggregator(w->rig, 1 + any(w, 2));
    } else if (!(*e)->channel && clock_now_ns() > w->left_ns[i] + FORGOTTEN_NS) {
        *e = rig_aggregator(w->rig, 1);
    } else if (!(*e)->channel) {
        held.job_id = any(w, 4);
        held.piece = any(w, 8);
        held.lane = w->former[i].lanes[0];
        held.epoch = 1;
        *e = rig_rejoin(w->rig, &w->former[i], any(w, 2), &held);
    } else if (any(w, 20) == 0) {
        w->former[i] = **e;
        w->left_ns[i] = clock_now_ns();
        end_close(*e);
    }
    if ((*e)->channel) {
        w->former[i] = **e;
        forget_inbox(*e);
        (*e)->answers = any(w, 4) > 0;
    }
}

/* --- the world --- */

static void let_lanes_answer(struct world *w)
{
    for (size_t i = 0; i < AGGREGATORS; i++) {
        struct end *e = w->aggregators[i];
        if (!e || !e->channel)
            continue;
        e->answers = true;
        forget_inbox(e);
    }
}

/* Waits for the answers to all requests. With `joins`, waits only for the answers to joins. */
static void await_answers(struct world *w, bool joins)
{
    uint64_t deadline_ns = clock_now_ns() + GONE_NS;
    for (size_t i = 0; i < CLIENTS; i++) {
        struct client *c = &w->clients[i];
        while (c->end && c->asked && (c->joins || !joins) && !c->end->is_gone) {
            assert_true(clock_now_ns() < deadline_ns);
            let_lanes_answer(w);
            rig_step(w->rig);
            take_answer(c);
        }
    }
}

static void crash(struct world *w)
{
    await_answers(w, true);
    rig_crash(w->rig);
    rig_start(w->rig);
    for (size_t i = 0; i < CLIENTS; i++) {
        w->clients[i].end = NULL;
        w->clients[i].asked = 0;
    }
    for (size_t i = 0; i < AGGREGATORS; i++) /* their connections are closed, but the aggregators
                                              * keep their pieces */
        if (w->aggregators[i])
            w->aggregators[i] = &w->former[i];
    for (size_t i = 0; i < AGGREGATORS; i++) {
        w->former[i].channel = NULL;
        w->former[i].inbox_count = 0;
        w->left_ns[i] = clock_now_ns();
    }
}

static void nothing_is_left(struct world *w)
{
    uint64_t deadline_ns = clock_now_ns() + GONE_NS;
    struct end *e = rig_connect_locally(w->rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    for (bool is_left = true; is_left;) {
        WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
        envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
        request.body_case = BODY(STATUS_REQUEST);
        request.status_request = &status;
        envelope *reply = end_ask(e, &request);
        is_left = reply->status_reply->jobs > 0 || reply->status_reply->tasks > 0;
        message_free(reply);
        assert_true(!is_left || clock_now_ns() < deadline_ns);
        let_lanes_answer(w);
        rig_settle(w->rig);
    }
}

/* Resumes an abandoned session, and leaves. */
static void leave(struct world *w, struct client *c)
{
    WIRE(LeaveRequest) goodbye = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    envelope request;
    WIRE(JoinRequest) join;
    if (!c->session)
        return;
    if (!c->end || c->end->is_gone) {
        c->end = rig_connect(w->rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
        join_request(&request, &join, c->job, c->rank, c->workers);
        join.session = c->session;
        join.job_id = c->job_id;
        /* the request is refused if the session is already considered lost */
        message_free(end_ask(c->end, &request));
    }
    gradpool__wire__envelope__init(&request);
    request.body_case = BODY(LEAVE_REQUEST);
    request.leave_request = &goodbye;
    message_free(end_ask(c->end, &request));
    end_close(c->end);
}

static uint64_t seed(void)
{
    const char *given = getenv("GRADPOOL_TEST_SEED");
    uint64_t value = given ? strtoull(given, NULL, 10) : clock_now_ns() % 1000000;
    print_message("# GRADPOOL_TEST_SEED=%llu\n", (unsigned long long)value);
    return value;
}

static void every_request_is_answered_once_in_any_case(void **state)
{
    static struct world w;
    w = (struct world){.rig = *state, .random = seed()};
    for (int step = 0; step < STEPS; step++) {
        uint32_t what = any(&w, 100);
        if (what == 0)
            crash(&w);
        else if (what < 10)
            aggregator_acts(&w, any(&w, AGGREGATORS));
        else
            client_acts(&w, &w.clients[any(&w, CLIENTS)]);
        rig_step(w.rig);
    }
    await_answers(&w, false);
    for (size_t i = 0; i < CLIENTS; i++)
        leave(&w, &w.clients[i]);
    for (size_t i = 0; i < w.strays; i++)
        leave(&w, &w.stray[i]);
    nothing_is_left(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_request_is_answered_once_in_any_case, rig_setup,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
