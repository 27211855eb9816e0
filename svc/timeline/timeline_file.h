/* A timeline as a file in Chrome's trace format. In the viewer each worker and aggregator is a
 * process, and each of its lanes is a thread. Rounds that overlap are shown in further threads. A
 * round is a span, which contains the spans of its steps. README: E1 to E4. */
#ifndef GRADPOOL_TIMELINE_FILE_H
#define GRADPOOL_TIMELINE_FILE_H

#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/channel/channel.h"

struct timeline_file;

struct timeline_totals {
    uint64_t rounds;
    /* number of rounds that did not fit into a recorder's ring or into memory here */
    uint64_t dropped;
    uint64_t damaged; /* number of rounds with invalid data */
    uint32_t workers, lanes;
    /* reason why the rounds of a worker or aggregator are missing; "": no rounds are missing */
    char failure[ERR_TEXT_BYTES];
};

/* Opens the file for writing. Its present contents are kept until timeline_file_begin(). Returns 0,
 * or an error of open(2) with a text. */
int timeline_file_open(const char *path, struct timeline_file **ret_file, struct err *err);
/* Begins the file. Times count from `begun_ns` on the coordinator's clock. From now on the file can
 * be read at any time, even after a crash of the writer. */
void timeline_file_begin(struct timeline_file *f, const char *job, uint64_t begun_ns);
/* Adds a batch in one write. If the write fails, the file is restored to its last state, and
 * nothing more is written. */
void timeline_file_add(struct timeline_file *f, const Gradpool__Wire__TimelineNext *next);
/* Returns 0 or the first error (-ENOSPC or another one, never -EINVAL). The text contains the
 * number of rounds in the file. */
int timeline_file_check(const struct timeline_file *f, struct err *err);
/* Returns the descriptor, which a forked child has to close. */
int timeline_file_fd(const struct timeline_file *f);
/* Closes and frees the file. Returns the result of timeline_file_check(). A new file that was never
 * begun is deleted. NULL is allowed. */
int timeline_file_close(struct timeline_file *f, struct timeline_totals *ret_totals,
                        struct err *err);

#endif
