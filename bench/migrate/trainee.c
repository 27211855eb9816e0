/* The worker of a migrating job, an ordinary client (B2). Owns its client and its memory. Must
 * never compute during the aggregation of an iteration; results are checked during the emulated
 * computing time. */
#include "bench/migrate/trainee.h"

#include "bench/migrate/reference.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 20000
#define ORDER_WAIT_MS 120000
/* index of the first part in `tensors`; index 0 is the order, index 1 the load */
#define FIRST_PART 2
#define TENSORS_MAX (FIRST_PART + TRAINEE_PARTS_MAX)

struct worker {
    const struct trainee *about;
    gp_client *client;
    gp_job *job;
    uint32_t restarts, iteration;
    bool is_anew;
    gp_tensor *tensors[TENSORS_MAX];
    size_t tensors_count;
    float *drawn; /* gradients of the load and of each part, computed in advance */
    /* gradients and results of three kinds of tensors: the order, the load, and all parts */
    float *gradients, *values;
};

static int complain(const struct worker *w, const char *what, int code)
{
    const char *text = gp_last_error();
    fprintf(stderr, "gradpool-bench: %s, rank %u, iteration %u: %s: %s\n", w->about->job,
            w->about->rank, w->iteration, what, *text ? text : gp_strerror(code));
    return code;
}

/* --- positions of tensors and parts --- */

static uint64_t elements_of(const struct trainee *a, size_t tensor)
{
    return tensor == 0 ? 1 : tensor == 1 ? a->load_elements : a->part_elements;
}

static uint64_t place_of(const struct trainee *a, size_t tensor)
{
    return tensor == 0 ? 0
           : tensor == 1
               ? 1
               : 1 + a->load_elements + (uint64_t)(tensor - FIRST_PART) * a->part_elements;
}

static uint64_t total_elements(const struct trainee *a)
{
    return 1 + a->load_elements + a->parts * a->part_elements;
}

static struct reference reference_of(const struct trainee *a, size_t tensor)
{
    return (struct reference){.seed = a->seed,
                              .tensor = tensor,
                              .elements = elements_of(a, tensor),
                              .workers = a->workers,
                              .is_update = tensor >= FIRST_PART};
}

/* Returns the part that is trained in this iteration; 0: there are no parts. */
static size_t part_at(const struct trainee *a, uint32_t iteration)
{
    return a->part_elements ? FIRST_PART + iteration % a->parts : 0;
}

static uint32_t round_at(const struct trainee *a, size_t tensor, uint32_t iteration)
{
    return tensor < FIRST_PART ? iteration : iteration / a->parts;
}

/* --- join and leave --- */

static int declare(struct worker *w)
{
    const struct trainee *a = w->about;
    gp_tensor_spec specs[TENSORS_MAX];
    char names[TENSORS_MAX][16];
    w->tensors_count = FIRST_PART + (a->part_elements ? a->parts : 0);
    for (size_t i = 0; i < w->tensors_count; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%zu", i);
        specs[i] = (gp_tensor_spec){.name = names[i],
                                    .dtype = GP_F32,
                                    .elements = elements_of(a, i),
                                    .rule = i >= FIRST_PART ? GP_ADAM : GP_NO_RULE};
    }
    int r = gp_tensors_declare(w->job, specs, w->tensors_count, w->tensors);
    return r < 0 ? complain(w, "declare", r) : 0;
}

void trainee_job_name(const struct trainee *a, uint32_t restarts, char *ret_name, size_t name_bytes)
{
    snprintf(ret_name, name_bytes, "%s-%u", a->job, restarts);
}

static int come(struct worker *w)
{
    const struct trainee *a = w->about;
    const gp_options options = {.transport = a->transport};
    char name[64];
    trainee_job_name(a, w->restarts, name, sizeof name);
    const gp_job_spec spec = {.name = name,
                              .rank = a->rank,
                              .workers = a->workers,
                              .durability = a->durability ? a->durability : GP_DURABILITY_NONE};
    void *gradients = NULL, *values = NULL;
    size_t bytes = total_elements(a) * sizeof(float);
    int r = w->client ? 0 : gp_connect(a->endpoint, &options, &w->client);
    if (r == 0)
        r = gp_job_join(w->client, &spec, &w->job);
    if (r == 0)
        r = gp_alloc(w->job, bytes, &gradients);
    if (r == 0)
        r = gp_alloc(w->job, bytes, &values);
    if (r < 0)
        return complain(w, "join", r);
    w->gradients = gradients;
    w->values = values;
    memcpy(w->gradients, w->drawn, bytes);
    return declare(w);
}

