/* Jobs and what they consist of: workers' sessions, tensors and their pieces. */
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
    PIECE_STRANDED, /* has no lane */
    PIECE_PLACED,   /* has one, which does not know yet */
    PIECE_ASKED,    /* a PlaceRequest is under way */
    PIECE_READY,
};

/* Who keeps a copy of a piece's state (K57). */
struct keeping {
    uint32_t keeper; /* an aggregator; 0: nobody does */
    uint32_t former; /* one that lives, and may have what the lane still wants; 0: none */
    bool begins;     /* the keeper has nothing of it yet */
    bool is_unfit;   /* the keeper has no room, or does not reach the lane */
    bool keeper_knows, former_knows, lane_knows; /* where it lies, who keeps it */
};

struct piece {
    uint32_t id, task, epoch;
    uint32_t lost_epoch; /* the last one whose lane before had not let go of it; the first (K20) */
    uint64_t first, elements;
    struct lane *lane;
    enum piece_state state;
    bool recovering;  /* workers must tell the lane first where they stand */
    bool regroups;    /* its lane has it at rest, for the ranks before (K41) */
    uint64_t busy_ns; /* lane time that it has taken in all, when its lane was last asked */
    struct keeping keeping;
};

struct tensor {
    struct tensor *next; /* in its bucket */
    struct job *job;
    uint32_t id, dtype, hash;
    uint64_t elements;
    struct terms terms;
    char *name;
    char *failure; /* NULL: none */
    int failure_code;
    uint8_t ranks[STORE_RANKS_BYTES]; /* who has declared it */
    uint32_t ranks_count;
    uint64_t members[TERMS_RANK_WORDS]; /* whose pushes make its rounds (K40), of an elastic job */
    uint32_t grouped;                   /* with which of the job's versions */
    struct piece *pieces;               /* ids without gaps */
    size_t pieces_count;
    uint64_t lane_ns; /* lane time a round, measured now or before; 0: not known */
};

/* What a lane had counted for a job when it was last looked at. */
struct seen {
    uint64_t at_ns; /* when that was told, our time */
    uint32_t reference;
    uint64_t rounds, begun_ns, busy_ns;
    uint64_t ended_rounds, span_ns, burst_ns;
    uint64_t queue_ns, handled_ns, stalled_ns;
    uint64_t lane_busy_ns, core_wait_ns; /* of the lane, for all its jobs */
};

/* How a lane was chosen for a job, the last time that something of it was placed there. */
enum share_how {
    SHARE_UNKNOWN,   /* before this coordinator was started */
    SHARE_BY_POLICY, /* one without a loss limit */
    SHARE_ALONE,     /* to be measured: no other job was there */
    SHARE_BESIDE,    /* to be measured, but no lane was free */
    SHARE_FITS,      /* nobody loses more than his limit there */
    SHARE_OVER,      /* there is no such lane, and that is no reason to refuse it */
    SHARE_MOVED,     /* its lane was lost, and no lane was within all limits */
    SHARE_DRAINED,   /* the same, of a lane that was drained */
    SHARE_ORDERED,   /* an operator named it */
    SHARE_GATHERED,  /* growth emptied its lane, within everybody's limit */
    SHARE_RELIEVED,  /* growth took it off a lane where a loss was above a limit */
    SHARE_NARROWED,  /* fewer lanes were tried, or had been too few */
    SHARE_SHIFTED,   /* its lane was slow, or it was tried whether another does better */
};

/* What a job has on one lane. */
struct share {
    struct lane *lane;
    uint32_t pieces;
    uint64_t bytes;
    uint32_t open_task;
    uint64_t open_task_bytes;
    struct seen seen;
    uint64_t looked_ns;   /* of which figures that is */
    struct estimate time; /* lane time a round, from what was seen there ... */
    bool was_alone;       /* ... without other jobs */
    uint64_t lane_ns;     /* that; before it is known, what was predicted; 0: not known */
    /* A round, at the last look that saw some: JobUse has them; stalled: of one worker. */
    uint64_t queue_ns, handled_ns, stalled_ns;
    uint64_t behind_ns; /* of handled: neither its own lane time nor a wait for the core (K106) */
    enum share_how how;
    uint64_t since_ns; /* what its lane counted before is of an earlier share */
};

/* What lanes have counted that have nothing of the job any more, when they were last looked at. */
struct left_behind {
    uint64_t rounds, pushed_bytes, busy_ns;
    uint64_t queue_ns, handled_ns, stalled_ns;
};

enum session_state { SESSION_JOINED, SESSION_AWAY, SESSION_LEFT, SESSION_LOST };

struct session {
    struct job *job;
    uint32_t rank, pid;
    uint32_t entered; /* with which version of the job it came; 0: it was there to begin with */
    uint64_t number, identity;
    char *node;
    enum session_state state;
    bool knows_wait; /* of the job (waiting.c) */
    struct peer *peer;
    uint64_t billed_ns;    /* of its connection's time on the coordinator's thread, before it */
    struct source process; /* pidfd, when it runs on this host */
    struct timer away;
    bool was_closed;    /* away: its connection ended as that of a process that has ended */
    uint64_t broken_ns; /* when a lane last told that its connection to it had ended; 0: never */
};

enum entering {
    ENTERING_NOT,
    ENTERING_WAITS,   /* for the end of an iteration */
    ENTERING_AT_ONCE, /* into rounds that are open */
};

