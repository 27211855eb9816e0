/* Fuzzes a configuration file. Either the file is refused, with a line and a printable reason. Or
 * its values are written and read again, which gives the same values. */
#include "svc/cli/cli.h"
#include "svc/cli/options/config.h"
#include "svc/cli/options/options.h"
#include "test/lib/fuzz.h"

#include "svc/base/text.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATH "gradpool.conf"

struct reading {
    struct cli_serve serve;
    struct cli_aggregator aggregator;
    struct config_value values[2][KNOBS_MAX];
};

static int parse_bytes(void *bytes, size_t count, struct reading *ret_reading, struct err *err)
{
    const struct config_part parts[] = {
        {&serve_command, &ret_reading->serve, ret_reading->values[0]},
        {&aggregator_command, &ret_reading->aggregator, ret_reading->values[1]}};
    memset(ret_reading, 0, sizeof *ret_reading);
    FILE *stream = fmemopen(bytes, count, "r");
    assert(stream);
    int error = config_parse(stream, PATH, parts, 2, err);
    fclose(stream);
    return error;
}

static void check_refusal(int error, const struct err *err)
{
    unsigned line;
    char text[ERR_TEXT_BYTES];
    int read = 0;
    assert(error == -EINVAL && err->code == error);
    assert(sscanf(err->text, PATH ":%u: %n", &line, &read) == 1 && line > 0);
    assert(read > 0 && err->text[read] != '\0');
    snprintf(text, sizeof text, "%s", err->text);
    text_disarm(text);
    assert(strcmp(text, err->text) == 0);
}

static void write_values(const struct reading *r, FILE *out)
{
    const struct knob_command *const commands[] = {&serve_command, &aggregator_command};
    for (int c = 0; c < 2; c++) {
        fprintf(out, "[%s]\n", commands[c]->part);
        for (int i = 0; commands[c]->knobs[i].name; i++) {
            const struct config_value *value = &r->values[c][i];
            if (!value->text)
                continue;
            assert(config_can_hold(commands[c]->knobs[i].name, value->text));
            fprintf(out, "%s = %s\n", commands[c]->knobs[i].name, value->text);
        }
    }
}

static void check_round_trip(const struct reading *before)
{
    static struct reading again;
    struct err err;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert(out);
    write_values(before, out);
    fclose(out);
    int error = parse_bytes(text, bytes, &again, &err);
    assert(error == 0);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < KNOBS_MAX; i++) {
            const char *was = before->values[c][i].text, *is = again.values[c][i].text;
            assert(!was == !is && (!was || strcmp(was, is) == 0));
        }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct reading reading;
    struct err err = {0};
    if (bytes == 0)
        return 0;
    uint8_t *exact = malloc(bytes);
    assert(exact);
    memcpy(exact, data, bytes);
    int error = parse_bytes(exact, bytes, &reading, &err);
    if (error < 0)
        check_refusal(error, &err);
    else
        check_round_trip(&reading);
    free(exact);
    return 0;
}
