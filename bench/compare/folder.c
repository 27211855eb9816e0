/* Folders that go away again. Owns nothing. */
#include "bench/compare/folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int folder_make(char *ret_path, size_t path_bytes)
{
    const char *base = getenv("TMPDIR");
    snprintf(ret_path, path_bytes, "%s/gradpool-bench-XXXXXX", base ? base : "/tmp");
    if (mkdtemp(ret_path))
        return 0;
    int error = errno;
    fprintf(stderr, "gradpool-bench: cannot make a folder %s: %s\n", ret_path, strerror(error));
    ret_path[0] = 0;
    return -error;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    return remove(path);
}

void folder_remove(const char *path)
{
    if (*path)
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
