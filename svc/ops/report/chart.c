/* Cores over time as inline SVG: dedicated, allocated, used. The page sets the colors. Labels do
 * not overlap at any width, because the whole picture is scaled. */
#include "svc/ops/report/chart.h"
#include "svc/ops/report/page.h"

#include <math.h>
#include <stdbool.h>

#define WIDTH 640.0
#define HEIGHT 240.0
#define LEFT 44.0
#define RIGHT 12.0
#define TOP 12.0
#define BOTTOM 26.0
#define TICKS_MAX 6

struct scale {
    double x_max, y_max, y_step;
};

static double x_of(const struct scale *scale, double at_s)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * at_s / scale->x_max;
}

static double y_of(const struct scale *scale, double cores)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * cores / scale->y_max;
}

/* Returns the distance between two ticks: 1, 2 or 5 times a power of ten, chosen so that at most
 * TICKS_MAX ticks are needed up to `most`. */
static double step_for(double most)
{
    double unit = pow(10, floor(log10(most / TICKS_MAX)));
    for (double times = 1;; times = times == 2 ? 5 : 2 * times)
        if (times * unit * TICKS_MAX >= most)
            return times * unit;
}

static struct scale scale_of(const struct view_moment *moments, size_t count)
{
    double most = 1;
    for (size_t i = 0; i < count; i++) {
        const struct view_cores *c = &moments[i].cores;
        most = fmax(most, fmax(c->dedicated, fmax(c->allocated, isnan(c->used) ? 0 : c->used)));
    }
    struct scale scale = {.y_step = step_for(most)};
    scale.y_max = scale.y_step * ceil(most / scale.y_step);
    scale.x_max = count > 0 ? fmax(moments[count - 1].at_s, 1) : 1;
    return scale;
}

static void print_duration(double seconds, FILE *out)
{
    unsigned long s = (unsigned long)seconds;
    if (s >= 3600)
        fprintf(out, "%luh%02lum", s / 3600, s / 60 % 60);
    else if (s >= 60)
        fprintf(out, "%lum%02lus", s / 60, s % 60);
    else
        fprintf(out, "%lus", s);
}

static void print_axes(const struct scale *scale, FILE *out)
{
    for (int i = 0; i * scale->y_step <= scale->y_max * 1.001; i++) {
        double y = y_of(scale, i * scale->y_step);
        fprintf(out,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, i * scale->y_step);
    }
    static const char *const anchors[] = {"start", "middle", "end"};
    for (int i = 0; i < 3; i++) {
        double at_s = scale->x_max * i / 2;
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x_of(scale, at_s),
                HEIGHT - 6, anchors[i]);
        print_duration(at_s, out);
        fputs("</text>\n", out);
    }
}

static double dedicated(const struct view_cores *c) { return c->dedicated; }
static double allocated(const struct view_cores *c) { return c->allocated; }
static double used(const struct view_cores *c) { return c->used; }

/* Draws steps, because the number of cores changes abruptly between two samples. An unknown value
 * is a gap. */
static void print_line(const struct view_moment *moments, size_t count, const struct scale *scale,
                       const char *name, double (*value)(const struct view_cores *c), FILE *out)
{
    bool is_down = false;
    fprintf(out, "<path class=\"line %s\" d=\"", name);
    for (size_t i = 0; i < count; i++) {
        double y = value(&moments[i].cores), x = x_of(scale, moments[i].at_s);
        if (!isnan(y) && is_down)
            fprintf(out, "H%.1fV%.1fH%.1f", (x_of(scale, moments[i - 1].at_s) + x) / 2,
                    y_of(scale, y), x);
        else if (!isnan(y))
            /* a sample between two gaps is drawn as a dot */
            fprintf(out, "M%.1f %.1fh0", x, y_of(scale, y));
        is_down = !isnan(y);
    }
    fputs("\"/>\n", out);
}

void page_chart(const struct view_moment *moments, size_t count, FILE *out)
{
    struct scale scale = scale_of(moments, count);
    fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"Cores over time\">\n",
            WIDTH, HEIGHT);
    print_axes(&scale, out);
    print_line(moments, count, &scale, "dedicated", dedicated, out);
    print_line(moments, count, &scale, "allocated", allocated, out);
    print_line(moments, count, &scale, "used", used, out);
    fputs("</svg>\n", out);
}
