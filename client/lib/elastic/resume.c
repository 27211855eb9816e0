/* Writes and reads cursors of deals. A cursor is a state of the deal (carry.h) behind a head. */
#include "client/lib/elastic/resume.h"

#include "client/lib/elastic/carry.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>

#define RESUME_MAGIC_VALUE UINT64_C(0x31524f53525543)

/* `RESUME_BEFORE`: number of steps of earlier jobs. */
enum resume_head { RESUME_MAGIC, RESUME_BEFORE, RESUME_HEAD_WORDS };

/* ---- writing ---- */

size_t resume_words(const struct step_deal *deal) { return RESUME_HEAD_WORDS + carry_words(deal); }

void resume_write(const struct step_deal *deal, uint64_t before, uint64_t *ret_words)
{
    ret_words[RESUME_MAGIC] = RESUME_MAGIC_VALUE;
    ret_words[RESUME_BEFORE] = before;
    carry_write(deal, ret_words + RESUME_HEAD_WORDS);
}

/* ---- reading ---- */

/* Adds the places first to first + count - 1, as far as they are below `end`. */
static int resume_add(struct deal_runs *to, uint64_t first, uint64_t count, uint64_t end)
{
    if (count == 0 || first >= end)
        return 0;
    return deal_runs_add(to, first, count < end - first ? count : end - first);
}

/* Adds the places of one share, as far as they are below `end`. */
static int resume_add_share(struct deal_runs *to, const struct deal_step *step, uint64_t begin,
                            uint64_t count, uint64_t end)
{
    uint64_t run_begin = 0;
    int error = 0;
    for (size_t i = 0; i < step->runs.count && count > 0 && error == 0; i++) {
        const struct deal_run *run = &step->runs.runs[i];
        if (begin - run_begin < run->count) {
            uint64_t inside = begin - run_begin, left = run->count - inside;
            uint64_t some = left < count ? left : count;
            error = resume_add(to, run->first + inside, some, end);
            begin += some;
            count -= some;
        }
        run_begin += run->count;
    }
    return error;
}

/* Adds the samples of a step that was dealt and not made to `to`. The shares of lost members are
 * left out, because the deal has added their samples before. */
static int resume_add_step(struct deal_runs *to, const struct deal_step *step, uint64_t end)
{
    int error = 0;
    for (uint32_t rank = 0; rank < DEAL_RANKS_MAX && error == 0; rank++) {
        uint64_t begin, count = deal_share_begin(step, rank, &begin);
        if (count > 0 && !ranks_have(step->lost, rank))
            error = resume_add_share(to, step, begin, count, end);
    }
    return error;
}

/* Returns the place at which the new deal continues: the first place of the first step that was
 * dealt and not made. This step is in the present epoch, because an epoch ends only when all its
 * samples are confirmed. After the last epoch the result is the end of the deal. */
static uint64_t resume_cursor(const struct step_deal *from)
{
    for (uint64_t n = from->record + 1; n <= from->record + 1 + from->spec.prefetch; n++) {
        const struct deal_step *step = deal_step(from, n);
        if (step && step->runs.samples > 0)
            return step->cursor;
    }
    return from->cursor;
}

/* Adds the samples of all steps that were not made to the samples that `deal` deals again. Samples
 * at places from `deal->cursor` on are left out, because the new deal contains them in any case. */
static int resume_take_back(struct step_deal *deal, const struct step_deal *from)
{
    int error = 0;
    for (uint64_t n = from->record + 1; n <= from->record + 1 + from->spec.prefetch; n++)
        if (deal_step(from, n) && error == 0)
            error = resume_add_step(&deal->returned, deal_step(from, n), deal->cursor);
    for (size_t i = 0; i < from->returned.count && error == 0; i++)
        error = resume_add(&deal->returned, from->returned.runs[i].first,
                           from->returned.runs[i].count, deal->cursor);
    return error;
}

static int resume_deal(const struct step_deal *from, const uint64_t *members,
                       struct step_deal *ret_deal)
{
    *ret_deal =
        (struct step_deal){.spec = from->spec, .epoch = from->epoch, .cursor = resume_cursor(from)};
    memcpy(ret_deal->members, members, sizeof ret_deal->members);
    int error = resume_take_back(ret_deal, from);
    if (error == 0 && ret_deal->returned.samples > ret_deal->cursor)
        error = -EBADMSG; /* some place was returned twice */
    if (error == 0)
        error = deal_first(ret_deal);
    if (error < 0)
        deal_fini(ret_deal);
    return error;
}

int resume_read(const uint64_t *words, size_t count, const struct deal_spec *spec,
                const uint64_t *members, struct step_deal *ret_deal, uint64_t *ret_before)
{
    struct step_deal from;
    if (count < RESUME_HEAD_WORDS || words[RESUME_MAGIC] != RESUME_MAGIC_VALUE ||
        words[RESUME_BEFORE] > UINT64_MAX / 4)
        return -EBADMSG;
    int error = carry_read(words + RESUME_HEAD_WORDS, count - RESUME_HEAD_WORDS, spec, &from);
    if (error < 0)
        return error;
    *ret_before = words[RESUME_BEFORE] + from.record;
    error = resume_deal(&from, members, ret_deal);
    deal_fini(&from);
    return error;
}

uint64_t resume_print(const uint64_t *words, size_t count)
{
    uint64_t print = mixed_key(count, RESUME_MAGIC_VALUE);
    for (size_t i = 0; i < count; i++)
        print = mixed_key(words[i], print);
    return print ? print : 1;
}
