/* Counters over committed rounds: bytes, rounds, squares and losses. */
#include "svc/lane/round/sums.h"

#include "svc/base/clock.h"

#include <math.h>

static void add_round(struct piece *p)
{
    struct lane_job *job = p->job;
    uint64_t bytes = piece_bytes(p, p->elements) * p->sources;
    if (p->operation && p->operation->splits)
        bytes *= p->members;
    job->pushed_bytes += bytes;
    job->lane->pushed_bytes += bytes;
    if (job->ending.first_done_ns == 0)
        job->ending.first_done_ns = clock_now_ns();
    job->rounds += !p->continues;
    job->lane->rounds++;
}

static void add_losses(struct lane_squares *squares, const struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        if (!rank->part || rank->inputs == 0 || isnan(rank->part->loss))
            continue;
        squares->losses++;
        squares->loss_sum += (double)rank->part->loss;
    }
}

/* Adds the squares of the piece to the squares of its round. If the job has already measured a
 * newer round, the squares of this piece are dropped. */
static void add_squares(struct piece *p)
{
    struct lane_squares *squares = p->job->squares;
    bool is_of_state = p->operation && (p->operation->saves || p->operation->restores);
    if (!p->terms.measures || p->is_copy || is_of_state || p->round < squares->round)
        return;
    if (p->round > squares->round)
        *squares = (struct lane_squares){.round = p->round};
    squares->inputs = p->sources;
    squares->pieces++;
    squares->input_squares += p->input_squares;
    squares->result_squares += p->result_squares;
    add_losses(squares, p);
}

void sums_add(struct piece *p)
{
    add_round(p);
    add_squares(p);
}
