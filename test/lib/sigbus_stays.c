/* cmocka installs a SIGBUS handler for each case and removes it between cases. Meanwhile threads of
 * the fabric continue to run, and need the SIGBUS handler that the fabric has installed (S8 of
 * svc/fabric/shm). So this file makes cmocka's calls for that signal ineffective. */
#include <signal.h>
#include <string.h>

typedef void (*handler_fn)(int number);

/* Replaces the C library's signal() in this program. */
__attribute__((visibility("default"))) handler_fn cases_catch(int number,
                                                              handler_fn handler) __asm__("signal");

handler_fn cases_catch(int number, handler_fn handler)
{
    struct sigaction next, before;

    if (number == SIGBUS)
        return SIG_DFL;
    memset(&next, 0, sizeof next);
    next.sa_handler = handler;
    next.sa_flags = SA_RESTART;
    return sigaction(number, &next, &before) == 0 ? before.sa_handler : SIG_ERR;
}
