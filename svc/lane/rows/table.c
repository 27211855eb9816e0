/* Owns the tables of a job: their memory, shards and settings. A table is placed as a whole, before
 * the first request. RULES.md: A17, A92. */
#include "svc/lane/rows/table.h"

#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/rows/counts/table_counts.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/room/room.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE_BYTES 4096u

static int tables_alloc(void *context, size_t bytes, void **ret_memory)
{
    struct lane_job *job = context;
    struct arena *arena = job->lane->options.arena;
    void *memory = bytes < PAGE_BYTES ? arena_alloc(arena, &job->account, bytes)
                                      : arena_alloc_aligned(arena, &job->account, bytes);
    if (!memory)
        return arena_lack(arena);
    *ret_memory = memory;
    return 0;
}

static void tables_free_memory(void *context, void *memory, size_t bytes)
{
    struct lane_job *job = context;
    (void)bytes;
    arena_free(job->lane->options.arena, &job->account, memory);
}

static uint32_t requests_all(const struct lane_job *job)
{
    return job->workers_count * record_row_requests(job->workers_count);
}

/* One array of a table or of struct row_apply. All arrays are in a list, so that they are allocated
 * and freed by a loop. */
struct table_array {
    void **memory;
    size_t bytes;
};

static int arrays_alloc(struct allowance *allowance, const struct table_array *arrays, int count)
{
    int error = 0;
    for (int i = 0; error == 0 && i < count; i++)
        error = allowance_alloc(allowance, arrays[i].bytes, arrays[i].memory);
    return error;
}

static void arrays_free(struct allowance *allowance, const struct table_array *arrays, int count)
{
    for (int i = 0; i < count; i++) {
        allowance_free(allowance, *arrays[i].memory, arrays[i].bytes);
        *arrays[i].memory = NULL;
    }
}

/* ---- the apply, one for all tables of a job ---- */

#define APPLY_ARRAYS 5
static void apply_arrays(struct lane_tables *tables, struct table_array ret_arrays[APPLY_ARRAYS])
{
    struct row_apply *apply = tables->apply;
    const struct table_array arrays[APPLY_ARRAYS] = {
        {(void **)&apply->stripe, sizeof *apply->stripe},
        {(void **)&apply->parts, requests_all(tables->job) * sizeof *apply->parts},
        {(void **)&apply->windows, ROW_WINDOW_KEYS_ALL * sizeof *apply->windows},
        {(void **)&apply->sums, ROW_SUMS_BYTES},
        {(void **)&apply->row, ROW_DIM_MAX * sizeof *apply->row},
    };
    memcpy(ret_arrays, arrays, sizeof arrays);
}

static int apply_init(struct lane_tables *tables)
{
    struct table_array arrays[APPLY_ARRAYS];
    int error = allowance_alloc(&tables->allowance, sizeof *tables->apply, (void **)&tables->apply);
    if (error < 0)
        return error;
    apply_arrays(tables, arrays);
    error = arrays_alloc(&tables->allowance, arrays, APPLY_ARRAYS);
    return error < 0 ? error
                     : stripe_init(tables->apply->stripe, &tables->allowance,
                                   requests_all(tables->job), ROW_SOURCES_MAX);
}

static void apply_fini(struct lane_tables *tables)
{
    struct table_array arrays[APPLY_ARRAYS];
    if (!tables->apply)
        return;
    if (tables->apply->stripe)
        stripe_fini(tables->apply->stripe);
    apply_arrays(tables, arrays);
    arrays_free(&tables->allowance, arrays, APPLY_ARRAYS);
    allowance_free(&tables->allowance, tables->apply, sizeof *tables->apply);
}

/* ---- one table ---- */

static void table_birth(void *context, uint64_t mixed, void *ret_values)
{
    const struct lane_table *table = context;
    table->initial(&table->initial_spec, mixed_key_undo(mixed, table->salt), table->terms->dim,
                   ret_values);
}

