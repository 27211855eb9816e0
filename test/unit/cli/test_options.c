/* Tests options of `serve` and `aggregator`: their four sources, the configuration file, and the
 * help page of options. */
#include "svc/cli/cli.h"
#include "svc/cli/options/config.h"
#include "svc/cli/options/layers.h"
#include "svc/cli/options/options.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *page_path;
static char folder[64], path[96];
static struct layers layers;
static struct cli_serve serve;
static struct cli_aggregator aggregator;
static struct err err;

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/gradpool-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/gradpool.conf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)remove(path);
    return remove(folder);
}

static void write_config(const char *text)
{
    (void)remove(path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0644), 0);
}

static void begin(const struct knob_command *command)
{
    serve = (struct cli_serve){0};
    aggregator = (struct cli_aggregator){0};
    void *options = command == &serve_command ? (void *)&serve : &aggregator;
    layers = (struct layers){.command = command, .options = options, .preset_file = path};
}

static void type(const char *name, const char *value)
{
    int index = knobs_find(layers.command->knobs, name);
    assert_true(index >= 0);
    layers.typed[index] = value;
}

static void settle(const struct knob_command *command)
{
    begin(command);
    if (command == &aggregator_command)
        type("join", "node7:7077");
    if (layers_settle(&layers, &err) < 0)
        fail_msg("%s", err.text);
}

static void assert_refused(const char *text)
{
    assert_int_not_equal(layers_settle(&layers, &err), 0);
    if (!strstr(err.text, text))
        fail_msg("'%s' lacks '%s'", err.text, text);
}

/* Checks that this line of the file is refused. The error must name line and option. */
static void assert_file_refused(const char *config, unsigned line, const char *text)
{
    char place[128];
    write_config(config);
    begin(&serve_command);
    assert_refused(text);
    snprintf(place, sizeof place, "%s:%u: ", path, line);
    if (!strstr(err.text, place))
        fail_msg("'%s' lacks '%s'", err.text, place);
}

/* --- precedence --- */

static void the_command_line_precedes_the_variable_then_the_file_then_the_default(void **state)
{
    (void)remove(path);
    settle(&serve_command);
    assert_int_equal(serve.scale_hold_s, 30);
    write_config("[serve]\nscale-hold = 31\n");
    settle(&serve_command);
    assert_int_equal(serve.scale_hold_s, 31);
    setenv("GRADPOOL_SCALE_HOLD", "32", 1);
    settle(&serve_command);
    assert_int_equal(serve.scale_hold_s, 32);
    begin(&serve_command);
    type("scale-hold", "33");
    assert_int_equal(layers_settle(&layers, &err), 0);
    assert_int_equal(serve.scale_hold_s, 33);
    unsetenv("GRADPOOL_SCALE_HOLD");
}

static void a_variable_of_0_turns_off_a_flag_of_the_file(void **state)
{
    write_config("[serve]\nrequire-tls = on\n");
    settle(&serve_command);
    assert_true(serve.require_tls);
    setenv("GRADPOOL_REQUIRE_TLS", "0", 1);
    settle(&serve_command);
    assert_false(serve.require_tls);
    unsetenv("GRADPOOL_REQUIRE_TLS");
}

static void an_empty_variable_is_no_value(void **state)
{
    write_config("[serve]\nscale-hold = 31\n");
    setenv("GRADPOOL_SCALE_HOLD", "", 1);
    settle(&serve_command);
    assert_int_equal(serve.scale_hold_s, 31);
    unsetenv("GRADPOOL_SCALE_HOLD");
}

static void the_named_file_is_read_in_place_of_the_usual_one(void **state)
{
    write_config("[serve]\nname = named\n");
    begin(&serve_command);
    layers.preset_file = "/nowhere/gradpool.conf";
    assert_int_equal(layers_settle(&layers, &err), 0);
    assert_null(serve.name);
    assert_null(layers.file);
    type("config", path);
    assert_int_equal(layers_settle(&layers, &err), 0);
    assert_string_equal(serve.name, "named");
    assert_string_equal(layers.file, path);
}

static void dev_null_is_no_file(void **state)
{
    write_config("[serve]\nname = named\n");
    begin(&serve_command);
    type("config", "/dev/null");
    assert_int_equal(layers_settle(&layers, &err), 0);
    assert_null(serve.name);
}

static void each_command_reads_its_section_and_checks_both(void **state)
{
    write_config("[serve]\ncores = 0\n[aggregator]\ncores = 1\n");
    settle(&serve_command);
    assert_string_equal(serve.lanes.cores, "0");
    settle(&aggregator_command);
    assert_string_equal(aggregator.lanes.cores, "1");
    assert_file_refused("[serve]\ncores = 0\n[aggregator]\nkernels = sse9\n", 4,
                        "kernels: 'sse9': expected best, c, avx2 or avx512");
}

