/* Asking a coordinator for a timeline until it is over: what an operator's command and a worker's
 * thread both do. README: E5. */
#ifndef GRADPOOL_TIMELINE_FETCH_H
#define GRADPOOL_TIMELINE_FETCH_H

#include "svc/timeline/timeline_file.h"

#define TIMELINE_NS_MAX (3600 * NS_PER_S) /* that a coordinator allows: a file that can be opened */

struct timeline_wish {
    const char *job, *tenant; /* tenant "": any */
    uint64_t for_ns;
};

/* On a channel that has been greeted as an operator's: recording begins, and so does the file.
 * Errors: the coordinator's refusal (-ENOENT, -EBUSY, -EAGAIN, -EINVAL), those of channel_call()
 * and timeline_file_check(), with text; the file has not begun then. */
int timeline_begin(struct channel *channel, const struct timeline_wish *wish,
                   struct timeline_file *file, uint64_t *ret_timeline, struct err *err);
/* Blocks until it is over, or `stop_fd` (-1: none) is readable and what was recorded until then is
 * here, or the file cannot be written on. The file is still to be closed, also after an error: then
 * it has what came before. */
int timeline_follow(struct channel *channel, uint64_t timeline, int stop_fd,
                    struct timeline_file *file, struct err *err);

#endif
