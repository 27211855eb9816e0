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
 * something, nothing was started, and `ret_` arguments are unchanged, unless the comment says
 * otherwise.
 *
 * Failed jobs: when a job fails (a lost worker with GP_FAIL, a lost lane without a successor, a
 * stopped service), every open request ends with the job's error, and every later call that needs
 * the service returns it: -ECONNRESET, -EPIPE, -ESHUTDOWN or another code with its reason in
 * gp_last_error(). gp_job_leave() is all that is left to do with such a job.
 *
 * Threads: any thread may call any function. The caller makes sure that no thread uses an object
 * while another thread destroys it: gp_disconnect(), gp_job_leave(), gp_tensor_undeclare(),
 * gp_free(), and a gp_wait() that frees its request. Two threads must not wait for one request at
 * the same time. A forked child cannot use objects of its parent: calls return -ECHILD or do
 * nothing, and the child's exit changes nothing for the parent.
 *
 * Time: every wait has a deadline, and no thread spins. Functions that only start a round return at
 * once, after copies of at most the bytes that they are given.
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

typedef struct gp_client gp_client;   /* a connection to a service */
typedef struct gp_job gp_job;         /* the place of this process in a job: one rank */
typedef struct gp_tensor gp_tensor;   /* an array that all ranks of its set declare by one name */
typedef struct gp_request gp_request; /* one round of one or more tensors, in progress */

/* Type of an element. f16 and bf16 are summed in f32, rounded once to nearest; integers wrap. */
enum gp_dtype { GP_F32 = 1, GP_F64 = 2, GP_F16 = 3, GP_BF16 = 4, GP_I32 = 5, GP_I64 = 6 };

/* Operation of a round on a tensor of E elements with W ranks in its set, in rank order. Numbers
 * are elements:
 *
 *                      gradient   result
 *   GP_SUM .. PRODUCT  E          E        the same on every rank
 *   GP_GATHER          E          W x E    block i is rank i's gradient; result NULL: skip
 *   GP_ALL_TO_ALL      W x E      W x E    block i of rank r's gradient: block r of rank i's result
 *   GP_REDUCE_SCATTER  W x E      E        rank i gets the sum of all blocks i
 *
 * A block is as long as the tensor: the E of an all-to-all is the message of one rank to another.
 * Tensors with an update rule have their own operations: gp_broadcast(), gp_update(), gp_save(),
 * gp_restore(). */
enum gp_operation {
    GP_SUM = 1,       /* ((g0 + g1) + g2) + ..., in rank order */
    GP_MEAN = 2,      /* the sum, then one division by the number of inputs; not for integers */
    GP_BROADCAST = 3, /* the input of rank `root` on every worker: gp_broadcast() */
    GP_MIN = 5,       /* NaN if any input is NaN */
    GP_MAX = 6,       /* likewise */
    GP_PRODUCT = 7,   /* in rank order */
    GP_GATHER = 8,
    GP_ALL_TO_ALL = 9,
    GP_REDUCE_SCATTER = 10,
};

/* Ranks whose pushes make a round of a tensor. All but GP_ALL are for GP_SUM, GP_MEAN,
 * GP_MIN, GP_MAX and GP_PRODUCT, the last two for GP_SUM alone. A bound is gp_tensor_spec.bound.
 *
 *   GP_ALL     every rank of the set: the same bits in every run
 *   GP_FIRST   the first `bound` ranks to push (backup workers: DBW). A later rank gets the newest
 *              result, without its own gradient, and continues from there
 *   GP_CHOSEN  the ranks that were first in the same round of the job's GP_LEADS tensor: one set
 *              for all GP_CHOSEN tensors. Each is pushed once an iteration, the leading one last
 *   GP_STALE   each push by itself, at most `bound` rounds ahead of the slowest rank (SSP): its
 *              result is the sum of all pushes so far, in order of arrival
 *   GP_ANY     the same without a bound (ASP)
 *
 * A long tensor is cut into pieces; except with GP_CHOSEN each piece has ranks of its own. */
