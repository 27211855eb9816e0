/* Results of `gradpool doctor`, as text and as JSON. */
#include "svc/base/text.h"
#include "svc/ops/answer/answer.h"
#include "svc/ops/json/json_put.h"

#include <errno.h>

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

/* Prints a text without control bytes. The text may come from a service or an interpreter. */
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
