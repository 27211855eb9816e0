/* Asks the service by its own program. Owns that process and its output. Must never reckon what a
 * service holds: allocated and used are what it says. */
#include "bench/savings/look.h"

#include "bench/compare/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ANSWER_NS (20 * NS_PER_S)

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

/* The caller frees the text. */
static int ask(const struct service *s, const char *command, const char *job, char **ret_text)
{
    char path[PATH_MAX + 16];
    char *argv[] = {(char *)s->program,
                    (char *)command,
                    (char *)"--json",
                    (char *)"--endpoint",
                    (char *)s->endpoint,
                    (char *)job,
                    NULL};
    snprintf(path, sizeof path, "%s/look", s->folder);
    unlink(path);
    pid_t pid = process_spawn(argv, environ, path);
    int r = pid < 0 ? pid : process_reap(pid, clock_now_ns() + ANSWER_NS) == 0 ? 0 : -EIO;
    if (r == 0)
        r = read_all(path, ret_text);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: gradpool %s failed\n", command);
    return r;
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
