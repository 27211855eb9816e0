/* Tests how operators see the counts of a job with backup workers: the copy of the counts, their
 * text, JSON and metrics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/ops/answer/answer.h"
#include "svc/ops/snapshot/counts.h"
#include "svc/ops/web/metrics_counts.h"

#include <stdlib.h>
#include <string.h>

#define WIRE(type) Gradpool__Wire__##type
#define RANKS 4

static uint64_t reasons[VIEW_REASONS], counted[RANKS], dropped[RANKS], scale_ns[RANKS];

/* Returns counts of ten rounds of ranks 0, 1 and 3. Rank 2 never joined. */
static WIRE(RoundCounts) ten_rounds(void)
{
    WIRE(RoundCounts) counts = GRADPOOL__WIRE__ROUND_COUNTS__INIT;
    memcpy(reasons, (uint64_t[]){5, 3, 1, 1, 0}, sizeof reasons);
    memcpy(counted, (uint64_t[]){10, 10, 0, 5}, sizeof counted);
    memcpy(dropped, (uint64_t[]){0, 0, 0, 5}, sizeof dropped);
    memcpy(scale_ns, (uint64_t[]){20000000, 0, 0, 100000000}, sizeof scale_ns);
    counts.rounds = 10;
    counts.gradients = 25;
    counts.reasons = reasons;
    counts.counted = counted;
    counts.dropped = dropped;
    counts.scale_ns = scale_ns;
    counts.n_reasons = VIEW_REASONS;
    counts.n_counted = counts.n_dropped = counts.n_scale_ns = RANKS;
    return counts;
}

static struct view_counts *view_of(const WIRE(RoundCounts) * counts)
{
    struct view_counts *view;
    assert_int_equal(counts_view(counts, &view), 0);
    return view;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in %s", part, text);
}

static struct view_worker workers[] = {
    {.rank = 0, .node = "a", .state = "joined"}, {.rank = 3, .node = "b", .state = "joined"}, {0}};

static struct view_job job_with(struct view_counts *counts)
{
    return (struct view_job){.tenant = "acme",
                             .job = "resnet",
                             .job_id = 3,
                             .state = "training",
                             .workers = RANKS,
                             .ranks = workers,
                             .counts = counts};
}

/* Returns the output of one of the functions of answer.h. The caller frees it. */
#define output_of(print, ...)                          \
    ({                                                 \
        char *text_;                                   \
        size_t bytes_;                                 \
        FILE *out_ = open_memstream(&text_, &bytes_);  \
        assert_int_equal(print(__VA_ARGS__, out_), 0); \
        fclose(out_);                                  \
        text_;                                         \
    })

static void a_copy_has_the_ranks_that_were_there(void **state)
{
    WIRE(RoundCounts) counts = ten_rounds();
    struct view_counts *view = view_of(&counts);
    assert_int_equal(view->ranks_count, 3);
    assert_int_equal(view->ranks[2].rank, 3);
    assert_int_equal(view->ranks[2].dropped, 5);
    assert_true(counts_k_mean(view) == 2.5);
    assert_true(counts_dropped_share(view) == 5.0 / 30);
    free(view);
}

static void a_message_without_whole_lists_has_no_copy(void **state)
{
    WIRE(RoundCounts) counts = ten_rounds();
    assert_null(view_of(NULL));
    counts.n_dropped--;
    assert_null(view_of(&counts));
    counts = ten_rounds();
    counts.n_reasons--;
    assert_null(view_of(&counts));
    counts = ten_rounds();
    counts.n_scale_ns = 0;
    assert_null(view_of(&counts));
    counts = ten_rounds();
    counts.rounds = 0;
    assert_null(view_of(&counts));
}

static void jobs_are_shown_with_mean_k_and_share_dropped(void **state)
{
    WIRE(RoundCounts) counts = ten_rounds();
    struct view_job both[] = {job_with(view_of(&counts)), job_with(NULL)};
    char *text = output_of(ops_jobs_table, (&(struct view_jobs){both, 2}));
    has(text, "   K  DROPPED  LANES\n");
    has(text, " 2.5   16.7 %");
    has(text, "   -        -");
    free(text);
    text = output_of(ops_jobs_table, (&(struct view_jobs){&both[1], 1}));
    assert_null(strstr(text, "DROPPED"));
    free(text);
    free(both[0].counts);
}