static uint32_t table_shards(const struct lane_table *table)
{
    return UINT32_C(1) << table->shard_bits;
}

static void shard_free(struct lane_table *table, struct lane_shard *shard)
{
    struct allowance *allowance = &table->counts->memory;
    if (shard->store)
        table_shard_fini(shard->store);
    allowance_free(allowance, shard->store, sizeof *shard->store);
    allowance_free(allowance, shard, sizeof *shard);
}

#define TABLE_ARRAYS 7
static void table_arrays(struct lane_table *table, struct table_array ret_arrays[TABLE_ARRAYS])
{
    const struct table_array arrays[TABLE_ARRAYS] = {
        {(void **)&table->terms, sizeof *table->terms},
        {(void **)&table->counts, sizeof *table->counts},
        {(void **)&table->clocks, sizeof *table->clocks},
        {(void **)&table->queues, sizeof *table->queues},
        {(void **)&table->changes, sizeof *table->changes},
        {(void **)&table->hold, sizeof *table->hold},
        {(void **)&table->shards, table_shards(table) * sizeof(struct lane_shard *)},
    };
    memcpy(ret_arrays, arrays, sizeof arrays);
}

#define QUEUE_ARRAYS 3
static void queue_arrays(struct lane_table *table, struct table_array ret_arrays[QUEUE_ARRAYS])
{
    struct row_queues *queues = table->queues;
    size_t requests = requests_all(table->job);
    const struct table_array arrays[QUEUE_ARRAYS] = {
        {(void **)&queues->ranks, table->job->workers_count * sizeof *queues->ranks},
        {(void **)&queues->requests, requests * sizeof *queues->requests},
        {(void **)&queues->records, requests * sizeof *queues->records},
    };
    memcpy(ret_arrays, arrays, sizeof arrays);
}

static void table_free_shards(struct lane_table *table)
{
    for (uint32_t i = 0; i < table_shards(table); i++)
        if (table->shards[i])
            shard_free(table, table->shards[i]);
}

void table_destroy(struct lane_table *table)
{
    struct lane_tables *tables = table->job->tables;
    struct table_array arrays[TABLE_ARRAYS], queues[QUEUE_ARRAYS];
    if (table->shards)
        table_free_shards(table);
    if (table->queues) {
        queue_arrays(table, queues);
        arrays_free(&tables->allowance, queues, QUEUE_ARRAYS);
    }
    if (table->clocks)
        table_clocks_fini(table->clocks);
    table_arrays(table, arrays);
    arrays_free(&tables->allowance, arrays, TABLE_ARRAYS);
    list_remove(&table->link);
    allowance_free(&tables->allowance, table, sizeof *table);
}

static void table_init_requests(struct lane_table *table)
{
    struct row_queues *queues = table->queues;
    uint32_t each = record_row_requests(table->job->workers_count);
    list_init(&queues->pushes);
    list_init(&queues->pulls);
    list_init(&queues->done);
    for (uint32_t rank = 0; rank < table->job->workers_count; rank++) {
        list_init(&queues->ranks[rank].unused);
        for (uint32_t i = rank * each; i < (rank + 1) * each; i++) {
            queues->requests[i].worker = &table->job->workers[rank];
            queues->requests[i].record = &queues->records[i];
            list_append(&queues->ranks[rank].unused, &queues->requests[i].link);
        }
    }
}

/* Makes all ranks of the job members of the table, from the first clock on. */
static int table_enter_all(struct lane_tables *tables, struct lane_table *table)
{
    uint32_t workers = table->job->workers_count;
    int error = table_clocks_init(table->clocks, &tables->allowance, workers, CLOCK_FIRST);
    for (uint32_t rank = 0; error == 0 && rank < workers; rank++)
        error = table_clocks_enter(table->clocks, rank, CLOCK_FIRST);
    return error;
}