static void an_aggregator_with_a_grant_reads_no_file_unless_it_is_named(void **state)
{
    write_config("[aggregator]\ncores = 1\n");
    setenv("GRADPOOL_GRANT", "secret", 1);
    settle(&aggregator_command);
    assert_null(aggregator.lanes.cores);
    begin(&aggregator_command);
    type("join", "node7:7077");
    type("config", path);
    assert_int_equal(layers_settle(&layers, &err), 0);
    assert_string_equal(aggregator.lanes.cores, "1");
    unsetenv("GRADPOOL_GRANT");
}

static void serve_hands_three_values_to_local_aggregators_unless_a_variable_is_set(void **state)
{
    write_config("[aggregator]\nkernels = c\nlane-policy = fifo\nprovider = tcp\ncores = 1\n");
    setenv("GRADPOOL_LANE_POLICY", "shortest", 1);
    settle(&serve_command);
    assert_string_equal(getenv("GRADPOOL_KERNELS"), "c");
    assert_string_equal(getenv("GRADPOOL_LANE_POLICY"), "shortest");
    assert_string_equal(getenv("GRADPOOL_PROVIDER"), "tcp");
    assert_null(getenv("GRADPOOL_CORES"));
    unsetenv("GRADPOOL_KERNELS");
    unsetenv("GRADPOOL_LANE_POLICY");
    unsetenv("GRADPOOL_PROVIDER");
}

static void defaults_are_those_of_the_limits_table(void **state)
{
    struct limits expected;
    (void)remove(path);
    limits_init(&expected);
    settle(&serve_command);
    assert_memory_equal(&serve.limits.most, &expected.most, sizeof expected.most);
    assert_string_equal(serve.listen, "gradpool://127.0.0.1:7077");
    assert_int_equal(serve.worker_timeout_ms, 2000);
    assert_int_equal(serve.lanes.orphan_timeout_s, 600);
    settle(&aggregator_command);
    assert_int_equal(aggregator.lanes.orphan_timeout_s, 0);
    assert_int_equal(aggregator.lanes.leave_timeout_s, 20);
}

/* --- mistakes --- */

