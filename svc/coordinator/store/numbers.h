/* Numbers that the service gives out. */
#ifndef GRADPOOL_COORDINATOR_STORE_NUMBERS_H
#define GRADPOOL_COORDINATOR_STORE_NUMBERS_H

struct service;

/* Puts the row of service.numbers into the open transaction. */
void service_put_numbers(struct service *s);

#endif
