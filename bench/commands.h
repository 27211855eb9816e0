/* The commands of gradpool-bench. Each command parses its options (argv[0] is "gradpool-bench
 * NAME"), and returns the exit code: 1 after a failure or a wrong result, 2 after a mistake on the
 * command line, otherwise 0. */
#ifndef GRADPOOL_BENCH_COMMANDS_H
#define GRADPOOL_BENCH_COMMANDS_H

#include <argp.h>
#include <stdint.h>

/* Parses the argument of an option. Ends the program with a text if the argument is no number in
 * the range. */
uint64_t command_number(struct argp_state *state, const char *text, uint64_t least, uint64_t most);

int backup_command(int argc, char **argv);
int push_command(int argc, char **argv);
int local_command(int argc, char **argv);
int compare_command(int argc, char **argv);
int ddp_command(int argc, char **argv);
int idle_command(int argc, char **argv);
int budget_command(int argc, char **argv);
int kernels_command(int argc, char **argv);
int simulate_command(int argc, char **argv);
int durability_command(int argc, char **argv);
int explore_command(int argc, char **argv);
int fences_command(int argc, char **argv);
int faults_command(int argc, char **argv);
int migrate_command(int argc, char **argv);
int names_command(int argc, char **argv);
int parameters_command(int argc, char **argv);
int resize_command(int argc, char **argv);
int savings_command(int argc, char **argv);
int stages_command(int argc, char **argv);
int stragglers_command(int argc, char **argv);
int tables_command(int argc, char **argv);
int tasks_command(int argc, char **argv);

#endif
