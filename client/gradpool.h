/* libgradpool: ship gradients to a gradpool service and get their sum or mean back.
 *
 * One gradient, from ready to summed:
 *
 *   gp_push_pull()  notes the gradient's place and tells the lanes that own the tensor (a core each
 *                   of the service; a large tensor is cut into pieces) "round r of tensor t is
 *                   ready here". The bytes stay where they are.
 *   the lane        waits until all workers of the job have said so, reads all gradients, sums them
 *                   in rank order in one pass and writes the result into each worker's memory.
 *   gp_wait()       returns 0: `result` holds the sum (or mean), the same bits on every worker.
 *
 * Errors are negative errno values; gp_last_error() has the sentence that goes with the last one
 * of the calling thread: who, what was expected, what came, what to do.
 *
 * Threads: all functions may be called from any thread, but an object must not be destroyed while
 * a call uses it. A forked child must not use what its parent made: every call there is -ECHILD,
 * and its exit changes nothing for the parent. Every wait has a deadline.
 *
 * Memory: gradients in memory from gp_alloc() are read in place by a lane on the same host. Any
 * other memory is copied once into such memory, and the result once out of it. Nothing spins. */
#ifndef GRADPOOL_H
#define GRADPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GP_VERSION "0.1.0"

/* Marks what the library exports; everything else in it is hidden. */
#define GP_API __attribute__((visibility("default")))

typedef struct gp_client gp_client;   /* a connection to a service */
typedef struct gp_job gp_job;         /* this worker's membership in a job */
typedef struct gp_tensor gp_tensor;   /* a declared tensor */
typedef struct gp_request gp_request; /* a push-pull under way */

/* f16 and bf16 are summed in f32 and rounded once, to nearest; integers wrap. */
enum gp_dtype { GP_F32 = 1, GP_F64 = 2, GP_F16 = 3, GP_BF16 = 4, GP_I32 = 5, GP_I64 = 6 };

/* What becomes of a tensor of E elements among the W ranks of its set, in rank order:
 *
 *                      gradient   result
 *   GP_SUM .. PRODUCT  E          E        the same on every rank
 *   GP_GATHER          E          W x E    block i is rank i's gradient; NULL: not wanted here
 *   GP_ALL_TO_ALL      W x E      W x E    block i of rank r's gradient: block r of rank i's result
 *   GP_REDUCE_SCATTER  W x E      E        rank i gets the sum of all blocks i
 *
 * A block is as long as the tensor: that of an all-to-all is what one rank sends another. Tensors
 * with an update rule have operations of their own: gp_broadcast() and gp_update(). */
enum gp_operation {
    GP_SUM = 1,       /* ((g0 + g1) + g2) + ..., in rank order */
    GP_MEAN = 2,      /* the sum, then one division by the number of inputs; not of integers */
    GP_BROADCAST = 3, /* rank `root`'s input on every worker */
    GP_MIN = 5,       /* a NaN of any rank is passed on */
    GP_MAX = 6,
    GP_PRODUCT = 7,
    GP_GATHER = 8,
    GP_ALL_TO_ALL = 9,
    GP_REDUCE_SCATTER = 10,
};

/* Whose pushes make a round of a tensor. All but GP_ALL are for GP_SUM to GP_PRODUCT, the last two
 * for GP_SUM alone. A bound is gp_tensor_spec.bound.
 *
 *   GP_ALL     every rank of the set: the same bits in every run
 *   GP_FIRST   the first `bound` ranks to push (backup workers: DBW). Who comes later gets the
 *              newest result without its gradient, and goes on from there
 *   GP_CHOSEN  the ranks that were first in the same round of the job's GP_LEADS tensor: one set
 *              for all GP_CHOSEN tensors. Each is pushed once an iteration, the leading one last
 *   GP_STALE   each push by itself, at most `bound` rounds ahead of the slowest rank (SSP): its
 *              result is the sum of all that was pushed so far, in order of arrival
 *   GP_ANY     the same without a bound (ASP)
 *
 * A long tensor is cut into pieces; of all but GP_CHOSEN each piece has ranks of its own. */
enum gp_quorum { GP_ALL = 0, GP_FIRST = 1, GP_CHOSEN = 2, GP_STALE = 3, GP_ANY = 4 };
#define GP_LEADS 1u    /* of a GP_FIRST tensor: its rounds decide for the job's GP_CHOSEN */
#define GP_MEASURES 2u /* `gradpool jobs --json` tells the squares of gradients and result */

