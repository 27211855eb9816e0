/* Jobs and their parts: sessions of workers, tensors and pieces. */
#ifndef GRADPOOL_COORDINATOR_JOB_JOB_H
#define GRADPOOL_COORDINATOR_JOB_JOB_H

#include "packer/growth/scale.h"
#include "packer/profile/profile.h"
#include "svc/coordinator/aggregator/aggregator.h"
#include "svc/coordinator/peer/tenant.h"
#include "svc/wire/durability.h"
#include "svc/wire/terms.h"

#define WORKERS_MAX 768
#define JOB_NAME_BYTES_MAX 127
#define TENSOR_NAME_BYTES_MAX 255
#define SESSION_NAME_BYTES 384

enum piece_state {
    PIECE_STRANDED, /* no lane */
    PIECE_PLACED,   /* a lane that does not know the piece yet */
    PIECE_ASKED,    /* a PlaceRequest is under way */
    PIECE_READY,
};

/* Replica holder of a piece: the aggregator that stores a copy of the piece's state (K57). */
struct keeping {
    uint32_t keeper; /* aggregator number of the replica holder; 0: none */
    uint32_t former; /* a live holder before, whose copy the lane may still need; 0: none */
    bool begins;     /* the holder has no part of the copy yet */
    bool is_unfit;   /* the holder has no room, or cannot reach the lane */
    /* Which of holder, former holder and lane know the lane and the holder of this piece. */
    bool keeper_knows, former_knows, lane_knows;
};

struct piece {
    uint32_t id, task, epoch;
    /* Epoch of the last route whose former lane had not released the piece; else the first one. */
    uint32_t lost_epoch;
    uint64_t first, elements;
    struct lane *lane;
    enum piece_state state;
    bool recovering;  /* workers send their standing to the lane first (W5) */
    bool regroups;    /* the lane has released the piece for a regrouping (K41) */
    uint64_t busy_ns; /* lane time of all rounds, by the lane's last StatsReply */
    struct keeping keeping;
};

struct tensor {
    struct tensor *next; /* next tensor of the hash bucket */
    struct job *job;
    uint32_t id, dtype, hash;
    uint64_t elements;
    struct terms terms;
    char *name;
    char *failure; /* reason, as workers got it; NULL: the tensor is sound */
    int failure_code;
    uint8_t ranks[STORE_RANKS_BYTES]; /* bit set of the ranks that declared it */
    uint32_t ranks_count;
    /* Elastic job: bit set of the ranks whose pushes make a round (K40). */
    uint64_t members[TERMS_RANK_WORDS];
    uint32_t grouped;     /* version of the job in its last regrouping */
    struct piece *pieces; /* piece numbers have no gaps */
    size_t pieces_count;
    uint64_t lane_ns; /* lane time of a round, measured now or earlier; 0: not known */
};

/* Counters of a lane for a job, at the last look of measure/. */
struct seen {
    uint64_t at_ns; /* when the counters arrived, by our clock */
    uint32_t reference;
    uint64_t rounds, begun_ns, busy_ns;
    uint64_t ended_rounds, span_ns, burst_ns;
    uint64_t queue_ns, handled_ns, stalled_ns;
    uint64_t lane_busy_ns, core_wait_ns; /* sums of the lane over all its jobs */
};

/* Reason for a lane, from the last placement of a piece of the job there. */
enum share_how {
    SHARE_UNKNOWN,   /* placed before this coordinator started */
    SHARE_BY_POLICY, /* by a policy without loss limits */
    SHARE_ALONE,     /* measurement: no other job was on the lane */
    SHARE_BESIDE,    /* measurement, but no lane was free of other jobs */
    SHARE_FITS,      /* every job on the lane stays within its loss limit */
    SHARE_OVER,      /* no lane fits, and the job must not be refused */
    SHARE_MOVED,     /* the former lane was lost, and no lane fits */
    SHARE_DRAINED,   /* the former lane was drained, and no lane fits */
    SHARE_ORDERED,   /* an operator named the lane */
    SHARE_GATHERED,  /* growth emptied the former lane, within all loss limits */
    SHARE_RELIEVED,  /* growth left a lane where a loss exceeded its limit */
    SHARE_NARROWED,  /* trial of fewer lanes, or its rollback */
    SHARE_SHIFTED,   /* the former lane was slow, or another lane was tried */
};

