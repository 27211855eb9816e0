/* gradpool trials: shows the trials of a study, or ends one of them. The Python module
 * gradpool.explore carries it out; this file has the options. */
#include "svc/cli/cli.h"
#include "svc/cli/explore/explore.h"

#include <errno.h>
#include <string.h>

enum { JSON };

const struct knob trials_knobs[] = {
    [JSON] = {"json", NULL, "print JSON instead of a table"},
    {0},
};

struct trials_wish {
    bool is_json, is_kill;
    const char *number, *folder; /* NULL: not given */
};

static int trials_set(void *context, int index, const char *value, struct err *err)
{
    ((struct trials_wish *)context)->is_json = true;
    return 0;
}

static int trials_operand(void *context, const char *value, struct err *err)
{
    struct trials_wish *t = context;
    unsigned long long number;
    if (!t->is_kill && !t->folder && strcmp(value, "kill") == 0) {
        t->is_kill = true;
        return 0;
    }
    if (t->is_kill && !t->number) {
        t->number = value;
        return knobs_number(value, 1, UINT32_MAX, &number, err);
    }
    if (t->folder)
        return err_set(err, -EINVAL, "'%s': one argument too many; give one folder", value);
    t->folder = value;
    return 0;
}

static void trials_parse(int argc, char **argv, struct trials_wish *ret_trials)
{
    static const struct knob_command command = {
        .name = "gradpool trials",
        .operands = "[DIR] | kill N [DIR]",
        .knobs = trials_knobs,
        .set = trials_set,
        .operand = trials_operand,
        .before = "Shows the trials of a study: parameters, state, workers, step, metric, time to "
                  "the first report, and steps/s. kill ends trial N. Without DIR: the newest study "
                  "below this folder.",
        .after = "Examples:\n"
                 "  gradpool trials gradpool-digits --json\n"
                 "  gradpool trials kill 7\n\n"
                 "Exit code: 0 done; 1 failed; 2 a mistake on the command line; 3 no such study or "
                 "trial."};
    *ret_trials = (struct trials_wish){0};
    knobs_parse(&command, argc, argv, ret_trials);
}

int cli_trials(int argc, char **argv)
{
    struct trials_wish t;
    trials_parse(argc, argv, &t);
    if (t.is_kill && !t.number)
        return knobs_mistake("gradpool trials", "missing: the number of a trial, after kill");
    if (t.is_kill && t.is_json)
        return knobs_mistake("gradpool trials", "--json is for the list of trials, not for kill");
    struct python_words words = {0};
    python_add(&words, NULL, "trials");
    python_add(&words, NULL, t.is_json ? "--json" : NULL);
    python_add(&words, "--kill", t.number);
    python_add(&words, "--folder", t.folder);
    return python_run("gradpool trials", &words, NULL);
}
