/* Tests watches of pools without slots: a job has one pool (SL46). */
#include "svc/base/clock.h"
#include "test/unit/coordinator/members_case.h"
#include "test/unit/coordinator/slots/pool_case.h"

#include <errno.h>
#include <string.h>

#define OPERATOR GRADPOOL__WIRE__ROLE__ROLE_OPERATOR

/* A request about job "resnet" by the pool with this number and process number on node7. */
struct watching {
    envelope request;
    WIRE(JobsRequest) jobs;
    WIRE(PoolWatch) watch;
};

static envelope *watching_fill(struct watching *c, uint64_t pool, uint32_t pid)
{
    c->watch = MESSAGE_PART(PoolWatch, pool_watch, .pool = pool, .node = "node7", .pid = pid);
    c->jobs = MESSAGE_PART(JobsRequest, jobs_request, .job = "resnet", .watch = &c->watch);
    c->request = ENVELOPE(0, JOBS_REQUEST, jobs_request, &c->jobs);
    return &c->request;
}

static void watch(struct end *e, uint64_t pool, uint32_t pid)
{
    struct watching c;
    envelope *reply = end_ask(e, watching_fill(&c, pool, pid));
    if (reply->body_case != BODY(JOBS_REPLY))
        fail_msg("refused: %s", reply->failure ? reply->failure->text : "?");
    message_free(reply);
}

static void watch_refused(struct end *e, uint64_t pool, int code, const char *text)
{
    struct watching c;
    end_ask_refused(e, watching_fill(&c, pool, 6), code, text);
}

static void a_second_pool_of_a_job_is_refused(void **state)
{
    struct end *first = rig_connect(*state, OPERATOR), *second = rig_connect(*state, OPERATOR);
    watch(first, 7, 4242);
    watch(first, 7, 4242);
    watch_refused(second, 8, -EEXIST,
                  "job resnet has a pool already, on node7 (pid 4242); end that pool, or give this "
                  "job another name");
    end_close(first);
    rig_settle(*state);
    watch(second, 8, 6);
}

/* The coordinator has not detected the end of the former connection. */
static void a_pool_that_starts_again_replaces_its_watch(void **state)
{
    struct end *first = rig_connect(*state, OPERATOR), *second = rig_connect(*state, OPERATOR);
    watch(first, 7, 4242);
    watch(second, 7, 4243);
    end_close(first);
    rig_settle(*state);
    watch_refused(rig_connect(*state, OPERATOR), 8, -EEXIST, "on node7 (pid 4243)");
}

static void tenants_may_have_jobs_of_one_name(void **state)
{
    const struct key one = pools_add_tenant(*state, "one"), two = pools_add_tenant(*state, "two");
    watch(rig_connect_with_key(*state, OPERATOR, &one), 7, 1);
    struct end *other = rig_connect_with_key(*state, OPERATOR, &two);
    watch(other, 8, 2);
    watch_refused(rig_connect_with_key(*state, OPERATOR, &two), 7, -EEXIST, "(pid 2)");
}

static void a_job_with_slots_and_one_without_exclude_each_other(void **state)
{
    struct end *asking = rig_connect(*state, OPERATOR);
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    watch(asking, 8, 6);
    pool_submit_refused(pool, "resnet", 1, 1, -EEXIST,
                        "job resnet has a pool already, on node7 (pid 6)");
    end_close(asking);
    rig_settle(*state);
    pool_submit(pool, "resnet", 1, 1);
    watch_refused(rig_connect(*state, OPERATOR), 8, -EEXIST,
                  "job resnet was submitted by the pool on node7 (pid 4242) already");
}

static void a_watch_without_a_pool_is_refused(void **state)
{
    struct end *asking = rig_connect(*state, OPERATOR);
    struct watching c;
    watch_refused(asking, 0, -EINVAL, "a pool names its job, a number other than 0, and its host");
    watching_fill(&c, 7, 6);
    c.watch.node = "";
    end_ask_refused(asking, &c.request, -EINVAL, "and its host; install the same version");
    watching_fill(&c, 7, 6);
    c.jobs.job = "a\nb";
    end_ask_refused(asking, &c.request, -EINVAL, "names its job");
    c.jobs.job = "";
    end_ask_refused(asking, &c.request, -EINVAL, "names its job");
}

/* A pool without slots sees that a rank was removed, although a later resize needs it again. */
static void a_removed_rank_is_shown_as_removed(void **state)
{
    struct rig *rig = *state;
    struct end *operator= rig_connect(rig, OPERATOR);
    for (uint32_t rank = 0; rank < 2; rank++)
        members_join(
            rig, (struct joining){.rank = rank, .workers = 2, .workers_max = 2, .continues = true});
    for (uint32_t size = 1; size <= 2; size++) {
        envelope *done = end_ask(operator, & MESSAGE(0, RESIZE_REQUEST, resize_request,
                                                     .job = MEMBERS_JOB, .workers = size));
        assert_int_equal(done->body_case, BODY(DONE));
        message_free(done);
    }
    envelope *reply = pools_ask_jobs(rig, MEMBERS_JOB);
    const WIRE(JobView) *job = reply->jobs_reply->jobs[0];
    assert_int_equal(job->wanted, 2);
    assert_false(job->ranks[0]->was_removed);
    assert_true(job->ranks[1]->was_removed);
    message_free(reply);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, pools_setup, rig_teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_second_pool_of_a_job_is_refused),
        CASE(a_pool_that_starts_again_replaces_its_watch),
        CASE(tenants_may_have_jobs_of_one_name),
        CASE(a_job_with_slots_and_one_without_exclude_each_other),
        CASE(a_watch_without_a_pool_is_refused),
        CASE(a_removed_rank_is_shown_as_removed),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
