/* The client against a scripted service: rounds, groups, waiting, the commit rule. */
#include "client/gradpool.h"
#include "test/unit/service_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS 2
#define ELEMENTS 1000
#define WAIT_MS 5000

static struct service_rig rig;
static gp_client *clients[WORKERS];
static gp_job *jobs[WORKERS];

static void check(int r)
{
    if (r < 0)
        fail_msg("%d: %s", r, gp_last_error());
}

static void join(uint32_t rank)
{
    gp_job_spec spec = {.name = "job", .rank = rank, .workers = WORKERS};
    check(gp_connect(rig.endpoint, NULL, &clients[rank]));
    check(gp_job_join(clients[rank], &spec, &jobs[rank]));
}

static int setup(void **state)
{
    script_start(&rig, WORKERS);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        join(rank);
    return 0;
}

static int teardown(void **state)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        gp_disconnect(clients[rank]);
    script_stop(&rig);
    return 0;
}

static void declare(const char *name, uint64_t elements, gp_tensor **tensors)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        check(gp_tensor_declare(jobs[rank], name, GP_F32, elements, &tensors[rank]));
}

static float value(uint32_t rank, uint32_t round, size_t i)
{
    return (float)(rank + 1) * 0.37f + (float)round * 1.5f + (float)(i % 97) * 0.01f;
}

static float mean(uint32_t round, size_t i)
{
    return (value(0, round, i) + value(1, round, i)) / 2.0f;
}

static void fill(float *values, uint32_t rank, uint32_t round)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        values[i] = value(rank, round, i);
}

static void check_mean(const float *values, uint32_t round)
{
    for (size_t i = 0; i < ELEMENTS; i++) {
        float want = mean(round, i);
        assert_memory_equal(&values[i], &want, sizeof want);
    }
}

static void the_mean_of_foreign_memory_comes_back(void **state)
{
    static float gradient[WORKERS][ELEMENTS], result[WORKERS][ELEMENTS];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", ELEMENTS, t);
    for (uint32_t round = 1; round <= 20; round++) {
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            fill(gradient[rank], rank, round);
            check(gp_push_pull(t[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
        }
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            check(gp_wait(q[rank], WAIT_MS));
            check_mean(result[rank], round);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_mean_of_foreign_memory_comes_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
