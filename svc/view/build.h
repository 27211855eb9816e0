/* Facts about a build of the program, for `gradpool doctor`. The owner of the snapshot owns the
 * strings. */
#ifndef GRADPOOL_VIEW_BUILD_H
#define GRADPOOL_VIEW_BUILD_H

#include <stddef.h>
#include <stdint.h>

struct view_library {
    /* version at build time and at run time; running "": this build does not use the library */
    const char *name, *built, *running;
};

struct view_build {
    const char *version, *commit, *compiler;
    /* instruction sets that the kernels can use on this machine; the first one is in use */
    const char *kernels;
    uint32_t protocol;
    const struct view_library *libraries;
    size_t libraries_count;
};

#endif
