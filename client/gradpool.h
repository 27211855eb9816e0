/* libgradpool: sends gradients to a gradpool service and returns their sum or mean.
 *
 * One gradient, from ready to summed:
 *
 *   gp_push_pull()  announces "round r of tensor t is ready here" to the lanes that own the tensor.
 *                   A lane is one core of the service; a large tensor is cut into pieces on several
 *                   lanes. The bytes stay in the memory of the worker.
 *   the lane        waits for the announcements of all ranks of the tensor, reads all gradients,
 *                   sums them in rank order in one pass and writes the result into the memory of
 *                   each worker.
 *   gp_wait()       returns 0: `result` has the sum (or mean), the same bits on every worker.
 *
 * Errors: a function that can fail returns 0 or a negative errno value. gp_last_error() returns
 * the sentence that belongs to the calling thread's last error: object, expectation, value, advice.
 * Every function may return -EINVAL for a NULL or wrong argument, -ECHILD in a forked child and
 * -ENOMEM; the comments below do not repeat these three. After an error of a function that starts
 * something, nothing was started and `ret_` arguments are unchanged, if no comment says otherwise.
 *
 * Failed jobs: when a job fails (a lost worker with GP_FAIL, a lost lane without a successor, a
 * stopped service), every open request ends with the job's error, and every later call that needs
 * the service returns the same error: -ECONNRESET, -EPIPE, -ESHUTDOWN or another code. The only
 * useful call is then gp_job_leave().
 *
 * Failed tensors: an error of one tensor (ranks disagree, or its parameters are lost) fails this
 * tensor alone, on every rank. Its open request ends with the error, and each later push returns
 * the error, which begins with the tensor's name. Until the job is left, lanes may write to its
 * `result` in memory of gp_alloc(). Other tensors continue. gp_tensor_undeclare() on all ranks and
 * a new declare make the name usable again. A failed GP_LEADS tensor fails the GP_CHOSEN tensors.
 *
 * Threads: any thread may call any function. The caller makes sure that no thread uses an object
 * while another thread destroys the object by gp_disconnect(), gp_job_leave(), gp_free(),
 * gp_tensor_undeclare(), or a gp_wait() that frees the request. Two threads must not wait for one
 * request at the same time. A forked child cannot use objects of its parent: calls return -ECHILD
 * or do nothing, and the child's exit changes nothing for the parent.
 *
 * Time: every wait has a deadline. A `timeout_ms` of 0 or less means GRADPOOL_TIMEOUT_MS (60000);
 * only gp_poll() then returns at once. Starting a round takes no longer than a copy of its bytes.
 *
 * Memory: gradients and results in memory of gp_alloc() are used in place by a lane on the same
 * host. A gradient in other memory is copied once into such memory, and a result once out of it. */
#ifndef GRADPOOL_H
#define GRADPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GP_VERSION "0.1.0"

/* Marks the functions that the library exports; all other symbols are hidden. */
#define GP_API __attribute__((visibility("default")))

typedef struct gp_client gp_client; /* a connection to a service */
typedef struct gp_job gp_job;       /* the place of this process in a job: one rank */
typedef struct gp_tensor gp_tensor; /* an array that all ranks of its set declare under one name */
typedef struct gp_request gp_request; /* one round of one or more tensors, in progress */

/* Type of an element. f16 and bf16 are summed in f32, rounded once to nearest; integers wrap. */
enum gp_dtype { GP_F32 = 1, GP_F64 = 2, GP_F16 = 3, GP_BF16 = 4, GP_I32 = 5, GP_I64 = 6 };

/* Operations of a round on a tensor of E elements whose set has W ranks. Lengths are numbers of
 * elements:
 *
 *                      gradient   result
 *   GP_SUM .. PRODUCT  E          E        the same on every rank
 *   GP_GATHER          E          W x E    block i is rank i's gradient; result NULL: not wanted
 *   GP_ALL_TO_ALL      W x E      W x E    block i of rank r becomes block r of rank i
 *   GP_REDUCE_SCATTER  W x E      E        rank i gets the sum of all blocks i
 *
 * A block has E elements. Blocks are in ascending order of ranks: for a set of ranks, block i
 * belongs to the i-th rank of the set. Tensors with an update rule have other operations:
 * gp_broadcast(), gp_update(), gp_save(), gp_restore(). */
enum gp_operation {
    GP_SUM = 1,       /* ((g0 + g1) + g2) + ..., in rank order */
    GP_MEAN = 2,      /* the sum, then one division by the number of inputs; not for integers */
    GP_BROADCAST = 3, /* for gp_broadcast() only: the input of rank `root` on every worker */
    GP_MIN = 5,       /* NaN if any input is NaN */
    GP_MAX = 6,       /* NaN if any input is NaN */
    GP_PRODUCT = 7,   /* product of the inputs, computed in rank order */
    GP_GATHER = 8,
    GP_ALL_TO_ALL = 9,
    GP_REDUCE_SCATTER = 10,
};

