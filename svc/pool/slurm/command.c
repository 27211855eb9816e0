/* Commands of Slurm: start, end, output. Owns the pidfd and the memory of the output. */
#include "svc/pool/slurm/command.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX (64u << 20)

void words_add(struct slurm_words *words, const char *word)
{
    if (words->count < COMMAND_WORDS_MAX)
        words->words[words->count] = (char *)word;
    words->count++;
}

int command_start(const struct slurm_words *words, const struct cookie *cookie, const char *job,
                  char *const *variables, struct slurm_command *ret_command, bool *ret_is_final,
                  struct err *err)
{
    struct slurm_command command = {.process.pidfd = -1};
    *ret_is_final = words->count > COMMAND_WORDS_MAX;
    if (*ret_is_final)
        return err_set(err, -E2BIG, "the command has more than %d arguments; use fewer",
                       COMMAND_WORDS_MAX);
    command.output_fd = memfd_create("gradpool-slurm", MFD_CLOEXEC);
    if (command.output_fd < 0)
        return err_set(err, -errno,
                       "no descriptor for a command: %s; raise the limit of open "
                       "files (ulimit -n)",
                       strerror(errno));
    const struct process_spec spec = {.program = (char **)words->words,
                                      .variables = variables,
                                      .job = job,
                                      .log_fd = command.output_fd};
    int error = process_start(&spec, cookie, &command.process, ret_is_final, err);
    if (error < 0)
        close(command.output_fd);
    else
        *ret_command = command;
    return error;
}

bool command_has_ended(const struct slurm_command *command, enum rank_end *ret_end, int *ret_number)
{
    siginfo_t info = {0};
    int error = waitid(P_PIDFD, (id_t)command->process.pidfd, &info, WEXITED | WNOHANG);
    if (error < 0 && errno != EINTR) { /* another part of the program has read the exit code */
        *ret_end = END_UNKNOWN;
        return true;
    }
    if (error < 0 || info.si_pid == 0)
        return false;
    *ret_end = info.si_code == CLD_EXITED ? END_EXIT : END_SIGNAL;
    *ret_number = info.si_status;
    return true;
}

void command_kill(struct slurm_command *command)
{
    siginfo_t info;
    process_signal(&command->process, SIGKILL);
    while (waitid(P_PIDFD, (id_t)command->process.pidfd, &info, WEXITED) < 0 && errno == EINTR)
        ;
}

void command_close(struct slurm_command *command)
{
    if (command->process.pidfd < 0)
        return;
    process_close(&command->process);
    close(command->output_fd);
}

char *command_output(const struct slurm_command *command)
{
    struct stat status = {0};
    size_t used = 0;
    ssize_t got = 1;
    fstat(command->output_fd, &status);
    size_t bytes = status.st_size < OUTPUT_MAX ? (size_t)status.st_size : OUTPUT_MAX;
    char *text = malloc(bytes + 1);
    while (text && used < bytes &&
           (got = pread(command->output_fd, text + used, bytes - used, (off_t)used)) > 0)
        used += (size_t)got;
    if (text)
        text[used] = '\0';
    return text;
}

bool command_number(const struct slurm_command *command, char *ret_number, size_t number_bytes)
{
    _cleanup_free_ char *output = command_output(command);
    char *rest = output, *line;
    while ((line = strsep(&rest, "\n"))) {
        size_t digits = strspn(line, "0123456789");
        if (digits == 0 || digits >= number_bytes || (line[digits] && line[digits] != ';'))
            continue;
        snprintf(ret_number, number_bytes, "%.*s", (int)digits, line);
        return true;
    }
    return false;
}

void command_text(const struct slurm_command *command, char *ret_text, size_t text_bytes)
{
    _cleanup_free_ char *output = command_output(command);
    bool has_error = false;
    char *rest = output, *line;
    *ret_text = '\0';
    while ((line = strsep(&rest, "\n"))) {
        bool is_error = strstr(line, "error") != NULL;
        if (!*line || (has_error && !is_error))
            continue;
        has_error = is_error;
        snprintf(ret_text, text_bytes, "%s", line);
    }
    text_disarm(ret_text);
}
