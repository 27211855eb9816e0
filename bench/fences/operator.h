/* Commands of an operator: `gradpool tenant add`, `tenant revoke`, `status`. */
#ifndef GRADPOOL_BENCH_FENCES_OPERATOR_H
#define GRADPOOL_BENCH_FENCES_OPERATOR_H

#include "bench/lib/own_service.h"

#include <stdbool.h>

#define KEY_PATH_BYTES (PATH_MAX + 64)

/* Each function returns 0, or a negative errno with a text on standard error. The functions that
 * create and revoke keys use the Unix socket, because the service refuses these requests over TCP.
 * `ret_key`: path of the file with the key. */
int operator_add_tenant(const struct service *service, const char *name, bool is_operator,
                        char ret_key[KEY_PATH_BYTES]);
int operator_revoke_tenant(const struct service *service, const char *name);
/* Requests the status of the service at `endpoint`. `key`: path of the file with an operator's key;
 * NULL: none. */
int operator_ask_status(const struct service *service, const char *endpoint, const char *key);

#endif