enum gp_quorum { GP_ALL = 0, GP_FIRST = 1, GP_CHOSEN = 2, GP_STALE = 3, GP_ANY = 4 };
#define GP_LEADS 1u    /* of a GP_FIRST tensor: its rounds decide for the job's GP_CHOSEN tensors */
#define GP_MEASURES 2u /* `gradpool jobs --json` shows the squares of gradients and result */

/* A time-out of 0 ms or less means the default: GRADPOOL_TIMEOUT_MS, or 60000. The default is also
 * the longest time of a declare. There is no wait without a deadline. */
#define GP_TIMEOUT_DEFAULT 0

/* ---- the library ---- */

/* Returns the version of the library at run time, such as "0.1.0". Never fails. */
GP_API const char *gp_version(void);

/* Returns a short text for a negative errno value. Never fails; the text is constant. */
GP_API const char *gp_strerror(int error);

/* Returns the sentence of the calling thread's last error; "" when there was none. The text belongs
 * to the library and is valid until the thread's next gp_ call. A successful call does not
 * clear it. */
GP_API const char *gp_last_error(void);

/* Receives one log line without a line feed. `level`: 0 error, 1 warning, 2 info, 3 debug, 4 trace.
 * `line` is valid during the call. Any thread of the process or the library may call it, also
 * several at a time; the function must not call gp_ functions. */
typedef void (*gp_log_fn)(int level, const char *line);

/* Sets the receiver of log lines of the whole process; NULL: standard error (the default). Call it
 * before the first gp_connect(). Never fails. */
GP_API void gp_set_log(gp_log_fn log);

/* ---- connection ---- */

typedef struct gp_options {
    const char *transport;      /* "auto", "shm", "tcp"; NULL: GRADPOOL_TRANSPORT, or auto */
    const char *interface_name; /* network interface for tcp; NULL: GRADPOOL_INTERFACE, or any */
    int connect_timeout_ms;     /* wait for the service, and for a lane; 0:
                                 * GRADPOOL_CONNECT_TIMEOUT_MS, or 10000 */
} gp_options;

/* Connects to a service and checks that it is there, of this protocol, and accepts the key.
 * `endpoint`: "gradpool://host:port"; NULL: GRADPOOL_ENDPOINT. `options` NULL: all defaults. Both
 * are copied. Over TCP the key of GRADPOOL_KEY_FILE or GRADPOOL_KEY, if set, is proved within TLS.
 * Retries for up to connect_timeout_ms while the service is not reachable. `*ret_client` is to be
 * freed with gp_disconnect().
 *
 * Errors, after which the caller may try again: -EDESTADDRREQ no endpoint; -EINVAL endpoint,
 * option or variable (the text says which); -ECONNREFUSED, -EHOSTUNREACH, -ENOENT (unknown host),
 * -ETIMEDOUT not reachable in time; -ECONNRESET the service ended meanwhile; -EPROTO another
 * protocol version; -ENOKEY the service wants a key; -EKEYREJECTED the key is wrong. */
GP_API int gp_connect(const char *endpoint, const gp_options *options, gp_client **ret_client);

/* Leaves all jobs of the client (gp_job_leave()), then frees the client and all requests that were
 * not waited for. NULL is fine; no effect in a forked child. */
GP_API void gp_disconnect(gp_client *client);

/* ---- jobs ---- */

/* Effect of a lost worker on its job: the job fails, or continues without that rank. */
enum gp_worker_loss { GP_FAIL = 0, GP_CONTINUE = 1 };

/* Copies of parameters and moments against the loss of a lane: none; on another aggregator; or in
 * the memory of a rank (twice 4 to 12 bytes an element). With a copy no bit is lost. */
enum gp_durability { GP_DURABILITY_NONE = 1, GP_DURABILITY_REPLICA, GP_DURABILITY_WORKER };

/* All fields but `rank` are the same on every worker. */
typedef struct gp_job_spec {
    const char *name; /* 1..127 bytes of UTF-8 */
    uint32_t rank;    /* 0 .. workers-1, each once; up to workers_max-1 after a resize */
    uint32_t workers; /* 1 .. 768: number at the begin of the job, also for ranks that come later */
    /* Slow-down that the job accepts from sharing lanes, in parts per million of its speed alone
     * (50000: 5 %). 0: the limit of the service and the tenant; the strictest of the three counts.
     * A job whose measured use fits nowhere within the limit gets -ENOSPC from its declare. */
    uint32_t loss_limit_ppm;
    uint32_t workers_max;               /* most workers of gp_job_resize(); 0: `workers` */
    enum gp_worker_loss on_worker_loss; /* effect of a lost worker */
    enum gp_durability durability;      /* 0: the default of the service */
} gp_job_spec;

