/* Memory for long control messages while they arrive (K101). */
#ifndef GRADPOOL_COORDINATOR_PEER_FRAMES_H
#define GRADPOOL_COORDINATOR_PEER_FRAMES_H

#include "svc/coordinator/peer/peer.h"

/* Longest message without reservation. The rest of a longer message is read after memory for the
 * whole message is reserved. */
#define FRAME_BYTES_FREE (64u << 10)
/* Time within which the rest of a message has to arrive after memory for it is reserved. */
#define FRAME_DEADLINE_NS (30 * NS_PER_S)

/* Reserves memory for a message of which a part has arrived. Returns 1 if memory was reserved now,
 * 0 if none is needed or was reserved before, or -EAGAIN if the peer has to wait. peer_check_held()
 * is called when memory is available. */
int frames_admit(struct peer *p);
/* Returns whether the peer waits for memory. */
bool frames_waits(const struct peer *p);
/* Releases the memory of a message that is complete. */
void frames_received(struct peer *p);
/* Releases the memory of a peer that is being freed, and ends its wait. */
void frames_forget(struct peer *p);

#endif