/* Terms that the first worker named, or an operator of a trial. */
struct job_terms {
    bool continues;                   /* without workers that are lost */
    bool is_elastic;                  /* workers come and go */
    enum durability durability;       /* UNSAID: nobody has come yet since a restart */
    uint32_t loss_limit_ppm;          /* its own; 0: none is named */
    uint32_t lane_wait_ms, answer_ms; /* how long its workers wait; 0: not named */
    uint32_t layout;   /* profiles_layout() of what it declared first; 0: nothing yet */
    bool is_trial;     /* nobody's: it is asked what would be, and nothing starts or opens */
    bool is_operators; /* of a trial: an operator has asked */
};

/* Ranks of the job, and those on the way in or out: membership/ and session/. */
struct job_ranks {
    uint32_t founding, wanted;     /* began with these, who may yet come (K45); shall have */
    uint32_t version;              /* of who is in it; grows */
    uint64_t changed_ns;           /* when it did last; 0: not since this coordinator started */
    bool told_shrinking;           /* who would shrink for it has been said */
    bool tells_leavers;            /* its lanes are to be told who has left */
    bool is_growing;               /* a rank waits for others to come ... */
    uint32_t grower;               /* ... this one */
    uint32_t claims;               /* enum claim */
    enum entering entering;        /* who comes late (membership/late_join.c) */
    struct regrouping *regrouping; /* under way; NULL: none */
    struct holding *holding;       /* likewise */
};

/* Tensors by name, and the sums over them. */
struct job_index {
    size_t capacity;         /* of job.tensors */
    struct tensor **buckets; /* tensors by hash of their name; grow with their number */
    size_t buckets_count;
    size_t pieces_count;
    uint64_t bytes;       /* of all tensors */
    uint64_t piece_bytes; /* of a piece or task of what is declared now, at most */
};

/* For what it waits: placement/waiting.c. */
struct job_waits {
    char *waits_for;        /* as workers and operators are told; NULL: nothing (K102) */
    uint64_t measure_by_ns; /* for another to be measured, until then; 0: it does not */
    uint64_t start_by_ns;   /* for an aggregator, until then; 0: it does not */
    uint32_t requests;      /* that are answered later */
};

/* Copies on other aggregators: replica/. */
struct job_copies {
    bool lacks_keeper;   /* for want of another aggregator (K57) */
    bool has_formers;    /* keepers that have been followed by others, perhaps */
    uint64_t keepers_ns; /* when lanes were last given or told keepers */
};

/* Growth's memory of the job: growth/ and hold.c. */
struct job_growth {
    struct scale_memory memory;  /* what the rules of growth remember of it */
    enum scale_stay told_stay;   /* what the log has said of that */
    uint64_t ordered_until_ns;   /* an operator's move holds against growth until then (K105) */
    struct exploring *exploring; /* NULL until it is looked at */
};

/* How it has run: measure/. */
struct job_figures {
    uint64_t moved_ns;    /* when tasks of it last moved; 0: never */
    bool wants_pieces;    /* its lanes are to be asked for the time of each piece */
    bool has_pieces;      /* and have answered */
    bool knows_tensors;   /* lane time of each tensor is known, from now or before */
    uint64_t trained_ns;  /* when it was last seen to train, or was last expected to begin */
    uint64_t arrived_ns;  /* when its first worker joined; 0: before this coordinator started */
    uint64_t feedback_ns; /* from then until its first round was over; 0: not yet, not known */
    uint64_t control_ns;  /* of the coordinator's thread, for connections that have gone */
};

/* Each room has its part of the job behind a pointer of its own, never NULL. */
struct job {
    struct list link;
    struct service *service;
    struct tenant *tenant;
    uint32_t id, workers, epoch, next_tensor, next_piece; /* workers: ranks that it may have */
    char *name;
    char *failure;             /* NULL: none */
    struct session **sessions; /* by rank; NULL: has not joined */
    struct tensor **tensors;   /* ids ascend */
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

/* Each tensor of a job; each piece of a tensor; each piece of a job, with its tensor, where `break`
 * ends the tensor alone. */
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
/* Names are a tenant's own: two may each have a job of the same name. */
struct job *jobs_find(struct service *s, const struct tenant *tenant, const char *name);
struct job *jobs_find_id(struct service *s, uint32_t id);
/* By name, of those that the peer may ask about: all for an operator, else its tenant's; `tenant`
 * as it was typed ("": any). NULL: the peer was told. */
struct job *jobs_find_meant(struct peer *p, uint64_t request, const char *name, const char *tenant);
/* Whether every rank has joined. */
bool jobs_is_complete(const struct job *job);
/* "failed", "waiting", "training" or "joining". */
const char *jobs_state(const struct job *job);
/* Tells every rank (but `except`), once. */
void jobs_fail(struct job *job, const struct session *except, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void jobs_send_failure(const struct job *job, int code, struct peer *to);
/* Ends the job, whoever is in it: it is gone afterwards. */
void jobs_end(struct job *job);
/* Ends the job when nobody is left in it; it may be gone afterwards. */
void jobs_end_if_empty(struct job *job);
/* For the end of the service: forgets it in the store. */
void jobs_forget(struct job *job);
void jobs_broadcast(struct job *job, const struct session *except, const envelope *message);
void jobs_row(const struct job *job, struct store_row *ret_row);
int jobs_restore(struct service *s, const struct store_job *row);

/* -ENOMEM. */
int jobs_add_tensor(struct job *job, struct tensor *tensor);
/* Its pieces are given back; the tensor is freed. */
void jobs_remove_tensor(struct job *job, struct tensor *tensor);
struct tensor *jobs_tensor(const struct job *job, uint32_t id);
/* For ids in a row: looks at `*place` first, 0 to begin with, which it keeps up to date. */
struct tensor *jobs_tensor_after(const struct job *job, uint32_t id, size_t *place);
struct tensor *jobs_tensor_named(const struct job *job, const char *name);
struct piece *jobs_piece(const struct job *job, uint32_t id, struct tensor **ret_tensor);

#endif
