/* libgradpool for models with keyed rows: embeddings, word vectors, sparse linear models. Installed
 * beside gradpool.h, whose rules of errors, threads and time apply.
 *
 * A table maps 64-bit keys to rows of `dim` values. The lanes of the service store the rows and
 * update them. Each worker pulls the rows that it needs and pushes gradients of rows. The design
 * follows the tables of FlexPS (PVLDB 11(5), 2018) as far as they are public.
 *
 * Clocks: an iteration of a worker over all its tables is a clock, counted from 1. gp_clock() ends
 * the clock. A table is bulk synchronous (GP_BSP), unless its declaration says otherwise:
 *
 *   a push  of clock c is applied when every rank has ended clock c. Each row gets one update from
 *           the sum of the gradients of all ranks: in the order of ranks, then of pushes, then of
 *           positions. So rows have the same bits in every run, whatever the number of shards and
 *           lanes.
 *   a pull  in clock c returns the rows after the update of clock c - 1, without pushes of clock c.
 *           The pull waits until all ranks have ended clock c - 1.
 *
 * With GP_SSP and GP_ASP each push is an update of its own, applied on arrival. A pull returns rows
 * with all earlier pushes of this rank, and perhaps with later pushes of other ranks, so bits
 * depend on the order of arrival. With GP_SSP a pull in clock c waits until every rank has ended
 * clock c - 1 - staleness, and its rows have all pushes up to that clock. With GP_ASP a pull never
 * waits, and gp_clock() is optional.
 *
 * A worker:
 *
 *   gp_table_declare(job, &spec, &table)          every rank, before the first gp_clock()
 *   gp_table_set(table, &settings)                rank 0 at least
 *   for each step
 *       gp_batch_create(table, keys, count, &batch)
 *       gp_pull(batch, rows, &request), gp_wait(request, 0)
 *       gradients of the rows
 *       gp_push(batch, gradients, NULL)
 *       gp_batch_free(batch)
 *       gp_clock(job)
 *   gp_barrier(job, 0), gp_job_leave(job)
 *
 * Rows travel through shared memory or over the network, with the same bits. A worker whose
 * connection to a lane with a table ends counts as lost. A job with tables has a fixed number of
 * workers (no workers_max, no backup workers). In a job with GP_CONTINUE tables are GP_SSP or
 * GP_ASP, and after the loss of a worker no pull waits for that worker.
 * With durability GP_DURABILITY_REPLICA another aggregator has a copy of the rows. If an aggregator
 * ends, the copy continues, once it is whole; otherwise tables with rows on this aggregator fail on
 * every rank with -EOWNERDEAD.
 *
 * gp_job_snapshot() and gp_job_restore() include all tables: keys, values, moments and step counts,
 * but no clocks and no settings. All ranks call them after the same gp_clock() (-EINVAL); pushes of
 * a clock that has not ended are refused (-EBUSY). With GP_BSP the restored job continues to the
 * same bits; other tables are saved between two requests. Shards, lanes and ranks may differ. A
 * restore needs the tables of the file, declared with the same rows (-EINVAL, -ERANGE) and without
 * rows (-EEXIST). Rows that exceed a limit of table memory are refused (-EDQUOT). These errors come
 * before any change; if the copy of the rows ends early, the job fails.
 * gp_table_export() writes one table to a file of its own. */
#ifndef GRADPOOL_TABLE_H
#define GRADPOOL_TABLE_H

#include "gradpool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gp_table gp_table; /* a table of a job, until gp_job_leave() */
typedef struct gp_batch gp_batch; /* keys of a table that are pulled and pushed together */

/* Update of a row by its gradient. A row without a gradient keeps its bits and the bits of its
 * moments.
 *
 *   GP_ROW_SGD          torch.optim.SGD without momentum
 *   GP_ROW_ADAGRAD      torch.optim.Adagrad on sparse gradients: lr_decay 0, first sum 0
 *   GP_ROW_ADAGRAD_ONE  the same with one sum for the row: the mean of the squares of its gradient
 *                       (row-wise Adagrad of FBGEMM)
 *   GP_ROW_ADAM         torch.optim.SparseAdam; its step count is the clock
 *   GP_ROW_FTRL         FTRL-Proximal (McMahan et al., KDD 2013); initial values are GP_ZEROS
 *
 * Updates are computed in f32 and rounded once to the dtype of the rows; moments are f32. */
enum gp_row_rule {
    GP_ROW_SGD = 1,
    GP_ROW_ADAGRAD,
    GP_ROW_ADAGRAD_ONE,
    GP_ROW_ADAM,
    GP_ROW_FTRL,
};

