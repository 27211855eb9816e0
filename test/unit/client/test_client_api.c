/* Tests limits of gradpool.h: wrong calls, environment variables, memory, forks. */
#include "svc/fabric/slab.h"
#include "test/lib/kept_log.h"
#include "test/unit/client/client_fixture.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void the_endpoint_comes_from_the_environment(void **state)
{
    fixture_set("GRADPOOL_ENDPOINT", rig.endpoint);
    ok(gp_connect(NULL, NULL, &clients[0]));
}

/* ---- connecting ---- */

static void an_invalid_endpoint_is_refused(void **state)
{
    gp_client *client;
    failed(gp_connect(NULL, NULL, &client), -EDESTADDRREQ, "GRADPOOL_ENDPOINT", "gradpool://",
           NULL);
    failed(gp_connect("http://host", NULL, &client), -EINVAL, "http://host", NULL);
    kept_log_begin();
    failed(gp_connect("gradpool://127.0.0.1:1", NULL, &client), -ECONNREFUSED, "127.0.0.1", "1",
           NULL);
    kept_log_expect("no connection to the service at ");
}

static void *hang_up_on_the_first(void *listener)
{
    close(accept(*(int *)listener, NULL, NULL));
    return NULL;
}

static void a_coordinator_that_ends_during_the_greeting_is_named(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char endpoint[64];
    gp_client *client;
    pthread_t thread;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(endpoint, sizeof endpoint, "gradpool://127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, hang_up_on_the_first, &listener), 0);
    failed(gp_connect(endpoint, NULL, &client), -ECONNRESET, "the coordinator at", endpoint, NULL);
    pthread_join(thread, NULL);
    close(listener);
}

static void a_host_that_does_not_exist_is_named(void **state)
{
    gp_client *client;
    failed(gp_connect("gradpool://no-such-host.invalid", NULL, &client), -ENOENT,
           "no-such-host.invalid", NULL);
}

static void options_that_are_wrong_are_named(void **state)
{
    gp_client *client;
    gp_options options = {.transport = "pigeon"};
    failed(gp_connect(rig.endpoint, &options, &client), -EINVAL, "pigeon", "auto, shm or tcp",
           NULL);
    options = (gp_options){.connect_timeout_ms = -5};
    failed(gp_connect(rig.endpoint, &options, &client), -EINVAL, "-5", NULL);
    fixture_set("GRADPOOL_TRANSPORT", "smoke");
    failed(gp_connect(rig.endpoint, NULL, &client), -EINVAL, "smoke", NULL);
    unsetenv("GRADPOOL_TRANSPORT");
    fixture_set("GRADPOOL_TIMEOUT_MS", "soon");
    failed(gp_connect(rig.endpoint, NULL, &client), -EINVAL, "GRADPOOL_TIMEOUT_MS", "soon", NULL);
}

static void the_variable_gives_the_default_time_out(void **state)
{
    gp_tensor *t;
    gp_request *q;
    float value = 1;
    fixture_set("GRADPOOL_TIMEOUT_MS", "4000");
    fixture_join(0, NULL);
    ok(gp_tensor_declare(jobs[0], "w", GP_F32, 1, &t));
    ok(gp_push_pull(t, &value, &value, GP_SUM, &q));
    failed(gp_wait(q, GP_TIMEOUT_DEFAULT), -ETIMEDOUT, "rank 1", NULL);
}

/* A client with transport tcp cannot connect to a lane that offers only shared memory. */
static void a_transport_that_a_lane_does_not_offer_is_an_error_of_declare(void **state)
{
    gp_options options = {.transport = "tcp"};
    gp_tensor *t;
    fixture_join(0, &options);
    failed(gp_tensor_declare(jobs[0], "w", GP_F32, 1, &t), -EADDRNOTAVAIL, "lane 0", "'tcp'", NULL);
}

/* ---- jobs that are refused ---- */

static void impossible_jobs_are_refused(void **state)
{
    char name[200] = "";
    gp_job *job;
    gp_job_spec spec = {.name = NULL, .rank = 0, .workers = 2};
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL,
           "the job has no name; set gp_job_spec.name or GRADPOOL_JOB", NULL);
    memset(name, 'j', 128);
    spec.name = name;
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL,
           "name has 128 bytes, expected at most 127", NULL);
    spec = (gp_job_spec){"job", 2, 2};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL,
           "rank 2 of 2 workers; the first rank is 0", NULL);
    spec = (gp_job_spec){"job", 0, 769};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL, "with 769 workers, expected 1 to 768",
           NULL);
    spec = (gp_job_spec){.name = "job\xff", .rank = 0, .workers = 2};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL,
           "the job's name is not UTF-8; encode the name", NULL);
    failed(gp_job_join(NULL, &spec, &job), -EINVAL, NULL);
    spec = (gp_job_spec){.name = "job", .workers = 2, .backup = {GP_BACKUP_STATIC, .k = 3}};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL,
           "job 'job': backup.k is 3 for 2 workers with rule 'static'; set k to 1 to 2", NULL);
    spec.backup = (gp_backup_spec){.lag = 1};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL, "backup has values and no rule", NULL);
    spec.backup = (gp_backup_spec){.rule = (enum gp_backup_rule)6};
    failed(gp_job_join(clients[0], &spec, &job), -EINVAL, "backup.rule is 6", "enum gp_backup_rule",
           NULL);
}

