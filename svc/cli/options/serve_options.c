/* Options of `gradpool serve`. */
#include "svc/cli/cli.h"
#include "svc/cli/options/config.h"
#include "svc/cli/options/knobs.h"
#include "svc/cli/options/lane_options.h"
#include "svc/cli/options/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLICY_DEFAULT "shared" /* equals the default of the coordinator */
#define COUNT_MAX 1000000
#define NAME_BYTES_MAX 64
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

enum { ACCESS, PROCESSES, PLACEMENT, LIMITS_SECTION, CONFIGURATION, SECTIONS };

/* --- values of several fields, or with a special syntax --- */

static int serve_read_name(void *field, const struct knob *knob, const char *value, struct err *err)
{
    size_t length = strspn(value, NAME_CHARACTERS);
    if (length == 0 || length > NAME_BYTES_MAX || value[length])
        return err_set(err, -EINVAL, "expected 1 to 64 letters, digits, '.', '_' and '-'");
    return knob_read_text(field, knob, value, err);
}

static int serve_read_scale(void *options, const struct knob *knob, const char *value,
                            struct err *err)
{
    struct cli_serve *o = options;
    const char *choice;
    int error = knob_read_choice(&choice, knob, value, err);
    if (error == 0)
        o->scales = o->names_scale = strcmp(value, "on") == 0;
    return error;
}

static int serve_read_explore(void *options, const struct knob *knob, const char *value,
                              struct err *err)
{
    struct cli_serve *o = options;
    const char *choice;
    int error = knob_read_choice(&choice, knob, value, err);
    if (error < 0)
        return error;
    o->explores = strcmp(value, "blind") == 0 ? CLI_EXPLORE_BLIND
                  : strcmp(value, "off") == 0 ? CLI_EXPLORE_OFF
                                              : CLI_EXPLORE_ON;
    return 0;
}

static int serve_read_stop(void *options, const struct knob *knob, const char *value,
                           struct err *err)
{
    struct cli_serve *o = options;
    const char *choice;
    int error = knob_read_choice(&choice, knob, value, err);
    if (error < 0)
        return error;
    o->ends_jobs = strcmp(value, "jobs") == 0;
    o->keeps_jobs = strcmp(value, "service") == 0;
    return 0;
}

static int serve_read_durability(void *field, const struct knob *knob, const char *value,
                                 struct err *err)
{
    const char *choice;
    int error = knob_read_choice(&choice, knob, value, err);
    if (error == 0)
        *(enum durability *)field = durability_find(value);
    return error;
}

/* Reads --aggregator-timeout. An explicit time also applies to local aggregators. */
static int serve_read_aggregator_timeout(void *options, const struct knob *knob, const char *value,
                                         struct err *err)
{
    struct cli_serve *o = options;
    int error = knob_read_seconds(&o->aggregator_timeout_ms, knob, value, err);
    if (error == 0)
        o->local_timeout_ms = 0;
    return error;
}

/* Reads a limit. The option's name is the name of the limit and "-max". */
static int serve_read_limit(void *limits, const struct knob *knob, const char *value,
                            struct err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(knob->name) - strlen("-max")), knob->name);
    return limits_set(limits, limit_find(name), value, err);
}

/* --- the table --- */

/* clang-format off */
#define OF(field) KNOB_FIELD(struct cli_serve, field)
#define LIMIT_KNOB(id, name, what, default_text, ...)                                            \
    {name "-max", "N", what, .section = LIMITS_SECTION, .preset = default_text,          \
     .read = serve_read_limit, OF(limits)},

