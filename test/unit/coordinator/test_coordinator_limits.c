/* Tests that a request above a limit is refused, that the error names the limit, and that the
 * refused request leaves the state unchanged. */
#include "svc/base/clock.h"
#include "svc/coordinator/peer/door.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define MIB (UINT64_C(1) << 20)

static void limit(struct rig *rig, enum limit limit, uint64_t most)
{
    rig_crash(rig);
    limits_init(&rig->options.limits);
    rig->options.limits.most[limit] = most;
    rig_start(rig);
}

static void declare(struct end *e, const char *name, uint64_t elements)
{
    envelope *reply = end_expect_reply(e, end_declare_one(e, name, elements));
    if (reply->body_case != BODY(DECLARE_REPLY))
        fail_msg("refused: %s", reply->failure ? reply->failure->text : "?");
    message_free(reply);
}

static void refused(struct end *e, const char *name, uint64_t elements, int code, const char *text)
{
    envelope *reply = end_expect_reply(e, end_declare_one(e, name, elements));
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_int_equal(reply->failure->code, code);
    if (!strstr(reply->failure->text, text))
        fail_msg("'%s' does not say '%s'", reply->failure->text, text);
    message_free(reply);
}

static void join_refused(struct rig *rig, const char *job, uint32_t workers, const char *text)
{
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, job, 0, workers);
    end_ask_refused(rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT), &request, -EDQUOT, text);
}

static void workers_of_a_job_and_jobs_of_a_tenant_are_counted(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_WORKERS, 4);
    join_refused(rig, "big", 5, "--job-workers-max");
    rig_join(rig, "fits", 0, 4, NULL, NULL);
    limit(rig, LIMIT_TENANT_JOBS, 2); /* the job "fits" still counts */
    struct end *second = rig_join(rig, "second", 0, 1, NULL, NULL);
    join_refused(rig, "third", 1, "--tenant-jobs-max");
    end_leave(second);
    rig_join(rig, "third", 0, 1, NULL, NULL);
}

static void the_jobs_of_a_tenant_share_its_workers(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_TENANT_WORKERS, 6);
    struct end *first = rig_join(rig, "first", 0, 4, NULL, NULL);
    join_refused(rig, "second", 3, "asks for 3 more, may have 6");
    rig_join(rig, "second", 0, 2, NULL, NULL);
    end_leave(first); /* when its last rank leaves, the job ends */
    rig_join(rig, "third", 0, 4, NULL, NULL);
}

static void tensors_beyond_the_limit_leave_the_others(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_TENSORS, 2);
    rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    declare(zero, "a", 10);
    static const char *const names[] = {"b", "c"};
    static const uint64_t elements[] = {10, 10};
    envelope *reply = end_expect_reply(zero, end_declare(zero, 2, names, elements));
    assert_int_equal(reply->failure->code, -EDQUOT);
    assert_non_null(strstr(reply->failure->text, "job resnet: tensors of one job"));
    message_free(reply);
    declare(zero, "b", 10);
    declare(zero, "a", 10); /* a tensor that is already declared costs nothing */
    refused(zero, "c", 10, -EDQUOT, "--job-tensors-max");
    end_undeclare(zero, 1);
    declare(zero, "c", 10);
}

static void pieces_and_bytes_count_towards_limits(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_PIECES, 4);
    rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "pieces", 0, 1, NULL, NULL);
    /* the tensor has 32 MiB, which are 8 pieces */
    refused(zero, "w", 8 * MIB, -EDQUOT, "--job-pieces-max");
    declare(zero, "w", 4 * MIB);
    refused(zero, "x", 1, -EDQUOT, "--job-pieces-max");

    limit(rig, LIMIT_JOB_BYTES, 4 * MIB);
    rig_aggregator(rig, 1);
    struct end *one = rig_join(rig, "bytes", 0, 1, NULL, NULL);
    refused(one, "w", MIB + 1, -EDQUOT, "--job-bytes-max");
    declare(one, "w", MIB);
}

/* No lane exists, so a request within the limits would be refused for lack of a lane. The limit is
 * checked first. */
static void a_request_above_a_limit_is_refused_before_placement(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_PIECES, 4);
    struct end *zero = rig_join(rig, "pieces", 0, 1, NULL, NULL);
    refused(zero, "w", 8 * MIB, -EDQUOT, "pieces (and so tasks) of one job: has 0, asks for 8");
    limit(rig, LIMIT_JOB_TENSORS, 2);
    WIRE(TensorSpec) spec = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *specs[] = {&spec, &spec, &spec};
    WIRE(PlanRequest) plan = GRADPOOL__WIRE__PLAN_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    plan.job = (char *)"planned";
    plan.workers = 1;
    plan.tensors = specs; /* the specs have no name and no dtype, which a plan does not use */
    plan.n_tensors = 3;
    request.body_case = BODY(PLAN_REQUEST);
    request.plan_request = &plan;
    end_ask_refused(rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR), &request, -EDQUOT,
                    "tensors of one job: has 0, asks for 3 more, may have 2");
}

