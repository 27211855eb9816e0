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
    {"push", "be one worker of a job, against a running service", push_command},
    {"local", "fork all workers of a job, against a running service", local_command},
    {"compare", "gradpool beside gloo, Open MPI and plain sockets", compare_command},
    {"ddp", "training with DistributedDataParallel, beside gloo's own", ddp_command},
    {"idle", "what connected jobs cost that have nothing to do", idle_command},
    {"backup", "rounds that close before the slowest worker, on a virtual clock", backup_command},
    {"budget", "system calls, wake-ups and allocations a GiB", budget_command},
    {"kernels", "the sums and update rules beside memcpy", kernels_command},
    {"simulate", "a week of jobs through the packer, on a virtual clock", simulate_command},
    {"durability", "what copies of parameters cost a job", durability_command},
    {"explore", "streams of trials under elastic and fixed allocations", explore_command},
    {"faults", "kills, stops and cuts at random; every element checked", faults_command},
    {"fences", "what a hostile tenant takes from rounds and joins of others", fences_command},
    {"migrate", "what a job notices of its tasks' migrations", migrate_command},
    {"names", "many named tensors beside one of the same bytes", names_command},
    {"parameters", "a model of 5,000 small parameters at each door", parameters_command},
    {"resize", "what the others notice when a worker joins or leaves", resize_command},
    {"savings", "cores that jobs hold dedicated and shared, on a live service", savings_command},
    {"stragglers", "a slow lane, and how much of what it costs is won back", stragglers_command},
    {"tables", "tables of keyed rows: updates, pulls and pushes, memory, clocks", tables_command},
    {"tasks", "what a service with very many tasks holds", tasks_command},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *out)
{
    fputs("Usage: gradpool-bench COMMAND [OPTION...]\n\n"
          "Measures gradpool and what it is compared with; every result is checked.\n\n",
          out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`gradpool-bench COMMAND --help` says more.\n", out);
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
