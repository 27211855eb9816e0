/* Telling lanes what they are to serve, and what no longer. */
#ifndef GRADPOOL_COORDINATOR_ROUTE_TELL_LANE_H
#define GRADPOOL_COORDINATOR_ROUTE_TELL_LANE_H

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/tensor.h"

/* Asks every lane that is up to take its pieces that are PIECE_PLACED. */
void telling_place(struct job *job);
/* Tells the lanes that have pieces of the job what its tenant may use now. */
void telling_limits(struct job *job);
/* Tells the lane to forget pieces; count 0: the whole job. */
void telling_drop(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count);
/* Tells the lane to serve again pieces that it was asked to release. */
void telling_thaw(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count);
/* One PlaceRequest for pieces of the job. As call_send(). */
/* AHEAD: they come from another lane, and the answer waits for workers. */
enum place_how { PLACE_NEW, PLACE_RECOVERING, PLACE_REGROUPED, PLACE_AHEAD };
int telling_ask(struct job *job, struct lane *lane, uint32_t epoch, enum place_how how,
                WIRE(PieceSpec) * specs, size_t count, call_done_fn done, const void *data,
                size_t data_bytes);
/* What it says of a piece; good while the tensor and `terms`, which it may need, are. */
WIRE(PieceSpec)
telling_spec(const struct tensor *tensor, const struct piece *piece, struct terms *terms);

#endif
