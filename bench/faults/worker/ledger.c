/* Owns the entries of the ledger: for each push one word, with the author of the entry and a hash
 * of all pushes in its round. If two members disagree, waits only for the end of a member that is
 * ending. */
#include "bench/faults/worker/ledger.h"

#include "svc/base/clock.h"

#include <time.h>

#define PUSH_SHIFT 32
#define COUNT_BITS 22
#define AUTHOR_SHIFT 24
#define AUTHOR_BITS 2
#define COMING_MASK 63u
#define HASH_MASK 0xffffffu

static uint32_t hash_of(const struct ledger_push pushes[LEDGER_RANKS])
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++) {
        hash = (hash ^ pushes[rank].coming) * UINT64_C(1099511628211);
        hash = (hash ^ pushes[rank].count) * UINT64_C(1099511628211);
    }
    return (uint32_t)(hash >> 32) & HASH_MASK;
}

static uint64_t word_of(struct ledger_push push, uint32_t author, uint32_t coming, uint32_t hash)
{
    uint64_t key = (push.coming << COUNT_BITS | push.count) & UINT32_MAX;
    uint32_t said = (coming & COMING_MASK) << AUTHOR_BITS | author;
    return key << PUSH_SHIFT | (uint64_t)said << AUTHOR_SHIFT | hash;
}

static bool is_there(struct ledger *l, uint64_t word)
{
    uint32_t said = (uint32_t)word >> AUTHOR_SHIFT;
    uint32_t present = atomic_load(&l->present[said % LEDGER_RANKS]);
    return present > 0 && (present & COMING_MASK) == said >> AUTHOR_BITS;
}

static bool note_one(struct ledger *l, _Atomic uint64_t *place, uint64_t word)
{
    const struct timespec again = {0, NS_PER_MS};
    uint64_t deadline_ns = clock_now_ns() + l->grace_ns, old = atomic_load(place);
    while (old >> PUSH_SHIFT != word >> PUSH_SHIFT || (old & HASH_MASK) != (word & HASH_MASK)) {
        if (old >> PUSH_SHIFT != word >> PUSH_SHIFT || !is_there(l, old)) {
            if (atomic_compare_exchange_strong(place, &old, word))
                return true;
            continue;
        }
        if (clock_now_ns() > deadline_ns)
            return false;
        nanosleep(&again, NULL);
        old = atomic_load(place);
    }
    return true;
}

bool ledger_note(struct ledger *l, uint32_t author, const struct ledger_push pushes[LEDGER_RANKS])
{
    uint32_t hash = hash_of(pushes);
    bool agrees = true;
    for (uint32_t rank = 0; agrees && rank < LEDGER_RANKS; rank++)
        if (pushes[rank].count > 0)
            agrees = note_one(l, &l->rounds[rank][pushes[rank].count % LEDGER_ROUNDS],
                              word_of(pushes[rank], author, pushes[author].coming, hash));
    return agrees;
}

static bool follows(const struct trail *trail, uint32_t rank, struct ledger_push push)
{
    const struct ledger_push *last = &trail->last[rank];
    if (!trail->began || push.count == 0)
        return true;
    if (push.coming == last->coming)
        return trail->was_there[rank] && push.count == last->count + 1;
    return push.coming > last->coming && push.count == 1;
}

bool trail_follow(struct trail *trail, const struct ledger_push pushes[LEDGER_RANKS])
{
    bool all = true;
    for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++) {
        all &= follows(trail, rank, pushes[rank]);
        trail->was_there[rank] = pushes[rank].count > 0;
        if (trail->was_there[rank])
            trail->last[rank] = pushes[rank];
    }
    trail->began = true;
    return all;
}
