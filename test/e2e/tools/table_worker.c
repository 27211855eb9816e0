/* A worker of a job with tables of every rule. The keys and gradients of each rank depend on its
 * number and the clock alone, so each worker replays the pushes of all ranks in its own memory, and
 * compares the bits of all rows that it pulls. Keys occur several times, and some have no row.
 * Writes "clock N" at the end of each clock, then "right" or "wrong ...". After an error of the
 * library writes "error CODE TEXT".
 *
 * Usage: table_worker RANK WORKERS CLOCKS LOG [SPEC]
 * SPEC: "other": another declaration than the other ranks; "kept": flag GP_KEEP; "elastic": the job
 * continues without lost workers. */
#include "gradpool_table.h"
#include "svc/reduce/rows/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 60000
#define KEYS 300 /* the lowest keys have rows; all of KEYS_ALL are pulled */
#define KEYS_ALL 330
#define PUSH_KEYS_MAX 60
#define DIM_MAX 7
#define PUSHES_MAX 3
#define TABLES 6

/* A table, and the rows that it must have. */
struct replica {
    gp_table_spec spec;
    gp_table *table;
    bool exists[KEYS_ALL];
    float values[KEYS_ALL][DIM_MAX]; /* in the dtype of the table */
    float moments[KEYS_ALL][2 * DIM_MAX];
    row_fn update;
    row_initial_fn initial;
};

/* Keys and gradients of one push. */
struct rows_pushed {
    size_t count;
    uint64_t keys[PUSH_KEYS_MAX];
    float gradients[PUSH_KEYS_MAX * DIM_MAX];
};

static struct replica replicas[TABLES] = {
    {.spec = {.name = "sgd", .dim = 3, .shards = 8, .rule = GP_ROW_SGD, .initial = GP_UNIFORM}},
    {.spec = {.name = "adagrad", .dim = 7, .rule = GP_ROW_ADAGRAD, .initial = GP_NORMAL}},
    {.spec = {.name = "one", .dim = 4, .shards = 1, .rule = GP_ROW_ADAGRAD_ONE}},
    {.spec = {.name = "adam", .dim = 5, .shards = 32, .rule = GP_ROW_ADAM, .combine = GP_MEAN}},
    {.spec = {.name = "ftrl", .dim = 1, .shards = 16, .rule = GP_ROW_FTRL}},
    {.spec = {.name = "half",
              .dim = 6,
              .dtype = GP_BF16,
              .wire = GP_F32,
              .rule = GP_ROW_SGD,
              .initial = GP_NORMAL,
              .combine = GP_MEAN}},
};
static gp_job *job;
static uint32_t own_rank, workers;
static FILE *file;

static void must(int result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(file, "error %d %s: %s\n", -result, what, gp_last_error());
    fflush(file);
    getchar(); /* waits until stdin ends, because the end of this process would itself cause the
                * errors of the others */
    exit(3);
}

/* ---- what each rank pushes ---- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

static uint64_t drawn(uint32_t rank, uint64_t clock, size_t table, uint32_t push, size_t i)
{
    return mixed(mixed(mixed(rank + 1) + clock) + table * 64 + push) + mixed(i + 1);
}

static uint32_t pushes_of(uint32_t rank, uint64_t clock, size_t table)
{
    return (uint32_t)(mixed(drawn(rank, clock, table, 50, 0)) % (PUSHES_MAX + 1));
}

static void draw_push(uint32_t rank, uint64_t clock, size_t table, uint32_t push,
                      struct rows_pushed *p)
{
    uint32_t dim = replicas[table].spec.dim;
    p->count = 1 + mixed(drawn(rank, clock, table, push, 0)) % PUSH_KEYS_MAX;
    for (size_t i = 0; i < p->count; i++)
        p->keys[i] = mixed(drawn(rank, clock, table, push, 1000 + i)) % KEYS;
    for (size_t i = 0; i < p->count * dim; i++)
        p->gradients[i] =
            (float)(mixed(drawn(rank, clock, table, push, 2000 + i)) >> 40) * 0x1p-23f - 1;
}

static gp_row_settings settings_of(uint64_t clock)
{
    return (gp_row_settings){.rate = 0.1 / (1 + (double)(clock / 3)),
                             .weight_decay = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.99,
                             .epsilon = 1e-8,
                             .beta = 1,
                             .l1 = 0.01,
                             .l2 = 0.1};
}

/* ---- the replay ---- */

