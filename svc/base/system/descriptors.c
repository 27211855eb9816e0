/* Raises RLIMIT_NOFILE. The low soft limit protects programs that use select(2); gradpool does not
 * use select(2). */
#include "svc/base/system/descriptors.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>

int descriptors_raise(uint64_t least, const char *whose, struct err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_set(err, -errno, "cannot read the limit on open files: %s", err_text(-errno));
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
            return err_set(err, -errno, "cannot raise the limit on open files: %s",
                           err_text(-errno));
    }
    if (limit.rlim_cur >= least)
        return 0;
    return err_set(err, -EMFILE,
                   "%s needs %" PRIu64 " open files at least, but the limit is %" PRIu64
                   ": raise it (ulimit -Hn, LimitNOFILE= of a systemd unit)",
                   whose, least, (uint64_t)limit.rlim_cur);
}
