/* Converts the state of a deal to 64-bit words, which a member sends to late workers, and back. */
#ifndef GRADPOOL_CLIENT_ELASTIC_CARRY_H
#define GRADPOOL_CLIENT_ELASTIC_CARRY_H

#include "client/lib/elastic/deal.h"

/* Head of the words. First word: CARRY_MAGIC_VALUE, or 0 if no member sends a state. Second word:
 * number of words of the state, head included. */
enum carry_head { CARRY_MAGIC, CARRY_COUNT, CARRY_HEAD_WORDS };
#define CARRY_MAGIC_VALUE UINT64_C(0x315952524143)
#define CARRY_WORDS_MAX (1u << 22) /* 32 MiB, enough for 2 million returned runs */

/* Returns the number of words of the deal's present state. */
size_t carry_words(const struct step_deal *deal);
/* Writes carry_words() words. */
void carry_write(const struct step_deal *deal, uint64_t *ret_words);
/* Reads a state of `count` words into `ret_deal`, which the caller frees with deal_fini().
 * -EBADMSG: the words are no state of a deal; -EINVAL: the state belongs to another deal than
 * `spec`; -ENOMEM. */
int carry_read(const uint64_t *words, size_t count, const struct deal_spec *spec,
               struct step_deal *ret_deal);

#endif
