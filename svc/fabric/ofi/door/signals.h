/* Signals whose handlers a library below libfabric has replaced. */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H
#define GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H

/* Sets these signals to their default actions. Runs when the process or the library is loaded.
 * Called again after libfabric has searched for its providers, because some builds load them only
 * then. */
void ofi_signals_give_back(void);

#endif
