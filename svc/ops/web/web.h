/* The service over HTTP, for reading only: /metrics, /report, /report.json and /healthz, all of the
 * newest snapshot. Driven from outside: one descriptor, no thread, no wait. README: O7 to O9. */
#ifndef GRADPOOL_OPS_WEB_WEB_H
#define GRADPOOL_OPS_WEB_WEB_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"

#include <stdbool.h>

#define WEB_CONNECTIONS_MAX 64
#define WEB_REQUEST_BYTES_MAX 8192 /* request line and headers */
#define WEB_SEND_BYTES (128 << 10) /* send buffer of a connection; the kernel takes twice as much */
#define WEB_DEADLINE_MS 10000      /* from accept to the last byte of the answer */
#define WEB_CROWDED_MS 250         /* the same, while other connections wait for a place */

struct web;

/* Listens on "ADDRESS:PORT"; port 0: any free one; NULL: no listening, for web_show() and
 * web_report() only. `version` is lent for the server's life. -EINVAL with a text that shows the
 * expected form, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENOMEM. */
int web_create(const char *address, const char *version, struct web **ret_web, struct err *err);
void web_destroy(struct web *web); /* NULL is fine */
/* URL of the server, such as "http://127.0.0.1:7078"; "": not listening. */
const char *web_url(const struct web *web);
/* True when only this host can reach the server. */
bool web_is_loopback(const struct web *web);

/* Readable when web_run() has work; -1: not listening. */
int web_fd(const struct web *web);
/* Serves all connections without waiting. Returns the latest time of the next call; UINT64_MAX:
 * call when web_fd() is readable. */
uint64_t web_run(struct web *web);
/* Sets the snapshot that pages show from now on. Takes over both replies, also after a failure. */
void web_show(struct web *web, envelope *status, envelope *jobs);
/* The text of /report or /report.json; the caller frees it. -ENODATA: no snapshot so far;
 * -ENOMEM. */
int web_report(const struct web *web, bool is_json, char **ret_text, size_t *ret_bytes);

#endif
