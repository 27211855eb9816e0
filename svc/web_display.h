/* The web server (svc/ops) as a display of the coordinator, which knows nothing of it. */
#ifndef GRADPOOL_WEB_DISPLAY_H
#define GRADPOOL_WEB_DISPLAY_H

#include "svc/base/err.h"
#include "svc/coordinator/view/display.h"

/* Listens on "ADDRESS:PORT"; NULL: nowhere, and only reports are made. Errors as web_create(). */
int web_display_open(const char *address, struct display *ret_display, struct err *err);

#endif
