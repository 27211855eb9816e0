/* Writes and reads the words of step records. Every word of another rank is checked. */
#include "client/lib/elastic/step_words.h"

#include "svc/wire/mixed_key.h"

#include <errno.h>

#define REST_SHIFT 16 /* a job has fewer than 2^16 ranks */

void step_words_write(const struct step_word *word, uint64_t ret_words[STEP_WORDS_COUNT])
{
    memset(ret_words, 0, STEP_WORDS_COUNT * sizeof ret_words[0]);
    ranks_add(ret_words + STEP_WORDS_PRESENT, word->rank);
    if (word->is_leaving)
        ranks_add(ret_words + STEP_WORDS_LEAVING, word->rank);
    if (word->holds)
        ranks_add(ret_words + STEP_WORDS_HOLDS, word->rank);
    ret_words[STEP_WORDS_FULL] = word->holds && word->is_full;
    ret_words[STEP_WORDS_END] = word->holds && word->is_end;
    ret_words[word->holds ? STEP_WORDS_ROUNDS : STEP_WORDS_ROUNDS_LATE] = word->rounds;
    ret_words[STEP_WORDS_DEAL] = word->print;
    ret_words[STEP_WORDS_REST] = word->rest ? (uint64_t)word->rest << REST_SHIFT | 1 : 0;
}

static bool is_within(const uint64_t *ranks, const uint64_t *of)
{
    for (int i = 0; i < RANKS_WORDS; i++)
        if (ranks[i] & ~of[i])
            return false;
    return true;
}

static bool sets_are_sound(const struct deal_record *record, uint32_t workers, uint32_t rank)
{
    for (uint32_t other = workers; other < DEAL_RANKS_MAX; other++)
        if (ranks_have(record->present, other))
            return false;
    return ranks_have(record->present, rank) && is_within(record->leaving, record->present) &&
           is_within(record->holds, record->present);
}

static bool all_or_none(uint64_t ranks, uint64_t all) { return ranks == 0 || ranks == all; }

uint32_t step_words_rest(const uint64_t words[STEP_WORDS_COUNT])
{
    uint64_t sum = words[STEP_WORDS_REST];
    uint64_t ranks = sum & ((UINT64_C(1) << REST_SHIFT) - 1), rests = sum >> REST_SHIFT;
    return ranks > 0 && rests % ranks == 0 ? (uint32_t)(rests / ranks) : 0;
}

int step_words_read(const uint64_t words[STEP_WORDS_COUNT], uint32_t workers, uint32_t rank,
                    uint64_t print, struct step_sum *ret_sum)
{
    struct step_sum sum = {0};
    memcpy(sum.record.present, words + STEP_WORDS_PRESENT, sizeof sum.record.present);
    memcpy(sum.record.leaving, words + STEP_WORDS_LEAVING, sizeof sum.record.leaving);
    memcpy(sum.record.holds, words + STEP_WORDS_HOLDS, sizeof sum.record.holds);
    if (workers > DEAL_RANKS_MAX || !sets_are_sound(&sum.record, workers, rank))
        return -EPROTO;
    if (ranks_are_none(sum.record.holds))
        return -EOWNERDEAD;
    uint64_t present = ranks_count(sum.record.present), hold = ranks_count(sum.record.holds);
    if (words[STEP_WORDS_DEAL] != present * print)
        return -EINVAL;
    if (!all_or_none(words[STEP_WORDS_FULL], hold) || !all_or_none(words[STEP_WORDS_END], hold))
        return -EPROTO;
    sum.kind = words[STEP_WORDS_END] ? STEP_END : words[STEP_WORDS_FULL] ? STEP_FULL : STEP_EMPTY;
    sum.rounds = words[STEP_WORDS_ROUNDS] / hold;
    if (words[STEP_WORDS_ROUNDS] % hold != 0)
        return -EPROTO;
    sum.late_are_level = words[STEP_WORDS_ROUNDS_LATE] == (present - hold) * sum.rounds;
    *ret_sum = sum;
    return 0;
}

uint64_t deal_print(const struct deal_spec *spec)
{
    uint64_t print = mixed_key(spec->samples, spec->seed);
    print = mixed_key(spec->epochs, print);
    print = mixed_key((uint64_t)spec->prefetch << 32 | spec->batch, print);
    return mixed_key((uint64_t)spec->share_least << 32 | spec->batch_per_worker, print);
}
