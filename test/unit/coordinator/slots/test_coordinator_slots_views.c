/* Tests the views of sites and of jobs of pools, their reasons and log lines, the option, and the
 * measured speed of a job (SL1 to SL5). */
#include "svc/base/clock.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/internal.h"
#include "test/unit/coordinator/measure_rig.h"
#include "test/unit/coordinator/slots/pool_case.h"

#include <errno.h>
#include <string.h>

/* --- the option --- */

static void an_option_that_names_no_slots_is_refused(void **state)
{
    static const char *const bad[] = {"here",           "here=0",  "=4",
                                      "here=4;there=1", "a=b",     "a=99999999",
                                      "here=4,,b=1",    "h\"re=4", "here=-1"};
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(slots_check_option(bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "expected SITE=N, with a name of 1 to 64 bytes"));
    }
    assert_int_equal(slots_check_option("a=1,b=2,a=3", &err), -EINVAL);
    assert_string_equal(err.text, "--worker-slots names site a twice; name each site once");
    assert_int_equal(slots_check_option("node7=8,node-8.lan=65536", &err), 0);
    assert_int_equal(slots_check_option(NULL, &err), 0);
    struct rig *rig = *state;
    struct coordinator *coordinator;
    struct coordinator_options options = rig->options;
    options.worker_slots = "here";
    rig_crash(rig);
    assert_int_equal(coordinator_create(&options, &coordinator, &err), -EINVAL);
    rig_start(rig);
}

/* --- views --- */

static envelope *ask_jobs(struct rig *rig, const struct key *key, const char *name)
{
    struct end *asking = rig_connect_with_key(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, key);
    envelope *reply = end_ask(asking, &MESSAGE(0, JOBS_REQUEST, jobs_request, .job = (char *)name));
    assert_int_equal(reply->body_case, BODY(JOBS_REPLY));
    end_close(asking);
    return reply;
}

/* Checks the state and the reason of the only job, of whose workers none has joined. */
static void expect_queued(struct rig *rig, const char *state, const char *words)
{
    envelope *reply = ask_jobs(rig, NULL, "");
    assert_int_equal(reply->jobs_reply->n_queued, 1);
    assert_string_equal(reply->jobs_reply->queued[0]->state, state);
    if (!strstr(reply->jobs_reply->queued[0]->decision, words))
        fail_msg("'%s' does not say '%s'", reply->jobs_reply->queued[0]->decision, words);
    message_free(reply);
}

static void a_site_shows_its_slots_and_pools(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    struct pool_order order = {0};
    pool_submit(pool, "resnet", 1, 4);
    for (int i = 0; i < 4; i++)
        order = pool_expect(pool, POOL_START);
    pool_submit(pool, "bert", 1, 1);
    pool_expect(pool, POOL_LEAVE);
    envelope *reply = ask_jobs(*state, NULL, "");
    assert_int_equal(reply->jobs_reply->n_sites, 2);
    const WIRE(SiteView) *site = reply->jobs_reply->sites[0];
    assert_string_equal(site->site, "here");
    assert_int_equal(site->slots, 4);
    assert_int_equal(site->held, 3);
    assert_int_equal(site->leaving, 1);
    assert_int_equal(site->pools, 1);
    assert_int_equal(site->waiting, 1);
    assert_int_equal(reply->jobs_reply->n_queued, 2);
    const WIRE(PoolJobView) *job = reply->jobs_reply->queued[0];
    assert_string_equal(job->job, "resnet");
    assert_string_equal(job->state, "probing");
    assert_int_equal(job->workers, 3);
    assert_int_equal(job->leaving, 1);
    assert_non_null(strstr(job->decision, "shrunk to 3 workers on site here: "));
    message_free(reply);
    assert_non_null(strstr(rig_last_event(*state, "resize"), "job resnet: shrunk to 3 workers"));
    pool_worker_refused(*state, &order, -ESTALE, "asked to leave");
}

