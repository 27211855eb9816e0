/* A lane's side of lent memory: which regions a connection has, and which records wait until their
 * pages are mapped. */
#ifndef GRADPOOL_FABRIC_SHM_LENDING_H
#define GRADPOOL_FABRIC_SHM_LENDING_H

#include "svc/fabric/shm/conn.h"

/* Starts to map the region of a LEND record; its descriptor is next on the socket. 0, or an error
 * that ends the connection. */
int shm_lending_begin(struct shm_conn *c, const struct shm_record *record);
/* Unmaps region `id`. -EBADMSG: none with this id. */
int shm_lending_withdraw(struct shm_conn *c, uint32_t id);
/* Unmaps all regions of the connection. */
void shm_lending_end(struct shm_conn *c);
/* True: the record (of `messages`) names pages that are not mapped yet, and waits for them. */
bool shm_lending_waits(struct shm_conn *c, struct shm_record *record);
/* Whether records wait and the mapper is still at work. */
bool shm_lending_is_stuck(const struct shm_conn *c);
/* Nothing waits to be mapped, and all that is mapped is warm. */
bool shm_lending_is_warm(const struct shm_conn *c);
/* Takes what the mapper has finished. 1: `event` is REGION; 0: `ret_record`, which has waited, may
 * be handed out (NULL: none). -EFAULT: the record names pages that are absent; errors of mmap. */
int shm_lending_resume(struct shm_conn *c, struct fabric_event *event,
                       struct shm_record **ret_record);
/* NULL: not lent, or a page of it is absent. */
void *shm_lending_place(const struct shm_conn *c, uint32_t id, uint64_t offset, size_t bytes);

#endif
