/* Jobs and pieces of a lane by number. Owns the hash table of each job. */
#include "svc/lane/job/table.h"

struct lane_job *job_find(struct lane *lane, uint32_t id)
{
    list_for_each_entry (struct lane_job, job, &lane->jobs, link)
        if (job->id == id && !job->is_dropped)
            return job;
    return NULL;
}

/* Returns the bucket. The coordinator numbers pieces consecutively, so the low bits are evenly
 * distributed. */
static struct piece **bucket(struct lane_job *job, uint32_t id)
{
    return &job->table[id & (job->table_size - 1)];
}

struct piece *piece_find(struct lane_job *job, uint32_t id)
{
    struct piece *p = *bucket(job, id);
    while (p && p->id != id)
        p = p->hash_next;
    return p;
}

static void table_grow(struct lane_job *job)
{
    struct arena *arena = job->lane->options.arena;
    size_t size = job->table_size * 4;
    struct piece **table = arena_alloc(arena, &job->account, size * sizeof *table);
    if (!table)
        return; /* without memory the chains grow longer, but stay correct */
    arena_free(arena, &job->account, job->table);
    job->table = table;
    job->table_size = size;
    list_for_each_entry (struct piece, p, &job->pieces, link) {
        struct piece **at = bucket(job, p->id);
        p->hash_next = *at;
        *at = p;
    }
}

void piece_list(struct piece *p)
{
    struct lane_job *job = p->job;
    if (++job->pieces_count > job->table_size)
        table_grow(job);
    list_append(&job->pieces, &p->link);
    struct piece **at = bucket(job, p->id);
    p->hash_next = *at;
    *at = p;
}

void piece_unlist(struct piece *p)
{
    struct piece **at = bucket(p->job, p->id);
    while (*at != p)
        at = &(*at)->hash_next;
    *at = p->hash_next;
    p->job->pieces_count--;
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
