/* Judges the ends of processes. Owns the table of running aggregators. The service replaces an
 * ended process, but this file must still report each end that the bench did not cause and that is
 * not documented. */
#include "bench/faults/ends.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_NOTHING 3 /* the last documented exit code of `gradpool` */

static struct ends_process *find(const struct ends *e, pid_t pid)
{
    for (size_t i = 0; i < ENDS_OPEN_MAX; i++)
        if (e->open[i].pid == pid)
            return (struct ends_process *)&e->open[i];
    return NULL;
}

/* --- the log --- */

static pid_t read_number(const char *text, const char *before)
{
    const char *at = strstr(text, before);
    return at ? (pid_t)strtol(at + strlen(before), NULL, 10) : 0;
}

static int read_status(const char *line)
{
    static const char by_signal[] = " has ended: killed by signal ",
                      code[] = " has ended: exit code ";
    const char *at = strstr(line, by_signal);
    if (at)
        return 128 + (int)strtol(at + sizeof by_signal - 1, NULL, 10);
    at = strstr(line, code);
    return at ? (int)strtol(at + sizeof code - 1, NULL, 10) : ENDS_UNKNOWN;
}

static bool is_report(const char *line)
{
    return strstr(line, "Sanitizer: ") || strstr(line, ": runtime error: ");
}

enum ends_news ends_read(struct ends *e, const char *line, pid_t *ret_pid, int *ret_status)
{
    pid_t ended = read_number(line, "the local aggregator with pid ");
    if (ended > 0 && strstr(line, " has ended: ")) {
        *ret_pid = ended;
        *ret_status = read_status(line);
        return ENDS_END;
    }
    if (strstr(line, "started a local aggregator ")) {
        struct ends_process *free_row = find(e, 0);
        if (free_row)
            *free_row = (struct ends_process){.pid = read_number(line, ", pid ")};
    }
    e->excuses += strstr(line, "msg=\"cannot start: ") != NULL;
    return is_report(line) ? ENDS_REPORT : ENDS_NOTHING;
}

/* --- verdicts --- */

void ends_strike(struct ends *e, pid_t pid)
{
    struct ends_process *it = find(e, pid);
    if (it)
        it->was_struck = true;
}

void ends_retire(struct ends *e, pid_t pid)
{
    struct ends_process *it = find(e, pid);
    if (it)
        it->is_leaving = true;
}

bool ends_was_struck(const struct ends *e, pid_t pid)
{
    const struct ends_process *it = find(e, pid);
    return it && it->was_struck;
}

bool ends_was_planned(const struct ends *e, pid_t pid, int status)
{
    const struct ends_process *it = find(e, pid);
    return it && it->is_leaving && !it->was_struck && status == 0;
}

bool ends_of_aggregator(struct ends *e, pid_t pid, int status)
{
    struct ends_process *it = find(e, pid);
    if (it)
        *it = (struct ends_process){0};
    if (status != EXIT_FAILURE)
        return status == 0 || status == 128 + SIGKILL || status == 128 + SIGTERM;
    if (e->excuses == 0)
        return false;
    e->excuses--;
    return true;
}

pid_t ends_take_missing(struct ends *e)
{
    for (size_t i = 0; i < ENDS_OPEN_MAX; i++) {
        struct ends_process it = e->open[i];
        e->open[i] = (struct ends_process){0};
        if (it.pid > 0 && !it.was_struck)
            return it.pid;
    }
    return 0;
}

bool ends_of_worker_fit(int status, int code, bool was_to_die)
{
    if (status == 128 + SIGKILL)
        return was_to_die;
    return status == (code < 0 ? ENDS_WORKER_FAILED : 0);
}

bool ends_of_command_fit(int status)
{
    return (status >= 0 && status <= EXIT_NOTHING) || status == 128 + SIGKILL;
}

void ends_name(int status, char *ret_text, size_t text_bytes)
{
    if (status == ENDS_UNKNOWN)
        snprintf(ret_text, text_bytes, "nobody knows how");
    else
        snprintf(ret_text, text_bytes, "%s %d", status > 128 ? "signal" : "exit code",
                 status > 128 ? status - 128 : status);
}
