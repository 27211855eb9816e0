/* Numbers that the service assigns to its objects. */
#ifndef GRADPOOL_COORDINATOR_STORE_NUMBERS_H
#define GRADPOOL_COORDINATOR_STORE_NUMBERS_H

struct service;

/* Puts the row with the next numbers into the open transaction. */
void service_put_numbers(struct service *s);

#endif
