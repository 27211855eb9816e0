/* Tests displays of the service's state: when the coordinator calls them, what they receive, and
 * how they end (K18). */
#include "svc/base/clock.h"
#include "test/unit/coordinator/coordinator_rig.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct {
    int fd;
    uint64_t next_ns; /* time returned by run() */
    unsigned runs, shows, ends;
    envelope *status, *jobs; /* last messages passed to a display */
} seen;

static uint64_t run(void *context)
{
    uint64_t ignored;
    ssize_t got = read(seen.fd, &ignored, sizeof ignored);
    (void)got;
    seen.runs++;
    return seen.next_ns;
}

static void forget_shown(void)
{
    if (seen.status)
        message_free(seen.status);
    if (seen.jobs)
        message_free(seen.jobs);
    seen.status = seen.jobs = NULL;
}

static void show(void *context, envelope *status, envelope *jobs)
{
    forget_shown();
    seen.status = status;
    seen.jobs = jobs;
    seen.shows++;
}

static int report(void *context, bool is_json, char **ret_text, size_t *ret_bytes)
{
    if (!seen.status)
        return -ENODATA;
    *ret_text = strdup(is_json ? "{}" : "<p>");
    *ret_bytes = 2;
    return 0;
}

static void end(void *context) { seen.ends++; }

static struct display display(void)
{
    return (struct display){.context = &seen,
                            .fd = seen.fd,
                            .run = run,
                            .show = show,
                            .report = report,
                            .destroy = end};
}

static int setup(void **state)
{
    memset(&seen, 0, sizeof seen);
    seen.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    seen.next_ns = UINT64_MAX;
    rig_setup(state);
    struct rig *rig = *state;
    rig->options.display = display();
    rig_start_afresh(rig);
    return 0;
}

static int teardown(void **state)
{
    rig_teardown(state);
    assert_int_equal(seen.ends, 1);
    forget_shown();
    close(seen.fd);
    return 0;
}

static void until_shown(struct rig *rig, unsigned shows)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (seen.shows < shows) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_step_within(rig, NS_PER_MS);
    }
}

static void a_display_gets_the_jobs_of_all_tenants(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 2);
    rig_join(rig, "resnet", 0, 2, NULL, NULL);
    until_shown(rig, seen.shows + 1);
    assert_int_equal(seen.status->status_reply->n_aggregators, 1);
    assert_int_equal(seen.status->status_reply->aggregators[0]->n_lanes, 2);
    assert_int_equal(seen.status->status_reply->aggregators[0]->aggregator, aggregator->aggregator);
    assert_int_equal(seen.jobs->jobs_reply->n_jobs, 1);
    assert_string_equal(seen.jobs->jobs_reply->jobs[0]->job, "resnet");
    /* The reply has jobs without their ranks and limits. Ranks and limits would be most of the
     * message, and reports do not use them. */
    assert_int_equal(seen.jobs->jobs_reply->jobs[0]->n_ranks, 0);
    assert_int_equal(seen.jobs->jobs_reply->jobs[0]->n_limits, 0);
}

static void figures_of_idle_lanes_are_requested(void **state)
{
    struct rig *rig = *state;
    rig_aggregator(rig, 1);
    for (unsigned shows = seen.shows; shows < 5; shows++) {
        until_shown(rig, shows + 1);
        if (seen.status->status_reply->n_aggregators > 0 &&
            seen.status->status_reply->aggregators[0]->measured_ns > 0)
            return;
    }
    fail_msg("no figures");
}

static void a_snapshot_is_made_once_a_second_at_most(void **state)
{
    struct rig *rig = *state;
    until_shown(rig, 1);
    uint64_t began_ns = clock_now_ns();
    until_shown(rig, 3);
    assert_true(clock_now_ns() - began_ns >= NS_PER_S);
}

static void a_display_runs_on_its_descriptor_and_at_its_time(void **state)
{
    struct rig *rig = *state;
    uint64_t one = 1;
    rig_settle(rig);
    assert_int_equal(seen.runs, 0);
    seen.next_ns = clock_now_ns() + 20 * NS_PER_MS;
    assert_int_equal(write(seen.fd, &one, sizeof one), sizeof one);
    while (seen.runs < 1)
        rig_step_within(rig, NS_PER_MS);
    uint64_t wanted_ns = seen.next_ns;
    seen.next_ns = UINT64_MAX;
    while (seen.runs < 2)
        rig_step_within(rig, NS_PER_MS);
    assert_true(clock_now_ns() >= wanted_ns);
    rig_settle(rig);
    assert_int_equal(seen.runs, 2);
}

static void an_operator_gets_a_report_of_now(void **state)
{
    struct rig *rig = *state;
    WIRE(ReportRequest) ask = GRADPOOL__WIRE__REPORT_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    rig_aggregator(rig, 2);
    struct end *asking = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    request.body_case = BODY(REPORT_REQUEST);
    request.report_request = &ask;
    until_shown(rig, 1);
    for (int json = 0; json < 2; json++) {
        ask.json = json;
        envelope *reply = end_ask(asking, &request);
        assert_int_equal(reply->body_case, BODY(REPORT_REPLY));
        assert_int_equal(reply->report_reply->text.len, 2);
        assert_memory_equal(reply->report_reply->text.data, json ? "{}" : "<p>", 2);
        message_free(reply);
    }
}

static void a_failed_start_frees_the_display(void **state)
{
    struct coordinator *none = NULL;
    struct err err;
    memset(&seen, 0, sizeof seen);
    /* the first start fails before the service runs, the second start fails while it runs */
    for (unsigned i = 0; i < 2; i++) {
        struct coordinator_options options = {.state_dir = "/proc/none",
                                              .listen = i ? "gradpool://127.0.0.1:0" : "http://x",
                                              .display = display()};
        assert_true(coordinator_create(&options, &none, &err) < 0);
        assert_int_equal(seen.ends, i + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_display_gets_the_jobs_of_all_tenants, setup, teardown),
        cmocka_unit_test_setup_teardown(figures_of_idle_lanes_are_requested, setup, teardown),
        cmocka_unit_test_setup_teardown(a_snapshot_is_made_once_a_second_at_most, setup, teardown),
        cmocka_unit_test_setup_teardown(a_display_runs_on_its_descriptor_and_at_its_time, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_operator_gets_a_report_of_now, setup, teardown),
        cmocka_unit_test(a_failed_start_frees_the_display),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
