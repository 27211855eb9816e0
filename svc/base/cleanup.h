/* Release at the end of a scope, for C. A function marks a variable for cleanup. A function that
 * keeps or returns the value first removes the value from the variable. */
#ifndef GRADPOOL_BASE_CLEANUP_H
#define GRADPOOL_BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

static inline void cleanup_free(void *pointer) { free(*(void **)pointer); }
static inline void cleanup_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define _cleanup_free_ _cleanup_(cleanup_free)
#define _cleanup_fd_ _cleanup_(cleanup_fd)

/* Returns the pointer and sets the variable to NULL, so that the cleanup does nothing. */
#define take_ptr(pointer)                       \
    ({                                          \
        __typeof__(pointer) taken_ = (pointer); \
        (pointer) = NULL;                       \
        taken_;                                 \
    })

/* Returns the descriptor and sets the variable to -1, so that the cleanup does nothing. */
static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#endif
