/* Shows backup workers: a round closes at its second gradient, and the slowest rank fetches the
 * parameters instead. Each worker gets rank, size, job and endpoint from its environment:
 * GRADPOOL_ENDPOINT=... GRADPOOL_JOB=demo mpirun -n 3 ./backup-example [SLOW_MS [ROUNDS]]
 * Rank 0 works SLOW_MS on each gradient, the other ranks 1 ms. */
#include "gradpool.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ELEMENTS 1000

static int example_fail(void)
{
    fprintf(stderr, "%s\n", gp_last_error());
    return 1;
}

static void work(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static double values_sum(const float *values)
{
    double total = 0;
    for (int i = 0; i < ELEMENTS; i++)
        total += values[i];
    return total;
}

int main(int count, char **arguments)
{
    static float bias[ELEMENTS], gradient[ELEMENTS];
    void *weight; /* lanes write there, without a copy */
    const gp_settings settings = {.rate = 0.5};
    gp_client *client;
    gp_job *job;
    gp_job_spec spec;
    gp_tensor *tensors[2];
    gp_request *request;
    gp_round round = {0};
    unsigned dropped = 0;
    const long slow_ms = count > 1 ? (long)strtoul(arguments[1], NULL, 10) : 20;
    const uint64_t rounds = count > 2 ? strtoul(arguments[2], NULL, 10) : 40;

    if (gp_job_spec_from_environment(&spec) < 0 || gp_connect(NULL, NULL, &client) < 0)
        return example_fail();
    spec.backup = (gp_backup_spec){.rule = GP_BACKUP_STATIC, .k = 2, .absence = UINT32_MAX};
    const gp_tensor_spec both[2] = {
        {.name = "weight", .dtype = GP_F32, .elements = ELEMENTS, .rule = GP_SGD},
        {.name = "bias", .dtype = GP_F32, .elements = ELEMENTS, .rule = GP_SGD}};
    if (gp_job_join(client, &spec, &job) < 0 || gp_tensors_declare(job, both, 2, tensors) < 0 ||
        gp_alloc(job, sizeof bias, &weight) < 0)
        return example_fail();
    memset(weight, 0, sizeof bias);
    float *parameters[2] = {weight, bias};
    for (int i = 0; i < 2; i++)
        if (gp_broadcast(tensors[i], parameters[i], 0, &request) < 0 || gp_wait(request, 0) < 0)
            return example_fail();
    while (round.number < rounds) {
        for (int i = 0; i < ELEMENTS; i++)
            gradient[i] = (float)(spec.rank + 1) / (float)(round.number + 1);
        work(spec.rank == 0 ? slow_ms : 1);
        const gp_item items[2] = {{tensors[0], gradient, weight}, {tensors[1], gradient, bias}};
        if (gp_update_group(job, items, 2, &settings, &request) < 0)
            return example_fail();
        int is_dropped = gp_round_end(job, 0, 0, &round);
        if (is_dropped < 0 || gp_wait(request, 0) < 0)
            return example_fail();
        dropped += (unsigned)is_dropped;
        printf("round %ju of %u: %s, weight %.9g bias %.9g\n", (uintmax_t)round.number,
               round.counted, is_dropped ? "dropped" : "counted", values_sum(weight),
               values_sum(bias));
        fflush(stdout);
    }
    printf("dropped %u\n", dropped);
    gp_disconnect(client);
    return 0;
}
