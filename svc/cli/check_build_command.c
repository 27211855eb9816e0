/* gradpool --check-build: what this program was built with, and what of that is here. */
#include "svc/cli/cli.h"
#include "svc/cli/knobs.h"

enum { JSON };

const struct knob check_build_knobs[] = {
    [JSON] = {"json", NULL, "print JSON instead of tables (default: off)"},
    {0},
};

static int set(void *is_json, int index, const char *value, struct err *err)
{
    *(bool *)is_json = true;
    return 0;
}

int cli_check_build(int argc, char **argv, const struct cli_machine *machine,
                    const struct cli_show *how)
{
    static const struct knob_command command = {
        .name = "gradpool check-build",
        .knobs = check_build_knobs,
        .set = set,
        .before = "Prints version, commit and compiler of this program, the libraries that it was "
                  "built against and those that it runs with, and which kernels and fabrics this "
                  "machine has.",
        .after = "Examples:\n  gradpool --check-build\n  gradpool check-build --json\n\nExit code: "
                 "0 printed; 1 failed; 2 a mistake on the command line."};
    bool is_json = false;
    knobs_parse(&command, argc, argv, &is_json);
    const struct view_build *build = machine->build();
    return (is_json ? how->build_json : how->build_text)(build, stdout) < 0 ? CLI_FAILED : CLI_OK;
}
