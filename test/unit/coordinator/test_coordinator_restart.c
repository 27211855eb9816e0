/* Tests restarts: state that is kept after the end of the coordinator, refused starts, and the end
 * of the service. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"
#include "svc/base/system/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct worker {
    struct end *end;
    uint64_t session;
    uint32_t job, tensor;
    WIRE(Piece) piece;
};

static void declare(struct worker *w, const char *name)
{
    end_declare_one(w->end, name, 100);
    envelope *reply = end_expect(w->end, BODY(DECLARE_REPLY));
    w->tensor = reply->declare_reply->tensors[0]->tensor;
    w->piece = *reply->declare_reply->tensors[0]->pieces[0];
    message_free(reply);
}

static struct worker join(struct rig *rig, uint32_t rank, uint32_t workers)
{
    struct worker w = {0};
    w.end = rig_join(rig, "resnet", rank, workers, &w.session, &w.job);
    return w;
}

static void resume(struct rig *rig, struct worker *w, uint32_t rank, uint32_t workers)
{
    envelope request;
    WIRE(JoinRequest) again;
    w->end = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &again, "resnet", rank, workers);
    again.session = w->session;
    again.job_id = w->job;
    envelope *reply = end_ask(w->end, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    assert_int_equal(reply->join_reply->job_id, w->job);
    message_free(reply);
}

/* A worker that does not receive the failure would push the tensor and wait. */
static void a_resumed_session_receives_the_failed_tensors(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    struct worker zero = join(rig, 0, 2), one = join(rig, 1, 2);
    declare(&zero, "w");
    end_close(zero.end);
    rig_settle(rig);
    end_declare_one(one.end, "w", 200);
    message_free(end_expect(one.end, BODY(FAILURE)));
    resume(rig, &zero, 0, 2);
    envelope *failure = end_expect(zero.end, BODY(TENSOR_FAILURE));
    assert_int_equal(failure->tensor_failure->tensor, zero.tensor);
    assert_int_equal(failure->tensor_failure->code, -EINVAL);
    assert_non_null(strstr(failure->tensor_failure->text, "200"));
    message_free(failure);
}

static void a_restart_keeps_jobs_sessions_routes_and_epochs(void **state)
{
    struct rig *rig = *state;
    WIRE(PieceHeld) held = GRADPOOL__WIRE__PIECE_HELD__INIT;
    struct end *lane = rig_aggregator(rig, 2), before = *lane;
    struct worker zero = join(rig, 0, 2), one = join(rig, 1, 2);
    declare(&zero, "w");
    struct worker known = zero;
    held.job_id = zero.job;
    held.piece = zero.piece.id;
    held.lane = zero.piece.lane;
    held.epoch = zero.piece.epoch;
    rig_crash(rig);
    rig_start(rig);
    lane = rig_rejoin(rig, &before, 1, &held);
    assert_int_equal(lane->aggregator, before.aggregator);
    assert_memory_equal(lane->lanes, before.lanes, sizeof before.lanes);
    resume(rig, &zero, 0, 2);
    resume(rig, &one, 1, 2);
    end_expect_none(lane, BODY(PLACE_REQUEST));
    declare(&one, "w");
    assert_int_equal(one.tensor, known.tensor);
    assert_int_equal(one.piece.id, known.piece.id);
    assert_int_equal(one.piece.task, known.piece.task);
    assert_int_equal(one.piece.lane, known.piece.lane);
    assert_int_equal(one.piece.epoch, known.piece.epoch);
    declare(&zero, "v"); /* the number of a tensor is never used again */
    assert_true(zero.tensor > known.tensor);
    assert_true(zero.piece.id > known.piece.id);
}

static void a_declaration_waits_for_the_return_of_the_lanes(void **state)
{
    struct rig *rig = *state;
    rig->options.policy = "round-robin";
    rig_start_afresh(rig);
    struct end before = *rig_aggregator(rig, 1);
    struct worker zero = join(rig, 0, 1);
    rig_crash(rig);
    rig_start(rig);
    resume(rig, &zero, 0, 1);
    end_declare_one(zero.end, "w", 100);
    end_expect_none(zero.end, BODY(FAILURE));
    rig_rejoin(rig, &before, 0, NULL);
    message_free(end_expect(zero.end, BODY(DECLARE_REPLY)));
}

static void an_epoch_from_before_a_restart_is_not_given_again(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct worker zero = join(rig, 0, 1);
    declare(&zero, "w");
    struct end *second = rig_aggregator(rig, 1), before = *second;
    rig_kill(rig, first->process);
    envelope *change = end_expect(zero.end, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->epoch, 2);
    message_free(change);
    rig_crash(rig);
    rig_start(rig);
    second = rig_rejoin(rig, &before, 0, NULL);
    envelope *place = end_expect(second, BODY(PLACE_REQUEST)); /* the lane has lost its pieces */
    assert_int_equal(place->place_request->epoch, 2);
    assert_true(place->place_request->recovering);
    message_free(place);
    resume(rig, &zero, 0, 1);
    change = end_expect(zero.end, BODY(ROUTE_CHANGE));
    assert_int_equal(change->route_change->tensors[0]->pieces[0]->epoch, 2);
    message_free(change);
}

