/* A whole program with libgradpool. Each worker reads rank, size, job and endpoint from its
 * environment: GRADPOOL_ENDPOINT=gradpool://host:7077 GRADPOOL_JOB=demo mpirun -n 4 ./example */
#include "gradpool.h"

#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", gp_last_error());
    return 1;
}

int main(void)
{
    gp_client *client;
    gp_job *job;
    gp_job_spec spec;
    gp_tensor *weight;
    gp_request *request;
    float gradient[2], mean[2];

    if (gp_job_spec_from_environment(&spec) < 0 || gp_connect(NULL, NULL, &client) < 0 ||
        gp_job_join(client, &spec, &job) < 0 ||
        gp_tensor_declare(job, "weight", GP_F32, 2, &weight) < 0)
        return fail();
    for (int step = 0; step < 3; step++) {
        gradient[0] = (float)(spec.rank + 1);
        gradient[1] = (float)step;
        if (gp_push_pull(weight, gradient, mean, GP_MEAN, &request) < 0 ||
            gp_wait(request, 5000) < 0)
            return fail();
        printf("step %d: mean %g %g\n", step, mean[0], mean[1]);
    }
    gp_disconnect(client);
    return 0;
}
