/* Cores as hwloc counts them, and the CPU time that cgroups grant, which hwloc does not see: a lane
 * a core, more of them than may run at once, would be stopped in the middle of a round. */
#include "svc/cli/doctor.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_LINE_BYTES 4096

/* One line of a file; false: it is not there. */
static bool read_line(const char *path, char *line, size_t line_bytes)
{
    FILE *file = fopen(path, "re");
    bool is_read = file && fgets(line, (int)line_bytes, file);
    if (file)
        fclose(file);
    return is_read;
}

/* "50000 100000", or "max 100000". 0: no limit. */
static double unified_limit(const char *folder)
{
    char path[2 * PATH_MAX], line[128];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2)
        return 0;
    return period > 0 ? quota / period : 0;
}

/* Of version 1: a file each, and -1 for no limit. */
static double legacy_limit(const char *folder)
{
    char path[2 * PATH_MAX], quota[64], period[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    bool has_both = read_line(path, quota, sizeof quota);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    has_both = has_both && read_line(path, period, sizeof period);
    if (!has_both || strtod(quota, NULL) <= 0 || strtod(period, NULL) <= 0)
        return 0;
    return strtod(quota, NULL) / strtod(period, NULL);
}

/* The least of a cgroup and all above it; a container may see a path that is not mounted in it,
 * and then finds its own at the top. */
static double limit_along(const char *mount, char *path, double (*limit_of)(const char *folder))
{
    double least = 0;
    for (;;) {
        char folder[2 * PATH_MAX];
        snprintf(folder, sizeof folder, "%.*s%s", PATH_MAX, mount, path);
        double limit = limit_of(folder);
        if (limit > 0 && (least <= 0 || limit < least))
            least = limit;
        char *slash = strrchr(path, '/');
        if (!slash || !*path)
            return least;
        *slash = '\0';
    }
}

/* "0::/a/b", or "4:cpu,cpuacct:/a/b". */
static double limit_of_line(const char *root, char *line)
{
    char mount[PATH_MAX];
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return 0;
    *path++ = '\0';
    bool is_unified = controllers[1] == '\0';
    if (!is_unified && strcmp(controllers, ":cpu") != 0 && !strstr(controllers, ":cpu,") &&
        !strstr(controllers, ",cpu,"))
        return 0;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, is_unified ? "" : "/cpu");
    return limit_along(mount, path, is_unified ? unified_limit : legacy_limit);
}

double doctor_cgroup_cores(const char *root)
{
    char path[PATH_MAX], line[CGROUP_LINE_BYTES];
    double least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        double limit = limit_of_line(root, line);
        if (limit > 0 && (least <= 0 || limit < least))
            least = limit;
    }
    if (file)
        fclose(file);
    return least;
}

void doctor_cores(struct view_checks *checks, const struct cli_machine *machine)
{
    size_t count;
    struct err err;
    double granted = doctor_cgroup_cores("");
    if (machine->cores(&count, &err) < 0)
        doctor_say(checks, "cores", VIEW_FAIL, "see taskset -p, and cpuset.cpus of the cgroup",
                   "no core for lanes: %s", err.text);
    else if (granted > 0 && granted < (double)count)
        doctor_say(checks, "cores", VIEW_WARN,
                   "raise the limit (cpu.max, --cpus of a container), or name fewer with --cores",
                   "%zu core%s for lanes, but the cgroup grants the time of %.2g: lanes will be "
                   "stopped in mid-round",
                   count, count == 1 ? "" : "s", granted);
    else
        doctor_say(checks, "cores", VIEW_OK, NULL, "%zu core%s for lanes; %s", count,
                   count == 1 ? "" : "s",
                   granted > 0 ? "the cgroup grants as much" : "no cgroup limits their time");
}
