/* `gradpool --check-build` and `gradpool doctor`, as text and as JSON. */
#include "svc/base/text.h"
#include "svc/ops/json_put.h"
#include "svc/ops/ops.h"
#include "svc/ops/table.h"

#include <errno.h>
#include <stdbool.h>

static int print_libraries(const struct view_build *build, FILE *out)
{
    static const char *const titles[] = {"LIBRARY", "BUILT AGAINST", "RUNNING WITH", NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < build->libraries_count; i++) {
        const struct view_library *l = &build->libraries[i];
        table_add(&table, "%s", l->name);
        table_add(&table, "%s", *l->built ? l->built : "-");
        table_add(&table, "%s", *l->running ? l->running : "-");
    }
    return table_print(&table, out);
}

static int print_abilities(const char *title, const struct view_ability *list, size_t count,
                           FILE *out)
{
    const char *const titles[] = {title, "AVAILABLE", "", NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < count; i++) {
        table_add(&table, "%s", list[i].name);
        table_add(&table, "%s", list[i].is_there ? "yes" : "no");
        table_add(&table, "%s", list[i].text);
    }
    fputc('\n', out);
    return table_print(&table, out);
}

int ops_build_text(const struct view_build *build, FILE *out)
{
    fprintf(out, "gradpool %s, commit %s, protocol %u, compiled by %s\n\n", build->version,
            build->commit, build->protocol, build->compiler);
    int error = print_libraries(build, out);
    if (error == 0)
        error = print_abilities("KERNELS", build->kernels, build->kernels_count, out);
    return error < 0 ? error : print_abilities("FABRIC", build->fabrics, build->fabrics_count, out);
}

static json_t *libraries_json(const struct view_build *build, int *error)
{
    json_t *list = json_array();
    for (size_t i = 0; i < build->libraries_count; i++) {
        json_t *o = json_object();
        json_put_text(o, "library", build->libraries[i].name, error);
        json_put_text(o, "built", build->libraries[i].built, error);
        json_put_text(o, "running", build->libraries[i].running, error);
        json_put_last(list, o, error);
    }
    return list;
}

static json_t *abilities_json(const char *what, const struct view_ability *abilities, size_t count,
                              int *error)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *o = json_object();
        json_put_text(o, what, abilities[i].name, error);
        json_put(o, "is_there", json_boolean(abilities[i].is_there), error);
        json_put_text(o, "text", abilities[i].text, error);
        json_put_last(list, o, error);
    }
    return list;
}

int ops_build_json(const struct view_build *build, FILE *out)
{
    int error = 0;
    json_t *o = json_object();
    json_put_text(o, "version", build->version, &error);
    json_put_text(o, "commit", build->commit, &error);
    json_put_text(o, "compiler", build->compiler, &error);
    json_put_number(o, "protocol", build->protocol, &error);
    json_put(o, "libraries", libraries_json(build, &error), &error);
    json_put_text(o, "best_kernels", build->best_kernels, &error);
    json_put(o, "kernels", abilities_json("kernels", build->kernels, build->kernels_count, &error),
             &error);
    json_put(o, "fabrics", abilities_json("fabric", build->fabrics, build->fabrics_count, &error),
             &error);
    return json_put_out(o, error, out);
}

static const char *verdict_name(enum view_verdict verdict)
{
    static const char *const names[] = {
        [VIEW_OK] = "ok", [VIEW_WARN] = "warn", [VIEW_FAIL] = "fail"};
    return names[verdict];
}

static enum view_verdict worst(const struct view_checks *checks)
{
    enum view_verdict verdict = VIEW_OK;
    for (size_t i = 0; i < checks->count; i++)
        if (checks->list[i].verdict > verdict)
            verdict = checks->list[i].verdict;
    return verdict;
}

/* Texts come from services and interpreters, too. */
static void print_line(const char *before, const char *text, FILE *out)
{
    char line[VIEW_CHECK_BYTES];
    snprintf(line, sizeof line, "%s", text);
    text_disarm(line);
    fprintf(out, "%s%s\n", before, line);
}

int ops_checks_text(const struct view_checks *checks, FILE *out)
{
    for (size_t i = 0; i < checks->count; i++) {
        const struct view_check *c = &checks->list[i];
        fprintf(out, "%-4s  %-10s  ", verdict_name(c->verdict), c->name);
        print_line("", c->text, out);
        if (*c->advice)
            print_line("                  -> ", c->advice, out);
    }
    return ferror(out) ? -EIO : 0;
}

int ops_checks_json(const struct view_checks *checks, FILE *out)
{
    int error = 0;
    json_t *o = json_object(), *list = json_array();
    json_put_text(o, "verdict", verdict_name(worst(checks)), &error);
    for (size_t i = 0; i < checks->count; i++) {
        const struct view_check *c = &checks->list[i];
        json_t *check = json_object();
        json_put_text(check, "check", c->name, &error);
        json_put_text(check, "verdict", verdict_name(c->verdict), &error);
        json_put_text(check, "text", c->text, &error);
        if (*c->advice)
            json_put_text(check, "advice", c->advice, &error);
        json_put_last(list, check, &error);
    }
    json_put(o, "checks", list, &error);
    return json_put_out(o, error, out);
}
