/* Signal handlers that a library below libfabric replaces. */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H
#define GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H

#include <signal.h>

struct ofi_signals {
    struct sigaction actions[NSIG]; /* by number */
};

/* Copies the actions of all signals, before libfabric is loaded. */
void ofi_signals_keep(struct ofi_signals *ret_kept);
/* Restores the actions of the signals for which such a library has installed a handler since.
 * Handlers that other threads have installed in the meantime are kept. */
void ofi_signals_give_back(const struct ofi_signals *kept);

#endif
