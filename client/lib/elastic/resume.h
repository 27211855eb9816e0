/* The cursor of a deal: words from which a later job continues the deal, after its last complete
 * step. The new job may have another number of workers. Each sample of the epoch that no complete
 * step has used is dealt exactly once again, in the former order. */
#ifndef GRADPOOL_CLIENT_ELASTIC_RESUME_H
#define GRADPOOL_CLIENT_ELASTIC_RESUME_H

#include "client/lib/elastic/deal.h"

/* Returns the number of words of the deal's cursor. */
size_t resume_words(const struct step_deal *deal);
/* Writes resume_words() words. Every rank has completed step `deal->record`, and no later one.
 * `before`: number of steps of earlier jobs of this training. */
void resume_write(const struct step_deal *deal, uint64_t before, uint64_t *ret_words);
/* Reads a cursor, and deals the first 1 + p steps to `members`. The caller frees `ret_deal` with
 * deal_fini(). `ret_before`: number of steps of earlier jobs of this training. -EBADMSG: the words
 * are no cursor; -EINVAL: the cursor belongs to another deal than `spec`; -ENOMEM. */
int resume_read(const uint64_t *words, size_t count, const struct deal_spec *spec,
                const uint64_t *members, struct step_deal *ret_deal, uint64_t *ret_before);
/* Returns a hash of the words, which is not 0. */
uint64_t resume_print(const uint64_t *words, size_t count);

#endif
