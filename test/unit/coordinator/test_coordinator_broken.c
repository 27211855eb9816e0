/* Tests a lost connection between a lane and a worker. In a job with fixed workers a living worker
 * stays in the job. If workers die, their connections end, and the coordinator detects these deaths
 * at once (K6). The error names the worker that died first. In an elastic job, a report about a
 * former worker does not apply to a later worker of the same rank (K44). */
#include "test/unit/coordinator/members_case.h"

#include "svc/base/clock.h"
#include "svc/coordinator/service.h"
#include "svc/wire/record.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct scene {
    struct end *lane, *zero, *one;
    uint32_t job;
    uint64_t session; /* session of rank 1 */
};

static struct scene begin(struct rig *rig)
{
    struct scene s = {.lane = rig_aggregator(rig, 1)};
    s.zero = rig_join(rig, "resnet", 0, 2, NULL, &s.job);
    s.one = rig_join(rig, "resnet", 1, 2, &s.session, NULL);
    end_declare_one(s.zero, "w", 100);
    end_declare_one(s.one, "w", 100);
    message_free(end_expect(s.zero, BODY(DECLARE_REPLY)));
    message_free(end_expect(s.one, BODY(DECLARE_REPLY)));
    return s;
}

/* Reports the broken connection of rank 1 to the coordinator. */
static void say_broken(const struct scene *s)
{
    WIRE(WorkerLost) lost = GRADPOOL__WIRE__WORKER_LOST__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    lost.lane = s->lane->lanes[0];
    lost.job_id = s->job;
    lost.rank = 1;
    lost.text = (char *)"10.0.0.7:4711";
    message.body_case = BODY(WORKER_LOST);
    message.worker_lost = &lost;
    assert_int_equal(channel_send(s->lane->channel, &message), 0);
    rig_settle(s->lane->rig);
}

/* Waits until sent bytes are acknowledged, because the kernel may acknowledge bytes up to 40 ms
 * after their arrival. */
static void await_acknowledged(const struct scene *s)
{
    const struct job *job = jobs_find_id(s->lane->rig->coordinator->service, s->job);
    uint64_t deadline_ns = clock_now_ns() + 10 * NS_PER_S;
    for (int bytes = 1; bytes > 0 && clock_now_ns() < deadline_ns;) {
        assert_int_equal(ioctl(channel_fd(job->sessions[1]->peer->channel), SIOCOUTQ, &bytes), 0);
        rig_settle(s->lane->rig);
    }
}

