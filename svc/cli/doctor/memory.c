/* Compares limits of memory with the needs of a service. The service's cgroup is charged for the
 * memory of lanes, the workers' cgroup for lent memory. */
#include "svc/base/system/cgroup.h"
#include "svc/base/text.h"
#include "svc/cli/doctor/doctor.h"
#include "svc/fabric/shm/map/absent.h"

/* memory that a coordinator, its lanes and some jobs over a network need */
#define SERVICE_LEAST_BYTES (UINT64_C(64) << 20)

static void check_limit(struct view_checks *checks, const char *root)
{
    struct cgroup_memory memory = cgroup_memory(root);
    char limit[32], left[32];
    if (memory.limit_bytes == 0) {
        doctor_say(checks, "memory", VIEW_OK, NULL, "no cgroup limits it");
        return;
    }
    text_bytes(memory.limit_bytes, limit, sizeof limit);
    text_bytes(memory.left_bytes, left, sizeof left);
    bool is_short = memory.left_bytes < SERVICE_LEAST_BYTES;
    doctor_say(checks, "memory", is_short ? VIEW_WARN : VIEW_OK,
               is_short ? "raise the limit (memory.max, --memory of a container, limits.memory of "
                          "a pod) before a service starts here"
                        : NULL,
               "the cgroup grants %s of memory, of which %s are free (%s); a service stores "
               "parameters and moments there, a worker the tensors that lanes read",
               limit, left, memory.file);
}

static void check_absent_pages(struct view_checks *checks)
{
    if (shm_absent_can_fail())
        doctor_say(checks, "lent-pages", VIEW_OK, NULL,
                   "lanes need not check the pages that workers lend");
    else
        doctor_say(checks, "lent-pages", VIEW_WARN,
                   "allow userfaultfd in the seccomp profile of the service; Linux 5.14 or later",
                   "the system call userfaultfd is refused: lanes check lent memory before each "
                   "use, which costs CPU time");
}

void doctor_memory(struct view_checks *checks, const char *root)
{
    check_limit(checks, root);
    check_absent_pages(checks);
}
