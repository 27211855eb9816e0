/* Command lines for Slurm. The program of the worker and its arguments are passed as arguments, so
 * no shell reads them. */
#include "svc/base/cleanup.h"
#include "svc/pool/slurm/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRIPT "start.sh"
#define IDS_MAX 500 /* maximum number of jobs or steps in one scancel */
#define NODES_BYTES 4096

/* Script that runs on the node. Its first argument is the number of the start; the other arguments
 * are the program. The script removes the cookie of srun or sbatch, because these commands are no
 * workers. */
#define SCRIPT_TEXT                                                                        \
    "unset " COOKIE_VARIABLE "\n"                                                          \
    "printf 'gradpool run: rank %s of job %s, start %s on node %s\\n' \"$GRADPOOL_RANK\" " \
    "\"$GRADPOOL_JOB\" \"$1\" \"$SLURMD_NODENAME\"\n"                                      \
    "shift\n"                                                                              \
    "exec \"$@\"\n"

void words_list(struct slurm_words *words, bool is_step)
{
    words_add(words, "squeue");
    words_add(words, "--me");
    words_add(words, "--noheader");
    words_add(words, is_step ? "--steps" : "--states=all");
    words_add(words, "--Format");
    words_add(words, is_step ? SLURM_FORMAT_STEPS : SLURM_FORMAT_JOBS);
}

/* Writes the option for the log. Each % of the path is doubled, because Slurm replaces
 * patterns that begin with %. */
static void words_log_path(const struct pool_folder *folder, uint32_t rank, char *ret_option,
                           size_t option_bytes)
{
    char path[PATH_MAX];
    size_t used = (size_t)snprintf(ret_option, option_bytes, "--output=");
    folder_log_path(folder, rank, path);
    for (const char *at = path; *at && used + 2 < option_bytes; at++) {
        if (*at == '%')
            ret_option[used++] = '%';
        ret_option[used++] = *at;
    }
    ret_option[used] = '\0';
}

static void words_add_options(const struct slurm *s, struct slurm_words *words)
{
    for (char *const *option = s->setup->options; option && *option; option++)
        words_add(words, *option);
    words_add(words, "--nodes=1");
    words_add(words, "--ntasks=1");
    words_add(words, "--export=ALL");
    words_add(words, "--open-mode=append");
}

static void words_add_way(const struct slurm *s, struct slurm_words *words)
{
    words_add(words, s->has_steps ? "srun" : "sbatch");
    if (s->has_steps) {
        words_add(words, "--exact");
        words_add(words, "--input=none");
    } else {
        words_add(words, "--parsable");
        words_add(words, "--no-requeue");
    }
    words_add_options(s, words);
}

int words_start(struct slurm *s, struct slurm_worker *worker, struct slurm_command *ret_command,
                bool *ret_is_final, struct err *err)
{
    char name[SLURM_NAME_BYTES + 16] = "--job-name=", log[2 * PATH_MAX], nodes[NODES_BYTES];
    char exclude[NODES_BYTES + 16], script[PATH_MAX], number[24];
    struct slurm_words words = {0};
    slurm_name_write(&worker->cookie, name + strlen(name));
    words_log_path(s->setup->folder, worker->cookie.rank, log, sizeof log);
    snprintf(number, sizeof number, "%" PRIu64, worker->cookie.incarnation);
    snprintf(script, sizeof script, "%s/" SCRIPT, s->setup->folder->path);
    words_add_way(s, &words);
    words_add(&words, name);
    words_add(&words, log);
    nodes_excluded(s, clock_now_ns(), nodes, sizeof nodes);
    snprintf(exclude, sizeof exclude, "--exclude=%s", nodes);
    if (*nodes)
        words_add(&words, exclude);
    if (s->has_steps) {
        words_add(&words, "/bin/sh");
        words_add(&words, "-c");
        words_add(&words, SCRIPT_TEXT);
    }
    words_add(&words, s->has_steps ? "sh" : script);
    words_add(&words, number);
    for (char **word = worker->program; *word; word++)
        words_add(&words, *word);
    return command_start(&words, &worker->cookie, s->setup->folder->job, worker->variables,
                         ret_command, ret_is_final, err);
}

uint64_t words_log_bytes(const struct slurm *s, uint32_t rank)
{
    struct stat status;
    char path[PATH_MAX];
    folder_log_path(s->setup->folder, rank, path);
    return stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
}

/* Frees the texts and their list. Returns NULL. */
static char **words_drop(char **copy)
{
    for (char **text = copy; *text; text++)
        free(*text);
    free(copy);
    return NULL;
}

char **words_copy(char *const *texts)
{
    size_t count = 0;
    while (texts[count])
        count++;
    char **copy = calloc(count + 1, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        if (!(copy[i] = strdup(texts[i])))
            return words_drop(copy);
    return copy;
}

int words_write_script(const struct pool_folder *folder, struct err *err)
{
    static const char text[] = "#!/bin/sh\n" SCRIPT_TEXT;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" SCRIPT, folder->path);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    _cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (fd < 0 || write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1)
        return err_set(err, -errno,
                       "%s cannot be written: %s; free space, or give another --folder", path,
                       strerror(errno));
    return 0;
}

/* --- signals --- */

static const char *words_signal_option(int signal)
{
    switch (signal) {
    case SIGINT: return "--signal=INT";
    case SIGHUP: return "--signal=HUP";
    case SIGTERM: return "--signal=TERM";
    default: return "--signal=KILL";
    }
}

/* Begins a scancel. A waiting job is cancelled without a signal. SIGKILL reaches all processes of a
 * job. Other signals reach only the process of the script, which is the worker. */
static void words_begin_signal(struct slurm_words *words, bool is_job, bool is_waiting, int signal)
{
    words_add(words, "scancel");
    if (is_waiting)
        return;
    words_add(words, words_signal_option(signal));
    if (is_job)
        words_add(words, signal == SIGKILL ? "--full" : "--batch");
}

static bool worker_is_step(const struct slurm_worker *worker) { return strchr(worker->id, '.'); }

int words_signal(struct slurm *s, struct slurm_words *words)
{
    const struct slurm_worker *first = NULL;
    int signal = 0;
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct slurm_worker *w = &s->workers[rank];
        if (w->state < SLURM_QUEUED || w->signal == 0 || !*w->id)
            continue;
        if (!first) {
            first = w;
            signal = w->signal;
            words_begin_signal(words, !worker_is_step(w), w->state == SLURM_QUEUED, signal);
        }
        if (w->signal != signal || words->count > IDS_MAX ||
            worker_is_step(w) != worker_is_step(first) ||
            (w->state == SLURM_QUEUED) != (first->state == SLURM_QUEUED))
            continue;
        words_add(words, w->id);
        w->signal = 0;
    }
    return signal;
}

bool words_strays(struct slurm *s, struct slurm_words *words)
{
    if (s->strays_count == 0)
        return false;
    words_add(words, "scancel");
    if (s->strays[0].is_step)
        words_add(words, words_signal_option(SIGKILL));
    for (size_t i = 0; i < s->strays_count && i < IDS_MAX; i++)
        words_add(words, s->strays[i].id);
    s->strays_count = 0;
    return true;
}
