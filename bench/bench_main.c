/* gradpool-bench: runs the named command. Each command's file has its options. */
#include "bench/commands.h"

#include "client/gradpool.h"

#include <stdio.h>
#include <string.h>

const char *argp_program_version = "gradpool-bench " GP_VERSION;

static const struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"push", "one worker of a job of a running service", push_command},
    {"local", "all workers of a job of a running service", local_command},
    {"compare", "gradpool compared with gloo, Open MPI and plain sockets", compare_command},
    {"ddp", "training with DistributedDataParallel, compared with gloo", ddp_command},
    {"idle", "cost of connected jobs without work", idle_command},
    {"backup", "rounds that close before the slowest worker, live or on a virtual clock",
     backup_command},
    {"budget", "system calls, wake-ups and allocations for each GiB", budget_command},
    {"kernels", "speed of sums and update rules, relative to memcpy", kernels_command},
    {"simulate", "a week of jobs through the packer, on a virtual clock", simulate_command},
    {"durability", "cost of copies of parameters", durability_command},
    {"explore", "streams of trials with elastic and fixed numbers of workers", explore_command},
    {"faults", "random kills, stops and cut connections; every element is checked", faults_command},
    {"fences", "effect of a hostile tenant on rounds and joins of others", fences_command},
    {"migrate", "pauses of a job when its tasks migrate", migrate_command},
    {"names", "many named tensors, compared with one tensor of the same bytes", names_command},
    {"parameters", "a model of 5,000 small parameters with each integration", parameters_command},
    {"resize", "pauses of a job when a worker joins or leaves", resize_command},
    {"savings", "cores that jobs save by sharing lanes, on a live service", savings_command},
    {"stages", "jobs in stages, beside fixed numbers of workers", stages_command},
    {"stragglers", "a slow lane, and the speed that policies recover", stragglers_command},
    {"tables", "tables of keyed rows: updates, pulls and pushes, memory, clocks", tables_command},
    {"tasks", "memory of a service with very many tasks", tasks_command},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *out)
{
    fputs(
        "Usage: gradpool-bench COMMAND [OPTION...]\n\n"
        "Measures gradpool and the systems that it is compared with. Every result is checked.\n\n",
        out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`gradpool-bench COMMAND --help` lists the options.\n", out);
}

/* A command whose output cannot be written has failed. */
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "gradpool-bench: the output cannot be written\n");
    return code ? code : 1;
}

int main(int argc, char **argv)
{
    char name[64];
    argp_err_exit_status = 2;
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            snprintf(name, sizeof name, "gradpool-bench %s", commands[i].name);
            argv[1] = name;
            return finish(commands[i].run(argc - 1, argv + 1));
        }
    fprintf(stderr, "gradpool-bench: there is no command '%s'; see gradpool-bench --help\n",
            argv[1]);
    return 2;
}
