/* Parts of report pages. Owns the style of the pages. Every name is escaped, and a page refers to
 * nothing outside itself (O9). */
#include "svc/ops/report/page.h"
#include "svc/ops/report/chart.h"

#include <inttypes.h>
#include <string.h>

#define NAME_BYTES 40 /* maximum bytes of a name on one line */

static const char before_title[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    "<meta name=\"color-scheme\" content=\"light dark\">"
    "<link rel=\"icon\" href=\"data:,\">";

static const char style[] =
    "<style>\n"
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
    /* Labels are larger on narrow screens, because the picture is scaled down there. */
    "@media(max-width:36rem){svg{font-size:17px;overflow:visible}}\n"
    ".line.dedicated{stroke:var(--dedicated);stroke-dasharray:6 5}.line.allocated{"
    "stroke:var(--allocated)}.line.used{stroke:var(--used)}\n"
    ".key{display:inline-block;width:1.2rem;height:.25rem;margin:0 .4rem .2rem 0}"
    ".key.dedicated{background:var(--dedicated)}.key.allocated{background:var(--allocated)}"
    ".key.used{background:var(--used)}.legend span{margin-right:1.2rem;white-space:nowrap}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{text-align:right;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--rule);"
    "white-space:nowrap}th{color:var(--quiet);font-weight:500}"
    "th.name,td.name{text-align:left}"
    ".long{width:18rem;white-space:normal;overflow-wrap:anywhere}\n"
    ".bar{display:block;height:.7rem;min-width:1px;background:var(--used)}td.bars{width:14rem}\n"
    "</style></head><body>\n";

const double page_loss_ends[] = {0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5};

void page_begin(const char *title, FILE *out)
{
    fputs(before_title, out);
    fputs("<title>", out);
    page_text(title, out);
    fputs("</title>", out);
    fputs(style, out);
}

void page_end(FILE *out) { fputs("</body></html>\n", out); }

void page_text(const char *text, FILE *out)
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

void page_cell(const char *text, bool is_name, FILE *out)
{
    fputs(is_name ? "<td class=\"name\">" : "<td>", out);
    page_text(text, out);
    fputs("</td>", out);
}

void page_name(const char *name, FILE *out)
{
    if (strlen(name) <= NAME_BYTES)
        return page_cell(name, true, out);
    fputs("<td class=\"name\"><div class=\"long\">", out);
    page_text(name, out);
    fputs("</div></td>", out);
}

void page_number(uint64_t number, FILE *out) { fprintf(out, "<td>%" PRIu64 "</td>", number); }

void page_figure(enum figure_unit unit, double value, FILE *out)
{
    char text[FIGURE_BYTES];
    page_cell(figure_text(unit, value, text), false, out);
}

void page_tile(const char *name, enum figure_unit unit, double value, FILE *out)
{
    char text[FIGURE_BYTES];
    fprintf(out, "<div><dt>%s</dt><dd id=\"%s\">%s</dd></div>", name, name,
            figure_text(unit, value, text));
}

/* --- sections --- */

void page_cores_over_time(const struct view_moment *moments, size_t count, FILE *out)
{
    fputs("<h2>Cores over time</h2>\n<p class=\"legend\">"
          "<span><i class=\"key dedicated\"></i>dedicated servers</span> "
          "<span><i class=\"key allocated\"></i>allocated</span> "
          "<span><i class=\"key used\"></i>used</span></p>\n",
          out);
    page_chart(moments, count, out);
}

void page_count_losses(const double *losses, size_t count, size_t ret_jobs[PAGE_LOSS_BINS])
{
    for (size_t bin = 0; bin < PAGE_LOSS_BINS; bin++)
        ret_jobs[bin] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bin = 0;
        while (bin + 1 < PAGE_LOSS_BINS && losses[i] >= page_loss_ends[bin])
            bin++;
        ret_jobs[bin]++;
    }
}

static void print_bin(size_t bin, size_t jobs, size_t most, FILE *out)
{
    fputs("<tr><td class=\"name\">", out);
    if (bin == 0)
        fputs("gained", out);
    else if (bin + 1 == PAGE_LOSS_BINS)
        fprintf(out, "%g %% and more", 100 * page_loss_ends[bin - 1]);
    else
        fprintf(out, "%g to %g %%", 100 * page_loss_ends[bin - 1], 100 * page_loss_ends[bin]);
    fprintf(out,
            "</td><td id=\"losses-%zu\">%zu</td><td class=\"bars\"><i class=\"bar\" "
            "style=\"width:%.1f%%\"></i></td></tr>\n",
            bin, jobs, 100 * (double)jobs / (double)most);
}

void page_losses(const double *losses, size_t count, FILE *out)
{
    size_t jobs[PAGE_LOSS_BINS], most = 1;
    fputs("<h2>Losses of jobs</h2>\n", out);
    if (count == 0) {
        fputs("<p class=\"quiet\">No loss is known yet.</p>\n", out);
        return;
    }
    page_count_losses(losses, count, jobs);
    for (size_t bin = 0; bin < PAGE_LOSS_BINS; bin++)
        most = jobs[bin] > most ? jobs[bin] : most;
    fputs("<div class=\"wide\"><table id=\"losses\"><thead><tr><th class=\"name\">loss</th>"
          "<th>jobs</th><th></th></tr></thead><tbody>\n",
          out);
    for (size_t bin = 0; bin < PAGE_LOSS_BINS; bin++)
        print_bin(bin, jobs[bin], most, out);
    fputs("</tbody></table></div>\n", out);
}

void page_events(const struct view_event *events, size_t count, FILE *out)
{
    fputs("<h2>Moves and growth</h2>\n", out);
    if (count == 0) {
        fputs("<p class=\"quiet\">No move and no growth is known.</p>\n", out);
        return;
    }
    fputs("<div class=\"wide\"><table id=\"events\"><thead><tr><th>at</th>"
          "<th class=\"name\">what</th><th class=\"name\">why</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<tr><td>%.0f s</td>", events[i].at_s);
        page_cell(events[i].kind, true, out);
        page_cell(events[i].text, true, out);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

void page_facts(const char *title, const struct view_fact *facts, size_t count, FILE *out)
{
    fprintf(out, "<h2>%s</h2>\n<div class=\"wide\"><table id=\"facts\"><tbody>\n", title);
    for (size_t i = 0; i < count; i++) {
        fputs("<tr>", out);
        page_cell(facts[i].name, true, out);
        page_cell(facts[i].value, true, out);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* Writes JSON into a script element. The JSON cannot end the element, because "<" occurs only in
 * its strings, where it is escaped. */
void page_data(const char *json, FILE *out)
{
    fputs("<script type=\"application/json\" id=\"data\">\n", out);
    for (; *json; json++) {
        if (*json == '<')
            fputs("\\u003c", out);
        else
            fputc(*json, out);
    }
    fputs("</script>\n", out);
}
