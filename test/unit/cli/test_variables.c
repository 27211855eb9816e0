/* Tests for which GRADPOOL_ variables a warning is printed. */
#include "svc/base/log.h"
#include "svc/base/variables.h"
#include "svc/cli/doctor/doctor.h"
#include "svc/cli/explore/explore.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/cli/options/knobs.h"
#include "svc/cli/options/options.h"
#include "svc/cli/plan/plan.h"
#include "svc/cli/run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char lines[1024];
static int lines_count;

static void keep(enum log_level level, const char *line)
{
    assert_int_equal(level, LOG_LEVEL_WARN);
    snprintf(lines, sizeof lines, "%s", line);
    lines_count++;
}

/* Returns the number of warnings while this variable is set. */
static int warnings(const char *name)
{
    lines[0] = '\0';
    lines_count = 0;
    setenv(name, "1", 1);
    variables_check();
    unsetenv(name);
    return lines_count;
}

/* An option of the first two tables is read from the environment, unless it is marked for the
 * command line only. An option of any other table is read from the environment only if it is
 * marked. */
static void every_option_that_is_read_from_the_environment_is_known(void **state)
{
    const struct knob *const tables[] = {
        serve_knobs,  aggregator_knobs, operator_knobs, tenant_knobs,   top_knobs,    report_knobs,
        move_knobs,   drain_knobs,      plan_knobs,     snapshot_knobs, doctor_knobs, run_knobs,
        resize_knobs, timeline_knobs,   stop_knobs,     explore_knobs,  trials_knobs};
    char name[64];
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const struct knob *knob = tables[t]; knob->name; knob++) {
            const struct knob_command command = {.reads_variables = t < 2};
            bool is_read = knobs_has_variable(&command, knob);
            if (is_read && warnings(knobs_variable(knob->name, name, sizeof name)) > 0)
                fail_msg("%s is missing in svc/base/variables.c", name);
        }
    }
}

static void former_variables_are_named_in_one_line(void **state)
{
    setenv("GRADPOOL_OPERATOR", "1", 1);
    setenv("GRADPOOL_INSECURE", "1", 1);
    assert_int_equal(warnings("GRADPOOL_UNDO"), 1);
    unsetenv("GRADPOOL_OPERATOR");
    unsetenv("GRADPOOL_INSECURE");
    for (size_t i = 0; i < 3; i++) {
        const char *const names[] = {"GRADPOOL_OPERATOR", "GRADPOOL_INSECURE", "GRADPOOL_UNDO"};
        assert_non_null(strstr(lines, names[i]));
    }
    assert_non_null(strstr(lines, "gradpool does not read these environment variables"));
}

static void an_unknown_variable_is_one_line_with_the_closest_name(void **state)
{
    assert_int_equal(warnings("GRADPOOL_TIMEOUT"), 1);
    assert_non_null(strstr(lines, "variable GRADPOOL_TIMEOUT; did you mean GRADPOOL_TIMEOUT_MS?"));
    assert_int_equal(warnings("GRADPOOL_TRANSPROT"), 1);
    assert_non_null(strstr(lines, "did you mean GRADPOOL_TRANSPORT?"));
}

static void a_variable_without_a_similar_name_is_reported_without_a_suggestion(void **state)
{
    assert_int_equal(warnings("GRADPOOL_XYZZYPLUGH"), 1);
    assert_non_null(strstr(lines, "GRADPOOL_XYZZYPLUGH"));
    assert_null(strstr(lines, "did you mean"));
    assert_int_equal(warnings("GRADPOOL_"), 1);
}

static void a_long_name_is_cut(void **state)
{
    char name[300];
    memset(name, 'A', sizeof name);
    memcpy(name, "GRADPOOL_", 9);
    name[sizeof name - 1] = '\0';
    assert_int_equal(warnings(name), 1);
    assert_null(strstr(lines, "did you mean"));
}

static void variables_of_other_programs_are_ignored(void **state)
{
    assert_int_equal(warnings("GRADPOOLING"), 0);
    assert_int_equal(warnings("MY_GRADPOOL_JOB"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_that_is_read_from_the_environment_is_known),
        cmocka_unit_test(former_variables_are_named_in_one_line),
        cmocka_unit_test(an_unknown_variable_is_one_line_with_the_closest_name),
        cmocka_unit_test(a_variable_without_a_similar_name_is_reported_without_a_suggestion),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(variables_of_other_programs_are_ignored),
    };
    log_set_hook(keep);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
