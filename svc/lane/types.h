/* The lane's data. Ownership: lane > job > worker, piece >
 * rank > announcement; all memory is the job's account in the lane's arena. */
#ifndef GRADPOOL_LANE_TYPES_H
#define GRADPOOL_LANE_TYPES_H

#include "svc/base/list.h"
#include "svc/lane/chunk/operation.h"
#include "svc/lane/chunk/transfer_types.h"
#include "svc/lane/job/announcement.h"
#include "svc/lane/job/job_types.h"
#include "svc/lane/job/tell.h"
#include "svc/lane/round/tracing.h"
#include "svc/lane/turn/ending.h"
#include "svc/lane/worker/inbox.h"
#include "svc/lane/worker/lending.h"
#include "svc/reduce/reduce.h"

#define LANE_TEXT_BYTES 160

/* A piece as one rank of its set sees it. */
struct rank {
    struct piece *piece;
    struct worker *worker;
    struct announcement *part;            /* what is being worked on; NULL: takes no part in it */
    bool is_source, is_target, gets_word; /* in that */
    bool has_spoken;                      /* told where it stands (W5) */
    bool is_entering;                     /* new here: waits for the round to come after (A43) */
    bool comes_back;                      /* on another connection, and has not spoken yet (A69) */
    struct announcement *late;            /* came after its round was closed, not yet answered */
    uint64_t clock;                       /* its last round that was answered */
    struct announcement said[2];
};

enum piece_state {
    PIECE_COLLECTING, /* waits for announcements */
    PIECE_RUNNABLE,   /* in job.runnable: chunks are left to be started */
    PIECE_FINISHING,  /* all chunks started, not all written */
};

struct piece {
    struct list link;     /* in job.pieces */
    struct list run_link; /* in job.runnable */
    struct piece *hash_next;
    struct lane_job *job;
    uint32_t id, task, epoch;
    unsigned dtype;
    uint64_t elements;
    struct lane_terms terms;
    uint64_t round;     /* the open one, from 1; 0: unknown, workers tell where they stand (W5) */
    uint32_t announced; /* ranks whose bit of the open round is set */
    uint32_t spoken;    /* ranks that told where they stand */
    uint32_t late;      /* ranks that wait for the newest result */
    enum piece_state state;
    bool continues;    /* its tensor begins in another piece */
    bool is_dropped;   /* to be freed when its round is over */
    bool is_held;      /* released: no round begins; with nothing under way it is frozen (A26) */
    bool is_wished;    /* to be released behind a round (A38) */
    bool is_installed; /* a former owner has told where its rounds stand (A28) */
    bool is_regrouped; /* it was here before, for other ranks: what it keeps is state_round's */
    const struct operation *operation; /* of the open round, once somebody announced */
    uint32_t root, priority;
    bool is_copy;                  /* a result that somebody holds goes to the rest (W5) */
    bool is_answer;                /* the kept result goes to the late */
    bool is_interrupted, was_copy; /* its round was given up, and begins again */
    char *kept; /* the newest result, or the running sum; NULL: the terms need none */
    struct parameters *parameters; /* of a piece with an update rule; NULL: it has none */
    bool has_kept;
    double input_squares, result_squares; /* of the round being summed, where measured */
    uint32_t sources;
    uint32_t steps, step;             /* operation.h */
    uint64_t next_element;            /* where the next chunk to be started begins, in its step */
    uint32_t next_chunk, write_chunk; /* they are written in order: the last carries the words */
    uint32_t chunks_active;
    uint64_t busy_ns;                /* of the lane, for its chunks (A22) */
    uint64_t begun_rounds, begun_ns; /* that have begun here, and when the newest did */
    uint64_t gap_ns;                 /* from the one before; 0: not known */
    uint64_t ready_ns;               /* since when it waits for its first chunk; 0: it does not */
    bool is_at_work;                 /* a round of it has begun and is not over */
    struct traced traced;            /* of the open round */
    int failure;                     /* once ranks disagree: every announcement gets it */
    char failure_text[LANE_TEXT_BYTES];
    char tensor[LANE_NAME_BYTES];
    /* Of a state that is put here: how much has come, of how much; and after which round it is. */
    uint64_t put_bytes, state_bytes, state_round;
    uint32_t members;
    struct rank ranks[]; /* the members, ascending */
};

struct worker {
    struct lane_job *job;
    uint32_t number;
    enum worker_state state;
    struct fabric *fabric;
    struct fabric_conn *conn;        /* NULL unless OPEN */
    struct list owed;                /* announcements with something to tell */
    bool owes_failure;               /* of the job, after these */
    bool is_gone;                    /* not in the job any more: its connection is being closed */
    struct list tell_link;           /* in lane.telling while something is owed */
    struct update_settings settings; /* that it told last, ... */
    bool has_settings;               /* ... if it has told any */
    uint64_t steps;                  /* likewise, behind a state that it restores */
    struct announcement *holding;    /* whose payload sits in a receive buffer */
    const void *held;                /* that buffer */
    struct lending lending;
    uint32_t posted;      /* reads and writes of its memory */
    uint64_t answered_ns; /* when one of them was over last, or the first was posted (A79) */
    struct inbox inbox;   /* for short ones */
    struct breaks breaks;
    char peer[64];
};

