/* Decides which ranks take part in the round that starts, and for each rank its input, its result
 * and its completion word. RULES.md: A15. */
#include "svc/lane/round/parts.h"

#include "svc/lane/chunk/transfer.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/replay.h"
#include "svc/lane/state/replica.h"

static bool is_source(const struct piece *p, const struct rank *rank)
{
    if (p->elements == 0)
        return false;
    if (p->is_copy)
        return rank->part->standing == RECORD_HOLDS && p->sources == 0;
    if (p->operation->divides && rank->part->weight == 0)
        return false;
    return p->operation->inputs == INPUT_ALL ||
           (p->operation->inputs == INPUT_ROOT && rank->worker->number == p->root);
}

/* Returns the number of inputs of a rank that supplies inputs. A copied result is one input. */
static uint32_t parts_inputs(const struct piece *p, const struct rank *rank)
{
    return p->is_copy ? 1 : quorum_gradients(p, rank);
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b > 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Divides the weights by their common divisor, because only their ratio counts. Equal weights
 * become 1, and the result has the bits of a plain mean. */
static void parts_simplify_weights(struct piece *p)
{
    uint32_t common = 0;
    for (uint32_t i = 0; i < p->members && common != 1; i++) {
        if (p->ranks[i].inputs > 0)
            common = common_divisor(p->ranks[i].part->weight, common);
    }
    for (uint32_t i = 0; i < p->members; i++)
        p->ranks[i].weight = p->ranks[i].inputs > 0 ? p->ranks[i].part->weight / common : 0;
}

/* Returns whether the rank takes part in a round that copies a result. A rank outside the set of
 * the job's round takes no part, because this rank later requests the results of all tensors
 * together. */
static bool part_copies(struct piece *p, struct rank *rank)
{
    const struct announcement *a = quorum_waiting(p, rank);
    bool holds = a && a->standing == RECORD_HOLDS;
    return a && (!piece_follows(p) || holds || quorum_takes(p, rank));
}

static struct announcement *part_of(struct piece *p, struct rank *rank)
{
    bool takes = p->is_copy ? part_copies(p, rank) : quorum_takes(p, rank);
    return takes && replay_takes(p, rank) ? rank_said(rank, quorum_round(p, rank)) : NULL;
}

/* Returns whether the lane sends no completion words of the round before COMMIT. In an elastic job
 * other ranks may repeat a round that is lost with its lane, so no rank may use a result before the
 * replica holder has the state (A49). */
static bool is_kept_back(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    return q && p->job->is_elastic && q->replica.is_taken && worker_is_holder(q->replica.worker);
}

void parts_assign(struct piece *p)
{
    struct announcement *a;
    p->sources = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        a = rank->part = part_of(p, rank);
        rank->inputs = a && is_source(p, rank) ? parts_inputs(p, rank) : 0;
        bool is_new = a && (a->standing == RECORD_ANNOUNCE || a->standing == RECORD_TAKES);
        rank->gets_word = is_new && !is_kept_back(p);
        rank->is_target = p->elements > 0 && is_new && a->output_region != ANNOUNCEMENT_NO_OUTPUT;
        p->sources += rank->inputs;
    }
    if (transfer_divides(p))
        parts_simplify_weights(p);
}

void parts_assign_holder(struct piece *p)
{
    p->ranks[p->members] = (struct rank){.piece = p, .worker = p->parameters->replica.worker};
    for (uint32_t i = 0; i <= p->members; i++) {
        struct rank *rank = &p->ranks[i];
        bool is_seat = i == p->members;
        rank->part = NULL;
        rank->inputs = replica_is_fetched(p) && rank->worker == p->parameters->replica.worker &&
                       is_seat == worker_is_holder(rank->worker);
        rank->is_target = rank->gets_word = false;
    }
    p->sources = replica_is_fetched(p);
}
