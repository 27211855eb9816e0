/* Memory for long control messages while they arrive (K101). */
#ifndef GRADPOOL_COORDINATOR_PEER_FRAMES_H
#define GRADPOOL_COORDINATOR_PEER_FRAMES_H

#include "svc/coordinator/peer/peer.h"

/* Longer messages are read on when memory for the whole message is reserved. */
#define FRAME_BYTES_FREE (64u << 10)
/* Time for the rest of the message, from the reservation on. */
#define FRAME_DEADLINE_NS (30 * NS_PER_S)

/* Reserves memory for a message that has begun. 0: none is needed, or it is reserved already; 1:
 * reserved now; -EAGAIN: the peer must wait, and peer_check_held() is called when there is room. */
int frames_admit(struct peer *p);
/* Whether the peer waits for memory. */
bool frames_waits(const struct peer *p);
/* Releases the memory when the message is whole. */
void frames_received(struct peer *p);
/* Releases the memory, or ends the wait, of a peer that is freed. */
void frames_forget(struct peer *p);

#endif
