/* A worker of an elastic job with a deal. Its model is a few floats, and the gradient of a sample
 * is a function of its number. Writes one line for each step: number, epoch, the first element of
 * the mean, a checksum of the model, and the samples of this rank.
 *
 * Usage: elastic_worker RANK WORKERS WORKERS_MAX SAMPLES BATCH EPOCHS PREFETCH CONTINUES LOG
 * RANK `env`: job, rank and numbers of workers are those of the environment, and the log is
 * LOG.RANK.PID.
 * Standard input of rank 0 has a line "STEP WORKERS AWAITS" for each resize. Rank 0 resizes the job
 * to WORKERS before that step. AWAITS is 1: the steps wait for the resize; 0: another thread waits;
 * 2: another thread waits, and rank 0 leaves before the resize has ended. Each resize begins after
 * the number of workers of the steps is that of the previous resize. Meanwhile rank 0 rests between
 * its steps, for a few seconds at most. Without rests, the training could end on a busy host before
 * a late worker has entered.
 * With ELASTIC_WORKER_DIES in the environment the worker dies when it should send its model. With
 * ELASTIC_WORKER_AWAITS, the path of a file, the worker declares its deal only when the file
 * exists. With ELASTIC_WORKER_PREPARES, another path, its first step waits for that file. With
 * ELASTIC_WORKER_COMPUTES, another path, each step takes 50 ms until that file exists.
 * ELASTIC_WORKER_RESTS: time between two steps, in milliseconds. With ELASTIC_WORKER_HURRIES a
 * worker that has to leave does not wait for its last record, and writes the time of its leave.
 * With ELASTIC_WORKER_HIDES a worker of a pool overwrites its cookie. */
#include "gradpool_elastic.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ELEMENTS 300
#define WAIT_MS 60000
#define RESIZES_MAX 16
#define UNTIL_LEFT 2  /* the worker leaves during this resize */
#define RESTS_MAX 200 /* rests of 10 ms after each resize */
#define HURRIES 99    /* the worker leaves with an open record */

struct resize {
    uint64_t step;
    uint32_t workers;
    int awaits;
    pthread_t thread;
    int is_done, is_running;
};

static gp_job *job;
enum { SHORT, OTHER, MODEL, SELDOM, TENSORS }; /* two gradients; model; a sum in some steps */
static gp_tensor *tensors[TENSORS];
static float gradient[2][ELEMENTS], mean[2][ELEMENTS], model[ELEMENTS];
static uint64_t *samples;
static struct resize resizes[RESIZES_MAX];
static int resizes_count;
static uint32_t sharing; /* number of workers in the newest step */
static FILE *file;
static int has_model;

static void must(int result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s: %d, %s\n", what, result, gp_last_error());
    exit(1);
}

static uint32_t number(const char *text) { return (uint32_t)strtoul(text, NULL, 10); }

static float gradient_of(uint64_t sample, int e)
{
    return (float)((sample * (uint64_t)(e + 1)) % 1009);
}

/* ---- resizes ---- */

static void read_resizes(void)
{
    struct resize *r = resizes;
    while (resizes_count < RESIZES_MAX &&
           scanf("%" SCNu64 " %" SCNu32 " %d", &r->step, &r->workers, &r->awaits) == 3) {
        resizes_count++;
        r++;
    }
}

static void *resize_runs(void *context)
{
    const struct resize *r = context;
    int result = gp_job_resize(job, r->workers, WAIT_MS);
    if (r->awaits != UNTIL_LEFT)
        must(result, "resize");
    return NULL;
}

/* Waits until the message about the new number of workers has arrived, so that the resize ends
 * long before the training. */
