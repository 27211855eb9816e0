/* Tests the row store together with the row rules. The table applies the clocks of pushes in
 * stripes. Every row must have the bits of a replay without shards and stripes. */
#include "svc/lane/table/clock.h"
#include "svc/lane/table/stripe.h"
#include "svc/reduce/rows/rows.h"
#include "svc/wire/mixed_key.h"
#include "test/unit/lane/table/table_rig.h"

#define RANKS 3
#define PUSHES 2
#define CLOCKS 4
#define KEYS 300
#define DIM 5
#define SHARDS_MAX 16
#define SALT UINT64_C(0x5a17)

static const struct row_settings settings = {.rate = 0.1, .epsilon = 1e-8, .weight_decay = 0.01};
static const struct row_initial initial = {.kind = ROW_NORMAL, .value = 0.1, .seed = 11};

/* A push: keys in the order of their mixed keys, and a gradient for each key. */
struct push {
    size_t count;
    uint64_t mixed[KEYS];
    float gradients[KEYS][DIM];
};
static struct push pushes[CLOCKS][RANKS][PUSHES];

struct kernels {
    reduce_fn sum;
    row_fn apply;
    row_initial_fn birth;
};
static struct kernels kernels_of(enum reduce_set set)
{
    return (struct kernels){reduce_pick(set, REDUCE_SUM, REDUCE_F32, REDUCE_F32),
                            row_pick(set, ROW_ADAGRAD, REDUCE_F32),
                            row_initial_pick(set, REDUCE_F32)};
}

static void make_push(struct push *push)
{
    push->count = 0;
    for (uint64_t key = 0; key < KEYS; key++)
        if (random() % 4 == 0)
            push->mixed[push->count++] = mixed_key(key, SALT);
    qsort(push->mixed, push->count, sizeof *push->mixed, rig_compare);
    for (size_t i = 0; i < push->count; i++)
        for (int d = 0; d < DIM; d++)
            push->gradients[i][d] = (float)((double)random() / (1 << 30) - 1);
}

static void make_pushes(void)
{
    for (int clock = 0; clock < CLOCKS; clock++)
        for (int rank = 0; rank < RANKS; rank++)
            for (int push = 0; push < PUSHES; push++)
                make_push(&pushes[clock][rank][push]);
}

/* ---- the replay: key by key, plain C ---- */

static struct {
    bool exists;
    float values[DIM], moments[DIM];
} replayed[KEYS];

static void replay_key(const struct row_step *step, int clock, uint64_t key)
{
    const struct kernels kernels = kernels_of(REDUCE_C);
    uint64_t mixed = mixed_key(key, SALT);
    float sum[DIM];
    bool is_first = true;
    for (int rank = 0; rank < RANKS; rank++)
        for (int p = 0; p < PUSHES; p++) {
            const struct push *push = &pushes[clock][rank][p];
            const uint64_t *found =
                bsearch(&mixed, push->mixed, push->count, sizeof mixed, rig_compare);
            for (int d = 0; found && d < DIM; d++) {
                float gradient = push->gradients[found - push->mixed][d];
                sum[d] = is_first ? gradient : sum[d] + gradient;
            }
            is_first &= !found;
        }
    if (is_first)
        return;
    if (!replayed[key].exists)
        kernels.birth(&initial, key, DIM, replayed[key].values);
    replayed[key].exists = true;
    assert_true(kernels.apply(step, sum, DIM, replayed[key].values, replayed[key].moments));
}

static void replay(void)
{
    memset(replayed, 0, sizeof replayed);
    for (int clock = 0; clock < CLOCKS; clock++) {
        const struct row_step step = row_step(&settings, (uint64_t)clock + 1, RANKS, false);
        for (uint64_t key = 0; key < KEYS; key++)
            replay_key(&step, clock, key);
    }
}

/* ---- the table: shards and stripes ---- */

struct table {
    struct rig memory;
    struct kernels kernels;
    uint32_t shard_bits;
    struct table_shard shards[SHARDS_MAX];
    struct shard_progress progress[SHARDS_MAX];
    struct stripe stripe;
};
static struct table table;

static void table_birth(void *context, uint64_t mixed, void *ret_values)
{
    table.kernels.birth(&initial, mixed_key_undo(mixed, SALT), DIM, ret_values);
}

static void table_begin(uint32_t shard_bits, uint32_t sources_max, enum reduce_set set)
{
    table.shard_bits = shard_bits;
    table.kernels = kernels_of(set);
    rig_init_memory(&table.memory);
    assert_int_equal(
        stripe_init(&table.stripe, &table.memory.allowance, RANKS * PUSHES, sources_max), 0);
    for (uint32_t s = 0; s < 1u << shard_bits; s++) {
        struct shard_options options = {.number = s,
                                        .shard_bits = shard_bits,
                                        .layout = rows_layout(DIM * sizeof(float), DIM),
                                        .birth = table_birth};
        table.progress[s] = (struct shard_progress){CLOCK_FIRST, 0};
        assert_int_equal(table_shard_init(&table.shards[s], &table.memory.allowance, &options), 0);
    }
}

