/* What is compared. */
#ifndef GRADPOOL_BENCH_SYSTEMS_H
#define GRADPOOL_BENCH_SYSTEMS_H

#include "bench/compare/crew.h"

#define SYSTEMS_MAX 16

/* In the order they are run and shown in; the last has a NULL name. */
extern const struct system systems[];
/* Of a row that is there. */
const struct system *system_find(const char *name, const char *transport);

/* Starts workers that are processes of gradpool over `transport`, with the gradient in plain memory
 * if `is_foreign`. */
int gradpool_start(struct crew *crew, const char *transport, bool is_foreign);
int sockets_start(struct crew *crew);

#endif