static void a_tenant_sees_only_its_own_jobs_of_pools(void **state)
{
    WIRE(TenantAddRequest) add = MESSAGE_PART(TenantAddRequest, tenant_add_request, .tenant = "me");
    struct end *operator= rig_connect_locally(*state, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    struct key key;
    struct err err;
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    envelope *reply =
        end_ask(operator, & ENVELOPE(0, TENANT_ADD_REQUEST, tenant_add_request, &add));
    assert_int_equal(key_parse(reply->tenant_add_reply->key, &key, &err), 0);
    message_free(reply);
    reply = ask_jobs(*state, &key, "");
    assert_int_equal(reply->jobs_reply->n_queued, 0);
    assert_int_equal(reply->jobs_reply->n_sites, 2);
    message_free(reply);
    struct end *own = pool_join(*state, (struct pool_joining){.key = &key});
    pool_submit(own, "bert", 1, 1);
    reply = ask_jobs(*state, &key, "");
    assert_int_equal(reply->jobs_reply->n_queued, 1);
    assert_string_equal(reply->jobs_reply->queued[0]->tenant, "me");
    message_free(reply);
}

static void a_withheld_worker_shows_the_reason_of_its_pool(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order order = pool_expect(pool, POOL_START);
    expect_queued(*state, "probing",
                  "started with 1 worker on site here, for 1.00 times the speed");
    pool_report(pool, &order,
                MESSAGE_PART(PoolReport, pool_report,
                             .event = GRADPOOL__WIRE__POOL_EVENT__POOL_WITHHELD,
                             .text = "sbatch: PENDING (Resources)"));
    expect_queued(*state, "probing", "; a worker waits: sbatch: PENDING (Resources)");
    pool_started(pool, &order);
    envelope *reply = ask_jobs(*state, NULL, "resnet");
    assert_null(strstr(reply->jobs_reply->queued[0]->decision, "waits"));
    message_free(reply);
    rig_crash(*state);
    rig_start(*state);
    expect_queued(*state, "running", "no decision since the coordinator's start");
    expect_queued(*state, "running", "; its pool is gone, so its workers stay");
}

static void a_job_that_ends_shows_that(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    pool_expect(pool, POOL_START);
    pool_withdraw(pool, "resnet");
    expect_queued(*state, "ending", "started");
}

/* --- reports --- */

static void report(struct end *pool, const struct pool_order *order, int event, bool is_adopted,
                   const char *text)
{
    pool_report(pool, order,
                MESSAGE_PART(PoolReport, pool_report, .event = (WIRE(PoolEvent))event,
                             .is_adopted = is_adopted, .text = (char *)text));
}

static void failures_are_logged_with_their_kind(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 4);
    struct pool_order ranks[4];
    for (int i = 0; i < 4; i++)
        ranks[i] = pool_expect(pool, POOL_START);
    struct end *worker = pool_worker_join(*state, &ranks[0], 0);
    report(pool, &ranks[1], GRADPOOL__WIRE__POOL_EVENT__POOL_FAILED, false, "fork: no memory");
    kept_log_expect("rank 1 could not be started: fork: no memory");
    report(pool, &ranks[0], GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED, true, "");
    kept_log_expect("rank 0 ended with an error, or without a goodbye");
    kept_log_expect("see the log of that rank at its pool");
    end_close(worker);
    assert_int_equal(kept_log_count("third failure"), 0);
}

/* The coordinator does not know the exit code of an adopted process. A goodbye shows that the
 * process has completed its training. */
static void an_adopted_worker_with_a_goodbye_has_trained(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 2, 2);
    struct pool_order zero = pool_expect(pool, POOL_START), one = pool_expect(pool, POOL_START);
    end_leave(pool_worker_join(*state, &zero, 0));
    report(pool, &zero, GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED, true, "");
    kept_log_expect("rank 0 has ended its training; no other worker is started");
    report(pool, &one, GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED, true, "");
    assert_int_equal(pool_expect(pool, POOL_OVER).code, 0);
}

/* All workers die at the same time, so the job has ended without a complete training. */
static void adopted_workers_that_die_at_once_have_not_trained(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect(pool, POOL_START);
    end_close(pool_worker_join(*state, &zero, 0));
    rig_settle(*state);
    report(pool, &zero, GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED, true, "");
    kept_log_expect("rank 0 ended with an error, or without a goodbye");
}

/* The last worker has said goodbye, so its training has ended before the report. */
static void the_last_adopted_worker_with_a_goodbye_has_trained(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect(pool, POOL_START);
    end_leave(pool_worker_join(*state, &zero, 0));
    rig_settle(*state);
    report(pool, &zero, GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED, true, "");
    assert_int_equal(pool_expect(pool, POOL_OVER).code, 0);
}

