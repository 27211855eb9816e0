/* Options of commands that measure part by part: --quick, --json, --part NAME, --seed N. */
#ifndef GRADPOOL_BENCH_LIB_PARTS_H
#define GRADPOOL_BENCH_LIB_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARTS_ALL SIZE_MAX

/* Texts of a command for --help, and the names of its parts, at least two. */
struct parts_command {
    const char *about; /* description of the command */
    const char *quick; /* nouns of which a run with --quick has few, such as "steps" */
    const char *seed;  /* nouns that are drawn from the seed */
    const char *const *names;
    size_t count;
};

struct parts_options {
    bool is_quick, is_json;
    uint64_t seed; /* 0 to UINT32_MAX; 1 without the option */
    size_t part;   /* index of the only part that is measured; PARTS_ALL: all parts */
};

/* Parses the command line. Ends the program with a text after a mistake, or after --help. */
void parts_parse(const struct parts_command *command, int argc, char **argv,
                 struct parts_options *ret_options);
/* Returns whether the part with this index is measured. */
static inline bool parts_have(const struct parts_options *options, size_t part)
{
    return options->part == PARTS_ALL || options->part == part;
}

#endif
