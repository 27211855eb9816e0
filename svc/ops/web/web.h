/* The service over HTTP, for reading only: /metrics, /report, /report.json and /healthz, all of the
 * newest snapshot. Driven from outside: one descriptor, no thread, no wait. README: O7 to O9. */
#ifndef GRADPOOL_OPS_WEB_WEB_H
#define GRADPOOL_OPS_WEB_WEB_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"

#include <stdbool.h>

#define WEB_CONNECTIONS_MAX 64
#define WEB_REQUEST_BYTES_MAX 8192 /* request line and headers */
#define WEB_SEND_BYTES (128 << 10) /* of an answer, in the kernel; it takes twice that */
#define WEB_DEADLINE_MS 10000      /* from accept to the last byte of the answer */
#define WEB_CROWDED_MS 250         /* the same, while others wait for a place */

struct web;

/* Listens on "ADDRESS:PORT"; port 0: any free one; NULL: nowhere, for web_show() and web_report()
 * alone. `version` is kept. -EINVAL with a text that says
 * what was expected, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENOMEM. */
int web_create(const char *address, const char *version, struct web **ret_web, struct err *err);
void web_destroy(struct web *web); /* NULL is fine */
/* "http://127.0.0.1:7078"; "": it listens nowhere */
const char *web_url(const struct web *web);
/* Whether only this host can reach it. */
bool web_is_loopback(const struct web *web);

/* Readable: web_run() has something to do; -1: it listens nowhere. */
int web_fd(const struct web *web);
/* Accepts, reads, answers, lets go; never waits. Returns when it wants to be called at the latest;
 * UINT64_MAX: when there is something to read. */
uint64_t web_run(struct web *web);
/* This is the service from now on. Takes over both replies, always. */
void web_show(struct web *web, envelope *status, envelope *jobs);
/* What /report or /report.json answers now; the caller frees the text. -ENODATA: nothing was shown
 * yet, -ENOMEM. */
int web_report(const struct web *web, bool is_json, char **ret_text, size_t *ret_bytes);

#endif
