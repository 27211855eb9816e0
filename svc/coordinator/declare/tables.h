/* Tables of a declare. */
#ifndef GRADPOOL_COORDINATOR_DECLARE_TABLES_H
#define GRADPOOL_COORDINATOR_DECLARE_TABLES_H

#include "svc/channel/channel.h"

/* Checks the tables of a declare. Returns 0 without tables; -EINVAL: a name or a term is not valid;
 * -EOPNOTSUPP: nothing places shards yet. Errors have a text. */
int tables_refuse(const Gradpool__Wire__DeclareRequest *declare, const char *job, struct err *err);

#endif
