/* cmocka installs a SIGBUS handler around each case and removes it between cases, while threads of
 * the fabric continue and rely on the handler that they have installed (S8 of svc/fabric/shm). So
 * cmocka's calls for that signal do nothing. */
#include <signal.h>
#include <string.h>

typedef void (*handler_fn)(int number);

/* Replaces the C library's function in the program. */
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
