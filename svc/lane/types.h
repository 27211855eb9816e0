/* The structs of a lane. Ownership: lane > job > worker, and piece > rank > announcement. All
 * memory is in the lane's arena and counted in the job's account. */
#ifndef GRADPOOL_LANE_TYPES_H
#define GRADPOOL_LANE_TYPES_H

#include "svc/base/hash.h"
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
#include "svc/wire/terms.h"

#define LANE_TEXT_BYTES 160

/* State of one rank of a piece. */
struct rank {
    struct piece *piece;
    struct worker *worker;
    /* announcement in the round or answer in progress; NULL: the rank does not take part */
    struct announcement *part;
    uint32_t inputs; /* number of inputs that `part` supplies: 0, 1, or its gradients in the set */
    uint32_t gradients; /* number of gradients that the newest announcement has reported */
    /* weight of the input in a mean or an update, divided by the greatest common divisor of all
     * weights of the round; 0: the input is not read */
    uint32_t weight;
    bool is_target;  /* `part` receives the result */
    bool gets_word;  /* the lane writes the completion word of `part` */
    bool has_spoken; /* the rank has reported its standing (W5) */
    /* the rank is new to the piece and waits for the number of its first round (A43) */
    bool is_entering;
    bool comes_back; /* the rank has connected again and has not reported its standing yet (A69) */
    /* unanswered announcement of a round that was closed without this rank */
    struct announcement *late;
    uint64_t clock;              /* newest round in which this rank was answered */
    struct announcement said[2]; /* announcements, at the index round & 1 (W3) */
};

enum piece_state {
    PIECE_COLLECTING, /* waits for announcements */
    PIECE_RUNNABLE,   /* some chunks have not started; the piece is in job.runnable */
    PIECE_FINISHING,  /* all chunks have started, but not all results are written */
};

struct piece {
    struct list link;       /* node in job.pieces */
    struct list run_link;   /* node in job.runnable */
    struct hash_link by_id; /* in job.table */
    struct lane_job *job;
    uint32_t id, epoch;
    unsigned dtype;
    uint64_t elements;
    struct lane_terms terms;
    /* number of the open round, from 1; 0: unknown until the workers have reported their standing
     * (W5) */
    uint64_t round;
    /* with FOLLOWS_ROUNDS: if the open round is a round of the job, the number of this round of the
     * job; otherwise the number of the job's next round; 0: unknown */
    uint64_t job_round;
    uint32_t announced; /* number of ranks that have announced the open round */
    uint32_t spoken;    /* number of ranks that have reported their standing */
    uint32_t late;      /* number of ranks that wait for the newest result */
    enum piece_state state;
    /* this is not the first piece of the tensor; only the first piece counts the rounds of the
     * tensor */
    bool continues;
    bool is_dropped; /* freed at the end of its round */
    /* released: no round begins. The piece is frozen once no read or write is posted (A26) */
    bool is_held;
    bool is_wished;    /* the piece is to be released after a round (A38) */
    bool is_installed; /* the former owner has sent the number of committed rounds (A28) */
    /* the piece was on this lane before, with other ranks; `kept` has the result of state_round */
    bool is_regrouped;
    /* operation of the open round; NULL: no rank has announced the round */
    const struct operation *operation;
    uint32_t root, priority;
    /* the open round copies a result that one rank has to the other ranks (W5) */
    bool is_copy;
    bool is_interrupted; /* the round was aborted, and will begin again */
    bool was_copy;       /* value of is_copy in the aborted round */
    char *kept;          /* newest result, or the running sum; NULL: the terms need neither */
    struct parameters *parameters; /* NULL: the piece has no update rule */
    struct takers *takers;         /* NULL: the piece leads no job with backup workers */
    struct sampled *sampled;       /* NULL: gradients of the piece are not sampled (A97) */
    uint64_t kept_from;            /* first round whose result is in `kept`; 0: no valid data */
    uint8_t kept_use;              /* use of the areas in `kept`, values of kept.h */
    /* sums of squares over the round in progress, if the terms require these sums */
    double input_squares, result_squares;
    uint32_t sources;      /* number of inputs of the round in progress */
    uint32_t steps;        /* number of steps of the round in progress (operation.h) */
    uint32_t step;         /* step of the next chunk to start */
    uint64_t next_element; /* first element of the next chunk to start, within its step */
    uint32_t next_chunk;   /* number of the next chunk to start */
    /* number of the next chunk to write. Chunks are written in order, because the completion words
     * follow the last chunk */
    uint32_t write_chunk;
    uint32_t chunks_active; /* number of chunks that have started and not ended */
    uint64_t busy_ns;       /* lane time of the piece's chunks (A22) */
    uint64_t begun_rounds;  /* number of rounds that have begun on this lane */
    uint64_t begun_ns;      /* beginning of the newest round */
    uint64_t gap_ns;        /* time between the beginnings of the last two rounds; 0: unknown */
    /* time since which a round has waited for its first chunk; 0: none waits */
    uint64_t ready_ns;
    bool is_at_work;      /* a round has begun and not ended */
    struct traced traced; /* times of the open round, for a timeline */
    int failure;          /* error with which the lane answers every announcement; 0: no failure */
    char failure_text[LANE_TEXT_BYTES];
    char tensor[LANE_NAME_BYTES];
    uint64_t put_bytes;   /* received bytes of the state that the former owner sends */
    uint64_t state_bytes; /* length of the state that the former owner sends */
    uint64_t state_round; /* newest round whose result is in the kept state */
    uint64_t left_round;  /* newest round whose COMMIT a rank had when it left the job */
    uint32_t members;     /* number of entries in ranks[] */
    /* ranks in ascending order; with an update rule, followed by one entry for a replica holder */
    struct rank ranks[];
};

