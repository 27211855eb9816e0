/* Runs `gradpool` commands of an operator. Owns the running process and its files. Must never wait
 * for the process while strikes are due. */
#include "bench/faults/operator/errand.h"

#include "bench/faults/ends.h"
#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 10
#define ERRAND_NS (60 * NS_PER_S)

extern char **environ;

static void path_of(const struct errand *e, const char *what, char *ret_path, size_t path_bytes)
{
    snprintf(ret_path, path_bytes, "%s/%s-%s", e->service->folder, e->name, what);
}

void errand_begin(struct errand *e, const char *const *arguments)
{
    char *argv[ARGUMENTS_MAX + 4] = {(char *)e->service->program};
    char output[PATH_MAX + 64], errors[PATH_MAX + 64];
    size_t count = 1;
    for (size_t i = 0; arguments[i] && i < ARGUMENTS_MAX; i++)
        argv[count++] = (char *)arguments[i];
    argv[count++] = (char *)"--endpoint";
    argv[count] = (char *)e->service->endpoint;
    path_of(e, "output", output, sizeof output);
    path_of(e, "errors", errors, sizeof errors);
    unlink(output);
    unlink(errors);
    pid_t pid = process_spawn_apart(argv, environ, output, errors);
    e->pid = pid > 0 ? pid : 0;
    e->began_ns = clock_now_ns();
}

/* Stores only the last line, because earlier lines report progress. */
static void keep_text(struct errand *e)
{
    char path[PATH_MAX + 64], line[ERRAND_TEXT_BYTES];
    path_of(e, "errors", path, sizeof path);
    FILE *file = fopen(path, "r");
    e->text[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        snprintf(e->text, sizeof e->text, "%s", line);
    }
    if (file)
        fclose(file);
}

int errand_end(struct errand *e, bool waits)
{
    siginfo_t end = {0};
    uint64_t deadline_ns = e->began_ns + ERRAND_NS;
    if (e->pid <= 0)
        return -ENOENT;
    bool has_ended =
        waitid(P_PID, (id_t)e->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == e->pid;
    bool is_late = !has_ended && clock_now_ns() > deadline_ns;
    if (!has_ended && !is_late && !waits)
        return ERRAND_RUNS;
    int code = process_reap(e->pid, deadline_ns);
    e->pid = 0;
    keep_text(e);
    if (is_late || code == 128 + SIGKILL) {
        e->hangs++;
        fprintf(stderr, "# gradpool %s hangs: %s\n", e->name, e->text);
    } else if (!ends_of_command_fit(code)) {
        e->crashes++;
        fprintf(stderr, "# gradpool %s ended with %d: %s   <- a crash\n", e->name, code, e->text);
    }
    return code;
}
