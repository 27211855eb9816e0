/* Numbers that the service assigns to its objects. */
#ifndef GRADPOOL_COORDINATOR_STORE_NUMBERS_H
#define GRADPOOL_COORDINATOR_STORE_NUMBERS_H

struct service;

/* Adds the row with the next numbers to the open transaction. */
void service_put_numbers(struct service *s);

#endif
