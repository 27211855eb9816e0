/* Tests joins, leaves, disconnections and losses of workers, as messages between clients and a
 * coordinator. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"
#include "svc/base/system/process.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void refused(struct rig *rig, const char *job, uint32_t rank, uint32_t workers, int code,
                    const char *text)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, job, rank, workers);
    end_ask_refused(e, &request, code, text);
}

static void ranks_of_one_job_share_its_number(void **state)
{
    uint64_t sessions[2];
    uint32_t jobs[2];
    rig_join(*state, "resnet", 0, 2, &sessions[0], &jobs[0]);
    rig_join(*state, "resnet", 1, 2, &sessions[1], &jobs[1]);
    assert_int_equal(jobs[0], jobs[1]);
    assert_true(sessions[0] != sessions[1] && sessions[0] && sessions[1]);
}

static void a_taken_rank_is_refused_with_the_name_of_its_process(void **state)
{
    rig_join(*state, "resnet", 0, 2, NULL, NULL);
    refused(*state, "resnet", 0, 2, -EEXIST,
            "rank 0 of job resnet is taken by elsewhere, pid 1000; end that process");
}

static void another_number_of_workers_is_refused_with_both(void **state)
{
    rig_join(*state, "resnet", 0, 2, NULL, NULL);
    refused(*state, "resnet", 1, 3, -EPROTO, "runs with 2 workers, rank 1 requested 3");
}

static void refused_backup(struct rig *rig, uint32_t rank, WIRE(BackupSpec) * backup, int code,
                           const char *text)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", rank, 3);
    join.backup = backup;
    end_ask_refused(e, &request, code, text);
}

static void backup_workers_are_refused_until_a_lane_serves_them(void **state)
{
    WIRE(BackupSpec) backup = MESSAGE_PART(BackupSpec, backup_spec, .rule = 1, .k = 2);
    backup.k = 4;
    refused_backup(*state, 0, &backup, -EINVAL,
                   "job 'resnet': backup.k is 4 for 3 workers with rule 'static'");
    backup.k = 2;
    backup.gradients = 8;
    refused_backup(*state, 0, &backup, -EINVAL, "job 'resnet': backup.gradients is 8");
    backup = MESSAGE_PART(BackupSpec, backup_spec, .rule = 0);
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", 0, 3);
    join.backup = &backup; /* a spec without a rule is treated like no spec */
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

static void jobs_that_change_or_keep_copies_have_no_backup_workers(void **state)
{
    WIRE(BackupSpec)
    backup = MESSAGE_PART(BackupSpec, backup_spec, .rule = 1, .k = 2, .absence = UINT32_MAX);
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", 0, 3);
    join.backup = &backup;
    join.workers_max = 4;
    end_ask_refused(e, &request, -EOPNOTSUPP,
                    "come and go (set on_worker_loss to GP_FAIL and workers_max to 0)");
    join.workers_max = 0;
    join.durability = DURABILITY_REPLICA;
    end_ask_refused(e, &request, -EOPNOTSUPP, "with copies of parameters (set durability");
}

static void another_backup_rule_than_that_of_the_job_is_refused_with_both(void **state)
{
    WIRE(BackupSpec) backup = MESSAGE_PART(BackupSpec, backup_spec, .rule = 1, .k = 2);
    rig_join(*state, "resnet", 0, 3, NULL, NULL);
    refused_backup(*state, 1, &backup, -EINVAL,
                   "job resnet closes its rounds by backup rule all; rank 1 requested static, k 2, "
                   "least 2, absence 64, lag 4, gradients 1, rate fixed; give all ranks the same");
    refused_backup(*state, 1, &backup, -EINVAL, "; give all ranks the same gp_job_spec.backup");
    rig_join(*state, "resnet", 1, 3, NULL, NULL);
}

static void join_with(struct rig *rig, uint32_t rank, WIRE(BackupSpec) * backup)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", rank, 3);
    join.backup = backup;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

