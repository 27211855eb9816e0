/* Fuzzes the state of a deal that a late worker receives from another rank. Either the words are
 * refused, or the deal continues without an access outside its memory. The first words are set to
 * those of a valid deal, so that the parser also reads the rest. */
#include "client/lib/elastic/carry.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SPEC_WORDS (CARRY_HEAD_WORDS + 5)
#define BATCH 16
#define RECORDS 20

static void deal_on(struct step_deal *deal)
{
    struct deal_record record = {.present = {5}, .holds = {5}};
    uint64_t samples[BATCH];
    for (int i = 0; i < RECORDS; i++) {
        for (uint64_t t = deal->record; t <= deal->record + 1 + deal->spec.prefetch; t++) {
            const struct deal_step *step = deal_step(deal, t);
            for (uint32_t rank = 0; step && rank < 4; rank++) {
                size_t count = deal_samples(deal, step, rank, 0, samples, BATCH);
                for (size_t k = 0; k < count; k++)
                    assert(samples[k] < deal->spec.samples);
            }
        }
        if (deal_apply(deal, &record) < 0)
            return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t count = bytes / sizeof(uint64_t);
    if (count < SPEC_WORDS)
        return 0;
    uint64_t *words = malloc(count * sizeof *words);
    assert(words);
    memcpy(words, data, count * sizeof *words);
    uint32_t batch = 1 + (uint32_t)(words[5] % BATCH);
    bool is_per_worker = words[5] >> 63;
    const struct deal_spec spec = {.samples = 1 + words[2] % 1000,
                                   .epochs = 1 + words[3] % 3,
                                   .seed = words[4],
                                   .batch = is_per_worker ? 0 : batch,
                                   .batch_per_worker = is_per_worker ? batch : 0,
                                   .prefetch = (uint32_t)(words[6] % 4),
                                   .share_least = (uint32_t)(words[6] >> 32) % 3};
    const uint64_t head[SPEC_WORDS] = {CARRY_MAGIC_VALUE,
                                       count,
                                       spec.samples,
                                       spec.epochs,
                                       spec.seed,
                                       is_per_worker ? (uint64_t)batch << 32 : batch,
                                       (uint64_t)spec.share_least << 32 | spec.prefetch};
    memcpy(words, head, sizeof head);
    struct step_deal deal;
    int error = carry_read(words, count, &spec, &deal);
    assert(error == 0 || error == -EBADMSG);
    if (error == 0) {
        deal_on(&deal);
        deal_fini(&deal);
    }
    free(words);
    return 0;
}