/* Fills `ret_spec` with rank, size and job name of this process from the launcher's environment,
 * and zeros. The first pair that is set counts: GRADPOOL_RANK/_SIZE, those of torchrun, horovodrun,
 * Open MPI, MVAPICH2, jsrun, Flux, PMI, bpslaunch, srun (table in client/README.md). `name` is
 * GRADPOOL_JOB, or NULL; it points into the environment.
 * Errors: -ENOENT no pair is set; -EINVAL a value is no number, one of a pair is missing, rank >=
 * size, or the process would be alone although another launcher variable shows several. */
GP_API int gp_job_spec_from_environment(gp_job_spec *ret_spec);

/* Joins a job as one rank, without waiting for the other ranks. `spec` is copied. `*ret_job` is to
 * be freed with gp_job_leave(). Waits for the service for up to connect_timeout_ms.
 *
 * In an elastic job (workers_max above workers, or GP_CONTINUE) a rank may join late, or again. It
 * enters all tensors that it declares between the same two iterations of the others, if these push
 * each of the tensors once an iteration; else it enters each tensor at its open round.
 *
 * Errors, after which this process is not in the job: -EINVAL a field of `spec`; -EEXIST the rank
 * is taken (the text names the process); -EPROTO the job runs with another spec, or does not want
 * this rank now; -ESTALE a former job of this name did not end within 8 s; those of
 * gp_connect(). */
GP_API int gp_job_join(gp_client *client, const gp_job_spec *spec, gp_job **ret_job);

typedef struct gp_membership {
    uint32_t version; /* grows with each change */
    uint32_t workers; /* ranks in the job now */
    uint32_t wanted;  /* size of the last resize: ranks from there on are to leave */
    uint64_t
        ranks[12]; /* these ranks: rank r is bit r % 64 of word r / 64; at first the founders */
} gp_membership;

/* Copies the newest membership that the coordinator has sent. Does not wait. */
GP_API int gp_job_membership(gp_job *job, gp_membership *ret_membership);

/* Changes the number of workers of an elastic job, or of its next stage: ranks 0 to workers-1 are
 * to be in the job, missing ranks are to join, all others are to leave. `workers`: 1 to
 * workers_max. Waits until the ranks have joined and left, and the lanes make rounds of this
 * rank's tensors with them; means are over the present ranks, in rank order.
 *
 * After a loss the survivors continue without a call. A resize to the current size starts a job
 * without a rank that never joined. With GP_ALL all tensors change between the same two iterations,
 * if an iteration pushes each once. A rank that pushes calls it between two iterations, before a
 * joining rank declares: then the joining rank misses no round. To shrink, call from another thread
 * than the one that pushes: leaving ranks may need rounds of this rank.
 *
 * Errors: -EOPNOTSUPP the job is not elastic; -EINVAL `workers`; -ETIMEDOUT not done within
 * timeout_ms (the text names late ranks or the tensor): the resize stays in force; -ECANCELED
 * another resize has followed; the error of a failed job. */
GP_API int gp_job_resize(gp_job *job, uint32_t workers, int timeout_ms);

/* Leaves the job: says goodbye to the lanes and the coordinator, closes all connections, frees the
 * job with its tensors and its gp_alloc() memory, except kept memory (gp_keep()). Takes some
 * seconds at most, plus the end of copies of other threads. Calls of other threads that wait in
 * the job end with -ECANCELED; so does gp_wait() for a request of the job later, which frees it. A
 * timeline is written to its end. Other ranks that push later get an error that names this rank, or
 * continue in an elastic job. NULL is fine; no effect in a forked child. */
GP_API void gp_job_leave(gp_job *job);

/* Sets this rank's loss of the iteration whose gradients are pushed next. The value goes with each
 * later announcement until the next call; NaN (at first): none. `gradpool jobs --json` shows the
 * mean over the ranks beside the squares of GP_MEASURES. Does not wait. */