/* The ranks whose pushes make a round. GP_ALL is for every operation, GP_STALE and GP_ANY are for
 * GP_SUM, the others for GP_SUM, GP_MEAN, GP_MIN, GP_MAX, GP_PRODUCT. `bound`: gp_tensor_spec.
 *
 *   GP_ALL     every rank of the set: the same bits in every run
 *   GP_FIRST   the first `bound` ranks to push (backup workers: DBW). A later rank gets the newest
 *              result, without its own gradient. Its next push is for the round after this result
 *   GP_CHOSEN  the ranks that were first in the same round of the job's GP_LEADS tensor. All
 *              GP_CHOSEN tensors of the job use this set. In each iteration every rank pushes each
 *              GP_CHOSEN tensor once, and then the GP_LEADS tensor
 *   GP_STALE   one rank: each push is a round by itself. A push waits while its rank is more than
 *              `bound` rounds ahead of the slowest rank (SSP). The result is the sum of all pushes
 *              so far, in order of arrival
 *   GP_ANY     like GP_STALE, without a bound (ASP)
 *
 * A long tensor is cut into pieces. Except with GP_CHOSEN, the ranks of a round may differ from
 * piece to piece. */
enum gp_quorum { GP_ALL = 0, GP_FIRST = 1, GP_CHOSEN = 2, GP_STALE = 3, GP_ANY = 4 };
/* For one GP_FIRST tensor of a job: its rounds decide the ranks of the GP_CHOSEN tensors. A declare
 * does not check that the job has a GP_LEADS tensor. Without a GP_LEADS tensor no GP_CHOSEN round
 * ends, and gp_wait() returns -ETIMEDOUT. */
#define GP_LEADS 1u
#define GP_MEASURES 2u /* `gradpool jobs --json` shows the squares of gradients and result */

/* Means GRADPOOL_TIMEOUT_MS, or 60000. Functions without a time-out name their deadline. */
#define GP_TIMEOUT_DEFAULT 0

/* ---- the library ---- */

/* Returns the version of the library at run time, such as "0.1.0". Never fails. */
GP_API const char *gp_version(void);

/* Returns a short text for a negative errno value. Never fails; the text is constant. */
GP_API const char *gp_strerror(int error);

/* Returns the sentence of the calling thread's last error; "" when there was none. The text is
 * valid until the thread's next gp_ call. A successful call does not clear it. */
GP_API const char *gp_last_error(void);

/* Receives one log line without a line feed. `level`: 0 error, 1 warning, 2 info, 3 debug, 4 trace.
 * `line` is valid during the call. Any thread may call the function, also several threads at a
 * time. The function must not call gp_ functions. */
typedef void (*gp_log_fn)(int level, const char *line);

/* Sets the receiver of log lines of the whole process; NULL: standard error (the default). Call it
 * before the first gp_connect(). Never fails. */
GP_API void gp_set_log(gp_log_fn log);

/* ---- connection ---- */

typedef struct gp_options {
    const char *transport;      /* "auto", "shm", "tcp"; NULL: GRADPOOL_TRANSPORT, or auto */
    const char *interface_name; /* network interface for tcp; NULL: GRADPOOL_INTERFACE, or any */
    /* longest wait for the service, and for a lane; 0: GRADPOOL_CONNECT_TIMEOUT_MS, or 10000 */
    int connect_timeout_ms;
} gp_options;

/* Connects to a service, and checks that the service has the same protocol version and accepts the
 * key. `endpoint`: "gradpool://host:port"; NULL: GRADPOOL_ENDPOINT. `options` NULL: all defaults.
 * Both arguments are copied. Over TCP the key of GRADPOOL_KEY_FILE or GRADPOOL_KEY, if one is set,
 * is proved within TLS. While the service is not reachable, the call tries again for up to
 * connect_timeout_ms. `*ret_client` is to be freed with gp_disconnect().
 *
 * Errors, after which the caller may try again: -EDESTADDRREQ no endpoint; -EINVAL a wrong
 * endpoint, option or variable (the text names it); -ECONNREFUSED, -EHOSTUNREACH, -ENOENT (unknown
 * host), -ETIMEDOUT not reachable in time; -ECONNRESET the service ended during the call; -EPROTO
 * another protocol version; -ENOKEY the service requires a key; -EKEYREJECTED the key is wrong. */
GP_API int gp_connect(const char *endpoint, const gp_options *options, gp_client **ret_client);

/* Leaves all jobs of the client (gp_job_leave()), then frees the client and all of its requests. A
 * gp_wait() or gp_poll() for such a request is not allowed afterwards: the request is freed memory.
 * NULL is fine; no effect in a forked child. */
GP_API void gp_disconnect(gp_client *client);

/* ---- jobs ---- */

/* Effect of a lost worker on its job: the job fails, or continues without that rank. */
enum gp_worker_loss { GP_FAIL = 0, GP_CONTINUE = 1 };

