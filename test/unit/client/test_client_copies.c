/* Tests two threads that copy results of one request at the same time (L2). A thread that polls the
 * request learns its end only after the copy of the other thread, because the caller may then write
 * to the results. Linked with --wrap for copy_from_wire(), so that a copy lasts as long as a case
 * needs. The thread sanitizer checks the same cases for races. */
#include "client/lib/link/copy.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#define TENSORS 4
#define ELEMENTS (2 * COPY_LOCKED_BYTES / sizeof(float)) /* copied with the job's lock released */
#define ROUNDS 20
#define WRITTEN (-1.0f)

void __real_copy_from_wire(void *target, const void *source, size_t bytes,
                           struct copy_dtypes dtypes, size_t streams_from);
void __wrap_copy_from_wire(void *target, const void *source, size_t bytes,
                           struct copy_dtypes dtypes, size_t streams_from);

/* The slow thread stops in its first copy until `may_end`. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_begun, may_end;
    uint32_t others; /* copies of other threads meanwhile */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local bool is_slow;

/* Waits for a flag of the gate, which the caller has locked. */
static void gate_await(const bool *flag)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_MS / 1000;
    while (!*flag)
        assert_int_equal(pthread_cond_timedwait(&gate.changed, &gate.lock, &end), 0);
}

static void gate_set(bool *flag)
{
    pthread_mutex_lock(&gate.lock);
    *flag = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

void __wrap_copy_from_wire(void *target, const void *source, size_t bytes,
                           struct copy_dtypes dtypes, size_t streams_from)
{
    pthread_mutex_lock(&gate.lock);
    gate.others += !is_slow && gate.has_begun;
    if (is_slow && !gate.has_begun) {
        gate.has_begun = true;
        pthread_cond_broadcast(&gate.changed);
        gate_await(&gate.may_end);
    }
    pthread_mutex_unlock(&gate.lock);
    __real_copy_from_wire(target, source, bytes, dtypes, streams_from);
}

static uint32_t gate_others(void)
{
    pthread_mutex_lock(&gate.lock);
    uint32_t others = gate.others;
    pthread_mutex_unlock(&gate.lock);
    return others;
}

static float gradients[WORKERS][TENSORS][ELEMENTS], results[WORKERS][TENSORS][ELEMENTS];
static gp_item items[WORKERS][TENSORS];
static gp_request *requests[WORKERS];

static void declare_items(void)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    gp_tensor *t[WORKERS];
    for (int i = 0; i < TENSORS; i++) {
        declare(names[i], ELEMENTS, t);
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            items[rank][i] = (gp_item){
                .tensor = t[rank], .gradient = gradients[rank][i], .result = results[rank][i]};
    }
}

static void push(uint32_t rank, uint64_t round)
{
    for (int i = 0; i < TENSORS; i++)
        fill(gradients[rank][i], ELEMENTS, rank, round);
    ok(gp_push_pull_group(jobs[rank], items[rank], TENSORS, GP_MEAN, &requests[rank]));
}

static void check_results(uint32_t rank, uint64_t round)
{
    for (int i = 0; i < TENSORS; i++)
        check_mean(results[rank][i], ELEMENTS, round);
}

/* Writes to the results, as a caller may after the end of the request. */
static void write_results(void)
{
    for (int i = 0; i < TENSORS; i++)
        for (size_t e = 0; e < ELEMENTS; e++)
            results[0][i][e] = WRITTEN;
}

static void *poll_slowly(void *result)
{
    is_slow = true;
    *(int *)result = gp_poll(requests[0], WAIT_MS);
    return NULL;
}

static void *poll_alongside(void *result)
{
    *(int *)result = gp_poll(requests[0], WAIT_MS);
    return NULL;
}

static void a_request_is_open_until_the_copy_of_another_thread_has_ended(void **state)
{
    pthread_t slow;
    int polled = 0;
    (void)state;
    declare_items();
    push(0, 1);
    assert_int_equal(pthread_create(&slow, NULL, poll_slowly, &polled), 0);
    push(1, 1);
    pthread_mutex_lock(&gate.lock);
    gate_await(&gate.has_begun);
    pthread_mutex_unlock(&gate.lock);
    /* this thread copies all other results, and then waits for the copy of the slow thread */
    while (gate_others() < TENSORS - 1)
        assert_int_equal(gp_poll(requests[0], SHORT_MS), 0);
    assert_int_equal(gp_poll(requests[0], SHORT_MS), 0);
    gate_set(&gate.may_end);
    assert_int_equal(gp_poll(requests[0], WAIT_MS), 1);
    check_results(0, 1);
    write_results();
    pthread_join(slow, NULL);
    assert_int_equal(polled, 1);
    for (int i = 0; i < TENSORS; i++)
        for (size_t e = 0; e < ELEMENTS; e++)
            assert_true(results[0][i][e] == WRITTEN);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(requests[rank], WAIT_MS));
}

static void two_threads_copy_the_results_of_each_round_once(void **state)
{
    (void)state;
    declare_items();
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        pthread_t other;
        int polled = 0;
        write_results();
        push(0, round);
        assert_int_equal(pthread_create(&other, NULL, poll_alongside, &polled), 0);
        push(1, round);
        assert_int_equal(gp_poll(requests[0], WAIT_MS), 1);
        check_results(0, round);
        write_results();
        pthread_join(other, NULL);
        assert_int_equal(polled, 1);
        assert_true(results[0][0][0] == WRITTEN);
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            ok(gp_wait(requests[rank], WAIT_MS));
        check_results(1, round);
    }
}

#define test(name) cmocka_unit_test_setup_teardown(name, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_request_is_open_until_the_copy_of_another_thread_has_ended),
        test(two_threads_copy_the_results_of_each_round_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
