/* Jobs and their parts: sessions of workers, tensors and pieces. */
#ifndef GRADPOOL_COORDINATOR_JOB_JOB_H
#define GRADPOOL_COORDINATOR_JOB_JOB_H

#include "packer/growth/scale.h"
#include "packer/profile/profile.h"
#include "svc/base/hash.h"
#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/job/job_terms.h"
#include "svc/coordinator/peer/tenant.h"
#include "svc/wire/terms.h"

#define WORKERS_MAX 768
#define JOB_NAME_BYTES_MAX 127
#define TENSOR_NAME_BYTES_MAX 255
#define SESSION_NAME_BYTES 384

enum piece_state {
    PIECE_STRANDED, /* the piece has no lane */
    PIECE_PLACED,   /* a lane was chosen, but no PlaceRequest was sent */
    PIECE_ASKED,    /* a PlaceRequest was sent and is not answered */
    PIECE_READY,
};

/* Replica holder of a piece: the aggregator that stores a copy of the piece's state (K57). */
struct keeping {
    uint32_t holder; /* number of the aggregator that is the replica holder; 0: none */
    uint32_t former; /* previous replica holder, while its copy may still be needed; 0: none */
    bool begins;     /* the holder has not received any part of the copy */
    bool is_unfit;   /* the holder has no room, or cannot connect to the lane */
    bool holder_knows, former_knows, lane_knows; /* the receiver has answered the newest message */
};

struct piece {
    uint32_t id, task, epoch;
    /* Epoch at which the piece was last placed because its lane was lost, or its first epoch. */
    uint32_t lost_epoch;
    uint64_t first, elements;
    struct lane *lane;
    enum piece_state state;
    bool recovering;  /* workers send the state of their rounds to the lane first (W5) */
    bool regroups;    /* the lane has released the piece for a change of ranks (K41) */
    uint64_t busy_ns; /* lane time of all rounds, from the lane's last StatsReply */
    struct keeping keeping;
};

struct tensor {
    struct hash_link by_name; /* entry in job_index.by_name */
    struct job *job;
    uint32_t id, dtype;
    /* `committed`: last round that a rank has reported. `steps`: number of updates up to this
     * round, plus 1; 0: unknown. */
    uint64_t elements, committed, steps;
    struct terms terms;
    char *name;
    char *failure; /* reason that was sent to workers; NULL: the tensor has not failed */
    int failure_code;
    uint8_t ranks[STORE_RANKS_BYTES]; /* bit set of the ranks that have declared the tensor */
    uint32_t ranks_count;
    /* In an elastic job, the bit set of the ranks whose pushes complete a round (K40). */
    uint64_t members[TERMS_RANK_WORDS];
    uint32_t grouped;     /* version of the job's membership when the tensor's ranks last changed */
    struct piece *pieces; /* the numbers of the pieces are consecutive */
    size_t pieces_count;
    uint64_t lane_ns; /* lane time of a round, measured in this or an earlier run; 0: unknown */
};

/* Counters of a lane for a job at the last measurement. */
struct seen {
    uint64_t at_ns; /* time of arrival, by the coordinator's clock */
    uint32_t reference;
    uint64_t rounds, begun_ns, busy_ns;
    uint64_t ended_rounds, span_ns, burst_ns;
    uint64_t queue_ns, handled_ns, stalled_ns;
    uint64_t lane_busy_ns, core_wait_ns; /* sums over all jobs of the lane */
};

/* Reason for which the job's pieces were last placed on the lane. */
enum share_how {
    SHARE_UNKNOWN,   /* the placement was made by an earlier coordinator */
    SHARE_BY_POLICY, /* chosen by a policy without loss limits */
    SHARE_ALONE,     /* placed for measurement on a lane without other jobs */
    SHARE_BESIDE,    /* placed for measurement beside other jobs, because no lane was free */
    SHARE_FITS,      /* every job on the lane stays within its loss limit */
    SHARE_OVER,      /* no lane keeps all limits, and the job must not be refused */
    SHARE_MOVED,     /* the former lane was lost, and no other lane keeps all limits */
    SHARE_DRAINED,   /* the former lane was drained, and no other lane keeps all limits */
    SHARE_ORDERED,   /* an operator has ordered the move to this lane */
    SHARE_GATHERED,  /* growth emptied the former lane; every job stays within its loss limit */
    SHARE_RELIEVED,  /* growth moved tasks from a lane on which a job exceeded its limit */
    SHARE_NARROWED,  /* growth tested the job on fewer lanes, or ended such a test */
    SHARE_SHIFTED,   /* the former lane was slow, or an experiment uses this lane */
};

