/* The numbers that a service gives out. */
#ifndef GRADPOOL_COORDINATOR_STORE_NUMBERS_H
#define GRADPOOL_COORDINATOR_STORE_NUMBERS_H

struct service;

/* Puts the row of service.numbers into the transaction that is open. */
void service_put_numbers(struct service *s);

#endif
