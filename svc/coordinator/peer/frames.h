/* Reserves memory for long control messages while they arrive (K101). */
#ifndef GRADPOOL_COORDINATOR_PEER_FRAMES_H
#define GRADPOOL_COORDINATOR_PEER_FRAMES_H

#include "svc/coordinator/peer/peer.h"

/* A longer message is read on only after memory for the whole message is reserved. */
#define FRAME_BYTES_FREE (64u << 10)
/* Time for the rest of the message, after the memory is reserved. */
#define FRAME_DEADLINE_NS (30 * NS_PER_S)

/* Reserves memory for a message of which a part has arrived. 0: not needed, or reserved before; 1:
 * reserved now; -EAGAIN: the peer has to wait. peer_check_held() is called when there is room. */
int frames_admit(struct peer *p);
/* Returns whether the peer waits for memory. */
bool frames_waits(const struct peer *p);
/* Releases the memory, because the message is complete. */
void frames_received(struct peer *p);
/* Releases the memory of a peer that is freed, or ends its wait. */
void frames_forget(struct peer *p);

#endif
