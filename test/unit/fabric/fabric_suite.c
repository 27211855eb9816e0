/* Runs two kinds of cases as one group: the cases for all fabrics, and the cases that the test of
 * one fabric adds. */
#include "test/unit/fabric/fabric_suite.h"

#include <stdlib.h>
#include <string.h>

static const struct fabric_factory *factory;

int fabric_case_set_up(void **state)
{
    struct rig *rig = malloc(sizeof *rig);

    assert_non_null(rig);
    rig_open(rig, factory, NULL);
    *state = rig;
    return 0;
}

int fabric_case_tear_down(void **state)
{
    rig_close(*state);
    free(*state);
    return 0;
}

int fabric_suite_run(const struct fabric_factory *f, const struct CMUnitTest *more,
                     size_t more_count)
{
    static struct CMUnitTest cases[FABRIC_CASES_MAX];
    const struct {
        const struct CMUnitTest *cases;
        size_t count;
    } parts[] = {
        {fabric_talk_cases, fabric_talk_cases_count},
        {fabric_memory_cases, fabric_memory_cases_count},
        {fabric_sleep_cases, f->ping_pongs > 0 ? fabric_sleep_cases_count : 0},
        {more, more_count},
    };
    size_t count = 0;

    factory = f;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_true(count + parts[i].count <= FABRIC_CASES_MAX);
        if (parts[i].count > 0)
            memcpy(&cases[count], parts[i].cases, parts[i].count * sizeof cases[0]);
        count += parts[i].count;
    }
    return _cmocka_run_group_tests(f->name, cases, count, NULL, NULL);
}
