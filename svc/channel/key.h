/* Pre-shared key of a tenant: 256 random bits. Its text is "NAME:" followed by 64 hexadecimal
 * digits. */
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

/* Finds the server's key of a tenant. Returns 0, -ENOENT if there is no key, or -EKEYREVOKED. */
typedef int (*key_find_fn)(void *context, const char *tenant, struct key *ret_key);

/* Returns whether the name has 1 to KEY_TENANT_BYTES_MAX characters, each a letter, a digit, '.',
 * '_' or '-'. */
bool key_tenant_is_valid(const char *tenant);
/* Creates a random secret for a tenant with a valid name. Returns 0 or an error of getrandom(). */
int key_generate(const char *tenant, struct key *ret_key);
/* Parses a key. White space at the end is ignored. Returns 0, or -EINVAL; the error's text does not
 * contain the secret. */
int key_parse(const char *text, struct key *ret_key, struct err *err);
/* Both write a text to `buffer` and return `buffer`. key_format() writes "NAME:hex"
 * (KEY_TEXT_BYTES), key_format_secret() only the hexadecimal digits (KEY_SECRET_TEXT_BYTES). */
const char *key_format(const struct key *key, char *buffer);
const char *key_format_secret(const struct key *key, char *buffer);
/* Overwrites the secret. NULL is allowed. */
void key_forget(struct key *key);

/* Reads the key of this process from the variable GRADPOOL_KEY, or from the file that
 * GRADPOOL_KEY_FILE names. Returns 1 if there is a key, 0 if neither variable is set, or an error;
 * its text names the variable. -EINVAL: both are set, or the value is no key. -EACCES, -ENOENT and
 * others: the file cannot be read. */
int key_from_environment(struct key *ret_key, struct err *err);

#endif