static void a_local_aggregator_that_died_during_the_restart_is_lost_at_once(void **state)
{
    struct rig *rig = *state;
    struct end *first = rig_local_aggregator(rig, 1, "");
    struct end *second = rig_aggregator(rig, 1), before = *second;
    struct worker zero = join(rig, 0, 1);
    declare(&zero, "w");
    uint32_t on = zero.piece.lane;
    assert_int_equal(on, first->lanes[0]);
    int process = first->process;
    rig_crash(rig);
    rig_kill(rig, process);
    rig_start(rig);
    second = rig_rejoin(rig, &before, 0, NULL);
    message_free(end_expect(second, BODY(PLACE_REQUEST)));
    resume(rig, &zero, 0, 1);
    declare(&zero, "w");
    assert_int_equal(zero.piece.lane, second->lanes[0]);
    assert_int_equal(zero.piece.epoch, 2);
}

static void a_failed_job_is_still_failed_after_a_restart(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_local_aggregator(rig, 1, "");
    struct worker zero = join(rig, 0, 1);
    declare(&zero, "w");
    WIRE(LaneFailure) failure = GRADPOOL__WIRE__LANE_FAILURE__INIT;
    envelope told = GRADPOOL__WIRE__ENVELOPE__INIT;
    failure.lane = lane->lanes[0];
    failure.job_id = zero.job;
    failure.code = -ECONNRESET;
    failure.text = (char *)"rank 0 is stuck";
    told.body_case = BODY(LANE_FAILURE);
    told.lane_failure = &failure;
    assert_int_equal(channel_send(lane->channel, &told), 0);
    message_free(end_expect(zero.end, BODY(JOB_FAILURE)));
    rig_crash(rig);
    rig_start(rig);
    resume(rig, &zero, 0, 1);
    envelope *message = end_expect(zero.end, BODY(JOB_FAILURE));
    assert_non_null(strstr(message->job_failure->text, "rank 0 is stuck"));
    message_free(message);
}

static void a_worker_that_died_during_the_restart_fails_its_job_at_once(void **state)
{
    struct rig *rig = *state;
    char node[HOST_NAME_MAX + 1] = "";
    envelope request;
    WIRE(JoinRequest) join_as;
    struct worker zero = join(rig, 0, 2);
    struct end *one = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    gethostname(node, sizeof node - 1);
    int pid = rig_spawn(rig);
    join_request(&request, &join_as, "resnet", 1, 2);
    join_as.node = node;
    join_as.pid = (uint32_t)pid;
    join_as.pid_namespace = process_namespace();
    join_as.identity = process_identity(join_as.pid);
    message_free(end_ask(one, &request));
    rig_crash(rig);
    rig_kill(rig, pid);
    rig_start(rig);
    resume(rig, &zero, 0, 2);
    envelope *message = end_expect(zero.end, BODY(JOB_FAILURE));
    assert_non_null(strstr(message->job_failure->text, "rank 1 of job resnet"));
    message_free(message);
}

static void the_incarnation_grows_with_every_start(void **state)
{
    struct rig *rig = *state;
    uint64_t incarnation, last = 0;
    for (int i = 0; i < 3; i++) {
        WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
        envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
        struct end *e = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
        request.body_case = BODY(STATUS_REQUEST);
        request.status_request = &status;
        envelope *reply = end_ask(e, &request);
        incarnation = reply->status_reply->incarnation;
        assert_true(incarnation > last);
        last = incarnation;
        message_free(reply);
        rig_crash(rig);
        rig_start(rig);
    }
}

/* --- starting --- */

static void cannot_start(const struct coordinator_options *options, int code, const char *text)
{
    struct coordinator *c = NULL;
    struct err err = {0};
    assert_int_equal(coordinator_create(options, &c, &err), code);
    assert_null(c);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
}

static void a_second_service_on_the_state_dir_learns_the_pid_of_the_first(void **state)
{
    struct rig *rig = *state;
    char text[64];
    snprintf(text, sizeof text, "is in use by gradpool serve, pid %d, since 2", (int)getpid());
    cannot_start(&rig->options, -EBUSY, text);
}

static void a_state_dir_that_cannot_be_written_is_named(void **state)
{
    struct coordinator_options options = ((struct rig *)*state)->options;
    options.state_dir = "/proc/self/gradpool";
    cannot_start(&options, -ENOENT, "cannot create /proc/self/gradpool");
    options.state_dir = "/dev/null/state";
    cannot_start(&options, -ENOTDIR, "choose another place with --state-dir");
}

static void a_file_that_is_no_store_is_named(void **state)
{
    struct rig *rig = *state;
    char path[128];
    rig_crash(rig);
    snprintf(path, sizeof path, "%s/state.db", rig->dir);
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(write(fd, "this is no database at all\n", 27), 27);
    close(fd);
    cannot_start(&rig->options, -EBADMSG, "state.db");
}

