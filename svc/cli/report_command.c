/* gradpool report: cores that the service owns, uses and saves. The service creates the page or the
 * JSON. The command never deletes the file of --output, which may be a device. */
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OUTPUT = OPERATOR_KNOBS };

const struct knob report_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "JSON instead of a page"},
    [OUTPUT] = {"output", "FILE", "file that is written (default: standard output)"},
    {0},
};

struct report {
    struct operator_options options;
    const char *output; /* NULL: standard output */
};

static int set(void *context, int index, const char *value, struct err *err)
{
    struct report *r = context;
    if (index < OPERATOR_KNOBS)
        return operator_set(&r->options, index, value, err);
    r->output = value;
    return 0;
}

static int write_to(FILE *out, const ProtobufCBinaryData *text)
{
    fwrite(text->data, 1, text->len, out);
    return fflush(out) == EOF || ferror(out) ? -EIO : 0;
}

static int write_file(const char *path, const ProtobufCBinaryData *text)
{
    FILE *out = fopen(path, "we");
    if (!out)
        return -errno;
    int error = write_to(out, text);
    return fclose(out) == EOF ? -EIO : error;
}

static int deliver(envelope **reply, const void *context)
{
    const struct report *r = context;
    const ProtobufCBinaryData *text = &(*reply)->report_reply->text;
    int error = r->output ? write_file(r->output, text) : write_to(stdout, text);
    /* cli_main() reports errors of standard output */
    if (error < 0 && r->output)
        fprintf(stderr, "gradpool: %s cannot be written: %s; choose another file with --output\n",
                r->output, strerror(-error));
    return error < 0 ? CLI_FAILED : CLI_OK;
}

int cli_report(int argc, char **argv)
{
    static const struct knob_command command = {
        .name = "gradpool report",
        .knobs = report_knobs,
        .set = set,
        .before = "Writes the cores that the service has allocated, uses and saves, now and "
                  "since its start, as one HTML page without other files, or as JSON. The report "
                  "shows the jobs of all tenants, so the command runs on the service's host, or "
                  "with the key of an operator.",
        .after = "Examples:\n  gradpool report --output report.html\n  gradpool report --json\n\n"
                 "Exit code: 0 written; 1 failed; 2 a mistake on the command line; 3 no service "
                 "there."};
    struct report r = {.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT}};
    knobs_parse(&command, argc, argv, &r);
    return operator_show(&r.options,
                         &MESSAGE(0, REPORT_REQUEST, report_request, .json = r.options.json),
                         GRADPOOL__WIRE__ENVELOPE__BODY_REPORT_REPLY, deliver, &r);
}
