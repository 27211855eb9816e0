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

/* State of one rank of a piece's set. */
struct rank {
    struct piece *piece;
    struct worker *worker;
    /* announcement in the round or answer that is in progress; NULL: the rank takes no part */
    struct announcement *part;
    bool is_source;  /* `part` gives an input */
    bool is_target;  /* `part` receives the result */
    bool gets_word;  /* the lane writes the completion word of `part` */
    bool has_spoken; /* the rank has reported its standing (W5) */
    /* new to the piece: waits for the number of the round after which it enters (A43) */
    bool is_entering;
    bool comes_back; /* connected again, and has not reported its standing yet (A69) */
    /* announcement of a round that closed without this rank; not answered yet */
    struct announcement *late;
    uint64_t clock;              /* newest round of this rank that was answered */
    struct announcement said[2]; /* by the last bit of their round (W3) */
};

enum piece_state {
    PIECE_COLLECTING, /* waits for announcements */
    PIECE_RUNNABLE,   /* in job.runnable: some chunks have not started */
    PIECE_FINISHING,  /* all chunks have started, not all are written */
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
    /* the open round, from 1; 0: unknown until the workers report their standing (W5) */
    uint64_t round;
    uint32_t announced; /* ranks that have announced the open round */
    uint32_t spoken;    /* ranks that have reported their standing */
    uint32_t late;      /* ranks that wait for the newest result */
    enum piece_state state;
    bool continues;    /* another piece has the tensor's first elements, and counts its rounds */
    bool is_dropped;   /* freed when its round is over */
    bool is_held;      /* released: no round begins; frozen once no read or write is posted (A26) */
    bool is_wished;    /* to be released after a round (A38) */
    bool is_installed; /* the former owner has supplied the number of committed rounds (A28) */
    /* served here before, for other ranks: the kept state is that of state_round */
    bool is_regrouped;
    /* operation of the open round; NULL: no rank has announced it */
    const struct operation *operation;
    uint32_t root, priority;
    bool is_copy; /* the open round copies a result from a rank that holds it to the others (W5) */
    bool is_answer;      /* the round in progress sends `kept` to late ranks */
    bool is_interrupted; /* the round was given up, and begins again */
    bool was_copy;       /* is_copy of the round that was given up */
    char *kept;          /* the newest result, or the running sum; NULL: the terms need none */
    struct parameters *parameters; /* NULL: the piece has no update rule */
    bool has_kept;                 /* `kept` has data */
    /* sums over the round in progress, if the terms ask for them */
    double input_squares, result_squares;
    uint32_t sources;      /* ranks with an input in the round in progress */
    uint32_t steps;        /* number of steps of the round in progress (operation.h) */
    uint32_t step;         /* step of the next chunk to be started */
    uint64_t next_element; /* first element of the next chunk to be started, within its step */
    uint32_t next_chunk;   /* number of the next chunk to be started */
    /* number of the next chunk to be written: in order, as the last chunk carries the words */
    uint32_t write_chunk;
    uint32_t chunks_active; /* chunks started and not done */
    uint64_t busy_ns;       /* lane time of its chunks (A22) */
    uint64_t begun_rounds;  /* rounds that have begun on this lane */
    uint64_t begun_ns;      /* when the newest round began */
    uint64_t gap_ns;        /* time between the begins of the last two rounds; 0: unknown */
    uint64_t ready_ns;      /* since when a round waits for its first chunk; 0: none waits */
    bool is_at_work;        /* a round has begun and is not over */
    struct traced traced;   /* times of the open round, for a timeline */
    int failure;            /* 0, or the error that every announcement gets */
    char failure_text[LANE_TEXT_BYTES];
    char tensor[LANE_NAME_BYTES];
    uint64_t put_bytes;   /* received of the state that the former owner sends */
    uint64_t state_bytes; /* length of that state */
    uint64_t state_round; /* newest round that is in the kept state */
    uint32_t members;     /* entries of ranks[] */
    /* by ascending number; one more place for a replica holder, if there is a rule */
    struct rank ranks[];
};

struct worker {
    struct lane_job *job;
    uint32_t number; /* rank; of a replica holder RECORD_KEEPER | its number */
    enum worker_state state;
    struct fabric *fabric;
    struct fabric_conn *conn; /* NULL unless OPEN */
    struct list owed;         /* announcements for which a message is to be sent */
    bool owes_failure;        /* the failure of the job is to be sent, after `owed` */
    bool is_gone; /* the rank is no longer in the job, and its connection is being closed */
    struct list tell_link;           /* in lane.telling while a message is to be sent */
    struct update_settings settings; /* newest settings that the worker sent */
    bool has_settings;               /* `settings` came on this connection */
    uint64_t steps; /* update count of the state that this worker restores, sent with `settings` */
    /* announcement whose payload lies in a receive buffer; NULL: none */
    struct announcement *holding;
    const void *held; /* receive buffer that the lane holds for `holding` */
    struct lending lending;
    uint32_t posted;      /* reads and writes of its memory that are posted and not complete */
    uint64_t answered_ns; /* when a posted one completed last, or the first was posted (A79) */
    struct inbox inbox;   /* short payloads of this worker */
    struct breaks breaks;
    char peer[64];
};