/* Values of a row before its first update. The values depend only on seed, key and element (Philox
 * 4x32-10), so every process computes the same bits. `v`: gp_table_spec.initial_value. */
enum gp_initial {
    GP_ZEROS = 0,
    GP_CONSTANT, /* v */
    GP_UNIFORM,  /* between -v and v, both excluded */
    GP_NORMAL,   /* mean 0, standard deviation v; a sum of eight uniform values */
};

/* GP_INHERIT: the consistency of the stage (gradpool_stage.h), or GP_BSP in a job without stages.
 * GP_ROW_ADAM uses the clock of a push as its step count, so a GP_ASP table with this rule needs
 * gp_clock(). */
enum gp_consistency { GP_INHERIT = 0, GP_BSP, GP_SSP, GP_ASP };

#define GP_KEEP 1u             /* the table outlives its job; so far -EOPNOTSUPP */
#define GP_ACCEPT_NONFINITE 2u /* gradients with NaN or infinity update their rows, too */

/* Declaration of a table, the same on every rank. Fields that are 0 have the named default. */
typedef struct gp_table_spec {
    const char *name;    /* 1..255 bytes of UTF-8 without '/'; ranks match tables by name */
    uint32_t dim;        /* values of a row, 1..4096 */
    uint32_t shards;     /* parts of the table on lanes: a power of two, 1..4096; 0: 64 */
    enum gp_dtype dtype; /* stored values: GP_F32, GP_F16 or GP_BF16 */
    enum gp_dtype wire;  /* values of the caller; 0: `dtype`. `wire` or `dtype` is GP_F32 */
    uint64_t keys;       /* all keys are below this number; 0: any 64-bit key */
    uint64_t rows_hint;  /* expected number of rows; 0: unknown. May differ between ranks */
    enum gp_row_rule rule;
    enum gp_operation combine; /* GP_SUM, or GP_MEAN: divided by the number of ranks; 0: GP_SUM */
    enum gp_initial initial;
    double initial_value;
    uint64_t seed;
    enum gp_consistency consistency;
    uint32_t staleness; /* number of clocks for GP_SSP; otherwise 0 */
    /* GP_DURABILITY_REPLICA: another aggregator has a copy; 0 or GP_DURABILITY_NONE: none. All
     * tables of a job agree in this. */
    enum gp_durability durability;
    uint32_t flags; /* GP_KEEP, GP_ACCEPT_NONFINITE */
} gp_table_spec;

/* Declares a table. `spec` is copied. A repeated declaration on a rank returns the same handle.
 * Waits until all lanes of the table are connected, at most GRADPOOL_TIMEOUT_MS. All ranks declare
 * all tables before their first gp_clock(); a rank that never declares a table blocks the clocks of
 * all ranks.
 *
 * Errors: -EINVAL a field of `spec`, or ranks differ, which fails their job (the text has both);
 * -EEXIST another declaration of this rank has the name; -EBUSY a clock has ended; -EOPNOTSUPP a
 * property of job or table that this version does not serve; -ENOSPC, -EDQUOT no lane has room;
 * -ETIMEDOUT; -EOWNERDEAD the table has failed. */
GP_API int gp_table_declare(gp_job *job, const gp_table_spec *spec, gp_table **ret_table);

/* Settings of the updates of a table, all finite. A rule ignores the settings that it does not
 * use. */
typedef struct gp_row_settings {
    double rate; /* every rule; above 0 for GP_ROW_FTRL, else 0 or more */
    /* 0 or more; all rules but GP_ROW_FTRL add weight_decay x value to the gradient */
    double weight_decay;
    double beta1, beta2; /* GP_ROW_ADAM; 0 <= beta < 1 */
    double epsilon;      /* GP_ROW_ADAGRAD, _ADAGRAD_ONE, _ADAM; 0 or more */
    double beta, l1, l2; /* GP_ROW_FTRL; 0 or more */
} gp_row_settings;

/* Sets the settings of the updates from this clock on. The settings of the lowest rank are used;
 * calls of other ranks are checked and have no other effect. Does not wait. A clock with pushes and
 * without settings fails the job. Errors: -EINVAL a setting (the text names it); the error of a
 * failed table. */
GP_API int gp_table_set(gp_table *table, const gp_row_settings *settings);

