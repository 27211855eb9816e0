/* Tests the metrics and the web page, with all kinds of names that users may choose, and with many
 * objects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/ops/report/chart.h"
#include "svc/ops/report/page.h"
#include "svc/ops/report/report.h"
#include "svc/ops/snapshot/ended.h"
#include "svc/ops/snapshot/figures.h"
#include "svc/ops/web/metrics.h"
#include "test/unit/ops/snapshot_rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no %s in %.4000s", part, text);
}

static char *metrics_of(const struct snapshot *s)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(metrics_print(s, "1.2.3", out), 0);
    fclose(out);
    return text;
}

static char *page_of(const struct snapshot *s, const struct history *history)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(report_page(s, history, out), 0);
    fclose(out);
    return text;
}

static struct snapshot *snapshot_of(const struct rig_service *before,
                                    const struct rig_service *after)
{
    struct snapshot *old = rig_snapshot(before), *now = rig_snapshot(after);
    snapshot_compare(old, now);
    snapshot_destroy(old);
    return now;
}

static struct snapshot *usual(void)
{
    struct rig_service before = rig_before(), after = rig_after();
    return snapshot_of(&before, &after);
}

static size_t lines_with(const char *text, const char *part)
{
    size_t count = 0, bytes = strlen(part);
    const char *end = text + strlen(text);
    /* the search uses lengths, because with a sanitizer each string function would read the whole
     * text */
    for (const char *line = text, *newline; line < end; line = newline ? newline + 1 : end) {
        newline = memchr(line, '\n', (size_t)(end - line));
        count += bytes <= (size_t)(end - line) && memcmp(line, part, bytes) == 0;
    }
    return count;
}

static void counters_are_in_base_units_with_tenant_job_and_lane(void **state)
{
    struct snapshot *s = usual();
    char *text = metrics_of(s);
    has(text, "# TYPE gradpool_lane_cpu_seconds_total counter\n");
    has(text, "gradpool_lane_cpu_seconds_total{lane=\"7\"} 2\n");
    has(text, "gradpool_lane_rounds_total{lane=\"7\"} 2200\n");
    has(text, "gradpool_lane_job_taken_bytes_total{lane=\"9\",tenant=\"acme\",job=\"three\"} "
              "2097152\n");
    has(text, "gradpool_job_cores_allocated{tenant=\"acme\",job=\"three\"} 1.25\n");
    has(text, "gradpool_cores_saved 6\n");
    has(text, "gradpool_jobs{state=\"training\"} 2\n");
    free(text);
    snapshot_destroy(s);
}

static void every_family_has_one_help_and_one_type_before_its_samples(void **state)
{
    struct snapshot *s = usual();
    char *text = metrics_of(s);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && *line;) {
        char name[128], key[160];
        if (*line == '#')
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "{ "), line);
        char *again = metrics_of(s);
        snprintf(key, sizeof key, "# HELP %s ", name);
        assert_int_equal(lines_with(again, key), 1);
        snprintf(key, sizeof key, "# TYPE %s ", name);
        assert_int_equal(lines_with(again, key), 1);
        assert_true(strstr(again, key) < strstr(again, line));
        free(again);
    }
    free(text);
    snapshot_destroy(s);
}

static void figures_that_are_not_known_have_no_sample(void **state)
{
    struct rig_service now = rig_before();
    struct snapshot *s = rig_snapshot(&now);
    snapshot_compare(NULL, s);
    char *text = metrics_of(s);
    assert_null(strstr(text, "gradpool_cores_used"));
    assert_null(strstr(text, "gradpool_job_cores_used"));
    assert_null(strstr(text, "gradpool_job_period_seconds"));
    assert_null(strstr(text, " nan"));
    free(text);
    snapshot_destroy(s);
}

/* After a start of the coordinator, a reader would take a value of 0 for a restart of the
 * counter. */
static void lanes_without_a_report_have_no_counters(void **state)
{
    struct rig_service now = rig_before();
    now.told_nothing = true;
    struct snapshot *s = rig_snapshot(&now);
    snapshot_compare(NULL, s);
    char *text = metrics_of(s);
    has(text, "gradpool_lane_tasks{lane=\"7\"} 0\n");
    assert_null(strstr(text, "gradpool_aggregator_cpu_seconds_total{"));
    assert_null(strstr(text, "gradpool_lane_cpu_seconds_total{"));
    assert_null(strstr(text, "gradpool_lane_busy_seconds_total{"));
    assert_null(strstr(text, "gradpool_lane_rounds_total{"));
    assert_null(strstr(text, "gradpool_lane_taken_bytes_total{"));
    assert_null(strstr(text, "gradpool_lane_memory_bytes{"));
    free(text);
    snapshot_destroy(s);
}

