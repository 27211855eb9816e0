/* Results of `gradpool doctor`. */
#ifndef GRADPOOL_VIEW_CHECKS_H
#define GRADPOOL_VIEW_CHECKS_H

#include <stddef.h>

#define VIEW_CHECKS_MAX 24
#define VIEW_CHECK_BYTES 640

enum view_verdict { VIEW_OK, VIEW_WARN, VIEW_FAIL }; /* larger values are worse */

struct view_check {
    const char *name;
    enum view_verdict verdict;
    char text[VIEW_CHECK_BYTES];   /* result of the check */
    char advice[VIEW_CHECK_BYTES]; /* advice for the operator; "": none */
};

struct view_checks {
    struct view_check list[VIEW_CHECKS_MAX];
    size_t count;
};

#endif
