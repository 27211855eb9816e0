/* gradpool doctor: checks an installation for common faults, and prints advice. Changes nothing.
 * All checks are run, even after a failed one. */
#include "svc/cli/cli.h"
#include "svc/cli/doctor/doctor.h"
#include "svc/cli/operator.h"
#include "svc/cli/options/knobs.h"
#include "svc/ops/answer/answer.h"

const struct knob doctor_knobs[] = {
    [OPERATOR_ENDPOINT] = {"endpoint", "URL",
                           "service to check as well, with the key in GRADPOOL_KEY or "
                           "GRADPOOL_KEY_FILE (default: none)",
                           KNOB_VARIABLE},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of text (default: off)"},
    {0},
};

static int exit_code(const struct view_checks *checks)
{
    for (size_t i = 0; i < checks->count; i++)
        if (checks->list[i].verdict == VIEW_FAIL)
            return CLI_FAILED;
    return CLI_OK;
}

int cli_doctor(int argc, char **argv, const struct cli_machine *machine)
{
    static const struct knob_command command = {
        .name = "gradpool doctor",
        .knobs = doctor_knobs,
        .set = operator_set,
        .before = "Checks this host, its Python and a service for everything that gradpool "
                  "needs. Each warning and each failure is printed with advice.",
        .after = "Examples:\n"
                 "  gradpool doctor\n"
                 "  gradpool doctor --endpoint gradpool://node7:7077\n\n"
                 "Exit code: 0 no check has failed (a warning is no failure); 1 a check has "
                 "failed; 2 a mistake on the command line."};
    static struct view_checks checks;
    struct operator_options o = {0};
    knobs_parse(&command, argc, argv, &o);
    const struct view_build *build = machine->build();
    doctor_build(&checks, build);
    doctor_libraries(&checks, build);
    doctor_host(&checks);
    doctor_cores(&checks, machine);
    doctor_memory(&checks, "");
    doctor_fabrics(&checks);
    doctor_python(&checks, build->version);
    doctor_service(&checks, o.endpoint);
    int error = (o.json ? ops_checks_json : ops_checks_text)(&checks, stdout);
    return error < 0 ? CLI_FAILED : exit_code(&checks);
}
