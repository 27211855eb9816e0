/* The lane's data, for the files of this folder only. Ownership: lane > job > worker, piece >
 * rank > announcement; all memory is the job's account in the lane's arena. */
#ifndef GRADPOOL_AGGREGATOR_LANE_TYPES_H
#define GRADPOOL_AGGREGATOR_LANE_TYPES_H

#include "svc/aggregator/ending.h"
#include "svc/aggregator/inbox.h"
#include "svc/aggregator/lane_job.h"
#include "svc/aggregator/lending.h"
#include "svc/aggregator/operation.h"
#include "svc/aggregator/slowing.h"
#include "svc/aggregator/tell.h"
#include "svc/aggregator/tracing.h"
#include "svc/aggregator/transfer_types.h"
#include "svc/base/list.h"
#include "svc/reduce/reduce.h"

#define LANE_NAME_BYTES 128
#define LANE_TEXT_BYTES 160

/* What a worker said about one round. Two are kept per rank, by the round's last bit (W3). */
struct announcement {
    struct list tell_link; /* in worker.owed while something is to be told */
    uint64_t round;        /* 0: none */
    uint64_t closed_round; /* whose result answers it, when it came late */
    uint32_t word;
    uint8_t standing; /* enum record_standing */
    uint8_t owes;     /* TELL_* */
    uint32_t input_region;
    uint64_t input_offset, input_stride;
    uint32_t output_region;
    bool has_output;
    uint64_t output_offset, output_stride;
    const struct operation *operation;
    uint32_t root, priority;
    float loss;           /* NaN: not told */
    const void *payload;  /* the input itself (W6): in the inbox, or in a receive that is held */
    uint32_t inbox_bytes; /* of it, in the inbox */
};

/* CHOSEN: the set that its round decided, then COMMIT; BACKED: of a copy, not of a round. */
enum { TELL_COMMIT = 1, TELL_ERROR, TELL_CLOSED, TELL_CHOSEN, TELL_BACKED };

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
    struct inbox inbox; /* for short ones */
    struct breaks breaks;
    char peer[64];
};

/* Sets of ranks that are known for rounds to come or just gone. */
#define CHOICES_PER_JOB 4

/* Aggregators that keep copies for a job's pieces on one lane: its own, those of lanes before. */
#define LANE_KEEPERS_MAX 8

struct lane_job {
    struct list link;     /* in lane.jobs */
    struct list run_link; /* in lane.running: something can be done now */
    struct lane *lane;
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
    struct list running; /* jobs that can use the core now; the first is next */
    size_t connections;
    bool is_closing;                    /* the fabrics are closed already */
    bool passes_over[LANE_FABRICS_MAX]; /* in the next turn only */
    uint64_t busy_ns, rounds, pushed_bytes;
    size_t counted_bytes, arena_bytes; /* of the arena, when figures were asked for last */
    struct slowing slowing;
    uint64_t now_ns;                        /* when the turn began */
    uint64_t unshared_ns[LANE_FABRICS_MAX]; /* of polls and the like, nobody's yet (A22) */
    size_t heard;                           /* the fabric that had events last */
    struct list telling;                    /* workers that are owed a COMMIT or an ERROR */
    struct list tracings;                   /* jobs that are recorded */
};

/* An aggregator that keeps copies, in a worker's place: it has no rank, and none of its duties. */
static inline bool worker_is_keeper(const struct worker *w) { return w->number & RECORD_KEEPER; }
static inline uint32_t job_peers(const struct lane_job *job)
{
    return job->workers_count + LANE_KEEPERS_MAX;
}

/* piece.c */
struct piece *piece_find(struct lane_job *job, uint32_t id);
/* NULL: not of the piece's set. */
struct rank *piece_rank(struct piece *p, uint32_t number);
static inline uint64_t piece_bytes(const struct piece *p, uint64_t elements)
{
    return elements * reduce_element_bytes(p->dtype);
}
/* 1: made, the last of the job's; 0: it was here already. */
int piece_place(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch,
                bool recovering);