static void names_are_escaped_in_labels_and_on_the_page(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    struct history history = {0};
    before.job = after.job = "a\"b\\c\nd<script>&'";
    struct snapshot *s = snapshot_of(&before, &after);
    char *text = metrics_of(s);
    has(text, "{tenant=\"acme\",job=\"a\\\"b\\\\c\\nd<script>&'\"}");
    free(text);
    text = page_of(s, &history);
    has(text, "acme/a&quot;b\\c\nd&lt;script&gt;&amp;&#39;");
    assert_null(strstr(text, "<script>"));
    has(text, "d\\u003cscript>&'\""); /* this is the name's form in the data of the page */
    has(text, "<script type=\"application/json\" id=\"data\">");
    has(text, "}\n</script>\n</body></html>\n");
    free(text);
    snapshot_destroy(s);
}

static void the_shown_rows_are_bounded_and_the_rest_is_counted(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    before.more_jobs = after.more_jobs = METRICS_JOBS_MAX + 500;
    struct snapshot *s = snapshot_of(&before, &after);
    char *text = metrics_of(s);
    assert_int_equal(lines_with(text, "gradpool_job_workers{"), METRICS_JOBS_MAX);
    has(text, "gradpool_left_out{of=\"jobs\"} 502\n");
    has(text, "gradpool_left_out{of=\"lanes\"} 0\n");
    free(text);
    snapshot_destroy(s);
}

static void jobs_on_lanes_are_bounded_together(void **state)
{
    enum { PARTS = 3, LANES = METRICS_LANE_JOBS_MAX / PARTS + 100 };
    struct view_job jobs[PARTS];
    struct view_part parts[PARTS];
    struct view_lane *lanes = calloc(LANES, sizeof *lanes), **list = calloc(LANES, sizeof *list);
    assert_true(lanes && list);
    for (uint32_t i = 0; i < PARTS; i++) {
        jobs[i] = (struct view_job){.job = "j", .state = "training", .job_id = i};
        parts[i] = (struct view_part){.job_id = i};
    }
    for (uint32_t i = 0; i < LANES; i++) {
        lanes[i] =
            (struct view_lane){.state = "open", .lane = i, .parts = parts, .parts_count = PARTS};
        list[i] = &lanes[i];
    }
    struct snapshot s = {.jobs = {jobs, PARTS}, .lanes = list, .lanes_count = LANES};
    char *text = metrics_of(&s);
    assert_int_equal(lines_with(text, "gradpool_lane_job_rounds_total{"), METRICS_LANE_JOBS_MAX);
    has(text, "gradpool_left_out{of=\"lane_jobs\"} 299\n");
    free(text);
    free(lanes);
    free(list);
}

static void the_page_has_tiles_tables_and_a_chart_and_loads_nothing(void **state)
{
    struct snapshot *s = usual();
    struct history history = {0};
    history_add(&history, 1, &s->cores);
    history_add(&history, 2, &s->cores);
    char *text = page_of(s, &history);
    has(text, "<dd id=\"saved\">6</dd>");
    has(text, "<dd id=\"saving\">75.0 %</dd>");
    has(text, "<td class=\"name\">acme/three 75 %, five 25 %</td>");
    has(text, "<path class=\"line dedicated\" d=\"M");
    has(text, "}\n</script>\n</body></html>\n");
    assert_null(strstr(text, "http://"));
    assert_null(strstr(text, "https://"));
    assert_null(strstr(text, "src="));
    free(text);
    snapshot_destroy(s);
}

static void a_chart_of_nothing_or_of_gaps_is_still_a_chart(void **state)
{
    char *text;
    size_t bytes;
    struct history history = {0};
    for (int with = 0; with < 2; with++) {
        struct view_cores cores = {.allocated = 1, .used = NAN, .dedicated = 1e6};
        FILE *out = open_memstream(&text, &bytes);
        if (with)
            history_add(&history, 0, &cores);
        page_chart(history.samples, history.count, out);
        fclose(out);
        has(text, "</svg>");
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "inf"));
        has(text, "<path class=\"line used\" d=\"\"/>");
        free(text);
    }
}

static void a_chart_has_steps_and_no_slopes(void **state)
{
    char *text;
    size_t bytes;
    const struct view_moment moments[] = {{0, {.allocated = 1, .used = 1, .dedicated = 2}},
                                          {100, {.allocated = 4, .used = 1, .dedicated = 2}}};
    FILE *out = open_memstream(&text, &bytes);
    page_chart(moments, 2, out);
    fclose(out);
    /* the line rises at the middle between the two points */
    has(text, "<path class=\"line allocated\" d=\"M44.0 163.5h0H336.0V12.0H628.0\"/>");
    free(text);
}

static void the_name_of_a_job_is_broken_where_it_is_long(void **state)
{
    char name[128];
    struct rig_service before = rig_before(), after = rig_after();
    struct history history = {0};
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    before.job = after.job = name;
    struct snapshot *s = snapshot_of(&before, &after);
    char *text = page_of(s, &history);
    has(text, "<td class=\"name\"><div class=\"long\">acme/nnn");
    has(text, "<td class=\"name\">five</td>");
    free(text);
    snapshot_destroy(s);
}