/* Sends a message of the maximum length, except for its last byte. */
static void send_half(struct end *e)
{
    static char junk[1 << 16];
    uint32_t bytes = CHANNEL_FRAME_BYTES_MAX;
    int fd = channel_fd(e->channel);
    assert_int_equal(send(fd, &bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    for (uint32_t sent = 0; sent + 1 < bytes;) {
        size_t part = bytes - 1 - sent < sizeof junk ? bytes - 1 - sent : sizeof junk;
        ssize_t got = send(fd, junk, part, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += got > 0 ? (uint32_t)got : 0;
        rig_step(e->rig);
    }
}

/* Declares a name longer than the free memory. */
static uint64_t declare_at_length(struct end *e)
{
    static char name[1000][100];
    const char *names[1000];
    uint64_t elements[1000];
    for (int i = 0; i < 1000; i++) {
        snprintf(name[i], sizeof name[i], "%080d", i);
        names[i] = name[i];
        elements[i] = 1;
    }
    return end_declare(e, 1000, names, elements);
}

static void a_long_message_waits_for_memory_and_then_is_read(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_TENANT_MESSAGES, CHANNEL_FRAME_BYTES_MAX);
    rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "long", 0, 1, NULL, NULL);
    struct end *half = rig_join(rig, "half", 0, 1, NULL, NULL);
    send_half(half);
    uint64_t request = declare_at_length(zero);
    end_expect_none(zero, BODY(DECLARE_REPLY));
    declare(rig_join(rig, "short", 0, 1, NULL, NULL), "w", 1); /* short messages do not wait */
    end_close(half);
    envelope *reply = end_expect_reply(zero, request);
    assert_int_equal(reply->body_case, BODY(DECLARE_REPLY));
    message_free(reply);
}

static struct peer *peer_with_half_a_message(struct rig *rig)
{
    list_for_each_entry (struct peer, p, &rig->coordinator->service->door->peers, link)
        if (p->frame_bytes > 0)
            return p;
    return NULL;
}

/* Instead of a wait of 30 s, the test sets the deadline to a time in the past. */
static void an_incomplete_message_ends_its_connection(void **state)
{
    struct rig *rig = *state;
    struct end *half = rig_join(rig, "half", 0, 1, NULL, NULL);
    send_half(half);
    struct peer *peer = peer_with_half_a_message(rig);
    assert_non_null(peer);
    timer_start(peer->service->loop, &peer->timer, 0);
    end_expect_closed(half);
    kept_log_expect(": the rest of a message of 16777216 bytes did not arrive within 30 s; the "
                    "connection was closed");
}

static void the_jobs_of_a_tenant_share_its_tensors_pieces_and_bytes(void **state)
{
    static const struct {
        enum limit limit;
        uint64_t most;
        const char *option;
    } of_tenant[] = {{LIMIT_TENANT_TENSORS, 1, "--tenant-tensors-max"},
                     {LIMIT_TENANT_PIECES, 1, "--tenant-pieces-max"},
                     {LIMIT_TENANT_BYTES, 400, "--tenant-bytes-max"}};
    struct rig *rig = *state;
    for (size_t i = 0; i < sizeof of_tenant / sizeof *of_tenant; i++) {
        limit(rig, of_tenant[i].limit, of_tenant[i].most);
        rig_aggregator(rig, 1);
        struct end *first = rig_join(rig, "first", 0, 1, NULL, NULL);
        struct end *second = rig_join(rig, "second", 0, 1, NULL, NULL);
        declare(first, "w", 100);
        refused(second, "w", 100, -EDQUOT, of_tenant[i].option);
        end_leave(first);
        declare(second, "w", 100);
        end_leave(second);
    }
}

static void requests_that_wait_for_a_lane_are_counted(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_REQUESTS, 2);
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    lane->answers = false;
    end_declare_one(zero, "a", 10);
    end_declare_one(zero, "b", 10);
    refused(zero, "c", 10, -EDQUOT, "--job-requests-max");
    for (int i = 0; i < 2; i++) {
        envelope *place = end_expect(lane, BODY(PLACE_REQUEST));
        end_answer(lane, place);
        message_free(place);
        message_free(end_expect(zero, BODY(DECLARE_REPLY)));
    }
    lane->answers = true;
    declare(zero, "c", 10);
}