/* The ranks send different specs. The scripted service does not compare them. */
static void the_join_contains_the_rule_of_backup_workers(void **state)
{
    const gp_job_spec spec = {.name = "job",
                              .workers = WORKERS,
                              .backup = {.rule = GP_BACKUP_ADASYNC,
                                         .k = 1,
                                         .least = 2,
                                         .absence = UINT32_MAX,
                                         .lag = 16,
                                         .gradients = 1,
                                         .rate = GP_RATE_PROPORTIONAL}};
    const uint32_t expected[7] = {5, 1, 2, UINT32_MAX, 16, 1, 1}, none[7] = {0};
    gp_job_spec plain = {.name = "job", .rank = 1, .workers = WORKERS};
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    ok(gp_job_join(clients[0], &spec, &jobs[0]));
    assert_memory_equal(rig.backup, expected, sizeof expected);
    ok(gp_connect(rig.endpoint, NULL, &clients[1]));
    ok(gp_job_join(clients[1], &plain, &jobs[1]));
    assert_memory_equal(rig.backup, none, sizeof none);
}

static void rounds_end_in_jobs_with_backup_workers_only(void **state)
{
    gp_job_spec spec = {.name = "job", .workers = WORKERS};
    gp_round round;
    ok(gp_connect(rig.endpoint, NULL, &clients[0]));
    ok(gp_job_join(clients[0], &spec, &jobs[0]));
    failed(gp_round_end(jobs[0], 0, 1000, &round), -EINVAL, "job 'job' has no backup workers",
           "leave gp_round_end() out", NULL);
    failed(gp_round_end(NULL, 0, 1000, &round), -EINVAL, NULL);
    assert_int_equal(gp_job_passed(jobs[0]), 0);
    assert_int_equal(gp_job_passed(NULL), 0);
}

static void join_with_backup_workers(uint32_t rank)
{
    gp_job_spec spec = {.name = "job",
                        .rank = rank,
                        .workers = WORKERS,
                        .backup = {GP_BACKUP_STATIC, .k = 1, .absence = UINT32_MAX}};
    ok(gp_connect(rig.endpoint, NULL, &clients[rank]));
    ok(gp_job_join(clients[rank], &spec, &jobs[rank]));
}

static void parts_of_the_ranks_have_no_backup_workers(void **state)
{
    const uint32_t ranks[] = {0};
    gp_tensor *t;
    gp_tensor_spec specs[] = {
        {.name = "t", .dtype = GP_F32, .elements = 4, .quorum = GP_FIRST, .bound = 1},
        {.name = "t", .dtype = GP_F32, .elements = 0},
        {.name = "t", .dtype = GP_F32, .elements = 0, .rule = GP_SGD},
        {.name = "t",
         .dtype = GP_F32,
         .elements = 4,
         .rule = GP_SGD,
         .ranks = ranks,
         .ranks_count = 1},
    };
    join_with_backup_workers(0);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        failed(gp_tensors_declare(jobs[0], &specs[i], 1, &t), -EINVAL,
               "a job with backup workers has tensors of all ranks", NULL);
}

