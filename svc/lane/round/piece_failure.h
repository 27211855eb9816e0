/* The failure of a piece. */
#ifndef GRADPOOL_LANE_ROUND_PIECE_FAILURE_H
#define GRADPOOL_LANE_ROUND_PIECE_FAILURE_H

#include "svc/lane/types.h"

/* Fails the piece: every announcement, present or future, gets this error. A second failure is
 * ignored. */
void piece_fail(struct piece *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sends the failure to the takers whose reports wait for an answer (W22). */
void piece_fail_takers(struct piece *p);

/* Ends a round that has failed or was given up; none of its operations may be posted any more. The
 * piece collects announcements again. */
void round_rest(struct piece *p);

#endif
