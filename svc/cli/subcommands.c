/* Selects the subcommand, and prints the help for all of them. */
#include "svc/cli/cli.h"

#include "svc/base/log.h"
#include "svc/base/variables.h"
#include "svc/cli/options/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMANDS_MAX 24

static const struct cli_command *find(const struct cli_command *commands, const char *name)
{
    for (; commands->name; commands++)
        if (strcmp(commands->name, name) == 0)
            return commands;
    return NULL;
}

static int unknown(const struct cli_command *commands, const char *name)
{
    const char *names[COMMANDS_MAX + 1] = {"help"};
    for (size_t i = 0; commands[i].name && i + 1 < COMMANDS_MAX; i++)
        names[i + 1] = commands[i].name;
    const char *closest = variables_closest(name, names);
    fprintf(stderr, "gradpool: there is no subcommand '%s'%s%s%s; see gradpool help\n", name,
            closest ? ", did you mean '" : "", closest ? closest : "", closest ? "'?" : "");
    return CLI_USAGE;
}

static void print_help(const struct cli_command *commands, FILE *out)
{
    fputs("gradpool: one service that sums the gradients of many training jobs.\n\n"
          "Usage: gradpool SUBCOMMAND [OPTION...]\n\n",
          out);
    for (; commands->name; commands++)
        fprintf(out, "  %-12s %s\n", commands->name, commands->summary);
    fputs("  help         print this, or the help of a subcommand\n\n"
          "Start with:\n"
          "  gradpool serve                                             on a CPU node\n"
          "  GRADPOOL_ENDPOINT=gradpool://node7:7077 python3 train.py   where jobs run\n\n"
          "`gradpool help SUBCOMMAND` prints the options of a subcommand.\n",
          out);
}

static int help(const struct cli_command *commands, int argc, char **argv)
{
    bool is_asked = argc > 2 && strcmp(argv[2], "--help") != 0 && strcmp(argv[2], "-h") != 0;
    if (is_asked && strcmp(argv[2], "--options-page") == 0) {
        options_page(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = is_asked ? find(commands, argv[2]) : NULL;
    if (is_asked && !command && strcmp(argv[2], "help") != 0)
        return unknown(commands, argv[2]);
    if (command && command->has_help)
        return command->run(2, (char *[]){argv[2], (char *)"--help", NULL});
    print_help(commands, stdout);
    return CLI_OK;
}

/* Closes standard output at exit, because --help ends the process directly. If the reader is gone,
 * SIGPIPE has ended the process already. */
static void close_output(void)
{
    bool has_failed = ferror(stdout);
    errno = 0;
    if (fflush(stdout) == 0 && !has_failed)
        return;
    fprintf(stderr, "gradpool: standard output cannot be written%s%s\n", errno ? ": " : "",
            errno ? strerror(errno) : "");
    _exit(CLI_FAILED);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    if (command->is_question) {
        log_init("gradpool");
        variables_check();
    }
    return command->run(argc, argv);
}

int cli_main(int argc, char **argv, const struct cli_command *commands)
{
    (void)atexit(close_output);
    if (argc < 2) {
        print_help(commands, stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0)
        return help(commands, argc, argv);
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    const struct cli_command *command = find(commands, name);
    return command ? run(command, argc - 1, argv + 1) : unknown(commands, name);
}
