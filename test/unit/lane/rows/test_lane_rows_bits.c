/* Compares a lane's table with a replay: random pushes of several workers, with duplicates, over
 * some clocks. The replay is a plain loop over keys, ranks, pushes and positions. Every pulled row
 * must have the same bits as in the replay. The cases cover every rule, several numbers of shards
 * and lanes, and pushes that are longer than windows and batches. */
#include "svc/lane/rows/types.h"
#include "svc/wire/mixed_key.h"
#include "test/lib/extent.h"
#include "test/unit/lane/rows/rows_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PUSHES_MAX 3

static const struct row_settings settings = {.rate = 0.1,
                                             .weight_decay = 0.01,
                                             .beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .epsilon = 1e-8,
                                             .beta = 1,
                                             .l1 = 0.01,
                                             .l2 = 0.1};

/* A push of a rank. */
struct push {
    size_t count;
    uint64_t *keys;
    float *gradients;
    struct rows_asked *asked;
};

struct world {
    struct rows_rig rig;
    uint64_t keys_count; /* all keys are smaller than this number */
    size_t push_max;     /* maximum number of positions in one push */
    uint64_t clock;
    struct push pushes[RIG_WORKERS_MAX][PUSHES_MAX];
    uint32_t pushes_count[RIG_WORKERS_MAX];
    bool *exists; /* by key */
    char *values;
    float *moments;
    size_t value_bytes, moments_count;
    struct row_step step;
    row_fn update;
    row_initial_fn initial;
};

static void world_start(struct world *w, uint32_t lanes, uint32_t workers, struct table_terms terms,
                        uint64_t keys, size_t push_max)
{
    *w = (struct world){.keys_count = keys, .push_max = push_max, .clock = 1};
    rows_start(&w->rig, lanes, workers, &terms);
    w->value_bytes = terms.dim * reduce_element_bytes(terms.dtype);
    w->moments_count = (size_t)row_moments(terms.rule, terms.dim);
    w->exists = calloc(keys, sizeof *w->exists);
    w->values = calloc(keys, w->value_bytes);
    w->moments = calloc(keys * (w->moments_count + 1), sizeof *w->moments);
    w->update = row_pick(REDUCE_C, terms.rule, terms.dtype);
    w->initial = row_initial_pick(REDUCE_C, terms.dtype);
    rows_set(&w->rig, &settings);
}

static void world_stop(struct world *w)
{
    rows_stop(&w->rig);
    free(w->exists);
    free(w->values);
    free(w->moments);
}

static char *world_row(struct world *w, uint64_t key) { return w->values + key * w->value_bytes; }

/* ---- the lanes' side ---- */

static void world_push(struct world *w, uint32_t rank)
{
    struct push *push = &w->pushes[rank][w->pushes_count[rank]++];
    uint32_t dim = w->rig.terms.dim;
    push->count = 1 + (size_t)random() % w->push_max;
    push->keys = calloc(push->count, sizeof *push->keys);
    push->gradients = calloc(push->count * dim, sizeof *push->gradients);
    for (size_t i = 0; i < push->count; i++)
        push->keys[i] = (uint64_t)random() % w->keys_count;
    for (size_t i = 0; i < push->count * dim; i++)
        push->gradients[i] = (float)((double)random() / (1 << 30) - 1);
    push->asked = rows_push(&w->rig, rank, push->keys, push->count, push->gradients);
}

static void world_end_clock(struct world *w)
{
    for (uint32_t rank = 0; rank < w->rig.workers_count; rank++)
        rows_clock(&w->rig, rank);
    for (uint32_t rank = 0; rank < w->rig.workers_count; rank++)
        for (uint32_t i = 0; i < w->pushes_count[rank]; i++)
            rows_wait(&w->rig, w->pushes[rank][i].asked);
}

/* ---- the replay ---- */

static void round_to(struct world *w, float *values, size_t count)
{
    char *wire = malloc(count * sizeof *values);
    reduce_convert(REDUCE_F32, w->rig.terms.wire, values, wire, count);
    reduce_convert(w->rig.terms.wire, REDUCE_F32, wire, values, count);
    free(wire);
}

/* Sums the push's gradients of the key. Each gradient is rounded to the wire's dtype. The gradients
 * are summed in f32, and the sum is rounded again. Returns whether the push has the key. */
static bool replay_push(struct world *w, const struct push *push, uint64_t key, float *ret_sum)
{
    uint32_t dim = w->rig.terms.dim, found = 0;
    float *row = malloc(dim * sizeof *row);
    for (size_t i = 0; i < push->count; i++) {
        if (push->keys[i] != key)
            continue;
        memcpy(row, push->gradients + i * dim, dim * sizeof *row);
        round_to(w, row, dim);
        for (uint32_t d = 0; d < dim; d++)
            ret_sum[d] = found ? ret_sum[d] + row[d] : row[d];
        found++;
    }
    if (found > 0)
        round_to(w, ret_sum, dim);
    free(row);
    return found > 0;
}

