/* Tests a disk that fails while the coordinator runs: every write returns an error, like on a file
 * system that is read-only, full or broken. Requests are refused with the reason, and jobs
 * continue. When the disk works again, requests succeed. */
#include "svc/base/log.h"
#include "svc/coordinator/job/hold.h"
#include "svc/coordinator/job/job.h"
#include "svc/coordinator/service.h"
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int disk_error; /* error of every write; 0: writes succeed */
static int writes_failed;

/* Replaces SQLite's write function: the linker prefers the program's symbol to the C library's. */
__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void *bytes, size_t count,
                                                        off64_t offset);
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    if (disk_error == 0)
        return syscall(SYS_pwrite64, fd, bytes, count, offset);
    writes_failed++;
    errno = disk_error;
    return -1;
}

static int teardown(void **state)
{
    disk_error = 0;
    return rig_teardown(state);
}

static void declare(struct end *e, const char *name)
{
    envelope *reply = end_expect_reply(e, end_declare_one(e, name, 100));
    assert_int_equal(reply->body_case, BODY(DECLARE_REPLY));
    message_free(reply);
}

static void declare_refused(struct end *e, const char *name, int code)
{
    envelope *reply = end_expect_reply(e, end_declare_one(e, name, 100));
    assert_int_equal(reply->body_case, BODY(FAILURE));
    assert_int_equal(reply->failure->code, code);
    assert_non_null(strstr(reply->failure->text, "state.db"));
    message_free(reply);
}

static void refuses_and_recovers(struct rig *rig, int error, int code)
{
    struct end *lane = rig_aggregator(rig, 1);
    struct end *zero = rig_join(rig, "resnet", 0, 2, NULL, NULL);
    declare(zero, "before");
    message_free(end_expect(lane, BODY(PLACE_REQUEST)));

    disk_error = error;
    declare_refused(zero, "during", code);
    end_expect_none(lane, BODY(PLACE_REQUEST)); /* no lane may receive a piece that is not stored */
    WIRE(JoinRequest) join;
    envelope request;
    join_request(&request, &join, "resnet", 1, 2);
    end_ask_refused(rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT), &request, code,
                    "state.db");
    declare(zero, "before"); /* a known tensor is not written again */

    disk_error = 0;
    declare(zero, "during");
    struct end *one = rig_join(rig, "resnet", 1, 2, NULL, NULL);
    declare(one, "during");
    end_leave(zero);
    end_leave(one);
}

static void a_state_dir_that_becomes_read_only_refuses_and_nothing_else_changes(void **state)
{
    refuses_and_recovers(*state, EROFS, -EIO);
}

static void a_disk_that_becomes_full_refuses_and_nothing_else_changes(void **state)
{
    refuses_and_recovers(*state, ENOSPC, -ENOSPC);
}

static void a_disk_that_breaks_refuses_and_nothing_else_changes(void **state)
{
    refuses_and_recovers(*state, EIO, -EIO);
}

/* Although the store fails, the worker of the job receives a notice about the lost lane (K1). */
static void a_job_is_informed_of_its_lost_lane_even_without_a_stored_change(void **state)
{
    struct rig *rig = *state;
    struct end *lane = rig_local_aggregator(rig, 1, "");
    struct end *zero = rig_join(rig, "resnet", 0, 1, NULL, NULL);
    declare(zero, "w");
    disk_error = EROFS;
    rig_kill(rig, lane->process);
    message_free(end_expect(zero, BODY(NOTICE)));
    assert_true(writes_failed > 0);
    kept_log_expect("after a restart the coordinator will find this aggregator lost again");
}

static char logged[512];

static void keep_line(enum log_level level, const char *line)
{
    if (level == LOG_LEVEL_WARN)
        snprintf(logged, sizeof logged, "%s", line);
}

static void a_hold_that_cannot_be_stored_holds_until_the_coordinator_ends(void **state)
{
    struct rig *rig = *state;
    rig->options.order_hold_ns = 600 * NS_PER_S;
    rig_start_afresh(rig);
    rig_aggregator(rig, 1);
    declare(rig_join(rig, "resnet", 0, 1, NULL, NULL), "w");
    struct job *job = list_entry(list_first(&rig->coordinator->service->jobs), struct job, link);
    disk_error = EIO;
    log_set_hook(keep_line);
    order_hold_begin(job, job->tensors[0]->pieces[0].lane);
    log_set_hook(NULL);
    assert_non_null(strstr(
        logged,
        "job resnet: the hold after its move was not stored, and ends with gradpool serve: "));
    assert_int_not_equal(order_hold_ns(job), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_state_dir_that_becomes_read_only_refuses_and_nothing_else_changes),
        CASE(a_disk_that_becomes_full_refuses_and_nothing_else_changes),
        CASE(a_disk_that_breaks_refuses_and_nothing_else_changes),
        CASE(a_job_is_informed_of_its_lost_lane_even_without_a_stored_change),
        CASE(a_hold_that_cannot_be_stored_holds_until_the_coordinator_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
