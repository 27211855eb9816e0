/* Tests weights and steps of gradpool_elastic.h in two workers against the scripted service:
 * weights in the announcements, steps without a change of workers, and refused calls. */
#include "client/gradpool_elastic.h"
#include "client/lib/elastic/resume.h"
#include "client/lib/steps/internal.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ELEMENTS 100
#define WORDS 400 /* more than a cursor of the deals here has */

static gp_tensor *t[WORKERS];
static float values[WORKERS][ELEMENTS], results[WORKERS][ELEMENTS];
static const gp_deal usual = {.samples = 10, .epochs = 2, .seed = 3, .batch = 4, .prefetch = 1};

static void declare_deal(uint32_t rank, gp_deal deal)
{
    const gp_tensor_spec spec = {.name = "w", .dtype = GP_F32, .elements = ELEMENTS};
    ok(gp_deal_declare(jobs[rank], &deal, &spec, 1, &t[rank]));
}

/* ---- weights ---- */

static uint32_t weight_of(uint32_t rank, uint64_t round)
{
    pthread_mutex_lock(&rig.lock);
    const struct script_heard *h = heard(rank, round);
    uint32_t weight = h ? h->ready.weight : UINT32_MAX;
    pthread_mutex_unlock(&rig.lock);
    return weight;
}

