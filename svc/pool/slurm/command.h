/* A command of Slurm that runs while the pool's loop continues: squeue, scancel, sbatch, srun. The
 * command is started without a shell. Its output goes to memory, so that the command can outlive
 * the pool. */
#ifndef GRADPOOL_POOL_SLURM_COMMAND_H
#define GRADPOOL_POOL_SLURM_COMMAND_H

#include "svc/base/err.h"
#include "svc/pool/process.h"
#include "svc/pool/ranks.h"

#define COMMAND_WORDS_MAX 1200 /* the longest command line */

struct slurm_words {
    char *words[COMMAND_WORDS_MAX + 1]; /* NULL ends */
    size_t count;
};

struct slurm_command {
    struct pool_process process; /* process.pidfd is -1 if there is no command */
    int output_fd;               /* output and errors of the command */
};

/* Adds a word, which has to exist until the command is started. A word without room is left out,
 * and command_start() then fails. */
void words_add(struct slurm_words *words, const char *word);

/* Starts the command with the cookie and the variables. `ret_is_final`: the command cannot be
 * executed. */
int command_start(const struct slurm_words *words, const struct cookie *cookie, const char *job,
                  char *const *variables, struct slurm_command *ret_command, bool *ret_is_final,
                  struct err *err);
/* Returns whether the command has ended, and the kind of its end. */
bool command_has_ended(const struct slurm_command *command, enum rank_end *ret_end,
                       int *ret_number);
/* Kills the command and reads its exit code. */
void command_kill(struct slurm_command *command);
/* Frees the output. If the command still runs, it continues. */
void command_close(struct slurm_command *command);
/* Returns the output so far, for free(); NULL: there is no memory. */
char *command_output(const struct slurm_command *command);
/* Finds the first line that is a number, or "NUMBER;CLUSTER", as sbatch prints for a job. */
bool command_number(const struct slurm_command *command, char *ret_number, size_t number_bytes);
/* Writes the last line of the output with an error, or else the last line, without characters that
 * control a terminal. "": no output. */
void command_text(const struct slurm_command *command, char *ret_text, size_t text_bytes);

#endif
