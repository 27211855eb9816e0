/* See client_fixture.h. */
#include "test/unit/client/client_fixture.h"

#include "client/lib/session/client.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUND_ELEMENTS_MAX 4096

struct service_rig rig;
gp_client *clients[WORKERS];
gp_job *jobs[WORKERS];

static const char *const variables[] = {
    "GRADPOOL_RANK",       "GRADPOOL_SIZE",        "GRADPOOL_WORKERS_MAX",
    "GRADPOOL_JOB",        "GRADPOOL_ENDPOINT",    "GRADPOOL_TRANSPORT",
    "GRADPOOL_TIMEOUT_MS", "GRADPOOL_EAGER_BYTES", "RANK",
    "WORLD_SIZE",          "MPI_LOCALNRANKS",      "GRADPOOL_CONNECT_TIMEOUT_MS"};

static const char *const launchers[] = {"HOROVOD_", "OMPI_", "MV2_",   "JSM_",   "FLUX_",
                                        "PMI_",     "DMLC_", "SLURM_", "BYTEPS_"};

static bool is_of_launcher(const char *entry)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (strncmp(entry, launchers[i], strlen(launchers[i])) == 0)
            return true;
    return false;
}

int fixture_clear(void **state)
{
    char name[256];
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    for (size_t i = 0; environ[i];) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(environ[i], "="), environ[i]);
        if (!is_of_launcher(name) || unsetenv(name) < 0)
            i++;
    }
    return 0;
}

void fixture_set(const char *name, const char *text) { setenv(name, text, 1); }

void ok(int r)
{
    if (r < 0)
        fail_msg("%d: %s", r, gp_last_error());
}

void failed(int r, int code, ...)
{
    const char *part;
    va_list parts;
    if (r != code)
        fail_msg("%d, not %d: %s", r, code, gp_last_error());
    va_start(parts, code);
    while ((part = va_arg(parts, const char *))) {
        if (!strstr(gp_last_error(), part))
            fail_msg("no '%s' in '%s'", part, gp_last_error());
    }
    va_end(parts);
}

bool has_timed_out(int r, const char *text)
{
    failed(r, -ETIMEDOUT, NULL);
    return strstr(gp_last_error(), text);
}

void fixture_join(uint32_t rank, const gp_options *options)
{
    gp_job_spec spec = {.name = "job", .rank = rank, .workers = WORKERS};
    ok(gp_connect(rig.endpoint, options, &clients[rank]));
    ok(gp_job_join(clients[rank], &spec, &jobs[rank]));
}

void fixture_set_timeout(uint32_t rank, uint64_t timeout_ms)
{
    clients[rank]->timeout_ns = timeout_ms * NS_PER_MS;
}

int fixture_start_alone(void **state)
{
    memset(clients, 0, sizeof clients);
    memset(jobs, 0, sizeof jobs);
    script_start(&rig, WORKERS);
    return 0;
}

int fixture_start(void **state)
{
    fixture_start_alone(state);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        fixture_join(rank, NULL);
    return 0;
}

/* On real lanes a job fails if a rank leaves within a clock. The scripted lanes do not fail the
 * job, so the leave of the first rank would wait until its timeout. */
int fixture_stop(void **state)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        if (clients[rank])
            clients[rank]->timeout_ns = NS_PER_MS;
        gp_disconnect(clients[rank]);
    }
    script_stop(&rig);
    return 0;
}

void declare(const char *name, uint64_t elements, gp_tensor **ret_tensors)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_tensor_declare(jobs[rank], name, GP_F32, elements, &ret_tensors[rank]));
}

float value(uint32_t rank, uint64_t round, size_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761u ^ round * 40503u ^ (rank + 1) * 97u);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

void fill(float *values, size_t elements, uint32_t rank, uint64_t round)
{
    for (size_t i = 0; i < elements; i++)
        values[i] = value(rank, round, i);
}

static void check_reduced(const float *values, size_t elements, uint64_t round, float divisor)
{
    for (size_t i = 0; i < elements; i++) {
        float want = (value(0, round, i) + value(1, round, i)) / divisor;
        if (memcmp(&want, &values[i], sizeof want) != 0)
            fail_msg("round %d element %zu: %.9g, not %.9g", (int)round, i, values[i], want);
    }
}

void check_sum(const float *values, size_t elements, uint64_t round)
{
    check_reduced(values, elements, round, 1);
}

void check_mean(const float *values, size_t elements, uint64_t round)
{
    check_reduced(values, elements, round, 2);
}

float *lent(uint32_t rank, size_t elements)
{
    void *memory;
    ok(gp_alloc(jobs[rank], elements * sizeof(float), &memory));
    return memory;
}

void run_round(gp_tensor **tensors, uint64_t round)
{
    static float gradient[WORKERS][ROUND_ELEMENTS_MAX], result[WORKERS][ROUND_ELEMENTS_MAX];
    gp_request *q[WORKERS];
    size_t elements = gp_tensor_elements(tensors[0]);
    assert_true(elements <= ROUND_ELEMENTS_MAX);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        fill(gradient[rank], elements, rank, round);
        ok(gp_push_pull(tensors[rank], gradient[rank], result[rank], GP_MEAN, &q[rank]));
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        ok(gp_wait(q[rank], WAIT_MS));
        check_mean(result[rank], elements, round);
    }
}

const struct script_heard *heard(uint32_t rank, uint64_t round)
{
    for (uint32_t i = rig.heard_count; i > 0; i--) {
        if (rig.heard[i - 1].rank == rank && rig.heard[i - 1].ready.round == round)
            return &rig.heard[i - 1];
    }
    return NULL;
}

void wait_heard(uint32_t count)
{
    script_lock(&rig);
    while (rig.heard_count < count)
        script_wait(&rig);
    script_unlock(&rig);
}
