/* A timeline as a file in Chrome's trace format: one process for each worker and aggregator, in it
 * one thread for each lane (more where rounds overlap), in that one span for each round with the
 * spans of its steps. README: E1 to E4. */
#ifndef GRADPOOL_TIMELINE_FILE_H
#define GRADPOOL_TIMELINE_FILE_H

#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/channel/channel.h"

struct timeline_file;

struct timeline_totals {
    uint64_t rounds;
    uint64_t dropped; /* rounds without room in a recorder's ring, or in memory here */
    uint64_t damaged; /* rounds whose data made no sense */
    uint32_t workers, lanes;
    char failure[ERR_TEXT_BYTES]; /* why the rounds of one source are missing; "": all are here */
};

/* Opens the file for writing; its present contents stay until timeline_file_begin(). Errors of
 * open(2), with text. */
int timeline_file_open(const char *path, struct timeline_file **ret_file, struct err *err);
/* Begins the file; times count from `begun_ns` of the coordinator's clock. From now on the file can
 * be read at any time, even if its writer dies. */
void timeline_file_begin(struct timeline_file *f, const char *job, uint64_t begun_ns);
/* Adds a batch, in one write. A failed write leaves the file as before, and is the last. */
void timeline_file_add(struct timeline_file *f, const Gradpool__Wire__TimelineNext *next);
/* 0, or the first error (-ENOSPC, ..., never -EINVAL), with a text that says which rounds the file
 * has. */
int timeline_file_check(const struct timeline_file *f, struct err *err);
/* The descriptor: for a process that forks. */
int timeline_file_fd(const struct timeline_file *f);
/* Closes and frees the file. Returns the result of timeline_file_check(). A new file that never
 * began is removed. NULL is fine. */
int timeline_file_close(struct timeline_file *f, struct timeline_totals *ret_totals,
                        struct err *err);

#endif