/* The pieces of a job on one lane, and the job's measurements there. */
struct share {
    struct lane *lane;
    uint32_t pieces; /* number of pieces, and of shards of tables */
    uint64_t bytes;
    uint32_t open_task;
    uint64_t open_task_bytes;
    struct seen seen;
    uint64_t looked_ns;   /* time at which the last measurements in use arrived */
    struct estimate time; /* lane time of a round, estimated from samples */
    bool was_alone;       /* `time` has a sample from a period without other jobs on the lane */
    uint64_t lane_ns;     /* lane time of a round, measured or at first predicted; 0: unknown */
    /* Times of a round, from the last JobUse with completed rounds. stalled_ns: for one worker. */
    uint64_t queue_ns, handled_ns, stalled_ns;
    uint64_t behind_ns; /* handled_ns, minus lane time, minus waits for the core (K106) */
    enum share_how how;
    /* Time at which the job got its first piece on the lane. Older measurements do not count. */
    uint64_t since_ns;
};

/* Sums of the job's counters from lanes that no longer serve any piece of the job. */
struct left_behind {
    uint64_t rounds, pushed_bytes, busy_ns;
    uint64_t queue_ns, handled_ns, stalled_ns;
    struct job_counts *counts; /* counts of rounds with backup workers; NULL: no such round */
};

enum session_state { SESSION_JOINED, SESSION_AWAY, SESSION_LEFT, SESSION_LOST };

struct session {
    struct job *job;
    uint32_t rank, pid;
    uint32_t entered; /* version of the membership at the worker's join; 0: initial rank */
    uint64_t number, identity;
    char *node;
    enum session_state state;
    bool asks_entry, wants_entry; /* the worker will send EnterRequest; has sent one (K108) */
    bool knows_wait; /* the worker has the current reason for waiting (placement/waiting.c) */
    struct peer *peer;
    uint64_t billed_ns;    /* CPU time charged to this connection before the session began */
    struct source process; /* pidfd, if the process runs on this host */
    uint64_t ended_ns;     /* time at which the end of the process was noticed; 0: not yet */
    struct timer away;
    enum channel_end end; /* how the connection of an absent worker has ended */
    uint64_t broken_ns; /* last time at which a lane lost its connection to the worker; 0: never */
    bool was_removed, has_failed; /* the rank was removed by a resize; it has left with an error */
};

enum entering {
    ENTERING_NOT,
    ENTERING_WAITS,   /* late workers wait for the end of an iteration */
    ENTERING_AT_ONCE, /* late workers enter each tensor at its open round */
};

/* Ranks of the job, and ranks that join or leave (folders membership/ and session/). */
struct job_ranks {
    uint32_t founding, wanted; /* number of ranks at first, and after the last resize (K45) */
    uint32_t version, rest;    /* counters of changes; `rest` is odd while all ranks sleep (SL20) */
    uint64_t changed_ns; /* last change of `version`; 0: unchanged since this process started */
    bool told_shrinking; /* the advice to shrink a job was logged (placement/shrinking.c) */
    bool tells_leavers;  /* lanes have not yet received the ranks that have left */
    bool is_growing;     /* rank `grower` waits in gp_job_resize() until more ranks have joined */
    uint32_t grower;
    uint32_t claims;        /* operations in progress that exclude others: bits of enum claim */
    enum entering entering; /* how late workers enter rounds (late_join.c) */
    struct regrouping *regrouping; /* change of ranks in progress; NULL: none */
    struct holding *holding; /* a rank that is stopped at the end of its iteration; NULL: none */
    struct stages *stages;   /* state of folder stage/; NULL: no rank has requested a stage */
    const uint64_t *stage;   /* members of the present stage; NULL: no stage has begun */
    struct lane_said *said;  /* a reported failure that will soon fail the job; NULL: none */
};

/* The tables of keyed rows of a job (table.h), in the order of their numbers. */
struct table_list {
    struct list list, copies; /* shards_copy.link in `copies` */
    uint32_t count;
    size_t shards;                     /* number of shards of all tables */
    struct row_allowances *allowances; /* table.h; NULL: no lane has an allowance */
};

/* Index of the tensors by name, sums over all tensors, and the tables. */
struct job_index {
    size_t capacity, pieces_count; /* allocated length of job.tensors; number of all pieces */
    struct hash_table by_name;
    bool has_steps; /* a tensor of the job has the name TERMS_STEPS_NAME, which step records use */
    uint64_t bytes; /* bytes of all tensors */
    uint64_t piece_bytes; /* maximum bytes of a piece or task in the declare in progress */
    struct table_list tables;
};

/* Reasons for which the job waits (placement/waiting.c). */
struct job_waits {
    char *waits_for; /* sentence for workers and operators; NULL: the job does not wait (K102) */
    uint64_t measure_by_ns; /* deadline of the wait until another job is measured; 0: no wait */
    uint64_t start_by_ns;   /* deadline of the wait for an aggregator; 0: no wait */
    uint32_t requests;      /* number of workers' requests that wait for a reply */
    bool is_for_rows;       /* pushes wait for table memory (K145) */
};

/* Replicas on other aggregators (folder replica/). */
struct job_copies {
    bool lacks_holder; /* no other aggregator can be the replica holder of the job's pieces (K57) */
    bool has_formers;  /* some piece may have a previous replica holder */
    uint64_t holders_ns; /* time at which lanes were last informed of their replica holders */
};

