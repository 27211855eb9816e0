/* libgradpool for jobs whose parts need different numbers of workers: a wide stage computes a full
 * gradient, a narrow stage makes many small steps. Installed beside gradpool.h, whose rules of
 * errors, threads and time apply. The design follows the stages of FlexPS (PVLDB 11(5), 2018) as
 * far as they are public.
 *
 * A job with N ranks runs a sequence of stages, the same on every rank. In each stage some ranks
 * are members and work; the other ranks are idle and sleep. Between two stages is a border, a
 * barrier of all ranks: all pushes of the former stage are applied before the first pull of the
 * next. Nothing restarts: rows, parameters and moments stay on the lanes, and other values can be
 * handed over (gp_stage_spec.carry).
 *
 *   gp_table_declare(), gp_table_set(), gp_tensors_declare()   on every rank, before all stages
 *   for each stage
 *       do {
 *           gp_stage_next(job, &spec, 0, &stage)
 *           if (stage.place != GP_IDLE)
 *               for (unit = stage.cursor; unit < units; unit += batch) {
 *                   this rank's part of the batch, by stage.place of stage.workers
 *                   gp_clock(job)
 *                   if (gp_stage_step(job, batch) == 1)
 *                       break;
 *               }
 *           result = gp_stage_end(job, timeout_ms)
 *       } while (result == 1);
 *   gp_stage_next(job, NULL, 0, &stage)               all ranks work again
 *
 * Tables: in a stage the members alone count. A clock ends when all members have ended it, and
 * GP_MEAN divides by their number. All members begin in the same clock, which is above every clock
 * of the stages before. A table with GP_INHERIT has the consistency of the stage. The settings of
 * the member with the lowest rank are used. With GP_BSP the bits depend only on the sequence of
 * stages and on the ranks of each stage.
 *
 * Tensors: the rounds of a tensor of all ranks with GP_ALL have the members of the stage. GP_MEAN
 * and gp_update() divide by their number; the settings of the lowest member are used. Lanes keep
 * parameters and moments, so the bits depend only on the sequence of stages and on the ranks of
 * each stage. An idle rank gets no results: hand the parameters over (gp_stage_spec.carry). While
 * ranks are idle, these calls return -EPERM: a push on an idle rank or with an idle root, a declare
 * of a tensor of all ranks, a push of any other tensor of which a rank is idle. Operations with a
 * block for each rank need a tensor with its own set of ranks (gp_tensor_spec.ranks), else
 * -EOPNOTSUPP.
 *
 * A job with stages has a fixed set of workers: no backup workers, no GP_CONTINUE, no workers_max.
 * The loss of a worker, also of an idle one, fails the job. */
#ifndef GRADPOOL_STAGE_H
#define GRADPOOL_STAGE_H

#include "gradpool_table.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GP_IDLE UINT32_MAX /* gp_stage.place of an idle rank */
#define GP_STAGE_NAME_BYTES_MAX 127

/* Aim of the automatic choice of the number of members (`workers` 0). */
enum gp_goal {
    GP_FASTEST = 0, /* the smallest time of a unit */
    GP_FRUGAL,      /* the smallest product of the time of a unit and the number of members */
};

/* Choice of the members. */
enum gp_visit {
    GP_STAY = 0, /* the lowest ranks */
    /* the ranks that have worked in the fewest stages; among equal ranks, the lowest */
    GP_TRAVEL,
};

/* Values that the members of the next stage need. They are equal on all members of the former
 * stage. */
typedef struct gp_carry {
    void *values;
    size_t bytes;
} gp_carry;

typedef struct gp_stage_spec {
    const char *name; /* 1..127 bytes; stages of one name share their choice of workers */
    uint32_t workers; /* number of members; 0: automatic. Above the size of the job: all ranks */
    uint32_t workers_min; /* minimum number of members; 0: 1 */
    uint32_t workers_max; /* maximum number of members of an automatic stage; 0: all ranks */
    enum gp_goal goal;
    enum gp_visit visit;
    enum gp_consistency consistency; /* consistency of tables with GP_INHERIT; 0: GP_BSP */
    uint32_t staleness;              /* number of clocks, for GP_SSP */
    /* Values that are copied from the lowest member of the former stage to the members that were
     * not in that stage, before the call returns. The number of bytes is the same on all ranks.
     * After -ETIMEDOUT a call for the same stage continues; the values are those of the lowest
     * member's first call. A single item in gp_alloc() memory, with a multiple of four bytes, is
     * used in place; between calls for the same stage its values must not change. Other values are
     * copied to memory of the library, which keeps this memory until the job ends. */
    const gp_carry *carry;
    size_t carry_count;
} gp_stage_spec;

typedef struct gp_stage {
    uint64_t number;  /* number of the stage in the job, from 1 */
    uint64_t cursor;  /* number of units of the stage that are done */
    uint32_t workers; /* number of members */
    uint32_t place;   /* number of members with a lower rank, or GP_IDLE */
    uint32_t is_trial;
} gp_stage;

/* Begins the next stage, when all ranks are in this call with the same `spec`. `spec` NULL: the
 * stages are over, and all ranks are members. The first call ends this rank's open clock if the
 * clock has pushes, and waits for all requests of this rank. On an idle rank the call also returns
 * at the begin of the stage; the rank then waits in gp_stage_end(). After an error the call may be
 * repeated.
 *
 * An automatic stage (`workers` 0) tries 1, 2, 4, ... members for 12 steps each, and then runs with
 * the best number. The choice holds for later stages of this name, until the time of a unit has
 * changed by 25 %. The script deals the units of a step among the members.
 *
 * Errors: -EINVAL a field of `spec`, or ranks begin different stages, which fails the job (the
 * text names both), or this rank has not ended its stage; -ENOSPC workers_min exceeds the size
 * of the job; -EOPNOTSUPP a job with backup workers or changing ranks; -ETIMEDOUT the text names
 * the ranks that are not in the call; -EPIPE a rank has left the job; -EBUSY another thread is in a
 * call on stages, or has begun a round.
 *
 * A rank waits in this call, and in gp_stage_end(), for the commit of its open rounds. -ETIMEDOUT
 * names a tensor whose round another member has not pushed. After -ETIMEDOUT of the border itself,
 * pushes return -EPERM until a repeated call has succeeded, because the stage may have begun. */
GP_API int gp_stage_next(gp_job *job, const gp_stage_spec *spec, int timeout_ms,
                         gp_stage *ret_stage);

/* Called by members after each step. `units`: number of units that all members together have done
 * in this step. Never waits. Returns 1 if the trial of an automatic stage is over: call
 * gp_stage_end(); else 0. -EPERM: the rank is idle, or not in a stage. */
GP_API int gp_stage_step(gp_job *job, uint64_t units);

/* Ends this rank's part of the stage. Ends the rank's open clock if the clock has pushes, waits for
 * all requests of the rank, and returns when all members have ended their part. An idle rank waits
 * here for the end of the stage, without CPU time. Returns 0, or 1: a trial is over and units are
 * left, so call gp_stage_next() with the same `spec` again.
 *
 * Errors: -EINVAL no stage is open; -ETIMEDOUT the text names the members that have not ended:
 * call again; otherwise as gp_stage_next(). */
GP_API int gp_stage_end(gp_job *job, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
