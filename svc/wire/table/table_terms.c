/* Checks, compares and writes the terms of a table. This file uses only the name and the terms.
 * Values of peers never reach an assert (W9). */
#include "svc/wire/table/table_terms.h"

#include "svc/base/text.h"
#include "svc/wire/durability.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const rule_names[TABLE_TERMS_RULES] = {NULL,          "sgd",  "adagrad",
                                                          "adagrad-one", "adam", "ftrl"};
static const char *const initial_names[TABLE_TERMS_INITIALS] = {"zeros", "constant", "uniform",
                                                                "normal"};
static const char *const consistency_names[TABLE_TERMS_CONSISTENCIES] = {"inherit", "bsp", "ssp",
                                                                         "asp"};
#define TABLE_TERMS_F32 1u
/* Indexed by enum reduce_dtype. */
static const char *const dtype_names[] = {NULL, "f32", NULL, "f16", "bf16"};

static const char *table_dtype_name(uint32_t dtype)
{
    return dtype < sizeof dtype_names / sizeof *dtype_names ? dtype_names[dtype] : NULL;
}

struct table_terms table_terms_filled(struct table_terms terms)
{
    terms.shards = terms.shards ? terms.shards : TABLE_TERMS_SHARDS;
    terms.wire = terms.wire ? terms.wire : terms.dtype;
    terms.combine = terms.combine ? terms.combine : TABLE_TERMS_SUM;
    return terms;
}

/* Returns whether rows can be converted between `dtype` and `wire`. f16 and bf16 are not converted
 * into each other. */
static bool wire_converts(const struct table_terms *t)
{
    return t->wire == 0 || t->wire == t->dtype || t->wire == TABLE_TERMS_F32 ||
           t->dtype == TABLE_TERMS_F32;
}

static int check_shape(const struct table_terms *t, const char *table, struct err *err)
{
    if (t->dim < 1 || t->dim > TABLE_TERMS_DIM_MAX)
        return err_set(err, -EINVAL, "table '%s': dim is %u; set dim to 1 to %u", table, t->dim,
                       TABLE_TERMS_DIM_MAX);
    if (t->shards > TABLE_TERMS_SHARDS_MAX || (t->shards & (t->shards - 1)) != 0)
        return err_set(err, -EINVAL,
                       "table '%s': shards is %u; set shards to a power of two up to %u, or to 0",
                       table, t->shards, TABLE_TERMS_SHARDS_MAX);
    if (!table_dtype_name(t->dtype))
        return err_set(err, -EINVAL,
                       "table '%s': dtype is %u; set dtype to GP_F32, GP_F16 or GP_BF16", table,
                       t->dtype);
    if (t->wire != 0 && !table_dtype_name(t->wire))
        return err_set(err, -EINVAL,
                       "table '%s': wire is %u; set wire to GP_F32, GP_F16 or GP_BF16", table,
                       t->wire);
    if (!wire_converts(t))
        return err_set(err, -EINVAL,
                       "table '%s': wire is %s for rows of %s; set wire to GP_F32, to the dtype of "
                       "the rows, or to 0",
                       table, table_dtype_name(t->wire), table_dtype_name(t->dtype));
    return 0;
}

static int check_update(const struct table_terms *t, const char *table, struct err *err)
{
    if (t->rule < 1 || t->rule >= TABLE_TERMS_RULES)
        return err_set(err, -EINVAL,
                       "table '%s': rule is %u; set rule to a value of enum gp_row_rule", table,
                       t->rule);
    if (t->combine > TABLE_TERMS_MEAN)
        return err_set(err, -EINVAL, "table '%s': combine is %u; set combine to GP_SUM or GP_MEAN",
                       table, t->combine);
    if (t->flags & ~TABLE_TERMS_FLAGS)
        return err_set(err, -EINVAL,
                       "table '%s': flags are 0x%x, but only 0x%x are known; clear all other flags",
                       table, t->flags, TABLE_TERMS_FLAGS);
    return 0;
}

static bool initial_value_is_sound(const struct table_terms *t)
{
    bool is_width = t->initial == TABLE_TERMS_UNIFORM || t->initial == TABLE_TERMS_NORMAL;
    double size = is_width ? t->initial_value : fabs(t->initial_value);
    return t->initial == TABLE_TERMS_ZEROS || (size >= 0 && size <= FLT_MAX / 8);
}

static int check_initial(const struct table_terms *t, const char *table, struct err *err)
{
    if (t->initial >= TABLE_TERMS_INITIALS)
        return err_set(err, -EINVAL,
                       "table '%s': initial is %u; set initial to a value of enum gp_initial",
                       table, t->initial);
    if (!initial_value_is_sound(t))
        return err_set(err, -EINVAL,
                       "table '%s': initial_value is %g with initial %s; set a number from 0 to "
                       "4.25e37, which may be negative only with GP_CONSTANT",
                       table, t->initial_value, initial_names[t->initial]);
    if (t->rule == TABLE_TERMS_FTRL && t->initial != TABLE_TERMS_ZEROS)
        return err_set(err, -EINVAL,
                       "table '%s': initial is %s with rule ftrl, whose first update replaces "
                       "initial values; set initial to GP_ZEROS",
                       table, initial_names[t->initial]);
    return 0;
}

