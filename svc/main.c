/* The program `gradpool`: picks the subcommand, hands its options on, turns results into exit
 * codes. What the subcommands understand is in svc/cli, what they do in the modules. */
#include "packer/packer.h"
#include "svc/aggregator/aggregator.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/cli/cli.h"
#include "svc/coordinator/coordinator.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void start_log(const char *who)
{
    if (log_init(who) < 0)
        log_warn("GRADPOOL_LOG_LEVEL: expected error, warn, info, debug or trace; using info");
    cli_environment_check();
}

/* Read from a descriptor by the coordinator; a peer that is gone is an error code, not a signal. */
static void prepare_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int serve(int argc, char **argv)
{
    struct cli_serve o;
    struct coordinator *coordinator;
    struct err err;
    cli_serve_parse(argc, argv, packer_policies(), &o);
    start_log("coordinator");
    struct coordinator_options options = {.state_dir = o.state_dir, .listen = o.listen,
        .insecure = o.insecure, .advertise = o.advertise, .interface_name = o.interface_name,
        .aggregators = o.aggregators, .cores = o.cores, .policy = o.policy,
        .lanes_per_core = o.lanes_per_core, .data_port = o.data_port, .allow_uids = o.allow_uids,
        .orphan_timeout_ns = o.orphan_timeout_s * NS_PER_S};
    prepare_signals();
    if (coordinator_create(&options, &coordinator, &err) < 0) {
        log_error("%s", err.text);
        return CLI_FAILED;
    }
    int ended = coordinator_run(coordinator);
    coordinator_destroy(coordinator);
    return ended < 0 ? CLI_FAILED : ended == SIGINT ? 128 + SIGINT : CLI_OK;
}

static int aggregator(int argc, char **argv)
{
    struct cli_aggregator o;
    cli_aggregator_parse(argc, argv, &o);
    start_log("aggregator");
    struct aggregator_options options = {.join = o.join, .cores = o.cores,
        .lanes_per_core = o.lanes_per_core, .advertise = o.advertise,
        .interface_name = o.interface_name, .data_port = o.data_port, .provider = o.provider,
        .grant = o.grant, .allowed_uids = o.allow_uids, .allowed_uids_count = o.allow_uids_count,
        .orphan_timeout_ns = o.orphan_timeout_s * NS_PER_S};
    return aggregator_run(&options) < 0 ? CLI_FAILED : CLI_OK;
}

static int version(int argc, char **argv)
{
    puts("gradpool " GRADPOOL_VERSION);
    return CLI_OK;
}

static int help(int argc, char **argv);

static const struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", "run a service: the coordinator and its local aggregators", serve},
    {"aggregator", "add this host's cores to a service", aggregator},
    {"status", "show a service, its aggregators and lanes", cli_status},
    {"jobs", "show the jobs of a service", cli_jobs},
    {"version", "print the version", version},
    {"help", "print this, or the help of a subcommand", help},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[COMMANDS + 1] = {NULL};
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *closest = cli_closest(name, names);
    fprintf(stderr, "gradpool: there is no subcommand '%s'%s%s%s; see gradpool help\n", name,
            closest ? ", did you mean '" : "", closest ? closest : "", closest ? "'?" : "");
    return CLI_USAGE;
}

static int help(int argc, char **argv)
{
    if (argc > 1) {
        const struct command *command = find(argv[1]);
        char *arguments[] = {argv[1], (char *)"--help", NULL};
        if (!command)
            return unknown(argv[1]);
        if (command->run != help && command->run != version)
            return command->run(2, arguments);
    }
    puts("gradpool: one service that sums the gradients of many training jobs.\n\nUsage: gradpool "
         "SUBCOMMAND [OPTION...]\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-12s %s\n", commands[i].name, commands[i].summary);
    puts("\nStart with:\n  gradpool serve                                     on a CPU node\n"
         "  GRADPOOL_ENDPOINT=gradpool://node7:7077 python3 train.py   where jobs run\n\n"
         "`gradpool help SUBCOMMAND` says more.");
    return CLI_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(1, argv);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(1, argv);
    if (strcmp(argv[1], "--version") == 0)
        return version(1, argv);
    const struct command *command = find(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : unknown(argv[1]);
}
