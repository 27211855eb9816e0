/* An export or import in progress. Private to this room. */
#ifndef GRADPOOL_COORDINATOR_FILING_INTERNAL_H
#define GRADPOOL_COORDINATOR_FILING_INTERNAL_H

#include "svc/coordinator/filing/filing.h"
#include "svc/coordinator/service.h"

/* A lane with shards of a table. A lane with shards of several tables, or with several groups of
 * shards of one table, has an entry for each. */
struct filing_lane {
    uint32_t lane;
    uint32_t group; /* group of the shards (job_shard.group) */
    uint32_t place; /* index of the table in filing.tables->each */
    bool is_held, any_clock;
    /* values from the lane's last reply to a request to hold the table */
    uint64_t clock, steps, count;
};

/* A table that is exported or imported. */
struct filing_table {
    uint32_t table;
    /* values over all lanes, once all lanes hold the table */
    uint64_t clock, steps, count;
};

struct filing_tables {
    uint32_t count;
    struct filing_table each[];
};

struct filing {
    struct list link; /* node in works.filings */
    struct peer *peer;
    uint64_t id, request; /* request: number of the open request of the operator or rank; 0: none */
    uint32_t job;
    struct filing_tables *tables;
    bool is_import;
    bool is_between; /* requested by a rank; all other ranks wait until the export or import ends */
    bool is_ready;   /* all lanes hold all tables, those with BSP at `clock` */
    uint32_t turn;   /* number of the last group of calls; earlier replies are ignored */
    uint32_t pending; /* number of unanswered calls of this group */
    uint64_t clock;
    /* time of the request; from is_ready on, time at which all lanes held the tables */
    uint64_t since_ns;
    struct timer timer;
    /* place: index of the table whose rows are transferred now. shard: next shard of an export. */
    uint32_t place, shard;
    uint64_t from;
    struct filing_part *part; /* rows.c: part of an import that is being written; NULL: none yet */
    size_t lanes_count;
    struct filing_lane lanes[];
};

/* Context of a call. */
struct filing_asked {
    uint64_t filing;
    uint32_t turn;
    size_t at; /* index of the lane */
};

/* ---- filing.c ---- */

/* Returns the export or import to which a reply belongs; NULL: the export or import has ended, or
 * the reply belongs to an earlier group of calls. */
struct filing *filing_of(struct service *s, const struct filing_asked *asked);
/* Returns the table whose rows are transferred now, or the table with index `place`; NULL: the job
 * or the table no longer exists. */
struct job_table *filing_table(const struct filing *f);
struct job_table *filing_table_at(const struct filing *f, uint32_t place);
/* Sends a request to the lane with index `at`, and adds the call to `pending`. Returns the errors
 * of call_send(), or -ENOENT if the lane no longer exists. */
int filing_call(struct filing *f, size_t at, WIRE(TableBulk) message, call_done_fn done);
/* Answers the open request. */
void filing_answer(struct filing *f, WIRE(TableFileReply) reply);
/* Ends the hold on all lanes, answers the open request with the error, and frees the object. */
void filing_break(struct filing *f, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Starts the timer that limits the time until the next request: 5 s for an operator, 60 s for a
 * rank. */
void filing_await(struct filing *f);
void filing_free(struct filing *f);

/* ---- hold.c ---- */

/* Sends requests to all lanes to hold the tables, until all lanes hold them, those with BSP at one
 * clock. */
void filing_hold(struct filing *f);

/* ---- rows.c ---- */

/* Answers the open request with the next rows. */
void filing_read(struct filing *f);
/* Sends rows of an import to the lanes of their shards. */
void filing_write(struct filing *f, const ProtobufCBinaryData *rows);
/* Ends the hold on all lanes, then answers the open request and frees the object. `steps`: number
 * of updates of each table of an import. */
void filing_end(struct filing *f, const uint64_t *steps);

#endif
