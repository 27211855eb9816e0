/* Tests terms of backup workers. Each value out of its range is refused with a text that names the
 * job, the value and the remedy. Terms with the same meaning are equal. The text has all values. */
#include "svc/wire/backup_terms.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS 4

static const struct backup_terms three = {.rule = BACKUP_TERMS_STATIC, .k = 3};

static void accepts(struct backup_terms terms, uint32_t workers)
{
    struct err err = {0};
    assert_int_equal(backup_terms_check(&terms, workers, "resnet", &err), 0);
    assert_int_equal(err.code, 0);
}

static void refuses(struct backup_terms terms, uint32_t workers, const char *text)
{
    struct err err = {0};
    assert_int_equal(backup_terms_check(&terms, workers, "resnet", &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text, text);
}

static void every_rule_has_terms_that_pass(void **state)
{
    accepts((struct backup_terms){0}, WORKERS);
    for (uint32_t k = 1; k <= WORKERS; k++)
        accepts((struct backup_terms){.rule = BACKUP_TERMS_STATIC, .k = k}, WORKERS);
    accepts((struct backup_terms){.rule = BACKUP_TERMS_AUTO, .gradients = 7, .lag = 16}, 256);
    accepts((struct backup_terms){.rule = BACKUP_TERMS_DBW, .least = WORKERS}, WORKERS);
    accepts((struct backup_terms){.rule = BACKUP_TERMS_BLIND, .absence = UINT32_MAX}, 256);
    accepts((struct backup_terms){.rule = BACKUP_TERMS_ADASYNC,
                                  .k = 1,
                                  .rate = BACKUP_TERMS_PROPORTIONAL,
                                  .gradients = 1},
            WORKERS);
    accepts((struct backup_terms){.rule = BACKUP_TERMS_AUTO}, 1); /* the default of `least` is
                                                                   * reduced to the number of
                                                                   * workers */
}

static void each_value_out_of_range_is_refused_with_its_remedy(void **state)
{
    struct backup_terms t = three;
    refuses((struct backup_terms){.rule = BACKUP_TERMS_DBW}, 257,
            "job 'resnet': backup rule 'dbw' is for at most 256 workers, and the job has 257; use "
            "rule 'auto'");
    refuses((struct backup_terms){.rule = BACKUP_TERMS_RULES}, WORKERS,
            "job 'resnet': backup.rule is 6; set rule to a value of enum gp_backup_rule");
    refuses((struct backup_terms){.least = 1}, WORKERS,
            "job 'resnet': backup has values and no rule; set backup.rule, or all fields of backup "
            "to 0");
    refuses(three, 2,
            "job 'resnet': backup.k is 3 for 2 workers with rule 'static'; set k to 1 to 2");
    refuses((struct backup_terms){.rule = BACKUP_TERMS_ADASYNC}, WORKERS,
            "job 'resnet': backup.k is 0 for 4 workers with rule 'adasync'; set k to 1 to 4");
    refuses((struct backup_terms){.rule = BACKUP_TERMS_AUTO, .k = 2}, WORKERS,
            "job 'resnet': backup.k is 2, but rule 'auto' chooses k itself; set k to 0");
    t.least = 5;
    refuses(t, WORKERS, "job 'resnet': backup.least is 5 for 4 workers; set least to 0 to 4");
    t = three;
    t.gradients = 8;
    refuses(t, WORKERS, "job 'resnet': backup.gradients is 8; set gradients to 0 to 7");
    refuses((struct backup_terms){.rule = BACKUP_TERMS_BLIND, .gradients = 2}, WORKERS,
            "job 'resnet': backup.gradients is 2 with rule 'blind'; use rule 'static' or 'auto', "
            "or set gradients to 1");
    t.gradients = 2;
    refuses(t, 257,
            "job 'resnet': backup.gradients is 2 for 257 workers, but more than 1 gradient "
            "needs a job of at most 256 workers; set gradients to 1, or start fewer workers");
    t = three;
    t.lag = 17;
    refuses(t, WORKERS, "job 'resnet': backup.lag is 17; set lag to 0 to 16");
    t = three;
    t.sets = BACKUP_TERMS_RECORDS;
    t.gradients = 2;
    refuses(t, WORKERS,
            "job 'resnet': backup.gradients is 2, and sets are recorded and replayed with one "
            "gradient of a rank in a round; set gradients to 1");
    t = three;
    t.sets = 4;
    refuses(t, WORKERS,
            "job 'resnet': backup.sets has unknown flags (4); install one version of gradpool on "
            "all hosts");
    t = three;
    t.rate = BACKUP_TERMS_RATES;
    refuses(t, WORKERS,
            "job 'resnet': backup.rate is 2; set rate to a value of enum gp_backup_rate");
}

/* Changes one field at a time. Each change makes the terms differ, unless the new value equals the
 * default. */
static void terms_are_the_same_if_they_mean_the_same(void **state)
{
    const struct backup_terms named = {
        .rule = BACKUP_TERMS_STATIC, .k = 3, .least = 2, .absence = 64, .lag = 4, .gradients = 1};
    assert_true(backup_terms_are_same(&three, &named, WORKERS));
    assert_false(backup_terms_are_same(&three, &(struct backup_terms){0}, WORKERS));
    for (size_t i = 0; i < sizeof named / sizeof(uint32_t); i++) {
        struct backup_terms other = named;
        ((uint32_t *)&other)[i] += 1;
        assert_false(backup_terms_are_same(&three, &other, WORKERS));
        assert_false(backup_terms_are_same(&other, &named, WORKERS));
        assert_true(backup_terms_are_same(&other, &other, WORKERS));
    }
    struct backup_terms alone = {.rule = BACKUP_TERMS_AUTO};
    assert_int_equal(backup_terms_filled(alone, 1).least, 1);
    assert_int_equal(backup_terms_filled(alone, 2).least, 2);
}

static void the_text_has_every_value(void **state)
{
    char text[BACKUP_TERMS_TEXT_BYTES];
    struct backup_terms longest = {.rule = BACKUP_TERMS_ADASYNC,
                                   .k = UINT32_MAX,
                                   .least = UINT32_MAX,
                                   .absence = UINT32_MAX,
                                   .lag = UINT32_MAX,
                                   .gradients = UINT32_MAX,
                                   .rate = BACKUP_TERMS_PROPORTIONAL};
    backup_terms_write(&three, WORKERS, text, sizeof text);
    assert_string_equal(text, "static, k 3, least 2, absence 64, lag 4, gradients 1, rate fixed");
    backup_terms_write(&(struct backup_terms){0}, WORKERS, text, sizeof text);
    assert_string_equal(text, "all");
    backup_terms_write(&longest, WORKERS, text, sizeof text);
    assert_string_equal(text, "adasync, k 4294967295, least 4294967295, absence 4294967295, lag "
                              "4294967295, gradients 4294967295, rate proportional");
    longest.sets = BACKUP_TERMS_RECORDS | BACKUP_TERMS_REPLAYS;
    backup_terms_write(&longest, WORKERS, text, sizeof text);
    assert_non_null(strstr(text, "rate proportional, GRADPOOL_SETS_RECORD, GRADPOOL_SETS_REPLAY"));
    assert_null(backup_terms_rule_name(BACKUP_TERMS_RULES));
    assert_null(backup_terms_rule_name(UINT32_MAX));
}

/* Checks random bytes, as a hostile peer might send them. The result is 0, or -EINVAL and a
 * text. */
static void random_terms_are_accepted_or_refused_with_a_text(void **state)
{
    unsigned seed = 20261130;
    uint32_t accepted = 0;
    print_message("# seed %u\n", seed);
    srandom(seed);
    for (int i = 0; i < 100000; i++) {
        struct backup_terms t;
        struct err err = {0};
        for (size_t f = 0; f < sizeof t / sizeof(uint32_t); f++)
            ((uint32_t *)&t)[f] = random() % 4 ? (uint32_t)random() % 9 : (uint32_t)random() * 2u;
        uint32_t workers = 1 + (uint32_t)random() % 768;
        int error = backup_terms_check(&t, workers, "j", &err);
        assert_true(error == 0 || (error == -EINVAL && strstr(err.text, "job 'j': backup")));
        if (error < 0)
            continue;
        struct backup_terms filled = backup_terms_filled(t, workers);
        assert_true(backup_terms_are_same(&t, &filled, workers));
        assert_int_equal(backup_terms_check(&filled, workers, "j", &err), 0);
        accepted++;
    }
    assert_true(accepted > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_has_terms_that_pass),
        cmocka_unit_test(each_value_out_of_range_is_refused_with_its_remedy),
        cmocka_unit_test(terms_are_the_same_if_they_mean_the_same),
        cmocka_unit_test(the_text_has_every_value),
        cmocka_unit_test(random_terms_are_accepted_or_refused_with_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
