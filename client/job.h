/* The client's data: a job, its tensors and their pieces, requests, and who changes them. For the
 * files of this folder only. Everything in a job is guarded by its lock unless said otherwise;
 * README.md has the invariants (L1, ...). */
#ifndef GRADPOOL_CLIENT_JOB_H
#define GRADPOOL_CLIENT_JOB_H

#include "client/client.h"
#include "client/hold.h"
#include "client/late.h"
#include "client/progress.h"
#include "client/recorder.h"
#include "svc/fabric/engine.h"
#include "svc/fabric/slab.h"
#include "svc/reduce/update.h"
#include "svc/wire/terms.h"

#define JOB_NAME_BYTES_MAX 127
#define TENSOR_NAME_BYTES_MAX 255
#define NAME_RESERVED "gradpool." /* how names of our own tensors begin */

struct link;
struct gp_job;

/* Where a piece stands in its tensor's round (W2, W5). */
enum piece_standing {
    PIECE_IDLE,      /* `committed` is; nothing is lent */
    PIECE_ANNOUNCED, /* the input is lent; the lane knows, or will once the record is sent */
    PIECE_LANDED,    /* the result is here, others may lack it: input and landing area are lent */
};

struct piece {
    struct gp_tensor *tensor;
    struct link *link;  /* to the lane that owns it */
    struct link *fence; /* a former lane that must be closed first (W5); NULL: none */
    struct link
        *lost; /* the lane that died with it, until its next commit; NULL: none, or unknown */
    struct list unsent; /* in link.unsent while a READY is to be sent */
    uint64_t first, elements;
    uint64_t committed; /* the last round that is */
    uint32_t id, epoch;
    uint32_t slot, word; /* word: slot and generation, of the last round begun */
    uint32_t kept_word;  /* of the tensor's `kept` */
    enum piece_standing standing;
    bool is_orphan;      /* its lane is gone; a RouteChange will come */
    bool owes_standing;  /* a new owner must be told even if nothing is open */
    bool is_entering;    /* new to rounds of others: the lane is to say where they stand (L21) */
    bool keeps_copy;     /* of its state, if the job wants that (L28) */
    void *copy;          /* two states, in lent memory; NULL: none yet */
    uint64_t copy_since; /* the first round whose state goes there; RECORD_ROUND_NONE: an offer */
    uint32_t copy_told;  /* on which opening of its link; 0: on none */
};

/* What one call pushes of one tensor, and where the lane finds it. */
struct push {
    const void *gradient; /* of the caller; NULL: gives none */
    void *result;         /* of the caller; NULL: takes none */
    struct slab_place input, landing;
    uint64_t gradient_bytes, result_bytes;
    struct update_settings settings;  /* of an update, where this rank gives them (W14) */
    uint64_t steps;                   /* of a restore: updates behind the state */
    bool counts_on;                   /* these are as many as this rank has counted */
    uint64_t iterations[HOLD_SCOPES]; /* that it is of; 0: of none */
    uint64_t traced_ns[TRACE_STEPS];  /* while a timeline is recorded */
    uint32_t root;
    uint8_t operation; /* enum record_operation */
    bool has_settings;
    bool uses_second_half; /* of short staging areas (L17) */
    float loss;
    bool copies_in;      /* the gradient into the staging input */
    bool copies_out;     /* the landing area into the result */
    bool rounds_in;      /* what was copied in back into `gradient`: all ranks get the same bits */
    bool ends_committed; /* the caller's own memory is lent: the wait is over at COMMIT (L2) */
};

struct gp_tensor {
    struct gp_job *job;
    struct list node; /* in job.tensors */
    struct gp_tensor *next_by_name, *next_by_id;
    char *name;
    uint64_t elements, bytes; /* of one block, on the wire */
    struct terms terms;
    uint32_t members, first_rank, peer;   /* of its set; peer: another than this rank */
    uint64_t ranks[RECORD_MISSING_WORDS]; /* who makes its rounds, where workers come and go */
    bool knows_ranks;
    uint32_t id, index; /* index: in order of declaring */
    uint32_t name_hash;
    uint8_t dtype;  /* on the wire: all that the service knows */
    uint8_t values; /* dtype of the caller's memory */
    bool is_routed; /* id and pieces are known */
    struct err failure;
    struct piece *pieces;
    uint32_t pieces_count;
    uint64_t round;                   /* the last one begun */
    uint64_t iterations[HOLD_SCOPES]; /* of its last push that counted; 0: none did */
    uint8_t scopes;                   /* whose iterations have it (hold.c) */
    uint64_t steps[3];     /* updates since its parameters were set, by the round modulo 3 */
    bool knows_steps;      /* else it came later than they were set */
    uint64_t steps_round;  /* after which a lane has told them (L28) */
    uint32_t entering;     /* pieces whose round is not known yet */
    uint64_t closed_round; /* the newest that a lane said is over, or 0 */
    uint32_t without_result, without_commit; /* pieces of that round */
    struct push open;                        /* of that round */
    struct push next;                        /* to be begun */
    struct push kept;                        /* of the round before, landed, ... */
    bool has_kept;                           /* ... and perhaps not committed yet (L17) */
    bool is_starting;                        /* the caller of the push is copying `next` in */
    bool is_queued;                  /* `next` begins when the open round is committed (L1) */
    struct gp_request *request;      /* NULL once it was waited for */
    struct gp_request *open_request; /* the one that the open round ends; NULL: likewise */
    struct list in_request;          /* in request.waiting, .landed or .done */
    /* NULL until needed; [1]: of operations with a block for each rank. */
    void *staging_input[2], *staging_landing[2];
    uint64_t staged_bytes; /* in all of them */
};

