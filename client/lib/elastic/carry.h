/* The state of a deal as 64-bit words, which a member gives to a late worker. Pure. */
#ifndef GRADPOOL_CLIENT_ELASTIC_CARRY_H
#define GRADPOOL_CLIENT_ELASTIC_CARRY_H

#include "client/lib/elastic/deal.h"

/* The first words show whether a state follows, and how many words the state has. */
enum carry_head { CARRY_MAGIC, CARRY_COUNT, CARRY_HEAD_WORDS };
#define CARRY_MAGIC_VALUE UINT64_C(0x315952524143)
#define CARRY_WORDS_MAX (1u << 22) /* 32 MiB: 2 million returned runs */

/* Returns the number of words of the state after a record. */
size_t carry_words(const struct step_deal *deal);
/* Writes carry_words() words. */
void carry_write(const struct step_deal *deal, uint64_t *ret_words);
/* Reads a state of `count` words into `ret_deal`, to be freed with deal_fini(). -EBADMSG: not a
 * state of a deal; -EINVAL: the state of another deal than `spec`; -ENOMEM. */
int carry_read(const uint64_t *words, size_t count, const struct deal_spec *spec,
               struct step_deal *ret_deal);

#endif
