/* Copies the rows of all tables of a job between lanes and the file of a snapshot, through the
 * coordinator. The lanes hold all tables until the last row, those with BSP at one clock. Used by
 * the command of an operator and by a rank. README: D3, D5. */
#ifndef GRADPOOL_STATE_TABLES_TABLES_COPY_H
#define GRADPOOL_STATE_TABLES_TABLES_COPY_H

#include "svc/channel/channel.h"
#include "svc/state/state_write.h"

/* A copy. The caller sets the first fields and owns their memory; all other fields are zeros. */
struct tables_copy {
    struct channel *channel;  /* connection to the coordinator as an operator */
    const char *job, *tenant; /* tenant "": any tenant */
    /* true: a rank copies while all other ranks wait, so the coordinator permits 60 s between two
     * requests instead of 5 s, and sets no limit for the whole copy */
    bool is_between;
    /* tables with BSP are held at this clock, or at any clock if 0; result: clock of these
     * tables */
    uint64_t clock;
    /* results: number of tables, and of rows that were copied */
    uint64_t tables, rows;
    /* private */
    envelope *begun;              /* the reply to the first request; NULL: none yet */
    size_t at;                    /* index of the table that is copied now */
    struct tables_target *target; /* state of an export */
    struct tables_source *source; /* content of the file of an import */
};

/* Makes the lanes hold all tables. Returns 0, or an error with a text: refusals of the coordinator,
 * and the errors of channel_call(). */
int tables_export_begin(struct tables_copy *c, struct err *err);
/* Writes rows until `until_ns`, but at least one part. Returns 1 if rows are left; 0: all rows are
 * written, and the tables continue; or an error with a text. */
int tables_export_some(struct tables_copy *c, struct state_writer *w, uint64_t until_ns,
                       struct err *err);

/* Reads rows of the file until `until_ns`, but at least one part, without a request. Returns 1 if
 * rows are left; 0: all rows have been read once; or an error with a text: -EBADMSG, -EPROTO as
 * table_file_open(), -ENOMEM, or errors of read(2). `f` must be valid until tables_copy_free(). */
int tables_import_check(struct tables_copy *c, const struct state_file *f, uint64_t until_ns,
                        struct err *err);
/* Makes the lanes hold all tables, which have no rows, and compares them with the file. Returns 0,
 * or an error with a text: -EINVAL the job has other tables than the file, or tables with other
 * rows; -ERANGE a key beyond the bound of its table; -EEXIST a table has rows; -EDQUOT the rows do
 * not fit into a limit; others as tables_export_begin(). After an error no row has changed. */
int tables_import_begin(struct tables_copy *c, struct err *err);
/* Stores rows until `until_ns`, but at least one part. Returns as tables_export_some(). If the copy
 * ends early, and has stored rows, the job fails. */
int tables_import_some(struct tables_copy *c, uint64_t until_ns, struct err *err);

/* Frees the memory of a copy, also of one that has failed. Does not close the channel. */
void tables_copy_free(struct tables_copy *c);

#endif
