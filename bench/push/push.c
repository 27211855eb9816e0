/* The emulated worker. Owns its tensors' memory during a run. */
#include "bench/push/push.h"

#include "bench/lib/gradient.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct push_result {
    uint64_t rounds, wrong;
    double seconds, cpu_seconds;
    double round_us_p50, round_us_p99;
};

struct worker {
    const struct push_options *options;
    gp_client *client;
    gp_job *job;
    gp_tensor **tensors;
    gp_item *items;
    float **gradients, **results;
    gp_request **requests;
    double *round_us;
};

static int complain(const char *what, int code)
{
    const char *text = gp_last_error();
    fprintf(stderr, "gradpool-bench: %s: %s\n", what, *text ? text : gp_strerror(code));
    return code;
}

static int declare(struct worker *w)
{
    const struct push_options *o = w->options;
    gp_tensor_spec *specs = calloc(o->tensors, sizeof *specs);
    char(*names)[32] = calloc(o->tensors, sizeof *names);
    int r = specs && names ? 0 : -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < o->tensors; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%u", i);
        specs[i] = (gp_tensor_spec){.name = names[i], .dtype = GP_F32, .elements = o->elements};
    }
    if (r == 0)
        r = gp_tensors_declare(w->job, specs, o->tensors, w->tensors);
    free(specs);
    free(names);
    return r < 0 ? complain("declare", r) : 0;
}

static int allocate_one(struct worker *w, float **ret_values)
{
    size_t bytes = (w->options->elements ? w->options->elements : 1) * sizeof(float);
    void *memory = NULL;
    if (w->options->is_foreign)
        *ret_values = calloc(1, bytes);
    else if (gp_alloc(w->job, bytes, &memory) == 0)
        *ret_values = memory;
    return *ret_values ? 0 : complain("allocate", -ENOMEM);
}

static int allocate(struct worker *w)
{
    const struct push_options *o = w->options;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < o->tensors; i++) {
        r = allocate_one(w, &w->gradients[i]);
        if (r == 0 && !o->is_in_place)
            r = allocate_one(w, &w->results[i]);
        else if (r == 0)
            w->results[i] = w->gradients[i];
    }
    return r;
}

static int set_up(struct worker *w)
{
    const struct push_options *o = w->options;
    gp_options options = {.transport = o->transport};
    gp_job_spec spec = {.name = o->job, .rank = o->rank, .workers = o->workers};
    w->tensors = calloc(o->tensors, sizeof *w->tensors);
    w->items = calloc(o->tensors, sizeof *w->items);
    w->gradients = calloc(o->tensors, sizeof *w->gradients);
    w->results = calloc(o->tensors, sizeof *w->results);
    w->requests = calloc(o->tensors, sizeof *w->requests);
    w->round_us = calloc(o->rounds ? o->rounds : 1, sizeof *w->round_us);
    if (!w->tensors || !w->items || !w->gradients || !w->results || !w->requests || !w->round_us)
        return complain("start", -ENOMEM);
    int r = gp_connect(o->endpoint, &options, &w->client);
    if (r < 0)
        return complain("connect", r);
    r = gp_job_join(w->client, &spec, &w->job);
    if (r < 0)
        return complain("join", r);
    r = declare(w);
    return r < 0 ? r : allocate(w);
}

static void tear_down(struct worker *w)
{
    const struct push_options *o = w->options;
    for (uint32_t i = 0; w->gradients && w->results && i < o->tensors; i++) {
        if (w->results[i] != w->gradients[i])
            o->is_foreign ? free(w->results[i]) : gp_free(w->job, w->results[i]);
        o->is_foreign ? free(w->gradients[i]) : gp_free(w->job, w->gradients[i]);
    }
    if (w->job)
        gp_job_leave(w->job);
    gp_disconnect(w->client);
    free(w->tensors);
    free(w->items);
    free(w->gradients);
    free(w->results);
    free(w->requests);
    free(w->round_us);
}

/* Returns the tensor at a position in the rank's order. With is_shuffled the order differs between
 * ranks: forwards, backwards, or rotated. */
static uint32_t order(const struct push_options *o, uint32_t position)
{
    if (!o->is_shuffled)
        return position;
    if (o->rank % 2)
        return o->tensors - 1 - position;
    return (uint32_t)((position + o->rank * 7u) % o->tensors);
}

