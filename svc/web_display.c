/* Ties svc/ops/web.h to svc/coordinator/display.h: each knows its own half only (G1). */
#include "svc/web_display.h"
#include "svc/base/log.h"
#include "svc/ops/web.h"

static uint64_t run(void *web) { return web_run(web); }
static void show(void *web, envelope *status, envelope *jobs) { web_show(web, status, jobs); }
static void destroy(void *web) { web_destroy(web); }

int web_display_open(const char *address, struct display *ret_display, struct err *err)
{
    struct web *web;
    int error = web_create(address, GRADPOOL_VERSION, &web, err);
    if (error < 0)
        return error;
    log_info("metrics and report on %s/metrics and %s/report", web_url(web), web_url(web));
    if (!web_is_loopback(web))
        log_warn("--http: whoever reaches %s can read the names and figures of all jobs",
                 web_url(web));
    *ret_display = (struct display){
        .context = web, .fd = web_fd(web), .run = run, .show = show, .destroy = destroy};
    return 0;
}
