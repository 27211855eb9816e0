/* Tests weights of gradients against a real service: 3:1 gives the bits of the formula of
 * gradpool_elastic.h. Both ranks of a job run in this process: a push returns at once, so one
 * thread is enough. Usage: weights ENDPOINT TRANSPORT. Prints the passed checks. */
#include "client/gradpool_elastic.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2
#define WAIT_MS 90000
/* Two pieces with several chunks each. */
#define LONG 1500000

static gp_client *client;
static gp_job *jobs[RANKS];
static float *gradient[RANKS], *result[RANKS], *kept;

#define must(call)                                                                          \
    do {                                                                                    \
        int r_ = (call);                                                                    \
        if (r_ < 0) {                                                                       \
            printf("not ok - line %d: %s: %d, %s\n", __LINE__, #call, r_, gp_last_error()); \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define check(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            printf("not ok - line %d: %s\n", __LINE__, #condition); \
            exit(1);                                                \
        }                                                           \
    } while (0)

static float value(uint32_t rank, size_t e)
{
    uint32_t x = (uint32_t)(e * 2654435761u ^ (rank + 1) * 97u);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

/* volatile: each product and each sum is rounded once */
static float mean(float first, float second, float w0, float w1)
{
    volatile float a = w0 * first, b = w1 * second, sum = a + b;
    return sum / (w0 + w1);
}

static void fill(void)
{
    for (uint32_t r = 0; r < RANKS; r++)
        for (size_t e = 0; e < LONG; e++)
            gradient[r][e] = value(r, e);
}

static void weigh(uint32_t first, uint32_t second)
{
    must(gp_job_weigh(jobs[0], first));
    must(gp_job_weigh(jobs[1], second));
}

static void declare(const gp_tensor_spec *spec, gp_tensor **tensors)
{
    for (uint32_t r = 0; r < RANKS; r++)
        must(gp_tensors_declare(jobs[r], spec, 1, &tensors[r]));
}

static void push_all(gp_tensor **tensors, enum gp_operation operation)
{
    gp_request *requests[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        must(gp_push_pull(tensors[r], gradient[r], result[r], operation, &requests[r]));
    for (uint32_t r = 0; r < RANKS; r++)
        must(gp_wait(requests[r], WAIT_MS));
}

static void expect(float w0, float w1)
{
    for (size_t e = 0; e < LONG; e++) {
        float want = mean(gradient[0][e], gradient[1][e], w0, w1);
        for (uint32_t r = 0; r < RANKS; r++)
            check(memcmp(&result[r][e], &want, sizeof want) == 0);
    }
}

static void means(void)
{
    gp_tensor *tensors[RANKS];
    declare(&(gp_tensor_spec){.name = "plain", .dtype = GP_F32, .elements = LONG}, tensors);
    fill();
    weigh(3, 1);
    push_all(tensors, GP_MEAN);
    expect(3, 1);
    weigh(96, 32);
    push_all(tensors, GP_MEAN);
    expect(3, 1);
    weigh(GP_WEIGHT_MAX, GP_WEIGHT_MAX);
    push_all(tensors, GP_MEAN);
    expect(1, 1);
    weigh(0, 0);
    push_all(tensors, GP_MEAN);
    check(result[0][0] == 0 && result[1][LONG - 1] == 0);
    gradient[0][7] = NAN;
    weigh(0, 5);
    push_all(tensors, GP_MEAN);
    check(memcmp(result[0], gradient[1], LONG * sizeof(float)) == 0);
}

static void sums_have_no_weights(void)
{
    gp_tensor *tensors[RANKS];
    declare(&(gp_tensor_spec){.name = "sum", .dtype = GP_F32, .elements = LONG}, tensors);
    fill();
    weigh(3, 0);
    push_all(tensors, GP_SUM);
    for (size_t e = 0; e < LONG; e += 997)
        check(result[0][e] == gradient[0][e] + gradient[1][e]);
}

static void update(gp_tensor **tensors, uint32_t first, uint32_t second)
{
    static const gp_settings settings = {
        .rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};
    gp_request *requests[RANKS];
    weigh(first, second);
    for (uint32_t r = 0; r < RANKS; r++)
        must(gp_update(tensors[r], gradient[r], result[r], &settings, &requests[r]));
    for (uint32_t r = 0; r < RANKS; r++)
        must(gp_wait(requests[r], WAIT_MS));
}

static void begin_updates(const char *name, gp_tensor **tensors)
{
    gp_request *requests[RANKS];
    declare(&(gp_tensor_spec){.name = name, .dtype = GP_F32, .elements = LONG, .rule = GP_ADAMW},
            tensors);
    for (uint32_t r = 0; r < RANKS; r++) {
        for (size_t e = 0; e < LONG; e++)
            result[r][e] = r == 0 ? value(9, e) : 0;
        must(gp_broadcast(tensors[r], result[r], 0, &requests[r]));
    }
    for (uint32_t r = 0; r < RANKS; r++)
        must(gp_wait(requests[r], WAIT_MS));
}

/* The reference computes the weighted mean, and pushes it as the only gradient of an update. */
static void updates(void)
{
    gp_tensor *tensors[RANKS];
    begin_updates("weighted", tensors);
    fill();
    for (int step = 0; step < 3; step++)
        update(tensors, 3, 1);
    memcpy(kept, result[1], LONG * sizeof(float));
    update(tensors, 0, 0);
    check(memcmp(kept, result[0], LONG * sizeof(float)) == 0);
    begin_updates("reference", tensors);
    fill();
    for (size_t e = 0; e < LONG; e++)
        gradient[0][e] = mean(gradient[0][e], gradient[1][e], 3, 1);
    for (int step = 0; step < 3; step++)
        update(tensors, 1, 0);
    check(memcmp(kept, result[0], LONG * sizeof(float)) == 0);
    check(memcmp(kept, result[1], LONG * sizeof(float)) == 0);
}

static void run(const char *endpoint, const char *transport, bool is_lent)
{
    char name[64];
    gp_options options = {.transport = transport};
    size_t bytes = LONG * sizeof(float);
    snprintf(name, sizeof name, "weights-%s-%s", transport, is_lent ? "lent" : "copied");
    must(gp_connect(endpoint, &options, &client));
    for (uint32_t r = 0; r < RANKS; r++) {
        gp_job_spec spec = {.name = name, .rank = r, .workers = RANKS};
        must(gp_job_join(client, &spec, &jobs[r]));
        if (is_lent) {
            must(gp_alloc(jobs[r], bytes, (void **)&gradient[r]));
            must(gp_alloc(jobs[r], bytes, (void **)&result[r]));
        } else {
            gradient[r] = malloc(bytes);
            result[r] = malloc(bytes);
            check(gradient[r] && result[r]);
        }
    }
    check(gp_job_weigh(jobs[0], GP_WEIGHT_MAX + 1) == -EINVAL);
    means();
    sums_have_no_weights();
    updates();
    gp_disconnect(client);
    for (uint32_t r = 0; r < RANKS && !is_lent; r++) {
        free(gradient[r]);
        free(result[r]);
    }
    printf("ok - %s, %s\n", transport, is_lent ? "lent" : "copied");
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    kept = malloc(LONG * sizeof(float));
    check(kept);
    run(argv[1], argv[2], false);
    run(argv[1], argv[2], true);
    free(kept);
    return 0;
}
