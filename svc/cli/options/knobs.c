/* Options from the environment, then from the command line (argp). */
#include "svc/cli/options/knobs.h"

#include "svc/base/text.h"
#include "svc/cli/cli.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_FIRST 256 /* no short options */

struct parse {
    const struct knob_command *command;
    void *options;
};

int knobs_mistake(const char *command, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry `%s --help' for more information.\n", command);
    return CLI_USAGE;
}

const char *knobs_variable(const char *name, char *buffer, size_t buffer_bytes)
{
    snprintf(buffer, buffer_bytes, "GRADPOOL_%s", name);
    for (char *c = buffer; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return buffer;
}

int knobs_number(const char *value, unsigned long long least, unsigned long long most,
                 unsigned long long *ret_value, struct err *err)
{
    uint64_t number;
    if (text_parse_u64(value, least, most, &number) < 0)
        return err_set(err, -EINVAL, "'%.64s': expected a whole number from %llu to %llu", value,
                       least, most);
    *ret_value = number;
    return 0;
}

/* Digit by digit: strtod() would take "nan", "0x1" and the comma of a locale. `unit`, a power of
 * ten, is what 1 is worth; what lies behind its last place is not read. Returns where the number
 * ends: at `value` when it has none. */
static const char *read_decimal(const char *value, uint64_t unit, uint64_t most, uint64_t *ret_sum)
{
    uint64_t sum = 0, weight = unit;
    const char *at = value;
    for (; isdigit((unsigned char)*at) && sum <= most; at++)
        sum = sum * 10 + (uint64_t)(*at - '0') * unit;
    if (at > value && *at == '.')
        for (at++; isdigit((unsigned char)*at) && weight > 1; at++)
            sum += (uint64_t)(*at - '0') * (weight /= 10);
    *ret_sum = sum;
    return at;
}

int knobs_percent(const char *value, uint32_t *ret_ppm, struct err *err)
{
    uint64_t ppm;
    const char *at = read_decimal(value, 10000, LOSS_LIMIT_PPM_MAX, &ppm);
    bool has_digits = at > value;
    at += *at == '%';
    if (!has_digits || *at || ppm < 1 || ppm > LOSS_LIMIT_PPM_MAX)
        return err_set(
            err, -EINVAL,
            "'%.64s': expected percent, such as 5%% or 2.5, with up to four digits behind "
            "the point: above 0, at most %g",
            value, LOSS_LIMIT_PPM_MAX / 1e4);
    *ret_ppm = (uint32_t)ppm;
    return 0;
}

int knobs_seconds(const char *value, uint64_t most_s, uint64_t *ret_ms, struct err *err)
{
    const uint64_t second_ms = 1000;
    uint64_t ms;
    const char *at = read_decimal(value, second_ms, most_s * second_ms, &ms);
    if (at == value || *at || ms > most_s * second_ms)
        return err_set(
            err, -EINVAL,
            "'%.64s': expected seconds, such as 2 or 1.5, with up to three digits behind "
            "the point, at most %" PRIu64,
            value, most_s);
    *ret_ms = ms;
    return 0;
}

/* A flag's variable is on for 1, off for 0 or nothing. */
static int set_from_environment(const struct parse *parse, int index, const char *value,
                                struct err *err)
{
    if (parse->command->knobs[index].argument)
        return parse->command->set(parse->options, index, value, err);
    if (strcmp(value, "1") == 0)
        return parse->command->set(parse->options, index, NULL, err);
    return strcmp(value, "0") == 0 ? 0 : err_set(err, -EINVAL, "'%.64s': expected 0 or 1", value);
}

static bool has_variable(const struct knob_command *command, const struct knob *knob)
{
    return knob->source == KNOB_VARIABLE ||
           (knob->source == KNOB_AS_COMMAND && command->reads_variables);
}

static void parse_environment(const struct parse *parse)
{
    for (int i = 0; parse->command->knobs[i].name; i++) {
        char variable[64];
        struct err err;
        if (!has_variable(parse->command, &parse->command->knobs[i]))
            continue;
        const char *value =
            getenv(knobs_variable(parse->command->knobs[i].name, variable, sizeof variable));
        if (!value || !*value || set_from_environment(parse, i, value, &err) == 0)
            continue;
        fprintf(stderr, "%s: %s: %s\n", parse->command->name, variable, err.text);
        exit(CLI_USAGE);
    }
}

static error_t handle(int key, char *value, struct argp_state *state)
{
    const struct parse *parse = state->input;
    const struct knob_command *command = parse->command;
    struct err err;
    if (key >= KEY_FIRST && key < KEY_FIRST + KNOBS_MAX) { /* argp's own keys lie beyond */
        if (command->set(parse->options, key - KEY_FIRST, value, &err) < 0)
            argp_error(state, "--%s: %s", command->knobs[key - KEY_FIRST].name, err.text);
        return 0;
    }
    if (key == ARGP_KEY_ARG && command->program) {
        command->program(parse->options, state->argv + state->next - 1);
        state->next = state->argc;
        return 0;
    }
    if (key == ARGP_KEY_ARG && command->operand) {
        if (command->operand(parse->options, value, &err) < 0)
            argp_error(state, "%s", err.text);
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        argp_error(state, "'%s' is too much: no operands are expected", value);
    return ARGP_ERR_UNKNOWN;
}

static void describe(const struct knob_command *command, struct argp_option *options,
                     char help[][512])
{
    for (int i = 0; command->knobs[i].name; i++) {
        char variable[64];
        knobs_variable(command->knobs[i].name, variable, sizeof variable);
        bool is_read = has_variable(command, &command->knobs[i]);
        snprintf(help[i], sizeof help[i], "%s%s%s%s", command->knobs[i].help, is_read ? " [" : "",
                 is_read ? variable : "", is_read ? "]" : "");
        options[i] = (struct argp_option){.name = command->knobs[i].name,
                                          .key = KEY_FIRST + i,
                                          .arg = command->knobs[i].argument,
                                          .doc = help[i]};
    }
}

void knobs_parse(const struct knob_command *command, int argc, char **argv, void *options)
{
    struct argp_option described[KNOBS_MAX + 1] = {{0}};
    static char help[KNOBS_MAX][512];
    char text[4096];
    struct parse parse = {command, options};
    describe(command, described, help);
    snprintf(text, sizeof text, "%s\v%s", command->before, command->after);
    struct argp argp = {
        .options = described, .parser = handle, .args_doc = command->operands, .doc = text};
    argp_err_exit_status = CLI_USAGE;
    argv[0] = (char *)command->name;
    parse_environment(&parse);
    argp_parse(&argp, argc, argv, command->program ? ARGP_IN_ORDER : 0, NULL, &parse);
}
