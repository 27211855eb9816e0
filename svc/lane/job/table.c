/* Jobs and pieces of a lane by number. Owns the hash table of each job. */
#include "svc/lane/job/table.h"

struct lane_job *job_find(struct lane *lane, uint32_t id)
{
    list_for_each_entry (struct lane_job, job, &lane->jobs, link)
        if (job->id == id && !job->is_dropped)
            return job;
    return NULL;
}

/* The hash of a piece is its number. The coordinator numbers pieces consecutively, so the low bits
 * are evenly distributed. */
struct piece *piece_find(struct lane_job *job, uint32_t id)
{
    hash_for_each (struct piece, p, &job->table, id, by_id)
        return p;
    return NULL;
}

static void table_grow(struct lane_job *job)
{
    struct arena *arena = job->lane->options.arena;
    size_t size = job->table.size * 4;
    struct hash_link **buckets = arena_alloc(arena, &job->account, size * sizeof *buckets);
    if (buckets) /* without memory for a larger table, the chains grow longer, but stay correct */
        arena_free(arena, &job->account, hash_move(&job->table, buckets, size));
}

void piece_list(struct piece *p)
{
    struct lane_job *job = p->job;
    if (job->table.count >= job->table.size)
        table_grow(job);
    list_append(&job->pieces, &p->link);
    hash_add(&job->table, &p->by_id, p->id);
}

void piece_unlist(struct piece *p)
{
    hash_remove(&p->job->table, &p->by_id);
    list_remove(&p->link);
}

struct rank *piece_rank(struct piece *p, uint32_t number)
{
    if (p->members == p->job->workers_count)
        return &p->ranks[number];
    uint32_t low = 0, high = p->members;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (p->ranks[middle].worker->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_member = low < p->members && p->ranks[low].worker->number == number;
    return is_member ? &p->ranks[low] : NULL;
}
