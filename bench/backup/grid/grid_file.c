/* Reads a grid. Owns the JSON during the read. Must never use a default for a missing field. The
 * error of a missing field names the field. */
#include "bench/backup/grid/grid_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct reader {
    struct grid *grid;
    char *error;
    int code; /* 0, or the first error */
};

static void __attribute__((format(printf, 2, 3))) fail(struct reader *r, const char *format, ...)
{
    va_list arguments;
    if (r->code < 0)
        return;
    r->code = -EBADMSG;
    va_start(arguments, format);
    vsnprintf(r->error, GRID_FILE_ERROR_BYTES, format, arguments);
    va_end(arguments);
}

static const json_t *member(struct reader *r, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!value)
        fail(r, "the field \"%s\" is missing", name);
    return value;
}

static double number(struct reader *r, const json_t *object, const char *name)
{
    const json_t *value = member(r, object, name);
    if (value && !json_is_number(value))
        fail(r, "the field \"%s\" is not a number", name);
    return json_number_value(value);
}

static uint32_t whole(struct reader *r, const json_t *object, const char *name, uint32_t most)
{
    double value = number(r, object, name);
    if (r->code == 0 && !(value >= 1 && value <= most && value == (uint32_t)value))
        fail(r, "the field \"%s\" is not a whole number from 1 to %u", name, most);
    return r->code == 0 ? (uint32_t)value : 0;
}

static void read_name(struct reader *r, const json_t *text, char ret_name[GRID_NAME_BYTES])
{
    const char *name = json_string_value(text);
    if (!name || strlen(name) >= GRID_NAME_BYTES)
        fail(r, "a name is missing, or longer than %d bytes", GRID_NAME_BYTES - 1);
    else
        snprintf(ret_name, GRID_NAME_BYTES, "%s", name);
}

/* --- problems --- */

static void read_kind(struct reader *r, const json_t *object, struct grid_problem *p)
{
    const char *kind = json_string_value(member(r, object, "kind"));
    if (kind && strcmp(kind, "quadratic") == 0)
        p->kind = PROBLEM_QUADRATIC;
    else if (kind && strcmp(kind, "softmax regression") == 0)
        p->kind = PROBLEM_SOFTMAX;
    else if (kind && strcmp(kind, "MLP 64-24-10") == 0)
        p->kind = PROBLEM_MLP;
    else
        fail(r, "the kind of problem \"%s\" is not known", kind ? kind : "");
}

static void read_problem(struct reader *r, const json_t *object)
{
    struct grid_problem p = {0};
    const json_t *targets = member(r, object, "targets");
    const json_t *falls = json_object_get(object, "rate_times_0_3_from_rounds");
    read_kind(r, object, &p);
    p.rate = number(r, object, "rate");
    if (p.kind == PROBLEM_QUADRATIC)
        p.noise = number(r, object, "noise");
    else
        p.batch = whole(r, object, "batch", 1024);
    if (json_array_size(targets) != GRID_TARGETS)
        fail(r, "a problem has %zu targets, not %d", json_array_size(targets), GRID_TARGETS);
    for (size_t i = 0; i < GRID_TARGETS; i++)
        p.targets[i] = json_number_value(json_array_get(targets, i));
    for (size_t i = 0; i < 2; i++)
        p.falls[i] = (uint32_t)json_integer_value(json_array_get(falls, i));
    if (json_object_get(object, "name"))
        read_name(r, json_object_get(object, "name"), p.name);
    else
        snprintf(p.name, sizeof p.name, "rate %g", p.rate);
    if (r->grid->problems_count == GRID_PROBLEMS_MAX)
        fail(r, "more than %d problems", GRID_PROBLEMS_MAX);
    if (r->code == 0)
        r->grid->problems[r->grid->problems_count++] = p;
}

/* --- step times, by name --- */