GP_API int gp_job_tell_loss(gp_job *job, float loss);

/* Records a timeline of all workers and lanes of the job, round by round, in the file `path`, for
 * trace viewers: until gp_job_timeline_stop(), gp_job_leave(), or an hour has passed. The file can
 * be read at any time. A thread of the library writes it. Waits for the coordinator's answer.
 * Errors, after which nothing is recorded and a new file is removed: those of open(2) and
 * gp_connect(); -EBUSY this rank or another records the job already; -EAGAIN too many timelines,
 * or none possible now. */
GP_API int gp_job_timeline_start(gp_job *job, const char *path);

/* Ends the recording of this rank and closes the file; 0 without one. An error is the one that
 * ended the recording early; the file then has the rounds before it. */
GP_API int gp_job_timeline_stop(gp_job *job);

/* Returns this worker's rank; 0 for NULL. */
GP_API uint32_t gp_job_rank(const gp_job *job);

/* Returns the number of ranks in the job now (gp_membership.workers); 0 for NULL or in a forked
 * child. */
GP_API uint32_t gp_job_workers(const gp_job *job);

/* ---- tensors ---- */

/* Update rule of a tensor: the lane turns the mean of the gradients into new parameters, in the
 * pass that sums them, by the formulas of PyTorch 1.13 (SGD; with momentum after Polyak 1964,
 * Nesterov's as in Sutskever et al. 2013; Adam: Kingma and Ba 2015, whose weight decay is added to
 * the gradient; AdamW: Loshchilov and Hutter 2019, whose weight decay shrinks the parameters). The
 * lane stores parameters and moments: twice 4, 8 or 12 bytes an element. */
enum gp_rule { GP_NO_RULE = 0, GP_SGD, GP_MOMENTUM, GP_NESTEROV, GP_ADAM, GP_ADAMW };

/* Settings of one update. A rule ignores those that it does not use. */
typedef struct gp_settings {
    double rate, weight_decay;    /* 0 or more */
    double momentum, dampening;   /* GP_MOMENTUM; GP_NESTEROV, whose dampening is 0 */
    double beta1, beta2, epsilon; /* GP_ADAM, GP_ADAMW; betas below 1 */
} gp_settings;

/* Declaration of a tensor, the same on every rank of its set. Fields from `ranks` on may be 0: a
 * tensor of all ranks, all of which take part in every round. */
typedef struct gp_tensor_spec {
    const char *name;      /* 1..255 bytes of UTF-8; ranks match tensors by name, in any order */
    enum gp_dtype dtype;   /* of gradients and results in the caller's memory */
    uint64_t elements;     /* 0: rounds only synchronise */
    const uint32_t *ranks; /* set of ranks, with this one; NULL: all ranks of the job */
    uint32_t ranks_count;  /* length of `ranks` */
    enum gp_quorum quorum; /* ranks that make a round */
    uint32_t bound;        /* GP_FIRST: ranks; GP_STALE: rounds */
    uint32_t flags;        /* GP_LEADS, GP_MEASURES */
    enum gp_rule rule;     /* for GP_F32 with GP_ALL: the lane stores the parameters */
    /* Dtype on the wire in both directions, if another: GP_F16 or GP_BF16, for GP_F32 alone. Each
     * gradient is rounded once; the sum is made in f32 and rounded once. Half the bytes, but also
     * gp_alloc() memory is copied. */
    enum gp_dtype wire;
} gp_tensor_spec;

/* Declares `count` tensors, at any time and in any order; ret_tensors[i] is the handle of specs[i].
 * `specs` is copied. One call for a whole model lets the service place the model as a whole. Waits
 * until the lanes of the tensors are connected, for up to GRADPOOL_TIMEOUT_MS, but not for other
 * ranks. A name that this rank has declared before gives the same handle. A handle is freed by
 * gp_tensor_undeclare() or gp_job_leave(). One declare or undeclare runs at a time in a job.
 *
 * Errors, after which no handle is returned, and the same call may be made again: -EINVAL a field
 * of a tensor (the text names both), or ranks disagree (the text has all values); -EEXIST the name
 * was declared with another spec; -ENOSPC no lane has room, or none within the loss limit; -EDQUOT
 * beyond a limit of the job or the tenant (the text names it); -ETIMEDOUT no answer, or a lane was
 * not connected; an error of a lane's connection; the error of a failed job. Ranks that disagree
 * later get -EINVAL from gp_wait(). */
