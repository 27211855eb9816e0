/* Tests training on a virtual clock (bench/backup/README.md). The expected outcomes were computed
 * by another program, which contains no code of the bench. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/backup/grid/grid_file.h"
#include "bench/backup/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct jitter jitter;
static struct digits digits;

static int read_inputs(void **state)
{
    digits_generate(&digits);
    return jitter_read(BENCH_JITTER, &jitter);
}

static struct virtual_result run(const struct grid *grid, const char *problem, const char *times,
                                 enum straggler straggler, const char *rule_name, uint64_t seed)
{
    struct grid_rule rule;
    struct virtual_result result;
    assert_int_equal(grid_rule_parse(rule_name, &rule), 0);
    const struct virtual_setting setting = {.grid = grid,
                                            .problem = grid_find_problem(grid, problem),
                                            .times = grid_find_times(grid, times),
                                            .rule = &rule,
                                            .straggler = straggler,
                                            .seed = seed,
                                            .absence = BACKUP_ABSENCE_NONE,
                                            .digits = &digits,
                                            .jitter = &jitter};
    assert_int_equal(virtual_run(&setting, &result), 0);
    return result;
}

/* Returns whether the results are equal. The real time that a decision took is not compared. */
static bool are_equal(const struct virtual_result *a, const struct virtual_result *b)
{
    for (int i = 0; i < GRID_TARGETS; i++)
        if (a->reached[i] != b->reached[i])
            return false;
    return a->rounds == b->rounds && a->k_mean == b->k_mean && a->dropped == b->dropped &&
           a->absence == b->absence && a->loss == b->loss;
}

/* The expected number of rounds detects three mistakes: a mean over all workers instead of the
 * workers of the set, noise in another order, and a straggler that starts at another time. */
static void runs_of_a_static_k_have_their_known_outcome(void **state)
{
    struct grid grid;
    grid_whole(&grid);
    for (size_t i = 0; i < grid.checks_count; i++) {
        const struct grid_check *check = &grid.checks[i];
        if (grid_find_problem(&grid, check->problem)->kind != PROBLEM_QUADRATIC)
            continue; /* this outcome needs images that are not in the tree */
        struct virtual_result result = run(&grid, check->problem, check->times, check->straggler,
                                           check->rule, grid.check_seed);
        assert_true(report_equals(check, &result));
        result.k_mean += 0.02;
        assert_false(report_equals(check, &result));
    }
}

static void the_same_seed_gives_the_same_run(void **state)
{
    static const char *const rules[] = {"auto", "auto + second", "dbw", "before", "adasync:2"};
    struct grid grid;
    grid_quick(&grid);
    grid.rounds_max = 200;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct virtual_result one = run(&grid, "quad quiet", "one x5", STRAGGLER_WAIT, rules[i], 3);
        struct virtual_result other =
            run(&grid, "quad quiet", "one x5", STRAGGLER_WAIT, rules[i], 3);
        assert_true(are_equal(&one, &other));
        struct virtual_result third =
            run(&grid, "quad quiet", "one x5", STRAGGLER_WAIT, rules[i], 4);
        assert_true(third.loss != one.loss);
    }
}

static void waiting_for_all_is_a_static_k_of_all(void **state)
{
    struct grid grid;
    grid_quick(&grid);
    grid.rounds_max = 100;
    struct virtual_result all = run(&grid, "logistic", "one x5", STRAGGLER_WAIT, "all", 1);
    struct virtual_result k = run(&grid, "logistic", "one x5", STRAGGLER_WAIT, "static:16", 1);
    assert_true(are_equal(&all, &k));
    assert_true(all.dropped == 0 && all.absence == 0 && all.k_mean == 16);
}

static void a_slow_rank_is_dropped_until_the_rule_awaits_it(void **state)
{
    struct grid grid;
    struct grid_rule rule;
    struct virtual_result result;
    grid_quick(&grid);
    grid.rounds_max = 200;
    assert_int_equal(grid_rule_parse("static:12", &rule), 0);
    struct virtual_setting setting = {.grid = &grid,
                                      .problem = grid_find_problem(&grid, "quad quiet"),
                                      .times = grid_find_times(&grid, "one x5"),
                                      .rule = &rule,
                                      .straggler = STRAGGLER_INTERRUPT,
                                      .seed = 1,
                                      .absence = BACKUP_ABSENCE_NONE,
                                      .digits = &digits,
                                      .jitter = &jitter};
    assert_int_equal(virtual_run(&setting, &result), 0);
    assert_true(result.absence > 150);
    setting.absence = 20;
    assert_int_equal(virtual_run(&setting, &result), 0);
    assert_int_equal(result.absence, 20);
}

