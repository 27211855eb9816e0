/* Runs `gradpool` for `fences`. Owns the running process. */
#include "bench/fences/operator.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define COMMAND_NS (60 * NS_PER_S)

extern char **environ;

/* Runs a command; its standard error is appended to the log of the service. */
static int run(const struct service *service, char *const *argv, const char *output)
{
    pid_t pid = process_spawn_apart(argv, environ, output, service->log);
    int code = pid < 0 ? pid : process_reap(pid, clock_now_ns() + COMMAND_NS);
    if (code != 0)
        fprintf(stderr, "gradpool-bench: gradpool %s failed: exit code %d; see %s\n", argv[1], code,
                service->log);
    return code == 0 ? 0 : -EIO;
}

static int change_tenant(const struct service *service, const char *verb, const char *name,
                         bool is_operator, const char *output)
{
    char state[PATH_MAX + 8];
    char *argv[] = {(char *)service->program,
                    (char *)"tenant",
                    (char *)verb,
                    (char *)name,
                    (char *)"--state-dir",
                    state,
                    is_operator ? (char *)"--operator" : NULL,
                    NULL};
    snprintf(state, sizeof state, "%s/state", service->folder);
    return run(service, argv, output);
}

int operator_add_tenant(const struct service *service, const char *name, bool is_operator,
                        char ret_key[KEY_PATH_BYTES])
{
    snprintf(ret_key, KEY_PATH_BYTES, "%s/%s.key", service->folder, name);
    return change_tenant(service, "add", name, is_operator, ret_key);
}

int operator_revoke_tenant(const struct service *service, const char *name)
{
    return change_tenant(service, "revoke", name, false, "/dev/null");
}

int operator_ask_status(const struct service *service, const char *endpoint, const char *key)
{
    char *argv[] = {(char *)service->program, (char *)"status", (char *)"--endpoint",
                    (char *)endpoint, NULL};
    if (key)
        setenv("GRADPOOL_KEY_FILE", key, 1);
    int r = run(service, argv, "/dev/null");
    unsetenv("GRADPOOL_KEY_FILE");
    return r;
}