/* Waiting for ever is not offered; this is what 0 means where a time-out in ms is asked for, and
 * how long a declare may take. It is GRADPOOL_TIMEOUT_MS, or 60000. */
#define GP_TIMEOUT_DEFAULT 0

GP_API const char *gp_version(void);       /* "0.1.0" of the library at run time */
GP_API const char *gp_strerror(int error); /* plain words for a negative errno */
/* The calling thread's last error as a sentence; "" when none. Valid until its next gp_ call. */
GP_API const char *gp_last_error(void);

/* What to do with log lines (level 0 error .. 3 debug). NULL: standard error (the default). To be
 * set before gp_connect(). It may be called from threads of the library, and must not call gp_
 * functions. */
typedef void (*gp_log_fn)(int level, const char *line);
GP_API void gp_set_log(gp_log_fn log);

typedef struct gp_options {
    const char *transport;      /* "auto", "shm", "tcp"; NULL: GRADPOOL_TRANSPORT, or auto */
    const char *interface_name; /* for tcp; NULL: GRADPOOL_INTERFACE, or any */
    int connect_timeout_ms;     /* for the service, and for a lane to be there; 0:
                                 * GRADPOOL_CONNECT_TIMEOUT_MS, or 10000 */
} gp_options;

/* Connects to the coordinator at `endpoint` ("gradpool://host:7077"; NULL: GRADPOOL_ENDPOINT).
 * Over TCP it proves the key in GRADPOOL_KEY_FILE or GRADPOOL_KEY, if one is set, in TLS.
 * `options` NULL: all defaults. Errors: -EDESTADDRREQ (no endpoint), -EINVAL (endpoint or option,
 * said which), -ECONNREFUSED, -ECONNRESET (it died meanwhile), -ETIMEDOUT, -EHOSTUNREACH, -ENOENT
 * (unknown host), -EPROTO (versions differ), -ENOKEY (it asks for a key), -EKEYREJECTED (it does
 * not take this one). */
GP_API int gp_connect(const char *endpoint, const gp_options *options, gp_client **ret_client);
/* Leaves all jobs, closes everything. NULL is fine. */
GP_API void gp_disconnect(gp_client *client);

/* What becomes of a job that loses a worker: it fails, or goes on without it. */
enum gp_worker_loss { GP_FAIL = 0, GP_CONTINUE = 1 };
/* Of parameters and moments when a lane dies: a copy on another aggregator, or in the memory of a
 * rank (twice 4 to 12 bytes an element), keeps the bits. NONE: see gp_job_snapshot(). */
enum gp_durability { GP_DURABILITY_NONE = 1, GP_DURABILITY_REPLICA, GP_DURABILITY_WORKER };
typedef struct gp_job_spec {
    const char *name; /* 1..127 bytes of UTF-8; the same on every worker */
    uint32_t rank;    /* 0 .. workers-1, each once; up to workers_max-1 after a resize */
    uint32_t workers; /* 1 .. 768: that the job begins with, also for ranks that come later */
    /* How much slower the job may become by sharing lanes with others, in parts per million of its
     * speed alone (50000: 5 %); the same on every worker; 0: what the service and its tenant say.
     * The strictest of the three counts: where a job that is known from before fits nowhere within
     * it, declaring fails with -ENOSPC. */
    uint32_t loss_limit_ppm;
    uint32_t workers_max;               /* that gp_job_resize() may give it; 0: `workers` */
    enum gp_worker_loss on_worker_loss; /* both the same on every worker */
    enum gp_durability durability;      /* likewise; 0: what the service says */
} gp_job_spec;

/* Does not wait for the other workers. Where workers come and go (workers_max, GP_CONTINUE) a rank
 * may join late, or again: it enters the tensors that it declares between the same two iterations
 * of the others if these push each of them once an iteration; else each at its open round.
 * Errors: -EINVAL; -EEXIST: the rank is taken (by whom); -EPROTO: the job runs with another number,
 * or does not want this rank; -ESTALE: a former job of this name did not end within 8 s. */
