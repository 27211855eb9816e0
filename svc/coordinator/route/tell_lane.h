/* Messages to lanes about pieces: place, limits, drop, thaw. */
#ifndef GRADPOOL_COORDINATOR_ROUTE_TELL_LANE_H
#define GRADPOOL_COORDINATOR_ROUTE_TELL_LANE_H

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/tensor.h"

/* Sends PlaceRequests for all pieces of the job that are PIECE_PLACED and whose lanes are
 * connected. */
void telling_place(struct job *job);
/* Sends the tenant's limits to all lanes that have pieces of the job. */
void telling_limits(struct job *job);
/* Sends the limits of the job to one lane. */
void telling_limits_of(struct job *job, struct lane *lane);
/* Orders the lane to drop pieces, or the whole job if `count` is 0. */
void telling_drop(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count);
/* Orders the lane to serve released pieces again. */
void telling_thaw(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count);
/* PLACE_AHEAD: the pieces are moving to this lane, and the lane answers after the workers have
 * connected. */
enum place_how { PLACE_NEW, PLACE_RECOVERING, PLACE_REGROUPED, PLACE_AHEAD };
int telling_ask(struct job *job, struct lane *lane, uint32_t epoch, enum place_how how,
                WIRE(PieceSpec) * specs, size_t count, call_done_fn done, const void *data,
                size_t data_bytes);
/* Sends a PlaceRequest with shards of a table. */
int telling_ask_table(struct job *job, struct lane *lane, uint32_t epoch, WIRE(TablePlace) * table,
                      call_done_fn done, const void *data, size_t data_bytes);
/* Sends a PlaceRequest for a copy of shards that lane `owner` serves. */
int telling_ask_copy(struct job *job, struct lane *lane, uint32_t epoch, WIRE(TablePlace) * table,
                     uint32_t owner, uint32_t copy, call_done_fn done, const void *data,
                     size_t data_bytes);
/* Describes a piece for a PlaceRequest. The result points to the tensor and to the buffer
 * `terms`. */
WIRE(PieceSpec)
telling_spec(const struct tensor *tensor, const struct piece *piece, struct terms *terms);

#endif
