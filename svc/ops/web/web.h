/* The service over HTTP, for reading only: /metrics, /report, /report.json and /healthz. All show
 * the newest snapshot. The caller drives the server through one descriptor; the server has no
 * thread and never waits. README: O7 to O9. */
#ifndef GRADPOOL_OPS_WEB_WEB_H
#define GRADPOOL_OPS_WEB_WEB_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"

#include <stdbool.h>

#define WEB_CONNECTIONS_MAX 64
#define WEB_REQUEST_BYTES_MAX 8192 /* maximum bytes of request line and headers */
#define WEB_SEND_BYTES (128 << 10) /* send buffer of a connection; the kernel uses twice as much */
#define WEB_DEADLINE_MS 10000      /* time from accept to the last byte of the answer */
#define WEB_CROWDED_MS 250         /* the same time while other connections wait for a place */

struct web;

/* Listens on "ADDRESS:PORT". Port 0: any free port. NULL: the server does not listen, and is used
 * for web_show() and web_report() only. `version` must exist as long as the server. -EINVAL: the
 * text shows the expected form; -EADDRINUSE; -EADDRNOTAVAIL; -EACCES; -ENOMEM. */
int web_create(const char *address, const char *version, struct web **ret_web, struct err *err);
void web_destroy(struct web *web); /* NULL is fine. */
/* Returns the URL of the server, such as "http://127.0.0.1:7078"; "": it does not listen. */
const char *web_url(const struct web *web);
/* Returns whether only this host can reach the server. */
bool web_is_loopback(const struct web *web);

/* Returns a descriptor that is readable when web_run() has work; -1: the server does not listen. */
int web_fd(const struct web *web);
/* Serves all connections without waiting. Returns the time by which it has to be called again;
 * UINT64_MAX: when web_fd() is readable. */
uint64_t web_run(struct web *web);
/* Sets the snapshot that pages show from now on. Owns both replies, even after an error. */
void web_show(struct web *web, envelope *status, envelope *jobs);
/* Returns the text of /report or /report.json; the caller frees it. -ENODATA: no snapshot yet;
 * -ENOMEM. */
int web_report(const struct web *web, bool is_json, char **ret_text, size_t *ret_bytes);

#endif