/* Place of the copies of parameters and moments: none; another aggregator; or the memory of a rank,
 * 8 to 24 bytes an element. A copy gives the successor of a lost lane the same bits. */
enum gp_durability { GP_DURABILITY_NONE = 1, GP_DURABILITY_REPLICA, GP_DURABILITY_WORKER };

/* Backup workers: a round closes before its slowest ranks arrive, and their gradients are dropped.
 * The rule decides when. DBW is a reconstruction after the abstract of arXiv 2004.14696. */
enum gp_backup_rule {
    GP_BACKUP_ALL = 0, /* every round waits for all ranks */
    GP_BACKUP_STATIC,  /* the round closes at its k-th gradient */
    GP_BACKUP_AUTO,    /* closes at the best progress per time, decided at each gradient */
    GP_BACKUP_DBW,     /* closes at a k chosen before each round for the best progress per time */
    GP_BACKUP_BLIND,   /* closes at a k chosen before each round for the most gradients per time */
    GP_BACKUP_ADASYNC, /* k grows as the loss falls */
};
enum gp_backup_rate { GP_RATE_FIXED = 0, GP_RATE_PROPORTIONAL /* mean times k / workers */ };

/* Backup workers of a job. With GP_BACKUP_ALL all other fields are 0. */
typedef struct gp_backup_spec {
    enum gp_backup_rule rule;
    uint32_t k;         /* STATIC: gradients of a round; ADASYNC: of the first round; others: 0 */
    uint32_t least;     /* minimum of gradients of a round, at most `workers`; 0 means 2 */
    uint32_t absence;   /* missed rounds, then rounds wait for the rank; 0: 64; UINT32_MAX: never */
    uint32_t lag;       /* without update rules: rounds a rank may be behind, up to 16; 0: 4 */
    uint32_t gradients; /* maximum of gradients of one rank in a round, 1 to 7; 0 means 1 */
    enum gp_backup_rate rate;
    /* rank 0 writes the sets of all rounds to the file `record`; rounds get the sets of the file
     * `replay`. "": none; NULL: the file in GRADPOOL_SETS_RECORD, _REPLAY (client/README.md) */
    const char *record, *replay;
} gp_backup_spec;

/* All fields but `rank` are the same on every worker. */
typedef struct gp_job_spec {
    const char *name; /* 1..127 bytes of UTF-8 */
    uint32_t rank;    /* 0 .. workers-1, each rank once; up to workers_max-1 after a resize */
    uint32_t workers; /* 1 .. 768: workers at the job's start; late ranks give the same number */
    /* Slow-down that the job accepts from sharing lanes, in parts per million of its speed without
     * other jobs (50000: 5 %). 0: the limit of the service and the tenant. The strictest of the
     * three limits counts. A declare returns -ENOSPC if the measured job fits nowhere. */
    uint32_t loss_limit_ppm;
    uint32_t workers_max; /* largest number of workers for gp_job_resize(); 0: `workers` */
    enum gp_worker_loss on_worker_loss; /* effect of a lost worker on the job */
    enum gp_durability durability;      /* 0: the default of the service */
    gp_backup_spec backup;              /* needs GP_FAIL, workers_max 0 or `workers`, no copies */
} gp_job_spec;

/* Fills `ret_spec` with rank, size and job name of this process from the launcher's environment,
 * workers_max from GRADPOOL_WORKERS_MAX, and sets all other fields to 0. The first pair that is set
 * counts: GRADPOOL_RANK/_SIZE, then those of torchrun, horovodrun, Open MPI and others (table in
 * client/README.md). `name` points to the value of GRADPOOL_JOB in the environment, or is NULL.
 * Errors: -ENOENT no pair is set; -EINVAL a value is not a number, one variable of a pair is
 * missing, rank >= size without a larger workers_max, or the size is 1 although a variable of
 * another launcher shows several processes. */
GP_API int gp_job_spec_from_environment(gp_job_spec *ret_spec);

/* Joins a job as one rank, without waiting for the other ranks. `spec` is copied. `*ret_job` is to
 * be freed with gp_job_leave(). The call waits for up to connect_timeout_ms, for the service
 * and for the end of a former job of the same name.
 *
 * In an elastic job (workers_max above workers, or GP_CONTINUE) a rank may join late, or again. If
 * the other ranks push each tensor of the job once an iteration, the rank enters all these tensors
 * after the same iteration. Otherwise the rank enters each tensor at the tensor's open round.
 *
 * Errors, after which this process is not in the job: -EINVAL a wrong field of `spec`, or a
 * `backup` that differs from the job's; -EOPNOTSUPP a rule of `backup` that this version does not
 * serve; -EEXIST another process has this rank, or the file `record` exists; -EPROTO the job runs
 * with another spec, or does not accept this rank now; -ESTALE a former job of this name did not
 * end within 8 s; the errors of gp_connect(). */
