/* Parses the command line with argp, and prints its help. */
#include "svc/cli/options/knobs.h"

#include "svc/base/text.h"
#include "svc/cli/cli.h"
#include "svc/cli/options/layers.h"

#include <argp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* argp also uses a key that is a character as short option, so keys begin above all characters */
#define KEY_FIRST 256
#define SECTIONS_MAX 8

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

/* Records the value of an option; a later value replaces it. An option that may be given several
 * times is stored in the options struct at each use. */
static void handle_knob(struct layers *l, int index, const char *value)
{
    struct err err;
    l->typed[index] = value ? value : "1";
    if (l->command->knobs[index].may_repeat &&
        knob_store(l->command, index, value, l->options, &err) < 0)
        exit(knobs_mistake(l->command->name, "--%s: %s", l->command->knobs[index].name, err.text));
}

static error_t handle(int key, char *value, struct argp_state *state)
{
    struct layers *layers = state->input;
    const struct knob_command *command = layers->command;
    struct err err;
    if (key >= KEY_FIRST && key < KEY_FIRST + KNOBS_MAX) { /* argp's own keys are greater */
        handle_knob(layers, key - KEY_FIRST, value);
        return 0;
    }
    if (key == ARGP_KEY_ARG && command->program) {
        command->program(layers->options, state->argv + state->next - 1);
        state->next = state->argc;
        return 0;
    }
    if (key == ARGP_KEY_ARG && command->operand) {
        if (command->operand(layers->options, value, &err) < 0)
            argp_error(state, "%s", err.text);
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        argp_error(state, "'%s': one argument too many; this command takes options and no operand",
                   value);
    return ARGP_ERR_UNKNOWN;
}

/* Writes the help of a knob: without backticks, with the default and the variable. */
static void describe_knob(const struct knob_command *command, const struct knob *knob, char *text,
                          size_t text_bytes)
{
    char preset[128] = "", variable[64];
    knobs_show_preset(knob, preset, sizeof preset);
    const char *prefix = command->sections ? command->sections[knob->section].prefix : NULL;
    snprintf(text, text_bytes, "%s%s", prefix ? prefix : "", knob->help);
    if (*preset)
        text_append(text, text_bytes, " (default: %s)", preset);
    if (knobs_has_variable(command, knob))
        text_append(text, text_bytes, " [%s]",
                    knobs_variable(knob->name, variable, sizeof variable));
    if (command->sections)
        knobs_unmark(text);
}

static void describe(const struct knob_command *command, struct argp_option *options,
                     char help[][512])
{
    int count = 0;
    for (; command->knobs[count].name; count++) {
        const struct knob *knob = &command->knobs[count];
        describe_knob(command, knob, help[count], 512);
        options[count] = (struct argp_option){.name = knob->name,
                                              .key = KEY_FIRST + count,
                                              .arg = knob->argument,
                                              .doc = help[count],
                                              .group = command->sections ? knob->section + 1 : 0};
    }
    for (int i = 0; i < command->sections_count; i++)
        if (command->sections[i].title)
            options[count++] =
                (struct argp_option){.doc = command->sections[i].title, .group = i + 1};
}

static struct layers layers; /* option values of the one command that this process runs */

static void knobs_parse_line(const struct knob_command *command, int argc, char **argv)
{
    struct argp_option described[KNOBS_MAX + SECTIONS_MAX + 1] = {{0}};
    static char help[KNOBS_MAX][512];
    char text[4096];
    describe(command, described, help);
    snprintf(text, sizeof text, "%s\v%s", command->before, command->after);
    struct argp argp = {
        .options = described, .parser = handle, .args_doc = command->operands, .doc = text};
    argp_err_exit_status = CLI_USAGE;
    argv[0] = (char *)command->name;
    argp_parse(&argp, argc, argv, command->program ? ARGP_IN_ORDER : 0, NULL, &layers);
}

void knobs_parse(const struct knob_command *command, int argc, char **argv, void *options)
{
    struct err err;
    layers =
        (struct layers){.command = command, .options = options, .preset_file = CONFIG_FILE_PRESET};
    knobs_parse_line(command, argc, argv);
    if (layers_settle(&layers, &err) < 0)
        exit(knobs_mistake(command->name, "%s", err.text));
    int print = command->part ? knobs_find(command->knobs, "print-config") : -1;
    if (print < 0 || !layers.typed[print])
        return;
    layers_print(&layers, stdout);
    exit(CLI_OK);
}

const char *cli_config_file(void) { return layers.file; }

const char *cli_explain_options(const char *text, char *buffer, size_t buffer_bytes)
{
    return layers_explain(&layers, text, buffer, buffer_bytes);
}
