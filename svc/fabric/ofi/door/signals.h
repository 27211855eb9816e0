/* Signals that a library below libfabric has taken from the process. */
#ifndef GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H
#define GRADPOOL_FABRIC_OFI_DOOR_SIGNALS_H

/* To their default actions. Runs when the process or the library is loaded; call it again after
 * libfabric has looked for its providers, because some builds load them only then. */
void ofi_signals_give_back(void);

#endif
