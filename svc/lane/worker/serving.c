/* Owns the slots and lists of late ranks that receive results. chunk/serve.c writes the chunks.
 * RULES.md: A88. */
#include "svc/lane/worker/serving.h"

#include "svc/base/text.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>

/* Bytes of all slots of a job, and minimum and maximum bytes of one slot. */
#define SLOTS_BYTES ((16u << 20) / TRANSFER_SHORTER)
#define SLOT_LEAST (16u << 10)
#define SLOT_MOST ((256u << 10) / TRANSFER_SHORTER)

size_t serving_slot_bytes(const struct lane_job *job)
{
    size_t bytes = SLOTS_BYTES / job->workers_count;
    bytes -= bytes % SLOT_LEAST;
    if (bytes < SLOT_LEAST)
        return SLOT_LEAST;
    return bytes > SLOT_MOST ? SLOT_MOST : bytes;
}

/* ---- memory ---- */

static int serving_alloc(struct serving *s, struct lane_job *job, struct fabric *fabric)
{
    struct arena *arena = job->lane->options.arena;
    size_t bytes = serving_slot_bytes(job);
    if (s->slot || fabric_maps(fabric))
        return 0;
    char *slot = arena_alloc_aligned(arena, &job->account, bytes);
    if (!slot)
        return arena_lack(arena);
    int error = fabric_pool_register(fabric, slot, bytes);
    if (error < 0) {
        arena_free(arena, &job->account, slot);
        return error;
    }
    s->slot = slot;
    s->fabric = fabric;
    return 0;
}

int serving_open(struct worker *w, struct fabric *fabric)
{
    struct lane_job *job = w->job;
    char wants[32];
    int error = job->servings && !worker_is_holder(w)
                    ? serving_alloc(&job->servings->of[w->number], job, fabric)
                    : 0;
    if (error < 0)
        job_fail(job, error,
                 "lane %u has no memory for a buffer of %s for rank %u; raise --lane-memory-max or "
                 "--job-memory-max",
                 job->lane->options.id, text_bytes(serving_slot_bytes(job), wants, sizeof wants),
                 w->number);
    return error;
}

static int serving_open_all(struct lane_job *job)
{
    int error = 0;
    for (uint32_t i = 0; i < job->workers_count && error == 0; i++) {
        const struct worker *w = &job->workers[i];
        if (w->conn)
            error = serving_alloc(&job->servings->of[i], job, w->fabric);
    }
    return error;
}

int servings_create(struct lane_job *job)
{
    size_t bytes = sizeof(struct servings) + job->workers_count * sizeof(struct serving);
    if (job->servings)
        return 0;
    struct servings *v = arena_alloc(job->lane->options.arena, &job->account, bytes);
    if (!v)
        return -ENOMEM;
    job->servings = v;
    list_init(&v->ready);
    for (uint32_t i = 0; i < job->workers_count; i++) {
        list_init(&v->of[i].ready);
        list_init(&v->of[i].takes);
    }
    if (serving_open_all(job) == 0)
        return 0;
    servings_free(job);
    return -ENOMEM;
}

void servings_free(struct lane_job *job)
{
    struct arena *arena = job->lane->options.arena;
    for (uint32_t i = 0; job->servings && i < job->workers_count; i++) {
        struct serving *s = &job->servings->of[i];
        if (s->slot && job->lane->options.fabrics_count > 0)
            fabric_pool_unregister(s->fabric, s->slot);
        arena_free(arena, &job->account, s->slot);
    }
    arena_free(arena, &job->account, job->servings);
    job->servings = NULL;
}

/* ---- the lists ---- */

bool serving_list(struct serving *s, const struct worker *w)
{
    bool has_work = s->rank || !list_is_empty(&s->takes);
    if (!has_work || s->is_posted || !w->conn)
        return false;
    if (list_is_empty(&s->ready))
        list_append(&w->job->servings->ready, &s->ready);
    return true;
}

void serving_add(struct rank *rank)
{
    struct serving *s = &rank->piece->job->servings->of[rank->worker->number];
    if (s->rank == rank || !list_is_empty(&rank->late->tell_link))
        return;
    rank->late->owes = 0;
    list_append(&s->takes, &rank->late->tell_link);
    if (serving_list(s, rank->worker))
        job_wake(rank->worker->job);
}

void serving_end(struct serving *s)
{
    s->rank = NULL;
    s->result = NULL;
    s->next = 0;
    s->is_last = false;
}

void serving_forget(struct rank *rank)
{
    struct servings *v = rank->piece->job->servings;
    if (!v || !rank->late)
        return;
    struct serving *s = &v->of[rank->worker->number];
    list_remove(&rank->late->tell_link);
    if (s->rank == rank)
        serving_end(s);
}

void servings_forget_piece(struct piece *p)
{
    const struct lane_job *job = p->job;
    for (uint32_t i = 0; job->servings && i < p->members; i++) {
        struct serving *s = &job->servings->of[p->ranks[i].worker->number];
        serving_forget(&p->ranks[i]);
        if (s->piece == p)
            s->piece = NULL;
    }
}

bool serving_writes(const struct piece *p, const struct rank **ret_rank, uint64_t *ret_since_ns)
{
    const struct lane_job *job = p->job;
    for (uint32_t i = 0; job->servings && i < p->members; i++) {
        const struct serving *s = &job->servings->of[p->ranks[i].worker->number];
        if (!s->is_posted || s->piece != p)
            continue;
        if (ret_rank) {
            *ret_rank = &p->ranks[i];
            *ret_since_ns = s->moved_ns;
        }
        return true;
    }
    return false;
}

bool servings_are_posted(const struct lane_job *job)
{
    for (uint32_t i = 0; job->servings && i < job->workers_count; i++) {
        if (job->servings->of[i].is_posted)
            return true;
    }
    return false;
}

void servings_abandon(struct lane_job *job)
{
    for (uint32_t i = 0; job->servings && i < job->workers_count; i++)
        job->servings->of[i].is_posted = false;
}
