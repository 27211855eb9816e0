/* libgradpool for jobs whose workers come and go while they train: weights of gradients, and the
 * deal of a data set. Installed beside gradpool.h, whose rules of errors, threads and time apply.
 *
 * The deal divides the samples of each step among the workers that are present. Every rank computes
 * the same deal, so no sample is sent. After planned changes each sample of an epoch was used
 * exactly once. After the loss of a worker no sample is lost, and the samples of its last two steps
 * may be used twice.
 *
 * A script in which every worker holds the same model:
 *
 *   gp_job_join(), with workers_max or GP_CONTINUE
 *   gp_deal_declare(job, &deal, specs, count, tensors)      instead of gp_tensors_declare()
 *   for (;;) {
 *       int result = gp_step_begin(job, 0, &step);
 *       if (result == GP_LEAVES || result == GP_TRAINED || result == GP_ENDED)
 *           break;
 *       if (result == GP_CARRIES) {                         workers have joined
 *           every rank copies the state of the model from rank step.giver, as by gp_broadcast()
 *           continue;
 *       }
 *       count = gp_step_share(job, step.number, samples, room);
 *       gradient of the mean loss over these samples; any values if count is 0
 *       gp_push_pull() of each tensor with GP_MEAN, and gp_wait(): the mean over the step's samples
 *       if (!(step.flags & GP_STEP_ENTERS))
 *           update of the model
 *   }
 *   gp_job_leave()                                                                              */
#ifndef GRADPOOL_ELASTIC_H
#define GRADPOOL_ELASTIC_H

#include "gradpool.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GP_WEIGHT_MAX 4194304 /* largest weight of a gradient, and largest batch of a deal */

/* Sets the weight of this rank's gradients, such as the number of their samples, for GP_MEAN and
 * for updates that are pushed from now on. The weight is 1 at first. The mean of a round is
 *
 *   ((w0 g0 + w1 g1) + w2 g2 + ...) / (w0 + w1 + w2 + ...)
 *
 * in rank order, where the weights are divided by their greatest common divisor first. Each product
 * and each sum is rounded once, in the dtype of sums (f32 for GP_F16 and GP_BF16); the result
 * is rounded once more. So equal weights give the same bits as a mean without weights, and only the
 * ratio of the weights changes the bits. The gradient of a rank with weight 0 is not read; the rank
 * receives the result. If all weights are 0, the mean is 0, and an update leaves parameters and
 * moments as they are, and counts as a step. Weights do not change other operations. Does not wait.
 * Errors: -EINVAL above GP_WEIGHT_MAX; -EOPNOTSUPP a job with backup workers. */
GP_API int gp_job_weigh(gp_job *job, uint32_t weight);

/* The deal of a data set, the same on every rank. The order of an epoch is a permutation that
 * depends on seed and epoch alone. */
typedef struct gp_deal {
    uint64_t samples; /* number of samples of the data set, 1 or more; they are numbered from 0 */
    uint64_t epochs;  /* number of epochs, at least 1 */
    uint64_t seed;
    uint32_t batch;    /* number of samples of a step, of all workers: 1 to GP_WEIGHT_MAX */
    uint32_t prefetch; /* number of later steps whose shares are known: 0 to 64 */
    /* number of samples of a step for each worker; `batch` is then 0. With more workers a step has
     * more samples. 0: `batch` applies */
    uint32_t batch_per_worker;
    /* smallest share that is not empty, at most the batch and `samples`; 0 means 1. With 2, batch
     * norm never computes statistics of a single sample. A step with few samples has fewer shares.
     * If fewer samples than one smallest share remain at the end of an epoch, the last step
     * contains these samples, too, so the `batch` of this step is larger */
    uint32_t share_least;
} gp_deal;

/* Sets the deal of the job, and declares the `count` tensors of `specs` (which may be 0) as
 * gp_tensors_declare() does. In each step every rank pushes the same tensors equally often. Declare
 * all tensors here: then a late worker enters all of them at the same step. A late worker connects
 * to its lanes here and enters with its first gp_step_begin(), push or gp_job_resize(): until then
 * the other ranks continue without waiting for this worker. Called once, before the first
 * gp_step_begin().
 *
 * Errors, after which the same call may be made again: those of gp_tensors_declare(); -EINVAL a
 * field of `deal`; -EEXIST the job has a deal already; -EOPNOTSUPP a job with backup workers. Ranks
 * with different deals get -EINVAL from gp_step_begin(). */
GP_API int gp_deal_declare(gp_job *job, const gp_deal *deal, const gp_tensor_spec *specs,
                           size_t count, gp_tensor **ret_tensors);

/* Results of gp_step_begin(), besides 0. */
#define GP_LEAVES 1 /* the job has to shrink, and all shares of this rank are used: leave the job */
#define GP_TRAINED 2 /* the last epoch is complete */
/* workers have joined: copy the state of the model, then begin the step again */
#define GP_CARRIES 3
#define GP_ENDED 4 /* the training had ended before this late worker got the state: leave the job */
#define GP_RESTS 5 /* after gp_deal_rests(): the job is to rest before its next step */

/* this rank has no state of the model: drop the results of this step */
#define GP_STEP_ENTERS 1u