/* Limits the tickets of a job. A ticket above the limit is sent later, because a worker whose
 * ticket is refused would consider the lane lost. */
static void tickets_above_the_limit_of_a_job_wait(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_REQUESTS, 2);
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    WIRE(TicketRequest) ticket = GRADPOOL__WIRE__TICKET_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    declare(zero, "a", 10);
    lane->answers = false;
    ticket.lane = lane->lanes[0];
    request.body_case = BODY(TICKET_REQUEST);
    request.ticket_request = &ticket;
    for (int i = 0; i < 5; i++)
        end_send(zero, &request);
    for (int i = 0; i < 5; i++) {
        envelope *grant = end_expect(lane, BODY(GRANT_REQUEST));
        end_answer(lane, grant);
        message_free(grant);
        message_free(end_expect(zero, BODY(TICKET_REPLY)));
    }
    end_expect_none(zero, BODY(FAILURE));
}

static void a_lane_gets_no_more_pieces_than_its_memory_holds(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_LANE_MEMORY, MIB); /* enough for two pieces of these ranks */
    rig_aggregator(rig, 1);
    struct end *wide = rig_join(rig, "wide", 0, 768, NULL, NULL);
    declare(wide, "a", 10);
    declare(wide, "b", 10);
    refused(wide, "c", 10, -ENOSPC, "--lane-memory-max");
    struct end *small = rig_join(rig, "small", 0, 2, NULL, NULL);
    declare(small, "a", 10);
    end_undeclare(wide, 1);
    declare(wide, "c", 10);
}

static void a_tensor_without_memory_on_one_lane_gets_another_lane(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_LANE_MEMORY, MIB); /* enough for two pieces of these ranks */
    rig_aggregator(rig, 2);
    struct end *wide = rig_join(rig, "wide", 0, 768, NULL, NULL);
    declare(wide, "large", 1000); /* the first lane now has more bytes, so small tensors are placed
                                   * on the second lane */
    declare(wide, "a", 10);
    declare(wide, "b", 10);
    declare(wide, "c", 10); /* the second lane is then full */
    refused(wide, "d", 10, -ENOSPC, "memory of lanes, 1 MiB each");
}

static void one_job_gets_no_more_of_a_lane_s_memory_than_its_part(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_MEMORY, MIB); /* enough for two pieces of these ranks */
    rig_aggregator(rig, 1);
    struct end *wide = rig_join(rig, "wide", 0, 768, NULL, NULL);
    declare(wide, "a", 10);
    declare(wide, "b", 10);
    refused(wide, "c", 10, -EDQUOT, "--job-memory-max");
    struct end *other = rig_join(rig, "other", 0, 768, NULL, NULL);
    declare(other, "a", 10);
}

static void connections_of_a_tenant_are_limited_and_the_operator_still_connects(void **state)
{
    struct rig *rig = *state;
    WIRE(Hello) hello;
    envelope request;
    limit(rig, LIMIT_TENANT_CONNECTIONS, 2);
    struct end *zero = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    hello_request(&request, &hello, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    struct end *third = rig_connect_silently(rig);
    end_ask_refused(third, &request, -EDQUOT, "--tenant-connections-max");
    end_expect_closed(third);
    rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    end_close(zero);
    rig_settle(rig);
    rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
}

/* A connection stays open for a second, because its client may be about to join. */
static void the_oldest_connection_without_a_job_is_closed(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_IDLE_CONNECTIONS, 2);
    struct end *joined = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    struct end *local = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    struct end *first = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    struct end *second = rig_connect_silently(rig);
    struct end *third = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    for (uint64_t from_ns = clock_now_ns(); clock_now_ns() < from_ns + NS_PER_S + NS_PER_S / 10;)
        rig_step_within(rig, NS_PER_MS);
    assert_false(first->is_gone);
    rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    end_expect_closed(first);
    rig_settle(rig);
    assert_false(second->is_gone);
    assert_false(third->is_gone);
    assert_false(joined->is_gone);
    assert_false(local->is_gone);
}

static void a_connection_that_has_left_its_job_counts_as_without_a_job(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_IDLE_CONNECTIONS, 1);
    struct end *joined = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    struct end *left = rig_join(rig, "resnet", 1, 2, NULL, NULL);
    end_leave(left);
    for (uint64_t from_ns = clock_now_ns(); clock_now_ns() < from_ns + NS_PER_S + NS_PER_S / 10;)
        rig_step_within(rig, NS_PER_MS);
    assert_false(left->is_gone);
    rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    end_expect_closed(left);
    assert_false(joined->is_gone);
}

