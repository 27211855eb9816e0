/* The emulated worker. Owns its client until the worker leaves. Must never compute during a
 * measured round: a worker that uses a core would look like a slow service. */
#include "bench/savings/emulated.h"

#include "bench/lib/model_worker.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define WAIT_MS 60000
/* Gradients that become ready within this time are pushed in one call. */
#define TOGETHER_NS 1e6

struct worker {
    const struct emulated *about;
    struct model_worker client;
    gp_request **requests;
};

static void sleep_until(double at_ns)
{
    const struct timespec at = {(time_t)(at_ns / NS_PER_S), (long)((uint64_t)at_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

/* Returns the number of tensors from `first` on that are pushed in one call. `ret_ready_ns`: time
 * at which the last of these tensors is ready. */
static size_t gather(const struct worker *w, size_t first, double step_ns, double *ret_ready_ns)
{
    const struct model_tensor *all = w->client.model->tensors;
    double limit_ns = plan_ready_ns(step_ns, &all[first]) + TOGETHER_NS;
    size_t end = first + 1;
    while (end < w->client.model->tensors_count && plan_ready_ns(step_ns, &all[end]) <= limit_ns)
        end++;
    *ret_ready_ns = plan_ready_ns(step_ns, &all[end - 1]);
    return end - first;
}

static int push_all(struct worker *w, uint64_t begin_ns, double step_ns, size_t *ret_requests)
{
    size_t requests = 0;
    for (size_t i = 0, count; i < w->client.model->tensors_count; i += count) {
        double ready_ns;
        count = gather(w, i, step_ns, &ready_ns);
        sleep_until((double)begin_ns + ready_ns);
        int r = gp_push_pull_group(w->client.membership, &w->client.items[i], count, GP_SUM,
                                   &w->requests[requests]);
        if (r < 0)
            return model_worker_complain(&w->client, "push", r);
        requests++;
    }
    *ret_requests = requests;
    return 0;
}

static int run_round(struct worker *w, uint32_t round, struct emulated_result *result)
{
    const struct emulated *a = w->about;
    double step_ns = plan_step_ns(a->plan, a->job, a->rank, round);
    uint64_t begin_ns = clock_now_ns();
    size_t requests = 0;
    model_worker_stamp(&w->client, round + 1);
    int r = push_all(w, begin_ns, step_ns, &requests);
    for (size_t i = 0; r == 0 && i < requests; i++)
        if ((r = gp_wait(w->requests[i], WAIT_MS)) < 0)
            model_worker_complain(&w->client, "wait", r);
    if (r == 0 && plan_is_timed(round, a->rounds)) {
        result->timed_ns += clock_now_ns() - begin_ns;
        result->timed_rounds++;
    }
    if (r == 0 && plan_is_checked(round, a->rounds)) {
        result->wrong += model_worker_count_wrong(&w->client, round + 1);
        result->checked_rounds++;
    }
    return r;
}

int emulated_run(const struct emulated *about, struct emulated_result *ret_result)
{
    struct worker w = {.about = about,
                       .client = {.endpoint = about->endpoint,
                                  .transport = about->transport,
                                  .job = about->job->name,
                                  .rank = about->rank,
                                  .workers = about->job->workers,
                                  .model = about->job->model,
                                  .bytes_scale = about->plan->bytes_scale}};
    struct emulated_result result = {0};
    w.requests = calloc(about->job->model->tensors_count, sizeof(gp_request *));
    int r = w.requests ? model_worker_come(&w.client) : -ENOMEM;
    for (uint32_t round = 0; r == 0 && round < about->rounds; round++)
        r = run_round(&w, round, &result);
    model_worker_go(&w.client);
    free(w.requests);
    *ret_result = result;
    return r;
}
