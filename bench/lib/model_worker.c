/* A client with a model's tensors. Owns the connection and the memory until the worker leaves.
 * During a measurement the client must change only the stamps in its gradients, because writing
 * whole gradients takes long. */
#include "bench/lib/model_worker.h"

#include "bench/compare/pattern.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int model_worker_complain(const struct model_worker *w, const char *what, int code)
{
    const char *text = gp_last_error();
    fprintf(stderr, "gradpool-bench: %s, rank %u: %s: %s\n", w->job, w->rank, what,
            *text ? text : gp_strerror(code));
    return code;
}

static int declare(struct model_worker *w)
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
                             .elements = models_elements(&w->model->tensors[i], w->bytes_scale)};
    }
    if (r == 0)
        r = gp_tensors_declare(w->membership, specs, count, w->tensors);
    free(specs);
    free(names);
    return r < 0 ? model_worker_complain(w, "declare", r) : 0;
}

static int allocate(struct model_worker *w)
{
    uint64_t all = 0, first = 0;
    void *gradients = NULL, *results = NULL;
    for (size_t i = 0; i < w->model->tensors_count; i++)
        all += gp_tensor_elements(w->tensors[i]);
    int r = gp_alloc(w->membership, all * sizeof(float), &gradients);
    if (r == 0)
        r = gp_alloc(w->membership, all * sizeof(float), &results);
    w->gradients = gradients;
    w->results = results;
    if (r < 0)
        return model_worker_complain(w, "allocate", r);
    for (size_t i = 0; i < w->model->tensors_count; i++) {
        uint64_t elements = gp_tensor_elements(w->tensors[i]);
        w->items[i] = (gp_item){w->tensors[i], w->gradients + first, w->results + first};
        pattern_fill(w->gradients + first, elements, w->rank);
        first += elements;
    }
    return 0;
}

int model_worker_come(struct model_worker *w)
{
    const gp_options options = {.transport = w->transport};
    const gp_job_spec spec = {.name = w->job, .rank = w->rank, .workers = w->workers};
    w->tensors = calloc(w->model->tensors_count, sizeof(gp_tensor *));
    w->items = calloc(w->model->tensors_count, sizeof *w->items);
    if (!w->tensors || !w->items)
        return model_worker_complain(w, "start", -ENOMEM);
    int r = gp_connect(w->endpoint, &options, &w->client);
    if (r < 0)
        return model_worker_complain(w, "connect", r);
    r = gp_job_join(w->client, &spec, &w->membership);
    if (r < 0)
        return model_worker_complain(w, "join", r);
    r = declare(w);
    return r < 0 ? r : allocate(w);
}

void model_worker_go(struct model_worker *w)
{
    if (w->membership) {
        gp_free(w->membership, w->gradients);
        gp_free(w->membership, w->results);
        gp_job_leave(w->membership);
    }
    gp_disconnect(w->client);
    free(w->tensors);
    free(w->items);
}

void model_worker_stamp(struct model_worker *w, uint32_t round)
{
    for (size_t i = 0; i < w->model->tensors_count; i++)
        pattern_stamp((float *)w->items[i].gradient, gp_tensor_elements(w->tensors[i]), w->rank,
                      round);
}

uint64_t model_worker_count_wrong(const struct model_worker *w, uint32_t round)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < w->model->tensors_count; i++)
        wrong += pattern_count_wrong(w->items[i].result, gp_tensor_elements(w->tensors[i]),
                                     w->workers, round);
    return wrong;
}
