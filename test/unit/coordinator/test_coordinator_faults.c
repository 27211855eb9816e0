/* Makes the n-th allocation of the coordinator fail. The test begins with n = 1, and increases n
 * until a job runs from its start to its end without a failure. After a failed allocation only the
 * current request is refused. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (60 * NS_PER_S)
#define ALLOCATIONS_MAX 2000

static bool in_step;
static long countdown; /* number of allocations that succeed until one fails; 0: none fails */
/* number of the allocation that fails during this run of the coordinator */
static long failed;
static struct end *lane; /* the aggregator during this run of the coordinator */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
char *__wrap_strdup(const char *text);

static bool fails(void) { return in_step && countdown > 0 && --countdown == 0; }

void *__wrap_malloc(size_t bytes) { return fails() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

static void note_step(bool begins) { in_step = begins; }

/* Sends the request and waits. Returns NULL if it was refused or the connection was closed. */
static envelope *attempt(struct end *e, envelope *request, int body)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    if (!e || e->is_gone)
        return NULL;
    uint64_t id = end_send(e, request);
    while (!e->is_gone) {
        for (size_t i = 0; i < e->inbox_count; i++) {
            if (e->inbox[i]->id != id)
                continue;
            envelope *reply = end_expect_reply(e, id);
            if ((int)reply->body_case == body)
                return reply;
            assert_int_equal(reply->body_case, BODY(FAILURE));
            message_free(reply);
            return NULL;
        }
        if (lane && lane->is_gone)
            return NULL; /* this test does not cover requests that wait for the lane */
        if (clock_now_ns() > deadline_ns)
            fail_msg("allocation %ld: message %d was not answered", failed, request->body_case);
        rig_step(e->rig);
    }
    return NULL;
}

static bool done(struct end *e, envelope *request, int body)
{
    envelope *reply = attempt(e, request, body);
    if (reply)
        message_free(reply);
    return reply != NULL;
}

static struct end *greet(struct rig *rig, WIRE(Role) role)
{
    WIRE(Hello) hello = GRADPOOL__WIRE__HELLO__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    bool is_worker = role == GRADPOOL__WIRE__ROLE__ROLE_CLIENT;
    struct end *e = is_worker ? rig_connect_silently(rig) : rig_knock_locally(rig);
    hello.version = CHANNEL_VERSION;
    hello.role = role;
    hello.program = "test";
    request.body_case = BODY(HELLO);
    request.hello = &hello;
    return done(e, &request, BODY(WELCOME)) ? e : NULL;
}

static struct end *add_aggregator(struct rig *rig, uint64_t incarnation)
{
    WIRE(AggregatorJoin) join = GRADPOOL__WIRE__AGGREGATOR_JOIN__INIT;
    WIRE(LaneOffer) offer = GRADPOOL__WIRE__LANE_OFFER__INIT, *offers[] = {&offer};
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *e = greet(rig, GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR);
    join.incarnation = incarnation;
    join.node = "node7";
    join.lanes = offers;
    join.n_lanes = 1;
    request.body_case = BODY(AGGREGATOR_JOIN);
    request.aggregator_join = &join;
    if (e)
        e->answers = true;
    lane = e;
    return done(e, &request, BODY(AGGREGATOR_WELCOME)) ? e : NULL;
}

static bool declare(struct end *e, uint32_t *ret_tensor, uint32_t *ret_lane)
{
    WIRE(TensorSpec) specs[2], *list[2] = {&specs[0], &specs[1]};
    WIRE(DeclareRequest) ask = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    for (int i = 0; i < 2; i++) {
        gradpool__wire__tensor_spec__init(&specs[i]);
        specs[i].name = i ? "w" : "b";
        specs[i].dtype = 1;
        specs[i].elements = i ? 3u << 20 : 100;
    }
    ask.tensors = list;
    ask.n_tensors = 2;
    request.body_case = BODY(DECLARE_REQUEST);
    request.declare_request = &ask;
    envelope *reply = attempt(e, &request, BODY(DECLARE_REPLY));
    if (!reply)
        return false;
    *ret_tensor = reply->declare_reply->tensors[1]->tensor;
    *ret_lane = reply->declare_reply->tensors[1]->pieces[0]->lane;
    message_free(reply);
    return true;
}

static bool ask_small(struct end *e, int body, uint32_t number, int answer)
{
    WIRE(TicketRequest) ticket = GRADPOOL__WIRE__TICKET_REQUEST__INIT;
    WIRE(UndeclareRequest) undeclare = GRADPOOL__WIRE__UNDECLARE_REQUEST__INIT;
    WIRE(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    WIRE(JobsRequest) jobs = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = body;
    if (body == BODY(TICKET_REQUEST)) {
        ticket.lane = number;
        request.ticket_request = &ticket;
    } else if (body == BODY(UNDECLARE_REQUEST)) {
        undeclare.tensors = &number;
        undeclare.n_tensors = 1;
        request.undeclare_request = &undeclare;
    } else if (body == BODY(LEAVE_REQUEST)) {
        request.leave_request = &leave;
    } else if (body == BODY(STATUS_REQUEST)) {
        request.status_request = &status;
    } else {
        request.jobs_request = &jobs;
    }
    return done(e, &request, answer);
}

/* Starts, uses and ends a job. Returns whether every step succeeded. */
static bool live(struct rig *rig, uint32_t number)
{
    char job[16];
    envelope request;
    WIRE(JoinRequest) join;
    uint32_t tensor = 0, on = 0;
    snprintf(job, sizeof job, "job-%u", number);
    lane = NULL;
    bool well = add_aggregator(rig, number) != NULL;
    struct end *worker = greet(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, job, 0, 1);
    well &= done(worker, &request, BODY(JOIN_REPLY));
    well &= declare(worker, &tensor, &on);
    well &= ask_small(worker, BODY(TICKET_REQUEST), on, BODY(TICKET_REPLY));
    struct end *onlooker = greet(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    well &= ask_small(onlooker, BODY(STATUS_REQUEST), 0, BODY(STATUS_REPLY));
    well &= ask_small(onlooker, BODY(JOBS_REQUEST), 0, BODY(JOBS_REPLY));
    well &= ask_small(worker, BODY(UNDECLARE_REQUEST), tensor, BODY(DONE));
    well &= ask_small(worker, BODY(LEAVE_REQUEST), 0, BODY(DONE));
    return well;
}

static void an_allocation_that_fails_refuses_one_request_and_harms_nothing_else(void **state)
{
    struct rig *rig = *state;
    /* this wait is short, because an aggregator whose join was refused is not started again */
    rig->options.start_wait_ns = 20 * NS_PER_MS;
    rig_start_afresh(rig);
    rig->in_step = note_step;
    long n = 1;
    for (bool all_passed = false; !all_passed; n++) {
        assert_true(n < ALLOCATIONS_MAX);
        countdown = failed = n;
        bool well = live(rig, 1);
        all_passed = countdown > 0;
        countdown = 0;
        if (all_passed)
            assert_true(well);
        assert_true(live(rig, 2));
        rig_start_afresh(rig);
    }
    print_message("# %ld allocations\n", n);
    kept_log_expect(": a message could not be sent: ");
    kept_log_expect("gradpool serve refused a connection: ");
    kept_log_expect("the aggregator closed its control connection");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            an_allocation_that_fails_refuses_one_request_and_harms_nothing_else, rig_setup,
            rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