static void every_problem_learns(void **state)
{
    struct grid grid;
    grid_whole(&grid);
    grid.rounds_max = 60;
    for (size_t i = 0; i < grid.problems_count; i++) {
        struct problem problem;
        problem_init(&problem, &grid.problems[i], 1, &digits);
        double before = problem_loss(&problem);
        struct virtual_result result =
            run(&grid, grid.problems[i].name, "calm", STRAGGLER_WAIT, "static:16", 1);
        assert_true(result.loss < 0.95 * before);
    }
}

/* Compares each gradient with the slope between two losses of the same batch. After a reset of
 * `batches`, the same batch is drawn again. */
static void gradients_are_slopes_of_the_loss(void **state)
{
    struct grid grid;
    grid_whole(&grid);
    for (size_t i = 0; i < grid.problems_count; i++) {
        static struct problem problem;
        static float gradient[PROBLEM_FLOATS_MAX], unused[PROBLEM_FLOATS_MAX];
        problem_init(&problem, &grid.problems[i], 5, &digits);
        uint64_t batch = problem.batches;
        problem_gradient(&problem, gradient);
        for (size_t at = 3; at < problem.floats; at += problem.floats / 7) {
            float before = problem.parameters[at], step = 0.01f;
            problem.batches = batch;
            problem.parameters[at] = before + step;
            double above = problem_gradient(&problem, unused);
            problem.batches = batch;
            problem.parameters[at] = before - step;
            double below = problem_gradient(&problem, unused);
            problem.parameters[at] = before;
            assert_true(fabs((above - below) / (2 * (double)step) - (double)gradient[at]) < 0.01);
        }
    }
}

static void the_rate_falls_where_the_grid_lets_it(void **state)
{
    struct grid grid;
    static struct problem problem;
    grid_whole(&grid);
    problem_init(&problem, grid_find_problem(&grid, "quad decay"), 1, NULL);
    assert_true(problem_rate(&problem, 149) == 0.3);
    assert_true(fabs(problem_rate(&problem, 150) - 0.09) < 1e-12);
    assert_true(fabs(problem_rate(&problem, 300) - 0.027) < 1e-12);
}

/* --- the study --- */

static void a_static_rule_is_never_better_than_the_best_one(void **state)
{
    struct grid grid;
    struct study study = {
        .grid = &grid, .digits = &digits, .jitter = &jitter, .absence = BACKUP_ABSENCE_NONE};
    grid_quick(&grid);
    grid.problems_count = 1;
    assert_int_equal(study_run(&study), 0);
    size_t k = study_find_rule(&study, "static:10"), all = study_find_rule(&study, "all");
    struct study_row row = {.times = 1, .target = GRID_TARGETS - 1};
    size_t best = study_best_static(&study, &row);
    assert_true(best != STUDY_ALL && grid.rules[best].k < 16);
    struct study_cell cell = study_cell_of(&study, STUDY_ALL, STUDY_ALL, k);
    assert_true(cell.mean >= 1);
    assert_int_equal(cell.count, 8);
    assert_true(study_cell_of(&study, 1, STUDY_ALL, all).mean > 2);
    assert_true(study_find_rule(&study, "static:9") == STUDY_ALL);
    study_fini(&study);
}

/* --- names and files --- */

static void rules_are_read_by_name(void **state)
{
    static const char *const bad[] = {"",
                                      "static",
                                      "static:0",
                                      "static:x",
                                      "auto:3",
                                      "dbw + second",
                                      "auto + third",
                                      "adasync",
                                      "auto + second ",
                                      "static:12 +"};
    struct grid_rule rule;
    assert_int_equal(grid_rule_parse("static:12 + second", &rule), 0);
    assert_true(rule.rule == BACKUP_STATIC && rule.k == 12 && rule.has_second);
    assert_int_equal(grid_rule_parse("dbw", &rule), 0);
    assert_true(rule.rule == BACKUP_DBW && rule.k == 0 && !rule.has_second);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(grid_rule_parse(bad[i], &rule), -EINVAL);
}