static int draw(struct worker *w)
{
    const struct trainee *a = w->about;
    w->drawn = calloc(total_elements(a), sizeof *w->drawn);
    if (!w->drawn)
        return complain(w, "start", -ENOMEM);
    for (size_t i = 1; i < FIRST_PART + a->parts; i++) {
        const struct reference r = reference_of(a, i);
        reference_fill(&r, a->rank, w->drawn + place_of(a, i));
    }
    return 0;
}

static int broadcast(struct worker *w)
{
    for (size_t i = FIRST_PART; i < w->tensors_count; i++) {
        gp_request *request;
        int r = gp_broadcast(w->tensors[i], w->values + place_of(w->about, i), 0, &request);
        if (r == 0)
            r = gp_wait(request, WAIT_MS);
        if (r < 0)
            return complain(w, "broadcast", r);
    }
    return 0;
}

static int begin(struct worker *w)
{
    int r = draw(w);
    if (r == 0)
        r = come(w);
    for (size_t i = FIRST_PART; r == 0 && i < w->tensors_count; i++) {
        const struct reference about = reference_of(w->about, i);
        reference_first(&about, w->values + place_of(w->about, i));
    }
    return r == 0 ? broadcast(w) : r;
}

static void leave(struct worker *w)
{
    if (!w->job)
        return;
    gp_free(w->job, w->gradients);
    gp_free(w->job, w->values);
    gp_job_leave(w->job);
    w->job = NULL;
}

/* --- orders --- */

static int pause_until_told(struct worker *w)
{
    char word = 'p';
    struct pollfd told = {.fd = w->about->fd, .events = POLLIN};
    if (write(w->about->fd, &word, 1) != 1 || poll(&told, 1, ORDER_WAIT_MS) != 1 ||
        read(w->about->fd, &word, 1) != 1)
        return complain(w, "the conductor sends no order to continue", -ETIMEDOUT);
    return 0;
}

static int save(struct worker *w)
{
    int r = w->about->part_elements ? gp_job_snapshot(w->job, w->about->saved_path) : 0;
    return r < 0 ? complain(w, "snapshot", r) : 0;
}

static int restore(struct worker *w)
{
    gp_item items[TENSORS_MAX];
    size_t count = 0;
    for (size_t i = FIRST_PART; i < w->tensors_count; i++)
        items[count++] =
            (gp_item){.tensor = w->tensors[i], .result = w->values + place_of(w->about, i)};
    int r = count ? gp_job_restore(w->job, w->about->saved_path, items, count) : 0;
    return r < 0 ? complain(w, "restore", r) : 0;
}

/* Moves the job by a restart: snapshot, end, new job on a lane with room, restore. Skips
 * snapshot and restore if the job has no state. */
static int restart(struct worker *w)
{
    int r = save(w);
    if (r < 0)
        return r;
    leave(w);
    w->restarts++;
    w->is_anew = true;
    r = pause_until_told(w);
    if (r == 0)
        r = come(w);
    return r == 0 ? restore(w) : r;
}

/* --- one iteration --- */

