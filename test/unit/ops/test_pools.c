/* Tests how operators see sites and jobs of pools: the copy of a message, its text, JSON and
 * metrics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/ops/answer/answer.h"
#include "svc/ops/answer/pools.h"
#include "svc/ops/web/metrics_pools.h"

#include <stdlib.h>
#include <string.h>

#define WIRE(type) Gradpool__Wire__##type

static WIRE(SiteView) site, *sites = &site;
static WIRE(PoolJobView) pool, queued, *queue = &queued;
static WIRE(JobView) job, *jobs = &job;
static WIRE(JobsReply) reply;

/* Site "here" with 4 slots: job "resnet" trains with two workers, and its third worker is leaving.
 * Job "bert" waits. */
static int setup(void **state)
{
    site = MESSAGE_PART(SiteView, site_view, .site = "here", .slots = 4, .held = 2, .leaving = 1,
                        .pools = 1, .waiting = 1, .grown = 5, .shrunk = 6);
    pool =
        MESSAGE_PART(PoolJobView, pool_job_view, .job = "resnet", .tenant = "acme", .site = "here",
                     .state = "running", .workers = 2, .leaving = 1, .workers_min = 1,
                     .workers_max = 4, .decision = "shrunk to 2 workers\x1b: 1.80 times");
    queued = MESSAGE_PART(PoolJobView, pool_job_view, .job = "bert", .tenant = "", .site = "here",
                          .state = "waiting", .workers_min = 3, .workers_max = 3,
                          .decision = "no decision");
    job = MESSAGE_PART(JobView, job_view, .job = "resnet", .tenant = "acme", .job_id = 3,
                       .state = "training", .pool = &pool);
    reply = MESSAGE_PART(JobsReply, jobs_reply, .n_jobs = 1, .jobs = &jobs, .n_queued = 1,
                         .queued = &queue, .n_sites = 1, .sites = &sites);
    return 0;
}

static struct view_pools *view(void)
{
    struct view_pools *pools;
    assert_int_equal(pools_view(&reply, &pools), 0);
    return pools;
}

static void a_service_without_a_site_has_no_pools(void **state)
{
    reply.n_sites = 0;
    assert_null(view());
}

static void a_view_has_the_sites_and_all_jobs_of_pools(void **state)
{
    struct view_pools *pools = view();
    assert_int_equal(pools->sites_count, 1);
    assert_int_equal(site_free(&pools->sites[0]), 1);
    assert_int_equal(pools->jobs_count, 2);
    assert_string_equal(pools->jobs[0].job, "resnet");
    assert_string_equal(pools->jobs[1].job, "bert");
    pools->sites[0].held = 9; /* as if the site had been started again with fewer slots */
    assert_int_equal(site_free(&pools->sites[0]), 0);
    free(pools);
}

/* Returns what a function has printed. The caller frees the text. */
static char *printed(void (*print)(const struct view_pools *pools, FILE *out))
{
    struct view_pools *pools = view();
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    print(pools, out);
    assert_int_equal(fclose(out), 0);
    free(pools);
    return text;
}

static void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' does not contain '%s'", text, words);
}

static void print_tables(const struct view_pools *pools, FILE *out)
{
    assert_int_equal(pools_print(pools, out), 0);
}

static void print_sentences(const struct view_pools *pools, FILE *out)
{
    assert_int_equal(ops_pool_jobs_text(pools, out), 0);
}

static void print_metrics(const struct view_pools *pools, FILE *out)
{
    struct snapshot s = {.jobs = {.pools = (struct view_pools *)pools}};
    metrics_print_pools(&s, out);
    metrics_print_pools(&(struct snapshot){0}, out); /* without pools no metric is printed */
}

static void print_json(const struct view_pools *pools, FILE *out)
{
    struct view_jobs all = {.pools = (struct view_pools *)pools};
    assert_int_equal(ops_jobs_json(&all, out), 0);
}

static void tables_have_a_row_a_job_and_a_row_a_site(void **state)
{
    char *text = printed(print_tables);
    assert_has(text, "TENANT  JOB     SITE  STATE    WORKERS  LEAVING  LEAST  MOST\n"
                     "acme    resnet  here  running        2        1      1     4\n"
                     "-       bert    here  waiting        0        0      3     3\n");
    assert_has(text, "SITE  SLOTS  HELD  LEAVING  FREE  POOLS  WAITING  GROWN  SHRUNK\n"
                     "here      4     2        1     1      1        1      5       6\n");
    free(text);
}

static void a_sentence_has_the_last_decision_without_control_bytes(void **state)
{
    char *text = printed(print_sentences);
    assert_has(text, "site here: 2 workers of 1 to 4, running; shrunk to 2 workers?: 1.80 times\n"
                     "site here: 0 workers of 3 to 3, waiting; no decision\n");
    free(text);
}

static void metrics_have_slots_by_state_and_resizes_by_kind(void **state)
{
    char *text = printed(print_metrics);
    assert_has(text, "gradpool_worker_slots{site=\"here\",state=\"held\"} 2\n"
                     "gradpool_worker_slots{site=\"here\",state=\"leaving\"} 1\n"
                     "gradpool_worker_slots{site=\"here\",state=\"free\"} 1\n");
    assert_has(text, "gradpool_resizes_total{site=\"here\",kind=\"grow\"} 5\n"
                     "gradpool_resizes_total{site=\"here\",kind=\"shrink\"} 6\n");
    assert_has(text, "gradpool_pool_jobs{state=\"waiting\"} 1\n"
                     "gradpool_pool_jobs{state=\"probing\"} 0\n"
                     "gradpool_pool_jobs{state=\"running\"} 1\n");
    free(text);
}

static void json_has_sites_and_jobs_of_pools(void **state)
{
    char *text = printed(print_json);
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    const json_t *first = json_array_get(json_object_get(o, "sites"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "slots")), 4);
    const json_t *second = json_array_get(json_object_get(o, "pool_jobs"), 1);
    assert_string_equal(json_string_value(json_object_get(second, "state")), "waiting");
    json_decref(o);
    free(text);
}

static void an_explanation_names_the_last_decision(void **state)
{
    WIRE(ExplainedJob) explained = MESSAGE_PART(ExplainedJob, explained_job, .job = &job), *of;
    WIRE(ExplainReply) all = MESSAGE_PART(ExplainReply, explain_reply, .n_jobs = 1, .jobs = &of);
    char *text = NULL;
    size_t bytes;
    of = &explained;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(ops_explain_text(&all, out), 0);
    assert_int_equal(ops_explain_json(&all, out), 0);
    assert_int_equal(fclose(out), 0);
    assert_has(text, "site here: 2 workers of 1 to 4, running; shrunk to 2 workers?: 1.80 times\n");
    assert_has(text, "\"workers_max\": 4");
    free(text);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup(a_service_without_a_site_has_no_pools, setup),
        cmocka_unit_test_setup(a_view_has_the_sites_and_all_jobs_of_pools, setup),
        cmocka_unit_test_setup(tables_have_a_row_a_job_and_a_row_a_site, setup),
        cmocka_unit_test_setup(a_sentence_has_the_last_decision_without_control_bytes, setup),
        cmocka_unit_test_setup(metrics_have_slots_by_state_and_resizes_by_kind, setup),
        cmocka_unit_test_setup(json_has_sites_and_jobs_of_pools, setup),
        cmocka_unit_test_setup(an_explanation_names_the_last_decision, setup),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
