/* Memory for long control messages that are being received (K101). */
#ifndef GRADPOOL_COORDINATOR_PEER_FRAMES_H
#define GRADPOOL_COORDINATOR_PEER_FRAMES_H

#include "svc/coordinator/peer/peer.h"

/* Longer messages are read on once memory for all of them is set aside. */
#define FRAME_BYTES_FREE (64u << 10)
/* From there on the rest has to come within this time. */
#define FRAME_DEADLINE_NS (30 * NS_PER_S)

/* A message has begun, and is not whole. 0: it may go on coming; 1: from now on; -EAGAIN: not yet,
 * peer_check_held() follows once it may. */
int frames_admit(struct peer *p);
/* The peer waits for memory. */
bool frames_waits(const struct peer *p);
/* A message is whole. */
void frames_received(struct peer *p);
/* The peer goes. */
void frames_forget(struct peer *p);

#endif
