/* Compares the number of cores that hwloc finds with the CPU time of the cgroup, which hwloc
 * ignores. If the cgroup allows less CPU time than the lanes need, the kernel stops lanes in the
 * middle of rounds. */
#include "svc/base/system/cgroup.h"
#include "svc/cli/doctor/doctor.h"

void doctor_cores(struct view_checks *checks, const struct cli_machine *machine)
{
    size_t count;
    struct err err;
    double granted = cgroup_cores("");
    if (machine->cores(&count, &err) < 0)
        doctor_say(checks, "cores", VIEW_FAIL, "see taskset -p, and cpuset.cpus of the cgroup",
                   "this process has no core for lanes: %s", err.text);
    else if (granted > 0 && granted < (double)count)
        doctor_say(checks, "cores", VIEW_WARN,
                   "raise the limit (cpu.max, --cpus of a container), or name fewer with --cores",
                   "%zu core%s for lanes, but the cgroup grants the CPU time of %.2g: the kernel "
                   "will stop lanes in the middle of rounds",
                   count, count == 1 ? "" : "s", granted);
    else
        doctor_say(checks, "cores", VIEW_OK, NULL, "%zu core%s for lanes; %s", count,
                   count == 1 ? "" : "s",
                   granted > 0 ? "the cgroup grants their whole time"
                               : "no cgroup limits their time");
}
