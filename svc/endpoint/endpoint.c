/* Parses and writes the text that names a coordinator. Owns nothing, and uses no network. The text
 * of an error contains the expected forms. */
#include "svc/endpoint/endpoint.h"

#include "svc/base/text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FORMS "gradpool://HOST:PORT, gradpool://[IPv6]:PORT or gradpool+unix:///PATH"

/* --- parsing --------------------------------------------------------------------------------- */

/* Returns the part of `text` after `prefix`, or NULL if `text` does not begin with it. */
static const char *after(const char *text, const char *prefix)
{
    size_t bytes = strlen(prefix);
    return strncmp(text, prefix, bytes) == 0 ? text + bytes : NULL;
}

static int parse_path(const char *text, const char *path, struct endpoint *e, struct err *err)
{
    size_t path_bytes_max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
    if (path[0] != '/')
        return err_set(err, -EINVAL,
                       "endpoint '%.100s': the path of a Unix socket must be absolute, as in "
                       "gradpool+unix:///run/gradpool.sock",
                       text);
    if (strlen(path) > path_bytes_max)
        return err_set(err, -EINVAL,
                       "endpoint with a path of %zu bytes: a Unix socket's path has "
                       "at most %zu; choose a shorter one",
                       strlen(path), path_bytes_max);
    e->is_unix = true;
    snprintf(e->host, sizeof(e->host), "%s", path);
    return 0;
}

static int parse_port(const char *text, const char *port, struct endpoint *e, struct err *err)
{
    uint64_t number;
    if (text_parse_u64(port, 0, UINT16_MAX, &number) < 0)
        return err_set(err, -EINVAL,
                       "endpoint '%.100s': expected a port from 0 to 65535, got "
                       "'%.20s'",
                       text, port);
    e->port = (uint16_t)number;
    return 0;
}

/* Copies the host. Returns false if the text cannot be a host name, so that the error is detected
 * before a lookup. */
static bool take_host(const char *host, size_t bytes, bool is_v6, struct endpoint *e)
{
    if (bytes == 0 || bytes >= sizeof(e->host))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)host[i]) && !strchr(is_v6 ? ":.%-_" : ".-_", host[i]))
            return false;
    memcpy(e->host, host, bytes);
    e->host[bytes] = '\0';
    struct in6_addr ignored;
    char bare[sizeof(e->host)];
    snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(e->host, "%"), e->host);
    return !is_v6 || inet_pton(AF_INET6, bare, &ignored) == 1;
}

static int parse_host_port(const char *text, const char *rest, struct endpoint *e, struct err *err)
{
    bool is_v6 = rest[0] == '[';
    const char *host = rest + is_v6;
    size_t host_bytes = strcspn(host, is_v6 ? "]" : ":");
    const char *tail = host + host_bytes;
    if (is_v6 && *tail == ']')
        tail++;
    else if (is_v6)
        return err_set(err, -EINVAL,
                       "endpoint '%.100s': the character '[' has no ']'; write an IPv6 address as "
                       "in gradpool://[::1]:7077",
                       text);
    if (!is_v6 && *tail == ':' && strchr(tail + 1, ':'))
        return err_set(
            err, -EINVAL,
            "endpoint '%.100s': write an IPv6 address in brackets, as in gradpool://[::1]:%d", text,
            ENDPOINT_PORT_DEFAULT);
    if ((*tail != '\0' && *tail != ':') || !take_host(host, host_bytes, is_v6, e))
        return err_set(err, -EINVAL, "endpoint '%.100s': expected " FORMS, text);
    e->port = ENDPOINT_PORT_DEFAULT;
    return *tail == ':' ? parse_port(text, tail + 1, e, err) : 0;
}

int endpoint_parse(const char *text, struct endpoint *ret_endpoint, struct err *err)
{
    struct endpoint e = {0};
    const char *rest;
    int error;
    if (text[0] == '/')
        error = parse_path(text, text, &e, err);
    else if ((rest = after(text, "gradpool+unix://")) || (rest = after(text, "unix:")))
        error = parse_path(text, rest, &e, err);
    else if ((rest = after(text, "gradpool://")))
        error = parse_host_port(text, rest, &e, err);
    else if (strstr(text, "://"))
        error = err_set(err, -EINVAL, "endpoint '%.100s': expected " FORMS, text);
    else
        error = parse_host_port(text, text, &e, err);
    if (error == 0)
        *ret_endpoint = e;
    return error;
}

const char *endpoint_format(const struct endpoint *e, char *buffer, size_t buffer_bytes)
{
    if (e->is_unix)
        snprintf(buffer, buffer_bytes, "gradpool+unix://%s", e->host);
    else if (strchr(e->host, ':'))
        snprintf(buffer, buffer_bytes, "gradpool://[%s]:%u", e->host, e->port);
    else
        snprintf(buffer, buffer_bytes, "gradpool://%s:%u", e->host, e->port);
    return buffer;
}

bool endpoint_is_loopback(const struct endpoint *e)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (e->is_unix || strcasecmp(e->host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, e->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, e->host, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}