static void push_both(enum gp_operation operation)
{
    gp_request *requests[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull(t[rank], values[rank], results[rank], operation, &requests[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(requests[rank], WAIT_MS));
}

static void a_weight_goes_with_each_mean_until_the_next_call(void **state)
{
    declare("w", ELEMENTS, t);
    push_both(GP_MEAN);
    assert_int_equal(weight_of(0, 1), 1);
    ok(gp_job_weigh(jobs[0], 3));
    ok(gp_job_weigh(jobs[1], 0));
    push_both(GP_MEAN);
    push_both(GP_MEAN);
    assert_int_equal(weight_of(0, 2), 3);
    assert_int_equal(weight_of(0, 3), 3);
    assert_int_equal(weight_of(1, 3), 0);
    push_both(GP_SUM);
    assert_int_equal(weight_of(0, 4), 1);
    assert_int_equal(weight_of(1, 4), 1);
}

/* ---- steps ---- */

struct trained {
    uint32_t rank;
    pthread_t thread;
    uint32_t used[2][10], steps;
    int result;
};

/* Trains to the end, and counts its samples. */
static void *train(void *context)
{
    struct trained *w = context;
    gp_step step;
    while ((w->result = gp_step_begin(jobs[w->rank], WAIT_MS, &step)) == 0) {
        uint64_t samples[4];
        gp_request *request;
        int count = gp_step_share(jobs[w->rank], step.number, samples, 4);
        if (count != (int)step.weight || step.workers != WORKERS || step.place != w->rank)
            break;
        for (int i = 0; i < count; i++)
            w->used[step.epoch][samples[i]]++;
        if (gp_push_pull(t[w->rank], values[w->rank], results[w->rank], GP_MEAN, &request) < 0 ||
            gp_wait(request, WAIT_MS) < 0)
            break;
        w->steps++;
    }
    return NULL;
}

static void two_workers_share_each_epoch(void **state)
{
    struct trained workers[WORKERS] = {{0}};
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        declare_deal(rank, usual);
        workers[rank].rank = rank;
        assert_int_equal(pthread_create(&workers[rank].thread, NULL, train, &workers[rank]), 0);
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        pthread_join(workers[rank].thread, NULL);
        assert_int_equal(workers[rank].result, GP_TRAINED);
        assert_int_equal(workers[rank].steps, 6); /* 4 + 4 + 2 samples in each of two epochs */
    }
    for (int epoch = 0; epoch < 2; epoch++)
        for (int sample = 0; sample < 10; sample++)
            assert_int_equal(workers[0].used[epoch][sample] + workers[1].used[epoch][sample], 1);
}

static void workers_end_a_deal_before_its_last_epoch(void **state)
{
    gp_step step[WORKERS];
    gp_request *requests[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        declare_deal(rank, usual);
        ok(gp_step_begin(jobs[rank], WAIT_MS, &step[rank]));
        ok(gp_push_pull(t[rank], values[rank], results[rank], GP_MEAN, &requests[rank]));
    }
    struct trained ends[WORKERS] = {{.rank = 0}, {.rank = 1}};
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_wait(requests[rank], WAIT_MS));
        ok(gp_deal_end(jobs[rank]));
        assert_int_equal(pthread_create(&ends[rank].thread, NULL, train, &ends[rank]), 0);
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        pthread_join(ends[rank].thread, NULL);
        assert_int_equal(ends[rank].result, GP_TRAINED);
        assert_int_equal(ends[rank].steps, 0);
    }
}
static void push_and_begin(gp_step *ret_steps, int result)
{
    gp_request *requests[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull(t[rank], values[rank], results[rank], GP_MEAN, &requests[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(requests[rank], WAIT_MS));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        assert_int_equal(gp_step_begin(jobs[rank], WAIT_MS, &ret_steps[rank]), result);
}

static void workers_that_are_to_rest_may_end_at_their_cursor(void **state)
{
    gp_step steps[WORKERS];
    uint64_t cursors[WORKERS][WORDS];
    struct trained ends[WORKERS] = {{.rank = 0}, {.rank = 1}};
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        declare_deal(rank, usual);
        ok(gp_deal_rests(jobs[rank], NULL, 0));
        steps_hear_rest(jobs[rank], 1);
        ok(gp_step_begin(jobs[rank], WAIT_MS, &steps[rank]));
    }
    failed(gp_deal_cursor(jobs[0], cursors[0], WORDS), -EINVAL, " does not rest; call ",
           "gp_deal_cursor() only after GP_RESTS", NULL);
    push_and_begin(steps, GP_RESTS);
    int words = gp_deal_cursor(jobs[0], NULL, 0);
    assert_true(words > 0 && words <= WORDS);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        assert_int_equal(steps[rank].number, 2);
        assert_int_equal(steps[rank].workers, WORKERS);
        assert_int_equal(steps[rank].giver, 0);
        assert_int_equal(gp_deal_cursor(jobs[rank], cursors[rank], WORDS), words);
        ok(gp_deal_end(jobs[rank]));
        assert_int_equal(pthread_create(&ends[rank].thread, NULL, train, &ends[rank]), 0);
    }
    assert_memory_equal(cursors[0], cursors[1], (size_t)words * sizeof cursors[0][0]);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        pthread_join(ends[rank].thread, NULL);
        assert_int_equal(ends[rank].result, GP_TRAINED);
    }
}

/* Makes the cursor of a deal after its first step. */
static size_t make_cursor(uint64_t *ret_words)
{
    const struct deal_spec spec = {
        .samples = 10, .epochs = 2, .seed = 3, .batch = 4, .prefetch = 1};
    struct deal_record both = {.present = {3}, .holds = {3}};
    struct step_deal deal;
    ok(deal_init(&deal, &spec, both.present));
    ok(deal_apply(&deal, &both));
    size_t count = resume_words(&deal);
    assert_true(count <= WORDS);
    resume_write(&deal, 40, ret_words);
    deal_fini(&deal);
    return count;
}

static void a_deal_begins_at_a_cursor(void **state)
{
    uint64_t cursor[WORDS], samples[4];
    size_t count = make_cursor(cursor);
    gp_step steps[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        declare_deal(rank, usual);
        ok(gp_deal_rests(jobs[rank], cursor, count));
        ok(gp_step_begin(jobs[rank], WAIT_MS, &steps[rank]));
        assert_int_equal(steps[rank].number, 42);
        assert_int_equal(steps[rank].cursor, 4);
        assert_int_equal(gp_step_share(jobs[rank], 42, samples, 4), 2);
    }
    failed(gp_step_share(jobs[0], 2, samples, 4), -ENOENT, ": the shares of step 2 are not known",
           NULL);
    push_and_begin(steps, 0);
    assert_int_equal(steps[0].number, 43);
    assert_int_equal(steps[0].batch, 2);
}