static void too_many_reports_are_refused(void **state)
{
    static WIRE(PoolReport) report_of, *list[4097];
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    report_of = MESSAGE_PART(PoolReport, pool_report);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        list[i] = &report_of;
    end_ask_refused(pool,
                    &MESSAGE(0, POOL_REPORTS, pool_reports, .n_reports = 4097, .reports = list),
                    -EINVAL, "4097 reports in a message; expected at most 4096");
    struct end *other = rig_connect(*state, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    end_ask_refused(other, &MESSAGE(0, POOL_REPORTS, pool_reports), -ENOTCONN, "has no pool");
}

/* --- limits --- */

static void a_pool_submits_no_job_beyond_the_limit(void **state)
{
    struct rig *rig = *state;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    rig->coordinator->service->works->slots->jobs_count = SLOTS_JOBS_MAX;
    pool_submit_refused(pool, "resnet", 1, 1, -EDQUOT, "4096 jobs of pools are there, the most");
    rig->coordinator->service->works->slots->jobs_count = 0;
    WIRE(PoolSubmit)
    submit = MESSAGE_PART(PoolSubmit, pool_submit, .job = "a", .workers = 1, .study = "a\nb");
    end_ask_refused(pool, &ENVELOPE(0, POOL_SUBMIT, pool_submit, &submit), -EINVAL,
                    "a study's name has at most");
}

static void waiting_jobs_count_in_the_quota_of_their_tenant(void **state)
{
    struct rig *rig = *state;
    struct limits *limits = &tenants_local(rig->coordinator->service)->limits;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    limits->most[LIMIT_TENANT_JOBS] = 3;
    pool_submit(pool, "first", 4, 4);
    struct pool_order order = pool_expect_and_start(pool);
    (void)pool_worker_join(rig, &order, 0); /* a job that trains is counted once */
    pool_submit(pool, "second", 4, 4);
    pool_submit(pool, "third", 4, 4);
    pool_submit_refused(pool, "fourth", 1, 1, -EDQUOT, "--tenant-jobs-max");
    pool_withdraw(pool, "third");
    pool_submit(pool, "fourth", 1, 1);
}

static void expect_explained(struct rig *rig, const char *name, const char *words)
{
    envelope *reply = measure_ask_why(rig, name);
    const char *queued = reply->explain_reply->queued;
    assert_int_equal(reply->explain_reply->n_jobs, 0);
    if (*words ? !strstr(queued, words) : *queued)
        fail_msg("'%s' does not say '%s'", queued, words);
    message_free(reply);
}

static void explain_shows_the_place_of_a_waiting_job(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "first", 4, 4);
    pool_submit(pool, "second", 4, 4);
    pool_submit(pool, "third", 1, 1);
    expect_explained(*state, "second",
                     "job second is queued on site here, place 1 of 2 in the order of submission; "
                     "it waits for 4 slots, and 0 of 4 slots are free (");
    expect_explained(*state, "third",
                     "place 2 of 2 in the order of submission; it waits for 1 slot,");
    expect_explained(*state, "first",
                     "job first is probing on site here, and no worker has joined (");
    expect_explained(*state, "fourth", "");
}

/* --- restarts --- */

static void a_restart_without_the_site_is_logged(void **state)
{
    struct rig *rig = *state;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    pool_started(pool, &(struct pool_order){.job = "resnet"}); /* another start: no effect */
    struct pool_order order = pool_expect(pool, POOL_START);
    pool_started(pool, &order);
    rig_crash(rig);
    rig->options.worker_slots = NULL;
    rig_start(rig);
    kept_log_expect("has workers, but no slot: --worker-slots does not name it");
}

static void a_waiting_job_without_a_place_is_over(void **state)
{
    struct rig *rig = *state;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    pool_submit(pool, "bert", 1, 1);
    struct pool_order order = pool_expect(pool, POOL_START);
    pool_started(pool, &order);
    pool_submit(pool, "resnet", 4, 4);
    rig_crash(rig);
    rig->options.worker_slots = "here=2";
    rig_start(rig);
    size_t jobs;
    pool_rejoin(rig, (struct pool_joining){.has = &order, .count = 1}, NULL, &jobs);
    kept_log_expect("site here has no place for its 4 workers any more");
    rig_settle(rig);
    envelope *reply = ask_jobs(rig, NULL, "");
    assert_int_equal(reply->jobs_reply->n_queued, 1);
    message_free(reply);
}

static void a_missing_pool_is_logged(void **state)
{
    struct rig *rig = *state;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    pool_expect(pool, POOL_START);
    end_close(pool);
    rig_settle(rig);
    struct slots *slots = rig->coordinator->service->works->slots;
    list_for_each_entry (struct slots_pool, missing, &slots->pools, link)
        timer_start(rig->coordinator->service->loop, &missing->away, clock_now_ns());
    rig_settle(rig);
    kept_log_expect("the pool on node7 (pid 4242) has been gone for 60 s: its jobs train on");
}

/* --- speed --- */

static const WIRE(PoolJobView) * view_of(struct rig *rig, envelope **ret_reply)
{
    *ret_reply = ask_jobs(rig, NULL, "resnet");
    assert_int_equal((*ret_reply)->jobs_reply->n_jobs, 1);
    return (*ret_reply)->jobs_reply->jobs[0]->pool;
}

