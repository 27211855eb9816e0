/* Workers that are a program in Python, beside this one in the build folder. */
#ifndef GRADPOOL_BENCH_INTERPRETER_H
#define GRADPOOL_BENCH_INTERPRETER_H

#include "bench/compare/crew.h"

/* Sets the environment in which workers find the service, and package and library of this build. */
void interpreter_prepare(const struct service *service);
/* Passes the crew's address, number of workers, system and job as arguments. Returns a negative
 * errno, with a text on standard error. */
int interpreter_start(struct crew *crew, const char *script);

#endif