/* Adds the gradients of the key in one push, in the order of positions. Returns whether the push
 * contains the key. */
static bool replay_push(const struct rows_pushed *p, uint64_t key, uint32_t dim, float *ret_sum)
{
    bool found = false;
    for (size_t i = 0; i < p->count; i++) {
        if (p->keys[i] != key)
            continue;
        for (uint32_t d = 0; d < dim; d++)
            ret_sum[d] = found ? ret_sum[d] + p->gradients[i * dim + d] : p->gradients[i * dim + d];
        found = true;
    }
    return found;
}

static void replay_key(struct replica *r, const struct rows_pushed *pushes, size_t count,
                       uint64_t key, const struct row_step *step)
{
    float sum[DIM_MAX], part[DIM_MAX];
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        if (!replay_push(&pushes[i], key, r->spec.dim, part))
            continue;
        for (uint32_t d = 0; d < r->spec.dim; d++)
            sum[d] = found ? sum[d] + part[d] : part[d];
        found = true;
    }
    if (found)
        r->update(step, sum, r->spec.dim, r->values[key], r->moments[key]);
}

static void replay_table(size_t table, uint64_t clock)
{
    struct replica *r = &replicas[table];
    struct rows_pushed *pushes = calloc((size_t)workers * PUSHES_MAX, sizeof *pushes);
    size_t count = 0;
    for (uint32_t rank = 0; rank < workers; rank++)
        for (uint32_t i = 0; i < pushes_of(rank, clock, table); i++)
            draw_push(rank, clock, table, i, &pushes[count++]);
    gp_row_settings s = settings_of(clock);
    struct row_settings settings = {.rate = s.rate,
                                    .weight_decay = s.weight_decay,
                                    .beta1 = s.beta1,
                                    .beta2 = s.beta2,
                                    .epsilon = s.epsilon,
                                    .beta = s.beta,
                                    .l1 = s.l1,
                                    .l2 = s.l2};
    struct row_step step =
        row_step(&settings, clock, r->spec.combine == GP_MEAN ? workers : 1, false);
    for (uint64_t key = 0; key < KEYS; key++)
        replay_key(r, pushes, count, key, &step);
    free(pushes);
}

static void replica_init(struct replica *r)
{
    struct row_initial initial = {(enum row_initial_kind)r->spec.initial, r->spec.initial_value,
                                  r->spec.seed};
    r->update = row_pick(REDUCE_C, (enum row_rule)r->spec.rule, (enum reduce_dtype)r->spec.dtype);
    r->initial = row_initial_pick(REDUCE_C, (enum reduce_dtype)r->spec.dtype);
    for (uint64_t key = 0; key < KEYS_ALL; key++)
        r->initial(&initial, key, r->spec.dim, r->values[key]);
}

/* ---- the worker ---- */

static void declare_tables(const char *spec)
{
    for (size_t i = 0; i < TABLES; i++) {
        struct replica *r = &replicas[i];
        r->spec.dtype = r->spec.dtype ? r->spec.dtype : GP_F32;
        r->spec.initial_value = r->spec.initial == GP_ZEROS ? 0 : 0.1;
        r->spec.seed = 7 + i;
        if (strcmp(spec, "other") == 0 && i == 1)
            r->spec.dim++;
        if (strcmp(spec, "kept") == 0)
            r->spec.flags = GP_KEEP;
        must(gp_table_declare(job, &r->spec, &r->table), "declare");
        replica_init(r);
    }
}

static void compare_row(const struct replica *r, uint64_t key, const float *row)
{
    float wanted[DIM_MAX];
    reduce_convert(r->spec.dtype, REDUCE_F32, r->values[key], wanted, r->spec.dim);
    if (memcmp(wanted, row, r->spec.dim * sizeof *row) == 0)
        return;
    fprintf(file, "wrong row of key %" PRIu64 " in table %s: %.9g, not %.9g\n", key, r->spec.name,
            row[0], wanted[0]);
    exit(1);
}

