/* Copies the rows of a table between lanes and a file, through the coordinator. Used by the command
 * of an operator and by a worker. README: D3, D4. */
#ifndef GRADPOOL_STATE_TABLE_FETCH_H
#define GRADPOOL_STATE_TABLE_FETCH_H

#include "svc/channel/channel.h"
#include "svc/state/table_file.h"

/* A copy. The caller sets the first fields and owns their memory; all other fields are zeros. */
struct table_fetch {
    struct channel *channel;  /* connection to the coordinator as an operator */
    const char *job, *tenant; /* tenant "": any tenant */
    const char *table, *path;
    uint64_t rows, clock;      /* results: rows that were copied; clock of the table */
    bool has_asked, has_begun; /* a request was sent; the lanes have begun to hold the table */
    /* private */
    envelope *begun;
    const Gradpool__Wire__TableFileReply *what; /* the reply to the first request */
    char *part;                                 /* memory of one part */
    uint64_t largest_key;
};

/* Writes the rows to the file, complete or not at all. The lanes hold the table at one clock
 * meanwhile. Returns 0, or an error with a text: errors of writing the file, refusals of the
 * coordinator, and the errors of channel_call(). */
int table_fetch_export(struct table_fetch *f, struct err *err);
/* Stores the rows of the file in the table, which has no rows. The whole file is checked before the
 * first request. Returns 0, or an error with a text: those of table_file_open(); -EINVAL, -ERANGE
 * the rows do not fit the table; otherwise as table_fetch_export(). If an import ends after its
 * first rows, the job fails. */
int table_fetch_import(struct table_fetch *f, struct err *err);
#define TABLE_FETCH_HOLD_TIMEOUT_MS 30000 /* longest wait until all lanes hold their tables */
#define TABLE_FETCH_PART_TIMEOUT_MS 20000 /* longest wait for each further answer */

/* Sends one request, and waits for the answer, which the caller frees. Errors with a text: refusals
 * of the coordinator, and those of channel_call(). */
int table_fetch_ask(struct channel *channel, Gradpool__Wire__TableFileRequest *request,
                    int timeout_ms, envelope **ret_reply, struct err *err);
/* Frees the memory of a copy, also of one that has failed. Does not close the channel. */
void table_fetch_free(struct table_fetch *f);

#endif