static void read_times(struct reader *r, const json_t *text)
{
    struct grid whole_grid;
    char name[GRID_NAME_BYTES] = "";
    double slower = 0;
    read_name(r, text, name);
    char *with = strstr(name, " with ");
    if (with) {
        *with = 0;
        if (sscanf(with + 1, "with %lf instead of", &slower) != 1 || slower < 1)
            fail(r, "the step time \"%s\" has no factor", json_string_value(text));
    }
    grid_whole(&whole_grid);
    const struct grid_times *known = grid_find_times(&whole_grid, name);
    if (!known)
        fail(r, "the step time \"%s\" is not known", name);
    else if (r->grid->times_count == GRID_TIMES_MAX)
        fail(r, "more than %d step times", GRID_TIMES_MAX);
    if (r->code < 0)
        return;
    struct grid_times *times = &r->grid->times[r->grid->times_count++];
    *times = *known;
    if (slower > 0) {
        times->slower = slower;
        snprintf(times->name, sizeof times->name, "half x%g at 80", slower);
    }
}

static void read_step_times(struct reader *r, const json_t *list)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
        read_times(r, json_is_object(item) ? json_object_get(item, "name") : item);
    if (r->grid->times_count == 0)
        fail(r, "the field \"step_times\" is empty");
}

/* --- rules --- */

static void read_rule(struct reader *r, const char *name)
{
    if (r->code == 0 && grid_add_rule(r->grid, name) < 0)
        fail(r, "the rule \"%s\" is not known", name);
}

/* Reads the field "static:K", a list of numbers, and adds one static rule for each number. */
static void read_rules_of(struct reader *r, const char *name, const json_t *list)
{
    const char *mark = strstr(name, ":K");
    char text[2 * GRID_NAME_BYTES];
    size_t i;
    json_t *k;
    json_array_foreach(list, i, k)
    {
        snprintf(text, sizeof text, "%.*s:%d%s", (int)(mark - name), name,
                 (int)json_integer_value(k), mark + 2);
        read_rule(r, text);
    }
}

static void read_rules(struct reader *r, const json_t *rules)
{
    const char *name;
    json_t *rule;
    json_object_foreach((json_t *)rules, name, rule)
    {
        if (strstr(name, ":K"))
            read_rules_of(r, name, json_object_get(rule, "k"));
        else
            read_rule(r, strcmp(name, "auto's numbers, k before") == 0 ? "before" : name);
    }
}

/* --- seeds, stragglers, checks --- */

static void read_seeds(struct reader *r, const json_t *list)
{
    size_t count = json_array_size(list);
    if (count == 0 || count > GRID_SEEDS_MAX)
        fail(r, "the field \"seeds\" has %zu entries, not 1 to %d", count, GRID_SEEDS_MAX);
    for (size_t i = 0; i < count && r->code == 0; i++)
        r->grid->seeds[r->grid->seeds_count++] =
            (uint64_t)json_integer_value(json_array_get(list, i));
}

static void read_straggler(struct reader *r, const char *name)
{
    enum straggler straggler;
    if (grid_straggler_parse(name ? name : "", &straggler) == 0 && r->grid->stragglers_count < 2)
        r->grid->stragglers[r->grid->stragglers_count++] = straggler;
    else if (!name)
        fail(r, "the field \"stragglers\" is missing");
}

/* Returns the text of `rest` before `mark`, and moves `rest` behind the mark; NULL: `rest` does not
 * contain the mark. */
static char *cut(char **rest, const char *mark)
{
    char *piece = *rest, *end = strstr(piece, mark);
    if (!end)
        return NULL;
    *end = 0;
    *rest = end + strlen(mark);
    return piece;
}

