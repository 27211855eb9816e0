/* Ends of processes during `faults`, and which of them are crashes. The coordinator logs the ends
 * of its own children; the bench reaps the other processes of the service. A status is an exit
 * code, or 128 + signal. */
#ifndef GRADPOOL_BENCH_FAULTS_ENDS_H
#define GRADPOOL_BENCH_FAULTS_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ENDS_OPEN_MAX 64
#define ENDS_WORKER_FAILED 10 /* a worker that got an error; a sanitizer's exit code differs */
#define ENDS_UNKNOWN (-1)     /* the status is not known */

/* Aggregators that the log has started and whose end is not known. */
struct ends {
    struct ends_process {
        pid_t pid;       /* 0: a free row */
        bool was_struck; /* the bench struck the process */
        bool is_leaving; /* the bench asked the process to end (planned end) */
    } open[ENDS_OPEN_MAX];
    /* lines about aggregators that could not start and whose end is still to come */
    uint32_t excuses;
};

enum ends_news { ENDS_NOTHING, ENDS_END, ENDS_REPORT };
/* One line of the service's log. ENDS_END: of an aggregator's end, which is still to be judged;
 * ENDS_REPORT: a sanitizer's, which is a crash. */
enum ends_news ends_read(struct ends *ends, const char *line, pid_t *ret_pid, int *ret_status);
/* Enters a strike by the bench that may end the process. */
void ends_strike(struct ends *ends, pid_t pid);
/* Enters a planned end: the bench asked the process to end. */
void ends_retire(struct ends *ends, pid_t pid);
/* Returns whether the bench struck the process. */
bool ends_was_struck(const struct ends *ends, pid_t pid);
/* Returns whether the end with this status is a planned one, with which no copy is lost. */
bool ends_was_planned(const struct ends *ends, pid_t pid, int status);
/* Judges the end of an aggregator. False: a crash. The coordinator kills some aggregators, and an
 * aggregator that cannot start logs the reason. */
bool ends_of_aggregator(struct ends *ends, pid_t pid, int status);
/* Called repeatedly at the end of a run: an aggregator whose end nothing reported, or 0. A struck
 * aggregator is left out, because its coordinator may have been killed before it logged the end. */
pid_t ends_take_missing(struct ends *ends);

/* Judges the end of a worker. `code`: the error that the worker reported; `was_to_die`: a strike
 * may have killed it. */
bool ends_of_worker_fit(int status, int code, bool was_to_die);
/* Judges the end of a `gradpool` command of the operator. */
bool ends_of_command_fit(int status);
/* Writes for example "signal 6" or "exit code 3". */
void ends_name(int status, char *ret_text, size_t text_bytes);

#endif
