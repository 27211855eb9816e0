/* Tests terms of tables. Each value out of its range is refused with a text that names the table,
 * the value and the remedy. Terms with the same meaning are equal. The text has all values. */
#include "svc/wire/table/table_terms.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct table_terms users = {.dim = 32,
                                         .dtype = 1,
                                         .rule = TABLE_TERMS_ADAGRAD,
                                         .initial = TABLE_TERMS_UNIFORM,
                                         .initial_value = 0.05,
                                         .seed = 7};

/* Sets one field of valid terms to a value, and expects the text of the refusal. */
#define refuses(field, value, text_)                                           \
    do {                                                                       \
        struct table_terms changed = users;                                    \
        struct err err = {0};                                                  \
        assert_int_equal(table_terms_check(&changed, "users", &err), 0);       \
        changed.field = (value);                                               \
        assert_int_equal(table_terms_check(&changed, "users", &err), -EINVAL); \
        assert_string_equal(err.text, text_);                                  \
    } while (0)
#define accepts(field, value)                                            \
    do {                                                                 \
        struct table_terms changed = users;                              \
        struct err err = {0};                                            \
        changed.field = (value);                                         \
        assert_int_equal(table_terms_check(&changed, "users", &err), 0); \
    } while (0)

static void each_value_out_of_range_is_refused_with_its_remedy(void **state)
{
    refuses(dim, 0, "table 'users': dim is 0; set dim to 1 to 4096");
    refuses(dim, 4097, "table 'users': dim is 4097; set dim to 1 to 4096");
    refuses(shards, 3,
            "table 'users': shards is 3; set shards to a power of two up to 4096, or to 0");
    refuses(shards, 8192,
            "table 'users': shards is 8192; set shards to a power of two up to 4096, or to 0");
    refuses(dtype, 2, "table 'users': dtype is 2; set dtype to GP_F32, GP_F16 or GP_BF16");
    refuses(wire, 5, "table 'users': wire is 5; set wire to GP_F32, GP_F16 or GP_BF16");
    refuses(rule, 6, "table 'users': rule is 6; set rule to a value of enum gp_row_rule");
    refuses(combine, 3, "table 'users': combine is 3; set combine to GP_SUM or GP_MEAN");
    refuses(flags, 5,
            "table 'users': flags are 0x5, but only 0x3 are known; clear all other flags");
    refuses(initial, 4, "table 'users': initial is 4; set initial to a value of enum gp_initial");
    refuses(initial_value, -0.5,
            "table 'users': initial_value is -0.5 with initial uniform; set a number from 0 to "
            "4.25e37, which may be negative only with GP_CONSTANT");
    refuses(rule, TABLE_TERMS_FTRL,
            "table 'users': initial is uniform with rule ftrl, whose first update replaces initial "
            "values; set initial to GP_ZEROS");
    refuses(consistency, 4,
            "table 'users': consistency is 4; set consistency to a value of enum gp_consistency");
    refuses(staleness, 2,
            "table 'users': staleness is 2 with consistency inherit; set staleness to 0, or "
            "consistency to GP_SSP");
    refuses(durability, 4,
            "table 'users': durability is 4; set durability to a value of enum gp_durability");
}

static void halves_of_two_kinds_are_refused(void **state)
{
    struct table_terms halves = users;
    struct err err = {0};
    halves.dtype = 3;
    halves.wire = 4;
    assert_int_equal(table_terms_check(&halves, "users", &err), -EINVAL);
    assert_string_equal(err.text, "table 'users': wire is bf16 for rows of f16; set wire to "
                                  "GP_F32, to the dtype of the rows, or to 0");
}

static void the_bounds_of_each_value_pass(void **state)
{
    accepts(dim, 1);
    accepts(dim, 4096);
    accepts(shards, 1);
    accepts(shards, 4096);
    accepts(dtype, 3);
    accepts(wire, 4);
    accepts(keys, UINT64_MAX);
    accepts(flags, TABLE_TERMS_FLAGS);
    accepts(durability, 3);
    accepts(initial_value, 0);
    accepts(consistency, TABLE_TERMS_ASP);
}

static void initial_values_are_finite(void **state)
{
    const double wrong[] = {NAN, INFINITY, -INFINITY, 1e39};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct table_terms t = users;
        struct err err = {0};
        t.initial_value = wrong[i];
        assert_int_equal(table_terms_check(&t, "users", &err), -EINVAL);
        t.initial = TABLE_TERMS_CONSTANT;
        assert_int_equal(table_terms_check(&t, "users", &err), -EINVAL);
        t.initial = TABLE_TERMS_ZEROS; /* the value is ignored */
        assert_int_equal(table_terms_check(&t, "users", &err), 0);
    }
}

static void a_constant_may_be_negative(void **state)
{
    struct table_terms t = users;
    struct err err = {0};
    t.initial = TABLE_TERMS_CONSTANT;
    t.initial_value = -1.5;
    assert_int_equal(table_terms_check(&t, "users", &err), 0);
}

static void name_gives(const char *name, const char *text)
{
    struct err err = {0};
    assert_int_equal(table_terms_check_name(name, &err), text ? -EINVAL : 0);
    assert_string_equal(err.text, text ? text : "");
}

