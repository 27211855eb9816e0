/* A job's tensors, by name and by id, with their pushes. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_TENSOR_H
#define GRADPOOL_CLIENT_LIB_JOB_TENSOR_H

#include "client/lib/job/job.h"
#include "svc/reduce/update.h"
#include "svc/wire/terms.h"

#define TENSOR_NAME_BYTES_MAX 255

struct piece;

/* One call's push of one tensor, and the places where the lane finds it. */
struct push {
    const void *gradient; /* input of the caller; NULL: this rank gives none */
    void *result;         /* memory of the caller for the result; NULL: this rank takes none */
    struct slab_place input, landing;
    uint64_t gradient_bytes, result_bytes;
    struct update_settings settings;  /* settings of an update, if this rank gives them (W14) */
    uint64_t steps;                   /* update count of the state that a restore sets */
    bool counts_on;                   /* `steps` is the number that this rank has counted */
    uint64_t iterations[HOLD_SCOPES]; /* iteration of the push, by scope; 0: none */
    uint64_t traced_ns[TRACE_STEPS];  /* times of the steps, while a timeline is recorded */
    uint32_t root;
    uint8_t operation; /* enum record_operation */
    bool has_settings;
    bool uses_second_half; /* the push uses the second half of short staging areas (L17) */
    float loss;
    bool copies_in;  /* the gradient is copied into the staging input */
    bool copies_out; /* the landing area is copied into the result */
    /* the rounded input is copied back into `gradient`: all ranks get the same bits */
    bool rounds_in;
    bool ends_committed; /* the caller's own memory is lent: the wait is over at COMMIT (L2) */
};

struct gp_tensor {
    struct gp_job *job;
    struct list node; /* in job.tensors */
    struct gp_tensor *next_by_name, *next_by_id;
    char *name;
    uint64_t elements, bytes; /* of one block; bytes: on the wire */
    struct terms terms;
    /* members of the set; its first rank; peer: a rank of it other than this one */
    uint32_t members, first_rank, peer;
    /* ranks that make the tensor's rounds, in an elastic job */
    uint64_t ranks[RECORD_MISSING_WORDS];
    bool knows_ranks;
    uint32_t id, index; /* index: in the order of declarations */
    uint32_t name_hash;
    uint8_t dtype;  /* dtype on the wire, the only one that the service knows */
    uint8_t values; /* dtype of the caller's memory */
    bool is_routed; /* id and pieces are known */
    struct err failure;
    struct piece *pieces;
    uint32_t pieces_count;
    uint64_t round; /* newest round begun */
    /* iteration of the last push that counted, by scope; 0: none did */
    uint64_t iterations[HOLD_SCOPES];
    uint8_t scopes;        /* bits of the scopes whose iterations include the tensor (hold.c) */
    uint64_t steps[3];     /* updates since its parameters were set, by the round modulo 3 */
    bool knows_steps;      /* false: this worker joined after they were set */
    uint64_t steps_round;  /* round after which a lane has sent the number of steps (L28) */
    uint32_t entering;     /* pieces whose round is not known yet */
    uint64_t closed_round; /* newest round that a lane has reported closed; 0: none */
    uint32_t without_result, without_commit; /* pieces of the open round */
    struct push open;                        /* push of the open round */
    struct push next;                        /* push whose round is to begin */
    struct push kept;                        /* push of the round before, whose result has landed */
    bool has_kept;                           /* `kept` is valid: its COMMIT may still come (L17) */
    bool is_starting;                        /* the caller of the push is copying `next` in */
    bool is_queued;                  /* `next` begins when the open round is committed (L1) */
    struct gp_request *request;      /* NULL once a thread has waited for it */
    struct gp_request *open_request; /* the request that the open round ends; NULL: likewise */
    struct list in_request;          /* in request.waiting, .landed or .done */
    /* Staging memory, NULL until needed; [1]: for operations with a block for each rank. */
    void *staging_input[2], *staging_landing[2];
    uint64_t staged_bytes; /* bytes of all staging areas */
};

/* True when a push gives or takes the tensor's state (parameters, then moments). */
static inline bool is_of_state(uint8_t operation)
{
    return operation == RECORD_SAVE || operation == RECORD_RESTORE;
}

/* Arrays of a state: the parameters and the moments of the rule. */
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
/* Adds a tensor that is not known yet. -ENOMEM. */
int tensor_add(struct gp_job *job, const gp_tensor_spec *spec, const struct terms *terms,
               struct gp_tensor **ret_tensor);
/* Counts the members of a set of ranks, and finds the first and the peer. */
void tensor_count_ranks(struct gp_tensor *t, const uint64_t *ranks);
/* The dtype of a spec's values on the wire. */
uint8_t tensor_wire(const gp_tensor_spec *spec);
/* The coordinator has given the tensor its id, by which it can be found from now on. */
void tensor_take_id(struct gp_tensor *t, uint32_t id);
void tensor_remove(struct gp_tensor *t);
/* -EINVAL for NULL, else as job_check(). */
int tensor_check(const struct gp_tensor *t);
/* After the last tensor is removed. */
void tensor_table_fini(struct gp_job *job);
/* The tensor can never be pushed again; its open request ends. */
void tensor_break(struct gp_tensor *t, int code, const char *text);

#endif
