/* This file alone decides which announcements complete the set of a round, and which ranks take
 * part. The decision depends on the announcements alone. The file reads no gradient and sends no
 * message. RULES.md: A15, A16; svc/wire/README.md: W12, W13. */
#include "svc/lane/piece/quorum.h"

#include "svc/wire/round_set.h"

#include <errno.h>
#include <string.h>

uint64_t quorum_round(const struct piece *p, const struct rank *rank)
{
    return quorum_is_loose(p) ? rank->clock + 1 : p->round;
}

struct announcement *quorum_waiting(struct piece *p, struct rank *rank)
{
    struct announcement *a = rank_said(rank, quorum_round(p, rank));
    bool is_pushed = a->standing != RECORD_IDLE && a->standing != RECORD_TAKES;
    bool waits = a->round && a->round == quorum_round(p, rank) && is_pushed;
    return waits && a != rank->part && rank->worker->state != WORKER_LEFT ? a : NULL;
}

static struct record_chosen *choice_of(struct lane_job *job, uint64_t round)
{
    return &job->choices[round % CHOICES_PER_JOB];
}

/* An announcement contains only the low half of the round number. The lane selects the full number
 * that is nearest to the newest known set. */
void quorum_learn(struct piece *p, const struct operation *operation, uint32_t root)
{
    uint64_t newest = 0;
    if (p->job_round > 0 || !quorum_follows(p, operation))
        return;
    for (int k = 0; k < CHOICES_PER_JOB; k++)
        newest = p->job->choices[k].round > newest ? p->job->choices[k].round : newest;
    uint64_t number = newest + (uint64_t)(int64_t)(int32_t)(root - (uint32_t)newest);
    p->job_round = number <= RECORD_ROUND_MOST ? number : 0;
}

static bool has(const struct record_chosen *choice, const struct rank *rank)
{
    return round_set_count(choice, rank->worker->number) > 0;
}

/* Returns whether all ranks of the chosen set have left. The remaining ranks then take part in the
 * round (A45). */
static bool is_void(const struct piece *p, const struct record_chosen *choice)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (has(choice, &p->ranks[i]))
            return false;
    }
    return p->job->is_elastic;
}

static bool is_chosen(struct piece *p, const struct rank *rank)
{
    uint64_t round = quorum_job_round(p, p->round);
    const struct record_chosen *choice = choice_of(p->job, round);
    return round > 0 && choice->round == round && (has(choice, rank) || is_void(p, choice));
}

bool quorum_was_chosen(const struct piece *p, const struct rank *rank, uint64_t round)
{
    uint64_t number = quorum_job_round(p, round);
    const struct record_chosen *choice = choice_of(p->job, number);
    bool has_sets = p->terms.quorum == QUORUM_CHOSEN || piece_leads(p);
    return has_sets && number > 0 && choice->round == number && has(choice, rank);
}

uint32_t quorum_gradients(const struct piece *p, const struct rank *rank)
{
    uint64_t number = quorum_job_round(p, p->round);
    const struct record_chosen *choice = choice_of(p->job, number);
    bool is_counted = quorum_follows(p, p->operation) && number > 0 && choice->round == number;
    uint32_t count = is_counted ? round_set_count(choice, rank->worker->number) : 1;
    return count > 0 ? count : 1; /* 0: all ranks of the set have left (is_void()) */
}

/* Returns the size of the smallest known set; 0: no set is known. */
static uint32_t smallest_choice(const struct piece *p)
{
    uint32_t smallest = 0;
    for (int k = 0; k < CHOICES_PER_JOB; k++) {
        const struct record_chosen *choice = &p->job->choices[k];
        uint32_t size = round_set_ranks(choice);
        if (choice->round > 0 && (smallest == 0 || size < smallest))
            smallest = size;
    }
    return smallest;
}

static bool late_are_needed(struct piece *p, uint32_t able)
{
    uint32_t least = smallest_choice(p);
    if (choice_of(p->job, p->round)->round != p->round)
        return able < (least > 0 ? least : p->members);
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].late && is_chosen(p, &p->ranks[i]))
            return true;
    }
    return false;
}

/* A new owner may lack the set of the last round. This lane cannot distinguish a rank of the set
 * without COMMIT from a rank outside the set (W12), so both count as late. The hidden tensor is
 * never stuck, because no result of this tensor can be lost. */
