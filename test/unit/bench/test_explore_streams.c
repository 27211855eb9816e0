/* Tests streams of trials and their policies (`gradpool-bench explore --simulate`): random draws,
 * the search, fixed queues, files, and a short run of all policies. */
#include "bench/explore/explore.h"
#include "bench/explore/input/stages.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_TEMPLATE "explore_streams_XXXXXX"

static char path[64];

static const char *write_file(const char *text)
{
    snprintf(path, sizeof path, "%s", PATH_TEMPLATE);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return path;
}

/* --- draws --- */

static struct trial_stream first_stream(void)
{
    struct trial_stream streams[STREAMS_MAX];
    assert_int_equal(stream_defaults(streams), 6);
    return streams[0];
}

static void the_same_seed_draws_the_same_trials(void **state)
{
    struct trial_stream stream = first_stream();
    struct trial *a = trial_draw(&stream, 3, NULL), *b = trial_draw(&stream, 3, NULL);
    struct trial *other = trial_draw(&stream, 4, NULL);
    assert_memory_equal(a, b, stream.trials * sizeof *a);
    assert_memory_not_equal(a, other, stream.trials * sizeof *a);
    free(a);
    free(b);
    free(other);
}

static void trials_keep_to_their_distribution(void **state)
{
    struct trial_stream stream = first_stream();
    struct trial *trials = trial_draw(&stream, 1, NULL);
    double asked_s = 0, part = 1;
    for (uint32_t i = 0; i < stream.trials; i++) {
        const struct trial *t = &trials[i];
        double one_s = 1 / trial_speed(t, 1), whole_s = trial_steps(t) * one_s;
        assert_true(one_s >= 0.1 && one_s <= 1);
        assert_true(t->workers_max >= 7 && t->workers_max <= 8);
        assert_true(whole_s > 590 && whole_s < 3601);
        assert_true(t->rungs[0] >= 1 && t->rungs[0] < t->rungs[1] && t->rungs[1] < t->rungs[2]);
        assert_true(i == 0 || t->submit_s >= trials[i - 1].submit_s);
        double expected = t->rungs[0];
        part = 1;
        for (size_t r = 1; r < TRIAL_RUNGS; r++)
            expected += (part /= 2) * (t->rungs[r] - t->rungs[r - 1]);
        asked_s += expected / trial_speed(t, stream.ask) * stream.ask;
    }
    double load = asked_s / (trials[stream.trials - 1].submit_s * stream.slots);
    /* the trials arrive in 25 bursts with exponential gaps; the mean load is 0.8 */
    assert_true(load > 0.5 && load < 1.2);
    free(trials);
}

static void half_of_the_reports_of_a_rung_go_on(void **state)
{
    struct trial_search search;
    assert_int_equal(trial_search_init(&search, 8), 0);
    assert_true(trial_search_keeps(&search, 0, 0.9));
    assert_true(trial_search_keeps(&search, 0, 0.8));
    /* with fewer than four reports no trial ends */
    assert_true(trial_search_keeps(&search, 0, 0.7));
    assert_false(trial_search_keeps(&search, 0, 0.95));
    assert_true(
        trial_search_keeps(&search, 0, 0.8)); /* the third smallest of five values is still kept */
    assert_false(trial_search_keeps(&search, 0, 0.85));
    assert_true(trial_search_keeps(&search, 1, 5)); /* a report of another rung */
    trial_search_fini(&search);
}

/* --- fixed queues --- */

static void fifo_keeps_the_order_and_greedy_does_not(void **state)
{
    struct fixed_queue fifo, greedy;
    uint32_t ids[4];
    fixed_init(&fifo, FIXED_FIFO, 4);
    fixed_init(&greedy, FIXED_GREEDY, 4);
    for (uint32_t id = 0; id < 3; id++) {
        assert_int_equal(fixed_submit(&fifo, id, id == 1 ? 4 : 1, 4), 0);
        assert_int_equal(fixed_submit(&greedy, id, id == 1 ? 4 : 1, 4), 0);
    }
    assert_int_equal(fixed_submit(&fifo, 3, 5, 4), -ENOSPC);
    assert_int_equal(fixed_pass(&fifo, ids), 1);
    assert_int_equal(fixed_pass(&greedy, ids), 2);
    assert_int_equal(ids[1], 2);
    fixed_fini(&fifo);
    fixed_fini(&greedy);
}

