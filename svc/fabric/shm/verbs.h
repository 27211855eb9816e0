/* Functions of fabric.h for an open connection of fabric_shm. */
#ifndef GRADPOOL_FABRIC_SHM_VERBS_H
#define GRADPOOL_FABRIC_SHM_VERBS_H

#include "svc/fabric/shm/conn.h"

int shm_verb_send(struct fabric_conn *c, const void *header, size_t header_bytes,
                  const void *payload, size_t payload_bytes);
void shm_verb_message_done(struct fabric_conn *c, const void *data);
int shm_verb_lend(struct fabric_conn *c, const struct region *region, uint32_t id);
void shm_verb_withdraw(struct fabric_conn *c, uint32_t id);
void *shm_verb_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes);
bool shm_verb_is_sound(const struct fabric_conn *c);
bool shm_verb_is_warm(const struct fabric_conn *c);
uint64_t shm_verb_region_bytes(const struct fabric_conn *c, uint32_t id);
int shm_verb_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                  void *context);
int shm_verb_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                   size_t bytes, void *context);
int shm_verb_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                        size_t bytes, uint32_t word, void *context);
int shm_verb_notify(struct fabric_conn *c, uint32_t word, void *context);
/* Sends the WITHDRAWs that were postponed because the ring was full. */
void shm_verb_withdraw_rest(struct shm_conn *c);

#endif
