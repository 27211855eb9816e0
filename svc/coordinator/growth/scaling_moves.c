/* Moves tasks for growth, or for an experiment with slow lanes. A trip is the list of all moves of
 * one job. Its tasks move in batches, which are as small as those of an operator's order, to limit
 * the frozen state (K21). Owns struct trip. After a failure the trip ends, and the rules make a new
 * decision. */
#include "svc/coordinator/growth/scaling_moves.h"

#include "svc/base/log.h"
#include "svc/coordinator/job/task.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct trip {
    struct list link; /* node in scaling.trips */
    uint64_t id;
    uint32_t job, source; /* source: lane that is being drained; 0: none */
    struct task_move *moves;
    struct task *tasks; /* the tasks of `moves` with their sizes, for the division into batches */
    size_t count, at, batch;
    struct moved moved; /* sums over the batches that have moved so far */
    trip_done_fn done;  /* called at the end of the trip; NULL: growth itself has begun the trip */
};

static void trip_free(struct trip *trip)
{
    list_remove(&trip->link);
    free(trip->moves);
    free(trip->tasks);
    free(trip);
}

static struct trip *trip_find(struct service *s, uint64_t id)
{
    list_for_each (node, &s->scaling->trips)
        if (list_entry(node, struct trip, link)->id == id)
            return list_entry(node, struct trip, link);
    return NULL;
}

void scaling_moves_destroy(struct service *s)
{
    if (!s->scaling)
        return;
    list_for_each_safe (node, &s->scaling->trips)
        trip_free(list_entry(node, struct trip, link));
}

static bool is_any(const struct tensor *tensor, const struct piece *piece, const void *context)
{
    return true;
}

static int weigh(const struct job *job, struct trip *trip)
{
    struct task *all;
    size_t count;
    int error = tasks_list(job, is_any, NULL, &all, &count);
    if (error < 0)
        return error;
    for (size_t i = 0; i < trip->count; i++) {
        const struct task *task = tasks_find(all, count, trip->moves[i].task);
        trip->tasks[i] = task ? *task : (struct task){.id = trip->moves[i].task};
    }
    free(all);
    return 0;
}

static struct trip *trip_create(const struct job *job, const struct task_move *moves, size_t count,
                                uint32_t source)
{
    struct trip *trip = calloc(1, sizeof *trip);
    if (!trip)
        return NULL;
    *trip = (struct trip){.id = ++job->service->door->next_id,
                          .job = job->id,
                          .source = source,
                          .moves = calloc(count, sizeof *moves),
                          .tasks = calloc(count, sizeof *trip->tasks),
                          .count = count};
    list_init(&trip->link);
    for (size_t i = 0; trip->moves && i < count; i++)
        trip->moves[i] = moves[i];
    if (trip->moves && trip->tasks && weigh(job, trip) == 0)
        return trip;
    trip_free(trip);
    return NULL;
}

/* Ends the trip. `why` is NULL if all tasks have moved. */
static void end(struct service *s, struct trip *trip, const char *why)
{
    const struct moved *moved = &trip->moved;
    uint32_t source = trip->source, job = trip->job;
    trip_done_fn done = trip->done;
    const char *who = done ? "slow lanes" : "growth";
    bool has_moved = moved->tasks > 0;
    if (why)
        log_warn("%s: tasks stay on their lanes: %s; growth tries again", who, why);
    if (has_moved)
        log_info("%s: %" PRIu32 " task%s moved, %" PRIu64
                 " bytes of state with %s; the longest interruption of a task was %.1f ms",
                 who, moved->tasks, moved->tasks == 1 ? " has" : "s have", moved->state_bytes,
                 moved->tasks == 1 ? "it" : "them", (double)moved->longest_ns / NS_PER_MS);
    trip_free(trip);
    if (source)
        scaling_left(s, source);
    if (done)
        done(s, job, has_moved);
}

static void batch_done(struct service *s, uint64_t context, const struct moved *moved);

static int start_batch(struct job *job, struct trip *trip, struct err *err)
{
    trip->batch = tasks_batch(trip->tasks + trip->at, trip->count - trip->at);
    return moving_start(job, trip->moves + trip->at, trip->batch, batch_done, trip->id, err);
}

static void batch_done(struct service *s, uint64_t context, const struct moved *moved)
{
    struct trip *trip = trip_find(s, context);
    struct err err;
    if (!trip)
        return;
    if (moved->code < 0)
        return end(s, trip, moved->text);
    trip->at += trip->batch;
    trip->moved.tasks += moved->tasks;
    trip->moved.state_bytes += moved->state_bytes;
    if (moved->longest_ns > trip->moved.longest_ns)
        trip->moved.longest_ns = moved->longest_ns;
    struct job *job = jobs_find_id(s, trip->job);
    if (trip->at == trip->count || !job)
        return end(s, trip, NULL);
    if (start_batch(job, trip, &err) < 0)
        end(s, trip, err.text);
}

static bool begin(struct job *job, struct trip *trip)
{
    struct err err;
    if (!trip)
        err_set(&err, -ENOMEM,
                "gradpool serve has no memory for a move of job %.64s; raise its memory limit",
                job->name);
    else if (start_batch(job, trip, &err) == 0) {
        list_append(&job->service->scaling->trips, &trip->link);
        return true;
    }
    log_warn("%s: tasks of job %s stay on their lanes: %s; growth tries again",
             trip && trip->done ? "slow lanes" : "growth", job->name, err.text);
    if (trip)
        trip_free(trip);
    return false;
}

bool scaling_move(struct job *job, const struct task_move *moves, size_t count, uint32_t source)
{
    return begin(job, trip_create(job, moves, count, source));
}

bool scaling_trip(struct job *job, const struct task_move *moves, size_t count, trip_done_fn done)
{
    struct trip *trip = trip_create(job, moves, count, 0);
    if (trip)
        trip->done = done;
    return begin(job, trip);
}