static void a_wait_before_the_end_of_its_round_is_a_deadlock(void **state)
{
    const gp_settings settings = {.rate = 1};
    const gp_tensor_spec spec = {.name = "t", .dtype = GP_F32, .elements = 4, .rule = GP_SGD};
    float values[WORKERS][4] = {{0}};
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        join_with_backup_workers(rank);
        ok(gp_tensors_declare(jobs[rank], &spec, 1, &t[rank]));
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_broadcast(t[rank], values[rank], 0, &q[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], 0));
    failed(gp_round_end(jobs[0], 0, 1000, NULL), -EINVAL,
           "tensor 't' has no gradient in round 1 of the job", NULL);
    failed(gp_update(t[1], values[1], values[1], NULL, &q[1]), -EINVAL,
           "the update of rank 1 has no settings; pass a rate", NULL);
    ok(gp_update(t[0], values[0], values[0], &settings, &q[0]));
    failed(gp_wait(q[0], 1000), -EDEADLK, "round 1 of the job is not ended",
           "gp_round_end() before gp_wait()", NULL);
}

static void impossible_tensors_are_refused(void **state)
{
    char name[300] = "";
    gp_tensor *t;
    failed(gp_tensor_declare(jobs[0], "", GP_F32, 1, &t), -EINVAL, "name", NULL);
    memset(name, 'n', 256);
    failed(gp_tensor_declare(jobs[0], name, GP_F32, 1, &t), -EINVAL, "bytes, expected 1 to 255",
           NULL);
    failed(gp_tensor_declare(jobs[0], "w", 99, 1, &t), -EINVAL,
           "tensor 'w': dtype is 99, expected a value of enum gp_dtype", NULL);
    failed(gp_tensor_declare(jobs[0], "w", GP_F32, UINT64_MAX, &t), -EINVAL, "'w'",
           "elements need more bytes than an address space has", NULL);
    failed(gp_tensor_declare(jobs[0], "gradpool.x", GP_F32, 1, &t), -EINVAL,
           "names that begin with 'gradpool.' are reserved", NULL);
    name[255] = '\0';
    ok(gp_tensor_declare(jobs[0], name, GP_F32, 1, &t));
    assert_string_equal(gp_tensor_name(t), name);
}

static void impossible_pushes_are_refused(void **state)
{
    float value = 0;
    gp_tensor *t;
    gp_request *q;
    ok(gp_tensor_declare(jobs[0], "w", GP_F32, 1, &t));
    failed(gp_push_pull(t, NULL, &value, GP_SUM, &q), -EINVAL, "the gradient is NULL", NULL);
    failed(gp_push_pull(t, &value, NULL, GP_SUM, &q), -EINVAL, "result", NULL);
    failed(gp_push_pull(t, &value, &value, 77, &q), -EINVAL,
           "operation 77 is unknown; expected a value of enum gp_operation", NULL);
    failed(gp_push_pull(t, &value, &value, GP_BROADCAST, &q), -EINVAL, "gp_broadcast", NULL);
    failed(gp_broadcast(t, &value, 2, &q), -EINVAL, "root 2 is no rank of 2 workers", NULL);
    failed(gp_push_pull(NULL, &value, &value, GP_SUM, &q), -EINVAL, NULL);
    failed(gp_push_pull_group(jobs[0], NULL, 0, GP_SUM, &q), -EINVAL,
           "the group is empty; pass at least one item", NULL);
    failed(gp_wait(NULL, 1), -EINVAL, NULL);
    gp_item foreign = {t, &value, &value};
    failed(gp_push_pull_group(jobs[1], &foreign, 1, GP_SUM, &q), -EINVAL,
           "item 0: the tensor is not of job", NULL);
}

static void errors_belong_to_their_thread(void **state)
{
    failed(gp_wait(NULL, 1), -EINVAL, "the request is NULL; pass the request of a push", NULL);
    assert_string_equal(gp_strerror(-ETIMEDOUT), "Connection timed out");
    assert_string_equal(gp_version(), GP_VERSION);
}