static void replay_key(struct world *w, uint64_t key)
{
    uint32_t dim = w->rig.terms.dim, found = 0;
    float *sum = malloc(dim * sizeof *sum), *part = malloc(dim * sizeof *part);
    for (uint32_t rank = 0; rank < w->rig.workers_count; rank++) {
        for (uint32_t i = 0; i < w->pushes_count[rank]; i++) {
            if (!replay_push(w, &w->pushes[rank][i], key, part))
                continue;
            for (uint32_t d = 0; d < dim; d++)
                sum[d] = found ? sum[d] + part[d] : part[d];
            found++;
        }
    }
    if (found > 0)
        w->update(&w->step, sum, dim, world_row(w, key), w->moments + key * w->moments_count);
    w->exists[key] |= found > 0;
    free(sum);
    free(part);
}

static bool is_touched(const struct world *w, uint64_t key)
{
    for (uint32_t rank = 0; rank < w->rig.workers_count; rank++)
        for (uint32_t i = 0; i < w->pushes_count[rank]; i++)
            for (size_t j = 0; j < w->pushes[rank][i].count; j++)
                if (w->pushes[rank][i].keys[j] == key)
                    return true;
    return false;
}

static void replay_clock(struct world *w)
{
    const struct table_terms *t = &w->rig.terms;
    struct row_initial initial = {t->initial, t->initial_value, t->seed};
    bool is_mean = t->combine == TABLE_TERMS_MEAN;
    w->step = row_step(&settings, w->clock, is_mean ? w->rig.workers_count : 1, false);
    for (uint64_t key = 0; key < w->keys_count; key++) {
        if (!w->exists[key])
            w->initial(&initial, key, t->dim, world_row(w, key));
        if (is_touched(w, key))
            replay_key(w, key);
    }
    w->clock++;
}

/* ---- comparison ---- */

static uint64_t replayed_rows(const struct world *w)
{
    uint64_t count = 0;
    for (uint64_t key = 0; key < w->keys_count; key++)
        count += w->exists[key];
    return count;
}

/* Pulls every key twice, in two orders, and compares all rows. */
static void compare(struct world *w, uint32_t rank)
{
    uint32_t dim = w->rig.terms.dim;
    size_t count = 2 * w->keys_count;
    uint64_t *keys = calloc(count, sizeof *keys);
    float *rows = calloc(count * dim, sizeof *rows), *expected = calloc(dim, sizeof *expected);
    for (uint64_t i = 0; i < w->keys_count; i++) {
        keys[i] = i;
        keys[count - 1 - i] = i;
    }
    struct rows_asked *pull = rows_pull(&w->rig, rank, keys, count);
    rows_take(&w->rig, pull, rows);
    for (size_t i = 0; i < count; i++) {
        reduce_convert(w->rig.terms.dtype, REDUCE_F32, world_row(w, keys[i]), expected, dim);
        round_to(w, expected, dim);
        assert_memory_equal(rows + i * dim, expected, dim * sizeof *rows);
    }
    rows_asked_free(pull);
    free(keys);
    free(rows);
    free(expected);
}

static void forget_pushes(struct world *w)
{
    for (uint32_t rank = 0; rank < w->rig.workers_count; rank++) {
        for (uint32_t i = 0; i < w->pushes_count[rank]; i++) {
            rows_asked_free(w->pushes[rank][i].asked);
            free(w->pushes[rank][i].keys);
            free(w->pushes[rank][i].gradients);
        }
        w->pushes_count[rank] = 0;
        rows_forget_memory(&w->rig, rank);
    }
}

static void run(uint32_t lanes, uint32_t workers, struct table_terms terms, uint64_t keys,
                size_t push_max, uint32_t clocks)
{
    struct world *w = malloc(sizeof *w);
    world_start(w, lanes, workers, terms, keys, push_max);
    for (uint32_t clock = 0; clock < clocks; clock++) {
        for (uint32_t rank = 0; rank < workers; rank++)
            for (uint32_t i = (uint32_t)random() % (PUSHES_MAX + 1); i > 0; i--)
                world_push(w, rank);
        world_end_clock(w);
        replay_clock(w);
        forget_pushes(w);
        compare(w, clock % workers);
        rows_forget_memory(&w->rig, clock % workers);
        assert_int_equal(rows_stored(&w->rig), replayed_rows(w));
    }
    world_stop(w);
    free(w);
}

static struct table_terms terms_of(uint32_t rule)
{
    bool has_zeros = rule == TABLE_TERMS_FTRL;
    return (struct table_terms){.dim = 5,
                                .shards = 16,
                                .dtype = REDUCE_F32,
                                .rule = rule,
                                .combine = TABLE_TERMS_MEAN,
                                .initial = has_zeros ? TABLE_TERMS_ZEROS : TABLE_TERMS_NORMAL,
                                .initial_value = 0.1,
                                .seed = 11};
}

