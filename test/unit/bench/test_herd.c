/* Tests that workers of `gradpool-bench stragglers` report when they end. The workers are real
 * processes. This file simulates their pushes and results. */
#include "bench/stragglers/herd.h"

#include "bench/lib/model_worker.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define WORKERS 3
#define ROUNDS 5

/* Result of the worker's second check, which is the check of the last round. */
static enum { RIGHT, WRONG, UNSEEN } last_round;

int model_worker_come(struct model_worker *w) { return 0; }
void model_worker_go(struct model_worker *w) {}
void model_worker_stamp(struct model_worker *w, uint32_t round) {}
int model_worker_complain(const struct model_worker *w, const char *what, int code) { return code; }

uint64_t model_worker_count_wrong(const struct model_worker *w, uint32_t round)
{
    if (round == 1 || last_round == RIGHT)
        return 0;
    if (last_round == UNSEEN && w->rank == WORKERS - 1)
        _exit(0);
    return 7;
}

int gp_push_pull_group(gp_job *job, const gp_item *items, size_t count, enum gp_operation operation,
                       gp_request **ret_request)
{
    *ret_request = NULL;
    return 0;
}

int gp_wait(gp_request *request, int timeout_ms) { return 0; }

static int run(struct herd_checks *ret_checks)
{
    const struct model model = {0};
    const struct herd_setting setting = {
        .job = "herd", .model = &model, .step_ns = 1000000, .workers = WORKERS};
    struct herd herd;
    assert_int_equal(herd_start(&herd, &setting), 0);
    assert_int_equal(herd_await(&herd, ROUNDS), 0);
    return herd_stop(&herd, ret_checks);
}

static void each_worker_checks_its_first_and_its_last_round(void **state)
{
    struct herd_checks checks;
    last_round = RIGHT;
    assert_int_equal(run(&checks), 0);
    assert_int_equal(checks.checked, 2 * WORKERS);
    assert_int_equal(checks.wrong, 0);
}

static void an_error_in_the_last_round_alone_is_counted(void **state)
{
    struct herd_checks checks;
    last_round = WRONG;
    assert_int_equal(run(&checks), 0);
    assert_int_equal(checks.checked, 2 * WORKERS);
    assert_int_equal(checks.wrong, 7 * WORKERS);
}

static void a_worker_that_ends_without_a_check_of_its_last_round_fails_the_run(void **state)
{
    struct herd_checks checks;
    last_round = UNSEEN;
    assert_int_equal(run(&checks), -EIO);
    assert_int_equal(checks.checked, 2 * WORKERS - 1);
}

static void a_worker_that_did_not_start_has_checked_no_round(void **state)
{
    struct herd herd = {.board = NULL};
    struct herd_checks checks;
    assert_int_equal(herd_stop(&herd, &checks), 0);
    assert_int_equal(checks.checked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_worker_checks_its_first_and_its_last_round),
        cmocka_unit_test(an_error_in_the_last_round_alone_is_counted),
        cmocka_unit_test(a_worker_that_ends_without_a_check_of_its_last_round_fails_the_run),
        cmocka_unit_test(a_worker_that_did_not_start_has_checked_no_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