GP_API int gp_job_join(gp_client *client, const gp_job_spec *spec, gp_job **ret_job);
typedef struct gp_membership {
    uint32_t version; /* grows with each change */
    uint32_t workers; /* in the job now */
    uint32_t wanted;  /* that it shall have: ranks from there on are to leave when it suits them */
    uint64_t ranks[12]; /* who, or is to come at first: rank r is bit r % 64 of word r / 64 */
} gp_membership;
GP_API int gp_job_membership(gp_job *job, gp_membership *ret_membership);
/* Asks that ranks 0 to workers-1 make the job, or its next stage (1 to workers_max): others are to
 * leave, who is missing is to come. Who is left after a loss goes on unasked; without who never
 * came, once the number that holds is asked for. Waits until it is so, and rounds of this one's
 * tensors are theirs: means are over those present, in rank order. With GP_ALL all tensors change
 * between the same two iterations, if these have each once; who pushes calls it between two, before
 * who comes declares: then none goes by. Who leaves may need rounds: shrink from another thread.
 * -EOPNOTSUPP: workers stay; -ETIMEDOUT: who is late, or lacks which tensor; it stays asked for. */
GP_API int gp_job_resize(gp_job *job, uint32_t workers, int timeout_ms);
/* Says goodbye; open requests end with -ECANCELED, the job's tensors and gp_alloc memory are
 * released. Others that push later get an error naming this rank, or go on where it may leave. */
GP_API void gp_job_leave(gp_job *job);
/* This rank's loss of the iteration whose gradients it pushes next: goes with each announcement
 * until the next call; NaN (at first): none. Its mean over the ranks is told beside the squares of
 * GP_MEASURES. */
GP_API int gp_job_tell_loss(gp_job *job, float loss);
/* Writes what all its workers and lanes do, round by round, to a file for trace viewers, until the
 * stop (or the leave; an hour at most); whole at any time. Errors, besides those of gp_connect()
 * and open(2): -EBUSY (one is recorded); at the stop what ended it early. A stop too many is 0. */
GP_API int gp_job_timeline_start(gp_job *job, const char *path);
GP_API int gp_job_timeline_stop(gp_job *job);
GP_API uint32_t gp_job_rank(const gp_job *job);
GP_API uint32_t gp_job_workers(const gp_job *job);

/* What the lane of a tensor makes of the mean of its gradients, in the pass that sums them: new
 * parameters, by the formulas of PyTorch 1.13 (SGD; with momentum after Polyak 1964, Nesterov's as
 * in Sutskever et al. 2013; Adam: Kingma and Ba 2015, whose weight decay is added to the gradient;
 * AdamW: Loshchilov and Hutter 2019, whose weight decay shrinks the parameters). The lane keeps
 * parameters and moments: twice 4, 8 or 12 bytes an element. */
enum gp_rule { GP_NO_RULE = 0, GP_SGD, GP_MOMENTUM, GP_NESTEROV, GP_ADAM, GP_ADAMW };

/* Hyper-parameters of one round. Those that a rule has no use for are not looked at. */
typedef struct gp_settings {
    double rate, weight_decay;
    double momentum, dampening;   /* GP_MOMENTUM; GP_NESTEROV, whose dampening is 0 */
    double beta1, beta2, epsilon; /* GP_ADAM, GP_ADAMW */
} gp_settings;

typedef struct gp_tensor_spec {
    const char *name; /* 1..255 bytes of UTF-8; workers match tensors by name, in any order */
    enum gp_dtype dtype;
    uint64_t elements; /* may be 0: its rounds then only synchronise */
    /* Zeros below: a tensor of all ranks, of which all take part in every round. */
    const uint32_t *ranks; /* its set of ranks, this one among them; NULL: all of the job */
    uint32_t ranks_count;
    enum gp_quorum quorum;
    uint32_t bound;    /* GP_FIRST, GP_STALE */
    uint32_t flags;    /* GP_LEADS, GP_MEASURES */
    enum gp_rule rule; /* of GP_F32 tensors with GP_ALL: its lane keeps the parameters */
    /* What values travel as, both ways, if not as they are: GP_F16 or GP_BF16, of GP_F32 alone.
     * Each gradient is rounded once, the sum is taken in f32 and rounded once; half the bytes, and
     * copied also from and to gp_alloc() memory. The same on every rank. */
    enum gp_dtype wire;
} gp_tensor_spec;

/* Declares `count` tensors at any time, in any order. Declaring a whole model in one call lets the
 * service place it as a whole. A name that this worker has declared before gives the same handle,
 * if dtype, elements, ranks, quorum, bound, flags, rule and wire agree.
 * Errors: -EINVAL (which field of which tensor), -EEXIST (declared before with another shape or
 * dtype: both are named), -ENOSPC (no lane has room), -EDQUOT (beyond what the job
 * or its tenant may have; the text names the limit), -ETIMEDOUT. When ranks disagree, every rank
 * gets -EINVAL from its declare or its next wait, naming the ranks and their values. */