/* Of a request that somebody waits for: since when nothing has come of it, and when to say so. */
struct stall {
    uint64_t since_ns, due_ns; /* since: 0 while nobody has waited */
    bool is_told;
};

struct gp_request {
    struct list node; /* in job.requests, job.pool or client.abandoned */
    gp_client *client;
    struct gp_job *job;  /* NULL: the job was left */
    struct list waiting; /* tensors whose round goes on */
    struct list landed;  /* ... is over, the result to be copied out */
    struct list done;
    struct err err;
    uint64_t polled_ns; /* waited in gp_poll(), all in vain */
    struct stall stall;
    /* What lanes answered to the question whom it waits for (stall.c). */
    uint32_t queries;
    const struct gp_tensor *missing_tensor;
    uint64_t missing_round;
    uint64_t missing[RECORD_MISSING_WORDS];
    bool missing_have_pushed; /* ... but their memory does not answer */
};

struct slot {
    struct piece *piece; /* NULL: free */
    uint32_t next_free;
    uint8_t generation;
};

/* Of a snapshot or a restore whose time ran out: what the next call ends first (L31). */
struct unfinished {
    struct gp_request *request; /* NULL: none */
    void *agreement, *state;    /* memory of the job that it uses */
    uint32_t root, next;        /* next: the tensor to be pushed if all had agreed */
    bool has_next, restores;
};

struct gp_job {
    struct gp_client *client;
    unsigned generation;   /* fork.h */
    struct list node;      /* in client.jobs */
    struct list fork_node; /* fork.c */
    char name[JOB_NAME_BYTES_MAX + 1];
    char host[64];
    uint32_t rank, workers, id; /* workers: ranks that it may have */
    bool is_elastic;            /* workers come and go (L20) */
    bool join_is_late;          /* the job had begun: the control thread's */
    gp_membership membership;
    Gradpool__Wire__JoinRequest join; /* the control thread's */
    struct control *control;
    pthread_mutex_t declaring; /* one declare or undeclare at a time; before the lock */
    pthread_mutex_t lock;
    struct engine engine;
    struct slabs slabs;
    uint64_t staged_bytes; /* of its tensors */
    struct err failure;    /* of the whole job; code 0: none */
    bool is_leaving;
    bool has_copies;        /* of what lanes keep (W17), ... */
    bool keeps_copies;      /* ... in its workers' memory (L28) */
    _Atomic uint32_t users; /* calls that wait, or are on their way in (L14) */
    struct list links, tensors;
    struct gp_tensor **by_name, **by_id; /* `buckets` each; grow with the tensors */
    uint32_t buckets, tensors_count, declared;
    struct slot *slots;
    uint32_t slots_count, free_slot;
    struct list requests, pool;
    uint32_t queued, unsent, connecting; /* why somebody must drive although nobody waits (L4) */
    float loss;                          /* of this iteration; NaN: not told */
    struct link *spoke; /* the lane whose word came last; NULL: none, or it is gone (L24) */
    struct record_chosen chosen[2]; /* the last two, by round, for lanes that do not know them */
    uint64_t stale;                 /* words and records that nobody knew any more */
    struct gp_tensor *barrier;
    struct gp_request *barrier_request; /* NULL unless one is open */
    bool is_in_barrier;
    struct unfinished unfinished; /* the caller's of snapshot and restore */
    bool is_reading;              /* gp_job_read() is called */
    int read_fd;                  /* the connection of gp_job_read(); -1: none */
    struct hold hold;
    struct trace_ring *trace;      /* rounds are recorded there; NULL: they are not */
    struct recorder recorder;      /* the control thread's */
    struct job_timeline *timeline; /* that this worker writes; NULL: none */
    struct progress progress;
    uint64_t stall_told_ns; /* when a stall was last told; 0: none was */
    struct late late;
};

