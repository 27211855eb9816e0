/* Converts a key to text and back, and finds the key of this process. Owns nothing. Errors and log
 * lines never contain a secret (README, T5). */
#include "svc/channel/key.h"

#include "svc/base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define FORM "NAME:SECRET, as `gradpool tenant add NAME` prints it"

bool key_tenant_is_valid(const char *tenant)
{
    size_t bytes = strlen(tenant);
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)tenant[i]) && !strchr("._-", tenant[i]))
            return false;
    return bytes >= 1 && bytes <= KEY_TENANT_BYTES_MAX;
}

int key_generate(const char *tenant, struct key *ret_key)
{
    struct key key = {0};
    snprintf(key.tenant, sizeof key.tenant, "%s", tenant);
    if (getrandom(key.secret, sizeof key.secret, 0) < 0)
        return -errno;
    *ret_key = key;
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int parse_secret(const char *text, uint8_t *ret_secret)
{
    for (size_t i = 0; i < KEY_SECRET_BYTES; i++) {
        int high = hex_digit(text[2 * i]);
        int low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (low < 0)
            return -EINVAL;
        ret_secret[i] = (uint8_t)(high << 4 | low);
    }
    return text[strspn(text + 2 * KEY_SECRET_BYTES, " \t\r\n") + 2 * KEY_SECRET_BYTES] == '\0'
               ? 0
               : -EINVAL;
}

int key_parse(const char *text, struct key *ret_key, struct err *err)
{
    struct key key = {0};
    size_t name_bytes = strcspn(text, ":");
    if (text[name_bytes] != ':' || name_bytes > KEY_TENANT_BYTES_MAX)
        return err_set(err, -EINVAL, "expected a key like " FORM);
    memcpy(key.tenant, text, name_bytes);
    if (!key_tenant_is_valid(key.tenant))
        return err_set(err, -EINVAL,
                       "the name in a key has letters, digits, '.', '_', '-'; expected " FORM);
    if (parse_secret(text + name_bytes + 1, key.secret) < 0)
        return err_set(err, -EINVAL,
                       "key of tenant %s: its secret has %d hex digits; expected " FORM, key.tenant,
                       2 * KEY_SECRET_BYTES);
    *ret_key = key;
    key_forget(&key);
    return 0;
}

const char *key_format_secret(const struct key *key, char *buffer)
{
    for (size_t i = 0; i < KEY_SECRET_BYTES; i++)
        snprintf(buffer + 2 * i, 3, "%02x", key->secret[i]);
    return buffer;
}

const char *key_format(const struct key *key, char *buffer)
{
    int used = snprintf(buffer, KEY_TEXT_BYTES, "%s:", key->tenant);
    key_format_secret(key, buffer + used);
    return buffer;
}

void key_forget(struct key *key)
{
    if (key)
        explicit_bzero(key->secret, sizeof key->secret);
}

static int key_read(int fd, struct key *ret_key, struct err *err)
{
    char text[2 * KEY_TEXT_BYTES] = "";
    ssize_t got = read(fd, text, sizeof text - 1);
    if (got < 0)
        return err_set(err, -errno, "the key file cannot be read: %s; correct the path",
                       err_text(-errno));
    int error = key_parse(text, ret_key, err);
    explicit_bzero(text, sizeof text);
    return error;
}

/* Reads a key from a file. A file that other users can read is refused, because its key is not
 * secret. */
static int key_load(const char *path, struct key *ret_key, struct err *err)
{
    struct stat status;
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return err_set(err, -errno,
                       "the key file cannot be opened: %s; correct the path, or the "
                       "file's mode",
                       err_text(-errno));
    if (status.st_mode & (S_IWGRP | S_IROTH | S_IWOTH))
        return err_set(err, -EACCES,
                       "the key file has mode %04o, so other users can read or write the file; run "
                       "chmod 600 on the file",
                       status.st_mode & 07777);
    return key_read(fd, ret_key, err);
}

int key_from_environment(struct key *ret_key, struct err *err)
{
    const char *text = getenv("GRADPOOL_KEY"), *path = getenv("GRADPOOL_KEY_FILE");
    bool has_text = text && *text, has_path = path && *path;
    struct err inner = {0};
    if (has_text && has_path)
        return err_set(err, -EINVAL, "GRADPOOL_KEY and GRADPOOL_KEY_FILE are both set; keep one");
    if (!has_text && !has_path)
        return 0;
    int error = has_text ? key_parse(text, ret_key, &inner) : key_load(path, ret_key, &inner);
    if (error == 0)
        return 1;
    if (has_text)
        return err_set(err, error, "GRADPOOL_KEY: %s", inner.text);
    return err_set(err, error, "GRADPOOL_KEY_FILE=%.200s: %s", path, inner.text);
}