static void a_stage_that_waited_for_five_passes_gets_free_slots_first(void **state)
{
    struct fixed_queue queue;
    uint32_t ids[16], next = 1;
    fixed_init(&queue, FIXED_PRIORITY, 4);
    queue.free = 2;
    assert_int_equal(fixed_submit(&queue, 0, 4, 4), 0);
    for (int pass = 0; pass < 5; pass++) {
        assert_int_equal(fixed_submit(&queue, next++, 1, 4), 0);
        assert_int_equal(fixed_pass(&queue, ids),
                         1); /* jobs with few workers overtake the job with many workers */
        queue.free++;
    }
    assert_int_equal(fixed_submit(&queue, next++, 1, 4), 0);
    /* all cores are reserved for the job that waits too long */
    assert_int_equal(fixed_pass(&queue, ids), 0);
    queue.free = 4;
    assert_int_equal(fixed_pass(&queue, ids), 1);
    assert_int_equal(ids[0], 0);
    fixed_fini(&queue);
}

/* --- files --- */

static void streams_come_from_a_file(void **state)
{
    struct trial_stream streams[STREAMS_MAX];
    size_t count = 0;
    char error[256] = "";
    const char *file = write_file("{\"constants\": {\"start_s\": 7}, \"streams\": ["
                                  "{\"name\": \"a\", \"arrivals\": \"batch\", \"trials\": 9, "
                                  "\"slots\": 3, \"static_w\": [1, 2], \"resize_s\": 0.5}]}");
    int r = stream_read(file, streams, &count, error, sizeof error);
    unlink(file);
    assert_int_equal(r, 0);
    assert_int_equal(count, 1);
    assert_string_equal(streams[0].name, "a");
    assert_int_equal(streams[0].trials, 9);
    assert_true(streams[0].costs.start_s == 7 && streams[0].costs.resize_s == 0.5);
}

static void a_broken_file_of_streams_is_named(void **state)
{
    static const struct {
        const char *text, *error;
    } files[] = {
        {"{", ":1: "},
        {"{}", "expected an array `streams`"},
        {"{\"streams\": [{\"name\": \"a\", \"arrivals\": \"tide\", \"static_w\": [1]}]}",
         "stream 0: arrivals: expected poisson, batch or trace"},
        {"{\"streams\": [{\"name\": \"a\", \"arrivals\": \"batch\", \"static_w\": [99]}]}",
         "stream 0: static_w: "},
        {"{\"streams\": [{\"name\": \"a\", \"arrivals\": \"batch\", \"static_w\": [1], "
         "\"slots\": \"many\"}]}",
         "stream 0: slots: expected a number from 1 to 10000"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct trial_stream streams[STREAMS_MAX];
        size_t count = 0;
        char error[256] = "";
        const char *file = write_file(files[i].text);
        int r = stream_read(file, streams, &count, error, sizeof error);
        unlink(file);
        assert_int_equal(r, -EINVAL);
        if (!strstr(error, files[i].error))
            fail_msg("'%s' does not contain '%s'", error, files[i].error);
    }
}

static void the_arrivals_of_a_trace_begin_at_its_first_wide_job(void **state)
{
    struct stream_trace trace = {0};
    char error[512] = "";
    const char *file = write_file("submit_s,workers,carry\n0,8,1\n5,1,0\n10,2,0\n14,4,0\n");
    int r = stream_read_trace(file, &trace, error, sizeof error);
    unlink(file);
    assert_int_equal(r, 0);
    assert_int_equal(trace.count, 2);
    assert_true(trace.submit_s[0] == 0 && trace.submit_s[1] == 4);
    free(trace.submit_s);
}

static void a_broken_trace_is_named(void **state)
{
    static const char *const files[] = {"submit_s,workers\n1,2\n", "submit_s,workers,carry\n",
                                        "submit_s,workers,carry\n9,2,0\n8,2,0\n",
                                        "submit_s,workers,carry\nsoon,2,0\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct stream_trace trace = {0};
        char error[512] = "";
        const char *file = write_file(files[i]);
        assert_true(stream_read_trace(file, &trace, error, sizeof error) < 0);
        unlink(file);
        assert_true(strlen(error) > 0);
        assert_null(trace.submit_s);
    }
}

/* --- runs --- */

static const struct world_figures *figures_named(const struct explore_rows *rows, const char *name)
{
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(rows->rows[i].policy.name, name) == 0)
            return &rows->rows[i].figures;
    fail_msg("no policy %s", name);
    return NULL;
}

