/* Parts of lines of Prometheus' text format. Owns no state. */
#include "svc/ops/web/metrics_line.h"

void metrics_family(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP gradpool_%s %s\n# TYPE gradpool_%s %s\n", name, help, name, type);
}

/* The format requires escapes for backslash, quote and line feed. */
void metrics_label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", out);
        else if (*value == '\\' || *value == '"')
            fprintf(out, "\\%c", *value);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

void metrics_job_labels(FILE *out, const struct view_job *job)
{
    metrics_label(out, "tenant", job->tenant ? job->tenant : "");
    fputc(',', out);
    metrics_label(out, "job", job->job);
}