/* Resets the connection, like the kernel of a process that ends and has not read all bytes. */
static void reset_control(const struct scene *s)
{
    const struct linger at_once = {.l_onoff = 1};
    struct end *e = s->one;
    await_acknowledged(s);
    assert_int_equal(
        setsockopt(channel_fd(e->channel), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    end_close(e);
}

static void a_worker_that_lives_stays_in_its_job(void **state)
{
    struct scene s = begin(*state);
    say_broken(&s);
    say_broken(&s); /* an aggregator repeats this report after each join */
    end_expect_none(s.zero, BODY(JOB_FAILURE));
    end_expect_none(s.one, BODY(JOB_FAILURE));
}

static void a_worker_that_dies_with_its_connections_is_detected_at_once(void **state)
{
    struct scene s = begin(*state);
    uint64_t began_ns = clock_now_ns();
    say_broken(&s);
    end_close(s.one);
    envelope *failure = end_expect(s.zero, BODY(JOB_FAILURE));
    assert_non_null(strstr(failure->job_failure->text, "rank 1 of job resnet (elsewhere, pid"));
    message_free(failure);
    /* the normal wait for a lost connection would take longer */
    assert_true(clock_now_ns() - began_ns < 10 * NS_PER_S);
}

static void a_worker_whose_control_connection_ends_first_is_detected_at_once(void **state)
{
    struct scene s = begin(*state);
    end_close(s.one);
    end_expect_none(s.zero, BODY(JOB_FAILURE));
    say_broken(&s);
    envelope *failure = end_expect(s.zero, BODY(JOB_FAILURE));
    assert_non_null(strstr(failure->job_failure->text,
                           "is gone: its connections to the coordinator and to lane 1 have ended"));
    message_free(failure);
}

/* Both connections were reset, but the worker may live. */
static void a_worker_whose_connections_were_all_reset_may_return(void **state)
{
    struct scene s = begin(*state);
    envelope request;
    WIRE(JoinRequest) join;
    say_broken(&s);
    reset_control(&s);
    rig_settle(*state);
    say_broken(&s);
    end_expect_none(s.zero, BODY(JOB_FAILURE));
    s.one = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", 1, 2);
    join.session = s.session;
    join.job_id = s.job;
    envelope *reply = end_ask(s.one, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

/* Checks that the coordinator soon considers the worker dead. A worker that does not connect again
 * may have been stopped and then killed. */
static void expect_detected_soon(const struct scene *s, uint64_t began_ns)
{
    envelope *failure = end_expect(s->zero, BODY(JOB_FAILURE));
    assert_non_null(strstr(failure->job_failure->text,
                           "is gone: its connections to the coordinator and to a lane have ended, "
                           "and no new one was made"));
    message_free(failure);
    assert_true(clock_now_ns() - began_ns < 10 * NS_PER_S);
}

static void a_worker_that_dies_with_unread_messages_is_detected_soon(void **state)
{
    struct scene s = begin(*state);
    uint64_t began_ns = clock_now_ns();
    say_broken(&s);
    reset_control(&s);
    expect_detected_soon(&s, began_ns);
}

static void the_order_of_the_resets_makes_no_difference(void **state)
{
    struct scene s = begin(*state);
    uint64_t began_ns = clock_now_ns();
    reset_control(&s);
    rig_settle(*state);
    say_broken(&s);
    expect_detected_soon(&s, began_ns);
}

static void a_worker_that_dies_after_its_lane_has_lost_it_is_detected_soon(void **state)
{
    struct scene s = begin(*state);
    struct job *job = jobs_find_id(s.lane->rig->coordinator->service, s.job);
    uint64_t began_ns = clock_now_ns();
    say_broken(&s);
    job->sessions[1]->broken_ns -= 5 * NS_PER_S;
    end_close(s.one);
    expect_detected_soon(&s, began_ns);
}

static void join_process(struct rig *rig, int pid, uint32_t rank)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", rank, 3);
    join_request_of_process(&join, pid);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

/* Gives the connection of a rank recent CPU time, so that other connections are served first. */
static void weigh_down(struct rig *rig, uint32_t job_id, uint32_t rank)
{
    struct job *job = jobs_find_id(rig->coordinator->service, job_id);
    job->sessions[rank]->peer->turn.usage.used_ns = NS_PER_S;
    job->sessions[rank]->peer->turn.usage.window = clock_now_ns() / NS_PER_S;
}

static void the_first_worker_that_dies_is_named_though_another_is_served_before(void **state)
{
    struct rig *rig = *state;
    uint32_t job_id;
    int pids[2];
    struct end *zero = rig_join(rig, "resnet", 0, 3, NULL, &job_id);
    for (uint32_t i = 0; i < 2; i++) {
        pids[i] = rig_spawn(rig);
        join_process(rig, pids[i], 1 + i);
    }
    weigh_down(rig, job_id, 2);
    rig_kill(rig, pids[1]);
    rig_kill(rig, pids[0]);
    envelope *message = end_expect(zero, BODY(JOB_FAILURE));
    assert_non_null(strstr(message->job_failure->text, "rank 2 of job resnet"));
    message_free(message);
}

/* the message about the leave has not reached the lane */
static void a_lane_is_informed_again_of_ranks_that_have_left(void **state)
{
    struct scene s = begin(*state);
    end_leave(s.one);
    message_free(end_expect(s.lane, BODY(LEFT_REQUEST)));
    say_broken(&s);
    envelope *told = end_expect(s.lane, BODY(LEFT_REQUEST));
    assert_int_equal(told->left_request->left.data[0], 1 << 1);
    message_free(told);
    end_expect_none(s.zero, BODY(JOB_FAILURE));
}

/* --- a later worker of the rank (K44) --- */

#define BOTH 3u
#define PIECE 1

struct later {
    struct rig *rig;
    struct end *lane, *other; /* `other` has no piece of the job */
    struct shadow shadow;
    struct member zero, one;
};

static struct joining continues(uint32_t rank)
{
    return (struct joining){.rank = rank, .workers = 2, .continues = true};
}

/* Rank 1 of a job that trains "w" is lost. A later worker then takes part as rank 1. */
static struct later begin_later(struct rig *rig)
{
    struct later s = {.rig = rig, .lane = rig_aggregator(rig, 1)};
    s.zero = members_join(rig, continues(0));
    s.one = members_join(rig, continues(1));
    members_declared(s.zero.end, members_declare(s.zero.end, "w", NULL), NULL);
    members_declared(s.one.end, members_declare(s.one.end, "w", NULL), NULL);
    s.other = rig_aggregator(rig, 1);
    members_lose(s.lane, s.lane->lanes[0], s.one.job, 1);
    end_expect_closed(s.one.end);
    shadow_until(&s.shadow, s.lane, PIECE, 1);
    s.one = members_join(rig, continues(1));
    uint64_t id = members_declare(s.one.end, "w", NULL);
    shadow_until(&s.shadow, s.lane, PIECE, BOTH);
    members_declared(s.one.end, id, NULL);
    return s;
}

/* Returns `entered` of the ticket with which the worker connects to the lane. */
static uint32_t entered_by_ticket(const struct member *m, const struct end *lane)
{
    WIRE(TicketRequest) ticket = GRADPOOL__WIRE__TICKET_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct record_connect connect;
    ticket.lane = lane->lanes[0];
    request.body_case = BODY(TICKET_REQUEST);
    request.ticket_request = &ticket;
    envelope *reply = end_ask(m->end, &request);
    assert_int_equal(reply->body_case, BODY(TICKET_REPLY));
    memcpy(&connect, reply->ticket_reply->ticket.data, sizeof connect);
    message_free(reply);
    return connect.entered;
}

static void a_repeated_report_does_not_remove_a_later_worker(void **state)
{
    struct later s = begin_later(*state);
    members_lose_late(s.other, &s.one, 0);
    members_lose_late(s.lane, &s.one, 0);
    end_expect_none(s.one.end, BODY(JOB_FAILURE));
    assert_int_equal(members_told(s.zero.end).ranks, BOTH);
}

static void a_report_about_the_later_worker_removes_it(void **state)
{
    struct later s = begin_later(*state);
    assert_int_equal(entered_by_ticket(&s.zero, s.lane), 0);
    uint32_t entered = entered_by_ticket(&s.one, s.lane);
    assert_int_not_equal(entered, 0);
    members_lose_late(s.lane, &s.one, entered);
    message_free(end_expect(s.one.end, BODY(JOB_FAILURE)));
    assert_int_equal(members_told(s.zero.end).ranks, 1);
}

/* An aggregator repeats its reports when it joins again. The worker may be away at this time. */
static void a_report_after_a_restart_does_not_remove_a_later_worker(void **state)
{
    struct later s = begin_later(*state);
    uint32_t entered = entered_by_ticket(&s.one, s.lane);
    const struct end lane = *s.lane, other = *s.other;
    rig_crash(s.rig);
    rig_start(s.rig);
    s.other = rig_rejoin(s.rig, &other, 0, NULL);
    members_lose_late(s.other, &s.one, 0);
    rig_settle(s.rig);
    members_resume(s.rig, &s.zero, continues(0));
    members_resume(s.rig, &s.one, continues(1));
    s.lane = shadow_rejoin(&s.shadow, s.rig, &lane, s.one.job);
    members_lose_late(s.lane, &s.one, 0);
    end_expect_none(s.one.end, BODY(JOB_FAILURE));
    assert_int_equal(members_told(s.zero.end).ranks, BOTH);
    assert_int_equal(entered_by_ticket(&s.one, s.lane), entered);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(int argc, char **argv)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_worker_that_lives_stays_in_its_job),
        CASE(a_worker_that_dies_with_its_connections_is_detected_at_once),
        CASE(a_worker_whose_control_connection_ends_first_is_detected_at_once),
        CASE(a_worker_whose_connections_were_all_reset_may_return),
        CASE(a_worker_that_dies_with_unread_messages_is_detected_soon),
        CASE(the_order_of_the_resets_makes_no_difference),
        CASE(a_worker_that_dies_after_its_lane_has_lost_it_is_detected_soon),
        CASE(the_first_worker_that_dies_is_named_though_another_is_served_before),
        CASE(a_lane_is_informed_again_of_ranks_that_have_left),
        CASE(a_repeated_report_does_not_remove_a_later_worker),
        CASE(a_report_about_the_later_worker_removes_it),
        CASE(a_report_after_a_restart_does_not_remove_a_later_worker),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(cases, NULL, NULL);
}
