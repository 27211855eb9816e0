/* Tests every operation and quorum of gradpool.h against a real service. All ranks of a job run in
 * this process: a push returns at once, so one thread is enough. Usage: operations ENDPOINT
 * TRANSPORT. Values are small integers, so every result is exact. Prints the passed checks. */
#include "client/gradpool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 3
#define WAIT_MS 90000
/* Two pieces with several chunks each. */
#define LONG 1500000

static gp_client *client;
static gp_job *jobs[RANKS];
static gp_tensor *tensors[RANKS];
static float *gradient[RANKS], *result[RANKS];

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

/* Returns element e of the tensor that rank r sends to rank i. */
static float value(int r, int i, size_t e) { return (float)((size_t)(r * 7 + i * 3) + e % 11); }

static void declare(gp_tensor_spec spec)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        bool is_member = spec.ranks == NULL;
        for (uint32_t i = 0; i < spec.ranks_count; i++)
            is_member |= spec.ranks[i] == r;
        tensors[r] = NULL;
        if (is_member)
            must(gp_tensors_declare(jobs[r], &spec, 1, &tensors[r]));
    }
}

static void fill(size_t elements)
{
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < RANKS; i++)
            for (size_t e = 0; e < elements; e++)
                gradient[r][(size_t)i * elements + e] = value(r, i, e);
        memset(result[r], 0xff, RANKS * elements * sizeof(float));
    }
}

