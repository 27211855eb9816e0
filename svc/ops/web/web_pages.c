/* Pages of the newest snapshot. A page is created at the first request after a new snapshot. All
 * readers receive the same bytes, so CPU time and memory do not depend on the number of readers
 * (O8). Owns the snapshot, the history and the answers. Only method and path of a request are used
 * (O9). */
#include "svc/ops/web/web_pages.h"

#include "svc/ops/report/report.h"
#include "svc/ops/snapshot/history.h"
#include "svc/ops/web/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT "text/plain; charset=utf-8"
#define HTML "text/html; charset=utf-8"
#define REFRESH_S "5" /* seconds after which a browser reloads the page */
/* Content-Security-Policy: the page loads, runs and sends nothing, and must not be embedded in
 * another page. */
#define POLICY                                                                               \
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; " \
    "base-uri 'none'; form-action 'none'"

enum page { PAGE_METRICS, PAGE_REPORT, PAGE_JSON, PAGE_HEALTH, PAGES };

struct web_pages {
    const char *version;
    struct snapshot *now; /* NULL: no snapshot yet */
    struct history history;
    /* answers that were created from `now`; NULL: the page was not requested yet */
    struct MHD_Response *made[PAGES];
    struct MHD_Response *not_yet, *not_here, *not_so;
};

/* --- pages --- */

static int make_metrics(const struct web_pages *w, FILE *out)
{
    return metrics_print(w->now, w->version, out);
}

static int make_report(const struct web_pages *w, FILE *out)
{
    return report_page(w->now, &w->history, out);
}

static int make_json(const struct web_pages *w, FILE *out)
{
    return report_json(w->now, &w->history, out);
}

static bool is_healthy(const struct snapshot *s)
{
    for (size_t i = 0; i < s->status.aggregators_count; i++)
        if (strcmp(s->status.aggregators[i].state, "up") != 0)
            return false;
    return s->lanes_count > 0;
}

static int make_health(const struct web_pages *w, FILE *out)
{
    if (is_healthy(w->now))
        fputs("ok\n", out);
    for (size_t i = 0; i < w->now->status.aggregators_count; i++) {
        const struct view_aggregator *a = &w->now->status.aggregators[i];
        if (strcmp(a->state, "up") != 0)
            fprintf(out, "aggregator %u is %s\n", a->aggregator, a->state);
    }
    if (w->now->lanes_count == 0)
        fputs("there are no lanes\n", out);
    return 0;
}

static const struct {
    const char *path, *type;
    int (*make)(const struct web_pages *w, FILE *out);
} pages[PAGES] = {
    [PAGE_METRICS] = {"/metrics", "text/plain; version=0.0.4; charset=utf-8", make_metrics},
    [PAGE_REPORT] = {"/report", HTML, make_report},
    [PAGE_JSON] = {"/report.json", "application/json", make_json},
    [PAGE_HEALTH] = {"/healthz", TEXT, make_health},
};

/* --- answers --- */

/* Creates an answer, which owns `body`. Returns NULL if memory is missing. */
static struct MHD_Response *make_answer(char *body, size_t bytes, const char *type)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(body);
        return NULL;
    }
    bool whole = MHD_add_response_header(r, "Content-Type", type) == MHD_YES &&
                 MHD_add_response_header(r, "Connection", "close") == MHD_YES &&
                 MHD_add_response_header(r, "Cache-Control", "no-store") == MHD_YES &&
                 MHD_add_response_header(r, "Content-Security-Policy", POLICY) == MHD_YES &&
                 MHD_add_response_header(r, "X-Content-Type-Options", "nosniff") == MHD_YES;
    if (whole)
        return r;
    MHD_destroy_response(r);
    return NULL;
}

static struct MHD_Response *make_text(const char *text)
{
    char *copy = strdup(text);
    return copy ? make_answer(copy, strlen(copy), TEXT) : NULL;
}

static void forget(struct MHD_Response **answer)
{
    if (*answer)
        MHD_destroy_response(*answer);
    *answer = NULL;
}