/* ---- memory ---- */

static void memory_is_zeroed_aligned_and_reused(void **state)
{
    unsigned char *a, *b, *c;
    ok(gp_alloc(jobs[0], 5000, (void **)&a));
    ok(gp_alloc(jobs[0], 1, (void **)&b));
    assert_int_equal((uintptr_t)a % 4096, 0);
    assert_int_equal((uintptr_t)b % 4096, 0);
    assert_true(b >= a + 8192 || b + 4096 <= a);
    memset(a, 0xff, 8192);
    gp_free(jobs[0], a);
    ok(gp_alloc(jobs[0], 8192, (void **)&c));
    assert_ptr_equal(a, c);
    for (int i = 0; i < 8192; i++)
        assert_int_equal(c[i], 0);
    gp_free(jobs[0], b);
    gp_free(jobs[0], c);
    gp_free(jobs[0], NULL);
    for (int bits = 40; bits < 64; bits++)
        failed(gp_alloc(jobs[0], UINT64_C(1) << bits, (void **)&a), -ENOSPC,
               "a worker can lend at most 512 GiB to a job", NULL);
    failed(gp_alloc(jobs[0], SIZE_MAX, (void **)&a), -ENOSPC,
           "a worker can lend at most 512 GiB to a job", NULL);
}

/* Allocates random sizes from a seed. No two areas may overlap, and freed areas must be used
 * again. */
static void slabs_never_hand_memory_out_twice(void **state)
{
    static struct slabs slabs;
    struct {
        unsigned char *at;
        size_t bytes;
    } held[100] = {0};
    unsigned seed = 20;
    print_message("# seed %u\n", seed);
    for (int turn = 0; turn < 5000; turn++) {
        size_t i = (size_t)rand_r(&seed) % 100;
        if (held[i].at) {
            assert_int_equal(held[i].at[0], (unsigned char)i);
            assert_int_equal(held[i].at[held[i].bytes - 1], (unsigned char)i);
            assert_int_equal(slabs_free(&slabs, held[i].at), 0);
            held[i].at = NULL;
            continue;
        }
        held[i].bytes = 1 + (size_t)rand_r(&seed) % 200000;
        assert_int_equal(slabs_alloc(&slabs, held[i].bytes, (void **)&held[i].at), 0);
        assert_int_equal(held[i].at[0] | held[i].at[held[i].bytes - 1], 0);
        held[i].at[0] = held[i].at[held[i].bytes - 1] = (unsigned char)i;
    }
    assert_true(slabs.count <= 4);
    for (size_t i = 0; i < 100; i++)
        assert_true(!held[i].at || slabs_free(&slabs, held[i].at) == 0);
    assert_int_equal(slabs_free(&slabs, &slabs), -ENOENT);
    slabs_fini(&slabs);
}

/* If each call searched all areas, this test would exceed its time limit. */
static void two_hundred_thousand_areas_cost_no_more_each_than_a_few(void **state)
{
    enum { AREAS = 200000 };
    static struct slabs slabs;
    void **held = calloc(AREAS, sizeof *held);
    assert_non_null(held);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < AREAS; i++)
            assert_int_equal(slabs_reserve(&slabs, 1 + (size_t)i % 9000, &held[i]), 0);
        for (int i = 0; i < AREAS; i++) /* frees every second area, from both ends of the list */
            assert_int_equal(slabs_free(&slabs, held[i % 2 ? i : AREAS - 2 - i]), 0);
        for (int i = 0; i < AREAS; i++)
            assert_int_equal(slabs_free(&slabs, held[i]), -ENOENT);
    }
    uint32_t count = slabs.count;
    void *memory;
    for (uint32_t i = 0; i < count; i++) /* all free memory must be one area again */
        assert_int_equal(slabs_reserve(&slabs, slabs.slab[i].region.bytes, &memory), 0);
    assert_int_equal(slabs.count, count);
    slabs_fini(&slabs);
    free(held);
}