GP_API int gp_job_join(gp_client *client, const gp_job_spec *spec, gp_job **ret_job);

typedef struct gp_membership {
    uint32_t version; /* version of the set of ranks; grows with each change */
    uint32_t workers; /* number of ranks that are in the job now */
    /* size set by the last resize: ranks with this number or a higher one have to leave */
    uint32_t wanted;
    /* bit r % 64 of word r / 64: rank r is in the job; at the start the ranks below `workers` */
    uint64_t ranks[12];
} gp_membership;

/* Copies the newest membership that the coordinator has sent. Does not wait. */
GP_API int gp_job_membership(gp_job *job, gp_membership *ret_membership);

/* Changes the number of workers of an elastic job. Afterwards the job consists of the ranks 0 to
 * workers-1: missing ranks have to join, and ranks from `workers` on have to leave. `workers`: 1 to
 * workers_max. The call waits until these ranks have joined and left, and until the rounds of this
 * rank's tensors are sums over the new ranks. Means are over the present ranks, in rank order.
 *
 * After a loss the survivors continue without a call. A new job waits for all of its ranks: if the
 * highest ranks never join, a resize to the number of the other ranks starts the job without them.
 * If ranks push each GP_ALL tensor once an iteration, the new ranks apply to all GP_ALL tensors
 * after the same iteration. To add ranks, a rank that pushes calls this function between two
 * iterations, before a joining rank declares; then the joining rank misses no round. To remove
 * ranks, call from a thread that does not push: a leaving rank may wait for a push of this rank.
 *
 * Errors: -EOPNOTSUPP the job is not elastic; -EINVAL `workers`; -ETIMEDOUT not done within
 * timeout_ms (the text names late ranks or the tensor), but the resize stays in force; -ECANCELED
 * another resize has followed; the error of a failed job. */
GP_API int gp_job_resize(gp_job *job, uint32_t workers, int timeout_ms);

/* Leaves the job: informs the lanes and the coordinator, closes all connections, frees the job, its
 * tensors and its gp_alloc() memory, except gp_keep() memory. The call takes seconds at most, and
 * waits while other threads copy results. Waiting calls of other threads end with -ECANCELED. A
 * later gp_wait() for a request of the job returns -ECANCELED, and frees the request. A timeline is
 * completed. Later pushes of other ranks fail and name this rank; an elastic job continues. NULL is
 * fine; no effect in a forked child. The second function is for a worker that has failed. */
GP_API void gp_job_leave(gp_job *job);
GP_API void gp_job_leave_failed(gp_job *job);

/* Sets this rank's loss of the iteration whose gradients are pushed next. The value is sent with
 * each later announcement until the next call; NaN (at first): none. `gradpool jobs --json` shows
 * the mean over the ranks, beside the squares of GP_MEASURES. Does not wait. */
GP_API int gp_job_tell_loss(gp_job *job, float loss);

/* Records a timeline of all workers and lanes of the job, round by round, in the file `path`, for
 * trace viewers. The recording ends with gp_job_timeline_stop() or gp_job_leave(), or after an
 * hour. The file can be read at any time; a thread of the library writes it. The call waits for up
 * to connect_timeout_ms for a connection, then 5 s for the coordinator's answer. Errors, after
 * which nothing is recorded and a new file is removed: those of open(2) and gp_connect(); -EBUSY
 * this rank or another one records the job already; -EAGAIN too many timelines, or a timeline is
 * not possible now; -ETIMEDOUT no answer. */
GP_API int gp_job_timeline_start(gp_job *job, const char *path);

/* Ends the recording of this rank and closes the file. Returns 0 if there is no recording. Waits
 * for the remaining rounds, and up to 5 s for each answer of the coordinator. An error means that
 * the recording ended early; the file has the rounds before the error. */
GP_API int gp_job_timeline_stop(gp_job *job);

/* Returns this worker's rank; 0 for NULL. */
GP_API uint32_t gp_job_rank(const gp_job *job);

/* Returns the number of ranks that are in the job now; 0 for NULL or in a forked child. */
GP_API uint32_t gp_job_workers(const gp_job *job);

/* ---- tensors ---- */

/* Update rule of a tensor: the lane computes new parameters from the mean of the gradients, in the
 * same pass as the sum, by the formulas of PyTorch 1.13: SGD; momentum of Polyak 1964, or of
 * Nesterov as in Sutskever et al. 2013; Adam of Kingma and Ba 2015, whose weight decay is added to
 * the gradient; AdamW of Loshchilov and Hutter 2019, whose weight decay shrinks the parameters. The
 * lane stores two copies of parameters and moments: 8, 16 or 24 bytes an element. */
enum gp_rule { GP_NO_RULE = 0, GP_SGD, GP_MOMENTUM, GP_NESTEROV, GP_ADAM, GP_ADAMW };

