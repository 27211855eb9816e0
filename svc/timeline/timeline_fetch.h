/* Fetches a timeline from a coordinator until its end. Used by an operator's command and by a
 * thread of a worker. README: E5. */
#ifndef GRADPOOL_TIMELINE_FETCH_H
#define GRADPOOL_TIMELINE_FETCH_H

#include "svc/timeline/timeline_file.h"

/* Longest timeline that a coordinator allows. The file of a longer timeline would be too large for
 * a viewer. */
#define TIMELINE_NS_MAX (3600 * NS_PER_S)

struct timeline_wish {
    const char *job, *tenant; /* tenant "": any tenant */
    uint64_t for_ns;
};

/* Begins a timeline and its file. The channel is connected with the role of an operator's command.
 * Returns 0, or an error with a text, after which the file has not begun: a refusal of the
 * coordinator (-ENOENT, -EBUSY, -EAGAIN, -EINVAL), an error of channel_call() or of
 * timeline_file_check(). */
int timeline_begin(struct channel *channel, const struct timeline_wish *wish,
                   struct timeline_file *file, uint64_t *ret_timeline, struct err *err);
/* Blocks until the timeline has ended, until `stop_fd` (-1: none) is readable and all earlier
 * rounds have arrived, or until writing to the file fails. The caller closes the file, even after
 * an error; the file then has the earlier rounds. */
int timeline_follow(struct channel *channel, uint64_t timeline, int stop_fd,
                    struct timeline_file *file, struct err *err);

#endif
