/* gradpool serve: its options. */
#include "svc/cli/cli.h"
#include "svc/cli/options/lane_options.h"
#include "svc/cli/options/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLICY_DEFAULT "shared" /* as that of the coordinator */
/* The kernel's own questions come a whole second apart, and are to be asked more than once. */
#define WORKER_TIMEOUT_MS_MIN 2000
#define NAME_BYTES_MAX 64
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

enum {
    STATE_DIR = LANE_OPTIONS,
    OPERATORS,
    LISTEN,
    NAME,
    INSECURE,
    REQUIRE_TLS,
    HTTP,
    AGGREGATORS,
    AGGREGATORS_MIN,
    AGGREGATOR_TIMEOUT,
    WORKER_TIMEOUT,
    POLICY,
    LOSS_LIMIT,
    DURABILITY,
    SCALE,
    SCALE_HOLD,
    ORDER_HOLD,
    LANES_MIN,
    LANES_MAX,
    LANES_SPARE,
    EXPLORE,
    PIECE_MAX,
    STOP,
    LIMIT_FIRST
};

#define LIMIT_KNOB(id, name, what, preset, ...) \
    [LIMIT_FIRST + LIMIT_##id] = {name "-max", "N", "most " what " (default: " preset ")"},

const struct knob serve_knobs[] = {
    LANE_KNOBS,
    [STATE_DIR] =
        {"state-dir", "DIR",
         "where jobs, routes and the control socket are kept; "
         "created if missing (default: $XDG_STATE_HOME/gradpool, or ~/.local/state/gradpool)"},
    [NAME] = {"name", "NAME",
              "of this service: only aggregators with this --service may join (default: none)"},
    [OPERATORS] =
        {"operators", "GROUP",
         "group whose members may give orders (drain, move, tenant, ...) and join aggregators over "
         "the control socket in the state dir, which then has mode 0710 (default: the socket has "
         "mode 0660 and the group of this process, the state dir lets its user in alone)",
         KNOB_TYPED},
    [LISTEN] = {"listen", "URL",
                "where clients, operators and aggregators of other nodes connect; "
                "port 0 takes a free one (default: gradpool://127.0.0.1:7077)"},
    [INSECURE] = {"insecure", NULL,
                  "let other hosts start and join jobs without a key, in plain TCP: only on a "
                  "network that you trust (default: off, they need one of gradpool tenant add; "
                  "aggregators and operators of other hosts always do)",
                  KNOB_TYPED},
    [REQUIRE_TLS] = {"require-tls", NULL,
                     "ask for a key also of what comes over loopback (default: off)"},
    [HTTP] = {"http", "ADDRESS:PORT",
              "show the service over HTTP, for reading only and to whoever can reach it, names of "
              "all jobs included: /metrics for Prometheus, /report for people, /report.json, "
              "/healthz; port 0 takes a free one (default: off)"},
    [AGGREGATORS] =
        {"aggregators", "N",
         "aggregator processes on this host, at most with --scale on; 0: none, wait for "
         "`gradpool aggregator --join` (default: 1)"},
    [AGGREGATORS_MIN] = {"aggregators-min", "N",
                         "of --aggregators, so many run whatever the load is (default: 1)"},
    [AGGREGATOR_TIMEOUT] = {"aggregator-timeout", "SECONDS",
                            "an aggregator that has answered nothing for so long is hung: a local "
                            "one is killed and replaced, another counts as lost; 0: never "
                            "(default: 1.5, and 10 for a local one)"},
    [WORKER_TIMEOUT] = {"worker-timeout", "SECONDS",
                        "a worker on another host that has gone silent, its kernel too, is lost "
                        "after so long; one that is only stopped is late; 0, or at least 2; 0: its "
                        "connection ends first, by itself (default: 2)"},
    [POLICY] = {"policy", "NAME", "which lane gets which piece of a tensor; names are below"},
    [LOSS_LIMIT] = {"loss-limit", "PERCENT",
                    "how much slower a job may become by sharing lanes, for instance 5% or 2.5; a "
                    "measured job that fits nowhere within it is refused (default: 5%, and nobody "
                    "is refused, nor is one who is offered no lane with another job)"},
    [DURABILITY] = {"durability", "replica|worker|none",
                    "of parameters and moments that lanes keep (update rules): replica has a copy "
                    "on another aggregator, worker in the memory of a worker, so that they outlive "
                    "a lane; with none they die with it, and the job goes on from a snapshot. A "
                    "job may say otherwise (default: none)"},
    [SCALE] = {"scale", "on|off",
               "lanes open and park, and aggregators of --aggregators start and stop, as the load "
               "asks for it; a parked lane leaves its core to others (default: on with a policy "
               "that knows a loss limit, as shared does; with others always off)"},
    [SCALE_HOLD] = {"scale-hold", "SECONDS",
                    "load is low for so long before a lane is emptied; an idle lane parks after a "
                    "third of it, an idle aggregator stops after ten times as long (default: 30)"},
    [ORDER_HOLD] = {"order-hold", "SECONDS",
                    "growth and --explore leave what `gradpool move` has moved where it is for so "
                    "long; 0: not at all (default: 600)"},
    [LANES_MIN] = {"lanes-min", "N", "lanes that stay open, whatever the load is (default: 1)"},
    [LANES_MAX] = {"lanes-max", "N", "open lanes, at most: cores granted (default: all there are)"},
    [LANES_SPARE] = {"lanes-spare", "N",
                     "lanes that stay open without a job, for the next one (default: 0)"},
    [EXPLORE] = {"explore", "on|off|blind",
                 "shift a job's load off lanes that are slow for it, and keep what surely helps; "
                 "blind: by the lanes' rates alone, whatever comes of it, to compare with "
                 "(default: off)"},
    [PIECE_MAX] = {"piece-max", "BYTES",
                   "of a piece of a tensor, and of a task, 4096 to 4194304 (default: 4194304)"},
    [STOP] =
        {"stop", "auto|service|jobs",
         "what SIGTERM does while jobs train: service leaves them and the local aggregators to "
         "the next start with the same --state-dir; jobs ends them, as SIGINT and `gradpool "
         "stop' do; auto is service, but where local aggregators end with this process (as the "
         "first of a container, or under systemd, whose KillMode it does not know) tasks move to "
         "other aggregators first, and jobs whose tasks cannot move end (default: auto)"},
    LIMIT_TABLE(LIMIT_KNOB){0},
};

static int set_switch(const char *value, bool *ret_is_on, struct err *err)
{
    bool is_on = strcmp(value, "on") == 0;
    if (!is_on && strcmp(value, "off") != 0)
        return err_set(err, -EINVAL, "expected on or off");
    *ret_is_on = is_on;
    return 0;
}

static int set_exploring(struct cli_serve *o, const char *value, struct err *err)
{
    o->explores_blindly = strcmp(value, "blind") == 0;
    o->explores = o->explores_blindly || strcmp(value, "on") == 0;
    if (o->explores || strcmp(value, "off") == 0)
        return 0;
    return err_set(err, -EINVAL, "expected on, off or blind");
}

static int set_name(struct cli_serve *o, const char *value, struct err *err)
{
    size_t length = strspn(value, NAME_CHARACTERS);
    if (length == 0 || length > NAME_BYTES_MAX || value[length])
        return err_set(err, -EINVAL, "expected 1 to 64 letters, digits, '.', '_' and '-'");
    o->name = value;
    return 0;
}

static int set_stop(struct cli_serve *o, const char *value, struct err *err)
{
    o->ends_jobs = strcmp(value, "jobs") == 0;
    o->keeps_jobs = strcmp(value, "service") == 0;
    if (o->ends_jobs || o->keeps_jobs || strcmp(value, "auto") == 0)
        return 0;
    return err_set(err, -EINVAL, "'%.64s': expected auto, service or jobs", value);
}

static int set_durability(const char *value, enum durability *ret_durability, struct err *err)
{
    enum durability durability = durability_find(value);
    if (!durability)
        return err_set(err, -EINVAL, "'%.64s': expected replica, worker or none", value);
    *ret_durability = durability;
    return 0;
}

static int set_count(const char *value, unsigned long long least, uint32_t *ret_count,
                     struct err *err)
{
    unsigned long long number;
    int error = knobs_number(value, least, 1000000, &number, err);
    if (error == 0)
        *ret_count = (uint32_t)number;
    return error;
}

static int set_worker_timeout(const char *value, uint64_t *ret_ms, struct err *err)
{
    uint64_t ms;
    int error = knobs_seconds(value, 3600, &ms, err);
    if (error < 0)
        return error;
    if (ms > 0 && ms < WORKER_TIMEOUT_MS_MIN)
        return err_set(err, -EINVAL, "'%.64s': expected 0, or at least 2 seconds", value);
    *ret_ms = ms;
    return 0;
}

static int set(void *context, int index, const char *value, struct err *err)
{
    struct cli_serve *o = context;
    unsigned long long number = 0;
    int error = 0;
    if (index < LANE_OPTIONS)
        return lane_option_set(&o->lanes, index, value, err);
    if (index >= LIMIT_FIRST)
        return limits_set(&o->limits, (enum limit)(index - LIMIT_FIRST), value, err);
    switch (index) {
    case STATE_DIR: o->state_dir = value; break;
    case NAME: return set_name(o, value, err);
    case OPERATORS: o->operators = value; break;
    case LISTEN: o->listen = value; break;
    case INSECURE: o->insecure = true; break;
    case REQUIRE_TLS: o->require_tls = true; break;
    case HTTP: o->http = value; break;
    case WORKER_TIMEOUT: return set_worker_timeout(value, &o->worker_timeout_ms, err);
    case POLICY: o->policy = value; break;
    case DURABILITY: return set_durability(value, &o->durability, err);
    case LOSS_LIMIT: return knobs_percent(value, &o->loss_limit_ppm, err);
    case AGGREGATORS:
        error = knobs_number(value, 0, 256, &number, err);
        o->aggregators = (uint32_t)number;
        break;
    case AGGREGATORS_MIN: return set_count(value, 1, &o->aggregators_min, err);
    case SCALE:
        error = set_switch(value, &o->scales, err);
        o->names_scale = error == 0 && o->scales;
        break;
    case EXPLORE: return set_exploring(o, value, err);
    case PIECE_MAX:
        error = knobs_number(value, 4096, 4194304, &number, err);
        o->piece_bytes_max = number;
        break;
    case STOP: return set_stop(o, value, err);
    case LANES_MIN: return set_count(value, 1, &o->lanes_min, err);
    case LANES_MAX: return set_count(value, 1, &o->lanes_max, err);
    case LANES_SPARE: return set_count(value, 0, &o->lanes_spare, err);
    case SCALE_HOLD:
        error = knobs_number(value, 1, 86400, &number, err);
        o->scale_hold_s = number;
        break;
    case ORDER_HOLD:
        error = knobs_number(value, 0, 86400, &number, err);
        o->order_hold_s = number;
        break;
    case AGGREGATOR_TIMEOUT:
        o->local_timeout_ms = 0;
        return knobs_seconds(value, 86400, &o->aggregator_timeout_ms, err);
    }
    return error;
}

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

static void check_bounds(const char *least_name, uint32_t least, const char *most_name,
                         uint32_t most)
{
    if (least > most)
        exit(knobs_mistake("gradpool serve", "--%s %u is more than --%s %u", least_name, least,
                           most_name, most));
}

/* What is not given, and the 1 of --aggregators-min, is no claim. */
static void check(const struct cli_serve *o)
{
    if (o->lanes_max > 0)
        check_bounds("lanes-min", o->lanes_min, "lanes-max", o->lanes_max);
    if (o->aggregators_min > 1)
        check_bounds("aggregators-min", o->aggregators_min, "aggregators", o->aggregators);
}

void cli_serve_parse(int argc, char **argv, const char *const *policies,
                     struct cli_serve *ret_options)
{
    static char after[2048] =
        "Examples:\n"
        "  gradpool serve\n"
        "  gradpool serve --aggregators 2 --cores 0-7\n"
        "  gradpool serve --listen gradpool://0.0.0.0:7077 --aggregators 0\n"
        "  gradpool serve --http 127.0.0.1:7078\n\n"
        "An option can be given as the environment variable in brackets; the command line wins. "
        "GRADPOOL_LOG_LEVEL is error, warn, info (default), debug or trace.\n\n"
        "SIGTERM while jobs train leaves them and their local aggregators to the next start with "
        "the same --state-dir and --listen, as a crash does: jobs in training go on (--stop, "
        "--orphan-timeout). SIGTERM without jobs, Ctrl-C (SIGINT) and `gradpool stop' end jobs, "
        "aggregators and this process, in this order; nothing but the state dir is left. One more "
        "signal ends all at once. SIGHUP does nothing yet. Exit code: 0 after all of these, 128 + "
        "the number of a signal that ended at once, 1 when it could not start, 2 for a mistake on "
        "the command line.\n\n"
        "Policies: ";
    static const struct knob_command command = {
        .name = "gradpool serve",
        .knobs = serve_knobs,
        .reads_variables = true,
        .set = set,
        .after = after,
        .before = "Runs the coordinator of a gradpool service and its local aggregators, in the "
                  "foreground. Jobs connect to it with GRADPOOL_ENDPOINT."};
    struct cli_serve o = {.listen = "gradpool://127.0.0.1:7077",
                          .policy = POLICY_DEFAULT,
                          .aggregators = 1,
                          .aggregators_min = 1,
                          .scales = true,
                          .scale_hold_s = 30,
                          .order_hold_s = 600,
                          .aggregator_timeout_ms = 1500,
                          .local_timeout_ms = 10000,
                          .worker_timeout_ms = 2000,
                          .lanes = {.lanes_per_core = 1,
                                    .orphan_timeout_s = 600,
                                    .leave_timeout_s = LEAVE_TIMEOUT_S}};
    limits_init(&o.limits);
    list_policies(policies, after, sizeof after);
    knobs_parse(&command, argc, argv, &o);
    check(&o);
    *ret_options = o;
    if (!o.state_dir)
        ret_options->state_dir = cli_state_dir_default(ret_options->state_dir_default,
                                                       sizeof ret_options->state_dir_default);
}
