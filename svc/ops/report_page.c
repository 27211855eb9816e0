/* The report as one HTML page: text, tables and one chart. No script; nothing is loaded from
 * anywhere. Names come from users: each goes through escape(). */
#include "svc/base/text.h"
#include "svc/ops/figures.h"
#include "svc/ops/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    "<meta name=\"color-scheme\" content=\"light dark\">"
    "<link rel=\"icon\" href=\"data:,\">"
    "<title>gradpool report</title><style>\n"
    ":root{--ink:#1b1f24;--quiet:#5d6672;--rule:#d9dee4;--ground:#fff;--dedicated:#8a4b08;"
    "--allocated:#1f6fd0;--used:#0d8a5f}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--quiet:#9aa4b1;--rule:#363d47;"
    "--ground:#14171b;--dedicated:#e2a05a;--allocated:#6fa8f5;--used:#4fce9e}}\n"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--ground);"
    "max-width:72rem;margin:0 auto;padding:1rem}\n"
    "h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}\n"
    "p{margin:.2rem 0}.quiet{color:var(--quiet)}\n"
    "dl{display:flex;flex-wrap:wrap;gap:.6rem 2rem;margin:1rem 0}dt{color:var(--quiet)}"
    "dd{margin:0;font-size:1.5rem;font-variant-numeric:tabular-nums}\n"
    "svg{display:block;width:100%;max-width:60rem;font-size:12px}svg text{fill:var(--quiet)}"
    ".grid{stroke:var(--rule)}.line{fill:none;stroke-width:2.5;stroke-linecap:round;"
    "stroke-linejoin:round}\n"
    ".line.dedicated{stroke:var(--dedicated);stroke-dasharray:6 5}.line.allocated{"
    "stroke:var(--allocated)}.line.used{stroke:var(--used)}\n"
    ".key{display:inline-block;width:1.2rem;height:.25rem;margin:0 .4rem .2rem 0}"
    ".key.dedicated{background:var(--dedicated)}.key.allocated{background:var(--allocated)}"
    ".key.used{background:var(--used)}.legend span{margin-right:1.2rem;white-space:nowrap}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{text-align:right;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--rule);"
    "white-space:nowrap}th{color:var(--quiet);font-weight:500}"
    "th.name,td.name{text-align:left}\n"
    "</style></head><body>\n";

static void escape(const char *text, FILE *out)
{
    for (; text && *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default: fputc(*text, out);
        }
    }
}

static void cell(const char *text, bool is_name, FILE *out)
{
    fputs(is_name ? "<td class=\"name\">" : "<td>", out);
    escape(text, out);
    fputs("</td>", out);
}

static void number_cell(uint64_t number, FILE *out)
{
    fprintf(out, "<td>%" PRIu64 "</td>", number);
}

static void figure_cell(enum figure_unit unit, double value, FILE *out)
{
    char text[FIGURE_BYTES];
    cell(figure_text(unit, value, text), false, out);
}

static void tile(const char *name, enum figure_unit unit, double value, FILE *out)
{
    char text[FIGURE_BYTES];
    fprintf(out, "<div><dt>%s</dt><dd id=\"%s\">%s</dd></div>", name, name,
            figure_text(unit, value, text));
}

static void print_cores(const struct view_cores *c, FILE *out)
{
    double saved = c->dedicated - c->allocated;
    fputs("<dl>", out);
    tile("allocated", FIGURE_COUNT, c->allocated, out);
    tile("used", FIGURE_CORES, c->used, out);
    tile("dedicated", FIGURE_COUNT, c->dedicated, out);
    tile("saved", FIGURE_COUNT, saved, out);
    if (c->dedicated > 0)
        tile("saving", FIGURE_RATIO, saved / c->dedicated, out);
    fputs("</dl>\n<p class=\"quiet\">Cores. Dedicated: what the jobs would hold with servers of "
          "their own, one a worker.</p>\n",
          out);
}