GP_API int gp_tensors_declare(gp_job *job, const gp_tensor_spec *specs, size_t count,
                              gp_tensor **ret_tensors);

/* Declares one tensor of all ranks with GP_ALL and without a rule. Like gp_tensors_declare(). */
GP_API int gp_tensor_declare(gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                             gp_tensor **ret_tensor);

/* Forgets a tensor on this rank and frees the handle; the service forgets the tensor when the last
 * rank does. Waits up to a second for the end of the last round, then for the coordinator.
 * Errors, after which the handle stays valid: -EBUSY a request of the tensor was not waited for, or
 * its last round is not over on all ranks; -ETIMEDOUT the coordinator did not answer; its
 * refusal. */
GP_API int gp_tensor_undeclare(gp_tensor *tensor);

/* Returns the tensor's name, which is valid as long as the handle; "" for NULL. */
GP_API const char *gp_tensor_name(const gp_tensor *tensor);

/* Returns the tensor's number of elements; 0 for NULL. */
GP_API uint64_t gp_tensor_elements(const gp_tensor *tensor);

/* ---- memory ---- */

/* Allocates `bytes` of memory that lanes on this host use in place: whole pages, zeroed, shared.
 * All pages exist at the return, and count for this process and its memory cgroup. The memory
 * belongs to the job: gp_free() or gp_job_leave() frees it. Other threads of the job are not
 * delayed. Errors: -ENOSPC beyond 512 GiB or the number of parts that a worker may lend in a job,
 * or no room in memory; -EMFILE no descriptor is left. */
GP_API int gp_alloc(gp_job *job, size_t bytes, void **ret_memory);

/* Makes memory of gp_alloc() outlast the job: gp_job_leave() leaves it mapped, and the caller
 * then frees it with munmap(). `memory` is the pointer that gp_alloc() returned. -ENOENT: not an
 * allocation of this job. */
GP_API int gp_keep(gp_job *job, void *memory);

/* Frees memory of gp_alloc(), which no open request may use. NULL is fine; other pointers, and
 * calls in a forked child, have no effect. */
GP_API void gp_free(gp_job *job, void *memory);

/* ---- rounds ---- */

/* One tensor of a group, and its memory. Lengths are those of the table of gp_operation, in
 * elements of gp_tensor_spec.dtype. Both areas are lent from the call until gp_wait() has returned
 * 0 or another error than -ETIMEDOUT: the caller does not write to `gradient`, and does not read
 * `result`, before that. Both may be NULL for a tensor without elements. */
typedef struct gp_item {
    gp_tensor *tensor;
    const void *gradient; /* input */
    void *result; /* output; may be the same memory as `gradient` if the lengths are equal */
} gp_item;

/* Starts one round of a tensor and returns at once. Every rank of the set pushes the tensor equally
 * often, with the same operation; the order among tensors is free. Memory is lent as for gp_item.
 * `*ret_request` is to be ended with gp_wait().
 *
 * Errors, after which no round was started: -EINVAL an argument, an operation that is not defined
 * for the dtype, or a tensor with a rule; -EBUSY the tensor has a request that was not waited for;
 * -EOPNOTSUPP an operation with blocks on all ranks of an elastic job: declare the tensor for a
 * set of ranks; -ENOSPC, -EMFILE no memory for copies; the error of a failed tensor or job. */
GP_API int gp_push_pull(gp_tensor *tensor, const void *gradient, void *result,
                        enum gp_operation operation, gp_request **ret_request);

/* Starts a round of each of `count` tensors of the job with one request; all or, after an error,
 * none. `items` is copied. Each tensor counts its own rounds: groups may differ from round to
 * round and from rank to rank. Errors of gp_push_pull(); -EINVAL also for an empty group, and for
 * GP_BROADCAST, which needs a root. */
GP_API int gp_push_pull_group(gp_job *job, const gp_item *items, size_t count,
                              enum gp_operation operation, gp_request **ret_request);

