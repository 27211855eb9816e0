/* A folder for a while, under TMPDIR or /tmp. It also goes when this process is killed, as soon as
 * what it has started has ended, too. */
#ifndef GRADPOOL_BENCH_FOLDER_H
#define GRADPOOL_BENCH_FOLDER_H

#include <stddef.h>

/* Negative errno, with a text on standard error; the path is then empty. */
int folder_make(char *ret_path, size_t path_bytes);
void folder_remove(const char *path); /* with all that is in it; "" is fine */

#endif
