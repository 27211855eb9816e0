/* Reads the tables of models. Must never accept a partial table: a model without its tensors would
 * cost nothing. */
#include "bench/sim/input/models.h"

#include "bench/sim/input/csv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GPU "v100" /* the GPU whose step times are used */
#define ELEMENTS_MAX 1e12
#define STEP_MS_MAX 1e7

static int add_tensor(struct model *model, struct table *table)
{
    double elements, ready, before = 0;
    struct model_tensor *all;
    int r = table_number(table, 0, 1, ELEMENTS_MAX, &elements);

    if (model->tensors_count > 0)
        before = model->tensors[model->tensors_count - 1].ready;
    if (r == 0)
        r = table_number(table, 1, before, 1, &ready);
    if (r < 0)
        return r;
    all = reallocarray(model->tensors, model->tensors_count + 1, sizeof(*all));
    if (!all)
        return table_complain(table, "no memory"), -ENOMEM;
    model->tensors = all;
    all[model->tensors_count++] = (struct model_tensor){(uint64_t)elements, ready};
    model->elements += (uint64_t)elements;
    return 0;
}

static int load_tensors(struct model *model, const char *folder, char *error)
{
    static const char *const names[] = {"elements", "ready_frac", NULL};
    struct table table;
    char path[256];
    int r;

    snprintf(path, sizeof(path), "%s/%s.csv", folder, model->name);
    r = table_open(&table, path, names);
    while (r >= 0 && (r = table_next(&table)) > 0)
        r = add_tensor(model, &table);
    if (r == 0 && model->tensors_count == 0)
        r = table_complain(&table, "expected a row for each tensor, there is none");
    if (r < 0)
        memcpy(error, table.error, sizeof(table.error));
    table_close(&table);
    return r;
}

enum { COLUMN_MODEL, COLUMN_STEP, COLUMN_GPU };

static int add_model(struct models *models, struct table *table)
{
    struct model model = {0}, *all;
    double step_ms;
    int r = table_number(table, COLUMN_STEP, 1e-3, STEP_MS_MAX, &step_ms);

    if (r < 0)
        return r;
    if (strlen(table_text(table, COLUMN_MODEL)) >= sizeof(model.name))
        return table_complain(table, "expected a name of at most %zu bytes",
                              sizeof(model.name) - 1);
    snprintf(model.name, sizeof(model.name), "%s", table_text(table, COLUMN_MODEL));
    if (models_find(models, model.name))
        return table_complain(table, "expected one " GPU " row for %s, this is the second",
                              model.name);
    model.step_ns = step_ms * 1e6;
    all = reallocarray(models->all, models->count + 1, sizeof(*all));
    if (!all)
        return table_complain(table, "no memory"), -ENOMEM;
    models->all = all;
    all[models->count++] = model;
    return 0;
}

static int load_profiles(struct models *models, const char *folder, char *error)
{
    static const char *const names[] = {"model", "iter_ms", "default_for", NULL};
    struct table table;
    char path[256];
    int r;

    snprintf(path, sizeof(path), "%s/profiles.csv", folder);
    r = table_open(&table, path, names);
    while (r >= 0 && (r = table_next(&table)) > 0)
        if (strcmp(table_text(&table, COLUMN_GPU), GPU) == 0)
            r = add_model(models, &table);
    if (r == 0 && models->count == 0)
        r = table_complain(&table, "expected a row with default_for = " GPU);
    if (r < 0)
        memcpy(error, table.error, sizeof(table.error));
    table_close(&table);
    return r;
}

int models_load(struct models *models, const char *folder, char *error)
{
    int r;

    *models = (struct models){0};
    r = load_profiles(models, folder, error);
    for (size_t i = 0; i < models->count && r == 0; i++)
        r = load_tensors(&models->all[i], folder, error);
    if (r < 0)
        models_fini(models);
    return r;
}

void models_fini(struct models *models)
{
    for (size_t i = 0; i < models->count; i++)
        free(models->all[i].tensors);
    free(models->all);
    *models = (struct models){0};
}

const struct model *models_find(const struct models *models, const char *name)
{
    for (size_t i = 0; i < models->count; i++)
        if (strcmp(models->all[i].name, name) == 0)
            return &models->all[i];
    return NULL;
}

uint64_t models_elements(const struct model_tensor *tensor, double scale)
{
    double elements = round((double)tensor->elements * scale);
    return elements < 1 ? 1 : (uint64_t)elements;
}
