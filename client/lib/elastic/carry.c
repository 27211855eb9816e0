/* Writes and reads the state of a deal. The words come from another process, so carry_read() checks
 * every condition on which deal.c relies. */
#include "client/lib/elastic/carry.h"

#include <errno.h>
#include <stdlib.h>

#define STEP_HEAD_WORDS (4 + 2 * RANKS_WORDS)

/* ---- writing ---- */

static size_t runs_words(const struct deal_runs *runs) { return 1 + 2 * runs->count; }

static uint32_t carry_steps(const struct step_deal *deal) { return deal->spec.prefetch + 2; }

size_t carry_words(const struct step_deal *deal)
{
    size_t words = CARRY_HEAD_WORDS + 8 + RANKS_WORDS + runs_words(&deal->returned);
    for (uint32_t i = 0; i < carry_steps(deal); i++)
        words += STEP_HEAD_WORDS + runs_words(&deal->steps[i].runs);
    return words;
}

static uint64_t *carry_put_ranks(uint64_t *at, const uint64_t *ranks)
{
    memcpy(at, ranks, RANKS_WORDS * sizeof *at);
    return at + RANKS_WORDS;
}

static uint64_t *carry_put_runs(uint64_t *at, const struct deal_runs *runs)
{
    *at++ = runs->count;
    for (size_t i = 0; i < runs->count; i++) {
        *at++ = runs->runs[i].first;
        *at++ = runs->runs[i].count;
    }
    return at;
}

static uint64_t *carry_put_step(uint64_t *at, const struct deal_step *step)
{
    *at++ = step->number;
    *at++ = step->epoch;
    *at++ = step->cursor;
    *at++ = step->is_end;
    at = carry_put_ranks(at, step->members);
    at = carry_put_ranks(at, step->lost);
    return carry_put_runs(at, &step->runs);
}

static uint64_t carry_two(uint32_t low, uint32_t high) { return (uint64_t)high << 32 | low; }

void carry_write(const struct step_deal *deal, uint64_t *ret_words)
{
    const struct deal_spec *spec = &deal->spec;
    uint64_t *at = ret_words;
    *at++ = CARRY_MAGIC_VALUE;
    *at++ = carry_words(deal);
    *at++ = spec->samples;
    *at++ = spec->epochs;
    *at++ = spec->seed;
    *at++ = carry_two(spec->batch, spec->batch_per_worker);
    *at++ = carry_two(spec->prefetch, spec->share_least);
    *at++ = deal->record;
    *at++ = deal->epoch;
    *at++ = deal->cursor;
    at = carry_put_ranks(at, deal->members);
    at = carry_put_runs(at, &deal->returned);
    for (uint32_t i = 0; i < carry_steps(deal); i++)
        at = carry_put_step(at, &deal->steps[i]);
}

/* ---- reading ---- */

/* Reader of the words of a state. The reader returns 0 in place of words beyond the end, and after
 * an error. */
struct carry_reader {
    const uint64_t *at, *end;
    uint64_t samples; /* samples of one epoch */
    int error;
};

static uint64_t carry_take_word(struct carry_reader *r)
{
    if (r->at == r->end)
        r->error = r->error ?: -EBADMSG;
    return r->error ? 0 : *r->at++;
}

static void carry_take_ranks(struct carry_reader *r, uint64_t *ret_ranks)
{
    for (int i = 0; i < RANKS_WORDS; i++)
        ret_ranks[i] = carry_take_word(r);
}

static void carry_require(struct carry_reader *r, bool is_sound)
{
    if (!is_sound)
        r->error = r->error ?: -EBADMSG;
}