/* Makes a batch of `count` keys, in any order; keys may occur several times. `keys` is copied and
 * sorted here, once for all pulls and pushes of the batch. Several threads may use a batch at one
 * time. Errors: -EINVAL a key is not below gp_table_spec.keys (the text has position and key);
 * -E2BIG too many keys for the requests that a lane stores: the limit is 127 x 2^20 keys, and lower
 * in a job of more than 64 workers. */
GP_API int gp_batch_create(gp_table *table, const uint64_t *keys, size_t count,
                           gp_batch **ret_batch);

/* Frees a batch. Requests in progress continue: call gp_wait() for each as usual. NULL is allowed.
 * gp_job_leave() frees all batches of the job. */
GP_API void gp_batch_free(gp_batch *batch);

/* Begins a pull in this clock. gp_wait() returns 0 when `rows` has `count` rows of `dim` values, in
 * the order of the keys of the batch. A key without a row gets the initial values; no row is
 * created. `rows` must stay valid until gp_wait() has ended the request. gp_wait() may end before
 * or after gp_clock(); the rows are the same.
 *
 * Errors: -EBUSY this rank has 127 open requests to the table on one lane (the limit is lower in a
 * job of more than 64 workers); wait for an earlier request. The error of a failed table or job.
 * gp_wait() returns -ETIMEDOUT if ranks have not ended the previous clock (the text has their
 * clocks): the request is still open; -EDQUOT at its deadline if pushes wait because a limit of
 * table memory is reached (the text has the limit): the request is still open, and continues when
 * there is room; -EOWNERDEAD the lane was lost. With GP_BSP and durability replica, -EOWNERDEAD
 * also if gp_wait() follows gp_clock(), and the lane was lost between its answer and the arrival of
 * the answer, while a copy continues: pull again, in the present clock. */
GP_API int gp_pull(gp_batch *batch, void *rows, gp_request **ret_request);

/* Begins a push of `count` gradients of `dim` values in this clock, in the order of the keys of the
 * batch; gradients of the same key are added up in order of position. `gradients` is read during
 * the call. The first push of a key creates its row. gp_wait() for the request returns when the
 * update is applied; with GP_BSP gp_wait() returns -EDEADLK before this rank's gp_clock().
 * `ret_request` may be NULL: if the push fails later, the next gp_clock() returns the error.
 *
 * A row whose gradient has NaN or infinity on any rank is skipped in this clock; all other rows are
 * updated. The ranks with such gradients get -EDOM, with the number of skipped rows and a key.
 * Errors: as gp_pull(). */
GP_API int gp_push(gp_batch *batch, const void *gradients, gp_request **ret_request);

/* Ends this rank's clock in all tables of the job. Never waits. If a push without a request has
 * failed since the last call, returns the error of this push; the clock is ended all the same.
 * Other errors do not end the clock: -EINVAL the job has no table; the error of a failed job. */
GP_API int gp_clock(gp_job *job);

/* Writes keys, values and moments of all rows to the file `path` on this host, complete or not at
 * all, like `gradpool table export`. One rank calls the function, at any time; other ranks may
 * train. With GP_BSP all rows are of one clock, after the update of each clock that every rank has
 * ended; otherwise each lane is read between two pushes. Pushes wait meanwhile, for at most 20 s.
 * First waits until the pushes of this rank's ended clocks are applied, so with GP_BSP all ranks
 * must have ended these clocks, or do so in time.
 *
 * Errors, after which the job continues: errors of writing; -EBUSY another thread is in this call,
 * gp_table_import() or gp_job_read(), another export is in progress, or the job is being left;
 * -EAGAIN a shard is being placed; -ETIMEDOUT; -ECANCELED the job was left; the error of a failed
 * table; the errors of gp_connect(). */
GP_API int gp_table_export(gp_table *table, const char *path);

/* Stores the rows of such a file in this table, which has no rows. dim, dtype, rule and initial
 * values are those of the file; shards, lanes and ranks may differ. One rank calls the function
 * before the first pull and push of any rank: let the others wait in gp_barrier(). Pulls and pushes
 * wait meanwhile. The table then has the bits of the exported one, and GP_ROW_ADAM continues with
 * its step count.
 *
 * Errors, before which no row has changed: errors of open(2) and of reading; -EBADMSG no table, or
 * a damaged file; -EPROTO another version; -EINVAL other rows; -ERANGE a key is not below
 * gp_table_spec.keys; -EEXIST the table has rows; -EBUSY. Later errors, such as -EDQUOT (a limit of
 * table memory), fail the job, because the table has a part of the rows. */
GP_API int gp_table_import(gp_table *table, const char *path);

#ifdef __cplusplus
}
#endif
#endif
