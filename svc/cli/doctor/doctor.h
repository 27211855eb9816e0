/* The parts of `gradpool doctor`: each looks at one side of a user's place and says what it found.
 * None takes longer than some seconds, whatever is wrong. */
#ifndef GRADPOOL_CLI_DOCTOR_DOCTOR_H
#define GRADPOOL_CLI_DOCTOR_DOCTOR_H

#include "svc/cli/cli.h"
#include "svc/cli/options/knobs.h"
#include "svc/view/checks.h"

/* `advice` NULL: nothing is to be done. */
void doctor_say(struct view_checks *checks, const char *name, enum view_verdict verdict,
                const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The limits and devices of this host: clock, open files, locked memory, /dev/shm, memfd, pidfd,
 * futex. */
void doctor_host(struct view_checks *checks);
/* The cores that lanes may have, against what the cgroup lets them run. */
void doctor_cores(struct view_checks *checks, const struct cli_machine *machine);
/* The memory that the cgroup lets a service, or a worker, hold, and who pays for what is lent. */
void doctor_memory(struct view_checks *checks);
/* A connection from this process to itself over each transport. */
void doctor_fabrics(struct view_checks *checks);
/* Whether the python3 of PATH finds the package, of this version; and that of the system, if it is
 * another. */
void doctor_python(struct view_checks *checks, const char *version);
/* Version, commit, protocol and compiler; the kernels of this machine, those in use first. */
void doctor_build(struct view_checks *checks, const struct view_build *build);
/* Whether the libraries that the loader found will do. */
void doctor_libraries(struct view_checks *checks, const struct view_build *build);
/* Whether the first version can stand for the second: the same first number, and not older. */
bool doctor_version_fits(const char *running, const char *built);
/* The service at that endpoint; NULL: none was named. */
void doctor_service(struct view_checks *checks, const char *endpoint);

extern const struct knob doctor_knobs[];

#endif