static void a_name_has_1_to_255_bytes_without_a_slash(void **state)
{
    char name[TABLE_TERMS_NAME_BYTES_MAX + 2];
    memset(name, 'n', sizeof name);
    name[TABLE_TERMS_NAME_BYTES_MAX + 1] = '\0';
    name_gives(name, "table 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn': the name has 256 bytes; choose a "
                     "name of 1 to 255 bytes");
    name[TABLE_TERMS_NAME_BYTES_MAX] = '\0';
    name_gives(name, NULL);
    name_gives("", "table '': the name has 0 bytes; choose a name of 1 to 255 bytes");
    name_gives("a/b", "table 'a/b': the name has a '/', which separates job and table; choose a "
                      "name without '/'");
    name_gives("\xff", "the name of a table is not UTF-8; encode the name as UTF-8");
    name_gives("wörter", NULL);
}

#define differs(field, value)                                 \
    do {                                                      \
        struct table_terms changed = users;                   \
        changed.field = (value);                              \
        assert_false(table_terms_are_same(&users, &changed)); \
    } while (0)
#define agrees(field, value)                                 \
    do {                                                     \
        struct table_terms changed = users;                  \
        changed.field = (value);                             \
        assert_true(table_terms_are_same(&users, &changed)); \
    } while (0)

static void a_default_may_be_named_or_0(void **state)
{
    agrees(shards, TABLE_TERMS_SHARDS);
    agrees(wire, users.dtype);
    agrees(combine, TABLE_TERMS_SUM);
    agrees(rows_hint, 1000);
    agrees(padding, 1);
}

static void every_other_difference_counts(void **state)
{
    differs(dim, 31);
    differs(shards, 32);
    differs(dtype, 3);
    differs(wire, 3);
    differs(keys, 100);
    differs(rule, TABLE_TERMS_SGD);
    differs(combine, TABLE_TERMS_MEAN);
    differs(initial, TABLE_TERMS_NORMAL);
    differs(initial_value, 0.5);
    differs(seed, 8);
    differs(consistency, TABLE_TERMS_ASP);
    /* the terms differ outside a stage with another consistency */
    differs(consistency, TABLE_TERMS_BSP);
    differs(durability, 1);
    differs(flags, TABLE_TERMS_KEEP);
}

static void values_that_nothing_reads_may_differ(void **state)
{
    struct table_terms a = users, b = users;
    a.initial = b.initial = TABLE_TERMS_ZEROS;
    a.seed = 1;
    a.initial_value = NAN;
    assert_true(table_terms_are_same(&a, &b));
    a.initial = b.initial = TABLE_TERMS_CONSTANT;
    a.initial_value = b.initial_value;
    assert_true(table_terms_are_same(&a, &b));
}

static void the_text_has_all_values(void **state)
{
    char text[TABLE_TERMS_TEXT_BYTES];
    struct table_terms t = users;
    table_terms_write(&t, text, sizeof text);
    assert_string_equal(text, "dim 32, shards 64, dtype f32, wire f32, any key, rule adagrad, sum, "
                              "initial uniform 0.05 seed 7, inherit");
    t = (struct table_terms){.dim = 1,
                             .shards = 4,
                             .dtype = 4,
                             .wire = 1,
                             .keys = 1000,
                             .rule = TABLE_TERMS_FTRL,
                             .combine = TABLE_TERMS_MEAN,
                             .consistency = TABLE_TERMS_SSP,
                             .staleness = 3};
    table_terms_write(&t, text, sizeof text);
    assert_string_equal(text, "dim 1, shards 4, dtype bf16, wire f32, keys 1000, rule ftrl, mean, "
                              "initial zeros, ssp 3");
}

static void names_are_those_of_the_scripts(void **state)
{
    char text[16];
    struct table_terms t = users;
    assert_string_equal(table_terms_rule_name(TABLE_TERMS_ADAGRAD_ONE), "adagrad-one");
    assert_string_equal(table_terms_rule_name(0), "?");
    assert_string_equal(table_terms_rule_name(TABLE_TERMS_RULES), "?");
    table_terms_write_consistency(&t, text, sizeof text);
    assert_string_equal(text, "bsp");
    t.consistency = TABLE_TERMS_SSP;
    t.staleness = UINT32_MAX;
    table_terms_write_consistency(&t, text, sizeof text);
    assert_string_equal(text, "ssp:4294967295");
    t.consistency = TABLE_TERMS_CONSISTENCIES;
    table_terms_write_consistency(&t, text, sizeof text);
    assert_string_equal(text, "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_out_of_range_is_refused_with_its_remedy),
        cmocka_unit_test(halves_of_two_kinds_are_refused),
        cmocka_unit_test(the_bounds_of_each_value_pass),
        cmocka_unit_test(initial_values_are_finite),
        cmocka_unit_test(a_constant_may_be_negative),
        cmocka_unit_test(a_name_has_1_to_255_bytes_without_a_slash),
        cmocka_unit_test(a_default_may_be_named_or_0),
        cmocka_unit_test(every_other_difference_counts),
        cmocka_unit_test(values_that_nothing_reads_may_differ),
        cmocka_unit_test(the_text_has_all_values),
        cmocka_unit_test(names_are_those_of_the_scripts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