static void a_static_rule_is_served_and_compared_also_after_a_restart(void **state)
{
    WIRE(BackupSpec)
    backup = MESSAGE_PART(BackupSpec, backup_spec, .rule = 1, .k = 2, .absence = UINT32_MAX);
    join_with(*state, 0, &backup);
    backup.least = 2; /* the default value, given explicitly */
    join_with(*state, 1, &backup);
    backup.k = 3;
    refused_backup(*state, 2, &backup, -EINVAL,
                   "job resnet closes its rounds by backup rule static, k 2, least 2, absence "
                   "4294967295, lag 4, gradients 1, rate fixed; rank 2 requested static, k 3");
    refused_backup(*state, 2, NULL, -EINVAL, "rank 2 requested all; give all ranks the same");
    rig_crash(*state);
    rig_start(*state); /* after the restart, no rank has sent the rule yet */
    refused_backup(*state, 2, NULL, -EINVAL, "by backup rule static, k 2, least 2, absence ");
    backup.k = 2;
    join_with(*state, 2, &backup);
}

static void names_and_numbers_out_of_bounds_are_refused(void **state)
{
    char longest[129];
    memset(longest, 'j', 128);
    longest[128] = 0;
    refused(*state, "", 0, 1, -EINVAL, "1 to 127 bytes");
    refused(*state, "job\xff", 0, 1, -EINVAL, "this one has 4 bytes and is not UTF-8");
    refused(*state, "job\xc2\x9b", 0, 1, -EINVAL, "name");
    refused(*state, "\xe2\x80\xaegnp.", 0, 1, -EINVAL, "name");
    refused(*state, longest, 0, 1, -EINVAL, "this one has 128 bytes");
    refused(*state, "two\nlines", 0, 1, -EINVAL, "control characters");
    refused(*state, "j", 2, 2, -EINVAL, "rank 2 of 2 workers; expected 0 to 1");
    refused(*state, "j", 0, 0, -EINVAL, "0 workers; expected 1 to 768");
    refused(*state, "j", 0, 769, -EINVAL, "769 workers; expected 1 to 768");
    longest[127] = 0;
    rig_join(*state, longest, 767, 768, NULL, NULL);
}

static void a_connection_is_for_one_job(void **state)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_join(*state, "a", 0, 1, NULL, NULL);
    join_request(&request, &join, "b", 0, 1);
    end_ask_refused(
        e, &request, -EINVAL,
        "this connection has joined job a already; open another connection for another job");
    end_leave(e);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
}

static void a_job_name_is_free_again_when_all_ranks_have_left(void **state)
{
    uint32_t first, second;
    struct end *zero = rig_join(*state, "resnet", 0, 2, NULL, &first);
    struct end *one = rig_join(*state, "resnet", 1, 2, NULL, NULL);
    end_leave(zero);
    refused(*state, "resnet", 0, 2, -ESTALE, "rank 0 has left, so job resnet is ending");
    end_leave(one);
    rig_join(*state, "resnet", 0, 5, NULL, &second);
    assert_true(second != first);
}

static bool is_in_container; /* if true, the next worker has PIDs of another namespace */

static struct end *join_as(struct rig *rig, int pid, uint32_t rank)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", rank, 2);
    join_request_of_process(&join, pid);
    join.pid_namespace += is_in_container;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    message_free(reply);
    return e;
}

/* Lets joins wait up to 600 s for the end of a former job, so that only an event can end the
 * wait. */
static void wait_for_former_jobs(struct rig *rig)
{
    rig->options.job_end_ns = 600 * NS_PER_S;
    rig_start_afresh(rig);
}

static uint64_t send_join(struct end *e, uint32_t rank, uint32_t workers)
{
    envelope request;
    WIRE(JoinRequest) join;
    join_request(&request, &join, "resnet", rank, workers);
    return end_send(e, &request);
}

static uint32_t expect_joined(struct end *e, uint64_t id)
{
    envelope *reply = end_expect_reply(e, id);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    uint32_t job = reply->join_reply->job_id;
    message_free(reply);
    return job;
}

static void a_join_waits_until_the_former_job_has_ended(void **state)
{
    struct rig *rig = *state;
    uint32_t former;
    wait_for_former_jobs(rig);
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, &former);
    struct end *one = rig_join(rig, "resnet", 1, 2, NULL, NULL);
    end_leave(zero);
    uint64_t id = send_join(zero, 0, 3);
    end_expect_none(zero, BODY(JOIN_REPLY));
    end_expect_none(zero, BODY(FAILURE));
    end_leave(one);
    uint32_t next = expect_joined(zero, id);
    assert_true(next != former);
    assert_int_equal(expect_joined(one, send_join(one, 1, 3)), next);
}

