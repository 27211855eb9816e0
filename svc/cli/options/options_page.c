/* Prints svc/OPTIONS.md: the options of `serve` and `aggregator` as tables. */
#include "svc/cli/options/options.h"

#include "svc/cli/options/config.h"

static const char page_head[] =
    "# Options of `serve` and `aggregator`\n"
    "\n"
    "`gradpool help serve` and `gradpool help aggregator` print the same options. Each option is "
    "also an\n"
    "environment variable (`--state-dir` is `GRADPOOL_STATE_DIR`) and a key of the [configuration\n"
    "file](#configuration-file). The command line takes precedence over the variable, and the "
    "variable\n"
    "over the file. `--insecure` and `--operators` have no variable. Sizes of limits take the "
    "suffixes\n"
    "`K`, `M`, `G` and `T`.\n";

static const char page_file[] =
    "\n"
    "## Configuration file\n"
    "\n"
    "`serve` and `aggregator` read `--config FILE`, else `" CONFIG_FILE_PRESET "` if that file\n"
    "exists. `--config /dev/null` reads no file. `--print-config` prints each value with its "
    "origin, in\n"
    "the syntax of the file, and ends; defaults are comments.\n"
    "\n"
    "```ini\n"
    "[serve]\n"
    "listen = gradpool://0.0.0.0:7077\n"
    "require-tls = on                    ; a flag is on or off\n"
    "\n"
    "[aggregator]\n"
    "kernels = avx2\n"
    "```\n"
    "\n"
    "- A comment begins with `#` or `;` on a line of its own, or with `;` behind a blank. A line "
    "has at\n"
    "  most 197 characters.\n"
    "- A mistake anywhere in the file ends the start with the line and the reason: an unknown "
    "section or\n"
    "  key, a second value, a wrong value, no value.\n"
    "- The file belongs to root or to the user of the process, and nobody else may write the "
    "file.\n"
    "- `grant` is a secret, and is not a key of the file. `insecure` and `operators` are keys.\n"
    "- Other commands read no file: give `--state-dir` to `stop` and `tenant`.\n"
    "\n"
    "Local aggregators read no file. `kernels`, `lane-policy` and `provider` of `[aggregator]` "
    "reach them\n"
    "through `serve`, and so do `GRADPOOL_KERNELS`, `GRADPOOL_LANE_POLICY` and "
    "`GRADPOOL_PROVIDER` in the\n"
    "environment of `serve`, which take precedence. All other values of local aggregators are "
    "those of\n"
    "`[serve]`.\n";

static void page_row(const struct knob *knob, FILE *out)
{
    char preset[128] = "";
    knobs_show_preset(knob, preset, sizeof preset);
    fprintf(out, "| `--%s` | %s | %s |\n", knob->name, preset, knob->help);
}

static void page_section(const struct knob_command *command, int index, FILE *out)
{
    const struct knob_section *section = &command->sections[index];
    if (section->title)
        fprintf(out, "\n## %s (`%s`)\n\n", section->title, command->part);
    else
        fprintf(out, "\n## Options of `%s`\n\n", command->part);
    if (section->intro)
        fprintf(out, "%s\n\n", section->intro);
    fprintf(out, "| option | default | %s |\n|---|---|---|\n",
            section->column ? section->column : "meaning");
    for (const struct knob *knob = command->knobs; knob->name; knob++)
        if (knob->section == index && knob->source != KNOB_LINE)
            page_row(knob, out);
}

/* Returns whether the section has a table. There is none if all its knobs are KNOB_LINE. */
static bool page_has_table(const struct knob_command *command, int index)
{
    for (const struct knob *knob = command->knobs; knob->name; knob++)
        if (knob->section == index && knob->source != KNOB_LINE)
            return true;
    return false;
}

void options_page(FILE *out)
{
    const struct knob_command *const commands[] = {&serve_command, &aggregator_command};
    fputs(page_head, out);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < commands[c]->sections_count; i++)
            if (page_has_table(commands[c], i))
                page_section(commands[c], i, out);
    fputs(page_file, out);
}
