/* Workers that are Python programs, in the same build folder as this program. */
#ifndef GRADPOOL_BENCH_INTERPRETER_H
#define GRADPOOL_BENCH_INTERPRETER_H

#include "bench/compare/crew.h"

/* Sets environment variables of the workers: endpoint of the service, package and library of this
 * build. */
void interpreter_prepare(const struct service *service);
/* Starts workers with the crew's address, number of workers, system and job as arguments. Returns a
 * negative errno, with a text on standard error. */
int interpreter_start(struct crew *crew, const char *script);

#endif