static void a_quick_run_gives_feedback_earlier_than_any_fixed_number_of_workers(void **state)
{
    struct trial_stream stream = first_stream();
    struct explore_rows rows;
    stream.trials = 120;
    stream.seeds = 1;
    assert_int_equal(explore_run(&stream, NULL, &rows), 0);
    const struct world_figures *rest = figures_named(&rows, "rest");
    for (size_t i = 0; i < rows.count; i++) {
        const struct world_figures *f = &rows.rows[i].figures;
        assert_true(f->slot_use > 0 && f->slot_use <= 1);
        assert_true(f->feedback_p50_s <= f->feedback_p95_s && f->feedback_p95_s < f->makespan_s);
        if (rows.rows[i].policy.is_fixed)
            assert_true(rest->feedback_p95_s < f->feedback_p95_s && rest->speed > f->speed);
    }
    assert_true(rest->waits_over + rest->rests_over == 0);
    assert_true(figures_named(&rows, "eps")->speed > figures_named(&rows, "noreuse")->speed);
    assert_true(rest->speed > figures_named(&rows, "restart-30/60")->speed);
}

static void the_same_run_gives_the_same_figures(void **state)
{
    struct trial_stream streams[STREAMS_MAX];
    struct explore_rows first, second;
    stream_defaults(streams);
    streams[4].seeds = 2;
    assert_int_equal(explore_run(&streams[4], NULL, &first), 0);
    assert_int_equal(explore_run(&streams[4], NULL, &second), 0);
    for (size_t i = 0; i < first.count; i++)
        assert_memory_equal(&first.rows[i].figures, &second.rows[i].figures,
                            sizeof first.rows[i].figures);
}

static void a_stage_starts_within_its_bound_and_not_after_the_priority_rule(void **state)
{
    struct trial_stream stream = stages_stream();
    struct explore_rows rows;
    stream.trials = 200;
    stream.seeds = 1;
    assert_int_equal(explore_run_stages(&stream, &rows), 0);
    const struct world_figures *rest = figures_named(&rows, "rest");
    assert_true(rest->bound_use <= 1);
    assert_true(rest->stage_wait_mean_s <= figures_named(&rows, "priority")->stage_wait_mean_s);
}

static void decisions_beside_many_jobs_are_timed(void **state)
{
    struct decisions d = {0};
    assert_int_equal(decisions_measure(200, 128, 500, 1, &d), 0);
    assert_int_equal(d.count, 500);
    assert_true(d.p50_us > 0 && d.p50_us <= d.p99_us && d.p99_us <= d.max_us);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_same_seed_draws_the_same_trials),
        cmocka_unit_test(trials_keep_to_their_distribution),
        cmocka_unit_test(half_of_the_reports_of_a_rung_go_on),
        cmocka_unit_test(fifo_keeps_the_order_and_greedy_does_not),
        cmocka_unit_test(a_stage_that_waited_for_five_passes_gets_free_slots_first),
        cmocka_unit_test(streams_come_from_a_file),
        cmocka_unit_test(a_broken_file_of_streams_is_named),
        cmocka_unit_test(the_arrivals_of_a_trace_begin_at_its_first_wide_job),
        cmocka_unit_test(a_broken_trace_is_named),
        cmocka_unit_test(a_quick_run_gives_feedback_earlier_than_any_fixed_number_of_workers),
        cmocka_unit_test(the_same_run_gives_the_same_figures),
        cmocka_unit_test(a_stage_starts_within_its_bound_and_not_after_the_priority_rule),
        cmocka_unit_test(decisions_beside_many_jobs_are_timed),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