const struct knob serve_knobs[] = {
    {"listen", "URL", "address of control connections; port 0: a free port", .section = ACCESS,
     .preset = "gradpool://127.0.0.1:7077", .read = knob_read_text, OF(listen)},
    LANE_ADVERTISE(struct cli_serve, ACCESS),
    LANE_INTERFACE(struct cli_serve, ACCESS, "control and data", "any"),
    {"state-dir", "DIR", "folder of the state and the control socket; a path of at most 94 bytes",
     .section = ACCESS,
     .shown = "`$XDG_STATE_HOME/gradpool`, else `~/.local/state/gradpool`",
     .find_preset = cli_state_dir_default, .read = knob_read_text, OF(state_dir)},
    {"operators", "GROUP", "group with access to the control socket", KNOB_TYPED, ACCESS,
     .shown = "none", .read = knob_read_text, OF(operators)},
    {"insecure", NULL, "jobs of other hosts need no key, and use plain TCP", KNOB_TYPED, ACCESS,
     .preset = "off", .shown = "off", .read = knob_read_flag, OF(insecure)},
    {"require-tls", NULL, "loopback needs a key, too", .section = ACCESS, .preset = "off",
     .shown = "off", .read = knob_read_flag, OF(require_tls)},
    {"name", "NAME", "name of the service: only aggregators with this `--service` may join",
     .section = ACCESS, .shown = "none", .read = serve_read_name, OF(name)},
    {"http", "ADDRESS:PORT",
     "`ADDRESS:PORT` of `/metrics`, `/report`, `/report.json` and `/healthz`; no key",
     .section = ACCESS, .shown = "off", .read = knob_read_text, OF(http)},
    LANE_ALLOW_UID(struct cli_serve, ACCESS),

    {"aggregators", "N", "maximum number of local aggregator processes; 0: none",
     .section = PROCESSES, .preset = "1", .most = 256, .read = knob_read_number, OF(aggregators)},
    {"aggregators-min", "N", "minimum number of local aggregators, whatever the load",
     .section = PROCESSES, .preset = "1", .least = 1, .most = COUNT_MAX,
     .read = knob_read_number, OF(aggregators_min)},
    LANE_CORES(struct cli_serve, PROCESSES),
    LANE_PER_CORE(struct cli_serve, PROCESSES),
    LANE_DATA_PORT(struct cli_serve, PROCESSES),
    {"worker-slots", "SITE=N",
     "slots of each site for workers of pools: `SITE=N`, or `SITE=N,SITE=N`",
     .section = PROCESSES, .shown = "none", .read = knob_read_text, OF(worker_slots)},
    LANE_NETWORK_GBIT(struct cli_serve, PROCESSES),
    {"stop", "auto|service|jobs",
     "SIGTERM: `service` keeps jobs for the next start, `jobs` ends them; `auto`: `service` if "
     "aggregators can outlive `serve`",
     .section = PROCESSES, .preset = "auto", .read = serve_read_stop},
    LANE_ORPHAN_TIMEOUT(struct cli_serve, PROCESSES, "600",
                        "time until local aggregators without a coordinator end; 60 s without "
                        "workers; 0: never"),
    LANE_LEAVE_TIMEOUT(struct cli_serve, PROCESSES),
    {"aggregator-timeout", "SECONDS", "silence after which an aggregator is lost; 0: never",
     .section = PROCESSES, .shown = "1.5 s, local 10 s", .most = 86400,
     .read = serve_read_aggregator_timeout},
    /* The kernel probes a connection once a second. A single lost probe must not make a worker
     * lost. */
    {"worker-timeout", "SECONDS",
     "silence of a remote worker's host after which the worker is lost; 0 or at least 2",
     .section = PROCESSES, .preset = "2", .unit = "s", .least = 2, .most = 3600,
     .read = knob_read_seconds, OF(worker_timeout_ms)},

    {"policy", "NAME", "choice of lanes for tasks: `shared`, `least-loaded` or `dedicated`",
     .section = PLACEMENT, .preset = POLICY_DEFAULT, .read = knob_read_text, OF(policy)},
    {"loss-limit", "PERCENT",
     "slow-down by sharing that a job accepts; if set, a job beyond the limit on every lane is "
     "refused",
     .section = PLACEMENT, .shown = "5 %", .read = knob_read_percent, OF(loss_limit_ppm)},
    {"durability", "replica|worker|none",
     "copies of parameters and moments: `replica`, `worker`, `none`", .section = PLACEMENT,
     .preset = "none", .read = serve_read_durability, OF(durability)},
    {"scale", "on|off",
     "with the load, lanes open and close, and aggregators start and end; always off with a "
     "policy that has no loss limit",
     .section = PLACEMENT, .shown = "`on`", .read = serve_read_scale},
    {"scale-hold", "SECONDS",
     "time of low load until a lane is emptied; unused lanes close after 1/3 of it, unused "
     "aggregators end after 10 times",
     .section = PLACEMENT, .preset = "30", .unit = "s", .least = 1, .most = 86400,
     .read = knob_read_number, OF(scale_hold_s)},
    {"order-hold", "SECONDS", "time after `move` in which growth does not move the job; 0: none",
     .section = PLACEMENT, .preset = "600", .unit = "s", .most = 86400, .read = knob_read_number,
     OF(order_hold_s)},
    {"lanes-min", "N", "minimum number of open lanes", .section = PLACEMENT, .shown = "1",
     .least = 1, .most = COUNT_MAX, .read = knob_read_number, OF(lanes_min)},
    {"lanes-max", "N", "maximum number of open lanes", .section = PLACEMENT, .shown = "all",
     .least = 1, .most = COUNT_MAX, .read = knob_read_number, OF(lanes_max)},
    {"lanes-spare", "N", "open lanes that are kept without a job, for the next job",
     .section = PLACEMENT, .preset = "0", .most = COUNT_MAX, .read = knob_read_number,
     OF(lanes_spare)},
    {"explore", "on|off|blind",
     "`on`: moves load from slow lanes, and undoes a move that did not shorten rounds; `blind`: "
     "undoes none, for comparison",
     .section = PLACEMENT, .preset = "off", .read = serve_read_explore},
    {"piece-max", "BYTES", "maximum bytes of a piece and of a task, 4096 to 4194304",
     .section = PLACEMENT, .shown = "4 MiB", .least = 4096, .most = 4194304,
     .read = knob_read_number, OF(piece_bytes_max)},

    LIMIT_TABLE(LIMIT_KNOB)
    CONFIG_KNOBS(CONFIGURATION),
    {0},
};
/* clang-format on */
_Static_assert(sizeof serve_knobs / sizeof *serve_knobs <= KNOBS_MAX + 1, "room for values");