static void await_wanted(uint32_t workers)
{
    gp_membership membership = {0};
    while (membership.wanted != workers) {
        must(gp_job_membership(job, &membership), "membership");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void resize(struct resize *r)
{
    r->is_done = 1;
    fprintf(file, "resizes %u\n", r->workers);
    if (r->awaits == 1) {
        (void)resize_runs(r);
    } else {
        r->is_running = pthread_create(&r->thread, NULL, resize_runs, r) == 0;
        await_wanted(r->workers);
    }
}

/* Returns whether the steps have the workers of the newest resize. */
static int is_resized(void)
{
    int i = 0;
    while (i < resizes_count && resizes[i].is_done)
        i++;
    return i == 0 || resizes[i - 1].workers == sharing;
}

static void resize_at(uint64_t step)
{
    for (int i = 0; i < resizes_count; i++) {
        if (!resizes[i].is_done && resizes[i].step <= step && is_resized())
            resize(&resizes[i]);
    }
}

static void end_resizes(int has_left)
{
    for (int i = 0; i < resizes_count; i++) {
        if (resizes[i].is_running && has_left == (resizes[i].awaits == UNTIL_LEFT))
            pthread_join(resizes[i].thread, NULL);
    }
}

/* ---- steps ---- */

static void compute(int count)
{
    memset(gradient, 0, sizeof gradient);
    for (int i = 0; i < count; i++)
        for (int e = 0; e < ELEMENTS; e++)
            gradient[0][e] += gradient_of(samples[i], e);
    for (int e = 0; e < ELEMENTS && count > 0; e++)
        gradient[1][e] = gradient[0][e] = gradient[0][e] / (float)count;
}

static void exchange(void)
{
    gp_request *request;
    const gp_item items[2] = {{tensors[SHORT], gradient[0], mean[0]},
                              {tensors[OTHER], gradient[1], mean[1]}};
    must(gp_push_pull_group(job, items, 2, GP_MEAN, &request), "push");
    must(gp_wait(request, WAIT_MS), "wait");
    if (memcmp(mean[0], mean[1], sizeof mean[0]) != 0) {
        fprintf(stderr, "two tensors of one step have different means\n");
        exit(1);
    }
}

/* Runs a round of this tensor only in some steps. */
static void exchange_seldom(uint64_t step)
{
    static float one = 1, sum;
    gp_request *request;
    if (step % 10 != 0)
        return;
    must(gp_push_pull(tensors[SELDOM], &one, &sum, GP_SUM, &request), "push");
    must(gp_wait(request, WAIT_MS), "wait");
}

/* Delays the record of the next step. */
static void rest(void)
{
    static int rests;
    const char *ms = getenv("ELASTIC_WORKER_RESTS");
    rests = is_resized() ? 0 : rests + 1;
    if (!ms && rests > 0 && rests <= RESTS_MAX)
        ms = "10";
    if (ms)
        nanosleep(&(struct timespec){.tv_nsec = 1000000 * (long)number(ms)}, NULL);
}

/* Emulates the time of a gradient, so that a training lasts until a test has seen its events. */
static void spend_time(void)
{
    const char *path = getenv("ELASTIC_WORKER_COMPUTES");
    if (path && access(path, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

static void train(const gp_step *step, uint64_t batch)
{
    int count = gp_step_share(job, step->number, samples, batch);
    must(count, "share");
    if ((uint32_t)count != step->weight) {
        fprintf(stderr, "share of %d samples, weight %u\n", count, step->weight);
        exit(1);
    }
    compute(count);
    spend_time();
    exchange();
    exchange_seldom(step->number);
    if (step->flags & GP_STEP_ENTERS) {
        has_model = 0; /* a new process of a first rank has no model either */
        return;
    }
    for (int e = 0; e < ELEMENTS; e++)
        model[e] -= 0.001f * mean[0][e];
    const void *arrays[] = {model};
    const size_t bytes[] = {sizeof model};
    fprintf(file, "step %" PRIu64 " %" PRIu64 " %u %.9g %016" PRIx64, step->number, step->epoch,
            step->batch, (double)mean[0][0], gp_checksum(arrays, bytes, 1));
    for (int i = 0; i < count; i++)
        fprintf(file, " %" PRIu64, samples[i]);
    fprintf(file, "\n");
}

/* Transfers the model: a sum in which only the giving rank adds its model and a 1. Without the
 * giver all elements are 0. */
static void carry(const gp_step *step)
{
    static float given[ELEMENTS + 1], sum[ELEMENTS + 1];
    gp_request *request;
    int gives = step->giver == gp_job_rank(job);
    if (gives && getenv("ELASTIC_WORKER_DIES"))
        raise(SIGKILL);
    memcpy(given, model, sizeof model);
    given[ELEMENTS] = 1;
    memset(given, 0, gives ? 0 : sizeof given);
    must(gp_push_pull(tensors[MODEL], given, sum, GP_SUM, &request), "carry");
    must(gp_wait(request, WAIT_MS), "carry");
    fprintf(file, sum[ELEMENTS] == 1 ? "carries %u\n" : "misses %u\n", step->giver);
    if (!has_model && sum[ELEMENTS] == 0)
        must(gp_step_missed(job), "missed");
    else if (!has_model)
        memcpy(model, sum, sizeof model);
    has_model |= sum[ELEMENTS] == 1;
}

static int has_to_leave(void)
{
    gp_membership membership = {0};
    must(gp_job_membership(job, &membership), "membership");
    return membership.wanted > 0 && membership.wanted <= gp_job_rank(job);
}

/* Begins a step. Returns HURRIES if the worker hurries and only its last record is open. The worker
 * finds the number of this record in the text of the time-out. The previous record has then
 * confirmed the worker's shares. */
static int begin(gp_step *step)
{
    char text[32];
    if (!getenv("ELASTIC_WORKER_HURRIES") || !has_to_leave())
        return gp_step_begin(job, WAIT_MS, step);
    snprintf(text, sizeof text, "round %" PRIu64 ":", step->number + 1);
    for (int tries = 0; tries < WAIT_MS; tries++) {
        int result = gp_step_begin(job, 1, step);
        if (result != -ETIMEDOUT)
            return result;
        if (strstr(gp_last_error(), text))
            return HURRIES;
    }
    return -ETIMEDOUT;
}

static const char *end_of(int result)
{
    switch (result) {
    case GP_LEAVES: return "leaves\n";
    case GP_ENDED: return "ended\n";
    case HURRIES: return "hurries\n";
    default: return "trained\n";
    }
}

static int run(uint64_t batch)
{
    gp_step step = {0};
    int result;
    do {
        resize_at(step.number + 1);
        result = begin(&step);
        must(result, "step");
        if (result == GP_CARRIES)
            carry(&step);
        else if (result == 0)
            train(&step, batch);
        if (result == 0) {
            sharing = step.workers;
            rest();
        }
    } while (result == 0 || result == GP_CARRIES);
    fprintf(file, "%s", end_of(result));
    return result;
}

/* Leaves the job. A worker that hurries writes the time of the leave. */
static void leave(gp_client *client, int result)
{
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    gp_disconnect(client);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    if (result == HURRIES)
        fprintf(file, "left %ld\n",
                (ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000);
}

/* Tries to join again until the job has been resized, because a late worker is refused until then.
 * */
static void join(gp_client *client, const gp_job_spec *spec)
{
    int result = gp_job_join(client, spec, &job);
    for (int tries = 0; result == -EPROTO && tries < 6000; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        result = gp_job_join(client, spec, &job);
    }
    must(result, "join");
}

/* Writes the line, and waits for the file that the variable names. */
static void await_file(const char *variable, const char *line)
{
    const char *path = getenv(variable);
    fprintf(file, "%s", path ? line : "");
    for (int tries = 0; path && access(path, F_OK) != 0 && tries < 10 * WAIT_MS; tries++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Overwrites the mark of a pool, as a program does that changes its title. */
static void hide(void)
{
    char *cookie = getenv("_GRADPOOL_WORKER");
    if (cookie && getenv("ELASTIC_WORKER_HIDES"))
        memset(cookie, 0, strlen(cookie));
}

/* Returns the log of this process; NULL: it cannot be written. */
static FILE *read_place(char **argv, gp_job_spec *ret_spec)
{
    char path[4096];
    *ret_spec = (gp_job_spec){.name = "deal",
                              .rank = number(argv[1]),
                              .workers = number(argv[2]),
                              .workers_max = number(argv[3])};
    snprintf(path, sizeof path, "%s", argv[9]);
    if (strcmp(argv[1], "env") == 0) {
        must(gp_job_spec_from_environment(ret_spec), "environment");
        snprintf(path, sizeof path, "%s.%u.%d", argv[9], ret_spec->rank, (int)getpid());
    }
    ret_spec->on_worker_loss = number(argv[8]) ? GP_CONTINUE : GP_FAIL;
    return fopen(path, "w");
}

int main(int argc, char **argv)
{
    gp_client *client;
    gp_job_spec spec;
    if (argc != 10)
        return 2;
    const gp_deal deal = {.samples = number(argv[4]),
                          .batch = number(argv[5]),
                          .epochs = number(argv[6]),
                          .prefetch = number(argv[7]),
                          .seed = 7};
    const gp_tensor_spec specs[TENSORS] = {
        {.name = "short", .dtype = GP_F32, .elements = ELEMENTS},
        {.name = "other", .dtype = GP_F32, .elements = ELEMENTS},
        {.name = "model", .dtype = GP_F32, .elements = ELEMENTS + 1},
        {.name = "seldom", .dtype = GP_F32, .elements = 1}};
    hide();
    samples = calloc(deal.batch, sizeof *samples);
    file = read_place(argv, &spec);
    if (!samples || !file)
        return 2;
    setvbuf(file, NULL, _IOLBF, 0);
    has_model = spec.rank < spec.workers; /* these ranks begin with zeros */
    if (spec.rank == 0)
        read_resizes();
    must(gp_connect(NULL, NULL, &client), "connect");
    join(client, &spec);
    await_file("ELASTIC_WORKER_AWAITS", "joined\n");
    must(gp_deal_declare(job, &deal, specs, TENSORS, tensors), "deal");
    await_file("ELASTIC_WORKER_PREPARES", "declared\n");
    int result = run(deal.batch);
    end_resizes(0);
    leave(client, result);
    end_resizes(1);
    fclose(file);
    free(samples);
    return 0;
}
