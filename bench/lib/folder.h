/* A temporary folder under TMPDIR or /tmp. If this process is killed, the folder is removed after
 * the end of all processes that it started. */
#ifndef GRADPOOL_BENCH_FOLDER_H
#define GRADPOOL_BENCH_FOLDER_H

#include <stddef.h>

/* Makes a folder. Returns 0; or a negative errno, with a text on standard error and an empty
 * path. */
int folder_make(char *ret_path, size_t path_bytes);
void folder_remove(const char *path); /* removes the folder with its contents; "" is fine */

#endif