static void sleep_until(uint64_t at_ns)
{
    const struct timespec at = {(time_t)(at_ns / NS_PER_S), (long)(at_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

static uint64_t sum_up(const struct worker *w, size_t tensor)
{
    const struct trainee *a = w->about;
    return reference_checksum(w->values + place_of(a, tensor), 0, elements_of(a, tensor));
}

static void note_results(const struct worker *w, uint32_t iteration)
{
    struct trainee_lap *lap = &w->about->board->laps[iteration];
    size_t part = part_at(w->about, iteration);
    lap->load_sum = sum_up(w, 1);
    lap->part_sum = part ? sum_up(w, part) : 0;
}

static void stamp(struct worker *w, size_t tensor)
{
    const struct reference r = reference_of(w->about, tensor);
    reference_stamp(&r, w->about->rank, round_at(w->about, tensor, w->iteration),
                    w->gradients + place_of(w->about, tensor));
}

/* Computes the checksums of the last iteration's results before the next results overwrite them. */
static void compute(struct worker *w, uint64_t begin_ns)
{
    size_t part = part_at(w->about, w->iteration);
    if (w->iteration > 0 && !w->is_anew)
        note_results(w, w->iteration - 1);
    stamp(w, 1);
    if (part)
        stamp(w, part);
    sleep_until(begin_ns + w->about->compute_ns);
}

static int push(struct worker *w, gp_request **ret_sums, gp_request **ret_update)
{
    const struct trainee *a = w->about;
    size_t part = part_at(a, w->iteration), at = place_of(a, part);
    const gp_settings settings = {.rate = reference_settings.rate,
                                  .beta1 = reference_settings.beta1,
                                  .beta2 = reference_settings.beta2,
                                  .epsilon = reference_settings.epsilon};
    const gp_item items[] = {{w->tensors[0], w->gradients, w->values},
                             {w->tensors[1], w->gradients + 1, w->values + 1}};
    *ret_update = NULL;
    int r = gp_push_pull_group(w->job, items, 2, GP_SUM, ret_sums);
    if (r == 0 && part)
        r = gp_update(w->tensors[part], w->gradients + at, w->values + at,
                      a->rank == 0 ? &settings : NULL, ret_update);
    return r < 0 ? complain(w, "push", r) : 0;
}

static int aggregate(struct worker *w, struct trainee_lap *lap)
{
    gp_request *sums, *update;
    enum trainee_order order = TRAINEE_GO;
    if (w->about->rank == 0)
        order = (enum trainee_order)atomic_exchange(&w->about->board->order, TRAINEE_GO);
    w->gradients[0] = (float)order;
    uint64_t cpu_ns = clock_process_cpu_ns();
    lap->pushed_ns = clock_now_ns();
    int r = push(w, &sums, &update);
    if (r < 0)
        return r;
    r = gp_wait(sums, WAIT_MS);
    if (r == 0 && update)
        r = gp_wait(update, WAIT_MS);
    lap->done_ns = clock_now_ns();
    lap->cpu_ns = clock_process_cpu_ns() - cpu_ns;
    return r < 0 ? complain(w, "wait", r) : 0;
}

/* Obeys the order. -ECANCELED: the order is TRAINEE_END. */
static int obey(struct worker *w, enum trainee_order order)
{
    if (order == TRAINEE_GO)
        return 0;
    if (order == TRAINEE_PAUSE)
        return pause_until_told(w);
    note_results(w, w->iteration); /* the results are read before their memory is freed */
    return order == TRAINEE_END ? -ECANCELED : restart(w);
}

static int iterate(struct worker *w)
{
    struct trainee_board *board = w->about->board;
    struct trainee_lap *lap = &board->laps[w->iteration];
    lap->begin_ns = clock_now_ns();
    compute(w, lap->begin_ns);
    w->is_anew = false;
    int r = aggregate(w, lap);
    if (r == 0)
        r = obey(w, (enum trainee_order)w->values[0]);
    lap->end_ns = clock_now_ns();
    if (r == 0 || r == -ECANCELED)
        atomic_store(&board->iterations, ++w->iteration);
    if (w->about->rank == 0)
        send(w->about->fd, "i", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    return r;
}

int trainee_run(const struct trainee *about)
{
    struct worker w = {.about = about};
    int r = begin(&w);
    while (r == 0 && w.iteration < TRAINEE_ITERATIONS_MAX)
        r = iterate(&w);
    leave(&w);
    gp_disconnect(w.client);
    free(w.drawn);
    about->board->code = r == -ECANCELED ? 0 : r < 0 ? r : -E2BIG;
    return about->board->code;
}

/* --- checking --- */

static int64_t count_wrong_of(const struct trainee *a, size_t tensor, uint64_t *sums)
{
    uint32_t iterations = atomic_load(&a->board->iterations);
    uint32_t stride = tensor >= FIRST_PART ? a->parts : 1,
             from = tensor >= FIRST_PART ? (uint32_t)(tensor - FIRST_PART) : 0;
    uint32_t rounds = iterations > from ? (iterations - from + stride - 1) / stride : 0;
    const struct reference about = reference_of(a, tensor);
    int64_t wrong = 0;
    int r = reference_replay(&about, rounds, sums);
    for (uint32_t n = 0; r == 0 && n < rounds; n++) {
        const struct trainee_lap *lap = &a->board->laps[n * stride + from];
        wrong += sums[n] != (tensor >= FIRST_PART ? lap->part_sum : lap->load_sum);
    }
    return r < 0 ? r : wrong;
}

int64_t trainee_count_wrong(const struct trainee *a)
{
    uint64_t *sums = calloc(TRAINEE_ITERATIONS_MAX, sizeof *sums);
    int64_t wrong = sums ? 0 : -ENOMEM;
    for (size_t i = 1; wrong >= 0 && i < FIRST_PART + (a->part_elements ? a->parts : 0); i++) {
        int64_t more = count_wrong_of(a, i, sums);
        wrong = more < 0 ? more : wrong + more;
    }
    free(sums);
    return wrong;
}