static int check_reads(const struct table_terms *t, const char *table, struct err *err)
{
    if (t->consistency >= TABLE_TERMS_CONSISTENCIES)
        return err_set(err, -EINVAL,
                       "table '%s': consistency is %u; set consistency to a value of enum "
                       "gp_consistency",
                       table, t->consistency);
    if (t->staleness != 0 && t->consistency != TABLE_TERMS_SSP)
        return err_set(err, -EINVAL,
                       "table '%s': staleness is %u with consistency %s; set staleness to 0, or "
                       "consistency to GP_SSP",
                       table, t->staleness, consistency_names[t->consistency]);
    if (t->durability > DURABILITY_MOST)
        return err_set(err, -EINVAL,
                       "table '%s': durability is %u; set durability to a value of enum "
                       "gp_durability",
                       table, t->durability);
    return 0;
}

int table_terms_check(const struct table_terms *terms, const char *table, struct err *err)
{
    int error = check_shape(terms, table, err);
    if (error == 0)
        error = check_update(terms, table, err);
    if (error == 0)
        error = check_initial(terms, table, err);
    return error == 0 ? check_reads(terms, table, err) : error;
}

int table_terms_check_name(const char *name, struct err *err)
{
    size_t bytes = strlen(name);
    if (bytes < 1 || bytes > TABLE_TERMS_NAME_BYTES_MAX)
        return err_set(err, -EINVAL,
                       "table '%.32s': the name has %zu bytes; choose a name of 1 to %u bytes",
                       name, bytes, TABLE_TERMS_NAME_BYTES_MAX);
    if (!text_is_utf8(name))
        return err_set(err, -EINVAL, "the name of a table is not UTF-8; encode the name as UTF-8");
    if (strchr(name, '/'))
        return err_set(err, -EINVAL,
                       "table '%.255s': the name has a '/', which separates job and table; choose "
                       "a name without '/'",
                       name);
    return 0;
}

/* Returns the terms in a normal form: terms with the same meaning have the same fields. */
static struct table_terms terms_plain(const struct table_terms *terms)
{
    struct table_terms plain = table_terms_filled(*terms);
    plain.rows_hint = 0;
    plain.padding = 0;
    if (plain.initial == TABLE_TERMS_ZEROS)
        plain.initial_value = 0;
    if (plain.initial == TABLE_TERMS_ZEROS || plain.initial == TABLE_TERMS_CONSTANT)
        plain.seed = 0;
    return plain;
}

bool table_terms_are_same(const struct table_terms *a, const struct table_terms *b)
{
    struct table_terms first = terms_plain(a), second = terms_plain(b);
    return memcmp(&first, &second, sizeof first) == 0;
}

/* Writes "zeros", "constant 0.5" or "uniform 0.05 seed 7". */
static void write_initial(const struct table_terms *t, char *text, size_t text_bytes)
{
    const char *name = initial_names[t->initial];
    if (t->initial == TABLE_TERMS_ZEROS)
        snprintf(text, text_bytes, "%s", name);
    else if (t->initial == TABLE_TERMS_CONSTANT)
        snprintf(text, text_bytes, "%s %g", name, t->initial_value);
    else
        snprintf(text, text_bytes, "%s %g seed %" PRIu64, name, t->initial_value, t->seed);
}

void table_terms_write(const struct table_terms *terms, char *text, size_t text_bytes)
{
    struct table_terms t = terms_plain(terms);
    char keys[32] = "any key", initial[64], staleness[32] = "";
    write_initial(&t, initial, sizeof initial);
    if (t.keys)
        snprintf(keys, sizeof keys, "keys %" PRIu64, t.keys);
    if (t.consistency == TABLE_TERMS_SSP)
        snprintf(staleness, sizeof staleness, " %u", t.staleness);
    snprintf(text, text_bytes,
             "dim %u, shards %u, dtype %s, wire %s, %s, rule %s, %s, initial %s, %s%s", t.dim,
             t.shards, table_dtype_name(t.dtype), table_dtype_name(t.wire), keys,
             rule_names[t.rule], t.combine == TABLE_TERMS_MEAN ? "mean" : "sum", initial,
             consistency_names[t.consistency], staleness);
}

const char *table_terms_rule_name(uint32_t rule)
{
    return rule > 0 && rule < TABLE_TERMS_RULES ? rule_names[rule] : "?";
}

void table_terms_write_consistency(const struct table_terms *terms, char *text, size_t text_bytes)
{
    uint32_t consistency = terms->consistency ? terms->consistency : TABLE_TERMS_BSP;
    if (consistency >= TABLE_TERMS_CONSISTENCIES)
        snprintf(text, text_bytes, "?");
    else if (consistency == TABLE_TERMS_SSP)
        snprintf(text, text_bytes, "ssp:%u", terms->staleness);
    else
        snprintf(text, text_bytes, "%s", consistency_names[consistency]);
}
