/* Fetches a timeline from a coordinator until its end: for an operator's command and a worker's
 * thread. README: E5. */
#ifndef GRADPOOL_TIMELINE_FETCH_H
#define GRADPOOL_TIMELINE_FETCH_H

#include "svc/timeline/timeline_file.h"

/* longest timeline that a coordinator allows: its file can still be opened */
#define TIMELINE_NS_MAX (3600 * NS_PER_S)

struct timeline_wish {
    const char *job, *tenant; /* tenant "": any tenant */
    uint64_t for_ns;
};

/* Begins a timeline and its file, on a channel that has been greeted as an operator's. Errors: the
 * coordinator's refusal (-ENOENT, -EBUSY, -EAGAIN, -EINVAL), those of channel_call() and
 * timeline_file_check(), with text; the file has not begun then. */
int timeline_begin(struct channel *channel, const struct timeline_wish *wish,
                   struct timeline_file *file, uint64_t *ret_timeline, struct err *err);
/* Blocks until the timeline is over, or `stop_fd` (-1: none) is readable and all rounds before that
 * have come, or a write to the file fails. The caller closes the file, also after an error: then
 * the file has the rounds that came before. */
int timeline_follow(struct channel *channel, uint64_t timeline, int stop_fd,
                    struct timeline_file *file, struct err *err);

#endif
