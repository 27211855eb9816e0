/* Parses the options of commands that measure part by part. Owns no state. */
#include "bench/lib/parts.h"

#include "bench/commands.h"
#include "svc/base/text.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 256

enum { KEY_QUICK = 1000, KEY_JSON, KEY_PART, KEY_SEED };

struct parts_input {
    const struct parts_command *command;
    struct parts_options *options;
    char names[TEXT_BYTES]; /* such as "border, svrg or batch" */
};

static void parts_write_names(const struct parts_command *command, char *text)
{
    *text = '\0';
    for (size_t i = 0; i < command->count; i++)
        text_append(text, TEXT_BYTES, "%s%s",
                    i == 0                    ? ""
                    : i + 1 == command->count ? " or "
                                              : ", ",
                    command->names[i]);
}

static size_t parts_find(struct argp_state *state, const char *name)
{
    const struct parts_input *input = state->input;
    for (size_t i = 0; i < input->command->count; i++)
        if (strcmp(input->command->names[i], name) == 0)
            return i;
    argp_error(state, "--part: %s, not '%s'", input->names, name);
    return PARTS_ALL;
}

static error_t parts_option(int key, char *argument, struct argp_state *state)
{
    struct parts_options *options = ((struct parts_input *)state->input)->options;
    switch (key) {
    case KEY_QUICK: options->is_quick = true; return 0;
    case KEY_JSON: options->is_json = true; return 0;
    case KEY_SEED: options->seed = command_number(state, argument, 0, UINT32_MAX); return 0;
    case KEY_PART: options->part = parts_find(state, argument); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

void parts_parse(const struct parts_command *command, int argc, char **argv,
                 struct parts_options *ret_options)
{
    struct parts_input input = {.command = command, .options = ret_options};
    char quick[TEXT_BYTES], part[TEXT_BYTES + 64], seed[TEXT_BYTES];
    const struct argp_option options[] = {
        {"quick", KEY_QUICK, 0, 0, quick},
        {"json", KEY_JSON, 0, 0, "a line of JSON for each figure"},
        {"part", KEY_PART, "NAME", 0, part},
        {"seed", KEY_SEED, "N", 0, seed},
        {0},
    };
    const struct argp argp = {options, parts_option, NULL, command->about, NULL, NULL, NULL};
    parts_write_names(command, input.names);
    snprintf(quick, sizeof quick, "few %s; the bars are those of a whole run", command->quick);
    snprintf(part, sizeof part, "only this part: %s (default: all)", input.names);
    snprintf(seed, sizeof seed, "seed of %s (default 1)", command->seed);
    *ret_options = (struct parts_options){.seed = 1, .part = PARTS_ALL};
    argp_parse(&argp, argc, argv, 0, NULL, &input);
}
