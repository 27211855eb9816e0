/* Configuration file: the options are keys in its sections [serve] and [aggregator]. The library
 * inih parses the syntax. The checks here report each mistake with its line. */
#ifndef GRADPOOL_CLI_OPTIONS_CONFIG_H
#define GRADPOOL_CLI_OPTIONS_CONFIG_H

#include "svc/base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct knob_command;

#define CONFIG_FILE_PRESET "/etc/gradpool/gradpool.conf"
#define CONFIG_LINE_BYTES 198 /* longest line that inih reads, without line end and terminator */
#define CONFIG_ORIGIN_BYTES (PATH_MAX + 16)

enum config_origin { CONFIG_UNSET, CONFIG_PRESET, CONFIG_FILE, CONFIG_VARIABLE, CONFIG_LINE };

struct config_value {
    const char *text; /* NULL: the file has no such key */
    enum config_origin origin;
    unsigned line;                /* line in the file */
    char kept[CONFIG_LINE_BYTES]; /* buffer for `text` if the file has the key */
};

/* One section of the file, and where its values are stored. */
struct config_part {
    const struct knob_command *command;
    void *options;
    struct config_value *values; /* one value for each knob, at the knob's index */
};

/* Reads and checks the whole file. Returns 0, -ENOENT if there is no file, or another negative
 * errno. A file is refused if users other than root and this user may write it, because such a user
 * could control the service. */
int config_read(const char *path, const struct config_part *parts, size_t parts_count,
                struct err *err);
/* Like config_read(), for an open file. `path` is for error texts. */
int config_parse(FILE *stream, const char *path, const struct config_part *parts,
                 size_t parts_count, struct err *err);

/* Returns whether a line KEY = VALUE of the file can express this value. */
bool config_can_hold(const char *name, const char *value);
/* Writes where a value was set: "default", "/etc/gradpool/gradpool.conf:7", "GRADPOOL_CORES" or
 * "--cores". */
void config_origin(const char *path, const char *name, const struct config_value *value,
                   char *buffer, size_t buffer_bytes);

#endif
