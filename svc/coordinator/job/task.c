/* Tasks of a job. Owns nothing: lists of tasks are computed when they are needed. */
#include "svc/coordinator/job/task.h"

#include "svc/coordinator/job/tensor.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/store/numbers.h"
#include "svc/reduce/update.h"

#include <errno.h>
#include <stdlib.h>

static int compare_tasks(const void *a, const void *b)
{
    uint32_t left = ((const struct task *)a)->id, right = ((const struct task *)b)->id;
    return left < right ? -1 : left > right;
}

/* Limits of a batch of tasks. BATCH_STATE_BYTES: rounds wait while the state of their pieces is
 * transferred. BATCH_BYTES: the first round after the move is slower, because the new lane writes
 * to its memory for the first time. */
#define BATCH_STATE_BYTES (UINT64_C(8) << 20)
#define BATCH_BYTES (UINT64_C(32) << 20)

/* Returns the bytes of state of a piece: its parameters and moments. Without an update rule, only a
 * piece with a partial quorum has state: the results of the last rounds, which a rank may still
 * pull. */
static uint64_t state_bytes(const struct terms *terms, uint64_t bytes)
{
    if (terms->rule)
        return bytes * (1 + (uint64_t)update_moments(terms->rule));
    return terms->quorum == QUORUM_ALL ? 0 : bytes * (terms->lag > 0 ? terms->lag : 1);
}

/* Lists the accepted pieces, or only counts them if `ret_tasks` is NULL. */
static size_t list_pieces(const struct job *job, task_wanted_fn wanted, const void *context,
                          struct task *ret_tasks)
{
    size_t count = 0;
    job_each_piece (piece, tensor, job) {
        if (!wanted(tensor, piece, context))
            continue;
        uint64_t bytes = tensor_bytes(tensor, piece->elements);
        if (ret_tasks)
            ret_tasks[count] = (struct task){.id = piece->task,
                                             .bytes = bytes,
                                             .state_bytes = state_bytes(&tensor->terms, bytes)};
        count++;
    }
    return count;
}

int tasks_list(const struct job *job, task_wanted_fn wanted, const void *context,
               struct task **ret_tasks, size_t *ret_count)
{
    size_t count = list_pieces(job, wanted, context, NULL), kept = 0;
    struct task *tasks = calloc(count + 1, sizeof *tasks);
    if (!tasks)
        return -ENOMEM;
    list_pieces(job, wanted, context, tasks);
    qsort(tasks, count, sizeof *tasks, compare_tasks);
    for (size_t i = 1; i < count; i++) {
        if (tasks[i].id != tasks[kept].id) {
            tasks[++kept] = tasks[i];
            continue;
        }
        tasks[kept].bytes += tasks[i].bytes;
        tasks[kept].state_bytes += tasks[i].state_bytes;
    }
    *ret_tasks = tasks;
    *ret_count = count > 0 ? kept + 1 : 0;
    return 0;
}

struct task *tasks_find(struct task *tasks, size_t count, uint32_t id)
{
    struct task key = {.id = id};
    return bsearch(&key, tasks, count, sizeof key, compare_tasks);
}

size_t tasks_batch(const struct task *tasks, size_t count)
{
    return tasks_larger_batch(tasks, count, 1);
}

size_t tasks_larger_batch(const struct task *tasks, size_t count, uint64_t times)
{
    uint64_t bytes = 0, state = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += tasks[i].bytes;
        state += tasks[i].state_bytes;
        if (i > 0 && (state > times * BATCH_STATE_BYTES || bytes > times * BATCH_BYTES))
            return i;
    }
    return count;
}

/* --- splitting --- */

static uint32_t pieces_of(const struct job *job, uint32_t task)
{
    uint32_t count = 0;
    job_each_piece (piece, tensor, job)
        count += piece->task == task;
    return count;
}

/* Assigns task numbers to the parts. 0: the part is a whole task and keeps its number. */
static void number_parts(const struct job *job, const struct spot_of_task *pieces, size_t count,
                         uint32_t *ret_tasks)
{
    struct store_service *numbers = job->service->numbers;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && pieces[end].part == pieces[first].part;)
            end++;
        bool is_all = end - first == pieces_of(job, pieces[first].piece->task);
        ret_tasks[pieces[first].part] = is_all ? 0 : numbers->next_task++;
    }
}

static int store_parts(struct job *job, const struct spot_of_task *pieces, size_t count,
                       const uint32_t *tasks)
{
    struct store *store = job->service->store;
    struct store_row row;
    struct err err;
    store_begin(store);
    service_put_numbers(job->service);
    for (size_t i = 0; i < count; i++) {
        if (tasks[pieces[i].part] == 0)
            continue;
        piece_row(pieces[i].tensor, pieces[i].piece, &row);
        row.piece.task = tasks[pieces[i].part];
        store_put(store, &row);
    }
    return store_commit(store, &err);
}

int tasks_split(struct job *job, const struct spot_of_task *pieces, size_t count, size_t parts)
{
    uint32_t *tasks = calloc(parts + 1, sizeof *tasks);
    if (!tasks)
        return -ENOMEM;
    number_parts(job, pieces, count, tasks);
    int error = store_parts(job, pieces, count, tasks);
    for (size_t i = 0; error == 0 && i < count; i++)
        if (tasks[pieces[i].part])
            pieces[i].piece->task = tasks[pieces[i].part];
    free(tasks);
    return error;
}