static void one_job_is_shown_with_the_counts_of_its_ranks(void **state)
{
    WIRE(RoundCounts) counts = ten_rounds();
    struct view_job job = job_with(view_of(&counts));
    char *text = output_of(ops_job_table, &job);
    has(text, "backup workers: 10 rounds of 2.50 gradients, 16.67 % dropped\n");
    has(text, "rounds by reason of their close: all 5, gain 3, moment 1, absence 1, replay 0\n");
    has(text, "COUNTED  DROPPED   SHARE  GRADIENT\n");
    has(text, " 10        0   0.0 %   20.0 ms\n");
    has(text, "  5        5  50.0 %  100.0 ms\n");
    free(text);
    free(job.counts);
}

static void json_has_the_counts(void **state)
{
    WIRE(RoundCounts) counts = ten_rounds();
    struct view_job job = job_with(view_of(&counts));
    char *text = output_of(ops_jobs_json, (&(struct view_jobs){&job, 1}));
    has(text, "\"rounds\": 10");
    has(text, "\"k_mean\": 2.5");
    has(text, "\"dropped_share\": 0.1666");
    has(text, "\"absence\": 1");
    has(text, "\"scale_ns\": 100000000");
    free(text);
    free(job.counts);
}

static void explain_shows_the_counts(void **state)
{
    WIRE(RoundCounts) counts = ten_rounds();
    WIRE(JobUse) use = GRADPOOL__WIRE__JOB_USE__INIT;
    WIRE(JobView) view = GRADPOOL__WIRE__JOB_VIEW__INIT;
    WIRE(ExplainedJob) explained = GRADPOOL__WIRE__EXPLAINED_JOB__INIT, *jobs[] = {&explained};
    WIRE(ExplainReply) reply = GRADPOOL__WIRE__EXPLAIN_REPLY__INIT;
    use.counts = &counts;
    view.use = &use;
    explained.job = &view;
    reply.jobs = jobs;
    reply.n_jobs = 1;
    char *text = output_of(ops_explain_text, &reply);
    has(text, "backup workers: 10 rounds of 2.50 gradients, 16.67 % dropped\n");
    has(text, "RANK  COUNTED  DROPPED   SHARE  GRADIENT\n");
    has(text, "   1       10        0   0.0 %         -\n");
    free(text);
    text = output_of(ops_explain_json, &reply);
    has(text, "\"dropped_share\": 0.1666");
    free(text);
    use.counts = NULL;
    text = output_of(ops_explain_text, &reply);
    assert_null(strstr(text, "backup workers"));
    free(text);
}

static void metrics_have_a_series_for_each_rank_and_reason(void **state)
{
    WIRE(RoundCounts) counts = ten_rounds();
    struct view_job job = job_with(view_of(&counts));
    struct snapshot s = {.jobs = {&job, 1}};
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(metrics_print_counts(&s, out), 3);
    fclose(out);
    has(text,
        "gradpool_job_closed_rounds_total{tenant=\"acme\",job=\"resnet\",reason=\"gain\"} 3\n");
    has(text,
        "gradpool_job_rank_dropped_rounds_total{tenant=\"acme\",job=\"resnet\",rank=\"3\"} 5\n");
    has(text,
        "gradpool_job_rank_gradient_seconds{tenant=\"acme\",job=\"resnet\",rank=\"3\"} 0.1\n");
    assert_null(strstr(text, "gradient_seconds{tenant=\"acme\",job=\"resnet\",rank=\"1\"}"));
    free(text);
    free(job.counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_has_the_ranks_that_were_there),
        cmocka_unit_test(a_message_without_whole_lists_has_no_copy),
        cmocka_unit_test(jobs_are_shown_with_mean_k_and_share_dropped),
        cmocka_unit_test(one_job_is_shown_with_the_counts_of_its_ranks),
        cmocka_unit_test(json_has_the_counts),
        cmocka_unit_test(explain_shows_the_counts),
        cmocka_unit_test(metrics_have_a_series_for_each_rank_and_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
