/* Terms of a table in messages. Checks nothing: table_terms_check() does. */
#include "svc/channel/table_spec.h"

struct table_terms table_spec_terms(const Gradpool__Wire__TableSpec *spec)
{
    return (struct table_terms){.dim = spec->dim,
                                .shards = spec->shards,
                                .dtype = spec->dtype,
                                .wire = spec->wire,
                                .keys = spec->keys,
                                .rows_hint = spec->rows_hint,
                                .rule = spec->rule,
                                .combine = spec->combine,
                                .initial_value = spec->initial_value,
                                .seed = spec->seed,
                                .initial = spec->initial,
                                .consistency = spec->consistency,
                                .staleness = spec->staleness,
                                .durability = spec->durability,
                                .flags = spec->flags};
}

Gradpool__Wire__TableSpec table_spec_of(const struct table_terms *terms, const char *name)
{
    return MESSAGE_PART(TableSpec, table_spec, .name = (char *)name, .dim = terms->dim,
                        .shards = terms->shards, .dtype = terms->dtype, .wire = terms->wire,
                        .keys = terms->keys, .rows_hint = terms->rows_hint, .rule = terms->rule,
                        .combine = terms->combine, .initial = terms->initial,
                        .initial_value = terms->initial_value, .seed = terms->seed,
                        .consistency = terms->consistency, .staleness = terms->staleness,
                        .durability = terms->durability, .flags = terms->flags);
}
