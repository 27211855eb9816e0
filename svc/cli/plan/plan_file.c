/* Reads tables of tensors. Owns the tensors until plan_file_free(). A wrong value in a row is an
 * error with file and line. */
#include "svc/cli/plan/plan_file.h"

#include "svc/base/text.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 32
#define TENSORS_MAX 300000
/* this maximum and the next one also apply when a job declares tensors */
#define NAME_BYTES_MAX 255
#define TENSOR_BYTES_MAX (UINT64_C(1) << 40)

enum column { NAME, ELEMENTS, DTYPE, COLUMNS };

struct table {
    const char *path;
    size_t line;
    int at[COLUMNS]; /* index of each column; -1: the file does not have it */
    size_t capacity;
    void *names; /* search tree of the names read so far; the request owns the names */
};

/* Splits the line in place. Returns the number of cells. */
static int split(char *line, char *ret_cells[COLUMNS_MAX])
{
    int count = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *cell; count < COLUMNS_MAX && (cell = strsep(&line, ","));)
        ret_cells[count++] = cell;
    return count;
}

static int read_heading(struct table *t, char *line, struct err *err)
{
    static const char *const names[] = {"name", "elements", "dtype"};
    /* byte order mark, which some programs write first */
    static const char mark[] = "\xef\xbb\xbf";
    char *cells[COLUMNS_MAX];
    int count = split(strncmp(line, mark, 3) == 0 ? line + 3 : line, cells);
    for (int column = 0; column < COLUMNS; column++) {
        t->at[column] = -1;
        for (int i = 0; i < count; i++)
            if (strcmp(cells[i], names[column]) == 0)
                t->at[column] = i;
    }
    if (t->at[NAME] < 0 || t->at[ELEMENTS] < 0)
        return err_set(err, -EINVAL,
                       "%s: the first line must name the columns, among them `name` and `elements`",
                       t->path);
    return 0;
}

/* Returns the number of a dtype in messages (enum reduce_dtype). */
static int dtype_of(const char *name)
{
    static const char *const names[] = {"f32", "f64", "f16", "bf16", "i32", "i64"};
    for (int i = 0; i < 6; i++)
        if (strcmp(names[i], name) == 0)
            return i + 1;
    return -EINVAL;
}

static int compare_names(const void *a, const void *b) { return strcmp(a, b); }

/* Returns the mistake in a row, or NULL. The text does not contain the tensor's name, because a
 * name may have control bytes for terminals. */
static const char *fault_of(const struct table *t, const char *name, uint64_t elements, int dtype)
{
    static const uint64_t element_bytes[] = {0, 4, 8, 2, 2, 4, 8};
    if (!*name || strlen(name) > NAME_BYTES_MAX)
        return "a tensor's name has 1 to 255 bytes";
    if (!text_is_utf8(name))
        return "the name is not UTF-8";
    if (elements > TENSOR_BYTES_MAX / element_bytes[dtype])
        return "the tensor is larger than 1 TiB";
    if (tfind(name, &t->names, compare_names))
        return "a tensor of this name came before";
    return NULL;
}

static int grow(struct table *t, Gradpool__Wire__PlanRequest *request)
{
    if (request->n_tensors < t->capacity)
        return 0;
    size_t capacity = t->capacity ? 2 * t->capacity : 64;
    void *grown = realloc(request->tensors, capacity * sizeof(Gradpool__Wire__TensorSpec *));
    if (!grown)
        return -ENOMEM;
    request->tensors = grown;
    t->capacity = capacity;
    return 0;
}

static int add(struct table *t, Gradpool__Wire__PlanRequest *request, const char *name,
               uint64_t elements, int dtype)
{
    Gradpool__Wire__TensorSpec *spec = grow(t, request) < 0 ? NULL : malloc(sizeof *spec);
    if (!spec)
        return -ENOMEM;
    gradpool__wire__tensor_spec__init(spec);
    spec->elements = elements;
    spec->dtype = (uint32_t)dtype;
    spec->name = strdup(name);
    request->tensors[request->n_tensors++] = spec;
    return spec->name && tsearch(spec->name, &t->names, compare_names) ? 0 : -ENOMEM;
}

static int read_row(struct table *t, char *line, Gradpool__Wire__PlanRequest *request,
                    struct err *err)
{
    char *cells[COLUMNS_MAX];
    uint64_t elements = 0;
    int count = split(line, cells), dtype = 1;
    if (count == 1 && !*cells[0])
        return 0;
    bool is_whole = t->at[NAME] < count && t->at[ELEMENTS] < count && t->at[DTYPE] < count &&
                    request->n_tensors < TENSORS_MAX &&
                    text_parse_u64(cells[t->at[ELEMENTS]], 0, INT64_MAX, &elements) == 0;
    if (is_whole && t->at[DTYPE] >= 0)
        dtype = dtype_of(cells[t->at[DTYPE]]);
    if (!is_whole || dtype < 0)
        return err_set(err, -EINVAL,
                       "%s:%zu: expected a name, a whole number of elements and, if the file has "
                       "the column dtype, one of f32, f64, f16, bf16, i32, i64; at most %d tensors",
                       t->path, t->line, TENSORS_MAX);
    const char *fault = fault_of(t, cells[t->at[NAME]], elements, dtype);
    if (fault)
        return err_set(err, -EINVAL, "%s:%zu: %s", t->path, t->line, fault);
    if (add(t, request, cells[t->at[NAME]], elements, dtype) < 0)
        return err_set(err, -ENOMEM,
                       "%s:%zu: this process has no memory for the tensor; raise its memory limit",
                       t->path, t->line);
    return 0;
}

static void leave_name(void *name) {}

int plan_file_read(const char *path, Gradpool__Wire__PlanRequest *request, struct err *err)
{
    struct table t = {.path = path};
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t bytes = 0;
    int error = 0;
    if (!file)
        return err_set(err, -EINVAL, "%s: %s", path, strerror(errno));
    while (error == 0 && getline(&line, &bytes, file) >= 0)
        error = t.line++ == 0 ? read_heading(&t, line, err) : read_row(&t, line, request, err);
    if (error == 0 && ferror(file))
        error = err_set(err, -EINVAL, "%s: %s", path, strerror(errno));
    if (error == 0 && request->n_tensors == 0)
        error = err_set(err, -EINVAL, "%s: no tensors", path);
    tdestroy(t.names, leave_name);
    free(line);
    fclose(file);
    if (error < 0)
        plan_file_free(request);
    return error;
}

void plan_file_free(Gradpool__Wire__PlanRequest *request)
{
    for (size_t i = 0; i < request->n_tensors; i++)
        gradpool__wire__tensor_spec__free_unpacked(request->tensors[i], NULL);
    free(request->tensors);
    request->tensors = NULL;
    request->n_tensors = 0;
}
