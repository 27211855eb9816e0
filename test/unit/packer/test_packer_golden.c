/* Compares placements of ten real models with test/golden/packer/. After an intended change,
 * `test_packer_golden --update` writes the files again. The diff then needs a review. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packer/packer.h"
#include "svc/base/hash.h"

#define LANES_MAX 8
#define TENSORS_MAX 1024
#define LINES_OF_PLAN 6
#define LINES_OF_DIFF 20

struct model {
    const char *name;
    struct packer_tensor tensors[TENSORS_MAX];
    size_t tensors_count;
    uint64_t bytes;
};

static bool update;

static FILE *open_or_fail(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);

    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    return file;
}

/* Reads rows of model,tensor_index,name,elements,ready_frac. The first line contains the names of
 * the columns. */
static void read_model(const char *name, struct model *ret_model)
{
    char path[512], line[256], tensor[128];
    uint64_t elements;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s.csv", MODELS_DIR, name);
    file = open_or_fail(path, "r");
    *ret_model = (struct model){.name = name};
    assert_non_null(fgets(line, sizeof(line), file));
    while (fgets(line, sizeof(line), file)) {
        size_t i = ret_model->tensors_count++;

        assert_true(i < TENSORS_MAX);
        assert_int_equal(sscanf(line, "%*[^,],%*u,%127[^,],%" SCNu64, tensor, &elements), 2);
        ret_model->tensors[i] = (struct packer_tensor){.id = (uint32_t)i,
                                                       .name_hash = hash_text(tensor),
                                                       .elements = elements,
                                                       .element_bytes = 4,
                                                       .lane_ns = 4 * elements,
                                                       .wire_bytes = 16 * elements};
        ret_model->bytes += 4 * elements;
    }
    fclose(file);
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        hash = (hash ^ ((number >> (8 * i)) & 0xff)) * UINT64_C(1099511628211);
    return hash;
}

/* Returns the 64-bit FNV-1a hash of all numbers of the plan. */
static uint64_t hash_plan(const struct packer_plan *plan)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < plan->pieces_count; i++) {
        hash = hash_number(hash, plan->pieces[i].tensor);
        hash = hash_number(hash, plan->pieces[i].lane);
        hash = hash_number(hash, plan->pieces[i].first);
        hash = hash_number(hash, plan->pieces[i].elements);
    }
    return hash;
}

static void write_plan(FILE *out, const struct model *model, size_t lanes,
                       const struct packer_plan *plan)
{
    uint64_t bytes[LANES_MAX] = {0}, max = 0;
    size_t pieces[LANES_MAX] = {0};

    for (size_t i = 0; i < plan->pieces_count; i++) {
        bytes[plan->pieces[i].lane] += 4 * plan->pieces[i].elements;
        pieces[plan->pieces[i].lane]++;
    }
    for (size_t i = 0; i < lanes; i++)
        max = bytes[i] > max ? bytes[i] : max;
    fprintf(out, "  %zu pieces, max/mean %.4f, plan %016" PRIx64 "\n", plan->pieces_count,
            (double)max * (double)lanes / (double)model->bytes, hash_plan(plan));
    for (size_t i = 0; i < lanes; i++)
        fprintf(out, "  lane %zu: %" PRIu64 " bytes in %zu pieces\n", i, bytes[i], pieces[i]);
    for (size_t i = 0; lanes == 2 && i < LINES_OF_PLAN && i < plan->pieces_count; i++)
        fprintf(out, "    tensor %" PRIu32 " from %" PRIu64 ": %" PRIu64 " on lane %" PRIu32 "\n",
                plan->pieces[i].tensor, plan->pieces[i].first, plan->pieces[i].elements,
                plan->pieces[i].lane);
}

static void write_policy(FILE *out, const struct model *model, const char *policy, size_t lanes)
{
    struct packer_lane lane[LANES_MAX];
    struct packer_request request = {.policy = policy,
                                     .workers = (uint32_t)lanes,
                                     .lanes = lane,
                                     .lanes_count = lanes,
                                     .tensors = model->tensors,
                                     .tensors_count = model->tensors_count};
    struct packer_plan plan;
    char reason[256];

    for (size_t i = 0; i < lanes; i++)
        lane[i] = (struct packer_lane){.id = (uint32_t)i, .memory_bytes = UINT64_MAX};
    if (packer_place(&request, &plan, reason, sizeof(reason)) < 0)
        fail_msg("%s, %s: %s", model->name, policy, reason);
    fprintf(out, "\n%s, %zu lanes\n", policy, lanes);
    write_plan(out, model, lanes, &plan);
    packer_plan_fini(&plan);
}

/* Packs under a loss limit, with two lanes in use and six parked lanes. A byte costs 1 ns of lane
 * time. */