/* Share: the pieces of a job on one lane, and the job's figures there. */
struct share {
    struct lane *lane;
    uint32_t pieces;
    uint64_t bytes;
    uint32_t open_task;
    uint64_t open_task_bytes;
    struct seen seen;
    uint64_t looked_ns;   /* arrival of the figures that were used last */
    struct estimate time; /* estimate of the lane time of a round, from samples */
    bool was_alone;       /* `time` has a sample without other jobs on the lane */
    /* Lane time of a round: measured, before that predicted; 0: not known. */
    uint64_t lane_ns;
    /* Times of a round at the last look with rounds (fields of JobUse); stalled_ns: of one
     * worker. */
    uint64_t queue_ns, handled_ns, stalled_ns;
    uint64_t behind_ns; /* rest of handled_ns without lane time and waits for the core (K106) */
    enum share_how how;
    /* Begin of the share; figures of the lane that are older belong to an earlier share. */
    uint64_t since_ns;
};

/* Sums over ended shares: counters of lanes that have no piece of the job any more. */
struct left_behind {
    uint64_t rounds, pushed_bytes, busy_ns;
    uint64_t queue_ns, handled_ns, stalled_ns;
};

enum session_state { SESSION_JOINED, SESSION_AWAY, SESSION_LEFT, SESSION_LOST };

struct session {
    struct job *job;
    uint32_t rank, pid;
    /* Version of the job at which the worker joined; 0: the job began with this worker. */
    uint32_t entered;
    uint64_t number, identity;
    char *node;
    enum session_state state;
    bool knows_wait; /* the worker got the current reason of the wait (placement/waiting.c) */
    struct peer *peer;
    /* CPU time of the connection, spent on the coordinator's thread before the session began. */
    uint64_t billed_ns;
    struct source process; /* pidfd, if the process runs on this host */
    struct timer away;
    bool was_closed;    /* away: the connection was closed, not reset */
    uint64_t broken_ns; /* when a lane last lost its connection to the worker; 0: never */
};

enum entering {
    ENTERING_NOT,
    ENTERING_WAITS,   /* late workers wait for the end of an iteration */
    ENTERING_AT_ONCE, /* late workers enter the open round of each tensor */
};

/* Terms of a job, named by its first worker, or by the operator of a dry run. */
struct job_terms {
    bool continues;                   /* the job outlives lost workers */
    bool is_elastic;                  /* ranks may join and leave */
    enum durability durability;       /* UNSAID: no worker has joined since the restart */
    uint32_t loss_limit_ppm;          /* the job's own limit; 0: none is named */
    uint32_t lane_wait_ms, answer_ms; /* time-outs of its workers; 0: not named */
    uint32_t layout;                  /* profiles_layout() of the first declare; 0: none yet */
    bool is_trial;                    /* a dry run: no lane opens and no process starts */
    bool is_operators;                /* dry run of an operator */
};

/* Ranks of the job, and ranks that join or leave: membership/ and session/. */
struct job_ranks {
    /* founding: number of ranks at the start; wanted: number of ranks by the last resize (K45). */
    uint32_t founding, wanted;
    uint32_t version;              /* version of the membership; only grows */
    uint64_t changed_ns;           /* when `version` last rose; 0: not since this start */
    bool told_shrinking;           /* the advice of placement/shrinking.c is in the log */
    bool tells_leavers;            /* some lane must still learn which ranks left */
    bool is_growing;               /* rank `grower` waits until other ranks have joined */
    uint32_t grower;               /* rank whose resize call waits */
    uint32_t claims;               /* bits of enum claim */
    enum entering entering;        /* way of late workers into rounds (late_join.c) */
    struct regrouping *regrouping; /* regrouping under way; NULL: none */
    struct holding *holding;       /* hold of a rank under way; NULL: none */
};

/* Index of the tensors by name, and sums over them. */
struct job_index {
    size_t capacity;         /* allocated length of job.tensors */
    struct tensor **buckets; /* tensors by hash of the name; as many as `capacity` */
    size_t buckets_count;
    size_t pieces_count;
    uint64_t bytes;       /* bytes of all tensors */
    uint64_t piece_bytes; /* most bytes of a piece or task in the declare under way */
};

/* Reasons for which the job waits: placement/waiting.c. */
struct job_waits {
    char *waits_for;        /* sentence for workers and operators; NULL: no wait (K102) */
    uint64_t measure_by_ns; /* deadline of a wait for another job's measurement; 0: none */
    uint64_t start_by_ns;   /* deadline of a wait for an aggregator; 0: none */
    uint32_t requests;      /* open requests of its workers */
};