/* ---- refusals ---- */

static void a_cursor_has_to_be_one_of_this_deal(void **state)
{
    uint64_t cursor[WORDS];
    size_t count = make_cursor(cursor);
    gp_deal other = usual;
    gp_step step;
    other.seed++;
    failed(gp_deal_rests(jobs[0], NULL, 0), -EINVAL, " has no deal; ", NULL);
    failed(gp_deal_rests(jobs[0], NULL, 1), -EINVAL, "gp_deal_rests: cursor is NULL", NULL);
    failed(gp_deal_cursor(jobs[0], NULL, 1), -EINVAL, "gp_deal_cursor: ret_words is NULL", NULL);
    declare_deal(0, other);
    failed(gp_deal_rests(jobs[0], cursor, count), -EINVAL,
           ": the cursor was stored by a deal with other values; restore the gp_deal, ", NULL);
    failed(gp_deal_rests(jobs[0], cursor, 3), -EBADMSG, ": the words are no cursor of a deal; ",
           NULL);
    ok(gp_step_begin(jobs[0], WAIT_MS, &step));
    failed(gp_deal_rests(jobs[0], NULL, 0), -EINVAL, " has begun its steps; make this call before ",
           "the first gp_step_begin()", NULL);
}

static void weights_and_deals_outside_their_limits_are_refused(void **state)
{
    gp_deal deal = usual;
    failed(gp_job_weigh(jobs[0], GP_WEIGHT_MAX + 1), -EINVAL,
           ": weight 4194305 of a gradient, expected at most ", NULL);
    failed(gp_deal_declare(jobs[0], NULL, NULL, 0, NULL), -EINVAL,
           "gp_deal_declare: the deal is NULL", NULL);
    failed(gp_deal_declare(jobs[0], &deal, NULL, 1, NULL), -EINVAL,
           "gp_deal_declare: ret_tensors is NULL", NULL);
    deal.samples = 0;
    failed(gp_deal_declare(jobs[0], &deal, NULL, 0, NULL), -EINVAL, ": a deal of 0 samples in ",
           " epochs, expected at least one of each", NULL);
    deal = usual;
    deal.batch = 0;
    failed(gp_deal_declare(jobs[0], &deal, NULL, 0, NULL), -EINVAL,
           ": a deal with a batch of 0 samples, expected 1 to ", NULL);
    deal = usual;
    deal.batch_per_worker = 2;
    failed(gp_deal_declare(jobs[0], &deal, NULL, 0, NULL), -EINVAL,
           ": a deal with batch 4 and batch_per_worker 2; set one of them to 0", NULL);
    deal = usual;
    deal.share_least = 5;
    failed(gp_deal_declare(jobs[0], &deal, NULL, 0, NULL), -EINVAL,
           ": the deal has 10 samples and a batch of 4, but share_least is 5; lower share_least, ",
           "or raise the batch", NULL);
    deal = usual;
    deal.prefetch = 65;
    failed(gp_deal_declare(jobs[0], &deal, NULL, 0, NULL), -EINVAL,
           ": a deal with prefetch 65, expected at most ", NULL);
}

static void a_job_with_backup_workers_has_neither_weights_nor_deal(void **state)
{
    gp_job *job;
    gp_job_spec spec = {.name = "backed",
                        .workers = 2,
                        .backup = {.rule = GP_BACKUP_STATIC, .k = 1, .absence = UINT32_MAX}};
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    ok(gp_job_join(clients[0], &spec, &job));
    failed(gp_job_weigh(job, 1), -EOPNOTSUPP,
           " has backup workers, whose rounds lack some ranks; weights and deals need every rank",
           ". Join without gp_job_spec.backup", NULL);
    failed(gp_deal_declare(job, &usual, NULL, 0, NULL), -EOPNOTSUPP, " has backup workers, ", NULL);
    gp_job_leave(job);
}

