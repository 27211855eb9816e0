/* Computes shares of steps from step records. A Feistel network over the places gives the order of
 * an epoch without a table in memory. */
#include "client/lib/elastic/deal.h"

#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <stdlib.h>

#define ORDER_ROUNDS 4

/* --- order of an epoch --- */

static uint64_t order_mix(uint64_t place, uint32_t half_bits, uint64_t key)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1, left = place >> half_bits, right = place & mask;
    for (uint32_t round = 0; round < ORDER_ROUNDS; round++) {
        uint64_t next = left ^ (mixed_key(right, key + round) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t deal_sample(const struct deal_spec *spec, uint64_t epoch, uint64_t place)
{
    uint64_t key = mixed_key(epoch, spec->seed);
    uint32_t half_bits = 1;
    while (half_bits < 32 && (spec->samples - 1) >> (2 * half_bits) > 0)
        half_bits++;
    /* The network permutes up to four times as many places as the epoch has samples. A place
     * without a sample is permuted again until it is the place of a sample. */
    do {
        place = order_mix(place, half_bits, key);
    } while (place >= spec->samples);
    return place;
}

/* --- runs --- */

int deal_runs_add(struct deal_runs *runs, uint64_t first, uint64_t count)
{
    struct deal_run *last = runs->count ? &runs->runs[runs->count - 1] : NULL;
    if (last && last->first + last->count == first) {
        last->count += count;
    } else {
        if (runs->count == runs->room) {
            size_t room = runs->room ? 2 * runs->room : 4;
            struct deal_run *grown = reallocarray(runs->runs, room, sizeof *grown);
            if (!grown)
                return -ENOMEM;
            runs->runs = grown;
            runs->room = room;
        }
        runs->runs[runs->count++] = (struct deal_run){first, count};
    }
    runs->samples += count;
    return 0;
}

/* Moves `count` samples from the front of `from` to `to`. */
static int runs_move(struct deal_runs *from, struct deal_runs *to, uint64_t count)
{
    size_t used = 0;
    int error = 0;
    if (count == 0)
        return 0;
    from->samples -= count;
    while (count > 0 && error == 0) {
        struct deal_run *run = &from->runs[used];
        uint64_t some = run->count < count ? run->count : count;
        error = deal_runs_add(to, run->first, some);
        run->first += some;
        run->count -= some;
        count -= some;
        used += run->count == 0;
    }
    from->count -= used;
    memmove(from->runs, from->runs + used, from->count * sizeof *from->runs);
    return error;
}

/* --- shares --- */

uint64_t deal_share_begin(const struct deal_step *step, uint32_t rank, uint64_t *ret_begin)
{
    *ret_begin = 0;
    if (rank >= DEAL_RANKS_MAX || !ranks_have(step->members, rank))
        return 0;
    uint64_t sharers = ranks_count(step->members), place = ranks_below(step->members, rank);
    uint64_t sharers_most = step->runs.samples / step->share_least;
    if (sharers > sharers_most)
        sharers = sharers_most > 0 ? sharers_most : 1;
    if (place >= sharers)
        return 0;
    uint64_t each = step->runs.samples / sharers, more = step->runs.samples % sharers;
    *ret_begin = place * each + (place < more ? place : more);
    return each + (place < more);
}

uint64_t deal_share(const struct deal_step *step, uint32_t rank)
{
    uint64_t begin, count = deal_share_begin(step, rank, &begin);
    return count > 0 && !ranks_have(step->lost, rank) ? count : 0;
}

size_t deal_samples(const struct step_deal *deal, const struct deal_step *step, uint32_t rank,
                    uint64_t skip, uint64_t *ret_samples, size_t room)
{
    uint64_t begin, share = deal_share_begin(step, rank, &begin);
    size_t written = 0;
    if (skip >= share || ranks_have(step->lost, rank))
        return 0;
    uint64_t at = begin + skip, end = begin + share, run_begin = 0;
    for (size_t i = 0; i < step->runs.count; run_begin += step->runs.runs[i++].count)
        for (; at < end && at - run_begin < step->runs.runs[i].count && written < room; at++)
            ret_samples[written++] =
                deal_sample(&deal->spec, step->epoch, step->runs.runs[i].first + at - run_begin);
    return written;
}

/* Adds the share of a lost member to the samples that are dealt again at the end of the epoch. */
static int return_share(struct step_deal *deal, struct deal_step *step, uint32_t rank)
{
    uint64_t begin, left = deal_share_begin(step, rank, &begin), run_begin = 0;
    int error = 0;
    ranks_add(step->lost, rank);
    for (size_t i = 0; i < step->runs.count && left > 0 && error == 0; i++) {
        const struct deal_run *run = &step->runs.runs[i];
        if (begin - run_begin < run->count) {
            uint64_t inside = begin - run_begin, rest = run->count - inside;
            uint64_t some = rest < left ? rest : left;
            error = deal_runs_add(&deal->returned, run->first + inside, some);
            begin += some;
            left -= some;
        }
        run_begin += run->count;
    }
    return error;
}

/* --- steps --- */

static struct deal_step *step_slot(struct step_deal *deal, uint64_t number)
{
    return &deal->steps[number % (deal->spec.prefetch + 2)];
}

const struct deal_step *deal_step(const struct step_deal *deal, uint64_t number)
{
    const struct deal_step *step = &deal->steps[number % (deal->spec.prefetch + 2)];
    return number > 0 && step->number == number && number >= deal->record ? step : NULL;
}

/* Returns whether a member has a share in a step before `end` that is not confirmed. */
static bool some_are_unconfirmed(const struct step_deal *deal, uint64_t end)
{
    for (uint64_t number = deal->record; number < end; number++) {
        const struct deal_step *step = deal_step(deal, number);
        for (uint32_t rank = 0; step && rank < DEAL_RANKS_MAX; rank++)
            if (deal_share(step, rank) > 0)
                return true;
    }
    return false;
}

/* Starts the next epoch if every sample of the present one is dealt and confirmed. Steps are empty
 * until then. */
static void turn_epoch(struct step_deal *deal, uint64_t number)
{
    bool is_dealt = deal->cursor == deal->spec.samples && deal->returned.samples == 0;
    if (!is_dealt || deal->epoch == deal->spec.epochs || some_are_unconfirmed(deal, number))
        return;
    deal->epoch++;
    deal->cursor = deal->epoch < deal->spec.epochs ? 0 : deal->cursor;
}

static uint64_t spec_least(const struct deal_spec *spec)
{
    return spec->share_least ? spec->share_least : 1;
}

static uint64_t spec_batch(const struct deal_spec *spec, uint64_t members)
{
    return spec->batch ? spec->batch : spec->batch_per_worker * members;
}

uint64_t deal_step_most(const struct deal_spec *spec)
{
    return spec_batch(spec, DEAL_RANKS_MAX) + spec_least(spec) - 1;
}

/* Returns the number of samples of the next step. If fewer than share_least samples of the epoch
 * would be left after this step, the step includes these samples. */
static uint64_t deal_batch(const struct step_deal *deal)
{
    uint64_t left = deal->spec.samples - deal->cursor + deal->returned.samples;
    uint64_t batch = spec_batch(&deal->spec, ranks_count(deal->members));
    return left < batch + spec_least(&deal->spec) ? left : batch;
}

static int deal_next(struct step_deal *deal, uint64_t number)
{
    struct deal_step *step = step_slot(deal, number);
    struct deal_runs runs = {step->runs.runs, .room = step->runs.room};
    turn_epoch(deal, number);
    *step = (struct deal_step){.number = number,
                               .epoch = deal->epoch,
                               .cursor = deal->cursor,
                               .share_least = spec_least(&deal->spec),
                               .runs = runs,
                               .is_end = deal->epoch == deal->spec.epochs};
    memcpy(step->members, deal->members, sizeof step->members);
    uint64_t left = deal->spec.samples - deal->cursor, batch = deal_batch(deal);
    uint64_t fresh = left < batch ? left : batch;
    int error = fresh > 0 ? deal_runs_add(&step->runs, deal->cursor, fresh) : 0;
    deal->cursor += fresh;
    return error ? error : runs_move(&deal->returned, &step->runs, batch - fresh);
}

static bool spec_is_sound(const struct deal_spec *spec)
{
    return spec->samples > 0 && spec->epochs > 0 &&
           (spec->batch == 0) != (spec->batch_per_worker == 0) &&
           spec->prefetch <= DEAL_PREFETCH_MAX && spec_least(spec) <= spec_batch(spec, 1) &&
           spec_least(spec) <= spec->samples;
}

int deal_first(struct step_deal *deal)
{
    int error = 0;
    for (uint64_t number = 1; number <= 1 + deal->spec.prefetch && error == 0; number++)
        error = deal_next(deal, number);
    return error;
}

int deal_init(struct step_deal *deal, const struct deal_spec *spec, const uint64_t *members)
{
    *deal = (struct step_deal){.spec = *spec};
    memcpy(deal->members, members, sizeof deal->members);
    if (!spec_is_sound(spec) || ranks_are_none(members))
        return -EINVAL;
    return deal_first(deal);
}

void deal_fini(struct step_deal *deal)
{
    free(deal->returned.runs);
    for (size_t i = 0; i < DEAL_PREFETCH_MAX + 2; i++)
        free(deal->steps[i].runs.runs);
    *deal = (struct step_deal){0};
}

static int return_shares(struct step_deal *deal, struct deal_step *step,
                         const struct deal_record *record)
{
    int error = 0;
    for (uint32_t word = 0; word < RANKS_WORDS; word++) {
        uint64_t lost = step->members[word] & ~record->holds[word] & ~step->lost[word];
        for (; lost != 0 && error == 0; lost &= lost - 1)
            error = return_share(deal, step, 64 * word + (uint32_t)__builtin_ctzll(lost));
    }
    return error;
}

/* Returns the shares of lost members to the deal. A member that is missing in record t, or is in
 * record t without the state, is lost. The shares of steps t - 1 to t + p are returned. */
static int return_lost(struct step_deal *deal, uint64_t t, const struct deal_record *record)
{
    int error = 0;
    for (uint64_t number = t > 1 ? t - 1 : 1; number <= t + deal->spec.prefetch && !error; number++)
        error = return_shares(deal, step_slot(deal, number), record);
    return error;
}

/* Sets the members of the next dealt step: present ranks with the state. A member that has
 * announced that it leaves gets no further share, unless all members leave. */
static void change_members(struct step_deal *deal, const struct deal_record *record)
{
    uint64_t stay[RANKS_WORDS];
    for (int i = 0; i < RANKS_WORDS; i++) {
        deal->members[i] = record->holds[i];
        stay[i] = record->holds[i] & ~record->leaving[i];
    }
    if (!ranks_are_none(stay))
        memcpy(deal->members, stay, sizeof stay);
}

int deal_apply(struct step_deal *deal, const struct deal_record *record)
{
    uint64_t t = deal->record + 1;
    int error = return_lost(deal, t, record);
    if (error < 0)
        return error;
    deal->record = t;
    change_members(deal, record);
    if (ranks_are_none(deal->members))
        return -EOWNERDEAD;
    return deal_next(deal, t + 1 + deal->spec.prefetch);
}
