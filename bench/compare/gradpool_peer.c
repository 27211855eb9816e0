/* gradpool in a comparison. Each worker is an ordinary client, with separate tensors for each load.
 * Owns a worker's client and memory. */
#include "bench/compare/seat.h"
#include "bench/compare/systems.h"
#include "bench/lib/host.h"
#include "client/gradpool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_MS 60000

struct peer {
    gp_client *client;
    gp_job *job;
    gp_item *items; /* one item for each tensor, with the gradient and the result of the tensor */
    gp_request **requests;
    uint32_t tensors, rank;
    const struct gradpool_way *way;
    float *gradient, *result;
};

static int complain(const char *what, int code)
{
    const char *text = gp_last_error();
    fprintf(stderr, "gradpool-bench: %s: %s\n", what, *text ? text : gp_strerror(code));
    return code;
}

static void free_one(const struct peer *p, void *memory)
{
    p->way->is_foreign ? free(memory) : gp_free(p->job, memory);
}

static int allocate_one(const struct peer *p, uint64_t bytes, float **ret_values)
{
    void *memory = NULL;
    int r = 0;
    if (p->way->is_foreign)
        r = posix_memalign(&memory, 4096, bytes) == 0 ? 0 : -ENOMEM;
    else
        r = gp_alloc(p->job, bytes, &memory);
    if (r < 0)
        return complain("allocate", r);
    *ret_values = memory;
    return 0;
}

static int declare(struct peer *p, uint64_t elements)
{
    gp_tensor_spec *specs = calloc(p->tensors, sizeof *specs);
    gp_tensor **tensors = calloc(p->tensors, sizeof(gp_tensor *));
    char(*names)[64] = calloc(p->tensors, sizeof *names);
    int r = specs && tensors && names ? 0 : -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < p->tensors; i++) {
        snprintf(names[i], sizeof names[i], "%u.elements.%llu", i, (unsigned long long)elements);
        specs[i] = (gp_tensor_spec){.name = names[i], .dtype = GP_F32, .elements = elements};
    }
    if (r == 0)
        r = gp_tensors_declare(p->job, specs, p->tensors, tensors);
    for (uint32_t i = 0; r == 0 && i < p->tensors; i++)
        p->items[i] = (gp_item){tensors[i], p->gradient + i * elements, p->result + i * elements};
    free(specs);
    free(tensors);
    free(names);
    return r < 0 ? complain("declare", r) : 0;
}

/* Shuffles the tensors. Each rank has another order, which is the same in each run. */
static void shuffle(struct peer *p)
{
    uint64_t state = p->rank + 1;
    for (uint32_t i = p->tensors; i > 1; i--) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t other = (uint32_t)((state >> 33) % i);
        gp_item item = p->items[i - 1];
        p->items[i - 1] = p->items[other];
        p->items[other] = item;
    }
}

static int resize(void *context, uint64_t bytes, uint32_t tensors, float **ret_gradient,
                  float **ret_result)
{
    struct peer *p = context;
    free_one(p, p->gradient);
    free_one(p, p->result);
    free(p->items);
    free(p->requests);
    p->gradient = p->result = NULL;
    p->tensors = tensors;
    p->items = calloc(tensors, sizeof *p->items);
    p->requests = calloc(tensors, sizeof(gp_request *));
    int r = p->items && p->requests ? allocate_one(p, bytes, &p->gradient) : -ENOMEM;
    if (r == 0)
        r = allocate_one(p, bytes, &p->result);
    if (r == 0)
        r = declare(p, bytes / tensors / sizeof(float));
    if (r == 0 && p->way->is_shuffled)
        shuffle(p);
    *ret_gradient = p->gradient;
    *ret_result = p->result;
    return r;
}

static int push_one_by_one(struct peer *p)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < p->tensors; i++) {
        const gp_item *item = &p->items[i];
        r = gp_push_pull(item->tensor, item->gradient, item->result, GP_SUM, &p->requests[i]);
    }
    if (r < 0)
        return complain("push", r);
    for (uint32_t i = 0; r == 0 && i < p->tensors; i++)
        r = gp_wait(p->requests[i], WAIT_MS);
    return r < 0 ? complain("wait", r) : 0;
}

static int push_pull(void *context)
{
    struct peer *p = context;
    gp_request *request;
    if (p->way->is_one_by_one)
        return push_one_by_one(p);
    int r = gp_push_pull_group(p->job, p->items, p->tensors, GP_SUM, &request);
    if (r < 0)
        return complain("push", r);
    r = gp_wait(request, WAIT_MS);
    return r < 0 ? complain("wait", r) : 0;
}

static int work(const struct crew *crew, uint32_t rank, const struct gradpool_way *way)
{
    static const struct seat_work verbs = {resize, push_pull, NULL};
    struct peer p = {.rank = rank, .way = way};
    const gp_options options = {.transport = way->transport};
    const gp_job_spec spec = {.name = crew->job, .rank = rank, .workers = crew->workers};
    const struct seat seat = {crew->address, rank, crew->workers};
    process_bind(rank + 1);
    int r = gp_connect(crew->service->endpoint, &options, &p.client);
    if (r < 0)
        return complain("connect", r);
    r = gp_job_join(p.client, &spec, &p.job);
    r = r < 0 ? complain("join", r) : seat_run(&seat, &verbs, &p);
    gp_disconnect(p.client);
    free(p.items);
    free(p.requests);
    return r;
}

int gradpool_start(struct crew *crew, const struct gradpool_way *way)
{
    for (uint32_t rank = 0; rank < crew->workers; rank++) {
        pid_t pid = process_fork(SIGKILL);
        if (pid == 0)
            _exit(work(crew, rank, way) < 0 ? 1 : 0);
        if (pid < 0)
            return -errno;
        crew_note(crew, pid);
    }
    return 0;
}
