/* The failure of a piece. */
#ifndef GRADPOOL_LANE_ROUND_PIECE_FAILURE_H
#define GRADPOOL_LANE_ROUND_PIECE_FAILURE_H

#include "svc/lane/types.h"

/* Fails the piece: every announcement gets this error, now and later. A second failure is
 * ignored. */
void piece_fail(struct piece *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Ends a failed or given-up round of which nothing is posted: the piece collects announcements
 * again. */
void round_rest(struct piece *p);

#endif