static const struct knob_section serve_sections[SECTIONS] = {
    [ACCESS] = {"Addresses and access"},
    [PROCESSES] = {"Processes and cores"},
    [PLACEMENT] = {"Placement"},
    [LIMITS_SECTION] = {"Limits",
                        "A tenant may have its own value of each `--job-...` and `--tenant-...` "
                        "limit (`gradpool tenant\nset`).",
                        "limits", "most "},
    [CONFIGURATION] = {"Configuration"},
};

/* --- the command --- */

const char *cli_state_dir_default(char *buffer, size_t buffer_bytes)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/')
        snprintf(buffer, buffer_bytes, "%s/gradpool", state);
    else
        snprintf(buffer, buffer_bytes, "%s/.local/state/gradpool", home && *home ? home : "/tmp");
    return buffer;
}

static void list_policies(const char *const *policies, char *text, size_t text_bytes)
{
    size_t used = strlen(text);
    for (int i = 0; policies[i] && used < text_bytes; i++)
        used +=
            (size_t)snprintf(text + used, text_bytes - used, "%s%s%s", i ? ", " : "", policies[i],
                             strcmp(policies[i], POLICY_DEFAULT) == 0 ? " (default)" : "");
}

static int check_bounds(const char *least_name, uint32_t least, const char *most_name,
                        uint32_t most, struct err *err)
{
    return least <= most ? 0
                         : err_set(err, -EINVAL, "--%s %u is more than --%s %u", least_name, least,
                                   most_name, most);
}

/* Checks options against each other. An option with its default never conflicts, nor does
 * --aggregators-min 1. */
static int serve_check(void *options, struct err *err)
{
    const struct cli_serve *o = options;
    int error = 0;
    if (o->lanes_max > 0)
        error = check_bounds("lanes-min", o->lanes_min, "lanes-max", o->lanes_max, err);
    if (error == 0 && o->aggregators_min > 1)
        error =
            check_bounds("aggregators-min", o->aggregators_min, "aggregators", o->aggregators, err);
    return error;
}

static char serve_after[2048] =
    "Examples:\n"
    "  gradpool serve\n"
    "  gradpool serve --aggregators 2 --cores 0-7\n"
    "  gradpool serve --listen gradpool://0.0.0.0:7077 --aggregators 0\n"
    "  gradpool serve --http 127.0.0.1:7078\n\n"
    "An option can be given as the environment variable in brackets, or as a key of the section "
    "[serve] of the configuration file. The command line takes precedence over the variable, and "
    "the variable over the file. GRADPOOL_LOG_LEVEL is error, warn, info (default), debug or "
    "trace.\n\n"
    "After SIGTERM while jobs train, or a crash, the jobs continue, and the next start with the "
    "same --state-dir and --listen adopts them and their local aggregators (--stop, "
    "--orphan-timeout). SIGTERM without jobs, Ctrl-C (SIGINT) and `gradpool stop' end jobs, "
    "aggregators and this process, in this order; only the state directory is left. A further "
    "signal ends all at once. SIGHUP does nothing yet. Exit code: 0 after these ends, 128 plus "
    "the number of a signal that ended all at once, 1 if the service could not start, 2 for a "
    "mistake on the command line, in a variable or in the file.\n\n"
    "Policies: ";

const struct knob_command serve_command = {
    .name = "gradpool serve",
    .knobs = serve_knobs,
    .reads_variables = true,
    .check = serve_check,
    .part = "serve",
    .other = &aggregator_command,
    .sections = serve_sections,
    .sections_count = SECTIONS,
    .options_bytes = sizeof(struct cli_serve),
    .after = serve_after,
    .before = "Runs the coordinator of a gradpool service and its local aggregators, in the "
              "foreground. Jobs connect to it with GRADPOOL_ENDPOINT."};

void cli_serve_parse(int argc, char **argv, const char *const *policies,
                     struct cli_serve *ret_options)
{
    struct cli_serve o = {.scales = true, .aggregator_timeout_ms = 1500, .local_timeout_ms = 10000};
    list_policies(policies, serve_after, sizeof serve_after);
    knobs_parse(&serve_command, argc, argv, &o);
    *ret_options = o;
}