/* Allocates the memory of a table without its shards. */
static int table_alloc(struct lane_tables *tables, struct lane_table *table)
{
    struct table_array arrays[TABLE_ARRAYS], queues[QUEUE_ARRAYS];
    table_arrays(table, arrays);
    int error = arrays_alloc(&tables->allowance, arrays, TABLE_ARRAYS);
    if (error < 0)
        return error;
    table_counts_init(table->counts, &tables->room->rows);
    queue_arrays(table, queues);
    return arrays_alloc(&tables->allowance, queues, QUEUE_ARRAYS);
}

/* Fills in the fields of a table that need no allocation. */
static void table_describe(struct lane_table *table, const struct lane_table_spec *spec,
                           const struct table_terms *terms)
{
    enum reduce_set kernels = table->job->lane->options.kernels;
    table->id = spec->id;
    table->salt = spec->salt;
    table->clock = CLOCK_FIRST;
    table->shard_bits = (uint32_t)__builtin_ctz(terms->shards);
    table->value_bytes = terms->dim * reduce_element_bytes(terms->dtype);
    table->wire_bytes = terms->dim * reduce_element_bytes(terms->wire);
    table->update = row_pick(kernels, terms->rule, terms->dtype);
    table->initial = row_initial_pick(kernels, terms->dtype);
    table->initial_spec = (struct row_initial){
        .kind = terms->initial, .value = terms->initial_value, .seed = terms->seed};
    snprintf(table->name, sizeof table->name, "%s", spec->name);
    list_init(&table->link);
}

/* A new shard is stored in the table before the memory of its rows is allocated, so that
 * table_destroy() also frees the shard after an error. */
static int shard_make(struct lane_table *table, const struct lane_shard_spec *spec)
{
    struct allowance *allowance = &table->counts->memory;
    struct lane_shard *shard;
    uint32_t values = (uint32_t)table->value_bytes;
    uint32_t moments = (uint32_t)row_moments(table->terms->rule, table->terms->dim);
    struct shard_options options = {.number = spec->number,
                                    .shard_bits = table->shard_bits,
                                    .layout = rows_layout(values, moments),
                                    .rows_hint = table->terms->rows_hint / table->terms->shards,
                                    .birth = table_birth,
                                    .context = table};
    int error = allowance_alloc(allowance, sizeof *shard, (void **)&shard);
    if (error < 0)
        return error;
    shard->epoch = spec->epoch;
    shard->progress = (struct shard_progress){.clock = CLOCK_FIRST};
    table->shards[spec->number] = shard;
    error = allowance_alloc(allowance, sizeof *shard->store, (void **)&shard->store);
    return error < 0 ? error : table_shard_init(shard->store, allowance, &options);
}

static int table_fill(struct lane_tables *tables, struct lane_table *table,
                      const struct table_terms *terms, const struct lane_shard_spec *shards,
                      size_t count)
{
    int error = table_alloc(tables, table);
    if (error < 0)
        return error;
    *table->terms = *terms;
    table->inherits = terms->consistency == TABLE_TERMS_INHERIT;
    /* initial consistency, until the first stage begins */
    if (table->inherits)
        table->terms->consistency = TABLE_TERMS_BSP;
    table_init_requests(table);
    error = table_enter_all(tables, table);
    for (size_t i = 0; error == 0 && i < count; i++)
        error = shard_make(table, &shards[i]);
    return error;
}

int table_create(struct lane_tables *tables, const struct lane_table_spec *spec,
                 const struct lane_shard_spec *shards, size_t count, struct list *to)
{
    struct table_terms terms = table_terms_filled(*spec->terms);
    struct lane_table *table;
    int error = allowance_alloc(&tables->allowance, sizeof *table, (void **)&table);
    if (error < 0)
        return error;
    table->job = tables->job;
    table_describe(table, spec, &terms);
    error = table_fill(tables, table, &terms, shards, count);
    if (error < 0)
        table_destroy(table);
    else
        list_append(to, &table->link);
    return error;
}

