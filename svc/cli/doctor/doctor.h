/* The checks of `gradpool doctor`: each adds its results to `checks`. None takes longer than some
 * seconds, whatever the fault. */
#ifndef GRADPOOL_CLI_DOCTOR_DOCTOR_H
#define GRADPOOL_CLI_DOCTOR_DOCTOR_H

#include "svc/cli/cli.h"
#include "svc/cli/options/knobs.h"
#include "svc/view/checks.h"

/* Adds a result; `advice` NULL: nothing to do. */
void doctor_say(struct view_checks *checks, const char *name, enum view_verdict verdict,
                const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The limits and devices of this host: clock, open files, locked memory, /dev/shm, memfd, pidfd,
 * futex. */
void doctor_host(struct view_checks *checks);
/* The cores that lanes may have, compared with the CPU time of the cgroup. */
void doctor_cores(struct view_checks *checks, const struct cli_machine *machine);
/* The memory that the cgroup allows a service, or a worker, and the cgroup that lent memory counts
 * for. */
void doctor_memory(struct view_checks *checks);
/* A connection from this process to itself over each transport. */
void doctor_fabrics(struct view_checks *checks);
/* Checks that the python3 of PATH finds the package, of this version; and the system's python3,
 * if it is another. */
void doctor_python(struct view_checks *checks, const char *version);
/* Version, commit, protocol and compiler; the kernels of this machine, those in use first. */
void doctor_build(struct view_checks *checks, const struct view_build *build);
/* Checks that the libraries that the loader found are good enough. */
void doctor_libraries(struct view_checks *checks, const struct view_build *build);
/* True when version `running` can replace `built`: the same major number, and not older. */
bool doctor_version_fits(const char *running, const char *built);
/* Checks the service at that endpoint; NULL: no endpoint was given. */
void doctor_service(struct view_checks *checks, const char *endpoint);

extern const struct knob doctor_knobs[];

#endif