/* Settings of one update, all finite. A rule ignores the settings that it does not use. */
typedef struct gp_settings {
    double rate, weight_decay; /* for every rule; 0 or more */
    /* GP_MOMENTUM, GP_NESTEROV; momentum 0 or more; dampening any value, for GP_NESTEROV 0 */
    double momentum, dampening;
    double beta1, beta2, epsilon; /* GP_ADAM, GP_ADAMW; 0 <= beta < 1; epsilon 0 or more */
} gp_settings;

/* Declaration of a tensor, the same on every rank of its set. The fields from `ranks` on may be 0:
 * then all ranks of the job take part in every round. */
typedef struct gp_tensor_spec {
    /* 1..255 bytes of UTF-8, not beginning with "gradpool."; ranks match tensors by name */
    const char *name;
    enum gp_dtype dtype; /* of gradients and results in the caller's memory */
    uint64_t elements;   /* at most 1 TiB of data; 0: rounds only synchronise the ranks */
    /* Set of ranks in any order, including this rank; a rank named twice counts once. NULL: all
     * ranks of the job. */
    const uint32_t *ranks;
    uint32_t ranks_count;  /* length of `ranks` */
    enum gp_quorum quorum; /* ranks that make a round */
    uint32_t bound;        /* GP_FIRST: number of ranks; GP_STALE: number of rounds */
    uint32_t flags;        /* GP_LEADS and GP_MEASURES */
    enum gp_rule rule;     /* for GP_F32 with GP_ALL: the lane stores the parameters */
    /* Dtype of transferred data in both directions, if it differs from `dtype`: GP_F16 or GP_BF16,
     * for GP_F32 alone. Each gradient is rounded once; the sum is made in f32 and rounded once.
     * Half the bytes are transferred, but gp_alloc() memory is copied, too. */
    enum gp_dtype wire;
} gp_tensor_spec;

/* Declares `count` tensors, at any time and in any order; ret_tensors[i] is the handle of specs[i].
 * `specs` is copied. One call for a whole model lets the service place the model as a whole. The
 * call waits for up to GRADPOOL_TIMEOUT_MS until the lanes of the tensors are connected, but not
 * for other ranks. A name that this rank has declared before, also in the same call, gives the same
 * handle. gp_tensor_undeclare() or gp_job_leave() frees a handle. A job runs one declare or
 * undeclare at a time.
 *
 * Limits: a piece is at most 4 MiB of one tensor, and a call declares at most 300,000 pieces. The
 * operator limits tensors (262,144 by default), pieces and bytes (1 TiB) of a job.
 *
 * Errors, after which no handle is returned, and the same call may be made again:
 *
 *   -EINVAL     an invalid field (the text names it), or ranks disagree (the text has each value)
 *   -EEXIST     this rank has declared the name with another spec
 *   -ENOSPC     no lane has room, or none within the loss limit
 *   -EDQUOT     a limit of the job or the tenant is exceeded (the text names it)
 *   -EMSGSIZE   more than 300,000 pieces: declare in several calls
 *   -ETIMEDOUT  the coordinator did not answer, or a lane was not connected in time
 *   -ECONNREFUSED, -EHOSTUNREACH, -ECONNRESET  a lane cannot be reached
 *   -EADDRNOTAVAIL  a lane offers no address for the transport
 *   -EACCES     a lane refuses this process
 *   -EPERM, -ENOSYS  a sandbox refuses shared memory
 *   -EMFILE, -ENFILE  this process has no descriptor left for a lane
 *   the error of a failed job
 *
 * Ranks that disagree later get -EINVAL from gp_wait(). */
GP_API int gp_tensors_declare(gp_job *job, const gp_tensor_spec *specs, size_t count,
                              gp_tensor **ret_tensors);

/* Like gp_tensors_declare() for one tensor of all ranks with GP_ALL and without a rule. */
GP_API int gp_tensor_declare(gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                             gp_tensor **ret_tensor);

/* Removes a tensor on this rank and frees the handle. The service drops the tensor when the last
 * rank has undeclared it. The call waits up to a second for the end of the last round, then up to
 * connect_timeout_ms for the coordinator. Errors, after which the handle stays valid: -EBUSY a
 * request of the tensor is open (gp_wait() has not ended it), or the tensor's last round is not
 * over on all ranks; -ETIMEDOUT the coordinator did not answer; the coordinator's refusal. */
GP_API int gp_tensor_undeclare(gp_tensor *tensor);

/* Returns the tensor's name, which is valid as long as the handle; "" for NULL. */
GP_API const char *gp_tensor_name(const gp_tensor *tensor);
/* Returns the tensor's number of elements; 0 for NULL. */
GP_API uint64_t gp_tensor_elements(const gp_tensor *tensor);

/* ---- memory ---- */

