/* Checks of `gradpool doctor`. Each function adds its results to `checks`, and returns after some
 * seconds at most, even if there is a fault. */
#ifndef GRADPOOL_CLI_DOCTOR_DOCTOR_H
#define GRADPOOL_CLI_DOCTOR_DOCTOR_H

#include "svc/cli/cli.h"
#include "svc/cli/options/knobs.h"
#include "svc/view/checks.h"

/* Adds a result. `advice` is NULL if there is nothing to do. */
void doctor_say(struct view_checks *checks, const char *name, enum view_verdict verdict,
                const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Checks limits and devices of this host: clock, open files, locked memory, /dev/shm, memfd, pidfd,
 * futex. */
void doctor_host(struct view_checks *checks);
/* Compares the cores that lanes may use with the CPU time of the cgroup. */
void doctor_cores(struct view_checks *checks, const struct cli_machine *machine);
/* Compares the memory that the cgroup allows with the needs of a service, and checks whether lanes
 * can leave missing pages of workers to the workers' cgroup. `root`: as for cgroup_memory(). */
void doctor_memory(struct view_checks *checks, const char *root);
/* Connects this process to itself over each transport. */
void doctor_fabrics(struct view_checks *checks);
/* Checks that the first python3 in PATH finds the package in this version. The system's python3 is
 * checked as well if it is a different one. */
void doctor_python(struct view_checks *checks, const char *version);
/* Shows version, commit, protocol and compiler, and the kernels of this machine; the kernels in use
 * come first. */
void doctor_build(struct view_checks *checks, const struct view_build *build);
/* Checks that the loaded libraries are compatible with this build. */
void doctor_libraries(struct view_checks *checks, const struct view_build *build);
/* Returns whether version `running` can replace version `built`: the major number is the same, and
 * the version is not older. */
bool doctor_version_fits(const char *running, const char *built);
/* Checks the service at `endpoint`; NULL: no endpoint is set. */
void doctor_service(struct view_checks *checks, const char *endpoint);

extern const struct knob doctor_knobs[];

#endif
