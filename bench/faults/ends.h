/* Records the ends of processes during `faults`, and decides which of them are crashes. The
 * coordinator logs the ends of its children; the bench waits for the other processes of the
 * service. A status is an exit code, or 128 + signal. */
#ifndef GRADPOOL_BENCH_FAULTS_ENDS_H
#define GRADPOOL_BENCH_FAULTS_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ENDS_OPEN_MAX 64
/* exit code of a worker after an error; sanitizers use another code */
#define ENDS_WORKER_FAILED 10
#define ENDS_UNKNOWN (-1) /* the status is unknown */

/* Aggregators whose start is in the log and whose end is unknown. */
struct ends {
    struct ends_process {
        pid_t pid;       /* process id of the aggregator; 0: the row is free */
        bool was_struck; /* whether the bench struck the process */
        bool is_leaving; /* whether the bench asked the process to end (planned end) */
    } open[ENDS_OPEN_MAX];
    /* number of aggregators whose failed start is in the log and whose end was not judged yet */
    uint32_t excuses;
};

enum ends_news { ENDS_NOTHING, ENDS_END, ENDS_REPORT };
/* Reads one line of the service's log. ENDS_END: the end of an aggregator, to be judged;
 * ENDS_REPORT: a sanitizer's report, which is a crash. */
enum ends_news ends_read(struct ends *ends, const char *line, pid_t *ret_pid, int *ret_status);
/* Records a strike by the bench that may end the process. */
void ends_strike(struct ends *ends, pid_t pid);
/* Records a planned end: the bench asked the process to end. */
void ends_retire(struct ends *ends, pid_t pid);
/* Returns whether the bench struck the process. */
bool ends_was_struck(const struct ends *ends, pid_t pid);
/* Returns whether the end with this status was planned. A planned end loses no copy. */
bool ends_was_planned(const struct ends *ends, pid_t pid, int status);
/* Judges the end of an aggregator. Returns false for a crash. An aggregator that the coordinator
 * killed, or whose failed start is in the log, has not crashed. */
bool ends_of_aggregator(struct ends *ends, pid_t pid, int status);
/* Called repeatedly at the end of a run. Returns an aggregator without a reported end, or 0.
 * Struck aggregators are skipped, because their coordinator may have been killed before it
 * logged the end. */
pid_t ends_take_missing(struct ends *ends);

/* Judges the end of a worker. `code`: error that the worker reported; `was_to_die`: whether a
 * strike may have killed the worker. */
bool ends_of_worker_fit(int status, int code, bool was_to_die);
/* Judges the exit status of a `gradpool` command of the operator. */
bool ends_of_command_fit(int status);
/* Writes a text such as "signal 6" or "exit code 3". */
void ends_name(int status, char *ret_text, size_t text_bytes);

#endif
