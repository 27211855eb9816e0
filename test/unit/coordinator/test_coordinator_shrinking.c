/* Tests which running job would have to shrink so that a new job gets room. This job is reported
 * once, and no job is changed (K49). */
#include "svc/base/clock.h"
#include "test/unit/coordinator/measure_rig.h"
#include "test/unit/coordinator/members_case.h"

#include <stdlib.h>
#include <string.h>

/* Returns the newest event of this kind, which the caller frees; NULL: there is none. */
static char *newest_event(struct rig *rig, const char *kind)
{
    struct end *asking = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    WIRE(StatusRequest) status = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    char *text = NULL;
    request.body_case = BODY(STATUS_REQUEST);
    request.status_request = &status;
    envelope *reply = end_ask(asking, &request);
    assert_int_equal(reply->body_case, BODY(STATUS_REPLY));
    for (size_t i = 0; i < reply->status_reply->n_events; i++) {
        const WIRE(EventView) *event = reply->status_reply->events[i];
        if (strcmp(event->kind, kind) != 0)
            continue;
        free(text);
        text = strdup(event->text);
    }
    message_free(reply);
    end_close(asking);
    return text;
}

/* Starts an elastic job of three workers on the only lane. */
static struct trained start(struct rig *rig, struct end **ret_zero)
{
    struct trained job = {.reference = 1, .begun_ns = 77};
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct member m =
            members_join(rig, (struct joining){.rank = rank, .workers = 3, .continues = true});
        members_declared(m.end, members_declare(m.end, "w", NULL), NULL);
        job.job = m.job;
        if (rank == 0)
            *ret_zero = m.end;
    }
    return job;
}

static struct trained start_measured(struct rig *rig, struct end **ret_zero)
{
    struct end *aggregator = rig_aggregator(rig, 1);
    struct trained job = start(rig, ret_zero);
    job.lane = aggregator->lanes[0];
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 10 * NS_PER_MS);
    aggregator->answers = true;
    return job;
}

/* Three workers share 90 ms of computing. The lane time of a round is 10 ms, and grows with the
 * number of workers. With two workers a round has 135 ms of computing and 6.7 ms of lane time. */
static void the_job_that_would_shrink_is_named_with_both_speeds(void **state)
{
    struct rig *rig = *state;
    struct end *zero, *other;
    start_measured(rig, &zero);
    members_told(zero);
    trained_start(rig, "late", &other);
    char *text = newest_event(rig, "shrink");
    assert_non_null(text);
    assert_non_null(strstr(text, "job late does not fit: job resnet would release a worker"));
    assert_non_null(strstr(text, "7.06 rounds a second instead of 10.00"));
    free(text);
    end_expect_none(zero, BODY(MEMBERSHIP)); /* the job receives no request to shrink */
}

static void a_job_that_is_not_measured_or_was_just_changed_gives_no_worker(void **state)
{
    struct rig *rig = *state;
    struct end *zero, *other;
    rig_aggregator(rig, 1);
    start(rig, &zero);
    trained_start(rig, "late", &other);
    assert_null(newest_event(rig, "shrink"));
    rig_start_afresh(rig);
    start_measured(rig, &zero);
    members_resize(zero, 2);
    trained_start(rig, "late", &other);
    assert_null(newest_event(rig, "shrink"));
}

static void without_such_jobs_no_line_is_logged(void **state)
{
    struct rig *rig = *state;
    struct end *workers[2], *aggregator = rig_aggregator(rig, 1);
    struct trained job = trained_start(rig, "rigid", &workers[0]);
    aggregator->answers = false;
    trained_run(aggregator, &job, 12, 100 * NS_PER_MS, 10 * NS_PER_MS);
    aggregator->answers = true;
    trained_start(rig, "late", &workers[1]);
    assert_null(newest_event(rig, "shrink"));
}

static void with_free_room_no_job_is_named(void **state)
{
    struct rig *rig = *state;
    struct end *zero, *other;
    start_measured(rig, &zero);
    rig_aggregator(rig, 1);
    trained_start(rig, "late", &other);
    assert_null(newest_event(rig, "shrink"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, measure_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_job_that_would_shrink_is_named_with_both_speeds),
        CASE(a_job_that_is_not_measured_or_was_just_changed_gives_no_worker),
        CASE(without_such_jobs_no_line_is_logged),
        CASE(with_free_room_no_job_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
