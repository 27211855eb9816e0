/* gradpool-bench kernels: speed of each kernel relative to memcpy. A measurement of memcpy over the
 * same sources precedes each measurement of a kernel, so that a slow moment of the machine affects
 * both. Prints medians of CPU time, which excludes other processes. test_reduce_kernels checks the
 * results. */
#include "bench/commands.h"

#include "svc/base/clock.h"
#include "svc/reduce/update.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 1000, KEY_SOURCES, KEY_TARGETS, KEY_STREAMS, KEY_ROUNDS, KEY_SET, KEY_JSON };
#define ROUNDS_MOST 1000
/* Bytes of one measurement; a short array is processed repeatedly. */
#define TIMING_BYTES (8u << 20)
#define GIB 1073741824.0

struct kernels_options {
    size_t bytes; /* bytes of a source */
    int sources, targets;
    bool streams; /* whether results bypass the cache (streaming stores); for sums only */
    uint32_t rounds;
    enum reduce_set set; /* instruction set that is measured; REDUCE_BEST: all sets */
    bool is_json;
};

struct arrays {
    char *source[REDUCE_SOURCES_MAX];
    char *target[REDUCE_TARGETS_MAX];
    struct update_state state;
};

struct kernel {
    enum reduce_set set;
    const char *name;
    enum reduce_dtype from, to;
    reduce_fn reduce; /* kernel that is measured; NULL: an update rule is measured */
    update_fn update;
    int moments;
};

struct timing {
    double gib_per_s, memcpy_gib_per_s; /* GiB read and written in a second */
};

static const char *const operation_names[REDUCE_OPERATIONS] = {
    [REDUCE_SUM] = "sum",         [REDUCE_MIN] = "min",           [REDUCE_MAX] = "max",
    [REDUCE_PRODUCT] = "product", [REDUCE_WEIGHTED] = "weighted",
};

