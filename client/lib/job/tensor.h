/* The tensors of a job, with their pushes. Hash tables find a tensor by name or by number. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_TENSOR_H
#define GRADPOOL_CLIENT_LIB_JOB_TENSOR_H

#include "client/lib/job/job.h"
#include "svc/base/hash.h"
#include "svc/reduce/update.h"
#include "svc/wire/terms.h"

#define TENSOR_NAME_BYTES_MAX 255

struct piece;

/* One push of one tensor, and the memory that the lane reads and writes. */
struct push {
    const void *gradient; /* the caller's input; NULL: the push of this rank has no input */
    void *result;         /* the caller's result; NULL: this rank receives no result */
    struct slab_place input, landing;
    uint64_t gradient_bytes, result_bytes;
    struct update_settings settings;  /* settings of an update, if this rank sends them (W14) */
    uint64_t steps;                   /* update count of the state that a restore sets */
    bool counts_on;                   /* `steps` is the number that this rank has counted */
    uint64_t iterations[HOLD_SCOPES]; /* for each scope, the iteration of the push; 0: none */
    uint64_t traced_ns[TRACE_STEPS];  /* times of the steps, while a timeline is recorded */
    uint32_t root;
    /* weight of the gradient in a mean or an update; RECORD_WEIGHT in all other operations */
    uint32_t weight;
    uint8_t operation; /* a value of enum record_operation */
    bool has_settings;
    bool uses_second_half; /* the push uses the second half of short staging areas (L17) */
    float loss;
    bool copies_in;      /* the gradient is copied to the staging input */
    bool copies_out;     /* the landing area is copied to the result */
    bool ends_committed; /* lanes use memory of the caller, so the wait ends at COMMIT (L2) */
    /* the gradient is dropped, and this rank fetches the result of a later round (W22). Hidden
     * tensor: this rank has no gradient in the round */
    bool is_taking;
};

struct gp_tensor {
    struct gp_job *job;
    struct list node;                /* node in job.tensors */
    struct hash_link by_name, by_id; /* in tables of the job */
    char *name;
    /* elements: number of elements in one block; bytes: size of the block on the wire */
    uint64_t elements, bytes;
    struct terms terms;
    /* members: number of ranks in the set; first_rank: lowest rank of the set; peer: any rank of
     * the set other than this rank */
    uint32_t members, first_rank, peer;
    /* ranks whose pushes make a round, in an elastic job or in a job with stages */
    uint64_t ranks[RECORD_MISSING_WORDS];
    bool knows_ranks;
    uint32_t id, index; /* index: position in the order of declarations */
    uint8_t dtype;      /* dtype of the data that the service sees */
    uint8_t values;     /* dtype in the memory of the caller */
    bool is_routed;     /* the coordinator has sent number and pieces */
    struct err failure;
    struct piece *pieces;
    uint32_t pieces_count;
    uint64_t round; /* newest round that has begun */
    /* for each scope, the iteration of the newest push that belongs to an iteration; 0: none */
    uint64_t iterations[HOLD_SCOPES];
    uint8_t scopes; /* bits of the scopes that count this tensor (hold.c) */
    /* number of updates since the parameters were set, indexed by the round modulo 3 */
    uint64_t steps[3];
    bool knows_steps; /* false: this rank has missed rounds, as a late worker or as an idle rank */
    uint64_t steps_round;  /* round for which a lane has sent the number of updates (L28) */
    uint32_t entering;     /* late worker: number of pieces whose round is unknown */
    uint64_t closed_round; /* newest round that a lane has reported as closed; 0: none */
    /* without_result, without_commit: number of pieces in the open round that lack a result, or a
     * COMMIT */
    uint32_t without_result, without_commit;
    struct push open;           /* push of the open round */
    struct push next;           /* push of the next round */
    struct push kept;           /* push of the previous round, whose result has landed */
    bool has_kept;              /* `kept` is valid: its COMMIT may not have arrived yet (L17) */
    bool is_starting;           /* the pushing thread copies the input of `next` */
    bool is_queued;             /* `next` begins after the COMMIT of the open round (L1) */
    struct gp_request *request; /* request of the newest push; NULL: gp_wait() has ended it */
    struct gp_request *open_request; /* request of the open round, or NULL */
    struct list in_request;          /* node in request.waiting, .landed or .done */
    /* Staging memory; NULL until its first use. Index 1 is for operations with one block for each
     * rank. If a round may have several gradients of this rank, input 0 has a slot for each of them
     * (L120). */
    void *staging_input[2], *staging_landing[2];
    uint64_t staged_bytes; /* bytes of all staging areas */
};

/* Returns whether a round with this operation belongs to the rounds that can close before all ranks
 * have pushed (W22). */
static inline bool tensor_follows(const struct gp_tensor *t, uint8_t operation)
{
    bool sums = operation == RECORD_SUM || operation == RECORD_MEAN || operation == RECORD_MIN ||
                operation == RECORD_MAX || operation == RECORD_PRODUCT;
    return terms_are_following(&t->terms) && (t->terms.rule ? operation == RECORD_UPDATE : sums);
}

/* Returns whether rounds of the tensor take place without this rank. */
static inline bool tensor_is_outside(const struct gp_tensor *t)
{
    return t->knows_ranks && !ranks_have(t->ranks, t->job->rank);
}

/* Returns whether the ranks of the tensor's rounds are the members of each stage (K174 of
 * svc/coordinator). */
bool tensor_suits_stages(const struct gp_tensor *t);

/* Returns whether a push sends or receives the tensor's state (parameters, then moments). */
static inline bool is_of_state(uint8_t operation)
{
    return operation == RECORD_SAVE || operation == RECORD_RESTORE;
}

/* Returns the number of arrays in a state: the parameters, and the moments of the rule. */
static inline uint64_t tensor_arrays(const struct gp_tensor *t)
{
    return 1 + (uint64_t)update_moments(t->terms.rule);
}
static inline uint64_t tensor_state_bytes(const struct gp_tensor *t)
{
    return t->bytes * tensor_arrays(t);
}

#define for_each_tensor(t, job)                                                         \
    for (struct gp_tensor *t = list_entry((job)->tensors.next, struct gp_tensor, node); \
         &t->node != &(job)->tensors; t = list_entry(t->node.next, struct gp_tensor, node))

struct gp_tensor *tensor_find(struct gp_job *job, const char *name);
struct gp_tensor *tensor_find_id(struct gp_job *job, uint32_t id);
/* Adds a tensor whose name the job does not have yet. Returns 0 or -ENOMEM. */
int tensor_add(struct gp_job *job, const gp_tensor_spec *spec, const struct terms *terms,
               struct gp_tensor **ret_tensor);
/* Sets `members`, `first_rank` and `peer` from a set of ranks. */
void tensor_count_ranks(struct gp_tensor *t, const uint64_t *ranks);
/* Returns the dtype of the data on the wire. */
uint8_t tensor_wire(const gp_tensor_spec *spec);
/* Sets the number that the coordinator has assigned, so that tensor_find_id() finds the tensor. */
void tensor_take_id(struct gp_tensor *t, uint32_t id);
void tensor_remove(struct gp_tensor *t);
/* Returns -EINVAL for NULL, otherwise the result of job_check(). */
int tensor_check(const struct gp_tensor *t);
/* Frees the tables. All tensors must have been removed before. */
void tensor_table_fini(struct gp_job *job);
/* Fails the tensor permanently, and ends its open request. */
void tensor_break(struct gp_tensor *t, int code, const char *text);

#endif