static void every_rule_gives_the_bits_of_a_replay(void **state)
{
    for (uint32_t rule = TABLE_TERMS_SGD; rule < TABLE_TERMS_RULES; rule++)
        run(1, 3, terms_of(rule), 200, 150, extent(4, 2, 20));
}

/* A directory over a network is copied in several parts. */
static void directories_of_many_shards_change_no_bit(void **state)
{
    struct table_terms terms = terms_of(TABLE_TERMS_ADAGRAD);
    terms.shards = 1024;
    run(1, 3, terms, 5000, 1500, 3);
}

static void shards_and_lanes_change_no_bit(void **state)
{
    for (uint32_t shards = 1; shards <= 64; shards *= 4) {
        struct table_terms terms = terms_of(TABLE_TERMS_ADAGRAD);
        terms.shards = shards;
        run(1, 2, terms, 300, 200, 2);
        if (shards > 1)
            run(2, 2, terms, 300, 200, 2);
    }
}

static void halves_are_rounded_once_when_pushed_and_once_when_pulled(void **state)
{
    const uint32_t dtypes[][2] = {
        {REDUCE_F32, REDUCE_F16}, {REDUCE_F16, REDUCE_F16}, {REDUCE_BF16, REDUCE_F32}};
    for (int i = 0; i < 3; i++) {
        struct table_terms terms = terms_of(TABLE_TERMS_ADAM);
        terms.dtype = dtypes[i][0];
        terms.wire = dtypes[i][1];
        run(2, 2, terms, 100, 100, 3);
    }
}

static void push_long(size_t count)
{
    struct table_terms terms = terms_of(TABLE_TERMS_SGD);
    terms.dim = 1;
    terms.shards = 1;
    struct world *w = malloc(sizeof *w);
    uint64_t *keys = calloc(count, sizeof *keys);
    float *gradients = calloc(count, sizeof *gradients), *rows = calloc(count, sizeof *rows);
    world_start(w, 1, 2, terms, 1, 1);
    for (size_t i = 0; i < count; i++) {
        keys[i] = i * 3;
        gradients[i] = (float)i;
    }
    struct rows_asked *first = rows_push(&w->rig, 0, keys, count, gradients);
    struct rows_asked *second = rows_push(&w->rig, 1, keys, count, gradients);
    rows_clock(&w->rig, 0);
    rows_clock(&w->rig, 1);
    rows_wait(&w->rig, first);
    rows_wait(&w->rig, second);
    rows_forget_memory(&w->rig, 0);
    struct rows_asked *pull = rows_pull(&w->rig, 0, keys, count);
    rows_take(&w->rig, pull, rows);
    w->step = row_step(&settings, 1, 2, false);
    for (size_t i = 0; i < count; i++) {
        struct row_initial initial = {terms.initial, terms.initial_value, terms.seed};
        float value, sum = gradients[i] + gradients[i];
        w->initial(&initial, keys[i], 1, &value);
        w->update(&w->step, &sum, 1, &value, NULL);
        assert_memory_equal(&rows[i], &value, sizeof value);
    }
    assert_int_equal(rows_stored(&w->rig), count);
    rows_asked_free(first);
    rows_asked_free(second);
    rows_asked_free(pull);
    world_stop(w);
    free(keys);
    free(gradients);
    free(rows);
    free(w);
}

/* One shard gets more gradients than a stripe holds, and more keys than a window holds. */
static void long_pushes_are_cut_into_stripes(void **state)
{
    push_long(ROW_WINDOW_KEYS_ALL / 2 + 5000);
}

/* Over a network a share with more than 1 MiB is read window by window. */
static void pushes_that_are_not_read_ahead_change_no_bit(void **state)
{
    push_long(ROW_SUMS_BYTES / (sizeof(uint64_t) + sizeof(float)) + 5000);
}

/* One stripe has more sums than a batch can contain. */
static void long_rows_are_applied_in_batches(void **state)
{
    struct table_terms terms = terms_of(TABLE_TERMS_ADAGRAD_ONE);
    terms.dim = TABLE_TERMS_DIM_MAX;
    terms.shards = 1;
    run(1, 2, terms, 90, 60, 2);
    run(1, 2, terms, 110, 300, 2); /* a push of more than 64 rows is not read ahead */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_gives_the_bits_of_a_replay),
        cmocka_unit_test(shards_and_lanes_change_no_bit),
        cmocka_unit_test(directories_of_many_shards_change_no_bit),
        cmocka_unit_test(halves_are_rounded_once_when_pushed_and_once_when_pulled),
        cmocka_unit_test(long_pushes_are_cut_into_stripes),
        cmocka_unit_test(pushes_that_are_not_read_ahead_change_no_bit),
        cmocka_unit_test(long_rows_are_applied_in_batches),
    };
    const char *seed = getenv("GRADPOOL_TEST_SEED");
    unsigned number = seed ? (unsigned)strtoul(seed, NULL, 10) : 1;
    printf("# GRADPOOL_TEST_SEED=%u\n", number);
    srandom(number);
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests_name(rows_kind, tests, NULL, NULL);
}
