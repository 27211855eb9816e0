/* The sleep of an engine's driver: on a bell, on descriptors, or on both. */
#ifndef GRADPOOL_FABRIC_ENGINE_SLEEP_H
#define GRADPOOL_FABRIC_ENGINE_SLEEP_H

#include "svc/fabric/engine.h"

/* -EMFILE, -ENOMEM. */
int engine_sleep_create(struct engine_sleep **ret_sleep);
/* The forwarder has ended. NULL is fine. */
void engine_sleep_destroy(struct engine_sleep *s);
/* In a forked child: closes the descriptors, and frees nothing. */
void engine_sleep_abandon(struct engine_sleep *s);

/* Sleeps as the driver of `tenure` until an event may be there, at most until the deadline. */
void engine_sleep(struct engine *e, uint64_t tenure, uint64_t deadline_ns);
/* From now on no driver is asleep: another one takes over, and the one before finds its tenure
 * over. */
void engine_forget_sleep(struct engine_sleep *s);
/* Ends the driver's sleep, also one that has been decided but not begun (W21). */
void engine_end_sleep(struct engine *e);
/* Whether the thread exists that turns rings of the bell into events of a descriptor. */
bool engine_has_forwarder(const struct engine_sleep *s);
/* The lock must not be held. */
void engine_end_forwarder(struct engine_sleep *s);

#endif