static int print_page(const struct web_pages *w, enum page page, char **ret_text, size_t *ret_bytes)
{
    char *body = NULL;
    size_t bytes;
    FILE *out = open_memstream(&body, &bytes);
    if (!out)
        return -ENOMEM;
    int error = pages[page].make(w, out);
    if (fclose(out) != 0 || error < 0) {
        free(body);
        return -ENOMEM; /* writing to a stream in memory can only fail for lack of memory */
    }
    *ret_text = body;
    *ret_bytes = bytes;
    return 0;
}

static struct MHD_Response *make_page(const struct web_pages *w, enum page page)
{
    char *body;
    size_t bytes;
    if (print_page(w, page, &body, &bytes) < 0)
        return NULL;
    struct MHD_Response *answer = make_answer(body, bytes, pages[page].type);
    if (answer && page == PAGE_REPORT &&
        MHD_add_response_header(answer, "Refresh", REFRESH_S) != MHD_YES)
        forget(&answer);
    return answer;
}

int web_pages_report(const struct web_pages *w, bool is_json, char **ret_text, size_t *ret_bytes)
{
    return w->now ? print_page(w, is_json ? PAGE_JSON : PAGE_REPORT, ret_text, ret_bytes)
                  : -ENODATA;
}

/* --- life --- */

int web_pages_create(const char *version, struct web_pages **ret_pages)
{
    struct web_pages *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->version = version;
    w->not_yet = make_text("the service is starting, and has no data yet; try again\n");
    w->not_here = make_text("no such page; the pages are /metrics, /report, /report.json and "
                            "/healthz\n");
    w->not_so = make_text("the method is not allowed; use GET or HEAD, because the pages are "
                          "read-only\n");
    if (!w->not_yet || !w->not_here || !w->not_so ||
        MHD_add_response_header(w->not_so, "Allow", "GET, HEAD") != MHD_YES) {
        web_pages_destroy(w);
        return -ENOMEM;
    }
    *ret_pages = w;
    return 0;
}

void web_pages_destroy(struct web_pages *w)
{
    if (!w)
        return;
    for (int i = 0; i < PAGES; i++)
        forget(&w->made[i]);
    forget(&w->not_yet);
    forget(&w->not_here);
    forget(&w->not_so);
    snapshot_destroy(w->now);
    free(w);
}

void web_pages_show(struct web_pages *w, envelope *status, envelope *jobs)
{
    struct snapshot *now;
    if (!status || !jobs || snapshot_create(status, jobs, &now) < 0) {
        gradpool__wire__envelope__free_unpacked(status, NULL);
        gradpool__wire__envelope__free_unpacked(jobs, NULL);
        return;
    }
    snapshot_compare(w->now, now);
    history_add(&w->history, (double)now->status.uptime_ns / 1e9, &now->cores);
    ended_look(&w->history.ended, w->now, now);
    snapshot_destroy(w->now);
    w->now = now;
    for (int i = 0; i < PAGES; i++)
        forget(&w->made[i]); /* a connection that still sends the answer has its own reference */
}

static int find_page(const char *path)
{
    if (strcmp(path, "/") == 0)
        return PAGE_REPORT;
    for (int i = 0; i < PAGES; i++)
        if (strcmp(path, pages[i].path) == 0)
            return i;
    return -ENOENT;
}

enum MHD_Result web_pages_answer(struct web_pages *w, struct MHD_Connection *connection,
                                 const char *method, const char *path)
{
    int page = find_page(path);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return MHD_queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, w->not_so);
    if (page < 0)
        return MHD_queue_response(connection, MHD_HTTP_NOT_FOUND, w->not_here);
    if (!w->now)
        return MHD_queue_response(connection, MHD_HTTP_SERVICE_UNAVAILABLE, w->not_yet);
    if (!w->made[page])
        w->made[page] = make_page(w, page);
    if (!w->made[page])
        return MHD_NO;
    bool is_well = page != PAGE_HEALTH || is_healthy(w->now);
    return MHD_queue_response(connection, is_well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE,
                              w->made[page]);
}
