/* Parses and writes lists of cores. A user writes the text, so every mistake results in an error
 * text with its cause and the available cores, never in a failed assert. */
#include "svc/host/cores_list.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define NUMBER_DIGITS_MAX 9 /* every number of so many digits fits into 32 bits */

struct selection {
    const char *list;
    const struct core *cores;
    size_t count;
    bool *chosen;
    struct err *err;
};

static int malformed(const struct selection *s, const char *at)
{
    int bytes = (int)strcspn(at, ",");
    return err_set(s->err, -EINVAL,
                   "core list \"%s\": \"%.*s\" is not a core or a range of cores; write 0-3,8",
                   s->list, bytes, at);
}

static int not_ours(const struct selection *s, uint32_t index)
{
    char ours[128];
    return err_set(s->err, -EINVAL,
                   "core list \"%s\": this process may not use core %u; it may use %s", s->list,
                   index, cores_list_format(s->cores, s->count, ours, sizeof(ours)));
}

static int choose(const struct selection *s, uint32_t index)
{
    size_t i = 0;
    while (i < s->count && s->cores[i].index != index)
        i++;
    if (i == s->count)
        return not_ours(s, index);
    if (s->chosen[i])
        return err_set(s->err, -EINVAL,
                       "core list \"%s\": core %u is listed twice; list each core once", s->list,
                       index);
    s->chosen[i] = true;
    return 0;
}

/* Parses digits, without sign or blanks. Returns NULL if there is no number at `text`. */
static const char *read_number(const char *text, uint32_t *ret_number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > NUMBER_DIGITS_MAX)
        return NULL;
    uint32_t number = 0;
    for (size_t i = 0; i < digits; i++)
        number = number * 10 + (uint32_t)(text[i] - '0');
    *ret_number = number;
    return text + digits;
}

/* Parses one "3" or "3-5", and advances `at`. */
static int choose_range(const struct selection *s, const char **at)
{
    uint32_t first, last;
    const char *p = read_number(*at, &first);
    if (!p)
        return malformed(s, *at);
    last = first;
    if (*p == '-')
        p = read_number(p + 1, &last);
    if (!p || (*p != '\0' && *p != ',') || last < first)
        return malformed(s, *at);
    /* The first core that may not be used ends the loop, so a huge range costs nothing. */
    for (uint32_t index = first; index <= last; index++) {
        int error = choose(s, index);
        if (error < 0)
            return error;
    }
    *at = p;
    return 0;
}

static int choose_all(const struct selection *s)
{
    for (const char *at = s->list;; at++) {
        int error = choose_range(s, &at);
        if (error < 0)
            return error;
        if (*at == '\0')
            return 0;
    }
}

int cores_list_narrow(const char *list, struct core *cores, size_t *count, struct err *err)
{
    _cleanup_free_ bool *chosen = calloc(*count ? *count : 1, sizeof(*chosen));
    if (!chosen)
        return err_set(err, -ENOMEM, "this process has no memory for a core list");
    struct selection s = {list, cores, *count, chosen, err};
    int error = choose_all(&s);
    if (error < 0)
        return error;
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (chosen[i])
            cores[kept++] = cores[i];
    *count = kept;
    return 0;
}

const char *cores_list_format(const struct core *cores, size_t count, char *buffer,
                              size_t buffer_bytes)
{
    buffer[0] = '\0';
    for (size_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && cores[i + run].index == cores[i].index + run;)
            run++;
        const char *comma = i > 0 ? "," : "";
        if (run == 1)
            text_append(buffer, buffer_bytes, "%s%u", comma, cores[i].index);
        else
            text_append(buffer, buffer_bytes, "%s%u-%u", comma, cores[i].index,
                        cores[i + run - 1].index);
    }
    return buffer;
}
