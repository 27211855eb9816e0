/* Lent memory on the side of a lane: which regions a connection has, and which records wait until
 * their pages are mapped. */
#ifndef GRADPOOL_FABRIC_SHM_LENDING_H
#define GRADPOOL_FABRIC_SHM_LENDING_H

#include "svc/fabric/shm/conn.h"

/* Begins to map the region of a LEND record, whose descriptor is next on the socket. Returns 0, or
 * an error that ends the connection. */
int shm_lending_begin(struct shm_conn *c, const struct shm_record *record);
/* Unmaps region `id`. -EBADMSG: no region has this id. */
int shm_lending_withdraw(struct shm_conn *c, uint32_t id);
/* Unmaps all regions of the connection. */
void shm_lending_end(struct shm_conn *c);
/* Returns true if the record (which is one of `messages`) names pages that are not mapped yet. The
 * record then waits for them. */
bool shm_lending_waits(struct shm_conn *c, struct shm_record *record);
/* Returns whether records wait while the mapper is still working. */
bool shm_lending_is_stuck(const struct shm_conn *c);
/* Returns whether nothing waits to be mapped, and all mapped pages are warm. */
bool shm_lending_is_warm(const struct shm_conn *c);
/* Returns finished work of the mapper. 1: `event` is REGION; 0: `ret_record` (NULL: none) has
 * waited, and may be reported now. -EFAULT: the record names missing pages; or an error of mmap. */
int shm_lending_resume(struct shm_conn *c, struct fabric_event *event,
                       struct shm_record **ret_record);
/* Returns the address of a place. NULL: not lent, or a page of it is missing. */
void *shm_lending_place(const struct shm_conn *c, uint32_t id, uint64_t offset, size_t bytes);

#endif