bool quorum_is_stuck(struct piece *p)
{
    uint32_t able = 0;
    if (p->late == 0 || p->kept_from > 0 || piece_follows(p) || p->takers)
        return false;
    for (uint32_t i = 0; i < p->members; i++)
        able += !p->ranks[i].late && p->ranks[i].worker->state != WORKER_LEFT;
    if (p->terms.quorum == QUORUM_CHOSEN)
        return late_are_needed(p, able);
    return p->terms.quorum == QUORUM_FIRST && able < p->terms.bound;
}

bool quorum_next_is_known(const struct piece *p)
{
    if (p->terms.quorum != QUORUM_CHOSEN)
        return p->terms.quorum == QUORUM_FIRST;
    for (uint32_t i = 0; i < p->members; i++) {
        if (!p->ranks[i].late && p->ranks[i].worker->state != WORKER_LEFT)
            return choice_of(p->job, p->round)->round == p->round;
    }
    return true;
}

uint64_t quorum_slowest_clock(const struct piece *p)
{
    uint64_t slowest = UINT64_MAX;
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        if (rank->worker->state != WORKER_LEFT && rank->clock < slowest)
            slowest = rank->clock;
    }
    return slowest;
}

bool quorum_takes(struct piece *p, struct rank *rank)
{
    const struct announcement *a = quorum_waiting(p, rank);
    if (!a)
        return false;
    switch (p->terms.quorum) {
    case QUORUM_CHOSEN: return quorum_is_whole(p) || is_chosen(p, rank);
    case QUORUM_STALE: return a->round - 1 <= quorum_slowest_clock(p) + p->terms.bound;
    default: return true;
    }
}

static bool all_chosen_are_here(struct piece *p)
{
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        if (!is_chosen(p, &p->ranks[i]))
            continue;
        if (!quorum_takes(p, &p->ranks[i]))
            return false;
        chosen++;
    }
    return chosen > 0;
}

static bool somebody_takes_part(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (quorum_takes(p, &p->ranks[i]))
            return true;
    }
    return false;
}

bool round_has_quorum(struct piece *p)
{
    switch (p->terms.quorum) {
    case QUORUM_ALL: return p->announced == p->members;
    case QUORUM_FIRST: return p->announced >= p->terms.bound;
    case QUORUM_CHOSEN:
        if (quorum_is_whole(p))
            return p->announced == p->members;
        return p->is_copy || all_chosen_are_here(p); /* the result already exists */
    case QUORUM_STALE:
    case QUORUM_ANY: return somebody_takes_part(p);
    }
    return false;
}

bool quorum_is_hopeless(struct piece *p, uint32_t *ret_left)
{
    uint32_t left = 0, needed_left = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].worker->state != WORKER_LEFT)
            continue;
        *ret_left = p->ranks[i].worker->number;
        left++;
        needed_left += is_chosen(p, &p->ranks[i]);
    }
    switch (p->terms.quorum) {
    case QUORUM_ALL: return left > 0;
    case QUORUM_FIRST: return p->members - left < p->terms.bound;
    case QUORUM_CHOSEN: return quorum_is_whole(p) ? left > 0 : needed_left > 0;
    default: return false;
    }
}

/* Returns whether the set has only gradients that ranks of this job may have (A125). */
static bool choice_is_sound(const struct lane_job *job, const struct record_chosen *chosen)
{
    bool has_counts = chosen->form == RECORD_FORM_COUNTS;
    if ((has_counts ? job->sampling->gradients < 2 : chosen->form != RECORD_FORM_RANKS) ||
        !round_set_is_within(chosen, job->workers_count))
        return false;
    for (uint32_t rank = 0; has_counts && rank < job->workers_count; rank++) {
        if (round_set_count(chosen, rank) > job->sampling->gradients)
            return false;
    }
    return true;
}

int quorum_choose(struct lane_job *job, const struct record_chosen *chosen)
{
    struct record_chosen *choice = choice_of(job, chosen->round);
    if (!choice_is_sound(job, chosen))
        return -EINVAL;
    bool is_other = !round_set_is_same(choice, chosen);
    if (choice->round == chosen->round)
        /* an elastic job permits another set, because all ranks that know the first set may have
         * left */
        return is_other && !job->is_elastic ? -EPROTO : 0;
    if (choice->round > chosen->round)
        return 0;
    *choice = *chosen;
    return 1;
}