void piece_free(struct piece *p);
/* Another set of ranks for it (A41): 0, or what piece_place() says; -EBUSY: it is not at rest. */
int piece_regroup(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch);
void piece_unqueue(struct piece *p); /* what is left of its round is not to be done */
/* Every announcement of the piece gets this error, now and later. */
void piece_fail(struct piece *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* announce.c */
/* `data`: the receive buffer, `payload` in it or NULL. Returns whether the buffer is kept. */
bool announce(struct worker *w, const struct record_ready *ready, const void *data,
              const void *payload);
void count_in(struct rank *rank, struct announcement *a);
void answer_query(struct worker *w, const struct record_query *query);

/* quorum.c */
static inline bool quorum_is_partial(const struct piece *p)
{
    return p->terms.quorum == QUORUM_FIRST || p->terms.quorum == QUORUM_CHOSEN;
}
/* Each rank has a clock of its own, and the piece a running sum. */
static inline bool quorum_is_loose(const struct piece *p)
{
    return p->terms.quorum == QUORUM_STALE || p->terms.quorum == QUORUM_ANY;
}
/* The round that the rank may announce. */
uint64_t quorum_round(const struct piece *p, const struct rank *rank);
/* Of a piece whose ranks have clocks: that of the last. Who has said goodbye holds nobody up. */
uint64_t quorum_slowest_clock(const struct piece *p);
/* What it has said about that round and nothing was made of yet; NULL: nothing. */
struct announcement *quorum_waiting(struct piece *p, struct rank *rank);
bool round_has_quorum(struct piece *p);
bool quorum_takes(struct piece *p, struct rank *rank); /* part in the round that starts now */
/* With those who have left it can never start. `ret_left`: one of them. */
bool quorum_is_hopeless(struct piece *p, uint32_t *ret_left);
bool quorum_was_chosen(const struct piece *p, const struct rank *rank, uint64_t round);
bool quorum_is_stuck(struct piece *p); /* the late wait for a result that needs them */
/* The ranks whose inputs make a round, of all pieces with QUORUM_CHOSEN (W13). -EPROTO: another set
 * is known, -EINVAL: ranks that the job does not have. */
int quorum_choose(struct lane_job *job, const struct record_chosen *chosen);

/* round.c */
static inline struct announcement *rank_said(struct rank *r, uint64_t round)
{
    return &r->said[round & 1];
}
/* The two of a rank lie in one array, at the place of their round's last bit. */
static inline struct piece *announcement_piece(struct announcement *a)
{
    return container_of(a - (a->round & 1), struct rank, said)->piece;
}
/* Starts what can be started now: an answer to the late, or the open round. */
void round_go_on(struct piece *p);
/* The rank announced a round that is closed. */
void round_answer_late(struct rank *rank, struct announcement *a);
/* All results lie in all landing areas: COMMIT, and the next round opens. */
void round_commit(struct piece *p);
/* It has failed in mid-round, and nothing is posted. The latter frees it if it was dropped. */
void round_rest(struct piece *p);
void round_abandon(struct piece *p);
/* The round begins again with whoever is there then: another keeper, another connection. */
void round_interrupt(struct piece *p);
/* The open round is known, and whether ranks hold its result already: the rest get that. */
void round_take_up(struct piece *p);
/* Announcements of the open round that were here before it opened count, too. */
void round_count_early(struct piece *p);
void round_fetch(struct piece *p, uint64_t round); /* the state after it comes from its copy, ... */
void round_fill(struct piece *p, uint64_t round);  /* ... or goes to one that lacks it */

/* new_owner.c */
void round_recover(struct piece *p); /* opens the round when all workers have said theirs (W5) */
void round_settle(struct piece *p, uint64_t committed);
/* What a rank says first of a piece that was installed: whether it can be, and what comes of it. */
bool new_owner_accepts(const struct piece *p, const struct rank *rank,
                       const struct record_ready *ready);
void new_owner_welcome(struct rank *rank);
void new_owner_fetched(struct piece *p, uint64_t committed); /* its state, from a copy */

/* lane_events.c */
void lane_handle(struct lane *lane, struct fabric *fabric, const struct fabric_event *event);

#endif
