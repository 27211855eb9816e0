/* Owns the slots of a job. A word consists of a slot and its generation, so the word of an earlier
 * round matches no piece. */
#include "client/lib/job/piece.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_FIRST 64
#define GENERATION_BITS 8

static int piece_add_slots(struct gp_job *job)
{
    uint32_t count = job->slots_count ? job->slots_count * 2 : SLOTS_FIRST;
    if (count > PIECES_MAX)
        return -ENOSPC;
    struct slot *slots = realloc(job->slots, count * sizeof *slots);
    if (!slots)
        return -ENOMEM;
    for (uint32_t i = job->slots_count; i < count; i++) {
        slots[i] = (struct slot){.next_free = job->free_slot};
        job->free_slot = i;
    }
    job->slots = slots;
    job->slots_count = count;
    return 0;
}

void piece_new_word(struct piece *p)
{
    struct slot *slot = &p->tensor->job->slots[p->slot];
    do {
        slot->generation++;
        p->word = p->slot << GENERATION_BITS | slot->generation;
    } while (p->word == RECORD_WORD_NONE); /* this value means the whole job */
}

int piece_take_slot(struct piece *p)
{
    struct gp_job *job = p->tensor->job;
    int error = job->free_slot == UINT32_MAX ? piece_add_slots(job) : 0;
    if (error < 0)
        return error;
    p->slot = job->free_slot;
    job->free_slot = job->slots[p->slot].next_free;
    job->slots[p->slot].piece = p;
    /* an idle piece needs a word, too, because RECORD_WORD_NONE means the whole job */
    piece_new_word(p);
    return 0;
}

void piece_give_slot_back(struct piece *p)
{
    struct gp_job *job = p->tensor->job;
    struct slot *slot = &job->slots[p->slot];
    slot->piece = NULL;
    slot->generation++; /* a word that arrives late has the old generation, and matches no piece */
    slot->next_free = job->free_slot;
    job->free_slot = p->slot;
}

static struct piece *piece_in_slot(const struct gp_job *job, uint32_t word)
{
    uint32_t number = word >> GENERATION_BITS;
    return number < job->slots_count ? job->slots[number].piece : NULL;
}

struct piece *piece_find(struct gp_job *job, uint32_t word)
{
    struct piece *p = piece_in_slot(job, word);
    return p && p->word == word ? p : NULL;
}

struct piece *piece_find_kept(struct gp_job *job, uint32_t word)
{
    struct piece *p = piece_in_slot(job, word);
    return p && p->tensor->has_kept && p->kept_word == word ? p : NULL;
}

void piece_retract(struct piece *p)
{
    if (list_is_empty(&p->unsent))
        return;
    list_remove(&p->unsent);
    p->tensor->job->unsent--;
}
