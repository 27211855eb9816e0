/* The failure of a piece. */
#ifndef GRADPOOL_LANE_ROUND_PIECE_FAILURE_H
#define GRADPOOL_LANE_ROUND_PIECE_FAILURE_H

#include "svc/lane/types.h"

/* Every announcement of the piece gets this error, now and later. */
void piece_fail(struct piece *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The piece is at rest: its round has failed, and nothing of it is posted. */
void round_rest(struct piece *p);

#endif