static void more_slabs_than_can_be_lent_are_refused(void **state)
{
    static struct slabs slabs;
    void *memory;
    /* each area is larger than the free remainder of any slab */
    for (int i = 0; i < FABRIC_REGIONS_MAX; i++)
        assert_int_equal(slabs_reserve(&slabs, UINT64_C(2) << 30, &memory), 0);
    assert_int_equal(slabs_reserve(&slabs, UINT64_C(2) << 30, &memory), -ENOSPC);
    slabs_fini(&slabs);
}

static void more_memory_than_a_lane_maps_is_refused_at_once(void **state)
{
    static struct slabs slabs;
    void *memory;
    assert_int_equal(slabs_alloc(&slabs, UINT64_C(1) << 40, &memory), -ENOSPC);
    assert_int_equal(slabs_alloc(&slabs, SIZE_MAX - 4096, &memory), -ENOSPC);
    assert_int_equal(slabs_alloc(&slabs, 4096, &memory), 0);
    slabs_fini(&slabs);
}

/* The pages of a freed area between kept areas are returned to the kernel, so they read as
 * zeros. */
static void a_kept_area_outlives_its_slab(void **state)
{
    enum { AREAS = 4 };
    static struct slabs slabs;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at[AREAS];
    for (int i = 0; i < AREAS; i++) {
        assert_int_equal(slabs_alloc(&slabs, 2 * page, (void **)&at[i]), 0);
        memset(at[i], '0' + i, 2 * page);
        assert_int_equal(slabs_keep(&slabs, at[i] + page), -ENOENT);
        assert_int_equal(i % 2 ? slabs_keep(&slabs, at[i]) : 0, 0);
    }
    assert_int_equal(slabs_free(&slabs, at[3]), 0); /* a freed area is no longer kept */
    assert_int_equal(slabs_alloc(&slabs, 2 * page, (void **)&at[3]), 0);
    slabs_fini(&slabs);
    assert_int_equal(slabs.count, 0);
    assert_int_equal(at[1][0] + at[1][2 * page - 1], 2 * '1');
    for (int i = 0; i < AREAS; i++) {
        bool is_mapped = msync(at[i], page, MS_ASYNC) == 0;
        assert_int_equal(is_mapped, i == 1);
    }
    munmap(at[1], 2 * page);
}

/* ---- fork ---- */

static bool is_refused(int r, const char *words)
{
    return r == -ECHILD && strstr(gp_last_error(), words);
}

static int in_child(gp_tensor *t, gp_request *q)
{
    float value = 0;
    void *memory;
    gp_request *other;
    gp_job *job;
    gp_job_spec spec = {"job", 0, WORKERS};
    const char *of_job = "job 'job' belongs to the parent process; join it anew after fork()";
    const char *of_request = "the request belongs to the parent process; connect and push in this";
    if (!is_refused(gp_push_pull(t, &value, &value, GP_SUM, &other), of_job) ||
        !is_refused(gp_wait(q, 1), of_request) || !is_refused(gp_poll(q, 0), of_request) ||
        !is_refused(gp_alloc(jobs[0], 1, &memory), of_job) ||
        !is_refused(gp_barrier(jobs[0], 1), of_job) || !is_refused(gp_tensor_undeclare(t), of_job))
        return 1;
    if (!is_refused(gp_job_join(clients[0], &spec, &job),
                    "the client belongs to the parent process; call gp_connect()"))
        return 2;
    gp_job_leave(jobs[0]);
    gp_disconnect(clients[0]);
    return 0;
}

/* Ends the child. The child's exit handlers must not use the parent's objects. The leak checker's
 * exit handler would report memory that only the parent's other threads know. */
static void end_child(int status, bool by_exit)
{
#ifdef __SANITIZE_ADDRESS__
    by_exit = false;
#endif
    if (by_exit)
        exit(status);
    _exit(status);
}

