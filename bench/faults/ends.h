/* How processes end while `faults` strikes, and which ends are a crash. Of the service's a part is
 * known by what its coordinator logs of its children, the rest by whoever reaps them. A status is
 * an exit code, or 128 + signal. */
#ifndef GRADPOOL_BENCH_FAULTS_ENDS_H
#define GRADPOOL_BENCH_FAULTS_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ENDS_OPEN_MAX 64
#define ENDS_WORKER_FAILED 10 /* of a worker that was told an error; a sanitizer's is another */
#define ENDS_UNKNOWN (-1)     /* a status that nobody knows */

/* Aggregators that were started and have not ended, as far as is known. */
struct ends {
    struct ends_process {
        pid_t pid;       /* 0: a free row */
        bool was_struck; /* by ours */
        bool is_leaving; /* as planned: ours has asked it to end */
    } open[ENDS_OPEN_MAX];
    uint32_t excuses; /* lines of aggregators that could not start, and have not ended yet */
};

enum ends_news { ENDS_NOTHING, ENDS_END, ENDS_REPORT };
/* One line of the service's log. ENDS_END: of an aggregator's end, which is still to be judged;
 * ENDS_REPORT: a sanitizer's, which is a crash. */
enum ends_news ends_read(struct ends *ends, const char *line, pid_t *ret_pid, int *ret_status);
/* It is to be killed by ours. */
void ends_strike(struct ends *ends, pid_t pid);
/* A planned end: this process asked for it. */
void ends_retire(struct ends *ends, pid_t pid);
/* Whether ours killed it. */
bool ends_was_struck(const struct ends *ends, pid_t pid);
/* Whether it has ended with this status as ours has asked, so that nothing is lost with it. */
bool ends_was_planned(const struct ends *ends, pid_t pid, int status);
/* An aggregator has ended. False: that is a crash. The coordinator kills some, and some cannot
 * start, but say why. */
bool ends_of_aggregator(struct ends *ends, pid_t pid, int status);
/* At the end of all, again and again: one of whose end nobody has told, or 0. One that ours has
 * struck may be of a coordinator that was killed before it could say so. */
pid_t ends_take_missing(struct ends *ends);

/* `code` is what it told before; `was_to_die`: something was done to it that may kill it. */
bool ends_of_worker_fit(int status, int code, bool was_to_die);
/* Of `gradpool` as an operator runs it. */
bool ends_of_command_fit(int status);
/* "signal 6", "exit code 3". */
void ends_name(int status, char *ret_text, size_t text_bytes);

#endif
