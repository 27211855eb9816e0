/* Asking a coordinator for a timeline until it is over. README: E5. */
#ifndef GRADPOOL_TIMELINE_FETCH_H
#define GRADPOOL_TIMELINE_FETCH_H

#include "svc/timeline/timeline_file.h"

struct timeline_wish {
    const char *job, *tenant; /* tenant "": any */
    uint64_t for_ns;
    int stop_fd; /* readable: it is to end now; -1: nobody says so */
};

/* On a channel that has been greeted as an operator's. Blocks until it is over, and fills the file,
 * which is still to be closed: also after an error it has what came until then. Errors: the
 * coordinator's refusal (-ENOENT, -EBUSY, -EAGAIN, -EINVAL; then the file has not begun), those of
 * channel_call(), with text. */
int timeline_fetch(struct channel *channel, const struct timeline_wish *wish,
                   struct timeline_file *file, struct err *err);

#endif