GP_API int gp_tensors_declare(gp_job *job, const gp_tensor_spec *specs, size_t count,
                              gp_tensor **ret_tensors);
GP_API int gp_tensor_declare(gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                             gp_tensor **ret_tensor);
/* Forgets a tensor on this worker; the service forgets it when the last worker does. -EBUSY while a
 * round of it is open. */
GP_API int gp_tensor_undeclare(gp_tensor *tensor);
GP_API const char *gp_tensor_name(const gp_tensor *tensor);
GP_API uint64_t gp_tensor_elements(const gp_tensor *tensor);

/* Memory that lanes on this host read and write in place: whole pages, zeroed, shared. -ENOMEM,
 * -ENOSPC (also over 512 GiB in all), -EMFILE. All pages are there when it returns, and are this
 * process's to pay for, also in its memory cgroup. Free with gp_free() (NULL is fine), not while a
 * request uses it. What gp_keep() was told of outlasts the job, as the caller's: munmap() it. */
GP_API int gp_alloc(gp_job *job, size_t bytes, void **ret_memory);
GP_API int gp_keep(gp_job *job, void *memory);
GP_API void gp_free(gp_job *job, void *memory);

/* One tensor of a group. `gradient`: values of the tensor's dtype, as many as the operation says,
 * lent from the call until gp_wait() returned 0, or failed with another error than -ETIMEDOUT; then
 * it may be written again. `result`: likewise; may be the gradient itself where they are equally
 * long. Both may be NULL for a tensor without elements. */
typedef struct gp_item {
    gp_tensor *tensor;
    const void *gradient;
    void *result;
} gp_item;

/* Starts a push-pull and returns at once. Every worker must push every tensor the same number of
 * times with the same operation; the order among tensors does not matter.
 * Errors at once: -EINVAL, -EBUSY (this tensor has a request that nobody waited for),
 * -ECONNRESET or -EPIPE (the job has failed; why is in gp_last_error()), -ENOMEM. */
GP_API int gp_push_pull(gp_tensor *tensor, const void *gradient, void *result,
                        enum gp_operation operation, gp_request **ret_request);
/* Several tensors, one request; each keeps its own round, so groups may be cut differently from
 * one round to the next. -EINVAL also for a broadcast: that has a root, see gp_broadcast(). */
GP_API int gp_push_pull_group(gp_job *job, const gp_item *items, size_t count,
                              enum gp_operation operation, gp_request **ret_request);
/* Rank `root`'s values on every rank of the set; root's too are rounded to what travels, where
 * that is narrower. */
GP_API int gp_broadcast(gp_tensor *tensor, void *values, uint32_t root, gp_request **ret_request);
/* One step of a tensor that has an update rule: `gradient` in, the new parameters of all ranks out,
 * which may take the gradient's place. Its first round must be a gp_broadcast(), whose values the
 * lane takes as parameters; so must whoever wants to set them, and start counting steps, again.
 * `settings`: of the set's first rank, for this round; NULL on the others, whose are not looked at.
 * Errors, besides those of gp_push_pull(): -EINVAL, the tensor has no rule, or a setting has no
 * sense (which one); -ENODATA, nothing was broadcast yet; at gp_wait(): -EOWNERDEAD, the lane died,
 * and moments with it: every rank has the last result that gp_wait() gave it. To go on, undeclare
 * the tensor on every rank, declare it again, then restore a snapshot or broadcast parameters. */
GP_API int gp_update(gp_tensor *tensor, const void *gradient, void *parameters,
                     const gp_settings *settings, gp_request **ret_request);
/* Several tensors, one request, the same settings. */
GP_API int gp_update_group(gp_job *job, const gp_item *items, size_t count,
                           const gp_settings *settings, gp_request **ret_request);
/* Parameters, moments and step counts of all tensors with update rules: every rank calls it between
 * the same two iterations, having declared the same ones, for all ranks. The first rank present
 * writes the file, whole or not at all. Errors, the same on all ranks: -EINVAL (none; they differ),
 * -EBUSY, -ENODATA (no broadcast), -EOPNOTSUPP (a set of ranks), of gp_wait() and of writing. */
