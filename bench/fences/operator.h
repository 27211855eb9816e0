/* Commands of an operator: `gradpool tenant add`, `tenant revoke`, `status`. */
#ifndef GRADPOOL_BENCH_FENCES_OPERATOR_H
#define GRADPOOL_BENCH_FENCES_OPERATOR_H

#include "bench/lib/own_service.h"

#include <stdbool.h>

#define KEY_PATH_BYTES (PATH_MAX + 64)

/* Each returns 0, or a negative errno with a text on standard error. Over the Unix socket: keys are
 * made and revoked nowhere else. `ret_key`: the file with the key. */
int operator_add_tenant(const struct service *service, const char *name, bool is_operator,
                        char ret_key[KEY_PATH_BYTES]);
int operator_revoke_tenant(const struct service *service, const char *name);
/* `key`: the file with an operator's key; NULL: none. */
int operator_ask_status(const struct service *service, const char *endpoint, const char *key);

#endif