static void carry_take_runs(struct carry_reader *r, struct deal_runs *ret_runs)
{
    uint64_t count = carry_take_word(r);
    carry_require(r, count <= (uint64_t)(r->end - r->at) / 2);
    if (r->error || count == 0)
        return;
    ret_runs->runs = calloc(count, sizeof *ret_runs->runs);
    if (!ret_runs->runs) {
        r->error = -ENOMEM;
        return;
    }
    ret_runs->room = count;
    for (uint64_t i = 0; i < count; i++) {
        struct deal_run *run = &ret_runs->runs[ret_runs->count++];
        run->first = carry_take_word(r);
        run->count = carry_take_word(r);
        carry_require(r, run->count > 0 && run->first < r->samples &&
                             run->count <= r->samples - run->first &&
                             run->count <= r->samples - ret_runs->samples);
        ret_runs->samples += r->error ? 0 : run->count;
    }
}

static bool lost_are_members(const struct deal_step *step)
{
    for (int i = 0; i < RANKS_WORDS; i++)
        if (step->lost[i] & ~step->members[i])
            return false;
    return true;
}

static void carry_take_step(struct carry_reader *r, const struct step_deal *deal, uint32_t slot,
                            struct deal_step *ret_step)
{
    ret_step->number = carry_take_word(r);
    ret_step->epoch = carry_take_word(r);
    ret_step->cursor = carry_take_word(r);
    ret_step->is_end = carry_take_word(r) != 0;
    carry_take_ranks(r, ret_step->members);
    carry_take_ranks(r, ret_step->lost);
    ret_step->share_least = deal->spec.share_least ? deal->spec.share_least : 1;
    carry_take_runs(r, &ret_step->runs);
    uint64_t ahead = ret_step->number - deal->record;
    carry_require(r, ahead <= 1 + (uint64_t)deal->spec.prefetch &&
                         ret_step->number % (deal->spec.prefetch + 2) == slot);
    carry_require(r, ret_step->epoch <= deal->epoch && ret_step->cursor <= deal->spec.samples);
    carry_require(r, !ranks_are_none(ret_step->members) && lost_are_members(ret_step));
    carry_require(r, ret_step->runs.samples <= deal_step_most(&deal->spec));
    carry_require(r, ret_step->is_end == (ret_step->epoch == deal->spec.epochs));
    carry_require(r, !ret_step->is_end || ret_step->runs.count == 0);
}

static bool is_of_spec(struct carry_reader *r, const struct deal_spec *spec)
{
    bool is_same = carry_take_word(r) == spec->samples;
    is_same &= carry_take_word(r) == spec->epochs;
    is_same &= carry_take_word(r) == spec->seed;
    is_same &= carry_take_word(r) == carry_two(spec->batch, spec->batch_per_worker);
    is_same &= carry_take_word(r) == carry_two(spec->prefetch, spec->share_least);
    return is_same;
}

static void carry_take_deal(struct carry_reader *r, struct step_deal *deal)
{
    deal->record = carry_take_word(r);
    deal->epoch = carry_take_word(r);
    deal->cursor = carry_take_word(r);
    carry_require(r, deal->record >= 1 && deal->record <= UINT64_MAX / 2);
    carry_require(r, deal->epoch <= deal->spec.epochs && deal->cursor <= deal->spec.samples);
    carry_take_ranks(r, deal->members);
    carry_require(r, !ranks_are_none(deal->members));
    carry_take_runs(r, &deal->returned);
    for (uint32_t i = 0; i < carry_steps(deal) && !r->error; i++)
        carry_take_step(r, deal, i, &deal->steps[i]);
    carry_require(r, r->at == r->end);
}

int carry_read(const uint64_t *words, size_t count, const struct deal_spec *spec,
               struct step_deal *ret_deal)
{
    struct carry_reader r = {.at = words, .end = words + count, .samples = spec->samples};
    if (spec->prefetch > DEAL_PREFETCH_MAX)
        return -EINVAL;
    carry_require(&r, carry_take_word(&r) == CARRY_MAGIC_VALUE);
    carry_require(&r, carry_take_word(&r) == count);
    bool is_ours = is_of_spec(&r, spec);
    if (!r.error && !is_ours)
        return -EINVAL;
    *ret_deal = (struct step_deal){.spec = *spec};
    if (!r.error)
        carry_take_deal(&r, ret_deal);
    if (r.error)
        deal_fini(ret_deal);
    return r.error;
}
