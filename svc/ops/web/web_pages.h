/* Answers of the web server: pages of the newest snapshot. web.c limits the connections. */
#ifndef GRADPOOL_OPS_WEB_WEB_PAGES_H
#define GRADPOOL_OPS_WEB_WEB_PAGES_H

#include "svc/channel/channel.h"

#include <microhttpd.h>
#include <stdbool.h>

struct web_pages;

int web_pages_create(const char *version, struct web_pages **ret_pages);
void web_pages_destroy(struct web_pages *w); /* NULL is allowed. */
/* Sets the snapshot for all pages. Owns both replies, even after an error. If memory is missing,
 * the former snapshot is kept. */
void web_pages_show(struct web_pages *w, envelope *status, envelope *jobs);
/* Writes the text of /report or /report.json; the caller frees it. Returns 0, -ENOMEM, or -ENODATA
 * if there is no snapshot yet. */
int web_pages_report(const struct web_pages *w, bool is_json, char **ret_text, size_t *ret_bytes);
/* Answers a request. After MHD_NO, libmicrohttpd closes the connection. */
enum MHD_Result web_pages_answer(struct web_pages *w, struct MHD_Connection *connection,
                                 const char *method, const char *path);

#endif
