/* A round of a piece: who must have announced, what is read and written, when it is committed, and
 * how a new owner finds out where a round stood. README: A1, A2; svc/wire/README.md: W2 to W5. */
#include "svc/aggregator/lane_types.h"

#include <errno.h>
#include <inttypes.h>

/* A mapped chunk is a unit of fairness between jobs only. */
#define MAPPED_CHUNK_BYTES (256u << 10)

/* The one quorum function: all of the rank set. */
bool round_has_quorum(const struct piece *p) { return p->announced == p->job->workers_count; }

static bool is_source(const struct piece *p, const struct rank *rank, const struct announcement *a)
{
    if (p->is_copy)
        return a->standing == RECORD_HOLDS && p->sources == 0;
    return p->operation->inputs == INPUT_ALL ||
           (p->operation->inputs == INPUT_ROOT && rank->number == p->root);
}

static void assign_parts(struct piece *p)
{
    p->sources = 0;
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        struct rank *rank = &p->ranks[i];
        const struct announcement *a = rank_said(rank, p->round);
        rank->is_source = p->elements > 0 && is_source(p, rank, a);
        rank->gets_word = a->standing == RECORD_ANNOUNCE;
        rank->is_target = p->elements > 0 && rank->gets_word && a->has_output;
        p->sources += rank->is_source;
    }
}

/* Front layers first (larger priority), else in order of arrival. */
static void queue_by_priority(struct piece *p)
{
    struct list *at = &p->job->runnable;
    while (at->previous != &p->job->runnable &&
           list_entry(at->previous, struct piece, run_link)->priority < p->priority)
        at = at->previous;
    list_insert_before(at, &p->run_link);
}

void round_start(struct piece *p)
{
    size_t element_bytes = reduce_element_bytes(p->dtype);
    assign_parts(p);
    p->next_element = p->write_element = 0;
    p->chunk_elements = MAPPED_CHUNK_BYTES / element_bytes;
    p->state = PIECE_RUNNABLE;
    queue_by_priority(p);
    job_wake(p->job);
}

/* Announcements of the round that opens may be here already: a fast worker laps a slow one (W3). */
static void count_early(struct piece *p)
{
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        struct announcement *a = rank_said(&p->ranks[i], p->round);
        if (a->round == p->round && a->operation && a->standing == RECORD_ANNOUNCE)
            count_in(&p->job->workers[i], p, a);
    }
}

static void account(struct piece *p)
{
    struct lane_job *job = p->job;
    uint64_t bytes = p->elements * reduce_element_bytes(p->dtype) * p->sources;
    job->pushed_bytes += bytes;
    job->lane->pushed_bytes += bytes;
    job->rounds++;
    job->lane->rounds++;
}

void round_commit(struct piece *p)
{
    account(p);
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        struct worker *w = &p->job->workers[i];
        struct announcement *a = rank_said(&p->ranks[i], p->round);
        if (w->holding == a)
            worker_drop_payload(w);
        tell_commit(w, a);
    }
    if (p->is_dropped) {
        piece_free(p);
        return;
    }
    p->round++;
    p->announced = 0;
    p->operation = NULL;
    p->is_copy = false;
    p->priority = 0;
    p->state = PIECE_COLLECTING;
    count_early(p);
}

/* Where it stands is what it said first, the earlier round; the other is a lap (W3). */
static struct announcement *standing_of(struct rank *rank)
{
    struct announcement *a = &rank->said[0], *b = &rank->said[1];
    if (a->round == 0 || b->round == 0)
        return a->round > b->round ? a : b;
    return a->round < b->round ? a : b;
}

static uint64_t committed_by(const struct announcement *a)
{
    return a->standing == RECORD_IDLE || a->round == 0 ? a->round : a->round - 1;
}

static uint64_t last_committed(struct piece *p)
{
    uint64_t committed = 0;
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        uint64_t here = committed_by(standing_of(&p->ranks[i]));
        if (here > committed)
            committed = here;
    }
    return committed;
}

/* It says to be in a round that is committed. Its landing area has held the result since before
 * anybody was told so (W4), even when the word of it was lost with the lane. */
static void catch_up(struct piece *p, uint32_t number, struct announcement *a)
{
    if (a->round + 1 == p->round)
        tell_commit(&p->job->workers[number], a);
    else
        piece_fail(p, -EPROTO,
                   "tensor '%s': rank %u is in round %" PRIu64 ", another has committed %" PRIu64,
                   p->tensor, number, a->round, p->round - 1);
}

/* One rank's place in the round that opens. Returns whether it holds that round's result. */
static bool settle_rank(struct piece *p, uint32_t number)
{
    struct announcement *a = standing_of(&p->ranks[number]);
    if (a->standing == RECORD_IDLE || a->round == 0)
        return false;
    if (a->round < p->round)
        catch_up(p, number, a);
    if (a->round < p->round || a->standing != RECORD_HOLDS)
        return false;
    if (a->has_output) { /* a broadcast's root has no landing area: its input is the result */
        a->input_region = a->output_region;
        a->input_offset = a->output_offset;
    }
    p->announced++;
    return true;
}

/* Who has left without a word never tells where it stood. */
static bool waits_for_leaver(const struct piece *p)
{
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        if (p->job->workers[i].state == WORKER_LEFT && !p->ranks[i].has_spoken)
            return true;
    }
    return false;
}

/* Open round = one after the last that anybody knows to be committed. If somebody holds its result,
 * that is what the rest get, never a second sum (W5). */
void round_recover(struct piece *p)
{
    if (waits_for_leaver(p))
        piece_fail(p, -EPIPE, "rank %u has left job '%s'", p->job->left_rank, p->job->name);
    if (p->spoken < p->job->workers_count)
        return;
    p->round = last_committed(p) + 1;
    for (uint32_t i = 0; i < p->job->workers_count; i++)
        p->is_copy |= settle_rank(p, i);
    p->sources = 0;
    if (round_has_quorum(p))
        round_commit(p); /* all hold the result */
    else
        count_early(p);
}
