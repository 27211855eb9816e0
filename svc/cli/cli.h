/* The command line: options and help of each subcommand of `gradpool`. Parsing ends the process
 * on --help (0) and on a mistake (2, with a text on standard error); otherwise it fills plain
 * structs. */
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
    CLI_NOTHING = 3, /* not found, or unhealthy */
};

struct cli_command {
    const char *name, *summary; /* a NULL name ends the table */
    int (*run)(int argc, char **argv);
    bool has_help;    /* has --help */
    bool is_question; /* has no log of its own: unknown variables are reported before it runs */
};
/* Runs the subcommand that the first argument names; returns the exit code. If standard output
 * could not be written, the process prints an error at its end and exits with 1. */
int cli_main(int argc, char **argv, const struct cli_command *commands);

#define CLI_UIDS_MAX 64

/* Options about lanes, common to `serve` and `aggregator`. */
struct cli_lanes {
    const char *advertise, *interface_name, *cores; /* NULL: not given */
    const char *allow_uids;                         /* as given */
    uint32_t uids[CLI_UIDS_MAX], uids_count;        /* as read */
    uint32_t lanes_per_core;
    uint32_t network_gbit; /* 0: not given */
    uint16_t data_port;
    uint64_t orphan_timeout_s, leave_timeout_s;
};

struct cli_serve {
    const char *state_dir, *listen, *name, *policy, *http; /* http NULL: no web server */
    const char *operators;                                 /* a group; NULL: not given */
    bool insecure, require_tls;
    uint32_t aggregators, loss_limit_ppm;
    enum durability durability;
    uint64_t aggregator_timeout_ms, local_timeout_ms /* 0: the same */, scale_hold_s, order_hold_s;
    uint64_t worker_timeout_ms;
    uint32_t aggregators_min, lanes_min, lanes_max, lanes_spare; /* lanes 0: not given */
    bool scales, names_scale;                                    /* whether --scale on was said */
    bool explores, explores_blindly;
    bool ends_jobs, keeps_jobs;         /* --stop jobs, --stop service; neither: auto */
    unsigned long long piece_bytes_max; /* 0: the packer's */
    struct cli_lanes lanes;
    struct limits limits;
};
/* `policies`: names that the help offers for --policy, then NULL. */
void cli_serve_parse(int argc, char **argv, const char *const *policies,
                     struct cli_serve *ret_options);

struct cli_aggregator {
    const char *join, *service, *provider, *grant, *kernels, *lane_policy;
    struct cli_lanes lanes;
};
void cli_aggregator_parse(int argc, char **argv, struct cli_aggregator *ret_options);

/* The configuration file of this process; NULL: none was read. */
const char *cli_config_file(void);
/* "; --cores is set by FILE:7" for each option that `text` is about and that the file or a variable
 * has set; else "". Returns `buffer`. */
const char *cli_explain_options(const char *text, char *buffer, size_t buffer_bytes);

/* Facts that only the whole program has, about itself and this machine. */
struct cli_machine {
    const struct view_build *(*build)(void);
    int (*cores)(size_t *ret_count, struct err *err);
};

/* Whole subcommands, which return the exit code. */
int cli_status(int argc, char **argv);
int cli_jobs(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_tenant(int argc, char **argv);
int cli_move(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_drain(int argc, char **argv);
int cli_stop(int argc, char **argv);
int cli_snapshot(int argc, char **argv);
int cli_timeline(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_doctor(int argc, char **argv, const struct cli_machine *machine);

/* The default state directory of `gradpool serve`; fills `buffer` and returns it. */
const char *cli_state_dir_default(char *buffer, size_t buffer_bytes);

#endif
