/* gradpool in a comparison: each worker an ordinary client, tensors of its own for each load. Owns
 * a worker's client and memory. */
#include "bench/compare/host.h"
#include "bench/compare/seat.h"
#include "bench/compare/systems.h"
#include "client/gradpool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_MS 60000

struct peer {
    gp_client *client;
    gp_job *job;
    gp_item *items; /* slices of the two areas */
    uint32_t tensors;
    bool is_foreign;
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
    p->is_foreign ? free(memory) : gp_free(p->job, memory);
}

static int allocate_one(const struct peer *p, uint64_t bytes, float **ret_values)
{
    void *memory = NULL;
    int r = 0;
    if (p->is_foreign)
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

static int resize(void *context, uint64_t bytes, uint32_t tensors, float **ret_gradient,
                  float **ret_result)
{
    struct peer *p = context;
    free_one(p, p->gradient);
    free_one(p, p->result);
    free(p->items);
    p->gradient = p->result = NULL;
    p->tensors = tensors;
    p->items = calloc(tensors, sizeof *p->items);
    int r = p->items ? allocate_one(p, bytes, &p->gradient) : -ENOMEM;
    if (r == 0)
        r = allocate_one(p, bytes, &p->result);
    if (r == 0)
        r = declare(p, bytes / tensors / sizeof(float));
    *ret_gradient = p->gradient;
    *ret_result = p->result;
    return r;
}

static int push_pull(void *context)
{
    struct peer *p = context;
    gp_request *request;
    int r = gp_push_pull_group(p->job, p->items, p->tensors, GP_SUM, &request);
    if (r < 0)
        return complain("push", r);
    r = gp_wait(request, WAIT_MS);
    return r < 0 ? complain("wait", r) : 0;
}

static int work(const struct crew *crew, uint32_t rank, const char *transport, bool is_foreign)
{
    static const struct seat_work verbs = {resize, push_pull, NULL};
    struct peer p = {.is_foreign = is_foreign};
    const gp_options options = {.transport = transport};
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
    return r;
}

int gradpool_start(struct crew *crew, const char *transport, bool is_foreign)
{
    for (uint32_t rank = 0; rank < crew->workers; rank++) {
        pid_t pid = process_fork(SIGKILL);
        if (pid == 0)
            _exit(work(crew, rank, transport, is_foreign) < 0 ? 1 : 0);
        if (pid < 0)
            return -errno;
        crew_note(crew, pid);
    }
    return 0;
}