/* Number of sets of ranks (W13) that a job stores, of future and of the newest closed rounds. A
 * rank may connect again up to TERMS_LAG_MAX rounds after a round, and then needs this set. */
#define CHOICES_PER_JOB (TERMS_LAG_MAX + 4)

struct worker {
    struct lane_job *job;
    /* number: a rank, or RECORD_HOLDER | an aggregator; entered: of the newest connection */
    uint32_t number, entered;
    enum worker_state state;
    struct fabric *fabric;
    struct fabric_conn *conn; /* NULL in all states but OPEN */
    struct list owed;         /* announcements for which a message has to be sent */
    /* the failure of the job must be sent, after the messages of `owed` */
    bool owes_failure;
    uint64_t owes_passed;  /* round whose set must still be sent to this rank as PASSED; 0: none */
    bool is_gone;          /* the rank has left the job, and its connection is being closed */
    struct list tell_link; /* node in lane.telling while a message has to be sent */
    struct update_settings settings; /* newest settings that the worker has sent */
    bool has_settings;               /* `settings` came over the current connection */
    /* update count of the state that this worker restores, received with `settings` */
    uint64_t steps;
    /* announcement whose payload is still in a receive buffer; NULL: none */
    struct announcement *holding;
    const void *held; /* receive buffer of that payload */
    struct lending lending;
    uint32_t posted; /* posted operations in the worker's memory that are not complete */
    /* time of the last completion of such an operation, or of the first post (A79) */
    uint64_t answered_ns;
    struct inbox inbox; /* short payloads of this worker for later rounds */
    struct breaks breaks;
    /* rounds whose sets were sent or received over the current connection; indexed like
     * lane_job.choices */
    uint64_t known_sets[CHOICES_PER_JOB];
    char peer[64];
};

/* State of the pages of a window that will be opened (A73). */
enum window_pages {
    WINDOW_UNASKED,
    WINDOW_WANTED, /* the job waits for the memory that the control thread prepares */
    WINDOW_READY,
};

/* Maximum number of replica holders (other aggregators) that a lane serves for one job, including
 * the holders of former owners. */
#define LANE_HOLDERS_MAX 8

struct lane_tables;
struct lane_job {
    struct list link;       /* node in lane.jobs */
    struct line_entry turn; /* node in tenant.running while a chunk of the job can be processed */
    struct lane *lane;
    struct fabric_group group; /* all connections of the job */
    struct lane_tenant *payer; /* tenant from whose share of the lane the job receives time */
    uint32_t id, workers_count;
    char name[LANE_NAME_BYTES];
    struct arena_account account;
    /* workers_count workers, followed by LANE_HOLDERS_MAX replica holders (A49) */
    struct worker *workers;
    struct list pieces;
    struct list runnable; /* pieces with chunks to start, in order of priority */
    uint64_t due_bytes;   /* bytes of the runnable pieces' chunks that have not started */
    /* LANE_SHORTEST: number of chunks of other jobs since this job began to wait */
    uint32_t passes;
    struct hash_table table; /* the pieces by number */
    size_t grants_count;
    uint64_t step_bytes; /* bytes of inputs and results in one round of every piece (A18) */
    struct record_connect *grants;
    struct transfer transfers[TRANSFERS_PER_JOB];
    char *window;            /* slots of the transfers; NULL: not allocated */
    size_t reserved_bytes;   /* bytes counted for the window before it is allocated */
    enum window_pages pages; /* state of the window's pages */
    /* answers to late ranks; NULL: no piece of the job stores results */
    struct servings *servings;
    char *inbox;     /* short payloads of all workers for later rounds; NULL: none */
    bool has_left;   /* a rank has left with a goodbye, so some quorums have become impossible */
    bool is_dropped; /* freed when its last operation is complete */
    bool is_elastic; /* workers may join and leave (A40) */
    bool has_states; /* a piece has or had parameters */
    bool is_scaled;  /* means are multiplied by gradients / ranks (A117) */
    int failure;
    uint32_t replaced; /* number of replaced connections that are not closed yet */
    char failure_text[2 * LANE_TEXT_BYTES];
    char tenant[LANE_NAME_BYTES];
    struct lane_lent lent_max;
    struct lent lent; /* memory that the job's workers lend, counted at each lending */
    /* sets of ranks, at the index round % CHOICES_PER_JOB (W13) */
    struct record_chosen choices[CHOICES_PER_JOB];
    struct lane_squares *squares; /* sums of the newest measured round */
    struct sampling *sampling;    /* sums over sampled blocks (A97) */
    /* beginning of the turn in progress, which is not in busy_ns yet; 0: no turn */
    uint64_t turn_since_ns;
    struct job_looks looks;
    uint64_t busy_ns, pushed_bytes, rounds;
    uint64_t queue_ns; /* total time for which ready rounds have waited for their first chunk */
    struct job_ending ending;
    size_t wished;        /* number of pieces with is_wished (A38) */
    struct piece *worked; /* piece of the last chunk; NULL: the piece was freed */
    /* piece whose rounds count as the job's rounds (A22); NULL: none yet */
    struct piece *reference;
    /* ring with records of the job's rounds; NULL: not recorded (A48) */
    struct trace_ring *trace;
    struct lane_tables *tables; /* rows/types.h; NULL: the job has no table here */
};