static void fork_and_check(gp_tensor *t, gp_request *q, bool by_exit)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        end_child(in_child(t, q), by_exit);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_forked_child_gets_an_error_and_changes_nothing(void **state)
{
    static float values[WORKERS][100];
    gp_tensor *t[WORKERS];
    gp_request *q[WORKERS];
    declare("w", 100, t);
    for (uint64_t round = 1; round <= 10; round++) {
        fill(values[0], 100, 0, round);
        fill(values[1], 100, 1, round);
        ok(gp_push_pull(t[0], values[0], values[0], GP_MEAN, &q[0]));
        fork_and_check(t[0], q[0], round % 2);
        ok(gp_push_pull(t[1], values[1], values[1], GP_MEAN, &q[1]));
        ok(gp_wait(q[0], WAIT_MS));
        ok(gp_wait(q[1], WAIT_MS));
        check_mean(values[0], 100, round);
    }
}

static void a_child_may_read_lent_memory(void **state)
{
    int status;
    float *values = lent(0, 100);
    fill(values, 100, 0, 1);
    pid_t pid = fork();
    if (pid == 0)
        _exit(values[7] == value(0, 1, 7) ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Ends a worker process by a signal while its child still runs. Prints nothing. */
static void die_with_a_child(int child_fd)
{
    gp_tensor *t;
    fixture_join(0, NULL);
    ok(gp_tensor_declare(jobs[0], "w", GP_F32, 1, &t));
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            pause();
    }
    if (write(child_fd, &child, sizeof child) == (ssize_t)sizeof child)
        raise(SIGKILL);
    _exit(1);
}

static bool is_connected(void)
{
    for (uint32_t i = 0; i < SCRIPT_CHANNELS_MAX; i++) {
        if (rig.channels[i].has_joined)
            return true;
    }
    return rig.lanes[0].workers[0].conn != NULL;
}

static void a_child_does_not_keep_its_parents_connections_open(void **state)
{
    int ends[2], status;
    pid_t child;
#ifdef __SANITIZE_THREAD__
    skip_because("ThreadSanitizer allows no threads in the child of a process with threads");
#endif
    assert_int_equal(pipe(ends), 0);
    pid_t parent = fork();
    if (parent == 0)
        die_with_a_child(ends[1]);
    close(ends[1]);
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    script_lock(&rig);
    while (is_connected())
        script_wait(&rig);
    script_unlock(&rig);
    assert_int_equal(kill(child, SIGKILL), 0);
    close(ends[0]);
}

static int start(void **state) { return fixture_clear(state) || fixture_start(state); }
static int start_alone(void **state) { return fixture_clear(state) || fixture_start_alone(state); }

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, fixture_stop)
#define ALONE(name) cmocka_unit_test_setup_teardown(name, start_alone, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(slabs_never_hand_memory_out_twice, fixture_clear),
        cmocka_unit_test_setup(two_hundred_thousand_areas_cost_no_more_each_than_a_few,
                               fixture_clear),
        cmocka_unit_test_setup(a_kept_area_outlives_its_slab, fixture_clear),
        cmocka_unit_test_setup(more_slabs_than_can_be_lent_are_refused, fixture_clear),
        cmocka_unit_test_setup(more_memory_than_a_lane_maps_is_refused_at_once, fixture_clear),
        cmocka_unit_test_setup(an_invalid_endpoint_is_refused, fixture_clear),
        cmocka_unit_test_setup(a_host_that_does_not_exist_is_named, fixture_clear),
        cmocka_unit_test_setup(a_coordinator_that_ends_during_the_greeting_is_named, fixture_clear),
        ALONE(the_endpoint_comes_from_the_environment),
        ALONE(options_that_are_wrong_are_named),
        ALONE(the_variable_gives_the_default_time_out),
        ALONE(a_transport_that_a_lane_does_not_offer_is_an_error_of_declare),
        ALONE(impossible_jobs_are_refused),
        ALONE(the_join_contains_the_rule_of_backup_workers),
        ALONE(rounds_end_in_jobs_with_backup_workers_only),
        ALONE(parts_of_the_ranks_have_no_backup_workers),
        ALONE(a_wait_before_the_end_of_its_round_is_a_deadlock),
        CASE(impossible_tensors_are_refused),
        CASE(impossible_pushes_are_refused),
        CASE(errors_belong_to_their_thread),
        CASE(memory_is_zeroed_aligned_and_reused),
        CASE(a_forked_child_gets_an_error_and_changes_nothing),
        CASE(a_child_may_read_lent_memory),
        ALONE(a_child_does_not_keep_its_parents_connections_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