static void pull_and_compare(struct replica *r, const uint64_t *keys, size_t count)
{
    float *rows = calloc(count * r->spec.dim, sizeof *rows);
    gp_batch *batch;
    gp_request *request;
    must(gp_batch_create(r->table, keys, count, &batch), "batch");
    must(gp_pull(batch, rows, &request), "pull");
    gp_batch_free(batch);
    must(gp_wait(request, WAIT_MS), "wait for rows");
    for (size_t i = 0; i < count; i++)
        compare_row(r, keys[i], rows + i * r->spec.dim);
    free(rows);
}

static void pull_some(size_t table, uint64_t clock)
{
    uint64_t keys[2 * PUSH_KEYS_MAX];
    for (size_t i = 0; i < 2 * PUSH_KEYS_MAX; i++)
        keys[i] = mixed(drawn(own_rank, clock, table, 60, i)) % KEYS_ALL;
    pull_and_compare(&replicas[table], keys, 2 * PUSH_KEYS_MAX);
}

/* Waits only for the first push of the first table; the library copies all other pushes. */
static gp_request *push_all(uint64_t clock)
{
    static struct rows_pushed p;
    gp_request *first = NULL;
    for (size_t table = 0; table < TABLES; table++) {
        for (uint32_t i = 0; i < pushes_of(own_rank, clock, table); i++) {
            gp_batch *batch;
            draw_push(own_rank, clock, table, i, &p);
            must(gp_batch_create(replicas[table].table, p.keys, p.count, &batch), "batch");
            must(gp_push(batch, p.gradients, table == 0 && i == 0 ? &first : NULL), "push");
            gp_batch_free(batch);
        }
    }
    return first;
}

/* Each rank sets other rates. Lanes use the settings of rank 0 and ignore all others. */
static void set_all(uint64_t clock)
{
    gp_row_settings settings = settings_of(clock);
    settings.rate += own_rank;
    for (size_t table = 0; table < TABLES && (clock == 1 || clock % 3 == 0); table++)
        must(gp_table_set(replicas[table].table, &settings), "set");
}

static void run_clock(uint64_t clock)
{
    set_all(clock);
    for (size_t table = 0; table < TABLES; table++)
        pull_some(table, clock);
    gp_request *first = push_all(clock);
    must(gp_clock(job), "clock");
    if (first && clock % 2 == 0)
        must(gp_wait(first, WAIT_MS), "wait for a push");
    for (size_t table = 0; table < TABLES; table++)
        replay_table(table, clock);
    if (first && clock % 2 != 0)
        must(gp_wait(first, WAIT_MS), "wait for a push");
    fprintf(file, "clock %" PRIu64 "\n", clock);
}

static void compare_all(void)
{
    uint64_t keys[2 * KEYS_ALL];
    for (uint64_t i = 0; i < KEYS_ALL; i++) {
        keys[i] = i;
        keys[2 * KEYS_ALL - 1 - i] = i;
    }
    for (size_t table = 0; table < TABLES; table++)
        pull_and_compare(&replicas[table], keys, 2 * KEYS_ALL);
    fprintf(file, "right\n");
}

int main(int argc, char **argv)
{
    gp_client *client;
    gp_job_spec spec = {.name = "tables"};
    if (argc < 5 || !(file = fopen(argv[4], "w")))
        return 2;
    setvbuf(file, NULL, _IOLBF, BUFSIZ);
    spec.rank = own_rank = (uint32_t)strtoul(argv[1], NULL, 10);
    spec.workers = workers = (uint32_t)strtoul(argv[2], NULL, 10);
    spec.on_worker_loss = argc > 5 && strcmp(argv[5], "elastic") == 0 ? GP_CONTINUE : GP_FAIL;
    must(gp_connect(NULL, NULL, &client), "connect");
    must(gp_job_join(client, &spec, &job), "join");
    declare_tables(argc > 5 ? argv[5] : "");
    for (uint64_t clock = 1; clock <= strtoul(argv[3], NULL, 10); clock++)
        run_clock(clock);
    compare_all();
    must(gp_barrier(job, WAIT_MS), "barrier");
    gp_disconnect(client);
    fprintf(file, "left\n");
    return 0;
}