/* ---- the tables of a job ---- */

static void tables_destroy(struct lane_tables *tables)
{
    struct lane_job *job = tables->job;
    network_close(tables);
    list_for_each_safe_entry (struct lane_table, table, &tables->tables, link)
        table_destroy(table);
    apply_fini(tables);
    room_free(tables);
    job->tables = NULL;
    arena_free(job->lane->options.arena, &job->account, tables);
}

void tables_free(struct lane_job *job)
{
    if (job->tables)
        tables_destroy(job->tables);
}

static int tables_make(struct lane_job *job)
{
    struct arena *arena = job->lane->options.arena;
    struct lane_tables *tables = arena_alloc(arena, &job->account, sizeof *tables);
    if (!tables)
        return arena_lack(arena);
    tables->job = job;
    tables->allowance = (struct allowance){.alloc = tables_alloc,
                                           .free = tables_free_memory,
                                           .context = job,
                                           .limit_bytes = UINT64_MAX};
    tables->largest = CLOCK_FIRST;
    list_init(&tables->tables);
    list_init(&tables->copies);
    job->tables = tables;
    int error = room_make(tables) ?: apply_init(tables);
    if (error < 0)
        tables_destroy(tables);
    return error;
}

static bool shards_are_valid(const struct lane_table_spec *spec,
                             const struct lane_shard_spec *shards, size_t count)
{
    uint32_t all = table_terms_filled(*spec->terms).shards;
    for (size_t i = 0; i < count; i++)
        if (shards[i].number >= all || shards[i].epoch == 0 ||
            (i > 0 && shards[i].number <= shards[i - 1].number))
            return false;
    return count > 0;
}

bool table_is_same(const struct lane_table *table, const struct lane_table_spec *spec,
                   const struct lane_shard_spec *shards, size_t count)
{
    struct table_terms declared = *table->terms;
    if (table->inherits) {
        declared.consistency = TABLE_TERMS_INHERIT;
        declared.staleness = 0;
    }
    if (table->salt != spec->salt || !table_terms_are_same(&declared, spec->terms))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct lane_shard *shard = table_shard_at(table, shards[i].number);
        if (!shard || shard->epoch != shards[i].epoch)
            return false;
    }
    return true;
}

void tables_open_network(const struct lane_job *job)
{
    for (uint32_t rank = 0; rank < job->workers_count; rank++)
        if (job->workers[rank].conn && !job->failure)
            (void)network_open(&job->workers[rank], job->workers[rank].fabric);
}

int table_check_place(const struct lane_job *job, const struct lane_table_spec *spec,
                      const struct lane_shard_spec *shards, size_t count)
{
    struct err err;
    if (!job)
        return -ENOENT;
    if (table_terms_check(spec->terms, spec->name, &err) < 0 ||
        table_terms_check_name(spec->name, &err) < 0 || !shards_are_valid(spec, shards, count))
        return -EINVAL;
    bool is_bsp = spec->terms->consistency <= TABLE_TERMS_BSP;
    return job->is_elastic && is_bsp ? -EOPNOTSUPP : 0;
}

int tables_open(struct lane_job *job, uint64_t rows_bytes_max)
{
    int error = job->tables ? 0 : tables_make(job);
    if (error == 0)
        room_allow(job->tables, rows_bytes_max);
    return error;
}

int lane_place_table(struct lane *lane, uint32_t job_id, const struct lane_table_spec *spec,
                     const struct lane_shard_spec *shards, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    int error = table_check_place(job, spec, shards, count);
    if (error < 0)
        return error;
    if (row_group_of(spec->id)) /* only a promotion makes tables with a group */
        return -EINVAL;
    const struct lane_table *known = table_find(job, spec->id);
    if (known)
        return table_is_same(known, spec, shards, count) ? 0 : -EEXIST;
    bool is_first = !job->tables;
    error = tables_open(job, spec->rows_bytes_max);
    if (error == 0)
        error = table_create(job->tables, spec, shards, count, &job->tables->tables);
    if (error < 0 && is_first)
        tables_free(job);
    if (error < 0)
        return error;
    tables_open_network(job);
    return 0;
}