static const struct argp_option argp_options[] = {
    {"bytes", KEY_BYTES, "N", 0, "bytes of a source (default 1048576, a chunk)"},
    {"sources", KEY_SOURCES, "N", 0, "number of sources in a pass, 1 to 8 (default 4)"},
    {"targets", KEY_TARGETS, "N", 0, "number of targets in a pass, 1 to 8 (default 1)"},
    {"streams", KEY_STREAMS, 0, 0, "sums are stored without filling the cache"},
    {"rounds", KEY_ROUNDS, "N", 0, "number of measurements; the median is printed (default 15)"},
    {"set", KEY_SET, "SET", 0, "only c, avx2 or avx512 (default: GRADPOOL_KERNELS, or all)"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each kernel"},
    {0},
};

static void parse_set(struct argp_state *state, const char *text, struct kernels_options *o)
{
    if (text && reduce_set_find(text, &o->set) < 0)
        argp_error(state, "'%s': expected c, avx2 or avx512, as this machine has it", text);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct kernels_options *o = state->input;
    switch (key) {
    case ARGP_KEY_END:
        if (o->set == REDUCE_BEST)
            parse_set(state, getenv("GRADPOOL_KERNELS"), o);
        return 0;
    case KEY_BYTES: o->bytes = command_number(state, text, 64, 1u << 30); return 0;
    case KEY_SOURCES: o->sources = (int)command_number(state, text, 1, 8); return 0;
    case KEY_TARGETS: o->targets = (int)command_number(state, text, 1, 8); return 0;
    case KEY_STREAMS: o->streams = true; return 0;
    case KEY_ROUNDS: o->rounds = (uint32_t)command_number(state, text, 1, ROUNDS_MOST); return 0;
    case KEY_SET: parse_set(state, text, o); return 0;
    case KEY_JSON: o->is_json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Fills an array with small whole numbers, so that there are no denormals, no overflow and no other
 * slow values. */
static void fill(char *array, enum reduce_dtype dtype, size_t elements)
{
    static const struct {
        uint64_t one;
        size_t bytes;
    } ones[REDUCE_DTYPES] = {
        [REDUCE_F32] = {0x3f800000, 4}, [REDUCE_F64] = {0x3ff0000000000000, 8},
        [REDUCE_F16] = {0x3c00, 2},     [REDUCE_BF16] = {0x3f80, 2},
        [REDUCE_I32] = {1, 4},          [REDUCE_I64] = {1, 8},
    };
    for (size_t i = 0; i < elements; i++)
        memcpy(array + i * ones[dtype].bytes, &ones[dtype].one, ones[dtype].bytes);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* Returns the GiB read and written in a second. */
static double rate(uint64_t bytes, uint64_t spent_ns)
{
    return (double)bytes / GIB / ((double)(spent_ns ? spent_ns : 1) * 1e-9);
}

static double time_memcpy(const struct arrays *a, const struct kernels_options *o, uint32_t repeats)
{
    uint64_t before_ns = clock_thread_cpu_ns();
    for (uint32_t i = 0; i < repeats; i++)
        for (int s = 0; s < o->sources; s++) {
            memcpy(a->target[0], a->source[s], o->bytes);
            /* prevents the compiler from removing the copy */
            __asm__ volatile("" : : "r"(a->target[0]) : "memory");
        }
    return rate(2 * (uint64_t)o->bytes * (uint64_t)o->sources * repeats,
                clock_thread_cpu_ns() - before_ns);
}

static void run(const struct arrays *a, const struct kernel *k, const struct reduce_pass *pass)
{
    static const struct update_settings settings = {.rate = 0.01,
                                                    .weight_decay = 0.01,
                                                    .momentum = 0.9,
                                                    .beta1 = 0.9,
                                                    .beta2 = 0.999,
                                                    .epsilon = 1e-8};
    if (k->reduce)
        k->reduce(pass);
    else
        k->update(pass, &settings, 2, &a->state);
}

static double time_kernel(const struct arrays *a, const struct kernel *k,
                          const struct kernels_options *o, uint32_t repeats)
{
    size_t elements = o->bytes / reduce_element_bytes(k->from);
    size_t target_bytes = elements * reduce_element_bytes(k->to) * (size_t)o->targets;
    size_t state_bytes = k->update ? 2 * (1 + (size_t)k->moments) * elements * sizeof(float) : 0;
    static const float weights[REDUCE_SOURCES_MAX] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct reduce_pass pass = {.targets = (void *const *)a->target,
                                     .targets_count = o->targets,
                                     .sources = (const void *const *)a->source,
                                     .sources_count = o->sources,
                                     .elements = elements,
                                     .streams = o->streams && k->reduce,
                                     .weights = k->reduce ? weights : NULL};
    uint64_t before_ns = clock_thread_cpu_ns();
    for (uint32_t i = 0; i < repeats; i++)
        run(a, k, &pass);
    return rate((o->bytes * (uint64_t)o->sources + target_bytes + state_bytes) * repeats,
                clock_thread_cpu_ns() - before_ns);
}

static struct timing measure(const struct arrays *a, const struct kernel *k,
                             const struct kernels_options *o)
{
    static double kernel[ROUNDS_MOST], copy[ROUNDS_MOST];
    uint32_t repeats = (uint32_t)(TIMING_BYTES / (o->bytes * (size_t)o->sources)) + 1;
    for (int s = 0; s < o->sources; s++)
        fill(a->source[s], k->from, o->bytes / reduce_element_bytes(k->from));
    (void)time_kernel(a, k, o, 1); /* the first run populates pages and fills caches */
    for (uint32_t i = 0; i < o->rounds; i++) {
        copy[i] = time_memcpy(a, o, repeats);
        kernel[i] = time_kernel(a, k, o, repeats);
    }
    return (struct timing){median(kernel, o->rounds), median(copy, o->rounds)};
}

static void print(const struct kernel *k, const struct kernels_options *o, struct timing t)
{
    const char *set = reduce_set_name(k->set);
    const char *from = reduce_dtype_name(k->from), *to = reduce_dtype_name(k->to);
    if (o->is_json)
        printf("{\"set\":\"%s\",\"operation\":\"%s\",\"from\":\"%s\",\"to\":\"%s\","
               "\"sources\":%d,\"targets\":%d,\"streams\":%s,\"bytes\":%zu,\"gib_per_s\":%.2f,"
               "\"memcpy_gib_per_s\":%.2f,"
               "\"of_memcpy\":%.3f}\n",
               set, k->name, from, to, o->sources, o->targets,
               o->streams && k->reduce ? "true" : "false", o->bytes, t.gib_per_s,
               t.memcpy_gib_per_s, t.gib_per_s / t.memcpy_gib_per_s);
    else
        printf("%-7s %-8s %-5s %-5s %10.2f %10.2f %9.2f\n", set, k->name, from, to, t.gib_per_s,
               t.memcpy_gib_per_s, t.gib_per_s / t.memcpy_gib_per_s);
    fflush(stdout);
}

static void measure_pair(const struct arrays *a, const struct kernels_options *o, struct kernel k)
{
    for (enum reduce_operation op = REDUCE_SUM; op < REDUCE_OPERATIONS; op++) {
        k.name = operation_names[op];
        k.reduce = reduce_pick(k.set, op, k.from, k.to);
        if (k.reduce)
            print(&k, o, measure(a, &k, o));
    }
    k.reduce = NULL;
    for (enum update_rule rule = UPDATE_SGD; rule < UPDATE_RULES; rule++) {
        k.name = update_name(rule);
        k.moments = update_moments(rule);
        k.update = update_pick(k.set, rule, k.from, k.to);
        if (k.update)
            print(&k, o, measure(a, &k, o));
    }
}

static void measure_set(const struct arrays *a, const struct kernels_options *o,
                        enum reduce_set set)
{
    for (enum reduce_dtype from = REDUCE_F32; from < REDUCE_DTYPES; from++) {
        enum reduce_dtype wide = reduce_accumulator(from);
        measure_pair(a, o, (struct kernel){.set = set, .from = from, .to = from});
        if (wide != from)
            measure_pair(a, o, (struct kernel){.set = set, .from = from, .to = wide});
    }
}

/* Allocates whole pages. The arrays have different offsets in their pages, because equal offsets
 * would use the same cache sets. */
static char *make_array(size_t bytes, int number)
{
    size_t offset = (size_t)number * 576;
    char *memory = aligned_alloc(4096, (bytes + offset + 4095) / 4096 * 4096);
    if (!memory) {
        fprintf(
            stderr,
            "gradpool-bench kernels: no memory for arrays of %zu bytes; free memory on this host\n",
            bytes);
        exit(1);
    }
    memset(memory, 0, bytes + offset);
    return memory + offset;
}

static struct arrays make_arrays(size_t bytes, int targets)
{
    struct arrays a = {0};
    size_t wide_bytes = 2 * bytes; /* bytes of the same number of f32 values */
    float *state[2][1 + UPDATE_MOMENTS_MAX];
    for (int s = 0; s < REDUCE_SOURCES_MAX; s++)
        a.source[s] = make_array(bytes, s);
    for (int t = 0; t < targets; t++)
        a.target[t] = make_array(wide_bytes, REDUCE_SOURCES_MAX + t);
    for (int i = 0; i < 6; i++)
        state[i / 3][i % 3] =
            (float *)make_array(wide_bytes, REDUCE_SOURCES_MAX + REDUCE_TARGETS_MAX + i);
    a.state = (struct update_state){.parameters = state[0][0],
                                    .moments = {state[0][1], state[0][2]},
                                    .ret_parameters = state[1][0],
                                    .ret_moments = {state[1][1], state[1][2]}};
    return a;
}

int kernels_command(int argc, char **argv)
{
    struct kernels_options o = {.bytes = 1u << 20, .sources = 4, .targets = 1, .rounds = 15};
    const struct argp argp = {
        argp_options,
        parse,
        NULL,
        "Measure the speed of the kernels of sums and update rules relative to memcpy.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    o.bytes -= o.bytes % 8;
    const struct arrays a = make_arrays(o.bytes, o.targets);
    if (!o.is_json)
        printf(
            "%d sources of %zu bytes, %d targets%s; GiB read and written a second, medians of %u\n"
            "%-7s %-8s %-5s %-5s %10s %10s %9s\n",
            o.sources, o.bytes, o.targets, o.streams ? " past the cache" : "", o.rounds, "set",
            "operation", "from", "to", "kernel", "memcpy", "of memcpy");
    for (enum reduce_set set = REDUCE_C; set < REDUCE_SETS; set++)
        if (o.set == REDUCE_BEST || o.set == set)
            measure_set(&a, &o, set);
    return 0;
}
