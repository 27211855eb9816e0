/* What the web server answers: pages of the newest snapshot. Part of web.c, which says for whom. */
#ifndef GRADPOOL_OPS_WEB_WEB_PAGES_H
#define GRADPOOL_OPS_WEB_WEB_PAGES_H

#include "svc/channel/channel.h"

#include <microhttpd.h>
#include <stdbool.h>

struct web_pages;

int web_pages_create(const char *version, struct web_pages **ret_pages);
void web_pages_destroy(struct web_pages *w); /* NULL is fine */
/* Takes over both replies, always. Without memory the old snapshot stays. */
void web_pages_show(struct web_pages *w, envelope *status, envelope *jobs);
/* -ENODATA: nothing was shown yet; -ENOMEM. The caller frees the text. */
int web_pages_report(const struct web_pages *w, bool is_json, char **ret_text, size_t *ret_bytes);
/* MHD_NO: the connection is to be closed. */
enum MHD_Result web_pages_answer(struct web_pages *w, struct MHD_Connection *connection,
                                 const char *method, const char *path);

#endif
