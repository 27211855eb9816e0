/* Tables of real models: tensors, the times at which their gradients are ready, and the length of a
 * step. */
#ifndef GRADPOOL_BENCH_SIM_INPUT_MODELS_H
#define GRADPOOL_BENCH_SIM_INPUT_MODELS_H

#include <stddef.h>
#include <stdint.h>

struct model_tensor {
    uint64_t elements;
    double ready; /* fraction of the backward pass after which the gradient is complete */
};

struct model {
    char name[40];
    double step_ns; /* step time of one worker, without aggregation */
    struct model_tensor *tensors;
    size_t tensors_count;
    uint64_t elements; /* sum over the tensors */
};

struct models {
    struct model *all; /* all models, in the order of profiles.csv */
    size_t count;
};

/* Loads all models. `folder` contains profiles.csv (model, iter_ms; the rows with default_for v100
 * are used) and a <model>.csv for each model (elements, ready_frac). An error text
 * (TABLE_ERROR_BYTES) names file and line. */
int models_load(struct models *models, const char *folder, char *error);
void models_fini(struct models *models);
/* Finds a model. Returns NULL if no model has this name. */
const struct model *models_find(const struct models *models, const char *name);
/* Returns the number of elements of a scaled tensor; at least one. */
uint64_t models_elements(const struct model_tensor *tensor, double scale);

#endif