/* Allocates `bytes` of memory that lanes on this host use in place: whole pages, zeroed, shared;
 * for 0 bytes one page. All pages are allocated during the call, and count for this process and its
 * memory cgroup. The memory belongs to the job: gp_free() or gp_job_leave() frees it. Pushes of
 * other threads go on meanwhile. Errors: -ENOSPC more than 512 GiB or 64 allocations of this worker
 * in the job, or the host has no room; -EMFILE no descriptor is left. */
GP_API int gp_alloc(gp_job *job, size_t bytes, void **ret_memory);

/* Makes memory of gp_alloc() outlast the job: gp_job_leave() does not unmap the memory, and the
 * caller then frees it with munmap(memory, length). `length` is `bytes` of gp_alloc() rounded up to
 * whole pages, one page at least. `memory` is the pointer that gp_alloc() returned. A second call
 * does nothing. -ENOENT: not an allocation of this job. */
GP_API int gp_keep(gp_job *job, void *memory);

/* Frees memory of gp_alloc(), which no open request may use. NULL is fine; other pointers, and
 * calls in a forked child, have no effect. Memory of a failed job stays until gp_job_leave(). */
GP_API void gp_free(gp_job *job, void *memory);

/* ---- rounds ---- */

/* One tensor of a group, and its memory. Lengths are those of the table of gp_operation, in
 * elements of gp_tensor_spec.dtype. Lanes may use `gradient` and `result` until gp_wait() has
 * returned 0 or any error except -ETIMEDOUT. Until then the caller does not write to `gradient` and
 * does not read `result`. A NULL in place of needed memory is -EINVAL. `gradient` and `result`
 * may be NULL for a tensor without elements, and `result` for GP_GATHER if it is not wanted. */
typedef struct gp_item {
    gp_tensor *tensor;
    const void *gradient; /* input */
    void *result; /* output; may be the same memory as `gradient` if both are equally long */
} gp_item;

/* Starts one round of a tensor and returns at once. Every rank of the set pushes the tensor equally
 * often, with the same operation; the order among tensors is free. Memory is lent as for gp_item.
 * `*ret_request` is to be ended with gp_wait().
 *
 * Errors, after which no round was started: -EINVAL an argument, an operation that is not defined
 * for the dtype, or a tensor with a rule; -EBUSY the tensor's last request is still open: gp_wait()
 * was not called, or returned -ETIMEDOUT; -EOPNOTSUPP an operation with blocks, for a tensor of all
 * ranks of an elastic job: declare the tensor for a set of ranks; -ENOSPC, -EMFILE no memory for
 * copies; the error of a failed tensor or job. */
GP_API int gp_push_pull(gp_tensor *tensor, const void *gradient, void *result,
                        enum gp_operation operation, gp_request **ret_request);

/* Starts a round of each of `count` tensors of the job with one request; after an error none was
 * started. `items` is copied. A group contains a tensor once at most: -EBUSY if a handle is given
 * twice. Each tensor counts its own rounds, so groups may differ from round to round and from rank
 * to rank. Errors of gp_push_pull(); -EINVAL also for an empty group, and for GP_BROADCAST, which
 * needs a root. */
GP_API int gp_push_pull_group(gp_job *job, const gp_item *items, size_t count,
                              enum gp_operation operation, gp_request **ret_request);

/* Starts a round that copies `values` (E elements) of rank `root` to every rank of the set. The
 * root's memory is only read, unless gp_tensor_spec.wire is narrower: then the root's values are
 * rounded as well. For a tensor with a rule the round sets the parameters, and restarts the count
 * of steps. Errors of gp_push_pull(); -EINVAL also if `root` is not in the set; gp_wait() returns
 * -ECONNRESET if the root has left an elastic job. */
GP_API int gp_broadcast(gp_tensor *tensor, void *values, uint32_t root, gp_request **ret_request);

/* Starts one update of a tensor with a rule: `gradient` (E elements) is the input, `parameters` (E
 * elements, may be the same memory) gets the new parameters of all ranks. Before the first update a
 * gp_broadcast() or a restore sets the parameters. The lanes use the `settings` of the lowest rank
 * in the set; the other ranks may pass NULL. `settings` is copied. If the lowest rank of an elastic
 * job passes NULL, the settings of the tensor's last update are used.
 *
 * Errors of gp_push_pull(), and: -EINVAL no rule, or an invalid setting (the text names it);
 * -ENODATA no parameters were set yet. gp_wait() returns -EOWNERDEAD if the lane died with the
 * parameters and moments; the results of earlier rounds are still in the memory of the ranks. To
 * continue, every rank undeclares the tensor, calls gp_barrier(), declares the tensor again, and
 * restores a snapshot or broadcasts parameters. */
GP_API int gp_update(gp_tensor *tensor, const void *gradient, void *parameters,
                     const gp_settings *settings, gp_request **ret_request);

/* Starts one update of each of `count` tensors of the job with one request and the same settings;
 * after an error none was started. `items` is copied; item.result is `parameters` of gp_update().
 * Errors of gp_update(); -EBUSY also if a handle is given twice. */