static void a_step_needs_one_deal_and_places_for_its_results(void **state)
{
    gp_step step;
    failed(gp_step_begin(jobs[0], WAIT_MS, &step), -EINVAL,
           " has no deal; call gp_deal_declare() first", NULL);
    failed(gp_deal_end(jobs[0]), -EINVAL, " has no deal to end; call gp_deal_declare() ", NULL);
    failed(gp_step_share(jobs[0], 1, NULL, 0), -ENOENT, ": the shares of step 1 are not known; ",
           "pass the present step, or a step that is at most gp_deal.prefetch later", NULL);
    declare_deal(0, usual);
    failed(gp_deal_declare(jobs[0], &usual, NULL, 0, NULL), -EEXIST,
           " has a deal already; call gp_deal_declare() once", NULL);
    failed(gp_step_begin(jobs[0], WAIT_MS, NULL), -EINVAL, "gp_step_begin: ret_step is NULL", NULL);
    failed(gp_step_share(jobs[0], 1, NULL, 4), -EINVAL, "gp_step_share: ret_samples is NULL", NULL);
    failed(gp_step_missed(jobs[0]), -EINVAL, ": rank 0 awaits no state", NULL);
    uint64_t samples[4];
    assert_int_equal(gp_step_share(jobs[0], 2, samples, 4), 2);
    failed(gp_step_share(jobs[0], 3, samples, 4), -ENOENT, ": the shares of step 3 are not known",
           NULL);
}

static void a_step_waits_for_requests_and_late_ranks(void **state)
{
    gp_step step;
    gp_request *request;
    declare_deal(0, usual);
    declare_deal(1, usual);
    ok(gp_step_begin(jobs[0], WAIT_MS, &step));
    assert_int_equal(step.number, 1);
    assert_int_equal(step.weight, 2);
    assert_int_equal(step.batch, 4);
    ok(gp_push_pull(t[0], values[0], results[0], GP_MEAN, &request));
    failed(gp_step_begin(jobs[0], WAIT_MS, &step), -EBUSY,
           "tensor 'w' has an open request; call gp_wait(), ", "then begin the next step", NULL);
    ok(gp_step_begin(jobs[1], WAIT_MS, &step));
    gp_request *other;
    ok(gp_push_pull(t[1], values[1], results[1], GP_MEAN, &other));
    ok(gp_wait(request, WAIT_MS));
    ok(gp_wait(other, WAIT_MS));
    ok(gp_step_begin(jobs[0], WAIT_MS,
                     &step)); /* this step ends with record 1, and record 2 was sent */
    ok(gp_push_pull(t[0], values[0], results[0], GP_MEAN, &request));
    ok(gp_step_begin(jobs[1], WAIT_MS, &step));
    assert_int_equal(step.number, 2);
    ok(gp_push_pull(t[1], values[1], results[1], GP_MEAN, &other));
    ok(gp_wait(request, WAIT_MS));
    ok(gp_wait(other, WAIT_MS));
}

/* One of two threads that begin a step of rank 0. Each thread gets its own error text. */
struct beginner {
    pthread_t thread;
    int result;
    char text[ERR_TEXT_BYTES];
};

static sem_t begun; /* each thread posts this semaphore when its call has returned */

static void *begin_second_step(void *context)
{
    struct beginner *b = context;
    gp_step step;
    b->result = gp_step_begin(jobs[0], WAIT_MS, &step);
    snprintf(b->text, sizeof b->text, "%s", gp_last_error());
    sem_post(&begun);
    return NULL;
}

/* The first of the two calls waits for record 1, which needs rank 1, so the second call returns
 * first. */
