/* Plants a mistake: a lane that has dropped a piece answers as if the piece had never been placed
 * on this lane. Linked with --wrap=tell_error_now. */
#include "svc/lane/job/tell.h"

#include <errno.h>
#include <string.h>

int __real_tell_error_now(struct worker *w, uint32_t word, int code, const char *text);
int __wrap_tell_error_now(struct worker *w, uint32_t word, int code, const char *text);

int __wrap_tell_error_now(struct worker *w, uint32_t word, int code, const char *text)
{
    if (code == -ESTALE && strncmp(text, "the piece has moved to another lane", 22) == 0)
        return __real_tell_error_now(w, word, -ENOENT, "unknown piece");
    return __real_tell_error_now(w, word, code, text);
}
