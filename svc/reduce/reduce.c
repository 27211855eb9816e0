/* Tables of element types and their names, of the kernel for each operation, and of the instruction
 * sets of this machine. Has no arithmetic (R5). */
#include "svc/reduce/reduce.h"

#include "svc/reduce/internal.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
    enum reduce_dtype accumulator;
    bool divides;
} dtypes[REDUCE_DTYPES] = {
    [REDUCE_F32] = {"f32", 4, REDUCE_F32, true},  [REDUCE_F64] = {"f64", 8, REDUCE_F64, true},
    [REDUCE_F16] = {"f16", 2, REDUCE_F32, true},  [REDUCE_BF16] = {"bf16", 2, REDUCE_F32, true},
    [REDUCE_I32] = {"i32", 4, REDUCE_I32, false}, [REDUCE_I64] = {"i64", 8, REDUCE_I64, false},
};

/* Returns whether the number is an element type. The argument is unsigned, so a number from a peer
 * is valid or too large, but never negative. */
static bool is_known(unsigned dtype) { return dtype > 0 && dtype < REDUCE_DTYPES; }

#ifdef __x86_64__
/* clang 14 cannot test for F16C; every known processor with AVX2 has it. */
#ifdef __clang__
#define HAS_F16C true
#else
#define HAS_F16C __builtin_cpu_supports("f16c")
#endif
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && HAS_F16C; }
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif
static bool has_c(void) { return true; }

/* instruction sets, the fastest one last */
static const struct {
    const char *name;
    const struct reduce_kernels *kernels;
    bool (*is_here)(void);
} sets[REDUCE_SETS] = {
    [REDUCE_BEST] = {"best", NULL, NULL},
    [REDUCE_C] = {"c", &reduce_kernels_c, has_c},
#ifdef __x86_64__
    [REDUCE_AVX2] = {"avx2", &reduce_kernels_avx2, has_avx2},
    [REDUCE_AVX512] = {"avx512", &reduce_kernels_avx512, has_avx512},
#else
    [REDUCE_AVX2] = {"avx2", NULL, NULL},
    [REDUCE_AVX512] = {"avx512", NULL, NULL},
#endif
};

static bool is_here(enum reduce_set set) { return sets[set].is_here && sets[set].is_here(); }

/* Returns `set`, or 0 if this machine does not have the set. For REDUCE_BEST: the best set of this
 * machine. */
static enum reduce_set resolve(enum reduce_set set)
{
    if (set != REDUCE_BEST)
        return (unsigned)set < REDUCE_SETS && is_here(set) ? set : 0;
    for (set = REDUCE_SETS - 1; !is_here(set);)
        set--;
    return set;
}

int reduce_set_find(const char *name, enum reduce_set *ret_set)
{
    for (enum reduce_set set = 0; set < REDUCE_SETS; set++) {
        if (strcmp(name, sets[set].name) != 0)
            continue;
        if (!resolve(set))
            return -ENOTSUP;
        *ret_set = set;
        return 0;
    }
    return -EINVAL;
}

const char *reduce_set_name(enum reduce_set set)
{
    set = resolve(set);
    return set ? sets[set].name : "?";
}

const struct reduce_kernels *reduce_kernels_of(enum reduce_set set)
{
    return sets[resolve(set)].kernels;
}

int reduce_width_of(enum reduce_dtype from, enum reduce_dtype to)
{
    if (!is_known((unsigned)from) || (to != from && to != dtypes[from].accumulator))
        return -EINVAL;
    return to == from ? REDUCE_SAME : REDUCE_ACCUMULATED;
}

reduce_fn reduce_pick(enum reduce_set set, enum reduce_operation operation, enum reduce_dtype from,
                      enum reduce_dtype to)
{
    const struct reduce_kernels *kernels = reduce_kernels_of(set);
    int width = reduce_width_of(from, to);
    if (!kernels || width < 0 || (unsigned)operation >= REDUCE_OPERATIONS)
        return NULL;
    return kernels->fold[operation][from][width];
}

size_t reduce_element_bytes(unsigned dtype) { return is_known(dtype) ? dtypes[dtype].bytes : 0; }

const char *reduce_dtype_name(unsigned dtype) { return is_known(dtype) ? dtypes[dtype].name : "?"; }

enum reduce_dtype reduce_accumulator(unsigned dtype)
{
    return is_known(dtype) ? dtypes[dtype].accumulator : (enum reduce_dtype)0;
}

bool reduce_divides(unsigned dtype) { return is_known(dtype) && dtypes[dtype].divides; }