/* Parses "problem | times | straggler | rule: rounds N, mean k K, times A, B, C, D". */
static bool parse_check(const char *text, struct grid_check *c)
{
    char copy[GRID_FILE_ERROR_BYTES], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    const char *problem = cut(&rest, " | "), *times = problem ? cut(&rest, " | ") : NULL;
    const char *straggler = times ? cut(&rest, " | ") : NULL;
    const char *rule = straggler ? cut(&rest, ": rounds ") : NULL;
    if (!rule || grid_straggler_parse(straggler, &c->straggler) < 0)
        return false;
    if (strlen(problem) >= GRID_NAME_BYTES || strlen(times) >= GRID_NAME_BYTES ||
        strlen(rule) >= GRID_NAME_BYTES)
        return false;
    memcpy(c->problem, problem, strlen(problem) + 1);
    memcpy(c->times, times, strlen(times) + 1);
    memcpy(c->rule, rule, strlen(rule) + 1);
    return sscanf(rest, "%u, mean k %lf, times %lf, %lf, %lf, %lf", &c->rounds, &c->k_mean,
                  &c->reached[0], &c->reached[1], &c->reached[2], &c->reached[3]) == 6;
}

static void read_check(struct reader *r, const char *text)
{
    struct grid_check check = {0};
    if (!text || !parse_check(text, &check) || r->grid->checks_count == GRID_CHECKS_MAX)
        fail(r, "a check cannot be read: %s", text ? text : "no text");
    else
        r->grid->checks[r->grid->checks_count++] = check;
}

static void read_checks(struct reader *r, const json_t *check)
{
    size_t i;
    json_t *text;
    if (!check)
        return;
    r->grid->check_seed = 2;
    json_array_foreach(member(r, check, "rows"), i, text) read_check(r, json_string_value(text));
}

/* --- the file --- */

static void read_whole(struct reader *r, const json_t *root)
{
    size_t i;
    json_t *problem;
    const char *name;
    json_t *unused;
    r->grid->rounds_max = whole(r, root, "rounds_max", 1000000);
    read_seeds(r, member(r, root, "seeds"));
    json_array_foreach(member(r, root, "problems"), i, problem) read_problem(r, problem);
    read_step_times(r, member(r, root, "step_times"));
    json_object_foreach((json_t *)member(r, root, "stragglers"), name, unused)
        read_straggler(r, name);
    read_rules(r, member(r, root, "rules"));
    read_checks(r, json_object_get(root, "check"));
}

static void read_fast_rate(struct reader *r, const json_t *root)
{
    const json_t *part = member(r, root, "rate_2");
    size_t i;
    json_t *item;
    char text[GRID_NAME_BYTES];
    r->grid->rounds_max = whole(r, part, "rounds_max", 1000000);
    read_seeds(r, member(r, part, "seeds"));
    read_problem(r, member(r, part, "problem"));
    read_step_times(r, member(r, part, "step_times"));
    read_straggler(r, json_string_value(member(r, part, "stragglers")));
    json_array_foreach(member(r, part, "static"), i, item)
    {
        snprintf(text, sizeof text, "static:%d", (int)json_integer_value(item));
        read_rule(r, text);
    }
    json_array_foreach(member(r, part, "rules"), i, item)
        read_rule(r, json_is_string(item) ? json_string_value(item) : "");
}

int grid_file_read(const char *path, bool is_fast_rate, struct grid *ret_grid,
                   char error[GRID_FILE_ERROR_BYTES])
{
    struct grid grid = {0};
    struct reader r = {.grid = &grid, .error = error};
    json_error_t where;
    json_t *root = json_load_file(path, 0, &where);
    if (!root) {
        snprintf(error, GRID_FILE_ERROR_BYTES, "line %d: %s", where.line, where.text);
        return -EBADMSG;
    }
    grid.workers = whole(&r, root, "workers", GRID_WORKERS_MAX);
    grid.time_max = number(&r, root, "time_max");
    grid.time_unreached = number(&r, root, "time_if_not_reached");
    if (is_fast_rate)
        read_fast_rate(&r, root);
    else
        read_whole(&r, root);
    json_decref(root);
    if (r.code == 0)
        *ret_grid = grid;
    return r.code;
}
