/* The command line: options and help of each subcommand of `gradpool`. Parsing fills plain structs.
 * The process exits with 0 after --help, and with 2 and a text on standard error after a
 * mistake. */
#ifndef GRADPOOL_CLI_CLI_H
#define GRADPOOL_CLI_CLI_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"
#include "svc/view/build.h"
#include "svc/wire/durability.h"
#include "svc/wire/limit.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NOTHING = 3, /* exit code: the named object was not found, or the service is not healthy */
};

struct cli_command {
    const char *name, *summary; /* the table ends with a NULL name */
    int (*run)(int argc, char **argv);
    bool has_help; /* the command accepts --help */
    /* The command writes no log, so unknown variables are reported before the command runs. */
    bool is_question;
};
/* Runs the subcommand that the first argument names, and returns its exit code. If standard output
 * cannot be written, the process prints an error at its end and exits with 1. */
int cli_main(int argc, char **argv, const struct cli_command *commands);

#define CLI_UIDS_MAX 64

/* Options about lanes, for `serve` and `aggregator`. */
struct cli_lanes {
    const char *advertise, *interface_name, *cores; /* NULL: the option is not set */
    const char *allow_uids;                         /* list of users as in the command line */
    uint32_t uids[CLI_UIDS_MAX], uids_count;        /* the numbers in allow_uids */
    uint32_t lanes_per_core;
    uint32_t network_gbit; /* 0: the option is not set */
    uint16_t data_port;
    uint64_t orphan_timeout_s, leave_timeout_s;
};

struct cli_serve {
    const char *state_dir, *listen, *name, *policy, *http; /* http: NULL: no web server */
    const char *operators; /* name or number of a group; NULL: the option is not set */
    bool insecure, require_tls;
    uint32_t aggregators, loss_limit_ppm;
    enum durability durability;
    /* local_timeout_ms is 0 if local aggregators have the timeout of all aggregators */
    uint64_t aggregator_timeout_ms, local_timeout_ms, scale_hold_s, order_hold_s;
    uint64_t worker_timeout_ms;
    uint32_t aggregators_min, lanes_min, lanes_max, lanes_spare; /* 0: the option is not set */
    bool scales, names_scale; /* names_scale: the command line has `--scale on` */
    enum cli_explore { CLI_EXPLORE_OFF, CLI_EXPLORE_ON, CLI_EXPLORE_BLIND } explores;
    const char *worker_slots; /* NULL: the option is not set */
    /* --stop jobs sets ends_jobs, --stop service sets keeps_jobs, and --stop auto sets neither */
    bool ends_jobs, keeps_jobs;
    unsigned long long piece_bytes_max; /* 0: the packer's default */
    struct cli_lanes lanes;
    struct limits limits;
};
/* Parses the options of `serve`. `policies`: names for the help of --policy, followed by NULL. */
void cli_serve_parse(int argc, char **argv, const char *const *policies,
                     struct cli_serve *ret_options);

struct cli_aggregator {
    const char *join, *service, *provider, *grant, *kernels, *lane_policy;
    struct cli_lanes lanes;
};
void cli_aggregator_parse(int argc, char **argv, struct cli_aggregator *ret_options);

/* Returns the path of the configuration file of this process, or NULL if none was read. */
const char *cli_config_file(void);
/* For each option in `text` that the configuration file or a variable has set, writes the place of
 * the setting, for example "; --cores is set by FILE:7". Returns `buffer`. */
const char *cli_explain_options(const char *text, char *buffer, size_t buffer_bytes);

/* Facts about the program and this machine. Only main.c can collect them, because it may include
 * all modules. */
struct cli_machine {
    const struct view_build *(*build)(void);
    int (*cores)(size_t *ret_count, struct err *err);
};

/* Each function runs a subcommand and returns its exit code. */
int cli_status(int argc, char **argv);
int cli_jobs(int argc, char **argv);
int cli_table(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_tenant(int argc, char **argv);
int cli_move(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_resize(int argc, char **argv);
int cli_explore(int argc, char **argv);
int cli_trials(int argc, char **argv);
int cli_drain(int argc, char **argv);
int cli_stop(int argc, char **argv);
int cli_snapshot(int argc, char **argv);
int cli_timeline(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_doctor(int argc, char **argv, const struct cli_machine *machine);

/* Writes the default state directory of `gradpool serve` to `buffer` and returns `buffer`. */
const char *cli_state_dir_default(char *buffer, size_t buffer_bytes);

#endif
