/* Tests a job's connection to the coordinator in rare situations: a fork during the creation of a
 * socket, and a resolver that never answers. The test wraps functions of the C library. */
#include "test/unit/client/client_fixture.h"

#include "svc/base/clock.h"
#include "test/lib/kept_log.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DESCRIPTORS_MAX 1024

/* Moment at which the test forks. The exit status of the child is the number of inherited sockets
 * that are connected to the coordinator. */
enum moment { NEVER, BEFORE_CONNECT, BEFORE_CHANNEL };
static atomic_int moment, forks, inherited;
/* Address that the resolver returns for POOL. NULL: the resolver never answers. */
#define POOL "pool.example"
static const char *_Atomic answer;
static atomic_int
    lookups; /* number of lookups of host names; lookups of numeric addresses do not count */
static uint16_t port;

static bool leads_to_coordinator(int fd)
{
    struct sockaddr_in address = {0};
    socklen_t bytes = sizeof address;
    return getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           address.sin_family == AF_INET && ntohs(address.sin_port) == port;
}

static int count_tcp(void)
{
    int count = 0;
    for (int fd = 3; fd < DESCRIPTORS_MAX; fd++)
        count += leads_to_coordinator(fd);
    return count;
}

/* Counts the sockets that a child inherits at this moment. An unconnected socket has no peer to
 * compare, so it counts as inherited in any case. */
static void fork_here(int fd)
{
    int type, status;
    socklen_t bytes = sizeof type;
    pid_t child = fork();
    if (child == 0)
        _exit(count_tcp() + (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0));
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        inherited += 1000;
    else
        inherited += WEXITSTATUS(status);
    forks++;
}

int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __real_channel_create(int fd, struct channel **ret_channel);
int __wrap_channel_create(int fd, struct channel **ret_channel);
int __real_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int __wrap_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    bool is_ours = address->sa_family == AF_INET &&
                   ntohs(((const struct sockaddr_in *)address)->sin_port) == port;
    if (moment == BEFORE_CONNECT && is_ours)
        fork_here(fd);
    return __real_connect(fd, address, bytes);
}

int __wrap_channel_create(int fd, struct channel **ret_channel)
{
    if (moment == BEFORE_CHANNEL && leads_to_coordinator(fd))
        fork_here(fd);
    return __real_channel_create(fd, ret_channel);
}

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_list)
{
    bool is_name = !(hints->ai_flags & AI_NUMERICHOST);
    lookups += is_name;
    if (!is_name || strcmp(node, POOL) != 0)
        return __real_getaddrinfo(node, service, hints, ret_list);
    while (!answer)
        usleep(1000);
    return __real_getaddrinfo(answer, service, hints, ret_list);
}

static void join_job(void)
{
    gp_job_spec spec = {.name = "job", .rank = 0, .workers = WORKERS};
    ok(gp_job_join(clients[0], &spec, &jobs[0]));
}

static void restart_coordinator(void)
{
    script_lock(&rig);
    uint32_t before = rig.resumed;
    script_drop_control(&rig);
    script_wait(&rig); /* the rig's thread uses the port until it has read the change */
    script_restart_control(&rig);
    while (rig.resumed == before)
        script_wait(&rig);
    script_unlock(&rig);
}

static void expect_no_heir(void)
{
    assert_true(forks > 0);
    assert_int_equal(inherited, 0);
}

static void a_fork_while_a_job_joins_inherits_no_connection(void **state)
{
    static const enum moment moments[] = {BEFORE_CONNECT, BEFORE_CHANNEL};
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    for (int i = 0; i < 2; i++) {
        forks = 0;
        moment = moments[i];
        join_job();
        moment = NEVER;
        expect_no_heir();
        gp_job_leave(jobs[0]);
    }
}

static void a_fork_while_a_job_resumes_inherits_no_connection(void **state)
{
    static const enum moment moments[] = {BEFORE_CONNECT, BEFORE_CHANNEL};
    fixture_join(0, NULL);
    for (int i = 0; i < 2; i++) {
        forks = 0;
        moment = moments[i];
        restart_coordinator();
        moment = NEVER;
        expect_no_heir();
    }
}

static void join_by_name(void)
{
    answer = "127.0.0.1";
    snprintf(rig.endpoint, sizeof rig.endpoint, "gradpool://" POOL ":%u", port);
    fixture_join(0, NULL);
    lookups = 0;
}

static void a_coordinator_that_comes_back_on_another_host_is_found(void **state)
{
    join_by_name();
    rig.host = answer = "127.0.0.2";
    restart_coordinator();
    assert_in_range(lookups, 1, INT_MAX);
}

/* Only one lookup may hang, because a new attempt must not start another thread. */
static void a_silent_name_server_keeps_no_job_from_its_coordinator(void **state)
{
    join_by_name();
    answer = NULL;
    restart_coordinator();
    assert_int_equal(lookups, 1);
    answer = "127.0.0.1";
}

static void a_lost_rank_gets_the_error_at_once_in_its_waits(void **state)
{
    gp_tensor *tensors[WORKERS];
    gp_request *request;
    fixture_join(0, NULL);
    fixture_join(1, NULL);
    declare("t", 16, tensors);
    float *values = lent(0, 16);
    ok(gp_push_pull(tensors[0], values, values, GP_SUM, &request)); /* rank 1 does not push */
    kept_log_begin();
    script_lock(&rig);
    rig.stale_text = "rank 0 was away from job job too long and counts as lost";
    script_drop_control(&rig);
    script_wait(&rig);
    script_restart_control(&rig);
    script_unlock(&rig);
    failed(gp_wait(request, WAIT_MS), -ESTALE, "counts as lost", NULL);
    failed(gp_push_pull(tensors[0], values, values, GP_SUM, &request), -ESTALE, "counts as lost",
           NULL);
    kept_log_expect(" refuses the return of job 'job' rank 0: ");
}

static void a_lane_without_a_ticket_is_named_in_the_error(void **state)
{
    gp_tensor *tensor;
    (void)state;
    /* the declare requests the ticket until this deadline */
    setenv("GRADPOOL_TIMEOUT_MS", "4000", 1);
    fixture_join(0, NULL);
    unsetenv("GRADPOOL_TIMEOUT_MS");
    script_lock(&rig);
    rig.ticket_failure = -ENOENT;
    script_unlock(&rig);
    assert_int_equal(gp_tensor_declare(jobs[0], "t", GP_F32, 16, &tensor), -ENOENT);
    assert_string_equal(gp_last_error(), "lane 0 gives no ticket: No such file or directory");
}

static int start(void **state)
{
    int r = fixture_start_alone(state);
    port = rig.port;
    moment = NEVER;
    forks = inherited = lookups = 0;
    return r;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, fixture_stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_fork_while_a_job_joins_inherits_no_connection),
        CASE(a_fork_while_a_job_resumes_inherits_no_connection),
        CASE(a_coordinator_that_comes_back_on_another_host_is_found),
        CASE(a_silent_name_server_keeps_no_job_from_its_coordinator),
        CASE(a_lost_rank_gets_the_error_at_once_in_its_waits),
        CASE(a_lane_without_a_ticket_is_named_in_the_error),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
