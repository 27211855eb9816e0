/* The emulated worker, an ordinary client (B2). Owns its client and its memory for the length of a
 * stay. Must never compute while it is timed: a worker that burns a core would be taken for a slow
 * service. */
#include "bench/savings/emulated.h"

#include "bench/compare/pattern.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WAIT_MS 60000
/* Gradients that become ready within so long go out in one call. */
#define TOGETHER_NS 1e6

struct worker {
    const struct emulated *about;
    const struct model *model;
    gp_client *client;
    gp_job *job;
    gp_tensor **tensors;
    gp_item *items;
    gp_request **requests;
    float *gradients, *results; /* of all tensors, one after the other */
};

static int complain(const struct worker *w, const char *what, int code)
{
    const char *text = gp_last_error();
    fprintf(stderr, "gradpool-bench: %s, rank %u: %s: %s\n", w->about->job->name, w->about->rank,
            what, *text ? text : gp_strerror(code));
    return code;
}

static int declare(struct worker *w)
{
    size_t count = w->model->tensors_count;
    gp_tensor_spec *specs = calloc(count, sizeof *specs);
    char(*names)[32] = calloc(count, sizeof *names);
    int r = specs && names ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < count; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%zu", i);
        specs[i] =
            (gp_tensor_spec){.name = names[i],
                             .dtype = GP_F32,
                             .elements = plan_elements(w->about->plan, &w->model->tensors[i])};
    }
    if (r == 0)
        r = gp_tensors_declare(w->job, specs, count, w->tensors);
    free(specs);
    free(names);
    return r < 0 ? complain(w, "declare", r) : 0;
}

static int allocate(struct worker *w)
{
    size_t bytes = plan_bytes(w->about->plan, w->about->job);
    uint64_t first = 0;
    void *gradients = NULL, *results = NULL;
    int r = gp_alloc(w->job, bytes, &gradients);
    if (r == 0)
        r = gp_alloc(w->job, bytes, &results);
    w->gradients = gradients;
    w->results = results;
    if (r < 0)
        return complain(w, "allocate", r);
    for (size_t i = 0; i < w->model->tensors_count; i++) {
        uint64_t elements = gp_tensor_elements(w->tensors[i]);
        w->items[i] = (gp_item){w->tensors[i], w->gradients + first, w->results + first};
        pattern_fill(w->gradients + first, elements, w->about->rank);
        first += elements;
    }
    return 0;
}

static int set_up(struct worker *w)
{
    const struct emulated *a = w->about;
    const gp_options options = {.transport = a->transport};
    const gp_job_spec spec = {.name = a->job->name, .rank = a->rank, .workers = a->job->workers};
    size_t count = w->model->tensors_count;
    w->tensors = calloc(count, sizeof(gp_tensor *));
    w->items = calloc(count, sizeof *w->items);
    w->requests = calloc(count, sizeof(gp_request *));
    if (!w->tensors || !w->items || !w->requests)
        return complain(w, "start", -ENOMEM);
    int r = gp_connect(a->endpoint, &options, &w->client);
    if (r < 0)
        return complain(w, "connect", r);
    r = gp_job_join(w->client, &spec, &w->job);
    if (r < 0)
        return complain(w, "join", r);
    r = declare(w);
    return r < 0 ? r : allocate(w);
}

static void tear_down(struct worker *w)
{
    if (w->job) {
        gp_free(w->job, w->gradients);
        gp_free(w->job, w->results);
        gp_job_leave(w->job);
    }
    gp_disconnect(w->client);
    free(w->tensors);
    free(w->items);
    free(w->requests);
}

static void sleep_until(double at_ns)
{
    const struct timespec at = {(time_t)(at_ns / NS_PER_S), (long)((uint64_t)at_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

/* How many tensors from `first` on go out in one call, and when the last of them is ready. */
static size_t gather(const struct worker *w, size_t first, double step_ns, double *ret_ready_ns)
{
    const struct model_tensor *all = w->model->tensors;
    double limit_ns = plan_ready_ns(step_ns, &all[first]) + TOGETHER_NS;
    size_t end = first + 1;
    while (end < w->model->tensors_count && plan_ready_ns(step_ns, &all[end]) <= limit_ns)
        end++;
    *ret_ready_ns = plan_ready_ns(step_ns, &all[end - 1]);
    return end - first;
}

static int push_all(struct worker *w, uint64_t begin_ns, double step_ns, size_t *ret_requests)
{
    size_t requests = 0;
    for (size_t i = 0, count; i < w->model->tensors_count; i += count) {
        double ready_ns;
        count = gather(w, i, step_ns, &ready_ns);
        sleep_until((double)begin_ns + ready_ns);
        int r = gp_push_pull_group(w->job, &w->items[i], count, GP_SUM, &w->requests[requests]);
        if (r < 0)
            return complain(w, "push", r);
        requests++;
    }
    *ret_requests = requests;
    return 0;
}

/* One element in thousands: what every round differs in. */
static void stamp(struct worker *w, uint32_t round)
{
    float *values = w->gradients;
    for (size_t i = 0; i < w->model->tensors_count; i++) {
        uint64_t elements = gp_tensor_elements(w->tensors[i]);
        pattern_stamp(values, elements, w->about->rank, round);
        values += elements;
    }
}

static uint64_t count_wrong(const struct worker *w, uint32_t round)
{
    const float *values = w->results;
    uint64_t wrong = 0;
    for (size_t i = 0; i < w->model->tensors_count; i++) {
        uint64_t elements = gp_tensor_elements(w->tensors[i]);
        wrong += pattern_count_wrong(values, elements, w->about->job->workers, round);
        values += elements;
    }
    return wrong;
}

static int run_round(struct worker *w, uint32_t round, struct emulated_result *result)
{
    const struct emulated *a = w->about;
    double step_ns = plan_step_ns(a->plan, a->job, a->rank, round);
    uint64_t begin_ns = clock_now_ns();
    size_t requests = 0;
    stamp(w, round + 1);
    int r = push_all(w, begin_ns, step_ns, &requests);
    for (size_t i = 0; r == 0 && i < requests; i++)
        if ((r = gp_wait(w->requests[i], WAIT_MS)) < 0)
            complain(w, "wait", r);
    if (r == 0 && plan_is_timed(round, a->rounds)) {
        result->timed_ns += clock_now_ns() - begin_ns;
        result->timed_rounds++;
    }
    if (r == 0 && plan_is_checked(round, a->rounds)) {
        result->wrong += count_wrong(w, round + 1);
        result->checked_rounds++;
    }
    return r;
}

int emulated_run(const struct emulated *about, struct emulated_result *ret_result)
{
    struct worker w = {.about = about, .model = about->job->model};
    struct emulated_result result = {0};
    int r = set_up(&w);
    for (uint32_t round = 0; r == 0 && round < about->rounds; round++)
        r = run_round(&w, round, &result);
    tear_down(&w);
    *ret_result = result;
    return r;
}
