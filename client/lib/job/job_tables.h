/* The tables of a job: terms, routes, and the state of each lane that serves shards. The job's lock
 * protects all fields, unless a comment names another owner. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_JOB_TABLES_H
#define GRADPOOL_CLIENT_LIB_JOB_JOB_TABLES_H

#include "client/gradpool_table.h"
#include "client/lib/job/job.h"
#include "client/lib/table/exchange.h"
#include "svc/wire/table/table_terms.h"

/* A lane with shards of the job's tables, and the newest records that were sent to the lane.
 * Shards that a promotion brings to the lane have a group of their own, and another struct
 * table_lane. */
struct table_lane {
    struct list node; /* node in job_tables.lanes */
    uint32_t lane, group;
    /* successor of the lane, while new routes are handled; next_lane 0: no change */
    uint32_t next_lane, next_group;
    struct link *fence; /* connection that must end before anything is sent; NULL: none */
    bool must_stand;    /* the requests must be repeated, followed by the standing of this rank */
    uint32_t stood;     /* number of tables for which the standing was sent */
    /* the connection has ended, and the coordinator will name a successor or fail the tables */
    bool is_orphan;
    uint64_t sequence; /* number of the last request that was sent to the lane */
    uint64_t clock;    /* last clock whose end was sent to the lane */
    uint64_t change;   /* number of the last change of settings that was sent to the lane */
    bool is_unsent;    /* records wait for room in the send queue; counted in job.unsent */
    /* a query was sent; the lane has no pieces, and an answer shows that the lane keeps the
     * connection */
    bool was_probed;
    bool is_lost; /* the connection has ended, so the shards of the lane are lost */
};

/* Settings that were not sent to every lane yet. */
struct table_change {
    struct list node; /* node in job_tables.changes or .spare_changes */
    uint64_t number;  /* from 1, in the order of the calls */
    uint64_t clock;   /* first clock with these settings */
    struct gp_table *table;
    struct record_row_settings settings;
};

struct job_stage;
struct row_pool;

/* Errors that a later call returns; code 0: none. */
struct row_errors {
    struct err copied; /* first error, since the last gp_clock(), of a push without a request */
    /* limit of table memory that is reached, so that pushes wait in the service */
    struct err lack;
};

/* Use of the routes of all tables. A promotion changes the routes. */
struct route_use {
    uint64_t changes_count; /* number of the newest change of settings */
    /* number of threads that use the routes without the lock, to lay out requests; the routes
     * change only while this number is 0 */
    uint32_t laying;
    /* a promotion waits to change the routes, so no further thread begins to lay out a request */
    bool is_changing;
    pthread_cond_t laid; /* signalled when `laying` or `is_changing` has changed */
    /* changes of settings are kept after they are sent, because lanes have copies and a successor
     * may need the changes */
    bool keeps_changes;
};

struct job_tables {
    struct list tables; /* gp_table.node, by ascending number */
    struct list lanes;  /* table_lane.node */
    struct table_exchanges exchanges;
    struct worker_clock clock;
    struct list changes, spare_changes; /* table_change.node */
    struct list calls;                  /* row_call.node: calls that have not ended, in order */
    struct row_pool *pool;              /* lent memory of calls */
    struct job_stage *stage;            /* stage/stage.h; NULL: no call on stages was made */
    struct row_errors *errors;
    struct route_use *use;
};

struct gp_table {
    struct gp_job *job;
    struct list node; /* node in job_tables.tables */
    char name[TABLE_TERMS_NAME_BYTES_MAX + 1];
    struct table_terms *terms; /* terms with all defaults filled in; allocated with the table */
    struct table_route route;
    /* values from the terms; if the terms inherit the consistency, values from the stage */
    uint32_t consistency, staleness;
    gp_row_settings *settings; /* settings of the last gp_table_set(), if has_settings */
    bool has_settings;
    struct err failure;  /* permanent failure; code 0: the table has not failed */
    struct list batches; /* gp_batch.node */
};

#define for_each_table(t, job) \
    if ((job)->tables)         \
        list_for_each_entry (struct gp_table, t, &(job)->tables->tables, node)

/* Creates the job's tables at the first call. -ENOMEM. */
int job_tables_create(struct gp_job *job);
/* Frees tables, batches and calls. The connections are closed, and no request is left. */
void job_tables_free(struct gp_job *job);

/* Returns -EINVAL for NULL, otherwise the result of job_check(). */
int job_table_check(const struct gp_table *t);
/* job_table_find() finds a table by its name, job_table_find_number() by the coordinator's number.
 * NULL: no such table. */
struct gp_table *job_table_find(const struct gp_job *job, const char *name);
struct gp_table *job_table_find_number(const struct gp_job *job, uint32_t number);
/* Adds a table, which then owns `route`. A table with shards on a lost lane fails at once.
 * -ENOMEM. */
int job_table_add(struct gp_job *job, const char *name, const struct table_terms *terms,
                  struct table_route *route, struct gp_table **ret_table);
/* Fails the table permanently, and its open requests. Their memory stays lent until the lanes have
 * answered. Further failures are ignored. */
void job_table_break(struct gp_table *t, int code, const char *text);

/* Finds the state of a lane and group; NULL: no table has such a shard there. */
struct table_lane *job_tables_lane(const struct gp_job *job, uint32_t lane, uint32_t group);
/* Returns whether a table of the job has shards on a lane that is not lost. */
bool job_tables_are_on(const struct gp_job *job, uint32_t lane);
bool job_table_is_on(const struct gp_table *t, uint32_t lane);
/* Like job_table_is_on(), for shards with this group. */
bool job_table_has(const struct gp_table *t, uint32_t lane, uint32_t group);
/* Returns whether other lanes have copies of the job's tables, so that these tables survive the
 * loss of a lane. All tables of a job agree in this. */
bool job_tables_are_copied(const struct gp_job *job);
/* Sets whether records wait for room in the lane's send queue. */
void table_lane_set_unsent(struct gp_job *job, struct table_lane *lane, bool is_unsent);
/* Fails the tables with shards on a lane that gets no more records. The error is `code`, or
 * -EOWNERDEAD if `code` is 0: the rows are then lost with the lane, unless other lanes have copies;
 * then the tables wait for the coordinator. `name`: text about the lane.
 * Memory of calls stays lent, because the lane may still use it. */
void job_tables_fail_lane(struct gp_job *job, uint32_t lane, int code, const char *name);
/* Ends the parts of all calls on a lane. Called when the lane can no longer use the memory of
 * calls. Does nothing if the lane has not failed. */
void job_tables_end_lane(struct gp_job *job, uint32_t lane, int code, const char *text);
/* Handles the end of the connection to a lane: job_tables_fail_lane(), then
 * job_tables_end_lane(). */
void job_tables_lose(struct gp_job *job, uint32_t lane, int code, const char *name);

#endif