struct lane {
    struct lane_options options;
    struct list jobs;
    struct line running; /* tenants whose jobs can use the core now */
    struct list tenants;
    struct lane_tenant nameless; /* tenant of jobs without a key */
    size_t connections;
    bool passes_over[LANE_FABRICS_MAX]; /* the next turn skips these fabrics */
    uint64_t busy_ns, rounds, pushed_bytes;
    size_t counted_bytes; /* arena_counted_bytes() at the last lane_measure() */
    size_t arena_bytes;   /* arena_allocated_bytes() at the last change of counted_bytes */
    uint64_t now_ns;      /* beginning of the turn, plus the time of the turn's chunks so far */
    /* time of polls and messages that is not charged to a job yet (A22) */
    uint64_t unshared_ns[LANE_FABRICS_MAX];
    size_t heard; /* index of the fabric with the most recent event */
    struct lane_looks looks;
    uint64_t billed_ns;      /* part of the current poll's time that is already charged */
    uint64_t apart_ns;       /* part of the current events' time that is already charged */
    uint64_t helped_ns;      /* time that other threads have spent on this lane's jobs */
    struct list telling;     /* workers with a pending message */
    struct lane_wait *waits; /* waits of pieces, each with an end time (piece/waits.h) */
    struct list tracings;    /* recordings of jobs, for timelines */
    /* Called when no chunk of the piece is in progress any more. `is_given_up`: the round of these
     * chunks was aborted (round.h). */
    void (*chunks_are_over)(struct piece *p, bool is_given_up);
};

/* Returns whether the worker is a replica holder: an aggregator that announces nothing, and lends
 * memory for copies. */
static inline bool worker_is_holder(const struct worker *w) { return w->number & RECORD_HOLDER; }
static inline uint32_t job_peers(const struct lane_job *job)
{
    return job->workers_count + LANE_HOLDERS_MAX;
}

static inline uint64_t piece_bytes(const struct piece *p, uint64_t elements)
{
    return elements * reduce_element_bytes(p->dtype);
}

static inline bool piece_leads(const struct piece *p)
{
    return p->terms.role == LEADS_SETS || p->terms.role == LEADS_ROUNDS;
}
static inline bool piece_follows(const struct piece *p) { return p->terms.role == FOLLOWS_ROUNDS; }

/* Returns the transfer whose operation has completed; NULL: no transfer has posted the
 * operation. */
static inline struct transfer *job_transfer(struct lane_job *job, void *context)
{
    uintptr_t at = (uintptr_t)context, first = (uintptr_t)job->transfers;
    return at >= first && at < first + sizeof job->transfers ? context : NULL;
}

static inline struct announcement *rank_said(struct rank *r, uint64_t round)
{
    return &r->said[round & 1];
}
/* Returns the newer of a rank's two announcements; without any, said[0], whose round is 0. */
static inline struct announcement *rank_newest(struct rank *r)
{
    return &r->said[r->said[0].round < r->said[1].round];
}
/* Returns the piece of an announcement. The announcement is entry round & 1 of rank.said[], so its
 * address gives the address of the rank. */
static inline struct piece *announcement_piece(struct announcement *a)
{
    return container_of(a - (a->round & 1), struct rank, said)->piece;
}

#endif
