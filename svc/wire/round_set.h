/* Writes and reads the ranks in CHOSEN and PASSED, in all forms of enum record_form. The functions
 * change only their arguments. record_check() has accepted every record that is read here. */
#ifndef GRADPOOL_WIRE_ROUND_SET_H
#define GRADPOOL_WIRE_ROUND_SET_H

#include "svc/wire/record.h"

#include <stdbool.h>

/* Fills a CHOSEN of RECORD_FORM_RANKS. The caller sets reason and epoch; for a PASSED, the caller
 * also sets the kind. */
void round_set_of_ranks(struct record_chosen *ret_set, uint64_t round, const uint64_t *ranks);
/* Fills a CHOSEN with the number of gradients of each rank; `counts` has `workers` elements. The
 * form is RECORD_FORM_RANKS if no count is above 1, else RECORD_FORM_COUNTS. Returns 0, or -EINVAL
 * if a count is above RECORD_GRADIENTS_MAX, if all counts are 0, or if some count is above 1 and a
 * rank of number RECORD_COUNTED_RANKS or above has a count above 0; `ret_set` is then unchanged. */
int round_set_of_counts(struct record_chosen *ret_set, uint64_t round, const uint8_t *counts,
                        uint32_t workers);
/* Returns the number of gradients of the rank in the set; in a set of takers, 1 for a taker. `rank`
 * may be any number. */
uint32_t round_set_count(const struct record_chosen *set, uint32_t rank);
/* round_set_ranks() returns the number of ranks in the set, round_set_gradients() the number of
 * their gradients. */
uint32_t round_set_ranks(const struct record_chosen *set);
uint32_t round_set_gradients(const struct record_chosen *set);
/* Returns whether every rank of the set is below `workers`. */
bool round_set_is_within(const struct record_chosen *set, uint32_t workers);
/* Returns whether both sets contain the same gradients. Round, reason and epoch may differ. */
bool round_set_is_same(const struct record_chosen *a, const struct record_chosen *b);

#endif