static void run_rounds(struct rig *rig, struct end *aggregator, struct trained *job)
{
    struct service *s = rig->coordinator->service;
    aggregator->answers = false;
    for (int i = 0; i < 6; i++) {
        trained_run(aggregator, job, 2, 100 * NS_PER_MS, NS_PER_MS);
        timer_start(s->loop, &s->works->slots->look, clock_now_ns());
        rig_step(rig);
    }
    aggregator->answers = true;
    rig_settle(rig);
}

/* The first round counts as a report. Each later round adds a point to the curve, from which the
 * scheduler knows the step time. */
static void rounds_are_reports_and_points_of_the_curve(void **state)
{
    struct rig *rig = *state;
    struct end *aggregator = rig_aggregator(rig, 1);
    struct end *pool = pool_join(rig, (struct pool_joining){.site = "small"});
    struct trained job = {.reference = 1, .begun_ns = 77};
    envelope *reply;
    pool_submit(pool, "resnet", 1, 2);
    struct pool_order zero = pool_expect(pool, POOL_START);
    struct end *worker = pool_worker_join(rig, &zero, 0);
    end_declare_one(worker, "w", 1000);
    envelope *declared = end_expect(worker, BODY(DECLARE_REPLY));
    job.lane = declared->declare_reply->tensors[0]->pieces[0]->lane;
    message_free(declared);
    assert_string_equal(view_of(rig, &reply)->state, "probing");
    job.job = reply->jobs_reply->jobs[0]->job_id;
    message_free(reply);
    run_rounds(rig, aggregator, &job);
    assert_string_equal(view_of(rig, &reply)->state, "running");
    message_free(reply);
    const struct slots_job *of = slots_find_job(rig->coordinator->service,
                                                tenants_local(rig->coordinator->service), "resnet");
    assert_true(of->speed->has_reported && of->speed->is_measuring);
    assert_int_equal(of->speed->workers, 1);
    reply = measure_ask_why(rig, "resnet");
    assert_string_equal(reply->explain_reply->jobs[0]->job->pool->site, "small");
    message_free(reply);
}

static void a_job_that_joins_without_workers_max_is_logged(void **state)
{
    struct rig *rig = *state;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 4);
    struct pool_order zero = pool_expect(pool, POOL_START);
    pool_worker_join(rig, &zero, 4);
    rig_settle(rig);
    kept_log_expect("workers stay; set workers_max to");
    envelope *reply;
    assert_non_null(strstr(view_of(rig, &reply)->decision, "; it joined without workers_max"));
    message_free(reply);
}

/* The script of the job allows fewer workers than its pool would start. */
static void a_job_grows_to_the_workers_max_of_its_script(void **state)
{
    struct rig *rig = *state;
    struct end *pool = pool_join(rig, (struct pool_joining){0});
    struct pool_order last[3];
    pool_submit(pool, "bert", 3, 3);
    for (int i = 0; i < 3; i++)
        last[i] = pool_expect(pool, POOL_START);
    pool_submit(pool, "resnet", 1, 4);
    struct pool_order zero = pool_expect(pool, POOL_START);
    zero.workers_max = 2;
    pool_worker_join(rig, &zero, 0);
    rig_settle(rig);
    kept_log_expect("workers by its script, and");
    pool_ended(pool, &last[2], 0);
    pool_expect_for(pool, POOL_START, "resnet", 1);
    pool_ended(pool, &last[1], 0);
    end_expect_none(pool, BODY(POOL_ORDERS));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, pools_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(an_option_that_names_no_slots_is_refused),
        CASE(a_site_shows_its_slots_and_pools),
        CASE(a_tenant_sees_only_its_own_jobs_of_pools),
        CASE(a_withheld_worker_shows_the_reason_of_its_pool),
        CASE(a_job_that_ends_shows_that),
        CASE(failures_are_logged_with_their_kind),
        CASE(an_adopted_worker_with_a_goodbye_has_trained),
        CASE(adopted_workers_that_die_at_once_have_not_trained),
        CASE(the_last_adopted_worker_with_a_goodbye_has_trained),
        CASE(too_many_reports_are_refused),
        CASE(a_pool_submits_no_job_beyond_the_limit),
        CASE(waiting_jobs_count_in_the_quota_of_their_tenant),
        CASE(explain_shows_the_place_of_a_waiting_job),
        CASE(a_restart_without_the_site_is_logged),
        CASE(a_waiting_job_without_a_place_is_over),
        CASE(a_missing_pool_is_logged),
        CASE(rounds_are_reports_and_points_of_the_curve),
        CASE(a_job_that_joins_without_workers_max_is_logged),
        CASE(a_job_grows_to_the_workers_max_of_its_script),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
