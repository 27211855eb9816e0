/* Runs `gradpool` and reads its answers. Owns the process and its output. Figures of allocated and
 * used cores must come from these answers only. */
#include "bench/savings/look.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_NS (20 * NS_PER_S)
#define TRIES 5
#define AGAIN_NS (200 * 1000 * 1000)
/* exit code of `gradpool status` if, for example, an aggregator is silent for a moment */
#define EXIT_UNHEALTHY 3

extern char **environ;

static int read_all(const char *path, char **ret_text)
{
    FILE *file = fopen(path, "r");
    size_t bytes = 0;
    char *text = NULL;
    ssize_t r = file ? getdelim(&text, &bytes, 0, file) : -1;
    if (file)
        fclose(file);
    if (r < 0) {
        free(text);
        return -EIO;
    }
    *ret_text = text;
    return 0;
}

/* Prints the command's error text on one line. */
static void print_failure(const char *command, const char *errors_path, int code)
{
    char *text = NULL;
    if (read_all(errors_path, &text) == 0)
        for (char *at = text; (at = strchr(at, '\n'));)
            *at = at[1] ? ' ' : '\0';
    fprintf(stderr, "gradpool-bench: gradpool %s failed %d times, with exit code %d: %s\n", command,
            TRIES, code, text ? text : "it said nothing");
    free(text);
}

/* Returns the exit code; negative: the command could not run. A complete answer about an unhealthy
 * service counts as a success. */
static int try_to_ask(char **argv, const char *path, const char *errors_path, char **ret_text)
{
    unlink(path);
    unlink(errors_path);
    pid_t pid = process_spawn_apart(argv, environ, path, errors_path);
    int code = pid < 0 ? pid : process_reap(pid, clock_now_ns() + ANSWER_NS);
    if (code == 0 || code == EXIT_UNHEALTHY)
        return read_all(path, ret_text) == 0 ? 0 : code;
    return code;
}

/* Runs a command and returns its output, which the caller frees. On a loaded machine a query may
 * fail, so failed queries are repeated. */
static int ask(const struct service *s, const char *command, const char *job, char **ret_text)
{
    const struct timespec again = {0, AGAIN_NS};
    char path[PATH_MAX + 16], errors_path[PATH_MAX + 16];
    char *argv[] = {(char *)s->program,
                    (char *)command,
                    (char *)"--json",
                    (char *)"--endpoint",
                    (char *)s->endpoint,
                    (char *)job,
                    NULL};
    snprintf(path, sizeof path, "%s/look", s->folder);
    snprintf(errors_path, sizeof errors_path, "%s/look-errors", s->folder);
    int code = 0;
    *ret_text = NULL;
    for (int i = 0; i < TRIES && !*ret_text; i++) {
        if (i > 0)
            nanosleep(&again, NULL);
        code = try_to_ask(argv, path, errors_path, ret_text);
    }
    if (*ret_text)
        return 0;
    print_failure(command, errors_path, code);
    return -EIO;
}

int look_at_lanes(const struct service *service, struct look *ret_look)
{
    char *text = NULL;
    int r = ask(service, "status", NULL, &text);
    if (r == 0)
        r = look_parse_lanes(text, ret_look);
    ret_look->at_ns = clock_now_ns();
    free(text);
    return r;
}

int look_at_aggregators(const struct service *service, pid_t *ret_pids, size_t most)
{
    char *text = NULL;
    int r = ask(service, "status", NULL, &text);
    if (r == 0)
        r = look_parse_aggregators(text, ret_pids, most);
    free(text);
    return r;
}

int look_at_jobs(const struct service *service, struct look_job *ret_jobs, size_t most)
{
    char *text = NULL;
    int r = ask(service, "jobs", NULL, &text);
    if (r == 0)
        r = look_parse_jobs(text, ret_jobs, most);
    free(text);
    return r;
}

int look_at_events(const struct service *service, struct look_events *ret_events)
{
    char *text = NULL;
    int r = ask(service, "top", NULL, &text);
    if (r == 0)
        r = look_parse_events(text, ret_events);
    free(text);
    return r;
}

int look_at_shares(const struct service *service, const char *job, struct look_share *ret_shares,
                   size_t most)
{
    char *text = NULL;
    int r = ask(service, "explain", job, &text);
    if (r == 0)
        r = look_parse_shares(text, ret_shares, most);
    free(text);
    return r;
}

int look_at_tasks(const struct service *service, const char *job, uint32_t *ret_tasks, size_t most)
{
    char *text = NULL;
    int r = ask(service, "explain", job, &text);
    if (r == 0)
        r = look_parse_tasks(text, ret_tasks, most);
    free(text);
    return r;
}

int look_at_tables(const struct service *service, const char *job, struct look_table *ret_tables,
                   size_t most)
{
    char *text = NULL;
    int r = ask(service, "jobs", job, &text);
    if (r == 0)
        r = look_parse_tables(text, ret_tables, most);
    free(text);
    return r;
}