static void push_all(enum gp_operation operation)
{
    gp_request *requests[RANKS];
    for (int r = 0; r < RANKS; r++) {
        if (tensors[r])
            must(gp_push_pull(tensors[r], gradient[r], result[r], operation, &requests[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        if (tensors[r])
            must(gp_wait(requests[r], WAIT_MS));
    }
}

static void broadcast_all(int root)
{
    gp_request *requests[RANKS];
    for (int r = 0; r < RANKS; r++)
        must(gp_broadcast(tensors[r], gradient[r], (uint32_t)root, &requests[r]));
    for (int r = 0; r < RANKS; r++)
        must(gp_wait(requests[r], WAIT_MS));
}

static void min_max_and_product(void)
{
    declare((gp_tensor_spec){.name = "reduced", .dtype = GP_F32, .elements = 1000});
    fill(1000);
    push_all(GP_MIN);
    check(result[2][500] == value(0, 0, 500));
    push_all(GP_MAX);
    check(result[0][500] == value(2, 0, 500));
    push_all(GP_PRODUCT);
    check(result[1][500] == value(0, 0, 500) * value(1, 0, 500) * value(2, 0, 500));
}

static void integers_wrap(void)
{
    declare((gp_tensor_spec){.name = "integers", .dtype = GP_I64, .elements = 2});
    for (int r = 0; r < RANKS; r++)
        ((int64_t *)gradient[r])[0] = ((int64_t *)gradient[r])[1] = INT64_MAX - r;
    push_all(GP_SUM);
    check(((int64_t *)result[1])[1] == (int64_t)((uint64_t)INT64_MAX * 3u - 3u));
}

static float as_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* rounds to the nearest value, ties to even */
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Values are f32 in memory and halves on the wire. First every gradient is rounded, then the
 * sum. */
static void narrow_on_the_wire(void)
{
    declare((gp_tensor_spec){.name = "as f16", .dtype = GP_F32, .elements = LONG, .wire = GP_F16});
    fill(LONG);
    push_all(GP_SUM);
    for (size_t e = 0; e < LONG; e += 997) /* small integers are exact */
        check(result[1][e] == value(0, 0, e) + value(1, 0, e) + value(2, 0, e));
    declare(
        (gp_tensor_spec){.name = "as bf16", .dtype = GP_F32, .elements = LONG, .wire = GP_BF16});
    for (int r = 0; r < RANKS; r++)
        for (size_t e = 0; e < LONG; e++)
            gradient[r][e] = value(r, 0, e) / 7;
    push_all(GP_SUM);
    for (size_t e = 0; e < LONG; e++) {
        float sum = as_bf16(value(0, 0, e) / 7) + as_bf16(value(1, 0, e) / 7);
        check(result[2][e] == as_bf16(sum + as_bf16(value(2, 0, e) / 7)));
    }
    broadcast_all(1); /* the root's copy must equal the others */
    for (int r = 0; r < RANKS; r++)
        for (size_t e = 0; e < LONG; e++)
            check(gradient[r][e] == as_bf16(value(1, 0, e) / 7));
}

static void gather(size_t elements, const char *name)
{
    declare((gp_tensor_spec){.name = name, .dtype = GP_F32, .elements = elements});
    fill(elements);
    push_all(GP_GATHER);
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            for (size_t e = 0; e < elements; e++)
                check(result[r][(size_t)from * elements + e] == value(from, 0, e));
}

static void gather_to_one(void)
{
    gp_request *requests[RANKS];
    declare((gp_tensor_spec){.name = "gather to one", .dtype = GP_F32, .elements = 100});
    fill(100);
    for (int r = 0; r < RANKS; r++)
        must(gp_push_pull(tensors[r], gradient[r], r == 1 ? result[1] : NULL, GP_GATHER,
                          &requests[r]));
    for (int r = 0; r < RANKS; r++)
        must(gp_wait(requests[r], WAIT_MS));
    check(result[1][299] == value(2, 0, 99));
}

static void all_to_all(void)
{
    declare((gp_tensor_spec){.name = "all to all", .dtype = GP_F32, .elements = LONG});
    fill(LONG);
    push_all(GP_ALL_TO_ALL);
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            for (size_t e = 0; e < LONG; e++)
                check(result[r][(size_t)from * LONG + e] == value(from, r, e));
}

static void reduce_scatter(void)
{
    declare((gp_tensor_spec){.name = "reduce scatter", .dtype = GP_F32, .elements = LONG});
    fill(LONG);
    push_all(GP_REDUCE_SCATTER);
    for (int r = 0; r < RANKS; r++)
        for (size_t e = 0; e < LONG; e++)
            check(result[r][e] == value(0, r, e) + value(1, r, e) + value(2, r, e));
}

static void send_and_receive(void)
{
    static const uint32_t pair[] = {0, 2};
    gp_request *sent, *received;
    declare((gp_tensor_spec){
        .name = "pair", .dtype = GP_F32, .elements = 1000, .ranks = pair, .ranks_count = 2});
    fill(1000);
    for (int round = 0; round < 3; round++) { /* the direction changes in each round */
        int from = round % 2 ? 2 : 0, to = 2 - from;
        must(gp_receive(tensors[to], result[to], &received));
        must(gp_send(tensors[from], gradient[from], &sent));
        must(gp_wait(received, WAIT_MS));
        must(gp_wait(sent, WAIT_MS));
        check(result[to][999] == value(from, 0, 999));
    }
    push_all(GP_MEAN);
    check(result[2][10] == (value(0, 0, 10) + value(2, 0, 10)) / 2.0f);
}

static void wrong_uses_are_refused(void)
{
    gp_request *request;
    declare((gp_tensor_spec){.name = "all", .dtype = GP_F32, .elements = 10});
    check(gp_send(tensors[0], gradient[0], &request) == -EINVAL);
    check(gp_push_pull(tensors[0], gradient[0], result[0], 4, &request) == -EINVAL);
    gp_tensor_spec spec = {.name = "all", .dtype = GP_F32, .elements = 10, .quorum = GP_ANY};
    check(gp_tensors_declare(jobs[0], &spec, 1, &tensors[0]) == -EEXIST);
    static const uint32_t others[] = {1, 2}, strangers[] = {0, 9};
    spec = (gp_tensor_spec){
        .name = "others", .dtype = GP_F32, .elements = 10, .ranks = others, .ranks_count = 2};
    check(gp_tensors_declare(jobs[0], &spec, 1, &tensors[0]) == -EINVAL);
    gp_tensor_spec wide = {.name = "wide", .dtype = GP_F16, .elements = 10, .wire = GP_F32};
    check(gp_tensors_declare(jobs[0], &wide, 1, &tensors[0]) == -EINVAL);
    spec.ranks = strangers;
    check(gp_tensors_declare(jobs[0], &spec, 1, &tensors[0]) == -EINVAL);
    spec = (gp_tensor_spec){
        .name = "more than all", .dtype = GP_F32, .quorum = GP_FIRST, .bound = RANKS + 1};
    check(gp_tensors_declare(jobs[0], &spec, 1, &tensors[0]) == -EINVAL);
}

static gp_request *push(int r, float x, enum gp_operation operation)
{
    gp_request *request;
    for (int e = 0; e < 1000; e++)
        gradient[r][e] = x;
    must(gp_push_pull(tensors[r], gradient[r], result[r], operation, &request));
    return request;
}

static void the_first_two(void)
{
    declare((gp_tensor_spec){
        .name = "first", .dtype = GP_F32, .elements = 1000, .quorum = GP_FIRST, .bound = 2});
    for (int round = 1; round <= 4; round++) {
        gp_request *a = push(0, (float)round, GP_MEAN), *b = push(2, (float)round + 2, GP_MEAN);
        must(gp_wait(a, WAIT_MS));
        must(gp_wait(b, WAIT_MS));
        check(result[0][999] == (float)round + 1 && result[2][0] == (float)round + 1);
    }
    must(gp_wait(push(1, 1000, GP_MEAN), WAIT_MS)); /* round 1 of the tensor */
    check(result[1][999] == 5);
    gp_request *a = push(1, 7, GP_MEAN), *b = push(0, 9, GP_MEAN); /* round 5 of both ranks */
    must(gp_wait(a, WAIT_MS));
    must(gp_wait(b, WAIT_MS));
    check(result[1][999] == 8 && result[0][999] == 8);
    must(gp_wait(push(2, 1000, GP_MEAN), WAIT_MS));
    check(result[2][999] == 8);
}

static void the_chosen(void)
{
    gp_tensor *leader[RANKS];
    gp_request *requests[RANKS], *ends[RANKS];
    declare((gp_tensor_spec){
        .name = "leader", .dtype = GP_F32, .quorum = GP_FIRST, .bound = 2, .flags = GP_LEADS});
    memcpy(leader, tensors, sizeof leader);
    declare(
        (gp_tensor_spec){.name = "led", .dtype = GP_F32, .elements = LONG, .quorum = GP_CHOSEN});
    for (int round = 1; round <= 3; round++) {
        /* the last request of the list never finishes first */
        for (int r = 2; r >= 0; r--) {
            requests[r] = push(r, (float)(r + round), GP_MEAN);
            if (r != 1)
                must(gp_push_pull(leader[r], NULL, NULL, GP_SUM, &ends[r]));
        }
        for (int r = 0; r < RANKS; r++)
            must(gp_wait(requests[r], WAIT_MS));
        must(gp_push_pull(leader[1], NULL, NULL, GP_SUM, &ends[1]));
        for (int r = 0; r < RANKS; r++) {
            must(gp_wait(ends[r], WAIT_MS));
            check(result[r][999] == (float)(1 + round)); /* sum of ranks 0 and 2 */
        }
    }
}

static void each_by_itself(void)
{
    declare((gp_tensor_spec){.name = "any", .dtype = GP_F32, .elements = 1000, .quorum = GP_ANY});
    must(gp_wait(push(0, 1, GP_SUM), WAIT_MS));
    must(gp_wait(push(0, 2, GP_SUM), WAIT_MS));
    must(gp_wait(push(2, 4, GP_SUM), WAIT_MS));
    check(result[2][999] == 7 && result[0][999] == 3);
    declare((gp_tensor_spec){
        .name = "stale", .dtype = GP_F32, .elements = 1000, .quorum = GP_STALE, .bound = 1});
    must(gp_wait(push(0, 1, GP_SUM), WAIT_MS));
    must(gp_wait(push(0, 2, GP_SUM), WAIT_MS));
    gp_request *ahead = push(0, 4, GP_SUM);
    check(gp_wait(ahead, 100) == -ETIMEDOUT);
    must(gp_wait(push(1, 8, GP_SUM), WAIT_MS));
    check(gp_wait(ahead, 100) == -ETIMEDOUT); /* rank 2 has no result */
    must(gp_wait(push(2, 16, GP_SUM), WAIT_MS));
    must(gp_wait(ahead, WAIT_MS));
    check(result[0][999] == 31);
}

static void set_up(const char *endpoint, const char *transport, bool is_lent)
{
    char name[64];
    snprintf(name, sizeof name, "operations-%s-%s", transport, is_lent ? "lent" : "copied");
    gp_options options = {.transport = transport};
    must(gp_connect(endpoint, &options, &client));
    for (uint32_t r = 0; r < RANKS; r++) {
        gp_job_spec spec = {.name = name, .rank = r, .workers = RANKS};
        size_t bytes = (size_t)RANKS * LONG * sizeof(float);
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
}

static void run(const char *endpoint, const char *transport, bool is_lent)
{
    set_up(endpoint, transport, is_lent);
    min_max_and_product();
    integers_wrap();
    narrow_on_the_wire();
    gather(1, "gather 1");
    gather(LONG, "gather many");
    gather_to_one();
    all_to_all();
    reduce_scatter();
    send_and_receive();
    wrong_uses_are_refused();
    the_first_two();
    the_chosen();
    each_by_itself();
    gp_disconnect(client);
    for (int r = 0; r < RANKS && !is_lent; r++) {
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
    run(argv[1], argv[2], false);
    run(argv[1], argv[2], true);
    return 0;
}