GP_API int gp_update_group(gp_job *job, const gp_item *items, size_t count,
                           const gp_settings *settings, gp_request **ret_request);

/* Result of gp_round_end(). */
typedef struct gp_round {
    uint64_t number;           /* newest round of the job whose parameters this rank has */
    uint64_t missed;           /* closed rounds in which no gradient of this rank counted */
    uint32_t counted, of, own; /* gradients in the mean, 0: unknown; ranks; own gradients in it */
} gp_round;

/* Ends this rank's round in a job with backup workers. Before the call this rank pushes each tensor
 * once: by gp_update() with `settings` on every rank, or, in a job without rules, by a reduction.
 * Waits until the round has closed and its results have landed. Before this call, gp_wait() for
 * these pushes returns -EDEADLK. Returns 0: the gradient counts; 1: dropped. With rules the results
 * are the parameters of this or a later round; without rules, the sums of this round. The results
 * of a round are the same on every rank that gets them. Returns 2, only if backup.gradients is
 * above 1: the round is still open. Push each group again, with a further gradient on the same
 * parameters (the push returns the same request), and call again. `loss`: see gp_job_tell_loss().
 * `ret_round` may be NULL. After -ETIMEDOUT call again. Errors of gp_wait(); -EINVAL no push. */
GP_API int gp_round_end(gp_job *job, double loss, int timeout_ms, gp_round *ret_round);

/* In a job without rules, fetches the sums of the next round that closed without this rank. The
 * sums are written to the results of this rank's last push, whose gp_wait() has returned. After
 * each gp_round_end(), call the function until it returns 0, before the next push or declaration.
 * Returns 1: the sums have landed; 0: no sums are missing. Rounds wait for a rank that is `lag`
 * rounds behind. Errors of gp_round_end(); -EBUSY a request is open, or a second thread calls. */
GP_API int gp_round_next(gp_job *job, int timeout_ms);

/* Returns the newest closed round whose results this rank lacks; 0: none. A gradient for that round
 * will be dropped. Never waits. From the first call on, a thread of the library reads lanes. */
GP_API uint64_t gp_job_passed(gp_job *job);

/* Ends this rank's round without a push, if gp_job_passed() names the round; not in the first
 * round. gp_round_next() then gets the results. Returns 1: no gradient counts; 0: earlier ones
 * count, call gp_wait(); 2: the round is open. Errors of gp_round_next(); -EINVAL after a push. */
GP_API int gp_round_skip(gp_job *job, int timeout_ms, gp_round *ret_round);

/* Starts a round between the two ranks of a set, or of a job of two workers: `values` (E elements)
 * of the sender go to the receiver. The request is done when the receiver has the values. One rank
 * calls gp_send(), the other gp_receive(). Errors of gp_push_pull(); -EINVAL also for a set of
 * another size. gp_wait() returns -EINVAL if both ranks sent or both received. */
GP_API int gp_send(gp_tensor *tensor, const void *values, gp_request **ret_request);
/* The receiving side of gp_send(): `values` (E elements) gets the sender's values. */
GP_API int gp_receive(gp_tensor *tensor, void *values, gp_request **ret_request);

/* Waits for a request, for up to timeout_ms, and copies results out of shared memory.
 *
 * 0: every result is in place. If a lane used `gradient` or `result` in place (gp_alloc() memory),
 * every other rank has its result as well. The request is freed, and its memory belongs to the
 * caller again.
 * -ETIMEDOUT: not yet. The text names the tensor, the round, and the late ranks or the late lane.
 * The request still exists, its memory stays lent, and a push of its tensors returns -EBUSY: wait
 * again. A request cannot be cancelled; to stop waiting, leave the job.
 *
 * Every other error frees the request, returns the memory, and leaves `result` undefined:
 * -ECONNRESET or -EPIPE a worker or an aggregator was lost or left (the text names it); -EINVAL
 * ranks disagree (the text has ranks and values); -EOWNERDEAD a result or state was lost with its
 * lane; -ESHUTDOWN the service was stopped; -ECANCELED this rank left the job. If one tensor of a
 * group fails, the call first waits until no lane uses memory of the others. These errors leave the
 * request unchanged: -EINVAL for NULL, -ECHILD after fork(), -EDEADLK before gp_round_end(). */
GP_API int gp_wait(gp_request *request, int timeout_ms);

/* Returns 1 when the request is done, with or without an error: gp_wait() will not block, and
 * returns the error. Returns 0 when the request is not done after timeout_ms; a time-out of 0 or
 * less returns at once. Frees nothing, and does not search for late ranks. The only errors are
 * gp_poll's own: -EINVAL for NULL, -ECHILD in a forked child. */
GP_API int gp_poll(gp_request *request, int timeout_ms);

/* Waits until every rank of the job has called this function equally often; a late worker counts
 * from its first call. -ETIMEDOUT: a rank is late (the text names it); the next call waits for the
 * same barrier. -EBUSY: another thread of this rank is in this call. Other errors: those of
 * gp_tensors_declare(), because the library declares a tensor for the barrier, and those of
 * gp_wait(). */