static void a_mistake_of_the_file_names_its_line_and_the_remedy(void **state)
{
    static const struct {
        const char *config, *text;
        unsigned line;
    } cases[] = {
        {"# x\nlisten = x\n", "is before the first section; write [serve] or [aggregator]", 2},
        {"[server]\n", "no section has the name 'server'; expected [serve] or [aggregator]", 1},
        {"[serve]\nlisen = x\n", "[serve] has no key 'lisen'; did you mean 'listen'?", 2},
        {"[serve]\n\nzzzzzzzz = x\n", "`gradpool serve --help' lists all keys", 3},
        {"[serve]\njoin = x\n", "[serve] has no key 'join'; [aggregator] has this key", 2},
        {"[serve]\nconfig = x\n", "[serve] has no key 'config'", 2},
        {"[serve]\nprint-config = 1\n", "[serve] has no key 'print-config'", 2},
        {"[serve]\naggregators = many\n", "aggregators: 'many': expected a whole number", 2},
        {"[serve]\nrequire-tls = maybe\n", "require-tls: 'maybe': expected 0 or 1", 2},
        {"[serve]\nstop = never\n", "stop: 'never': expected auto, service or jobs", 2},
        {"[serve]\nworker-timeout = 1\n", "expected 0, or at least 2 seconds", 2},
        {"[serve]\nloss-limit = much\n", "expected percent", 2},
        {"[serve]\njob-bytes-max = 0\n", "expected bytes, like 512M or 64G", 2},
        {"[serve]\nallow-uid = me\n", "allow-uid: 'me'", 2},
        {"[serve]\nname =\n", "name has no value; give a value, or remove the line", 2},
        {"[serve]\nname = a\n[aggregator]\n[serve]\nname = a\n",
         "name is set twice, also in line 2", 5},
        {"[aggregator]\ngrant = x\n",
         " is a secret, which gradpool never reads from a file; remove the line", 2},
        {"[serve]\nname\n", "expected KEY = VALUE, [SECTION], or a comment", 2},
        {"[serve\nname = a\n", "expected KEY = VALUE, [SECTION], or a comment", 1},
        {"[serve]\nwhat\nname = a b\n", "expected KEY = VALUE", 2},
        {"[serve] name = a\n", "text after the section's name", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_file_refused(cases[i].config, cases[i].line, cases[i].text);
}

static void a_line_that_inih_would_cut_is_refused(void **state)
{
    char config[600];
    snprintf(config, sizeof config, "[serve]\nname = %0300d\n", 1);
    assert_file_refused(config, 2, "more than 197 characters");
    snprintf(config, sizeof config, "# %0300d\n[serve]\nlisten = x%.*s\n", 1, 300, "");
    write_config(config);
    settle(&serve_command);
    assert_string_equal(serve.listen, "x");
}

static void a_zero_byte_is_refused(void **state)
{
    write_config("");
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fwrite("[serve]\0\n", 1, 9, file);
    assert_int_equal(fclose(file), 0);
    begin(&serve_command);
    assert_refused(":1: the line has a zero byte");
}

static void blanks_a_byte_order_mark_and_comments_change_no_value(void **state)
{
    write_config("\xef\xbb\xbf[serve] ; comment\r\n\n  name=a\n\t listen = x ; y\n; z\n# z\n");
    settle(&serve_command);
    assert_string_equal(serve.name, "a");
    assert_string_equal(serve.listen, "x");
}

static void a_named_file_that_cannot_be_read_is_refused(void **state)
{
    begin(&serve_command);
    type("config", "/nowhere/gradpool.conf");
    assert_refused("/nowhere/gradpool.conf: cannot be read: ");
    type("config", folder);
    assert_refused("cannot be read: ");
}

static void an_unreadable_file_at_the_usual_path_is_refused(void **state)
{
    begin(&serve_command);
    layers.preset_file = folder;
    assert_refused("cannot be read: ");
}

static void a_file_that_others_may_write_is_refused(void **state)
{
    write_config("[serve]\n");
    assert_int_equal(chmod(path, 0664), 0);
    begin(&serve_command);
    assert_refused("with mode 664 other users can write the file");
    assert_int_equal(chmod(path, 0646), 0);
    assert_refused("then run chmod go-w");
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(layers_settle(&layers, &err), 0);
}

static void a_file_of_another_user_is_refused(void **state)
{
    write_config("[serve]\n");
    if (chown(path, 4711, 0) < 0)
        skip_because("only root may give a file away");
    begin(&serve_command);
    assert_refused("the file belongs to user 4711");
}

static void mistakes_of_other_sources_name_the_variable_or_the_option(void **state)
{
    (void)remove(path);
    setenv("GRADPOOL_EXPLORE", "yes", 1);
    begin(&serve_command);
    assert_refused("GRADPOOL_EXPLORE: 'yes': expected on, off or blind");
    unsetenv("GRADPOOL_EXPLORE");
    type("explore", "yes");
    assert_refused("--explore: 'yes'");
    begin(&aggregator_command);
    assert_refused("--join is required");
}

static void a_later_error_is_explained_by_the_origin_of_its_option(void **state)
{
    char text[PATH_MAX], expected[PATH_MAX];
    write_config("[serve]\ncores = 99\npolicy = best\n");
    settle(&serve_command);
    snprintf(expected, sizeof expected, "; --cores is set by %s:2", path);
    assert_string_equal(layers_explain(&layers, "core list \"99\": no", text, sizeof text),
                        expected);
    snprintf(expected, sizeof expected, "; --policy is set by %s:3", path);
    assert_string_equal(layers_explain(&layers, "--policy best: no", text, sizeof text), expected);
    assert_string_equal(layers_explain(&layers, "--policy-x y", text, sizeof text), "");
    assert_string_equal(layers_explain(&layers, "--listen x: no", text, sizeof text), "");
}

/* --- the printed configuration --- */

/* Returns the printed configuration. Replaces the file at `path`. */
static char *print_config(void)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    layers_print(&layers, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void assert_same_values(const struct config_value *now, const struct config_value *before)
{
    for (int i = 0; i < KNOBS_MAX; i++) {
        bool was_set = before[i].origin > CONFIG_PRESET;
        assert_int_equal(now[i].origin == CONFIG_FILE, was_set);
        if (was_set)
            assert_string_equal(now[i].text, before[i].text);
    }
}

static void a_printed_configuration_gives_the_same_values(void **state)
{
    static struct layers before;
    write_config(
        "[serve]\nname = a\nloss-limit = 2.5%\ninsecure = on\n[aggregator]\nkernels = c\n");
    setenv("GRADPOOL_SCALE_HOLD", "32", 1);
    begin(&serve_command);
    type("require-tls", "1");
    type("state-dir", "/srv/a;b");
    assert_int_equal(layers_settle(&layers, &err), 0);
    unsetenv("GRADPOOL_SCALE_HOLD");
    unsetenv("GRADPOOL_KERNELS");
    struct cli_serve serve_before = serve;
    before = layers;
    char *text = print_config();
    assert_non_null(strstr(text, "\nscale-hold = 32 ; GRADPOOL_SCALE_HOLD\n"));
    assert_non_null(strstr(text, "\nstate-dir = /srv/a;b ; --state-dir\n"));
    assert_non_null(strstr(text, "\n#stop = auto ; default\n"));
    assert_non_null(strstr(text, "gradpool.conf:2\n"));
    write_config(text);
    free(text);
    settle(&serve_command);
    unsetenv("GRADPOOL_KERNELS");
    assert_same_values(layers.own, before.own);
    assert_string_equal(layers.other[knobs_find(aggregator_knobs, "kernels")].text, "c");
    assert_int_equal(serve.loss_limit_ppm, serve_before.loss_limit_ppm);
    assert_int_equal(serve.scale_hold_s, serve_before.scale_hold_s);
    assert_memory_equal(&serve.limits, &serve_before.limits, sizeof serve.limits);
}

static void each_default_is_a_value_of_the_file(void **state)
{
    (void)remove(path);
    settle(&serve_command);
    char *text = print_config();
    for (char *line = text; (line = strstr(line, "\n#")); line++) {
        size_t length = strcspn(line + 1, "\n");
        if (length > 10 && strncmp(line + 1 + length - 10, " ; default", 10) == 0)
            line[1] = ' ';
    }
    write_config(text);
    free(text);
    settle(&serve_command);
    assert_int_equal(layers.own[knobs_find(serve_knobs, "scale-hold")].origin, CONFIG_FILE);
}

static void secrets_are_not_printed(void **state)
{
    (void)remove(path);
    setenv("GRADPOOL_GRANT", "open-sesame", 1);
    settle(&aggregator_command);
    unsetenv("GRADPOOL_GRANT");
    assert_string_equal(aggregator.grant, "open-sesame");
    char *text = print_config();
    assert_null(strstr(text, "open-sesame"));
    assert_non_null(strstr(text, "#grant ; a secret, which is not printed"));
    free(text);
}

static void a_value_that_no_line_can_hold_is_a_comment(void **state)
{
    static const char *const bad[] = {"a ;b", " a", "a ", "a\nlisten = x", ";a"};
    (void)remove(path);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(&serve_command);
        type("state-dir", bad[i]);
        assert_int_equal(layers_settle(&layers, &err), 0);
        char *text = print_config();
        assert_non_null(strstr(text, "(no line of a file can hold this value of --state-dir)"));
        write_config(text);
        free(text);
        settle(&serve_command);
        assert_int_not_equal(layers.own[knobs_find(serve_knobs, "state-dir")].origin, CONFIG_FILE);
        (void)remove(path);
    }
}

static void the_committed_page_is_the_printed_one(void **state)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes), *page = fopen(page_path, "re");
    assert_non_null(out);
    assert_non_null(page);
    options_page(out);
    assert_int_equal(fclose(out), 0);
    char *committed = calloc(1, bytes + 2);
    assert_non_null(committed);
    size_t read = fread(committed, 1, bytes + 1, page);
    fclose(page);
    if (read != bytes || memcmp(text, committed, bytes) != 0)
        fail_msg("svc/OPTIONS.md is not the page of the options tables; write it with: "
                 "build/gradpool help --options-page > svc/OPTIONS.md");
    free(committed);
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_command_line_precedes_the_variable_then_the_file_then_the_default),
        cmocka_unit_test(a_variable_of_0_turns_off_a_flag_of_the_file),
        cmocka_unit_test(an_empty_variable_is_no_value),
        cmocka_unit_test(the_named_file_is_read_in_place_of_the_usual_one),
        cmocka_unit_test(dev_null_is_no_file),
        cmocka_unit_test(each_command_reads_its_section_and_checks_both),
        cmocka_unit_test(an_aggregator_with_a_grant_reads_no_file_unless_it_is_named),
        cmocka_unit_test(serve_hands_three_values_to_local_aggregators_unless_a_variable_is_set),
        cmocka_unit_test(defaults_are_those_of_the_limits_table),
        cmocka_unit_test(a_mistake_of_the_file_names_its_line_and_the_remedy),
        cmocka_unit_test(a_line_that_inih_would_cut_is_refused),
        cmocka_unit_test(a_zero_byte_is_refused),
        cmocka_unit_test(blanks_a_byte_order_mark_and_comments_change_no_value),
        cmocka_unit_test(a_named_file_that_cannot_be_read_is_refused),
        cmocka_unit_test(an_unreadable_file_at_the_usual_path_is_refused),
        cmocka_unit_test(a_file_that_others_may_write_is_refused),
        cmocka_unit_test(a_file_of_another_user_is_refused),
        cmocka_unit_test(mistakes_of_other_sources_name_the_variable_or_the_option),
        cmocka_unit_test(a_later_error_is_explained_by_the_origin_of_its_option),
        cmocka_unit_test(a_printed_configuration_gives_the_same_values),
        cmocka_unit_test(each_default_is_a_value_of_the_file),
        cmocka_unit_test(secrets_are_not_printed),
        cmocka_unit_test(a_value_that_no_line_can_hold_is_a_comment),
        cmocka_unit_test(the_committed_page_is_the_printed_one),
    };
    if (argc < 2)
        return 2;
    page_path = argv[1];
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