static void without_jobs_no_saving_is_shown(void **state)
{
    assert_true(isnan(cores_saved(&(struct view_cores){.allocated = 3})));
    assert_true(cores_saved(&(struct view_cores){.allocated = 3, .dedicated = 2}) == -1);
}

static void saved_cores_are_a_mean_over_time(void **state)
{
    struct snapshot *s = usual();
    struct history history = {0};
    struct view_cores mean = {.used = 7};
    assert_false(history_mean(&history, &mean));
    assert_true(mean.used == 7);
    history_add(&history, 1, &(struct view_cores){.allocated = 1, .used = NAN, .dedicated = 4});
    assert_true(history_mean(&history, &mean));
    assert_true(isnan(mean.used));
    history_add(&history, 2, &(struct view_cores){.allocated = 1, .used = 0.5, .dedicated = 2});
    assert_true(history_mean(&history, &mean));
    assert_true(mean.allocated == 1 && mean.used == 0.5 && mean.dedicated == 3);
    history_add(&history, 5, &(struct view_cores){.allocated = 1, .used = 0.5, .dedicated = 4});
    /* the mean is weighted by time: three seconds count three times */
    assert_true(history_mean(&history, &mean));
    assert_true(mean.allocated == 1 && mean.used == 0.5 && mean.dedicated == 3);
    char *text = page_of(s, &history);
    has(text,
        "1.00 cores allocated, 0.50 used; dedicated servers would have used 3.00: 67 % saved");
    has(text, "\"cores_mean\"");
    free(text);
    snapshot_destroy(s);
}

static void jobs_that_have_ended_stay_on_the_page_for_hours(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    struct history history = {0};
    const struct ended *ended = &history.ended;
    before.more_jobs = ENDED_JOBS_MAX + 20;
    struct snapshot *old = rig_snapshot(&before), *now = rig_snapshot(&after);
    double now_s = (double)now->status.uptime_ns / 1e9;
    ended_look(&history.ended, NULL, old);
    ended_look(&history.ended, old, old);
    assert_null(ended_at(ended, 0, now_s));
    ended_look(&history.ended, old, now);
    snapshot_destroy(old); /* the history must have its own copies of names */
    assert_string_equal(ended_at(ended, 0, now_s)->view.job, "job-119");
    assert_string_equal(ended_at(ended, ENDED_JOBS_MAX - 1, now_s)->view.job, "job-20");
    assert_null(ended_at(ended, ENDED_JOBS_MAX, now_s));
    char *text = page_of(now, &history);
    has(text, "<table id=\"ended\">");
    has(text, "job-119</td>");
    has(text, "0 min ago");
    has(text, "\"ended_jobs\"");
    free(text);
    assert_null(ended_at(ended, 0, now_s + ENDED_KEPT_S + 1));
    snapshot_destroy(now);
}

static void the_losses_of_ended_jobs_count_while_they_are_listed(void **state)
{
    struct rig_service before = rig_before(), after = rig_after();
    struct history history = {0};
    before.more_jobs = 2;
    before.loss_ppm = 70000;
    struct snapshot *old = rig_snapshot(&before), *now = rig_snapshot(&after);
    char *text = page_of(now, &history);
    has(text, "No loss is known yet.");
    free(text);
    ended_look(&history.ended, old, now);
    text = page_of(now, &history);
    has(text, "<td class=\"name\">3 to 5 %</td><td id=\"losses-4\">2</td>");
    has(text, "<td>7.0 %</td><td>3.5 %</td><td>3.5 %</td>");
    free(text);
    for (size_t i = 0; i < 2; i++)
        history.ended.jobs[i].at_s -= ENDED_KEPT_S + 1;
    text = page_of(now, &history);
    has(text, "No loss is known yet.");
    free(text);
    snapshot_destroy(old);
    snapshot_destroy(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_are_in_base_units_with_tenant_job_and_lane),
        cmocka_unit_test(every_family_has_one_help_and_one_type_before_its_samples),
        cmocka_unit_test(figures_that_are_not_known_have_no_sample),
        cmocka_unit_test(lanes_without_a_report_have_no_counters),
        cmocka_unit_test(names_are_escaped_in_labels_and_on_the_page),
        cmocka_unit_test(the_shown_rows_are_bounded_and_the_rest_is_counted),
        cmocka_unit_test(jobs_on_lanes_are_bounded_together),
        cmocka_unit_test(the_page_has_tiles_tables_and_a_chart_and_loads_nothing),
        cmocka_unit_test(without_jobs_no_saving_is_shown),
        cmocka_unit_test(jobs_that_have_ended_stay_on_the_page_for_hours),
        cmocka_unit_test(the_losses_of_ended_jobs_count_while_they_are_listed),
        cmocka_unit_test(saved_cores_are_a_mean_over_time),
        cmocka_unit_test(a_chart_has_steps_and_no_slopes),
        cmocka_unit_test(the_name_of_a_job_is_broken_where_it_is_long),
        cmocka_unit_test(a_chart_of_nothing_or_of_gaps_is_still_a_chart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
