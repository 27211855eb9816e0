/* A timeline as a file in Chrome's trace format: one process a worker and an aggregator, in it one
 * thread a lane (more where rounds overlap), in that a span a round with the spans of its steps.
 * README: E1 to E4. */
#ifndef GRADPOOL_TIMELINE_FILE_H
#define GRADPOOL_TIMELINE_FILE_H

#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/channel/channel.h"

struct timeline_file;

struct timeline_totals {
    uint64_t rounds;
    uint64_t dropped; /* found no room where they were recorded, or in memory here */
    uint64_t damaged; /* were none: what was sent had no sense */
    uint32_t workers, lanes;
    char failure[ERR_TEXT_BYTES]; /* of one whose rounds are lacking; "": none */
};

/* What is there already stays until timeline_file_begin(). Errors of open(2), with text. */
int timeline_file_open(const char *path, struct timeline_file **ret_file, struct err *err);
/* Times count from `begun_ns`, of the coordinator's clock. From now on the file can be read at any
 * time, whatever becomes of its writer. */
void timeline_file_begin(struct timeline_file *f, const char *job, uint64_t begun_ns);
/* Each call is one write. One that fails leaves the file as it was before, and is the last. */
void timeline_file_add(struct timeline_file *f, const Gradpool__Wire__TimelineNext *next);
/* 0, or that error (-ENOSPC, ..., never -EINVAL) with text, which says what was kept. */
int timeline_file_check(const struct timeline_file *f, struct err *err);
/* For who forks. */
int timeline_file_fd(const struct timeline_file *f);
/* Ends and frees it: as timeline_file_check(). One that never began, and was not there before, is
 * removed. NULL is fine. */
int timeline_file_close(struct timeline_file *f, struct timeline_totals *ret_totals,
                        struct err *err);

#endif