static void table_each_shard(const struct lane_table *table,
                             void (*each)(void *context, const struct lane_held_shard *held),
                             void *context)
{
    for (uint32_t i = 0; i < table_shards(table); i++)
        if (table->shards[i])
            each(context,
                 &(struct lane_held_shard){table->job->id, table->id, i, table->shards[i]->epoch,
                                           table->job->tables->room->rows.limit_bytes});
}

void lane_each_shard(const struct lane *lane,
                     void (*each)(void *context, const struct lane_held_shard *held), void *context)
{
    list_for_each_entry (const struct lane_job, job, &lane->jobs, link) {
        if (!job->tables || job->is_dropped)
            continue;
        list_for_each_entry (const struct lane_table, table, &job->tables->tables, link)
            table_each_shard(table, each, context);
    }
}

bool table_is_bsp(const struct lane_table *table)
{
    return table->terms->consistency == TABLE_TERMS_BSP;
}

struct lane_table *table_find(const struct lane_job *job, uint32_t id)
{
    if (!job->tables)
        return NULL;
    list_for_each_entry (struct lane_table, table, &job->tables->tables, link)
        if (table->id == id)
            return table;
    return NULL;
}

struct lane_shard *table_shard_at(const struct lane_table *table, uint32_t number)
{
    return number < table_shards(table) ? table->shards[number] : NULL;
}

const struct row_settings *table_settings(const struct lane_table *table, uint64_t clock)
{
    const struct row_changes *changes = table->changes;
    bool has_oldest = changes->count > 0 && !table_is_bsp(table);
    const struct row_settings *found = has_oldest ? &changes->each[0].settings : NULL;
    for (uint32_t i = 0; i < changes->count && changes->each[i].clock <= clock; i++)
        found = &changes->each[i].settings;
    return found;
}

/* Removes settings that no later clock needs. Without BSP, also removes the oldest settings if the
 * list is full. */
static void table_forget_settings(struct lane_table *table)
{
    struct row_changes *changes = table->changes;
    uint64_t clock = table_is_bsp(table) ? table->clock : table->clocks->minimum;
    uint32_t past = 0;
    while (past + 1 < changes->count && changes->each[past + 1].clock <= clock)
        past++;
    if (past == 0 && changes->count == ROW_SETTINGS_MAX && !table_is_bsp(table))
        past = 1;
    changes->count -= past;
    memmove(changes->each, changes->each + past, changes->count * sizeof *changes->each);
}

int table_set(struct lane_table *table, uint64_t clock, const struct row_settings *settings)
{
    table_forget_settings(table);
    struct row_changes *changes = table->changes;
    uint64_t last = changes->count > 0 ? changes->each[changes->count - 1].clock : 0;
    if (clock < last)
        return -ERANGE;
    if (clock > last && changes->count == ROW_SETTINGS_MAX)
        return -ENOBUFS;
    changes->count += clock > last;
    changes->each[changes->count - 1] = (struct row_setting){clock, *settings};
    table->queues->logged.is_state_due = true;
    return 0;
}

bool table_has_begun_clock(const struct lane_table *table)
{
    const struct lane_shard *shard = table_shard_at(table, table->shard);
    return table_is_bsp(table) && (table->shard > 0 || (shard && shard->progress.next > 0));
}

void table_drop_request(struct lane_table *table, struct row_request *request)
{
    table->job->tables->unchecked -= !request->is_checked;
    request->is_checked = true;
    list_remove(&request->link);
    list_append(&table->queues->ranks[request->worker->number].unused, &request->link);
}
