/* Signal handlers that a library below libfabric has replaced. */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H
#define GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H

/* Restores the default actions of these signals. Runs when the program or the library is loaded.
 * Called again after libfabric has searched for providers, because some builds load them only
 * then. */
void ofi_signals_give_back(void);

#endif