/* A new process joins with a rank that the former job did not have. */
static void a_new_rank_of_an_ending_job_waits_for_the_next_job(void **state)
{
    struct rig *rig = *state;
    uint32_t former;
    wait_for_former_jobs(rig);
    struct end *zero = rig_join(rig, "resnet", 0, 3, NULL, &former);
    struct end *one = rig_join(rig, "resnet", 1, 3, NULL, NULL);
    struct end *two = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    end_leave(zero);
    uint64_t id = send_join(two, 2, 3);
    end_expect_none(two, BODY(JOIN_REPLY));
    end_leave(one);
    assert_true(expect_joined(two, id) != former);
}

static void a_late_rank_joins_a_job_that_others_have_left(void **state)
{
    uint32_t former, late;
    struct end *zero = rig_join(*state, "resnet", 0, 3, NULL, &former);
    rig_join(*state, "resnet", 1, 3, NULL, NULL);
    end_leave(zero);
    rig_join(*state, "resnet", 2, 3, NULL, &late);
    assert_int_equal(late, former);
}

static void a_refused_join_names_the_process_that_is_still_in_the_former_job(void **state)
{
    struct rig *rig = *state;
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    rig_join(rig, "resnet", 1, 2, NULL, NULL);
    end_leave(zero);
    refused(rig, "resnet", 0, 2, -ESTALE, "rank 1 of job resnet (elsewhere, pid 1001) has not");
    refused(rig, "resnet", 0, 5, -ESTALE, "rank 1 of job resnet (elsewhere, pid 1001) has not");
    refused(rig, "resnet", 4, 5, -ESTALE, "rank 0 has left, so job resnet is ending");
}

static void a_join_waits_until_a_failed_job_has_ended(void **state)
{
    struct rig *rig = *state;
    wait_for_former_jobs(rig);
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    int pid = rig_spawn(rig);
    join_as(rig, pid, 1);
    rig_kill(rig, pid);
    message_free(end_expect(zero, BODY(JOB_FAILURE)));
    struct end *one = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    uint64_t id = send_join(one, 1, 2);
    end_expect_none(one, BODY(FAILURE));
    end_leave(zero);
    expect_joined(one, id);
}

static void a_lost_connection_is_resumed_with_the_session(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(JoinRequest) join;
    uint64_t session;
    uint32_t job;
    struct end *e = rig_join(rig, "resnet", 0, 1, &session, &job);
    end_close(e);
    rig_settle(rig);
    e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", 0, 1);
    join.session = session + 1;
    join.job_id = job;
    end_ask_refused(e, &request, -ESTALE, "counts as lost");
    join.session = session;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    assert_int_equal(reply->join_reply->session, session);
    assert_int_equal(reply->join_reply->job_id, job);
    message_free(reply);
}

/* The coordinator cannot detect the end of this worker's process, as if the worker ran on another
 * host. */
static void a_rank_that_died_and_joins_again_waits_until_the_first_is_lost(void **state)
{
    struct rig *rig = *state;
    uint32_t first;
    end_close(rig_join(rig, "resnet", 0, 1, NULL, &first));
    rig_settle(rig);
    struct end *again = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    assert_true(expect_joined(again, send_join(again, 0, 1)) != first);
}

/* The first connection may be half open: the peer has detected its end, and the coordinator has
 * not. */
static void a_session_that_resumes_replaces_its_old_connection(void **state)
{
    struct rig *rig = *state;
    envelope request;
    WIRE(JoinRequest) join;
    uint64_t session;
    uint32_t job;
    struct end *old = rig_join(rig, "resnet", 0, 1, &session, &job);
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, "resnet", 0, 1);
    join.session = session;
    join.job_id = job;
    message_free(end_ask(e, &request));
    end_expect_closed(old);
    end_leave(e);
}

static void a_worker_that_dies_fails_its_job_by_name(void **state)
{
    struct rig *rig = *state;
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    int pid = rig_spawn(rig);
    /* the connection of the former process stays open, as with a copy in a forked child */
    join_as(rig, pid, 1);
    rig_kill(rig, pid);
    envelope *message = end_expect(zero, BODY(JOB_FAILURE));
    assert_int_equal(message->job_failure->code, -ECONNRESET);
    assert_non_null(strstr(message->job_failure->text, "rank 1 of job resnet"));
    message_free(message);
    refused(rig, "resnet", 1, 2, -ESTALE, "job resnet has failed (rank 1 of job resnet");
    end_leave(zero);
    rig_join(rig, "resnet", 0, 2, NULL, NULL);
}