static void table_end(void)
{
    stripe_fini(&table.stripe);
    for (uint32_t s = 0; s < 1u << table.shard_bits; s++)
        table_shard_fini(&table.shards[s]);
    assert_int_equal(table.memory.blocks, 0);
}

/* Returns the gradient of a source, which is found by the key's position in the whole push, not in
 * the window. */
static const void *table_gradient(int clock, const struct stripe_source *source)
{
    const struct stripe_part *part = &table.stripe.parts[source->part];
    const struct push *push = &pushes[clock][part->rank][part->sequence];
    return push->gradients[part->keys + source->position - push->mixed];
}

static void table_apply_key(const struct row_step *step, int clock, const struct table_shard *shard,
                            uint32_t k)
{
    const struct stripe *stripe = &table.stripe;
    const void *sources[RANKS * PUSHES];
    float sum[DIM];
    uint32_t count = stripe->starts[k + 1] - stripe->starts[k];
    for (uint32_t i = 0; i < count; i++)
        sources[i] = table_gradient(clock, &stripe->sources[stripe->starts[k] + i]);
    table.kernels.sum(&(struct reduce_pass){.targets = (void *const[]){sum},
                                            .targets_count = 1,
                                            .sources = sources,
                                            .sources_count = (int)count,
                                            .elements = DIM});
    assert_true(table.kernels.apply(step, sum, DIM, shard_values(shard, stripe->rows[k]),
                                    shard_moments(shard, stripe->rows[k])));
}

/* Adds the shard's part of each push. Each part is one complete window. */
static void table_add_parts(int clock, uint32_t s)
{
    stripe_clear(&table.stripe);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint64_t sequence = 0; sequence < PUSHES; sequence++) {
            const struct push *push = &pushes[clock][rank][sequence];
            size_t first = 0, end;
            while (first < push->count && mixed_key_shard(push->mixed[first], table.shard_bits) < s)
                first++;
            for (end = first;
                 end < push->count && mixed_key_shard(push->mixed[end], table.shard_bits) == s;)
                end++;
            struct stripe_part part = {.rank = rank,
                                       .sequence = sequence,
                                       .keys = push->mixed + first,
                                       .count = end - first,
                                       .is_last = true};
            assert_int_equal(stripe_add(&table.stripe, &table.shards[s], &part, NULL), 0);
        }
}

/* Applies one stripe. Each second stripe is started twice, as by a new owner. */
static void table_stripe(const struct row_step *step, int clock, uint32_t s)
{
    struct shard_progress *progress = &table.progress[s];
    if (random() % 2 == 0) {
        table_add_parts(clock, s);
        stripe_skip(&table.stripe, progress->next);
    }
    assert_int_equal(stripe_cut(&table.stripe), 0);
    assert_true(stripe_open(&table.stripe, &table.shards[s]) >= 0);
    for (uint32_t k = 0; k < table.stripe.keys_count; k++)
        table_apply_key(step, clock, &table.shards[s], k);
    if (table.stripe.is_end)
        shard_progress_finish(progress);
    else
        shard_progress_advance(progress, table.stripe.last);
    stripe_pass(&table.stripe);
}

static void table_train(void)
{
    for (int clock = 0; clock < CLOCKS; clock++) {
        const struct row_step step = row_step(&settings, (uint64_t)clock + 1, RANKS, false);
        for (uint32_t s = 0; s < 1u << table.shard_bits; s++) {
            table_add_parts(clock, s);
            while (table.progress[s].clock == (uint64_t)clock + 1)
                table_stripe(&step, clock, s);
        }
    }
}

static void assert_equals_replay(void)
{
    for (uint64_t key = 0; key < KEYS; key++) {
        uint64_t mixed = mixed_key(key, SALT);
        const struct table_shard *shard = &table.shards[mixed_key_shard(mixed, table.shard_bits)];
        uint32_t row;
        table_shard_find(shard, &mixed, 1, &row);
        assert_int_equal(row != ROWS_NONE, replayed[key].exists);
        if (row == ROWS_NONE)
            continue;
        assert_memory_equal(shard_values(shard, row), replayed[key].values, DIM * sizeof(float));
        assert_memory_equal(shard_moments(shard, row), replayed[key].moments, DIM * sizeof(float));
    }
}

static void bits_do_not_depend_on_shards_stripes_or_instruction_sets(void **state)
{
    static const uint32_t shard_bits[] = {0, 1, 4};
    for (uint32_t world = 0; world < extent(10, 3, 1000); world++) {
        make_pushes();
        replay();
        for (int i = 0; i < 3; i++) {
            enum reduce_set set = world % 2 ? REDUCE_C : REDUCE_BEST;
            table_begin(shard_bits[i], RANKS * PUSHES + (uint32_t)random() % 300, set);
            table_train();
            assert_equals_replay();
            table_end();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_shards_stripes_or_instruction_sets),
    };
    return cmocka_run_group_tests(tests, rig_seed, NULL);
}
