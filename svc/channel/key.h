/* The pre-shared key of a tenant: 256 random bits. As text it is "NAME:" and 64 hex digits. */
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

/* Finds the key that the server has for a tenant. -ENOENT: no key; -EKEYREVOKED: the key was
 * revoked. */
typedef int (*key_find_fn)(void *context, const char *tenant, struct key *ret_key);

/* Returns whether the name has 1 to KEY_TENANT_BYTES_MAX characters, each a letter, a digit, '.',
 * '_' or '-'. */
bool key_tenant_is_valid(const char *tenant);
/* Creates a random secret for a tenant with a valid name. Errors of getrandom(). */
int key_generate(const char *tenant, struct key *ret_key);
/* Parses a key. White space at the end is ignored. -EINVAL: no valid key; the text of the error
 * does not contain the secret. */
int key_parse(const char *text, struct key *ret_key, struct err *err);
/* Each writes a text to `buffer` and returns `buffer`: key_format() "NAME:hex" (KEY_TEXT_BYTES),
 * key_format_secret() the hex digits alone (KEY_SECRET_TEXT_BYTES). */
const char *key_format(const struct key *key, char *buffer);
const char *key_format_secret(const struct key *key, char *buffer);
/* Overwrites the secret. NULL is fine. */
void key_forget(struct key *key);

/* Reads the key of this process: the variable GRADPOOL_KEY, or the file that GRADPOOL_KEY_FILE
 * names. 1: this process has a key; 0: neither variable is set. -EINVAL (both are set, or the value
 * is no key), -EACCES, -ENOENT, ...: the text names the variable. */
int key_from_environment(struct key *ret_key, struct err *err);

#endif
