/* Parses arguments of options, for all commands of gradpool-bench. */
#include "bench/commands.h"

#include "svc/base/text.h"

uint64_t command_number(struct argp_state *state, const char *text, uint64_t least, uint64_t most)
{
    uint64_t value = 0;
    if (text_parse_u64(text, least, most, &value) < 0)
        argp_error(state, "'%s' is not a whole number from %llu to %llu", text,
                   (unsigned long long)least, (unsigned long long)most);
    return value;
}