static int push_all(struct worker *w, uint32_t *ret_requests)
{
    const struct push_options *o = w->options;
    uint32_t group = o->group ? o->group : o->tensors, requests = 0;
    for (uint32_t i = 0; i < o->tensors; i++) {
        uint32_t t = order(o, i);
        w->items[i] = (gp_item){w->tensors[t], w->gradients[t], w->results[t]};
    }
    for (uint32_t i = 0; i < o->tensors; i += group) {
        uint32_t count = o->tensors - i < group ? o->tensors - i : group;
        int r = gp_push_pull_group(w->job, &w->items[i], count, o->is_mean ? GP_MEAN : GP_SUM,
                                   &w->requests[requests]);
        if (r < 0)
            return complain("push", r);
        requests++;
    }
    *ret_requests = requests;
    return 0;
}

static int wait_all(struct worker *w, uint32_t requests)
{
    for (uint32_t i = 0; i < requests; i++) {
        int r = gp_wait(w->requests[i], (int)w->options->timeout_ms);
        if (r < 0)
            return complain("wait", r);
    }
    return 0;
}

static void compute(const struct push_options *o)
{
    uint64_t ms = o->compute_ms * (o->rank == o->slow_rank ? UINT64_C(10) : 1);
    struct timespec nap = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    if (ms)
        nanosleep(&nap, NULL);
}

static int run_round(struct worker *w, uint64_t round, struct push_result *result)
{
    const struct push_options *o = w->options;
    uint32_t requests = 0;
    /* Without the check every round uses the first gradient, so that a worker computes only for
     * --compute-ms. */
    for (uint32_t t = 0; t < o->tensors && (round == 0 || !o->skips_check); t++) {
        struct gradient g = {o->seed, t, round};
        gradient_fill(&g, o->rank, w->gradients[t], o->elements);
    }
    compute(o);
    uint64_t start_ns = clock_now_ns();
    int r = push_all(w, &requests);
    if (r == 0)
        r = wait_all(w, requests);
    w->round_us[round] = (double)(clock_now_ns() - start_ns) / 1e3;
    for (uint32_t t = 0; r == 0 && !o->skips_check && t < o->tensors; t++) {
        struct gradient g = {o->seed, t, round};
        result->wrong +=
            gradient_count_wrong(&g, o->workers, o->is_mean, w->results[t], o->elements);
    }
    if (r == 0 && o->is_verbose) {
        printf("round %llu%s\n", (unsigned long long)round + 1, result->wrong ? " wrong" : "");
        fflush(stdout);
    }
    result->rounds += r == 0;
    return r;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(struct worker *w, struct push_result *result)
{
    if (result->rounds == 0)
        return;
    qsort(w->round_us, result->rounds, sizeof *w->round_us, compare_doubles);
    result->round_us_p50 = w->round_us[result->rounds / 2];
    result->round_us_p99 = w->round_us[result->rounds * 99 / 100];
}

/* Runs one worker. Returns 0, or the negative errno of the first failed call, with a text on
 * standard error. */
static int push_run(const struct push_options *options, struct push_result *ret_result)
{
    struct worker w = {.options = options};
    struct push_result result = {0};
    int r = set_up(&w);
    uint64_t start_ns = clock_now_ns(), cpu_ns = clock_process_cpu_ns();
    for (uint32_t round = 0; r == 0 && round < options->rounds; round++)
        r = run_round(&w, round, &result);
    result.seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    result.cpu_seconds = (double)(clock_process_cpu_ns() - cpu_ns) / 1e9;
    if (w.round_us)
        summarise(&w, &result);
    tear_down(&w);
    *ret_result = result;
    return r;
}

static void print_result(const struct push_options *options, const struct push_result *result)
{
    double gib = (double)options->tensors * (double)options->elements * 4 * (double)result->rounds /
                 (double)(1 << 30);
    const char *format =
        options->is_json
            ? "{\"job\": \"%s\", \"rank\": %u, \"workers\": %u, \"rounds\": %llu, \"wrong\": %llu, "
              "\"gib_pushed\": %.6f, \"seconds\": %.6f, \"cpu_s\": %.6f, \"round_us_p50\": %.1f, "
              "\"round_us_p99\": %.1f}\n"
            : "job %s rank %u of %u: %llu rounds, %llu wrong elements, %.3f GiB pushed in %.3f s, "
              "worker CPU %.3f s, round p50 %.0f us, p99 %.0f us\n";
    printf(format, options->job, options->rank, options->workers,
           (unsigned long long)result->rounds, (unsigned long long)result->wrong, gib,
           result->seconds, result->cpu_seconds, result->round_us_p50, result->round_us_p99);
    fflush(stdout);
}

int push_report(const struct push_options *options)
{
    struct push_result result;
    int r = push_run(options, &result);
    if (r == 0 || result.rounds > 0)
        /* a worker without a completed round has already printed the reason */
        print_result(options, &result);
    return r < 0 || result.wrong ? 1 : 0;
}
