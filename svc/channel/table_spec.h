/* Converts terms of a table to a message and back. */
#ifndef GRADPOOL_CHANNEL_TABLE_SPEC_H
#define GRADPOOL_CHANNEL_TABLE_SPEC_H

#include "svc/channel/channel.h"
#include "svc/wire/table/table_terms.h"

/* Returns the terms as sent. They are not checked. */
struct table_terms table_spec_terms(const Gradpool__Wire__TableSpec *spec);
/* Returns a message that points to `name`. */
Gradpool__Wire__TableSpec table_spec_of(const struct table_terms *terms, const char *name);

#endif