/* On this host the worker's PID belongs to another process, whose end must not count as the end of
 * the worker. */
static void a_worker_in_a_container_is_not_taken_for_a_process_of_the_host(void **state)
{
    struct rig *rig = *state;
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    int pid = rig_spawn(rig);
    is_in_container = true;
    struct end *one = join_as(rig, pid, 1);
    is_in_container = false;
    rig_kill(rig, pid);
    end_expect_none(zero, BODY(JOB_FAILURE));
    end_leave(one);
}

static void a_worker_that_sends_a_goodbye_and_dies_has_left(void **state)
{
    struct rig *rig = *state;
    WIRE(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    int pid = rig_spawn(rig);
    struct end *one = join_as(rig, pid, 1);
    request.body_case = BODY(LEAVE_REQUEST);
    request.leave_request = &leave;
    end_send(one, &request); /* the request is still in the socket when the process ends */
    rig_kill(rig, pid);
    end_expect_none(zero, BODY(JOB_FAILURE));
}

/* The coordinator needs more than one turn for these messages. */
static void a_goodbye_behind_much_else_is_read_before_its_worker_counts_as_lost(void **state)
{
    struct rig *rig = *state;
    WIRE(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    WIRE(Failure) unasked = GRADPOOL__WIRE__FAILURE__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    uint32_t job_id;
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, &job_id);
    int pid = rig_spawn(rig);
    struct end *one = join_as(rig, pid, 1);
    request.body_case = BODY(FAILURE);
    request.failure = &unasked;
    for (int i = 0; i < 1000; i++)
        /* this request is not answered */
        assert_int_equal(channel_send(one->channel, &request), 0);
    request.body_case = BODY(LEAVE_REQUEST);
    request.leave_request = &leave;
    end_send(one, &request);
    rig_kill(rig, pid);
    const struct job *job = jobs_find_id(rig->coordinator->service, job_id);
    uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    while (job->sessions[1]->state == SESSION_JOINED && clock_now_ns() < until_ns)
        rig_settle(rig); /* these messages need several turns */
    end_expect_none(zero, BODY(JOB_FAILURE));
    refused(rig, "resnet", 1, 2, -ESTALE, "has left");
}

static void the_first_message_must_be_hello(void **state)
{
    WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *e = rig_connect_silently(*state);
    request.body_case = BODY(STATUS_REQUEST);
    request.status_request = &status;
    end_ask_refused(e, &request, -EPROTO, "must be Hello");
    end_expect_closed(e);
}

static void another_version_is_refused_with_both(void **state)
{
    WIRE(Hello) hello = GRADPOOL__WIRE__HELLO__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *e = rig_connect_silently(*state);
    hello.version = 99;
    request.body_case = BODY(HELLO);
    request.hello = &hello;
    char both[64];
    snprintf(both, sizeof both, "speaks protocol version %d, this client speaks 99",
             CHANNEL_VERSION);
    end_ask_refused(e, &request, -EPROTO, both);
    end_expect_closed(e);
    kept_log_expect(" speaks protocol version 99, expected ");
}

static void garbage_closes_its_own_connection_only(void **state)
{
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: gradpool\r\n\r\n";
    struct rig *rig = *state;
    struct end *client = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    struct end *e = rig_connect_silently(rig);
    assert_true(send(channel_fd(e->channel), garbage, sizeof garbage - 1, 0) > 0);
    end_expect_closed(e);
    end_leave(client);
}

static void each_role_gets_only_its_own_requests_answered(void **state)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect_locally(*state, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    join_request(&request, &join, "resnet", 0, 1);
    end_ask_refused(e, &request, -EPERM, "role");
}

static void send_failure(struct end *e, uint64_t id)
{
    WIRE(Failure) failure = GRADPOOL__WIRE__FAILURE__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    failure.code = -EOPNOTSUPP;
    message.id = id;
    message.body_case = BODY(FAILURE);
    message.failure = &failure;
    channel_send(e->channel, &message);
}

static void send_unasked(struct end *e, int body)
{
    WIRE(LaneFailure) lane = GRADPOOL__WIRE__LANE_FAILURE__INIT;
    WIRE(JobFailure) job = GRADPOOL__WIRE__JOB_FAILURE__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    message.body_case = body;
    if (body == BODY(LANE_FAILURE))
        message.lane_failure = &lane;
    else
        message.job_failure = &job;
    channel_send(e->channel, &message);
}

/* Only requests get an error as answer. Otherwise two peers of different versions would answer each
 * other's errors forever. */
static void only_requests_get_a_refusal_as_answer(void **state)
{
    struct end *ends[] = {rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT),
                          rig_aggregator(*state, 1)};
    for (int i = 0; i < 2; i++) {
        envelope unknown = GRADPOOL__WIRE__ENVELOPE__INIT;
        send_failure(ends[i], 0);
        send_failure(ends[i], 77);
        /* no peer may send this message to a coordinator */
        send_unasked(ends[i], BODY(JOB_FAILURE));
        if (i == 0)
            send_unasked(ends[i], BODY(LANE_FAILURE)); /* this role may not send this message */
        end_expect_none(ends[i], BODY(FAILURE));
        end_ask_refused(ends[i], &unknown, -EOPNOTSUPP, "does not answer this message");
        end_expect_none(ends[i], BODY(FAILURE));
    }
}