/* Starts a round that copies `values` (E elements) of rank `root` to every rank of the set. The
 * root's memory is read, and is written only if gp_tensor_spec.wire is narrower: then the root's
 * values are rounded as well. Sets the parameters of a tensor with a rule, and restarts its count
 * of steps. Errors of gp_push_pull(); -EINVAL also if `root` is not in the set; at gp_wait()
 * -ECONNRESET if the root is not in an elastic job any more. */
GP_API int gp_broadcast(gp_tensor *tensor, void *values, uint32_t root, gp_request **ret_request);

/* Starts one update of a tensor with a rule: `gradient` (E elements) goes in, `parameters` (E
 * elements, may be the same memory) gets the new parameters of all ranks. Before the first update a
 * gp_broadcast() or a restore sets the parameters. The lanes use the `settings` of the set's first
 * rank; the other ranks may pass NULL. `settings` is copied. In an elastic job a first rank without
 * settings uses those of the tensor's last update.
 *
 * Errors of gp_push_pull(), and: -EINVAL no rule, or an invalid setting (the text names it);
 * -ENODATA no parameters were set yet; at gp_wait() -EOWNERDEAD the lane died with the parameters
 * and moments; the results of earlier rounds are left in the memory of the ranks. To continue,
 * every rank undeclares the tensor, calls gp_barrier(), declares the tensor again, and restores a
 * snapshot or broadcasts parameters. */
GP_API int gp_update(gp_tensor *tensor, const void *gradient, void *parameters,
                     const gp_settings *settings, gp_request **ret_request);

/* Starts one update of each of `count` tensors of the job with one request and the same settings;
 * all or, after an error, none. `items` is copied; item.result is `parameters` of gp_update(), with
 * its errors. */
GP_API int gp_update_group(gp_job *job, const gp_item *items, size_t count,
                           const gp_settings *settings, gp_request **ret_request);

/* Starts a round between the two ranks of a set, or of a job of two workers: `values` (E elements)
 * of the sender go to the receiver. The request is done when the receiver has the values. One rank
 * calls gp_send(), the other gp_receive(). Errors of gp_push_pull(); -EINVAL also for a set of
 * another size, and at gp_wait() if both ranks sent or both received. */
GP_API int gp_send(gp_tensor *tensor, const void *values, gp_request **ret_request);

/* The other side of gp_send(): `values` (E elements) gets the sender's values. */
GP_API int gp_receive(gp_tensor *tensor, void *values, gp_request **ret_request);

/* Waits for a request, for up to timeout_ms, and copies results out of shared memory.
 *
 * 0: every result is in place; if a lane used `gradient` or `result` in place (gp_alloc() memory),
 * every other rank has its result as well. The request is freed, and its memory is the caller's.
 * -ETIMEDOUT: not yet. The text names the tensor, the round and the ranks or the lane that are
 * late. The request lives on, and its memory stays lent: wait again.
 *
 * Every other error frees the request, returns the memory, and leaves `result` undefined:
 * -ECONNRESET or -EPIPE a worker or an aggregator was lost or left (the text names it), -EINVAL
 * ranks disagree (the text has ranks and values), -EOWNERDEAD a result or state was lost with its
 * lane, -ESHUTDOWN the service was stopped, -ECANCELED this rank left the job. An error that names
 * a tensor stays with the tensor: later calls return it until the tensor is undeclared. */
GP_API int gp_wait(gp_request *request, int timeout_ms);

/* Returns 1 when the request is done, with or without an error: gp_wait() will not block. Returns 0
 * when it is not, after timeout_ms; 0 or less: at once. Frees nothing, and does not search for late
 * ranks: for callers that do other work in between, such as handling signals. */
GP_API int gp_poll(gp_request *request, int timeout_ms);

/* Waits until every rank of the job has called it equally often; a late worker counts from its
 * first call. -ETIMEDOUT: a rank is late (the text names it); the next call waits for the same
 * barrier. -EBUSY: another thread of this rank waits in it. Other errors: of the declare of its
 * own tensor, and of gp_wait(). */
GP_API int gp_barrier(gp_job *job, int timeout_ms);