GP_API int gp_job_snapshot(gp_job *job, const char *path);
/* The way back, in any job with the same tensors, instead of the broadcasts, to the same bits.
 * Parameters go to `result` of the items; who wants none names no item. Errors, besides those:
 * -ENOENT, ...; -EBADMSG: no snapshot, or a damaged one; -EPROTO: of another version; -EINVAL:
 * other names, sizes or rules (which). Then nothing was restored. */
GP_API int gp_job_restore(gp_job *job, const char *path, const gp_item *items, size_t count);

/* The state that a lane keeps of a tensor: parameters, then its rule's moments (GP_MOMENTUM,
 * GP_NESTEROV: the momentum; GP_ADAM, GP_ADAMW: means of gradients and of their squares), one array
 * behind the other, each as long as the tensor. */
typedef struct gp_state {
    gp_tensor *tensor;
    float *arrays;  /* the caller's */
    uint64_t steps; /* set by the call: updates since the parameters were set or restored */
} gp_state;
/* Reads it, through the coordinator, for this rank alone: others need not call. Between two of this
 * rank's iterations: the tensors' requests were waited for, and no other begins meanwhile. Rounds
 * of the job wait until all is read. Errors: -EBUSY (another thread reads), -EAGAIN (the job has
 * something else to do; later it may succeed), -ENODATA (a tensor of the job has no parameters),
 * -EOPNOTSUPP (one has a set of ranks), -ECANCELED (left), those of gp_connect(). */
GP_API int gp_job_read(gp_job *job, gp_state *states, size_t count);
/* By all ranks, as a round of the tensor: its lane's state goes to `arrays`; NULL: not to this
 * rank. Errors as of gp_push_pull(); -ENODATA: no rank has broadcast parameters yet. */
GP_API int gp_save(gp_tensor *tensor, float *arrays, gp_request **ret_request);
/* Likewise: the lane goes on from `arrays` of rank `root`, after so many steps (the same on every
 * rank; GP_SAME_STEPS: as many as there have been, -EINVAL on a root that came late and has not
 * counted them); others give none, and get its parameters. */
#define GP_SAME_STEPS UINT64_MAX
GP_API int gp_restore(gp_tensor *tensor, const float *arrays, float *parameters, uint32_t root,
                      uint64_t steps, gp_request **ret_request);
/* Of arrays in their order: any change of one word shows. For who must see that somebody else has
 * written there. */
GP_API uint64_t gp_checksum(const void *const *arrays, const size_t *bytes, size_t count);
/* Between the two ranks of a tensor's set (or of a job of two workers): what one sends, the other
 * receives. Done when the receiver has it. -EINVAL: the set has not two ranks; or, at gp_wait(),
 * both sent, or both received. */
GP_API int gp_send(gp_tensor *tensor, const void *values, gp_request **ret_request);
GP_API int gp_receive(gp_tensor *tensor, void *values, gp_request **ret_request);

/* 0: every result is in place and, where `gradient` is `result` or lies in gp_alloc() memory,
 * every worker has it too (it may be written again). The request is then freed.
 * -ETIMEDOUT: not yet; the text names the tensor, the round and the ranks missing; the request
 * lives on and may be waited for again. Any other error ends and frees the request:
 * -ECONNRESET or -EPIPE (a worker or an aggregator died or left: who), -EINVAL (ranks disagree:
 * who and what), -ESHUTDOWN (the service was stopped), -ECANCELED (left). */
GP_API int gp_wait(gp_request *request, int timeout_ms);
/* 1: done, gp_wait() will not block; 0: not yet, also after timeout_ms (0: at once). Frees nothing,
 * asks nobody who is late: for callers that look at something else in between, such as signals. */
GP_API int gp_poll(gp_request *request, int timeout_ms);

/* Returns when every worker has called it as often; one that joined late since its first call. */
GP_API int gp_barrier(gp_job *job, int timeout_ms);

/* Rank, size and job name of this process from the launcher's environment, first found:
 * GRADPOOL_RANK/_SIZE, those of torchrun, horovodrun, Open MPI, MVAPICH2, jsrun, Flux, PMI,
 * bpslaunch, srun (table in client/README.md); the job's name from GRADPOOL_JOB, NULL when that is
 * not set. Strings point into the environment. -ENOENT: nothing found; -EINVAL: no number, rank >=
 * size, a size of one beside a launcher's variable that says several. */
GP_API int gp_job_spec_from_environment(gp_job_spec *ret_spec);

#ifdef __cplusplus
}
#endif
#endif