typedef struct gp_step {
    uint64_t number; /* number of the step, from 1 */
    uint64_t epoch;  /* number of the epoch, from 0 */
    /* number of samples of the epoch that earlier steps have dealt, each counted once */
    uint64_t cursor;
    uint32_t workers; /* ranks that share the samples */
    uint32_t place;   /* number of ranks below this rank that share the samples */
    uint32_t batch;   /* number of samples of this step, of all `workers` together */
    uint32_t weight;  /* number of samples of this rank; 0: its gradient is not read */
    uint32_t flags;   /* GP_STEP_ENTERS, or 0 */
    uint32_t giver;   /* GP_CARRIES, GP_RESTS: lowest rank with the state of the model */
} gp_step;

/* Begins the next step, after gp_wait() for all rounds of the step before. Sets the weight of the
 * gradients of the step to the number of this rank's samples. Each step sends one small record,
 * beside the gradients; the call waits for the record of the step before. At the end of an epoch
 * the call also runs steps without samples, which confirm the last shares.
 *
 * A rank that gp_job_resize() removes trains the shares that it has, and gets GP_LEAVES. A late
 * worker gets a step with GP_STEP_ENTERS: in this step the worker pushes every tensor like the
 * other ranks. Then every rank gets GP_CARRIES, with the same `giver`, before the same step. With
 * its next call the late worker confirms that it has the state of the model. The first share of
 * this worker follows prefetch + 2 steps later. A late worker that comes as the training ends gets
 * GP_ENDED: its model is not the trained one. In a job with GP_CONTINUE a late worker that calls
 * gp_deal_declare() after all other ranks have left gets -EOWNERDEAD. No worker can enter in the
 * middle of a step. Therefore the thread that calls gp_step_begin() calls gp_job_resize() only
 * between the last gp_wait() of a step and gp_step_begin(). Other threads may call gp_job_resize()
 * at any time.
 *
 * Errors: -EINVAL no deal, or ranks have different deals; -EBUSY another thread is in the call, or
 * a tensor has a request without gp_wait() (the text names the tensor); -ETIMEDOUT a rank is late
 * (the text names it): the next call continues; -EOWNERDEAD all ranks with the state were lost, or
 * have left before the end of the training; -ESTALE this rank has not entered all tensors at one
 * step: leave, and join again; -EPROTO ranks have pushed their tensors unequally often, or another
 * version of the library takes part; the errors of gp_wait(). After any error except -EBUSY and
 * -ETIMEDOUT no step can begin. */
GP_API int gp_step_begin(gp_job *job, int timeout_ms, gp_step *ret_step);

/* Writes the samples of this rank in a step, at most `room`: numbers below gp_deal.samples. `step`:
 * number of the present step, or of one of the next gp_deal.prefetch steps. A known share of a
 * later step changes only if its worker is lost: the share is then empty. Returns the number of
 * written samples. -ENOENT: a step whose shares are not known. Does not wait. */
GP_API int gp_step_share(gp_job *job, uint64_t step, uint64_t *ret_samples, size_t room);

/* A late worker calls this function after GP_CARRIES if the giver was lost and the state has not
 * arrived. Another rank sends the state in the next step. Does not wait. -EINVAL: no GP_CARRIES has
 * announced a state to this rank. */
GP_API int gp_step_missed(gp_job *job);

/* Ends the training with the present step, before the last epoch is complete. Every rank that is in
 * this step makes the call, between its last gp_wait() and its next gp_step_begin(), which returns
 * GP_TRAINED, or GP_ENDED to a late worker without the state. Does not wait. -EINVAL: no deal. */
GP_API int gp_deal_end(gp_job *job);

/* Lets the script end its processes when the job rests, and begin at the same sample in a later
 * job. Called after gp_deal_declare() and before the first gp_step_begin(), on every rank, with the
 * same words.
 *
 * Before the workers of a job sleep (svc/SITES.md), gp_step_begin() then returns GP_RESTS, on every
 * rank before the same step: all ranks have the results of the step before, and no round is open.
 * ret_step has `number` of the next step, `workers` and `giver`. The next gp_step_begin() sleeps.
 * In place of the sleep, the ranks store state and gp_deal_cursor(), call gp_deal_end(), and end.
 * Ranks that agree on one of both by a round of a tensor see whether a rank was lost meanwhile.
 *
 * `cursor`: words of gp_deal_cursor() of the earlier job; `count` 0: the deal begins with its first
 * sample. With a cursor the first step is the one that GP_RESTS has announced, with the same
 * number, epoch and samples; with the same number of workers it also has the same shares. A rest at
 * the end of an epoch ends the empty steps there, so later numbers are lower than without a rest.
 * Does not wait. Errors: -EINVAL no deal, a step has begun, or the cursor belongs to another
 * gp_deal; -EBADMSG the words are no cursor; -ENOMEM. gp_step_begin() returns -EINVAL if ranks have
 * different cursors, or some have not made the call. */
GP_API int gp_deal_rests(gp_job *job, const uint64_t *cursor, size_t count);

/* Writes the cursor of the deal, if `room` words are enough: the samples that no step has used.
 * Called after GP_RESTS, before the next gp_step_begin(). Returns the number of words of the
 * cursor. Does not wait. -EINVAL: at any other time. */
GP_API int gp_deal_cursor(gp_job *job, uint64_t *ret_words, size_t room);

#ifdef __cplusplus
}
#endif
#endif