static void a_second_thread_is_refused(void **state)
{
    gp_step step;
    struct beginner both[2] = {{0}};
    declare_deal(0, usual);
    declare_deal(1, usual);
    ok(gp_step_begin(jobs[0], WAIT_MS, &step));
    assert_int_equal(sem_init(&begun, 0, 0), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&both[i].thread, NULL, begin_second_step, &both[i]), 0);
    while (sem_wait(&begun) < 0)
        assert_int_equal(errno, EINTR);
    ok(gp_step_begin(jobs[1], WAIT_MS, &step));
    for (int i = 0; i < 2; i++)
        pthread_join(both[i].thread, NULL);
    const struct beginner *refused = &both[both[0].result == 0], *first = &both[refused == both];
    assert_int_equal(first->result, 0);
    assert_int_equal(refused->result, -EBUSY);
    assert_string_equal(refused->text, "another thread is in gp_step_begin() of job 'job'; "
                                       "begin steps in one thread");
    sem_destroy(&begun);
}

static void ranks_with_different_deals_get_an_error(void **state)
{
    gp_step step;
    gp_deal other = usual;
    gp_request *requests[WORKERS];
    other.seed = 4;
    declare_deal(0, usual);
    declare_deal(1, other);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_step_begin(jobs[rank], WAIT_MS, &step));
        ok(gp_push_pull(t[rank], values[rank], results[rank], GP_MEAN, &requests[rank]));
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(requests[rank], WAIT_MS));
    failed(gp_step_begin(jobs[1], WAIT_MS, &step), -EINVAL,
           " step 1: ranks have declared different deals; ",
           "this rank declared 10 samples, 2 epochs, seed 4, batch 4, batch_per_worker 0, ",
           "prefetch 1, share_least 0. Give all ranks the same gp_deal", NULL);
    failed(gp_step_begin(jobs[1], WAIT_MS, &step), -EINVAL,
           ": an earlier gp_step_begin() has failed, so no further step can begin; leave the job",
           NULL);
}

static void ranks_that_push_unequally_often_get_an_error(void **state)
{
    gp_step step;
    gp_request *requests[WORKERS];
    gp_tensor *more[WORKERS];
    declare_deal(0, usual);
    declare_deal(1, usual);
    ok(gp_tensor_declare(jobs[0], "more", GP_F32, 1, &more[0]));
    ok(gp_tensor_declare(jobs[1], "more", GP_F32, 1, &more[1]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull(more[rank], values[rank], results[rank], GP_MEAN, &requests[rank]));
    ok(gp_wait(requests[0], WAIT_MS));
    ok(gp_wait(requests[1], WAIT_MS));
    /* from here on this rank does not count the rounds of this tensor */
    ok(gp_tensor_undeclare(more[1]));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_step_begin(jobs[rank], WAIT_MS, &step));
        ok(gp_push_pull(t[rank], values[rank], results[rank], GP_MEAN, &requests[rank]));
    }
    ok(gp_wait(requests[0], WAIT_MS));
    ok(gp_wait(requests[1], WAIT_MS));
    failed(
        gp_step_begin(jobs[0], WAIT_MS, &step), -EPROTO,
        " step 1: ranks have completed different numbers of rounds. Push the same tensors on all ",
        "ranks in each step, with one version of the library", NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)
#define ALONE(name) cmocka_unit_test_setup_teardown(name, fixture_start_alone, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_weight_goes_with_each_mean_until_the_next_call),
        CASE(two_workers_share_each_epoch),
        CASE(workers_end_a_deal_before_its_last_epoch),
        CASE(workers_that_are_to_rest_may_end_at_their_cursor),
        CASE(a_deal_begins_at_a_cursor),
        CASE(a_cursor_has_to_be_one_of_this_deal),
        CASE(weights_and_deals_outside_their_limits_are_refused),
        ALONE(a_job_with_backup_workers_has_neither_weights_nor_deal),
        CASE(a_step_needs_one_deal_and_places_for_its_results),
        CASE(a_step_waits_for_requests_and_late_ranks),
        CASE(a_second_thread_is_refused),
        CASE(ranks_with_different_deals_get_an_error),
        CASE(ranks_that_push_unequally_often_get_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
