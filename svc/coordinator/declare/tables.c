/* Checks the tables of a declare, and refuses them, because nothing places shards yet. Owns no
 * state. */
#include "svc/coordinator/declare/tables.h"

#include "svc/wire/table/table_terms.h"

#include <errno.h>

static struct table_terms table_terms_of(const Gradpool__Wire__TableSpec *spec)
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

static int table_check(const Gradpool__Wire__TableSpec *spec, struct err *err)
{
    struct table_terms terms = table_terms_of(spec);
    int error = table_terms_check_name(spec->name, err);
    return error < 0 ? error : table_terms_check(&terms, spec->name, err);
}

int tables_refuse(const Gradpool__Wire__DeclareRequest *declare, const char *job, struct err *err)
{
    for (size_t i = 0; i < declare->n_tables; i++) {
        int error = table_check(declare->tables[i], err);
        if (error < 0)
            return error;
    }
    if (declare->n_tables == 0)
        return 0;
    return err_set(err, -EOPNOTSUPP,
                   "table '%s' of job %s: this version of the service serves no tables; declare "
                   "dense tensors, or start a newer service",
                   declare->tables[0]->name, job);
}