static void a_disk_that_is_full_at_the_start_is_reported(void **state)
{
    struct rig *rig = *state;
    struct coordinator_options options = rig->options;
    char path[128];
    rig_crash(rig);
    snprintf(path, sizeof path, "%s/state.db", rig->dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/state.db-used", rig->dir);
    assert_int_equal(unlink(path), 0);
    options.store_pages_max = 2;
    cannot_start(&options, -ENOSPC, "state.db");
}

static void options_that_make_no_service_are_refused(void **state)
{
    struct coordinator_options options = ((struct rig *)*state)->options;
    options.insecure = options.require_tls = true;
    cannot_start(&options, -EINVAL, "contradict");
    options.insecure = options.require_tls = false;
    options.listen = "gradpool+unix:///tmp/x";
    cannot_start(&options, -EINVAL, "expected gradpool://host:port");
    options.listen = "gradpool://127.0.0.1:0";
    options.policy = "best";
    cannot_start(&options, -EINVAL, "--policy best");
}

/* --- a store that fails later --- */

static void a_full_disk_refuses_the_request_and_the_service_goes_on(void **state)
{
    struct rig *rig = *state;
    char name[64];
    envelope *reply = NULL;
    rig_crash(rig);
    rig->options.store_pages_max = 40;
    rig_start(rig);
    struct end *lane = rig_aggregator(rig, 1);
    struct worker zero = join(rig, 0, 1);
    struct worker declared = zero;
    for (int i = 0; i < 5000 && !reply; i++) {
        snprintf(name, sizeof name, "tensor-%d", i);
        envelope *answer = end_expect_reply(zero.end, end_declare_one(zero.end, name, 100));
        if (answer->body_case == BODY(FAILURE)) {
            reply = answer;
            continue;
        }
        message_free(answer);
        message_free(end_expect(lane, BODY(PLACE_REQUEST)));
    }
    assert_non_null(reply);
    assert_int_equal(reply->failure->code, -ENOSPC);
    assert_non_null(strstr(reply->failure->text, "state.db"));
    message_free(reply);
    end_expect_none(lane, BODY(PLACE_REQUEST));
    declared.end = zero.end;
    declare(&declared, "tensor-0"); /* a declared tensor needs no further space on the disk */
    end_leave(zero.end);
}

/* --- ending --- */

static void step_until_drained(struct rig *rig)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (coordinator_step(rig->coordinator, clock_now_ns() + NS_PER_MS) > 0)
        assert_true(clock_now_ns() < deadline_ns);
}

static void no_socket(const struct rig *rig)
{
    char path[128];
    snprintf(path, sizeof path, "%s/control.sock", rig->dir);
    assert_int_equal(access(path, F_OK), -1);
}

static void after_the_end_of_a_service_only_the_numbers_are_stored(void **state)
{
    struct rig *rig = *state;
    uint32_t job;
    struct worker zero = join(rig, 0, 1);
    coordinator_signal(rig->coordinator, SIGINT);
    step_until_drained(rig);
    rig_crash(rig);
    no_socket(rig);
    rig_start(rig);
    rig_join(rig, "resnet", 0, 3, NULL, &job);
    assert_true(job > zero.job);
}

static void a_second_signal_ends_local_aggregators_at_once(void **state)
{
    struct rig *rig = *state;
    rig_crash(rig);
    rig->options.aggregators = 1;
    rig_start(rig);
    rig_local_aggregator(rig, 1, rig->grants[0])->answers = false;
    coordinator_signal(rig->coordinator, SIGINT);
    rig_settle(rig); /* the aggregator must not be drained */
    coordinator_signal(rig->coordinator, SIGINT);
    step_until_drained(rig);
    assert_int_equal(coordinator_run(rig->coordinator), SIGINT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_restart_keeps_jobs_sessions_routes_and_epochs),
        CASE(a_resumed_session_receives_the_failed_tensors),
        CASE(an_epoch_from_before_a_restart_is_not_given_again),
        CASE(a_declaration_waits_for_the_return_of_the_lanes),
        CASE(a_local_aggregator_that_died_during_the_restart_is_lost_at_once),
        CASE(a_failed_job_is_still_failed_after_a_restart),
        CASE(a_worker_that_died_during_the_restart_fails_its_job_at_once),
        CASE(the_incarnation_grows_with_every_start),
        CASE(a_second_service_on_the_state_dir_learns_the_pid_of_the_first),
        CASE(a_state_dir_that_cannot_be_written_is_named),
        CASE(a_file_that_is_no_store_is_named),
        CASE(a_disk_that_is_full_at_the_start_is_reported),
        CASE(options_that_make_no_service_are_refused),
        CASE(a_full_disk_refuses_the_request_and_the_service_goes_on),
        CASE(after_the_end_of_a_service_only_the_numbers_are_stored),
        CASE(a_second_signal_ends_local_aggregators_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