static void a_lane_receives_its_limits_with_its_pieces(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_JOB_LENT, 5 * MIB);
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    lane->answers = false;
    end_declare_one(zero, "a", 10);
    envelope *place = end_expect(lane, BODY(PLACE_REQUEST));
    assert_int_equal(place->place_request->lent_bytes_max, 5 * MIB);
    assert_int_equal(place->place_request->memory_bytes_max, 1024 * MIB);
    assert_int_equal(place->place_request->job_memory_bytes_max, 512 * MIB);
    assert_int_equal(place->place_request->regions_max, 8192);
    assert_int_equal(place->place_request->tenant_regions_max, 16384);
    assert_string_equal(place->place_request->tenant, "");
    end_answer(lane, place);
    message_free(place);
    message_free(end_expect(zero, BODY(DECLARE_REPLY)));
}

static const WIRE(LimitUse) * find(const WIRE(JobView) * job, const char *name)
{
    for (size_t i = 0; i < job->n_limits; i++)
        if (strcmp(job->limits[i]->name, name) == 0)
            return job->limits[i];
    fail_msg("%s is not shown", name);
    return NULL;
}

static void jobs_are_shown_with_their_use_and_limits(void **state)
{
    struct rig *rig = *state;
    limit(rig, LIMIT_TENANT_TENSORS, 100);
    rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 3, NULL, NULL);
    struct end *other = rig_join(rig, "bert", 0, 2, NULL, NULL);
    declare(zero, "w", 100);
    declare(zero, "big", 4 * MIB);
    declare(other, "w", 100);
    WIRE(JobsRequest) ask = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    ask.job = (char *)"resnet";
    request.body_case = BODY(JOBS_REQUEST);
    request.jobs_request = &ask;
    envelope *reply =
        end_ask(rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR), &request);
    const WIRE(JobView) *job = reply->jobs_reply->jobs[0];
    assert_int_equal(find(job, "job-workers")->used, 3);
    assert_int_equal(find(job, "job-tensors")->used, 2);
    assert_int_equal(find(job, "job-pieces")->used, 5);
    assert_int_equal(find(job, "job-bytes")->used, 400 + 16 * MIB);
    assert_int_equal(find(job, "job-requests")->used, 0);
    assert_int_equal(find(job, "tenant-jobs")->used, 2);
    assert_int_equal(find(job, "tenant-workers")->used, 5);
    assert_int_equal(find(job, "tenant-tensors")->used, 3);
    assert_int_equal(find(job, "tenant-tensors")->most, 100);
    message_free(reply);
}

/* A restarted coordinator counts the stored objects (K8). */
static void a_restart_counts_the_stored_objects(void **state)
{
    struct rig *rig = *state;
    uint64_t session;
    uint32_t job;
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 1, &session, &job);
    declare(zero, "w", 4 * MIB);
    struct end known = *lane;
    limit(rig, LIMIT_JOB_PIECES, 5);
    rig_rejoin(rig, &known, 0, NULL);
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "resnet", 0, 1);
    join.session = session;
    join.job_id = job;
    struct end *again = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    envelope *reply = end_ask(again, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    declare(again, "x", 1);
    refused(again, "y", 1, -EDQUOT, "has 5, asks for 1 more, may have 5");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(workers_of_a_job_and_jobs_of_a_tenant_are_counted),
        CASE(the_jobs_of_a_tenant_share_its_workers),
        CASE(tensors_beyond_the_limit_leave_the_others),
        CASE(pieces_and_bytes_count_towards_limits),
        CASE(a_request_above_a_limit_is_refused_before_placement),
        CASE(a_long_message_waits_for_memory_and_then_is_read),
        CASE(an_incomplete_message_ends_its_connection),
        CASE(the_jobs_of_a_tenant_share_its_tensors_pieces_and_bytes),
        CASE(requests_that_wait_for_a_lane_are_counted),
        CASE(tickets_above_the_limit_of_a_job_wait),
        CASE(a_lane_gets_no_more_pieces_than_its_memory_holds),
        CASE(a_tensor_without_memory_on_one_lane_gets_another_lane),
        CASE(one_job_gets_no_more_of_a_lane_s_memory_than_its_part),
        CASE(the_oldest_connection_without_a_job_is_closed),
        CASE(a_connection_that_has_left_its_job_counts_as_without_a_job),
        CASE(connections_of_a_tenant_are_limited_and_the_operator_still_connects),
        CASE(a_lane_receives_its_limits_with_its_pieces),
        CASE(jobs_are_shown_with_their_use_and_limits),
        CASE(a_restart_counts_the_stored_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
