/* The service over HTTP, read-only: /metrics, /report, /report.json and /healthz. All pages show
 * the newest snapshot. The caller waits for one descriptor and calls web_run(). The server has no
 * thread and never blocks. README: O7 to O9. */
#ifndef GRADPOOL_OPS_WEB_WEB_H
#define GRADPOOL_OPS_WEB_WEB_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"

#include <stdbool.h>

#define WEB_CONNECTIONS_MAX 64
#define WEB_REQUEST_BYTES_MAX 8192 /* maximum bytes of request line and headers */
#define WEB_SEND_BYTES (128 << 10) /* send buffer of a connection; the kernel uses twice as much */
#define WEB_DEADLINE_MS 10000      /* time from accept to the last byte of the answer */
#define WEB_CROWDED_MS 250         /* deadline while other connections wait to be accepted */

struct web;

/* Listens on "ADDRESS:PORT". Port 0: any free port. `address` NULL: does not listen; only
 * web_show() and web_report() are used. `version` must outlive the server. Returns 0, -EINVAL (the
 * text shows the expected form), -EADDRINUSE, -EADDRNOTAVAIL, -EACCES or -ENOMEM. */
int web_create(const char *address, const char *version, struct web **ret_web, struct err *err);
void web_destroy(struct web *web); /* NULL is allowed. */
/* Returns the URL of the server, such as "http://127.0.0.1:7078", or "" if it does not listen. */
const char *web_url(const struct web *web);
/* Returns whether only this host can connect to the server. */
bool web_is_loopback(const struct web *web);

/* Returns a descriptor that is readable when web_run() has work, or -1 if the server does not
 * listen. */
int web_fd(const struct web *web);
/* Serves all connections without blocking. Returns the time of the next call; UINT64_MAX: the next
 * call is due when web_fd() is readable. */
uint64_t web_run(struct web *web);
/* Sets the snapshot for all pages. Owns both replies, even after an error. */
void web_show(struct web *web, envelope *status, envelope *jobs);
/* Writes the text of /report or /report.json; the caller frees it. Returns 0, -ENOMEM, or -ENODATA
 * if there is no snapshot yet. */
int web_report(const struct web *web, bool is_json, char **ret_text, size_t *ret_bytes);

#endif
