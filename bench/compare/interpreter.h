/* Workers that are a program in Python, beside this one in the build folder. */
#ifndef GRADPOOL_BENCH_INTERPRETER_H
#define GRADPOOL_BENCH_INTERPRETER_H

#include "bench/compare/crew.h"

/* They find the service, and of the build that this program is of package and library. */
void interpreter_prepare(const struct service *service);
/* Its arguments: the crew's address, number of workers, the system's name, the job's. Negative
 * errno, with a text on standard error. */
int interpreter_start(struct crew *crew, const char *script);

#endif
