/* Usage: deny_calls NAME[,NAME...] COMMAND... Runs a command for which these system calls fail with
 * EPERM, as in a sandbox. Exit status 77: this host allows no filter. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILTER_MAX 64

static const struct {
    const char *name;
    unsigned number;
} calls[] = {{"memfd_create", SYS_memfd_create},
             {"pidfd_open", SYS_pidfd_open},
             {"userfaultfd", SYS_userfaultfd}};

static int number_of(const char *name, unsigned *ret_number)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            *ret_number = calls[i].number;
            return 0;
        }
    }
    return -ENOENT;
}

static int deny(char *names)
{
    struct sock_filter filter[FILTER_MAX] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short count = 1;
    unsigned number;
    for (char *name; (name = strsep(&names, ",")) && count + 3 <= FILTER_MAX;) {
        if (number_of(name, &number) < 0)
            return -ENOENT;
        filter[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {count, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return -errno;
    return 0;
}

int main(int argc, char **argv)
{
    int r = argc < 3 ? -EINVAL : deny(argv[1]);
    if (r < 0) {
        fprintf(stderr, "deny_calls: %s\n", strerror(-r));
        return 77;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
