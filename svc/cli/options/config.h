/* The configuration file: [serve] and [aggregator] with options as keys. inih reads the syntax;
 * here are the checks that make each mistake an error with its line. */
#ifndef GRADPOOL_CLI_OPTIONS_CONFIG_H
#define GRADPOOL_CLI_OPTIONS_CONFIG_H

#include "svc/base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct knob_command;

#define CONFIG_FILE_PRESET "/etc/gradpool/gradpool.conf"
#define CONFIG_LINE_BYTES 198 /* longest line that inih reads, its end aside, and a zero */
#define CONFIG_ORIGIN_BYTES (PATH_MAX + 16)

enum config_origin { CONFIG_UNSET, CONFIG_PRESET, CONFIG_FILE, CONFIG_VARIABLE, CONFIG_LINE };

struct config_value {
    const char *text; /* NULL: never set */
    enum config_origin origin;
    unsigned line;                /* of the file */
    char kept[CONFIG_LINE_BYTES]; /* `text` of the file */
};

/* One section of the file, and where its values go. */
struct config_part {
    const struct knob_command *command;
    void *options;
    struct config_value *values; /* by index of the knob */
};

/* Reads and checks the whole file. -ENOENT: there is none. A file that others than root and this
 * user may write is refused: the writer would rule the service. */
int config_read(const char *path, const struct config_part *parts, size_t parts_count,
                struct err *err);
/* The same of an open file; `path` is for the texts. */
int config_parse(FILE *stream, const char *path, const struct config_part *parts,
                 size_t parts_count, struct err *err);

/* Whether KEY = VALUE on a line of the file gives this value. */
bool config_can_hold(const char *name, const char *value);
/* "default", "/etc/gradpool/gradpool.conf:7", "GRADPOOL_CORES" or "--cores". */
void config_origin(const char *path, const char *name, const struct config_value *value,
                   char *buffer, size_t buffer_bytes);

#endif
