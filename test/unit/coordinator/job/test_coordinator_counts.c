/* Tests the counts of jobs with backup workers: the sum of the counts over all lanes, and the
 * warning about a rank whose gradients are often dropped. The lanes are simulated. */
#include "svc/base/log.h"
#include "svc/coordinator/job/counts.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/service.h"
#include "svc/wire/record.h"
#include "test/unit/coordinator/measure_rig.h"

#include <stdlib.h>
#include <string.h>

#define WORKERS 1 /* number of workers of the job that trained_start() starts */

static unsigned warnings;

static void count_warnings(enum log_level level, const char *line)
{
    warnings += level == LOG_LEVEL_WARN && strstr(line, "was dropped in") != NULL;
}

static int counts_setup(void **state)
{
    int error = measure_setup(state);
    warnings = 0;
    log_set_hook(count_warnings);
    return error;
}

static void *take(void *context, size_t bytes)
{
    (void)context;
    return calloc(1, bytes);
}

/* Counts of one rank in a lane's answer. */
struct sent {
    uint64_t reasons[RECORD_REASONS], counted, dropped, scale_ns;
    WIRE(RoundCounts) message;
};

static void sent_fill(struct sent *s, uint64_t counted, uint64_t dropped)
{
    *s = (struct sent){.counted = counted, .dropped = dropped, .scale_ns = 7};
    gradpool__wire__round_counts__init(&s->message);
    s->reasons[RECORD_REASON_ALL] = counted;
    s->reasons[RECORD_REASON_GAIN] = dropped;
    s->message.rounds = counted + dropped;
    s->message.gradients = counted;
    s->message.reasons = s->reasons;
    s->message.n_reasons = RECORD_REASONS;
    s->message.counted = &s->counted;
    s->message.dropped = &s->dropped;
    s->message.scale_ns = &s->scale_ns;
    s->message.n_counted = s->message.n_dropped = s->message.n_scale_ns = WORKERS;
}

static struct job *only_job(struct rig *rig)
{
    return list_entry(rig->coordinator->service->jobs.next, struct job, link);
}

/* Sends the last counts of a lane that no longer serves the job. */
static void leave(struct job *job, uint64_t counted, uint64_t dropped)
{
    struct sent s;
    sent_fill(&s, counted, dropped);
    counts_leave(job, &s.message);
}

static void expect_sum(const struct job *job, uint64_t counted, uint64_t dropped)
{
    WIRE(RoundCounts) *sum = malloc(sizeof *sum);
    assert_non_null(sum);
    gradpool__wire__round_counts__init(sum);
    assert_int_equal(counts_sum(job, take, NULL, sum), counted + dropped > 0);
    assert_int_equal(sum->rounds, counted + dropped);
    if (counted + dropped > 0) {
        assert_int_equal(sum->counted[0], counted);
        assert_int_equal(sum->dropped[0], dropped);
        assert_int_equal(sum->reasons[RECORD_REASON_GAIN], dropped);
    }
    gradpool__wire__round_counts__free_unpacked(sum, NULL);
}

static struct job *job_of(struct rig *rig)
{
    struct end *worker;
    rig_aggregator(rig, 2);
    trained_start(rig, "resnet", &worker);
    return only_job(rig);
}

static void counts_of_lanes_that_the_job_has_left_remain(void **state)
{
    struct job *job = job_of(*state);
    expect_sum(job, 0, 0);
    leave(job, 10, 3);
    leave(job, 5, 1);
    counts_leave(job, NULL);
    expect_sum(job, 15, 4);
}

static void lists_of_other_lengths_are_ignored(void **state)
{
    struct job *job = job_of(*state);
    struct sent s;
    sent_fill(&s, 10, 0);
    s.message.n_dropped = 0;
    counts_leave(job, &s.message);
    sent_fill(&s, 10, 0);
    s.message.n_reasons = RECORD_REASONS - 1;
    counts_leave(job, &s.message);
    uint64_t more[WORKERS + 1] = {1};
    sent_fill(&s, 10, 0);
    s.message.counted = s.message.dropped = s.message.scale_ns = more;
    s.message.n_counted = s.message.n_dropped = s.message.n_scale_ns = WORKERS + 1;
    counts_leave(job, &s.message);
    expect_sum(job, 0, 0);
}

static void a_rank_that_is_dropped_in_half_of_the_rounds_is_named_once(void **state)
{
    struct job *job = job_of(*state);
    leave(job, COUNTS_WINDOW / 2, COUNTS_WINDOW / 2 - 1);
    counts_look(job);
    assert_int_equal(warnings, 0); /* too few rounds */
    leave(job, 0, 1);
    counts_look(job);
    assert_int_equal(warnings, 1);
    leave(job, 0, 2 * COUNTS_WINDOW);
    counts_look(job);
    assert_int_equal(warnings, 1);
}

/* A rank that becomes slow late in the training is named, although most rounds of the job contain
 * its gradient. */
static void only_the_last_rounds_count_for_the_warning(void **state)
{
    struct job *job = job_of(*state);
    leave(job, 100 * COUNTS_WINDOW, 0);
    counts_look(job);
    leave(job, COUNTS_WINDOW / 2 + 1, COUNTS_WINDOW / 2 - 1);
    counts_look(job);
    assert_int_equal(warnings, 0);
    leave(job, COUNTS_WINDOW / 2, COUNTS_WINDOW / 2);
    counts_look(job);
    assert_int_equal(warnings, 1);
}

#define test(name) cmocka_unit_test_setup_teardown(name, counts_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(counts_of_lanes_that_the_job_has_left_remain),
        test(lists_of_other_lengths_are_ignored),
        test(a_rank_that_is_dropped_in_half_of_the_rounds_is_named_once),
        test(only_the_last_rounds_count_for_the_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
