/* The web server (svc/ops) as a display of the coordinator, which does not include svc/ops. */
#ifndef GRADPOOL_WEB_DISPLAY_H
#define GRADPOOL_WEB_DISPLAY_H

#include "svc/base/err.h"
#include "svc/coordinator/view/display.h"

/* Listens on "ADDRESS:PORT"; NULL: not listening, reports only. Errors of web_create(). */
int web_display_open(const char *address, struct display *ret_display, struct err *err);

#endif
