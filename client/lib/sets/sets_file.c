/* Reads and writes lines of a file with sets. Bytes of a file never reach an assert. */
#include "client/lib/sets/sets_file.h"

#include "svc/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "gradpool sets 1, "
#define SUM_BYTES 10 /* " #" and 8 digits */

static const char *const reasons[RECORD_REASONS] = {[RECORD_REASON_ALL] = "all",
                                                    [RECORD_REASON_GAIN] = "gain",
                                                    [RECORD_REASON_MOMENT] = "moment",
                                                    [RECORD_REASON_ABSENCE] = "absence",
                                                    [RECORD_REASON_REPLAY] = "replay"};

/* FNV-1a. The multiplication makes each later byte depend on all bytes before. */
static uint64_t sum_of(uint64_t sum, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    return sum ^ bytes;
}

static uint32_t sum_shown(uint64_t sum) { return (uint32_t)(sum ^ sum >> 32); }

/* ---- writing ---- */

/* Appends ranks such as "0-3,5" and returns the number of bytes. */
static size_t sets_write_ranks(char *text, size_t bytes, const uint64_t *ranks)
{
    size_t at = 0;
    for (uint32_t first = 0; first < RANKS_WORDS * 64; first++) {
        uint32_t last = first;
        if (!ranks_have(ranks, first))
            continue;
        while (last + 1 < RANKS_WORDS * 64 && ranks_have(ranks, last + 1))
            last++;
        const char *comma = at > 0 ? "," : "";
        at += (size_t)(last > first ? snprintf(text + at, bytes - at, "%s%u-%u", comma, first, last)
                                    : snprintf(text + at, bytes - at, "%s%u", comma, first));
        first = last;
    }
    return at;
}

static size_t sets_write_fields(const struct sets_line *line, char text[SETS_LINE_BYTES])
{
    uint64_t us = line->ns / NS_PER_US;
    int at = 0;
    switch (line->kind) {
    case SETS_HEAD:
        return (size_t)snprintf(text, SETS_LINE_BYTES, HEAD "%u ranks, %s", line->workers,
                                line->rule);
    case SETS_ROUND:
        at = snprintf(text, SETS_LINE_BYTES, "round %" PRIu64 " %s %" PRIu64 ".%06" PRIu64 " ",
                      line->round, reasons[line->reason], us / 1000000, us % 1000000);
        break;
    case SETS_TOOK: at = snprintf(text, SETS_LINE_BYTES, "took %" PRIu64 " ", line->round); break;
    }
    return (size_t)at + sets_write_ranks(text + at, SETS_LINE_BYTES - (size_t)at, line->ranks);
}

size_t sets_line_write(const struct sets_line *line, uint64_t *sum, char text[SETS_LINE_BYTES])
{
    size_t at = sets_write_fields(line, text);
    *sum = sum_of(*sum, text, at);
    return at +
           (size_t)snprintf(text + at, SETS_LINE_BYTES - at, " #%08" PRIx32 "\n", sum_shown(*sum));
}

/* ---- reading ---- */

/* Reads a decimal number without sign, and moves `*at` behind it. Returns false if there is none,
 * or if the number is above `most`. */
static bool sets_read_number(char **at, uint64_t most, uint64_t *ret_number)
{
    uint64_t number = 0;
    const char *first = *at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (number > (most - digit) / 10)
            return false;
        number = 10 * number + digit;
    }
    *ret_number = number;
    return *at > first;
}

static bool sets_read_word(char **at, const char *word)
{
    size_t bytes = strlen(word);
    if (strncmp(*at, word, bytes) != 0)
        return false;
    *at += bytes;
    return true;
}

static bool sets_read_ranks(char *at, uint64_t *ret_ranks)
{
    uint64_t first, last;
    do {
        if (!sets_read_number(&at, RANKS_WORDS * 64 - 1, &first))
            return false;
        last = first;
        if (sets_read_word(&at, "-") && !sets_read_number(&at, RANKS_WORDS * 64 - 1, &last))
            return false;
        if (first > last)
            return false;
        for (uint64_t rank = first; rank <= last; rank++)
            ranks_add(ret_ranks, (uint32_t)rank);
    } while (sets_read_word(&at, ","));
    return *at == '\0';
}

static bool sets_read_reason(char **at, uint8_t *ret_reason)
{
    for (uint8_t i = 0; i < RECORD_REASONS; i++) {
        if (!sets_read_word(at, reasons[i]))
            continue;
        *ret_reason = i;
        return true;
    }
    return false;
}

static bool sets_read_head(char *at, struct sets_line *line)
{
    uint64_t workers;
    line->kind = SETS_HEAD;
    if (!sets_read_number(&at, RANKS_WORDS * 64, &workers) || !sets_read_word(&at, " ranks, ") ||
        strlen(at) >= sizeof line->rule)
        return false;
    line->workers = (uint32_t)workers;
    snprintf(line->rule, sizeof line->rule, "%s", at);
    return workers > 0;
}

static bool sets_read_round(char *at, struct sets_line *line)
{
    uint64_t seconds, us;
    line->kind = SETS_ROUND;
    bool is_sound = sets_read_number(&at, RECORD_ROUND_MOST, &line->round) &&
                    sets_read_word(&at, " ") && sets_read_reason(&at, &line->reason) &&
                    sets_read_word(&at, " ") && sets_read_number(&at, UINT32_MAX, &seconds) &&
                    sets_read_word(&at, ".") && sets_read_number(&at, 999999, &us) &&
                    sets_read_word(&at, " ");
    if (!is_sound)
        return false;
    line->ns = seconds * NS_PER_S + us * NS_PER_US;
    return sets_read_ranks(at, line->ranks);
}

static bool sets_read_took(char *at, struct sets_line *line)
{
    line->kind = SETS_TOOK;
    return sets_read_number(&at, RECORD_ROUND_MOST, &line->round) && sets_read_word(&at, " ") &&
           sets_read_ranks(at, line->ranks) && ranks_count(line->ranks) == 1;
}

/* Cuts the checksum off, and compares it with the sum of the lines so far. */
static bool sets_read_sum(char *text, uint64_t *sum)
{
    size_t bytes = strlen(text);
    char expected[SUM_BYTES + 1];
    if (bytes < SUM_BYTES)
        return false;
    char *at = text + bytes - SUM_BYTES;
    *sum = sum_of(*sum, text, bytes - SUM_BYTES);
    snprintf(expected, sizeof expected, " #%08" PRIx32, sum_shown(*sum));
    bool is_same = strcmp(at, expected) == 0;
    *at = '\0';
    return is_same;
}

const char *sets_line_read(char *text, uint64_t *sum, struct sets_line *ret_line)
{
    *ret_line = (struct sets_line){.kind = SETS_HEAD};
    if (!sets_read_sum(text, sum))
        return "the checksum differs, so this line or an earlier one was changed";
    bool is_sound = sets_read_word(&text, HEAD)       ? sets_read_head(text, ret_line)
                    : sets_read_word(&text, "round ") ? sets_read_round(text, ret_line)
                    : sets_read_word(&text, "took ")  ? sets_read_took(text, ret_line)
                                                      : false;
    return is_sound ? NULL : "this version has no such line";
}