#define CHOICES_PER_JOB 4 /* sets of ranks that are known for rounds to come or just gone */
/* Aggregators that keep copies for a job's pieces on one lane: its own, those of lanes before. */
#define LANE_KEEPERS_MAX 8

struct lane_job {
    struct list link;       /* in lane.jobs */
    struct line_entry turn; /* in tenant.running: something can be done now */
    struct lane *lane;
    struct fabric_group group; /* of its connections */
    struct lane_tenant *payer; /* its tenant, in whose share of the lane it takes part */
    uint32_t id, workers_count;
    char name[LANE_NAME_BYTES];
    struct arena_account account;
    struct worker *workers; /* and behind them places for keepers (A49) */
    struct list pieces;
    struct list runnable; /* by priority */
    uint64_t due_bytes;   /* of these, not started yet */
    uint32_t passes;      /* chunks that others got while it was in the line */
    struct piece **table; /* hash of pieces by id */
    size_t table_size, pieces_count, grants_count, grants_max;
    uint64_t step_bytes; /* inputs and results of a round of each piece (A18) */
    struct record_connect *grants;
    struct transfer transfers[TRANSFERS_PER_JOB];
    char *window;          /* slots of the transfers */
    size_t reserved_bytes; /* for it; its pages come from the control thread (A73): */
    bool wants_window, has_window_ready;
    char *inbox;       /* short payloads that wait, of all workers */
    bool has_left;     /* an orderly goodbye of some rank: no new round can be complete */
    bool is_dropped;   /* to be freed when its last operation is over */
    bool is_elastic;   /* workers come and go (A40) */
    bool has_states;   /* some piece of it keeps parameters, or did */
    uint32_t replaced; /* connections of workers that have another now, on their way out */
    int failure;
    char failure_text[2 * LANE_TEXT_BYTES];
    char tenant[LANE_NAME_BYTES];
    struct lane_lent lent_max;
    struct lent lent; /* of its workers together, as they were when each last lent something */
    struct record_chosen choices[CHOICES_PER_JOB]; /* by round; W13 */
    struct lane_squares squares;
    uint64_t turn_since_ns; /* of its turn, whose time is not in busy_ns yet; 0: it has none now */
    struct job_looks looks;
    uint64_t busy_ns, pushed_bytes, rounds;
    uint64_t queue_ns; /* of all its rounds: from ready to the first chunk */
    struct job_ending ending;
    size_t wished;            /* pieces that are to be released behind a round (A38) */
    struct piece *worked;     /* whose chunk came last; NULL: gone */
    struct piece *reference;  /* whose rounds count as the job's (A22); NULL: none yet */
    struct trace_ring *trace; /* its rounds are recorded there; NULL: they are not (A48) */
};

struct lane {
    struct lane_options options;
    struct list jobs;
    struct line running; /* tenants with jobs that can use the core now */
    struct list tenants;
    struct lane_tenant nameless; /* of jobs without a key */
    size_t connections;
    bool is_closing;                    /* the fabrics are closed already */
    bool passes_over[LANE_FABRICS_MAX]; /* in the next turn only */
    uint64_t busy_ns, rounds, pushed_bytes;
    size_t counted_bytes, arena_bytes;      /* of the arena, when figures were asked for last */
    uint64_t now_ns;                        /* when the turn began */
    uint64_t unshared_ns[LANE_FABRICS_MAX]; /* of polls and the like, nobody's yet (A22) */
    size_t heard;                           /* the fabric that had events last */
    struct lane_looks looks;
    uint64_t apart_ns;    /* of the events at hand, paid for already */
    uint64_t helped_ns;   /* by other threads, for its jobs */
    struct list telling;  /* workers that are owed a COMMIT or an ERROR */
    struct list tracings; /* jobs that are recorded */
    /* No chunk of the piece is under way any more (round.h). */
    void (*chunks_are_over)(struct piece *p, bool is_given_up);
};

/* A keeper of copies, in a worker's place: it has no rank, and none of its duties. */
static inline bool worker_is_keeper(const struct worker *w) { return w->number & RECORD_KEEPER; }
static inline uint32_t job_peers(const struct lane_job *job)
{
    return job->workers_count + LANE_KEEPERS_MAX;
}

static inline uint64_t piece_bytes(const struct piece *p, uint64_t elements)
{
    return elements * reduce_element_bytes(p->dtype);
}

static inline struct announcement *rank_said(struct rank *r, uint64_t round)
{
    return &r->said[round & 1];
}
/* The two of a rank lie in one array, at the place of their round's last bit. */
static inline struct piece *announcement_piece(struct announcement *a)
{
    return container_of(a - (a->round & 1), struct rank, said)->piece;
}

#endif