GP_API int gp_barrier(gp_job *job, int timeout_ms);

/* ---- parameters on the lanes ---- */

/* Writes parameters, moments and step counts of all tensors with rules, and all tables, to the file
 * `path` of the lowest present rank. Every rank calls the function between the same two iterations,
 * with the same tensors declared, and no request of them open (tables: gradpool_table.h). The file
 * is replaced as a whole, or stays as it was. Each step waits for up to GRADPOOL_TIMEOUT_MS.
 *
 * Errors, the same on all ranks except -ETIMEDOUT: -EINVAL no tensor has a rule, ranks have
 * declared different tensors, or there is no path; -EBUSY a tensor has an open request; -ENODATA a
 * tensor has no parameters; -EOPNOTSUPP a tensor has a set of ranks; -ETIMEDOUT a rank is late: the
 * next call of this function or gp_job_restore() completes this one first; errors of writing, and
 * of gp_wait(). */
GP_API int gp_job_snapshot(gp_job *job, const char *path);

/* Restores a snapshot with the same bits, in place of broadcasts, in a job with the same tensors
 * and tables. Called like gp_job_snapshot(). `items` names tensors whose parameters this rank
 * wants: each item.result gets E elements, or is NULL (not wanted); item.gradient is ignored. If a
 * tensor is named twice, its first item counts. With `count` 0 this rank wants no parameters.
 *
 * Errors of gp_job_snapshot(), and errors after which nothing is restored: those of open(2) and
 * reading; -EBADMSG not a snapshot, or a damaged one; -EPROTO a snapshot of another version;
 * -EINVAL other names, sizes or rules. After an error of a round some tensors may be restored. */
GP_API int gp_job_restore(gp_job *job, const char *path, const gp_item *items, size_t count);

/* State of a tensor with a rule: first the parameters, then the moments of the rule (GP_MOMENTUM,
 * GP_NESTEROV: the momentum; GP_ADAM, GP_ADAMW: means of gradients and of their squares). These are
 * 1, 2 or 3 arrays of E floats, one after the other. */
typedef struct gp_state {
    gp_tensor *tensor;
    float *arrays;  /* memory of the caller for all arrays */
    uint64_t steps; /* set by the call: updates since the parameters were set or restored */
} gp_state;

/* Reads the states of `count` tensors for this rank alone, through the coordinator. Call the
 * function between two iterations: gp_wait() has ended all requests of the tensors, and no further
 * request begins before the return. Rounds of the job wait meanwhile. The call waits up to
 * connect_timeout_ms for a connection, up to 90 s for the begin of the read, and up to 20 s for
 * each further answer. If rounds have waited for 20 s, the job continues and the call fails.
 *
 * Errors, after which `arrays` and `steps` are undefined and the job continues: -EINVAL a tensor
 * without a rule, or named twice; -EBUSY another thread reads, or leaves the job; -EAGAIN the
 * coordinator is busy with the job: try again later; -ENODATA a tensor of the job has no
 * parameters; -EOPNOTSUPP a tensor has a set of ranks; -ETIMEDOUT no answer in time; -ECANCELED the
 * job was left; the errors of gp_connect(). */
GP_API int gp_job_read(gp_job *job, gp_state *states, size_t count);

/* Starts a round of all ranks that copies the state of a tensor with a rule to `arrays` (as in
 * gp_state). `arrays` is lent until gp_wait() has returned; NULL: this rank does not want the
 * state. The state stays unchanged. Errors of gp_push_pull(); -EINVAL no rule; -ENODATA no
 * parameters were set yet. */
GP_API int gp_save(gp_tensor *tensor, float *arrays, gp_request **ret_request);

#define GP_SAME_STEPS UINT64_MAX
/* Starts a round of all ranks that sets the state of a tensor with a rule to `arrays` of rank
 * `root` (as in gp_state; NULL on other ranks), and the count of updates to `steps`, the same on
 * every rank. GP_SAME_STEPS keeps the present count; a root that joined late does not know this
 * count, and gets -EINVAL. `parameters`: E floats that get the parameters on ranks other than the
 * root; NULL: not wanted. Memory is lent until gp_wait() has returned. Errors of gp_push_pull();
 * -EINVAL also without a rule, or if `root` is not in the set. */
GP_API int gp_restore(gp_tensor *tensor, const float *arrays, float *parameters, uint32_t root,
                      uint64_t steps, gp_request **ret_request);

/* Returns a checksum of `count` arrays of bytes[i] bytes, in their order. A change of any one word
 * changes the checksum. Use: to detect writes of other code to the arrays. Pure; never fails. */
GP_API uint64_t gp_checksum(const void *const *arrays, const size_t *bytes, size_t count);
#ifdef __cplusplus
}
#endif
#endif
