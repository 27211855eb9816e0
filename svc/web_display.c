/* Connects svc/ops/web/web.h to svc/coordinator/view/display.h; neither includes the other (G1). */
#include "svc/web_display.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/ops/web/web.h"

/* Time between two updates of the state, if only `gradpool report` reads the state. */
#define UNSEEN_NS (5 * NS_PER_S)

static uint64_t run(void *web) { return web_run(web); }
static void show(void *web, envelope *status, envelope *jobs) { web_show(web, status, jobs); }
static void destroy(void *web) { web_destroy(web); }

static int report(void *web, bool is_json, char **ret_text, size_t *ret_bytes)
{
    return web_report(web, is_json, ret_text, ret_bytes);
}

int web_display_open(const char *address, struct display *ret_display, struct err *err)
{
    struct web *web;
    int error = web_create(address, GRADPOOL_VERSION, &web, err);
    if (error < 0)
        return error;
    if (address)
        log_info("the web server shows metrics on %s/metrics and a report on %s/report",
                 web_url(web), web_url(web));
    if (address && !web_is_loopback(web))
        log_warn("--http: everybody who reaches %s can read the names and figures of all jobs; use "
                 "127.0.0.1, or protect the port",
                 web_url(web));
    *ret_display = (struct display){.context = web,
                                    .period_ns = address ? NS_PER_S : UNSEEN_NS,
                                    .fd = web_fd(web),
                                    .run = run,
                                    .show = show,
                                    .report = report,
                                    .destroy = destroy};
    return 0;
}
