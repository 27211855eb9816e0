/* The sleep of the thread that drives an engine: on a bell, on descriptors, or on both. */
#ifndef GRADPOOL_FABRIC_ENGINE_SLEEP_H
#define GRADPOOL_FABRIC_ENGINE_SLEEP_H

#include "svc/fabric/engine.h"

/* Creates the sleep. -EMFILE, -ENOMEM. */
int engine_sleep_create(struct engine_sleep **ret_sleep);
/* The forwarder has ended before. NULL is fine. */
void engine_sleep_destroy(struct engine_sleep *s);
/* For a forked child: closes the descriptors, and frees nothing. */
void engine_sleep_abandon(struct engine_sleep *s);

/* Sleeps as the driver of `tenure` until an event may be there, or until the deadline. */
void engine_sleep(struct engine *e, uint64_t tenure, uint64_t deadline_ns);
/* Marks that no driver is asleep. Another thread takes over, and the former driver notices that its
 * tenure has changed. */
void engine_forget_sleep(struct engine_sleep *s);
/* Ends the driver's sleep, even if the driver has decided to sleep but not begun (W21). */
void engine_end_sleep(struct engine *e);
/* Returns whether the forwarder exists: the thread that turns rings of the bell into events of a
 * descriptor. */
bool engine_has_forwarder(const struct engine_sleep *s);
/* Ends the forwarder. The caller does not hold the lock. */
void engine_end_forwarder(struct engine_sleep *s);

#endif
