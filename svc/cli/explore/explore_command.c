/* gradpool explore: runs the script of a study. The Python module gradpool.explore carries it out;
 * this file has the options. */
#include "svc/cli/cli.h"
#include "svc/cli/explore/explore.h"
#include "svc/cli/run/run.h"
#include "svc/endpoint/endpoint.h"
#include "svc/pool/preload/preload.h"

#include <errno.h>
#include <string.h>

#define SLOTS_MAX 65536
#define RESTING_MOST 65536
#define WORDS_MAX 255 /* the script and its arguments */

enum { SLOTS, FOLDER, RESUME, PRELOAD, REST, RESTING_MAX, SITE, ENGINE, SLURM, ENDPOINT };

const struct knob explore_knobs[] = {
    [SLOTS] = {"slots", "N",
               "start a service for this study on this host, with slots for N workers; it ends "
               "with the study (default: the service of --endpoint)"},
    [FOLDER] = {"folder", "DIR", "folder of the results (default: gradpool-STUDY)"},
    [RESUME] = {"resume", "DIR", "continue the study of this folder, with its script and options"},
    [PRELOAD] = {"preload", "MODULE,...",
                 "import these Python modules once, and fork the workers of all trials (default: "
                 "none)"},
    [REST] = {"rest", "HOW",
              "workers of a trial that rests sleep and keep their memory (sleep), or store their "
              "state and end (exit) (default: sleep)"},
    [RESTING_MAX] = {"resting-max", "N",
                     "trials that may sleep at the same time; the workers of further ones store "
                     "their state and end, as with --rest exit (default: 64)"},
    [SITE] = {"site", "NAME",
              "site of the service whose slots the trials use (default: this host)"},
    [ENGINE] = {"engine", "NAME",
                "workers are processes of this host (local), or run on nodes of Slurm (slurm), as "
                "with gradpool run (default: local)"},
    [SLURM] = {"slurm", "OPTION",
               "with --engine slurm: an option for srun or sbatch, such as "
               "--slurm=--cpus-per-task=4; may be given again",
               .may_repeat = true},
    [ENDPOINT] = {"endpoint", "URL", "the service (default: gradpool://127.0.0.1:7077)",
                  KNOB_VARIABLE},
    {0},
};

struct explore_wish {
    const char *values[ENDPOINT + 1]; /* by option; NULL: not set */
    struct run_engine engine;
    char *words[WORDS_MAX + 1]; /* the script and its arguments; the list ends with NULL */
    size_t count;
};

static int explore_check_rest(const char *value, struct err *err)
{
    if (strcmp(value, "sleep") == 0 || strcmp(value, "exit") == 0)
        return 0;
    return err_set(err, -EINVAL, "'%.64s' is no way to rest; give sleep or exit", value);
}

static int explore_set(void *context, int index, const char *value, struct err *err)
{
    struct explore_wish *e = context;
    struct endpoint endpoint;
    unsigned long long number;
    int error = index == SLOTS         ? knobs_number(value, 1, SLOTS_MAX, &number, err)
                : index == RESTING_MAX ? knobs_number(value, 0, RESTING_MOST, &number, err)
                : index == REST        ? explore_check_rest(value, err)
                : index == ENDPOINT    ? endpoint_parse(value, &endpoint, err)
                : index == ENGINE      ? engine_set(&e->engine, value, err)
                : index == SLURM       ? engine_add_slurm(&e->engine, value, err)
                                       : 0;
    if (error == 0)
        e->values[index] = value;
    return error;
}

static int explore_set_word(void *context, const char *value, struct err *err)
{
    struct explore_wish *e = context;
    if (e->count == WORDS_MAX)
        return err_set(err, -E2BIG, "'%.64s': a script has at most %d arguments", value,
                       WORDS_MAX - 1);
    e->words[e->count++] = (char *)value;
    return 0;
}

static void explore_parse(int argc, char **argv, struct explore_wish *ret_explore)
{
    static const struct knob_command command = {
        .name = "gradpool explore",
        .operands = "SCRIPT [-- ARGUMENT...]",
        .knobs = explore_knobs,
        .set = explore_set,
        .operand = explore_set_word,
        .before = "Runs a study: a Python script that makes a gradpool.explore.Study, with one "
                  "trial for each configuration. Each trial trains as a job whose number of "
                  "workers the service chooses. A rule ends trials that are not good enough. "
                  "Results are in the folder: study.db, trials.csv, trials.json, and the logs of "
                  "trial 7 in 0007.",
        .after = "Examples:\n"
                 "  gradpool explore sweep.py --slots 8\n"
                 "  gradpool explore --resume gradpool-digits\n\n"
                 "Ctrl-C ends all trials; --resume continues the study, also after it was killed. "
                 "`gradpool trials' shows the trials.\n\n"
                 "Exit code: 0 all trials have ended; 1 failed; 2 a mistake on the command line; "
                 "130 Ctrl-C or SIGTERM."};
    *ret_explore = (struct explore_wish){0};
    knobs_parse(&command, argc, argv, ret_explore);
}

static const char *explore_find_mistake(const struct explore_wish *e)
{
    const char *const *values = e->values;
    if (values[RESUME] &&
        (e->count || values[SLOTS] || values[FOLDER] || values[SITE] || values[PRELOAD] ||
         values[ENGINE] || values[SLURM] || values[REST] || values[RESTING_MAX]))
        return "--resume continues with the script and options of the folder: leave out the rest";
    if (!values[RESUME] && !e->count)
        return "missing: SCRIPT";
    if (values[REST] && strcmp(values[REST], "exit") == 0 && values[RESTING_MAX])
        return "--rest exit lets no trial sleep, and --resting-max is a number of trials that "
               "sleep: leave out one of them";
    if (values[PRELOAD] && preload_find_mistake(values[PRELOAD], NULL))
        return preload_find_mistake(values[PRELOAD], NULL);
    if (engine_find_mistake(&e->engine, values[PRELOAD]))
        return engine_find_mistake(&e->engine, values[PRELOAD]);
    if (values[SLOTS] && engine_is_slurm(&e->engine))
        return "--slots starts a service that other nodes do not reach: give --endpoint in place "
               "of --slots, or leave out --engine slurm";
    if (values[SLOTS] && values[ENDPOINT])
        return "--slots starts a service for this study, and --endpoint or GRADPOOL_ENDPOINT names "
               "another one: leave out one of them";
    return NULL;
}

int cli_explore(int argc, char **argv)
{
    struct explore_wish e;
    explore_parse(argc, argv, &e);
    const char *mistake = explore_find_mistake(&e);
    if (mistake)
        return knobs_mistake("gradpool explore", "%s", mistake);
    struct python_words words = {0};
    python_add(&words, NULL, "explore");
    python_add(&words, "--slots", e.values[SLOTS]);
    python_add(&words, "--folder", e.values[FOLDER]);
    python_add(&words, "--resume", e.values[RESUME]);
    python_add(&words, "--preload", e.values[PRELOAD]);
    python_add(&words, "--rest", e.values[REST]);
    python_add(&words, "--resting-max", e.values[RESTING_MAX]);
    python_add(&words, "--site", e.values[SITE]);
    python_add(&words, "--endpoint", e.values[ENDPOINT]);
    python_add(&words, "--engine", e.engine.name);
    for (char **option = e.engine.slurm; *option; option++)
        python_add_joined(&words, "--slurm", *option);
    return python_run("gradpool explore", &words, e.words);
}
