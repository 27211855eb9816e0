/* Describes limits of processes in words. Owns nothing; reads the limits of this process. */
#include "svc/base/system/shortage.h"

#include "svc/base/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

static const struct limit_words {
    int code;
    enum shortage_of what;
    int resource; /* number of the rlimit; -1: no rlimit, but a lack on the host */
    const char *name, *advice;
} words[] = {
    {EMFILE, SHORTAGE_OTHER, RLIMIT_NOFILE, "open files (RLIMIT_NOFILE)",
     "raise it with ulimit -n, LimitNOFILE= of a unit, or --ulimit nofile= of a container"},
    {ENFILE, SHORTAGE_OTHER, -1, "open files of the whole host (fs.file-max)", "raise that sysctl"},
    {EFBIG, SHORTAGE_OTHER, RLIMIT_FSIZE, "the bytes of a file (RLIMIT_FSIZE)",
     "raise it with ulimit -f, or LimitFSIZE= of a unit"},
    {ENOMEM, SHORTAGE_OTHER, RLIMIT_AS, "address space in bytes (RLIMIT_AS)",
     "raise it with ulimit -v, or LimitAS= of a unit; see the memory limit of the cgroup, too"},
    {ELIBACC, SHORTAGE_OTHER, -1, "libfabric, which moves data between hosts",
     "install it (Debian: libfabric1), or name its folder in LD_LIBRARY_PATH"},
    {ELIBBAD, SHORTAGE_OTHER, -1, "libfabric lacks functions for which gradpool was compiled",
     "install the version that gradpool doctor names, or a later one"},
    {EAGAIN, SHORTAGE_THREADS, RLIMIT_NPROC, "processes and threads of this user (RLIMIT_NPROC)",
     "raise it with ulimit -u, LimitNPROC= or TasksMax= of a unit, or --pids-limit of a container"},
};

static const struct limit_words *find_words(int code, enum shortage_of what)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].code == -code && words[i].what == what)
            return &words[i];
    return NULL;
}

/* Returns whether the address space is limited. If it is, EAGAIN can also mean that there is no
 * address space for the stack of a thread. */
static bool stacks_are_limited(void)
{
    struct rlimit value;
    return getrlimit(RLIMIT_AS, &value) == 0 && value.rlim_cur != RLIM_INFINITY;
}

const char *shortage_text(int code, enum shortage_of what, char *buffer, size_t buffer_bytes)
{
    const struct limit_words *limit = find_words(code, what);
    struct rlimit value = {.rlim_cur = RLIM_INFINITY};
    if (!limit && what == SHORTAGE_THREADS)
        limit = find_words(code, SHORTAGE_OTHER);
    if (!limit) {
        snprintf(buffer, buffer_bytes, "%s", err_text(code));
        return buffer;
    }
    if (limit->resource >= 0)
        getrlimit((__rlimit_resource_t)limit->resource, &value);
    if (code == -EAGAIN && stacks_are_limited())
        return shortage_text(-ENOMEM, SHORTAGE_OTHER, buffer, buffer_bytes);
    if (value.rlim_cur == RLIM_INFINITY)
        snprintf(buffer, buffer_bytes, "%s: %s%s; %s", err_text(code), limit->name,
                 limit->resource >= 0 ? " are not limited here" : "", limit->advice);
    else
        snprintf(buffer, buffer_bytes, "%s: the limit of %s is %" PRIu64 "; %s", err_text(code),
                 limit->name, (uint64_t)value.rlim_cur, limit->advice);
    return buffer;
}

bool shortage_file_fits(uint64_t bytes)
{
    struct rlimit value;
    return getrlimit(RLIMIT_FSIZE, &value) < 0 || value.rlim_cur == RLIM_INFINITY ||
           bytes <= value.rlim_cur;
}

bool shortage_is_refusal(int code) { return code == -EPERM || code == -ENOSYS; }