static const char grid_text[] =
    "{\"workers\": 16, \"seeds\": [1, 2], \"rounds_max\": 50, \"time_max\": 4000, "
    "\"time_if_not_reached\": 8000, \"problems\": [{\"name\": \"q\", \"kind\": \"quadratic\", "
    "\"rate\": 0.3, \"noise\": 4, \"targets\": [4, 3, 2, 1]}], "
    "\"step_times\": [{\"name\": \"calm\"}, {\"name\": \"one x5\"}], "
    "\"stragglers\": {\"wait\": \"\", \"costs\": \"\"}, "
    "\"rules\": {\"static:K\": {\"k\": [2, 16]}, \"auto's numbers, k before\": {}, "
    "\"auto + second\": {}}, \"check\": {\"rows\": [\"q | one x5 | wait | static:12: rounds 464, "
    "mean k 12.00, times 67.267, 141.869, 369.335, -1.000\"]}}";

static int read_text(const char *text, struct grid *grid, char *error)
{
    char path[] = "grid_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    int r = grid_file_read(path, false, grid, error);
    unlink(path);
    return r;
}

static void a_grid_is_read_from_a_file(void **state)
{
    static struct grid grid;
    char error[GRID_FILE_ERROR_BYTES] = "";
    assert_int_equal(read_text(grid_text, &grid, error), 0);
    assert_int_equal(grid.seeds_count, 2);
    assert_int_equal(grid.times_count, 2);
    assert_int_equal(grid.stragglers_count, 1);
    assert_int_equal(grid.rules_count, 4);
    assert_string_equal(grid.rules[1].name, "static:16");
    assert_string_equal(grid.rules[2].name, "before");
    assert_int_equal(grid.checks_count, 1);
    assert_string_equal(grid.checks[0].times, "one x5");
    assert_string_equal(grid.checks[0].rule, "static:12");
    assert_int_equal(grid.checks[0].rounds, 464);
    assert_true(grid.checks[0].reached[3] == -1);
}

/* Each case replaces one part of a valid grid. The error must name this part. */
static void a_gap_in_a_grid_is_named(void **state)
{
    static const struct {
        const char *part, *other, *text;
    } cases[] = {
        {"\"workers\": 16", "\"w\": 16", "\"workers\""},
        {"\"workers\": 16", "\"workers\": 65", "\"workers\""},
        {"\"rounds_max\": 50", "\"rounds_max\": \"\"", "\"rounds_max\""},
        {"\"kind\": \"quadratic\"", "\"kind\": \"cubic\"", "cubic"},
        {"\"noise\": 4", "\"n\": 4", "\"noise\""},
        {"[4, 3, 2, 1]", "[4, 3, 2]", "3 targets"},
        {"{\"name\": \"calm\"}", "{\"name\": \"stormy\"}", "stormy"},
        {"\"auto + second\": {}", "\"dbw + second\": {}", "dbw + second"},
        {"rounds 464", "rounds x", "check"},
        {"[1, 2]", "[]", "\"seeds\""},
        {"\"seeds\"", "seeds", "line 1"},
    };
    static struct grid grid;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048], error[GRID_FILE_ERROR_BYTES] = "";
        const char *at = strstr(grid_text, cases[i].part);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - grid_text), grid_text, cases[i].other,
                 at + strlen(cases[i].part));
        assert_int_equal(read_text(text, &grid, error), -EBADMSG);
        if (!strstr(error, cases[i].text))
            fail_msg("\"%s\" does not name %s", error, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_a_static_k_have_their_known_outcome),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(waiting_for_all_is_a_static_k_of_all),
        cmocka_unit_test(a_slow_rank_is_dropped_until_the_rule_awaits_it),
        cmocka_unit_test(every_problem_learns),
        cmocka_unit_test(gradients_are_slopes_of_the_loss),
        cmocka_unit_test(the_rate_falls_where_the_grid_lets_it),
        cmocka_unit_test(a_static_rule_is_never_better_than_the_best_one),
        cmocka_unit_test(rules_are_read_by_name),
        cmocka_unit_test(a_grid_is_read_from_a_file),
        cmocka_unit_test(a_gap_in_a_grid_is_named),
    };
    return cmocka_run_group_tests(tests, read_inputs, NULL);
}
