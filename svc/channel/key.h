/* A tenant's pre-shared key. Its text is "NAME:" and 64 hex digits: 256 random bits. */
#ifndef GRADPOOL_CHANNEL_KEY_H
#define GRADPOOL_CHANNEL_KEY_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_TENANT_BYTES_MAX 63
#define KEY_SECRET_BYTES 32
#define KEY_SECRET_TEXT_BYTES (2 * KEY_SECRET_BYTES + 1)
#define KEY_TEXT_BYTES (KEY_TENANT_BYTES_MAX + 1 + KEY_SECRET_TEXT_BYTES)

struct key {
    char tenant[KEY_TENANT_BYTES_MAX + 1];
    uint8_t secret[KEY_SECRET_BYTES];
};

/* The key that a server has of a tenant. -ENOENT: none; -EKEYREVOKED. */
typedef int (*key_find_fn)(void *context, const char *tenant, struct key *ret_key);

/* Letters, digits, '.', '_' and '-', 1 to KEY_TENANT_BYTES_MAX of them. */
bool key_tenant_is_valid(const char *tenant);
/* A new secret for a valid name. Negative errno of getrandom(). */
int key_generate(const char *tenant, struct key *ret_key);
/* White space at the end is ignored. -EINVAL; the text does not repeat the secret. */
int key_parse(const char *text, struct key *ret_key, struct err *err);
/* "NAME:hex", or the hex alone. Each fills `buffer` (KEY_TEXT_BYTES, KEY_SECRET_TEXT_BYTES) and
 * returns it. */
const char *key_format(const struct key *key, char *buffer);
const char *key_format_secret(const struct key *key, char *buffer);
/* Overwrites the secret. NULL is fine. */
void key_forget(struct key *key);

/* The key of this process: the variable GRADPOOL_KEY, or the contents of the file that
 * GRADPOOL_KEY_FILE names. 1: there is one; 0: neither is set. -EINVAL (both, or no key), -EACCES,
 * -ENOENT, ...: the text names the variable. */
int key_from_environment(struct key *ret_key, struct err *err);

#endif
