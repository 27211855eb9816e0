/* A snapshot or restore in progress. Private to snapshot.c, agreement.c and tables.c. */
#ifndef GRADPOOL_CLIENT_LIB_STATE_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_STATE_INTERNAL_H

#include "client/lib/job/tensor.h"
#include "svc/state/tables/tables_copy.h"

#define AGREEMENT_NAME "gradpool.agreement"

/* Steps on which ranks agree. They are numbered: the begin, the file, and then one step for each
 * tensor and each part of the work on the file. Steps of restores have other numbers than those of
 * snapshots. */
enum { AT_BEGIN, AT_FILE, RESTORES = 1 << 30 };

/* One rank's part of an agreement. Each field of the result is the minimum of this field over all
 * ranks. */
struct agreement {
    int64_t failure; /* 0, or an error and its rank */
    int64_t print,
        /* print: hash of the declared tensors. All ranks have the same hash if the minimum of
         * `print` and the minimum of `negative_print` differ in the sign alone. */
        negative_print;
    /* negative number of updates: its minimum over the ranks belongs to the largest number, because
     * a late worker has counted fewer updates */
    int64_t negative_steps;
    int64_t step, negative_step; /* this rank's step, with both signs as for `print` */
    int64_t rank;                /* number of this rank; the minimum is the rank with the file */
    /* clock of the tables, with both signs; 0: the job has no table with BSP */
    int64_t clock, negative_clock;
    int64_t is_over; /* 1: this rank has finished its work on the file; 0: work is left */
};
#define AGREEMENT_WORDS (sizeof(struct agreement) / sizeof(int64_t))

/* Tables of the job in a snapshot. */
struct snapshot_tables {
    size_t count;
    bool has_bsp;
    enum {
        TABLES_UNTOUCHED,
        TABLES_COPIED,   /* the rank with the file copies rows, or has copied them */
        TABLES_CONNECTED /* like TABLES_COPIED, and this rank has the connection `copy.channel` */
    } state;
    struct tables_copy copy;
};

struct snapshot {
    gp_job *job;
    struct gp_tensor **tensors; /* tensors with update rules, sorted by name */
    size_t count;
    gp_tensor *agreement;
    struct agreement *ours, *least; /* in memory of the job, like `state` */
    void *state;                    /* state of one tensor; NULL: this rank has no file */
    uint32_t root;                  /* the rank with the file; known after the first agreement */
    uint64_t print;
    struct err err;                /* error of this rank */
    bool restores, is_over;        /* is_over: see struct agreement */
    struct gp_request *unfinished; /* request of a round that has timed out; NULL: none */
    struct gp_tensor *next;        /* tensor to save or restore after the agreement; NULL: none */
    struct snapshot_tables tables;
};

/* ---- agreement.c ---- */

/* Runs one agreement of all ranks, in memory of the job: `ours` and `least`. `steps`: in, this
 * rank's number of updates; out, the job's number of updates. Returns 0, this rank's own error with
 * its text, the error of another rank, or -ERESTART if other ranks are in another step. */
int agree(struct snapshot *s, size_t step, uint64_t *steps);
/* Returns whether the result of an agreement lets all ranks continue. */
bool is_agreed(const struct agreement *least);
/* Does a part of the work on the file, on the rank with the file, until `until_ns` or a little
 * later. Returns 1 if work is left, 0, or an error in s->err. */
typedef int (*part_fn)(struct snapshot *s, void *context, uint64_t until_ns);
/* Calls `part` on the rank with the file until no work is left. The ranks agree after each part, so
 * they do not time out while a large file is read or written. All ranks call the function. `step`:
 * first of the agreements; out, the next one. Returns as agree(). */
int agree_in_parts(struct snapshot *s, part_fn part, void *context, size_t *step);
/* Waits for a round. `started`: return value of the push. */
int wait_for(struct snapshot *s, int started, gp_request *const *q);
/* Sets an error that names late ranks. A rank that is late for an agreement has not called
 * gp_job_snapshot() or gp_job_restore(). */
int say_who_is_late(const struct snapshot *s);

/* ---- tables.c ---- */

/* Counts the tables of the job, and adds them to the hash of all declarations. Sets s->err if a
 * table has failed or this rank is inside of a clock. */
void snapshot_tables_find(struct snapshot *s);
/* Waits until the pushes of this rank are applied. Called when all ranks have ended the same
 * clocks. Sets s->err after an error. */
void snapshot_tables_settle(struct snapshot *s);
/* Reads the tables of the file once, in parts, to check them. Returns as part_fn. */
int snapshot_tables_check(struct snapshot *s, const struct state_file *f, uint64_t until_ns);
/* Copies the rows of all tables to the file `w` of this rank (NULL: to the lanes, from the file of
 * snapshot_tables_check()). All ranks call the function. `step`: first of the agreements; out, the
 * next one. Returns 0, or an error on all ranks. */
int snapshot_tables_copy(struct snapshot *s, struct state_writer *w, size_t *step);
/* Ends the use of the connection to the coordinator, and of memory. */
void snapshot_tables_end(struct snapshot *s);

/* Returns whether this rank reads or writes the file. */
static inline bool has_file(const struct snapshot *s) { return s->job->rank == s->root; }

#endif
