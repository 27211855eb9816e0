/* The checks of `gradpool doctor`. Each function adds its results to `checks`, and takes some
 * seconds at most, whatever the fault. */
#ifndef GRADPOOL_CLI_DOCTOR_DOCTOR_H
#define GRADPOOL_CLI_DOCTOR_DOCTOR_H

#include "svc/cli/cli.h"
#include "svc/cli/options/knobs.h"
#include "svc/view/checks.h"

/* Adds a result. `advice` NULL: nothing has to be done. */
void doctor_say(struct view_checks *checks, const char *name, enum view_verdict verdict,
                const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Checks limits and devices of this host: clock, open files, locked memory, /dev/shm, memfd, pidfd,
 * futex. */
void doctor_host(struct view_checks *checks);
/* Compares the cores that lanes may use with the CPU time of the cgroup. */
void doctor_cores(struct view_checks *checks, const struct cli_machine *machine);
/* Checks the memory that the cgroup allows a service or a worker, and the cgroup to which lent
 * memory is charged. */
void doctor_memory(struct view_checks *checks);
/* Connects this process to itself over each transport. */
void doctor_fabrics(struct view_checks *checks);
/* Checks that the python3 in PATH finds the package in this version, and so does the system's
 * python3 if it is another one. */
void doctor_python(struct view_checks *checks, const char *version);
/* Shows version, commit, protocol and compiler, and the kernels of this machine, beginning with
 * those in use. */
void doctor_build(struct view_checks *checks, const struct view_build *build);
/* Checks that the loader found libraries that fit this build. */
void doctor_libraries(struct view_checks *checks, const struct view_build *build);
/* Returns true when version `running` can replace version `built`: it has the same major number and
 * is not older. */
bool doctor_version_fits(const char *running, const char *built);
/* Checks the service at `endpoint`. NULL: no endpoint was given. */
void doctor_service(struct view_checks *checks, const char *endpoint);

extern const struct knob doctor_knobs[];

#endif