/* sets of ranks (W13) that a job stores: of rounds to come and of the newest closed ones */
#define CHOICES_PER_JOB 4
/* Replica holders (other aggregators) that a lane serves for one job: its own, and those of former
 * owners. */
#define LANE_KEEPERS_MAX 8

struct lane_job {
    struct list link;       /* in lane.jobs */
    struct line_entry turn; /* in tenant.running while a chunk of the job may be worked on */
    struct lane *lane;
    struct fabric_group group; /* fabric group of the job's connections */
    struct lane_tenant *payer; /* tenant, in whose share of the lane the job takes part */
    uint32_t id, workers_count;
    char name[LANE_NAME_BYTES];
    struct arena_account account;
    struct worker *workers; /* workers_count workers, then places for replica holders (A49) */
    struct list pieces;
    struct list runnable; /* pieces with chunks to start, by priority */
    uint64_t due_bytes;   /* bytes of runnable pieces for which no chunk has started */
    uint32_t passes;      /* chunks of other jobs while this job was in the line (LANE_SHORTEST) */
    struct piece **table; /* hash of pieces by id */
    size_t table_size, pieces_count, grants_count, grants_max;
    uint64_t step_bytes; /* inputs and results of one round of every piece (A18) */
    struct record_connect *grants;
    struct transfer transfers[TRANSFERS_PER_JOB];
    char *window;          /* slots of the transfers; NULL: not open */
    size_t reserved_bytes; /* counted for the window before it is allocated */
    bool wants_window;     /* waits for the control thread to make the pages of the window (A73) */
    bool has_window_ready; /* the control thread has made these pages */
    char *inbox;           /* short payloads of all workers that wait for their round; NULL: none */
    bool has_left;         /* a rank has left with a goodbye: some quorums are impossible now */
    bool is_dropped;       /* freed when its last operation is complete */
    bool is_elastic;       /* workers come and go (A40) */
    bool has_states;       /* some piece keeps parameters, or did */
    uint32_t replaced; /* former connections of workers that have connected again; not closed yet */
    int failure;
    char failure_text[2 * LANE_TEXT_BYTES];
    char tenant[LANE_NAME_BYTES];
    struct lane_lent lent_max;
    struct lent lent; /* sum over its workers, each as counted at its last lending */
    struct record_chosen choices[CHOICES_PER_JOB]; /* by round modulo CHOICES_PER_JOB (W13) */
    struct lane_squares squares;
    /* begin of the turn in progress, which is not in busy_ns yet; 0: no turn */
    uint64_t turn_since_ns;
    struct job_looks looks;
    uint64_t busy_ns, pushed_bytes, rounds;
    uint64_t queue_ns; /* sum over its rounds: time from ready to the first chunk */
    struct job_ending ending;
    size_t wished;            /* number of pieces with is_wished (A38) */
    struct piece *worked;     /* piece of the last chunk; NULL: freed since */
    struct piece *reference;  /* piece whose rounds count as the job's (A22); NULL: none yet */
    struct trace_ring *trace; /* ring that records the job's rounds; NULL: not recorded (A48) */
};

struct lane {
    struct lane_options options;
    struct list jobs;
    struct line running; /* tenants with jobs that can use the core now */
    struct list tenants;
    struct lane_tenant nameless; /* tenant of jobs without a key */
    size_t connections;
    bool is_closing;                    /* the fabrics are closed already */
    bool passes_over[LANE_FABRICS_MAX]; /* fabrics that the next turn does not poll */
    uint64_t busy_ns, rounds, pushed_bytes;
    size_t counted_bytes; /* arena_counted_bytes() at the last lane_measure() */
    size_t arena_bytes;   /* arena_allocated_bytes() at the last change of counted_bytes */
    uint64_t now_ns;      /* begin of the turn, advanced by the time of its chunks */
    /* time of polls and messages that is billed to no job yet (A22) */
    uint64_t unshared_ns[LANE_FABRICS_MAX];
    size_t heard; /* index of the fabric that had events last */
    struct lane_looks looks;
    uint64_t apart_ns;    /* time of the events at hand that is billed already */
    uint64_t helped_ns;   /* time of other threads for this lane's jobs */
    struct list telling;  /* workers to which a message is to be sent */
    struct list tracings; /* recordings of jobs, for timelines */
    /* Called when no chunk of the piece is in progress any more; `is_given_up`: its round was given
     * up (round.h). */
    void (*chunks_are_over)(struct piece *p, bool is_given_up);
};

/* A replica holder is a worker without a rank: it announces nothing, and lends memory for
 * copies. */
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
/* rank.said[] is indexed by the last bit of the round, so that a step back finds the rank. */
static inline struct piece *announcement_piece(struct announcement *a)
{
    return container_of(a - (a->round & 1), struct rank, said)->piece;
}

#endif