static void requests_of_a_job_are_refused_without_a_join(void **state)
{
    WIRE(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct end *e = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    request.body_case = BODY(LEAVE_REQUEST);
    request.leave_request = &leave;
    end_ask_refused(e, &request, -ENOTCONN, "no job has been joined");
    end_declare_one(e, "w", 1);
    envelope *reply = end_expect(e, BODY(FAILURE));
    assert_int_equal(reply->failure->code, -ENOTCONN);
    message_free(reply);
}

static void jobs_are_shown_with_their_workers(void **state)
{
    struct rig *rig = *state;
    WIRE(JobsRequest) jobs = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    rig_join(rig, "resnet", 0, 2, NULL, NULL);
    rig_join(rig, "bert", 0, 1, NULL, NULL);
    struct end *e = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    jobs.job = "resnet";
    request.body_case = BODY(JOBS_REQUEST);
    request.jobs_request = &jobs;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->jobs_reply->n_jobs, 1);
    const WIRE(JobView) *job = reply->jobs_reply->jobs[0];
    assert_string_equal(job->state, "joining");
    assert_int_equal(job->n_ranks, 1);
    assert_string_equal(job->ranks[0]->state, "joined");
    assert_int_equal(job->ranks[0]->pid, 1000);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ranks_of_one_job_share_its_number),
        CASE(a_taken_rank_is_refused_with_the_name_of_its_process),
        CASE(another_number_of_workers_is_refused_with_both),
        CASE(backup_workers_are_refused_until_a_lane_serves_them),
        CASE(jobs_that_change_or_keep_copies_have_no_backup_workers),
        CASE(another_backup_rule_than_that_of_the_job_is_refused_with_both),
        CASE(a_static_rule_is_served_and_compared_also_after_a_restart),
        CASE(names_and_numbers_out_of_bounds_are_refused),
        CASE(a_connection_is_for_one_job),
        CASE(a_job_name_is_free_again_when_all_ranks_have_left),
        CASE(a_join_waits_until_the_former_job_has_ended),
        CASE(a_new_rank_of_an_ending_job_waits_for_the_next_job),
        CASE(a_late_rank_joins_a_job_that_others_have_left),
        CASE(a_refused_join_names_the_process_that_is_still_in_the_former_job),
        CASE(a_join_waits_until_a_failed_job_has_ended),
        CASE(a_lost_connection_is_resumed_with_the_session),
        CASE(a_rank_that_died_and_joins_again_waits_until_the_first_is_lost),
        CASE(a_session_that_resumes_replaces_its_old_connection),
        CASE(a_worker_that_dies_fails_its_job_by_name),
        CASE(a_worker_in_a_container_is_not_taken_for_a_process_of_the_host),
        CASE(a_worker_that_sends_a_goodbye_and_dies_has_left),
        CASE(a_goodbye_behind_much_else_is_read_before_its_worker_counts_as_lost),
        CASE(the_first_message_must_be_hello),
        CASE(another_version_is_refused_with_both),
        CASE(garbage_closes_its_own_connection_only),
        CASE(each_role_gets_only_its_own_requests_answered),
        CASE(only_requests_get_a_refusal_as_answer),
        CASE(requests_of_a_job_are_refused_without_a_join),
        CASE(jobs_are_shown_with_their_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
