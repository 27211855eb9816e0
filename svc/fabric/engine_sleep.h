/* Sleep of the thread that drives an engine: on a bell (futex), on descriptors, or on both. */
#ifndef GRADPOOL_FABRIC_ENGINE_SLEEP_H
#define GRADPOOL_FABRIC_ENGINE_SLEEP_H

#include "svc/fabric/engine.h"

/* Creates the state. Returns 0, -EMFILE or -ENOMEM. */
int engine_sleep_create(struct engine_sleep **ret_sleep);
/* Frees the state. The forwarder must have ended. NULL is allowed. */
void engine_sleep_destroy(struct engine_sleep *s);
/* Closes the descriptors in a forked child, and frees nothing. */
void engine_sleep_abandon(struct engine_sleep *s);

/* Sleeps as the driver of `tenure` until an event may be pending, or until the deadline. */
void engine_sleep(struct engine *e, uint64_t tenure, uint64_t deadline_ns);
/* Marks that no driver sleeps, because another thread becomes the driver. The former driver detects
 * this by the changed tenure. */
void engine_forget_sleep(struct engine_sleep *s);
/* Ends the driver's sleep, even if the driver has only decided to sleep (W21). */
void engine_end_sleep(struct engine *e);
/* Returns whether the forwarder exists: a thread that signals a descriptor each time the bell is
 * rung. */
bool engine_has_forwarder(const struct engine_sleep *s);
/* Ends the forwarder. The caller must not hold the lock. */
void engine_end_forwarder(struct engine_sleep *s);

#endif
