/* What a build of the program has, for `gradpool doctor`. Strings are the snapshot's owner's. */
#ifndef GRADPOOL_VIEW_BUILD_H
#define GRADPOOL_VIEW_BUILD_H

#include <stddef.h>
#include <stdint.h>

struct view_library {
    const char *name, *built, *running; /* running "": this build does without it */
};

struct view_build {
    const char *version, *commit, *compiler;
    const char *kernels; /* those of this machine, the ones that are used first */
    uint32_t protocol;
    const struct view_library *libraries;
    size_t libraries_count;
};

#endif