static void print_history(const struct history *history, FILE *out)
{
    fputs("<h2>Cores over time</h2>\n<p class=\"legend\">"
          "<span><i class=\"key dedicated\"></i>dedicated servers</span>"
          "<span><i class=\"key allocated\"></i>allocated</span>"
          "<span><i class=\"key used\"></i>used</span></p>\n",
          out);
    report_chart(history, out);
}

static void print_lane(const struct snapshot *s, const struct view_aggregator *a,
                       const struct view_lane *lane, FILE *out)
{
    char text[SHARES_BYTES];
    fputs("<tr>", out);
    number_cell(lane->lane, out);
    cell(a->node, true, out);
    number_cell(lane->core, out);
    cell(lane_state_text(a, lane), true, out);
    figure_cell(FIGURE_RATIO, lane->rate.cores, out);
    figure_cell(FIGURE_COUNT, lane->rate.rounds_per_s, out);
    figure_cell(FIGURE_BYTES_PER_S, lane->rate.bytes_per_s, out);
    cell(text_bytes(lane->arena_bytes, text, sizeof text), false, out);
    number_cell(lane->tasks, out);
    cell(shares_text(s, lane, text), true, out);
    fputs("</tr>\n", out);
}

static void print_lanes(const struct snapshot *s, FILE *out)
{
    fputs("<h2>Lanes</h2>\n<div class=\"wide\"><table id=\"lanes\"><thead><tr><th>lane</th>"
          "<th class=\"name\">node</th><th>core</th><th class=\"name\">state</th><th>busy</th>"
          "<th>rounds/s</th><th>in/s</th><th>memory</th><th>tasks</th>"
          "<th class=\"name\">shares of jobs</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < s->status.aggregators_count; i++) {
        const struct view_aggregator *a = &s->status.aggregators[i];
        for (size_t j = 0; j < a->lanes_count; j++)
            print_lane(s, a, &a->lanes[j], out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void print_job(const struct snapshot *s, const struct view_job *job, FILE *out)
{
    char label[JOB_LABEL_BYTES];
    fputs("<tr>", out);
    cell(job_label(job, label), true, out);
    cell(job->state, true, out);
    for (const struct figure *f = job_figures; f->name; f++)
        if (figure_is_known(f, &s->jobs))
            figure_cell(f->unit, f->value(job), out);
    fputs("</tr>\n", out);
}

static void print_jobs(const struct snapshot *s, FILE *out)
{
    fputs("<h2>Jobs</h2>\n", out);
    if (s->jobs.jobs_count == 0) {
        fputs("<p class=\"quiet\">None.</p>\n", out);
        return;
    }
    fputs("<div class=\"wide\"><table id=\"jobs\"><thead><tr><th class=\"name\">job</th>"
          "<th class=\"name\">state</th>",
          out);
    for (const struct figure *f = job_figures; f->name; f++) {
        if (!figure_is_known(f, &s->jobs))
            continue;
        fputs("<th title=\"", out);
        escape(f->help, out);
        fputs("\">", out);
        for (const char *c = f->title; *c; c++)
            fputc(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c, out);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (size_t i = 0; i < s->jobs.jobs_count; i++)
        print_job(s, &s->jobs.jobs[i], out);
    fputs("</tbody></table></div>\n", out);
}

int report_page(const struct snapshot *s, const struct history *history, FILE *out)
{
    uint64_t up_s = s->status.uptime_ns / UINT64_C(1000000000);
    fputs(head, out);
    fputs("<h1>gradpool</h1>\n<p class=\"quiet\">", out);
    escape(s->status.endpoint, out);
    fprintf(out, " · up %" PRIu64 ":%02u:%02u · policy ", up_s / 3600, (unsigned)(up_s / 60 % 60),
            (unsigned)(up_s % 60));
    escape(s->status.policy, out);
    fputs("</p>\n", out);
    print_cores(&s->cores, out);
    print_history(history, out);
    print_lanes(s, out);
    print_jobs(s, out);
    fputs("</body></html>\n", out);
    return ferror(out) ? -EIO : 0;
}