/* State of growth for the job (folder growth/, hold.c). */
struct job_growth {
    struct scale_memory memory;  /* state of the rules G1 to G13 */
    enum scale_stay told_stay;   /* last logged reason for which growth does not move the job */
    uint64_t ordered_until_ns;   /* end of the hold after an operator's order (K105) */
    struct exploring *exploring; /* state of the search for slow lanes; NULL: not begun */
};

/* Measurements of the job in training (folder measure/). */
struct job_figures {
    uint64_t moved_ns;    /* time of the last move of a task; 0: never */
    bool wants_pieces;    /* the next measurement requests the time of each piece */
    bool has_pieces;      /* lanes have sent the time of each piece */
    bool knows_tensors;   /* the measured lane time of each tensor is known */
    uint64_t trained_ns;  /* last time at which the job trained or was expected to train soon */
    uint64_t arrived_ns;  /* time of the first join; 0: before this coordinator started */
    uint64_t feedback_ns; /* time from `arrived_ns` to the end of the first round; 0: unknown */
    uint64_t control_ns;  /* CPU time of the coordinator for ended connections of the job */
};

/* A job. Each struct from `left` to `figures` belongs to one folder; its pointer is never NULL. */
struct job {
    struct list link;
    struct service *service;
    struct tenant *tenant;
    uint32_t id, workers, epoch, next_tensor, next_piece; /* each rank is below `workers` */
    char *name;
    char *failure;             /* reason that was sent to workers; NULL: the job has not failed */
    struct session **sessions; /* sessions by rank; NULL: the rank has not joined */
    struct tensor **tensors;   /* sorted by number */
    size_t tensors_count;
    struct share *shares;
    size_t shares_count;
    struct left_behind *left;
    struct profile *profile;
    struct job_terms *terms;
    struct job_ranks *ranks;
    struct job_index *index;
    struct job_waits *waiting;
    struct job_copies *copies;
    struct job_growth *growth;
    struct job_figures *figures;
};

/* Loops over tensors of a job, pieces of a tensor, and pieces of a job with their tensors. In
 * job_each_piece(), `break` ends only the loop over the pieces of the current tensor. */
#define job_each_tensor(tensor, job)                                           \
    for (struct tensor *tensor = NULL, **tensor##_at = (job)->tensors;         \
         tensor##_at && tensor##_at < (job)->tensors + (job)->tensors_count && \
         (tensor = *tensor##_at);                                              \
         tensor##_at++)
#define tensor_each_piece(piece, tensor)         \
    for (struct piece *piece = (tensor)->pieces; \
         piece && piece < (tensor)->pieces + (tensor)->pieces_count; piece++)
#define job_each_piece(piece, tensor, job) \
    job_each_tensor (tensor, job)          \
        tensor_each_piece (piece, tensor)

struct job *jobs_create(struct service *s, struct tenant *tenant, uint32_t id, const char *name,
                        uint32_t workers);
void jobs_destroy(struct job *job);
/* Finds a job by its name within the tenant. */
struct job *jobs_find(struct service *s, const struct tenant *tenant, const char *name);
struct job *jobs_find_id(struct service *s, uint32_t id);
/* Finds the job that a request names. An operator may name any job, a tenant only its own jobs.
 * `tenant` is the text that the user typed ("": any tenant, "-": the local tenant). If there is no
 * such job, sends the failure to the peer and returns NULL. */
struct job *jobs_find_meant(struct peer *p, uint64_t request, const char *name, const char *tenant);
/* Returns whether every initial rank that is still a member has joined. */
bool jobs_is_complete(const struct job *job);
/* Returns "failed", "waiting", "training" or "joining". */
const char *jobs_state(const struct job *job);
/* Fails the job, once. The reason is stored and sent to every rank except `except`. */
void jobs_fail(struct job *job, const struct session *except, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void jobs_send_failure(const struct job *job, int code, struct peer *to);
/* Ends the job, even if workers are alive: deletes the job from the store and frees it. */
void jobs_end(struct job *job);
/* Ends the job if no worker is joined or away, and frees the job. */
void jobs_end_if_empty(struct job *job);
/* Deletes the job from the store. An error is only logged. */
void jobs_forget(struct job *job);
void jobs_broadcast(struct job *job, const struct session *except, const envelope *message);
void jobs_row(const struct job *job, struct store_row *ret_row);
int jobs_restore(struct service *s, const struct store_job *row);

/* Adds the tensor to the job, which owns it from then on. Returns 0 or -ENOMEM; after -ENOMEM the
 * caller still owns the tensor. */
int jobs_add_tensor(struct job *job, struct tensor *tensor);
/* Detaches the tensor's pieces from their lanes and frees the tensor. */
void jobs_remove_tensor(struct job *job, struct tensor *tensor);
struct tensor *jobs_tensor(const struct job *job, uint32_t id);
/* Like jobs_tensor(), but faster for ascending ids. `*place` is a hint for the search. The caller
 * sets the hint to 0 before the first call, and each call updates the hint. */
struct tensor *jobs_tensor_after(const struct job *job, uint32_t id, size_t *place);
struct tensor *jobs_tensor_named(const struct job *job, const char *name);
struct piece *jobs_piece(const struct job *job, uint32_t id, struct tensor **ret_tensor);

#endif