static void write_packed(FILE *out, const struct model *model, const char *policy)
{
    static const struct packer_resident residents[] = {
        {.job = 1, .lane_ns = 30000000, .timing = {.period_ns = 200000000}},
        {.job = 2, .lane_ns = 6000000, .timing = {.period_ns = 80000000}},
        {.job = 3, .lane_ns = 25000000, .timing = {.period_ns = 250000000}},
    };
    struct packer_lane lanes[LANES_MAX];
    struct packer_request request = {.policy = policy,
                                     .workers = 2,
                                     .lanes = lanes,
                                     .lanes_count = LANES_MAX,
                                     .tensors = model->tensors,
                                     .tensors_count = model->tensors_count,
                                     .timing = {.period_ns = 250000000}};
    struct packer_plan plan;
    char reason[256];

    for (size_t i = 0; i < LANES_MAX; i++)
        lanes[i] = (struct packer_lane){.id = (uint32_t)i,
                                        .memory_bytes = UINT64_MAX,
                                        .state = i < 2 ? PACKER_LANE_OPEN : PACKER_LANE_PARKED,
                                        .jobs = i < 2 ? (uint32_t)(2 - i) : 0,
                                        .residents = i < 2 ? &residents[2 * i] : NULL,
                                        .residents_count = i < 2 ? 2 - i : 0};
    if (packer_place(&request, &plan, reason, sizeof(reason)) < 0)
        fail_msg("%s, %s: %s", model->name, policy, reason);
    fprintf(out, "\n%s, 2 lanes in use and 6 parked\n  %zu pieces, plan %016" PRIx64 "\n", policy,
            plan.pieces_count, hash_plan(&plan));
    for (size_t i = 0; i < plan.shares_count; i++) {
        const struct packer_share *share = &plan.shares[i];

        fprintf(out,
                "  lane %" PRIu32 "%s: %" PRIu64 " us, %" PRIu64 " us to spare, loss %" PRIu32
                " ppm, others at worst %" PRIu32 " ppm (job %" PRIu64 ")\n",
                share->lane, share->state == PACKER_LANE_OPEN ? "" : " opens",
                share->lane_ns / 1000, share->spare_ns / 1000, share->loss_ppm, share->worst_ppm,
                share->worst_job);
    }
    packer_plan_fini(&plan);
}

/* Returns all placements of a model as text. The caller frees it. */
static char *describe(const struct model *model)
{
    size_t bytes;
    char *text;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    fprintf(out, "%s: %zu tensors, %" PRIu64 " bytes\n", model->name, model->tensors_count,
            model->bytes);
    for (const char *const *p = packer_policies(); *p; p++) {
        if (packer_losses(*p, NULL, 0, NULL) == 0) {
            write_packed(out, model, *p);
            continue;
        }
        write_policy(out, model, *p, 2);
        write_policy(out, model, *p, 8);
    }
    fclose(out);
    return text;
}

static char *read_text(const char *path)
{
    FILE *file = open_or_fail(path, "r");
    char *text = calloc(1, 1 << 16);

    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, file) < (1 << 16) - 1);
    fclose(file);
    return text;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = open_or_fail(path, "w");

    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* Removes the next line from the text and returns it. NULL: there is none. */
static char *next_line(char **text) { return *text && **text ? strsep(text, "\n") : NULL; }

/* Compares the texts line by line, and prints the lines that differ. Returns the number of these
 * lines. Changes both texts. */
static int show_diff(char *expected, char *actual)
{
    int lines = 0;

    for (;;) {
        char *want = next_line(&expected), *have = next_line(&actual);

        if (!want && !have)
            return lines;
        if (want && have && strcmp(want, have) == 0)
            continue;
        if (lines++ < LINES_OF_DIFF)
            print_message("# -%s\n# +%s\n", want ? want : "", have ? have : "");
    }
}

static void placements_are_the_golden_ones(void **state)
{
    struct model *model = calloc(1, sizeof(*model));
    char path[512], *actual, *expected;

    assert_non_null(model);
    read_model(*state, model);
    snprintf(path, sizeof(path), "%s/%s.txt", GOLDEN_DIR, model->name);
    actual = describe(model);
    if (update)
        write_text(path, actual);
    expected = read_text(path);
    if (strcmp(expected, actual) != 0)
        fail_msg("%d lines differ from %s; if that is wanted: test_packer_golden --update",
                 show_diff(expected, actual), path);
    free(expected);
    free(actual);
    free(model);
}

#define MODEL(name)                                                                            \
    "placements_of_" #name "_are_the_golden_ones", placements_are_the_golden_ones, NULL, NULL, \
        (void *)#name

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        {MODEL(alexnet)},  {MODEL(bert_base)},    {MODEL(deepspeech2)}, {MODEL(densenet121)},
        {MODEL(gpt2)},     {MODEL(inception_v3)}, {MODEL(lstm_lm)},     {MODEL(mobilenet_v2)},
        {MODEL(resnet50)}, {MODEL(vgg16)},
    };

    update = argc > 1 && strcmp(argv[1], "--update") == 0;
    return cmocka_run_group_tests_name("packer golden", tests, NULL, NULL);
}
