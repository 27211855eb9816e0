/* Terms of a table: the shape of its rows, the rule of their updates, their initial values, and the
 * consistency of reads. The terms are sent in the declaration (TableSpec) and to the lanes of the
 * table. All ranks declare the same terms. */
#ifndef GRADPOOL_WIRE_TABLE_TABLE_TERMS_H
#define GRADPOOL_WIRE_TABLE_TABLE_TERMS_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_TERMS_NAME_BYTES_MAX 255u
#define TABLE_TERMS_DIM_MAX 4096u
#define TABLE_TERMS_SHARDS_MAX 4096u
#define TABLE_TERMS_SHARDS 64u /* default of `shards` */

/* The values of the following four enums are the same as in gradpool.h, and as in enum row_rule,
 * enum row_initial_kind, enum table_consistency and enum record_operation. */
enum table_terms_rule {
    TABLE_TERMS_SGD = 1,
    TABLE_TERMS_ADAGRAD,
    TABLE_TERMS_ADAGRAD_ONE,
    TABLE_TERMS_ADAM,
    TABLE_TERMS_FTRL,
    TABLE_TERMS_RULES,
};
enum table_terms_initial {
    TABLE_TERMS_ZEROS,
    TABLE_TERMS_CONSTANT,
    TABLE_TERMS_UNIFORM,
    TABLE_TERMS_NORMAL,
    TABLE_TERMS_INITIALS,
};
enum table_terms_consistency {
    /* the table has the consistency of the job's stage; BSP if the job has no stages */
    TABLE_TERMS_INHERIT,
    TABLE_TERMS_BSP,
    TABLE_TERMS_SSP,
    TABLE_TERMS_ASP,
    TABLE_TERMS_CONSISTENCIES,
};
enum table_terms_combine { TABLE_TERMS_SUM = 1, TABLE_TERMS_MEAN = 2 };

#define TABLE_TERMS_KEEP 1u             /* the table outlives its job */
#define TABLE_TERMS_ACCEPT_NONFINITE 2u /* gradients that are not finite are applied */
#define TABLE_TERMS_FLAGS 3u

/* Meaning, units and defaults: gp_table_spec. */
struct table_terms {
    uint32_t dim, shards;
    uint32_t dtype, wire; /* f32, f16 or bf16, as enum reduce_dtype */
    uint64_t keys;        /* upper bound of the keys, which are all smaller; 0: no bound */
    uint64_t rows_hint;
    uint32_t rule, combine;
    double initial_value;
    uint64_t seed;
    uint32_t initial;
    uint32_t consistency, staleness;
    uint32_t durability; /* enum durability */
    uint32_t flags;
    uint32_t padding; /* ignored */
};
_Static_assert(sizeof(struct table_terms) == 80, "no holes");

/* Replaces zeros by the defaults, so that equal terms have equal fields. */
struct table_terms table_terms_filled(struct table_terms terms);
/* Checks the terms, as they were sent. Returns 0, or -EINVAL with a text that names the table, the
 * field, its value and the possible values. */
int table_terms_check(const struct table_terms *terms, const char *table, struct err *err);
/* Checks the name of a table: 1 to 255 bytes of UTF-8 without '/'. Returns 0, or -EINVAL with a
 * text. */
int table_terms_check_name(const char *name, struct err *err);
/* Returns whether the terms have the same meaning: 0 stands for the default, and `rows_hint` is
 * ignored. */
bool table_terms_are_same(const struct table_terms *a, const struct table_terms *b);
/* Writes the values that must be equal on all ranks: "dim 32, shards 64, dtype f32, wire f32, any
 * key, rule adagrad, mean, initial uniform 0.05 seed 7, bsp". The terms must have passed
 * table_terms_check(). */
void table_terms_write(const struct table_terms *terms, char *text, size_t text_bytes);
#define TABLE_TERMS_TEXT_BYTES 256
/* Returns the name of a rule, such as "adagrad"; "?" if it is unknown. */
const char *table_terms_rule_name(uint32_t rule);
/* Writes "bsp", "ssp:2" or "asp"; "?" for an unknown consistency. */
void table_terms_write_consistency(const struct table_terms *terms, char *text, size_t text_bytes);

#endif