/* membership.c */
/* -EINVAL for NULL, -ECHILD in a forked child, with text. */
int job_check(const struct gp_job *job);
/* Ends what `users++` began: gp_job_leave() need not wait for this call any more. With the lock,
 * which it releases. */
void job_end_use(struct gp_job *job);
/* Every request ends with this, open ones now and later ones at once. The first failure stays. */
void job_break(struct gp_job *job, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* tensor_table.c */
struct gp_tensor *tensor_find(struct gp_job *job, const char *name);
struct gp_tensor *tensor_find_id(struct gp_job *job, uint32_t id);
int tensor_add(struct gp_job *job, const gp_tensor_spec *spec, const struct terms *terms,
               struct gp_tensor **ret_tensor);
/* The dtype of a spec's values as they travel. */
uint8_t tensor_wire(const gp_tensor_spec *spec);
/* Takes what the coordinator decided. -EPROTO: no sound route. */
int tensor_route(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route);
void tensor_remove(struct gp_tensor *t);
/* After the last one is removed. */
void tensor_table_fini(struct gp_job *job);
/* Names the round that the piece begins. */
void piece_new_word(struct piece *p);
/* Whose open round the word names; NULL: nobody's any more. */
struct piece *slot_piece(struct gp_job *job, uint32_t word);
/* Likewise of the round before, while it is kept. */
struct piece *slot_piece_kept(struct gp_job *job, uint32_t word);
/* The tensor can never be pushed again; its open request ends. */
void tensor_break(struct gp_tensor *t, int code, const char *text);

/* declare.c */
/* A tensor under a reserved name. */
int declare_internal(struct gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                     uint64_t timeout_ns, struct gp_tensor **ret_tensor);

/* push_pull.c */
/* What it gives or takes is a tensor's state (parameters, then moments), whoever takes part. */
static inline bool is_of_state(uint8_t operation)
{
    return operation == RECORD_SAVE || operation == RECORD_RESTORE;
}
/* Begins the round of `next`; its input must be in place. */
void push_begin(struct gp_tensor *t);
/* The open round is committed: begins the push that waits for it, unless that is held (L33). */
void push_begin_queued(struct gp_tensor *t);
/* All that wait for nothing else any more. */
void push_begin_held(struct gp_job *job);
int push_internal(struct gp_tensor *t, uint8_t operation, struct gp_request **ret_request);
/* Its state from or to rank `root` (W16); `state` NULL on the others. To `parameters`, unless that
 * is NULL, what is restored; `steps` of that. */
int push_save(struct gp_tensor *t, void *state, struct gp_request **ret_request);
int push_restore(struct gp_tensor *t, uint32_t root, const void *state, void *parameters,
                 uint64_t steps, struct gp_request **ret_request);

/* settle.c: what lanes say */
void settle_word(struct link *link, uint32_t word);
void settle_message(struct link *link, const void *data, size_t bytes);

/* wait.c */
struct gp_request *request_take(struct gp_job *job);
/* No effect on one whose results are all here. */
void request_fail(struct gp_request *q, int code, const char *text);
/* Its tensors may be pushed again. */
void request_release(struct gp_request *q);
/* Its job goes; its owner still has it. With the client's lock held (L14). */
void request_abandon(struct gp_request *q);
bool request_is_over(const struct gp_request *q);

/* stall.c */
/* When `timeout_ns` have passed: asks the lanes, drives a little longer, and says why it is not
 * over. 0: it was over after all. */
int stall_explain(struct gp_request *q, uint64_t timeout_ns);
/* When a warning is due, in a wait that begins or goes on; UINT64_MAX: never. */
uint64_t stall_due(struct gp_request *q, uint64_t now_ns);
/* It is due: asks as above, and logs why the request is not over. */
void stall_warn(struct gp_request *q);
/* Something has come. */
void stall_end(struct gp_request *q);

/* resize.c */
void membership_init(struct gp_job *job, uint32_t workers);
void membership_take(struct gp_job *job, const Gradpool__Wire__Membership *told);
/* Whose pushes make its rounds, where the route says so. */
void tensor_take_ranks(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route);
/* Before the piece is told to a lane anew, in a job whose workers come and go. */
void piece_reopen(struct piece *p);
void piece_await_entry(struct piece *p);
/* Rounds up to this one are over: the next is the first of this worker's. */
void piece_enter(struct piece *p, uint64_t round);

/* reroute.c */
void reroute(struct gp_job *job, const Gradpool__Wire__RouteChange *change);

#endif