/* Replicas on other aggregators: replica/. */
struct job_copies {
    bool lacks_keeper;   /* no other aggregator could hold replicas (K57) */
    bool has_formers;    /* some piece may have a former holder */
    uint64_t keepers_ns; /* when lanes last got their holders */
};

/* State of growth for the job: growth/ and hold.c. */
struct job_growth {
    struct scale_memory memory;  /* state of the rules G1 to G13 */
    enum scale_stay told_stay;   /* last reason against growth that is in the log */
    uint64_t ordered_until_ns;   /* end of the hold after an operator's move (K105) */
    struct exploring *exploring; /* NULL until the first look */
};

/* Figures of the job in training: measure/. */
struct job_figures {
    uint64_t moved_ns;    /* when a task last moved; 0: never */
    bool wants_pieces;    /* the next look asks for the time of each piece */
    bool has_pieces;      /* lanes have sent the time of each piece */
    bool knows_tensors;   /* the lane time of each tensor is known */
    uint64_t trained_ns;  /* when the job last trained, or was expected to begin */
    uint64_t arrived_ns;  /* join of the first worker; 0: before this start */
    uint64_t feedback_ns; /* from `arrived_ns` to the end of the first round; 0: not known */
    uint64_t control_ns;  /* CPU time of the coordinator for connections that have ended */
};

/* A job. Each room has its part behind a pointer of its own, which is never NULL. */
struct job {
    struct list link;
    struct service *service;
    struct tenant *tenant;
    uint32_t id, workers, epoch, next_tensor, next_piece; /* workers: upper bound of the ranks */
    char *name;
    char *failure;             /* reason, as workers got it; NULL: the job is sound */
    struct session **sessions; /* by rank; NULL: the rank has not joined */
    struct tensor **tensors;   /* tensor numbers ascend */
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

/* --- job.c --- */

/* Loops over the tensors of a job, the pieces of a tensor, and the pieces of a job with their
 * tensors. `break` in job_each_piece() ends the loop over one tensor only. */
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
/* A job by its name within the tenant: jobs of two tenants may have the same name. */
struct job *jobs_find(struct service *s, const struct tenant *tenant, const char *name);
struct job *jobs_find_id(struct service *s, uint32_t id);
/* A job by its name: any job for an operator, else a job of the peer's tenant; `tenant` as typed
 * ("": any, "-": the local one). NULL: the peer has got the failure. */
struct job *jobs_find_meant(struct peer *p, uint64_t request, const char *name, const char *tenant);
/* Whether every founding rank that still counts has joined. */
bool jobs_is_complete(const struct job *job);
/* "failed", "waiting", "training" or "joining". */
const char *jobs_state(const struct job *job);
/* Fails the job once: stores the reason and sends it to every rank but `except`. */
void jobs_fail(struct job *job, const struct session *except, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void jobs_send_failure(const struct job *job, int code, struct peer *to);
/* Ends the job, with live workers or without: forgets it in the store, then destroys it. */
void jobs_end(struct job *job);
/* Ends the job if no worker is joined or away; the job may be destroyed on return. */
void jobs_end_if_empty(struct job *job);
/* Erases the job from the store. A failure is logged. */
void jobs_forget(struct job *job);
void jobs_broadcast(struct job *job, const struct session *except, const envelope *message);
void jobs_row(const struct job *job, struct store_row *ret_row);
int jobs_restore(struct service *s, const struct store_job *row);

/* Adds the tensor, which the job then owns. -ENOMEM: the caller keeps the tensor. */
int jobs_add_tensor(struct job *job, struct tensor *tensor);
/* Detaches the pieces from their lanes and frees the tensor. */
void jobs_remove_tensor(struct job *job, struct tensor *tensor);
struct tensor *jobs_tensor(const struct job *job, uint32_t id);
/* Like jobs_tensor(), faster for ascending ids: `*place` (0 at first) is tried before the search,
 * and moves on. */
struct tensor *jobs_tensor_after(const struct job *job, uint32_t id, size_t *place);
struct tensor *jobs_tensor_named(const struct job *job, const char *name);
struct piece *jobs_piece(const struct job *job, uint32_t id, struct tensor **ret_tensor);

#endif
