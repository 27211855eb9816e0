/* The web server (svc/ops) as a display of the coordinator, which does not include svc/ops. */
#ifndef GRADPOOL_WEB_DISPLAY_H
#define GRADPOOL_WEB_DISPLAY_H

#include "svc/base/err.h"
#include "svc/coordinator/view/display.h"

/* Listens on "ADDRESS:PORT", or creates only reports if `address` is NULL. Returns 0 or an error of
 * web_create(). */
int web_display_open(const char *address, struct display *ret_display, struct err *err);

#endif