/* ---- parameters on the lanes ---- */

/* Writes parameters, moments and step counts of all tensors with rules to the file `path`, which
 * counts on the first rank present. Every rank calls it between the same two iterations, with the
 * same tensors declared and no open request on them; the call is for all ranks together. The file
 * is replaced as a whole, or stays as it was. Waits up to GRADPOOL_TIMEOUT_MS for each step.
 *
 * Errors, the same on all ranks unless it is -ETIMEDOUT: -EINVAL no tensor has a rule, ranks have
 * declared different ones, or no path; -EBUSY a tensor has an open request; -ENODATA a tensor has
 * no parameters; -EOPNOTSUPP a tensor has a set of ranks; -ETIMEDOUT a rank is late: the next call
 * of either function ends this one first; errors of writing, and of gp_wait(). */
GP_API int gp_job_snapshot(gp_job *job, const char *path);

/* Restores a snapshot in a job with the same tensors, instead of broadcasts, to the same bits: the
 * counterpart of gp_job_snapshot(), called in the same way. `items` names tensors whose parameters
 * this rank wants: each item.result gets E elements; gradients are ignored. count 0: none.
 *
 * Errors of gp_job_snapshot(), and, with nothing restored: errors of open(2) and reading; -EBADMSG
 * no snapshot, or a damaged one; -EPROTO a snapshot of another version; -EINVAL other names, sizes
 * or rules (the text says which). After an error of a round some tensors may be restored. */
GP_API int gp_job_restore(gp_job *job, const char *path, const gp_item *items, size_t count);

/* State of a tensor with a rule: parameters, then the moments of the rule (GP_MOMENTUM,
 * GP_NESTEROV: the momentum; GP_ADAM, GP_ADAMW: means of gradients and of their squares), one array
 * after the other, each of E floats: 1, 2 or 3 arrays. */
typedef struct gp_state {
    gp_tensor *tensor;
    float *arrays;  /* memory of the caller for all arrays */
    uint64_t steps; /* set by the call: updates since the parameters were set or restored */
} gp_state;

/* Reads the states of `count` tensors for this rank alone, through the coordinator. Called between
 * two iterations of this rank: requests of the tensors were waited for, and no other starts
 * meanwhile. Rounds of the job wait until the call returns.
 *
 * Errors, after which `arrays` and `steps` are undefined and the job continues: -EINVAL a tensor
 * without a rule, or named twice; -EBUSY another thread reads, or the job is being left; -EAGAIN
 * the coordinator is busy with the job: try again later; -ENODATA a tensor of the job has no
 * parameters; -EOPNOTSUPP a tensor has a set of ranks; -ECANCELED the job was left; those of
 * gp_connect(). */
GP_API int gp_job_read(gp_job *job, gp_state *states, size_t count);

/* Starts a round of all ranks that copies the state of a tensor with a rule to `arrays` (as in
 * gp_state), lent until gp_wait(); NULL: this rank does not want it. The state stays unchanged.
 * Errors of gp_push_pull(); -EINVAL no rule; -ENODATA no parameters were set yet. */
GP_API int gp_save(gp_tensor *tensor, float *arrays, gp_request **ret_request);

#define GP_SAME_STEPS UINT64_MAX

/* Starts a round of all ranks that sets the state of a tensor with a rule to `arrays` of rank
 * `root` (as in gp_state; NULL on other ranks), after `steps` updates, the same number on every
 * rank. GP_SAME_STEPS: the present count; -EINVAL on a root that came late and has not counted all
 * updates. `parameters`: on other ranks than the root, E floats that get the parameters; NULL: not
 * wanted. Memory is lent until gp_wait(). Errors of gp_push_pull(); -EINVAL no rule, or `root` not
 * in the set. */
GP_API int gp_restore(gp_tensor *tensor, const float *arrays, float *parameters, uint32_t root,
                      uint64_t steps, gp_request **ret_request);

/* Returns a checksum of `count` arrays of bytes[i] bytes, in their order: a change of any one word
 * changes it. For detecting writes of other code. Pure; never fails. */
GP_API uint64_t gp_checksum(const void *const *arrays, const size_t *bytes, size_t count);

#ifdef __cplusplus
}
#endif
#endif
