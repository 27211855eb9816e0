/* Lent memory on the lane's side: the regions of a connection, and the records that wait until
 * their pages are mapped. */
#ifndef GRADPOOL_FABRIC_SHM_LENDING_H
#define GRADPOOL_FABRIC_SHM_LENDING_H

#include "svc/fabric/shm/conn.h"

/* Begins to map the region of a LEND record. Its descriptor is the next one on the socket. Returns
 * 0, or an error that ends the connection. */
int shm_lending_begin(struct shm_conn *c, const struct shm_record *record);
/* Unmaps region `id`. Returns 0, or -EBADMSG if there is no such region. */
int shm_lending_withdraw(struct shm_conn *c, uint32_t id);
void shm_lending_end(struct shm_conn *c);
/* Returns true if the record (an entry of `messages`) names pages that are not mapped yet. The
 * record then waits until these pages are mapped. */
bool shm_lending_waits(struct shm_conn *c, struct shm_record *record);
/* Returns whether records wait because the mapper is still working. */
bool shm_lending_is_stuck(const struct shm_conn *c);
/* Returns whether all pages are mapped, and each mapped page was accessed once (warmth.h). */
bool shm_lending_is_warm(const struct shm_conn *c);
/* Returns the next finished work of the mapper. 1: `event` is a REGION. 0: `ret_record` is the
 * record that has waited, and may be reported now; NULL: no record has waited. -EFAULT: the record
 * names missing pages. Other errors are those of mmap(). */
int shm_lending_resume(struct shm_conn *c, struct fabric_event *event,
                       struct shm_record **ret_record);
/* Charges the jobs for the time in which the mapper's thread has unmapped their regions. */
void shm_lending_charge_unmapped(struct shm_fabric *f);
/* Returns the address of a range of a region, or NULL if the range is not lent or one of its pages
 * is missing. */
void *shm_lending_place(const struct shm_conn *c, uint32_t id, uint64_t offset, size_t bytes);

#endif
