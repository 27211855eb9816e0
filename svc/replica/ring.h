/* Rings for the logs of changed rows of tables (svc/lane/table/log.h, A127). The owner's lane
 * writes blocks into a ring over the connection of the replica holder, and a lane of this process
 * reads them. A ring has at most one owner in its life: a new copy gets new memory, so late writes
 * for an earlier copy cannot damage its blocks (J7).
 *
 * Every function may be called from any thread, except holder_next_logged(), which one thread
 * calls. */
#ifndef GRADPOOL_REPLICA_RING_H
#define GRADPOOL_REPLICA_RING_H

#include "svc/replica/holder.h"

struct holder_ring {
    uint32_t job;
    uint32_t lane; /* the owner, which writes into the ring */
    uint32_t copy; /* number of the copy */
};

/* Lends a ring of `bytes` bytes to the lane, and connects to the lane if necessary. `ret_memory`:
 * the zeroed ring, which is valid until holder_end_ring() or holder_end() for the job. With the
 * number of the present copy the call returns the present ring, and holder_next_logged() returns
 * the owner's last report again. Returns 0 or a negative errno. -EAGAIN: the lane may still write
 * into an earlier ring, whose end has begun; -ENOMEM, -ENOSPC, -EMFILE: no room. */
int holder_lend_ring(struct holder *k, const struct holder_ring *ring, const char *name,
                     uint64_t bytes, const char **ret_memory);
/* Returns whether the ring is lent for this copy. */
bool holder_has_ring(struct holder *k, const struct holder_ring *ring);
/* Closes the connection to a lost owner, which then cannot write into the ring any more. Returns 0,
 * or -EAGAIN while the lane may still write. Without a ring the result is 0. */
int holder_withdraw_ring(struct holder *k, uint32_t job, uint32_t lane);
/* Frees the ring, at once or when the owner's lane cannot write any more. The caller ensures that
 * no lane of this process reads the ring. Without a ring the call has no effect. */
void holder_end_ring(struct holder *k, uint32_t job, uint32_t lane);

/* Returns the next ring whose owner has reported blocks since the last call; `ret_position`: all
 * blocks before it have landed. False: no ring has a report. */
bool holder_next_logged(struct holder *k, struct holder_ring *ret_ring, uint64_t *ret_position);
/* Reports to the owner that the blocks before `position` are applied (TAKEN). Ignored for a ring of
 * another copy. */
void holder_taken(struct holder *k, const struct holder_ring *ring, uint64_t position);

#endif
