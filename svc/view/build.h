/* What a build of the program has: `gradpool --check-build`. Strings are the snapshot's owner's. */
#ifndef GRADPOOL_VIEW_BUILD_H
#define GRADPOOL_VIEW_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct view_library {
    const char *name, *built, *running; /* running "": this build does without it */
};

/* Kernels, fabrics: what may be missing on a machine. */
struct view_ability {
    const char *name, *text; /* text: for people */
    bool is_there;
};

struct view_build {
    const char *version, *commit, *compiler;
    const char *best_kernels; /* that "best" stands for here */
    uint32_t protocol;
    const struct view_library *libraries;
    size_t libraries_count;
    const struct view_ability *kernels, *fabrics;
    size_t kernels_count, fabrics_count;
};

#endif
