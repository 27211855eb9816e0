/* Owns struct counts. Counts the decisions of the leading piece; other files make these
 * decisions. */
#include "svc/lane/piece/counts.h"

#include "svc/lane/piece/closing.h"

#include <errno.h>
#include <string.h>

struct counts {
    struct piece *leader; /* NULL: no piece on this lane leads rounds of the job */
    uint64_t rounds, gradients;
    uint64_t reasons[RECORD_REASONS];
    /* number of entries in of[]: one more than the highest rank that was a member of a round */
    uint32_t ranks;
    struct {
        uint64_t counted, dropped;
    } of[]; /* one entry for each rank */
};

int counts_create(struct piece *p)
{
    struct lane_job *job = p->job;
    struct sampling *sampling = job->sampling;
    if (!sampling->counts)
        sampling->counts = arena_alloc(job->lane->options.arena, &job->account,
                                       sizeof *sampling->counts +
                                           job->workers_count * sizeof *sampling->counts->of);
    if (!sampling->counts)
        return -ENOMEM;
    sampling->counts->leader = p;
    return 0;
}

void counts_forget_piece(const struct piece *p)
{
    struct counts *c = p->job->sampling->counts;
    if (c && c->leader == p)
        c->leader = NULL;
}

void counts_free(struct lane_job *job)
{
    if (job->sampling)
        arena_free(job->lane->options.arena, &job->account, job->sampling->counts);
}

void counts_closed(struct piece *p, uint8_t reason)
{
    struct counts *c = p->job->sampling->counts;
    if (!c || c->leader != p || p->is_copy)
        return;
    c->rounds++;
    c->reasons[reason]++;
    for (uint32_t i = 0; i < p->members; i++) {
        const struct worker *w = p->ranks[i].worker;
        bool is_there = w->state != WORKER_LEFT && w->state != WORKER_LOST;
        if (p->ranks[i].part) {
            c->gradients += p->ranks[i].gradients;
            c->of[w->number].counted++;
        } else if (is_there) {
            c->of[w->number].dropped++;
        }
        if (w->number >= c->ranks)
            c->ranks = w->number + 1;
    }
}

/* ---- rows ---- */

static void counts_fill(const struct counts *c, const struct lane_job *job, struct counts_row *row)
{
    *row = (struct counts_row){
        .job = job->id, .ranks = c->ranks, .rounds = c->rounds, .gradients = c->gradients};
    memcpy(row->reasons, c->reasons, sizeof row->reasons);
    for (uint32_t i = 0; i < c->ranks; i++)
        row->of[i] = (struct counts_rank){.counted = c->of[i].counted, .dropped = c->of[i].dropped};
    for (uint32_t i = 0; c->leader && i < c->leader->members; i++) {
        const struct rank *rank = &c->leader->ranks[i];
        if (rank->worker->number < c->ranks)
            row->of[rank->worker->number].scale_ns = closing_scale_ns(rank);
    }
}

size_t counts_measure(const struct lane *lane, void *ret_rows, size_t bytes)
{
    size_t needed = 0;
    for (struct list *node = lane->jobs.next; node != &lane->jobs; node = node->next) {
        const struct lane_job *job = list_entry(node, struct lane_job, link);
        const struct counts *c = job->sampling->counts;
        if (!c || c->rounds == 0)
            continue;
        size_t row_bytes = counts_row_bytes(c->ranks);
        if (needed + row_bytes <= bytes)
            counts_fill(c, job, (struct counts_row *)((char *)ret_rows + needed));
        needed += row_bytes;
    }
    return needed;
}
