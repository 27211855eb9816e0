/* Tensors, where their pieces lie, and what becomes of them when an aggregator is lost. */
#ifndef GRADPOOL_COORDINATOR_JOB_TENSOR_H
#define GRADPOOL_COORDINATOR_JOB_TENSOR_H

#include "svc/coordinator/job/job.h"

#define TENSOR_BYTES_MAX (UINT64_C(1) << 40)
#define DECLARE_PIECES_MAX 300000u /* one DeclareReply fits a frame */
#define MESSAGE_PIECES_MAX 32768u  /* of one PlaceRequest or RouteChange, so that it fits a frame */

/* --- tensor.c --- */

struct tensor *tensor_create(struct job *job, uint32_t id, const char *name, uint32_t dtype,
                             uint64_t elements, const struct terms *terms);
void tensor_destroy(struct tensor *tensor);
uint64_t tensor_bytes(const struct tensor *tensor, uint64_t elements);
bool tensor_has_rank(const struct tensor *tensor, uint32_t rank);
void tensor_set_rank(struct tensor *tensor, uint32_t rank, bool on);
/* Again, of a tensor that has failed, to a rank that may have missed it. */
void tensor_send_failure(const struct tensor *tensor, const struct session *to);
/* Tells every rank that has declared it (but `except`), once; it stays failed. */
void tensor_fail(struct tensor *tensor, const struct session *except, int code, const char *text);
void tensor_row(const struct tensor *tensor, struct store_row *ret_row);
void piece_row(const struct tensor *tensor, const struct piece *piece, struct store_row *ret_row);
int tensor_restore(struct service *s, const struct store_tensor *row);
int piece_restore(struct service *s, const struct store_piece *row);

typedef bool (*piece_wanted_fn)(const struct piece *piece, const void *context);
/* Protobuf form of the pieces that `wanted` accepts (NULL: all); one block, for free(). */
WIRE(TensorRoute) *
    tensor_route(const struct tensor *tensor, piece_wanted_fn wanted, const void *context);
/* RouteChange to one session, or (NULL) to all that are connected. */
void tensors_send_routes(struct job *job, const struct session *to, piece_wanted_fn wanted,
                         const void *context);

/* --- declaration.c --- */

/* Answers the declares of the job whose pieces are all ready, or have failed. */
void declare_check_waits(struct job *job);

/* --- placement/apply_plan.c --- */

/* Gives pieces, lanes and tasks to new tensors; what the lanes carry does not change yet. */
int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err);

struct task {
    uint32_t id;
    uint64_t bytes;
    uint64_t state_bytes; /* that its lane keeps, beside what workers have: it travels along */
    uint32_t lane;        /* number, as lanes may end before it moves; 0: none */
};
/* Fills `lane` of each of these, which have lost theirs. -ENOSPC: no lane is open. */
int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err);
/* The same for tasks that leave a lane which lives. -ENOSPC, too: they would break a limit. */
int placing_plan_leaving(struct job *job, struct task *tasks, size_t count, struct err *err);
/* The same for tasks whose aggregator is to end: no limit refuses them. */
int placing_plan_ending(struct job *job, struct task *tasks, size_t count, struct err *err);

void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane);
void piece_detach(struct tensor *tensor, struct piece *piece);

/* --- task.c --- */

typedef bool (*task_wanted_fn)(const struct tensor *tensor, const struct piece *piece,
                               const void *context);
/* Tasks of the pieces that are wanted, ascending, without lanes; for free(). -ENOMEM. */
int tasks_list(const struct job *job, task_wanted_fn wanted, const void *context,
               struct task **ret_tasks, size_t *ret_count);
/* How many of them, from the first on, move at once: 8 MiB of state, 32 MiB in all, or one task. */
size_t tasks_batch(const struct task *tasks, size_t count);
/* So many times as much. */
size_t tasks_larger_batch(const struct task *tasks, size_t count, uint64_t times);
/* Piece by piece, the part (from 0 on) that each belongs to. */
struct spot_of_task {
    struct tensor *tensor;
    struct piece *piece;
    uint32_t part;
};
/* Each part becomes a task of its own, unless it is all of one already. Stored, or nothing has
 * changed. Pieces of one task and part stand together. */
int tasks_split(struct job *job, const struct spot_of_task *pieces, size_t count, size_t parts);
struct task *tasks_find(struct task *tasks, size_t count, uint32_t id);

/* --- route/tell_lane.c --- */

/* Asks every lane that is up to take its pieces that are PIECE_PLACED. */
void telling_place(struct job *job);
/* Tells the lanes that have pieces of the job what its tenant may use now. */
void telling_limits(struct job *job);
/* Tells the lane to forget pieces; count 0: the whole job. */
void telling_drop(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count);
/* Tells the lane to serve again pieces that it was asked to release. */
void telling_thaw(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count);
/* One PlaceRequest for pieces of the job. As call_send(). */
enum place_how { PLACE_NEW, PLACE_RECOVERING, PLACE_REGROUPED };
int telling_ask(struct job *job, struct lane *lane, uint32_t epoch, enum place_how how,
                WIRE(PieceSpec) * specs, size_t count, call_done_fn done, void *data);
/* What it says of a piece; good while the tensor and `terms`, which it may need, are. */
void telling_spec(const struct tensor *tensor, const struct piece *piece, struct terms *terms,
                  WIRE(PieceSpec) * spec);

/* --- recovery.c --- */

/* The aggregator cannot write any more (fenced): its pieces are stranded, and placed anew
 * unless the service is stopping. */
void recovery_aggregator_lost(struct aggregator *a);
/* Places what is stranded, and tells lanes what they do not know yet, of all jobs. */
void recovery_place_stranded(struct service *s);
/* What a rejoining aggregator holds against what it should hold. */
void recovery_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) * join);

#endif
