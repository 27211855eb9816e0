/* Versions of the libraries below control and data connections. */
#ifndef GRADPOOL_WIRE_WIRE_LIBRARIES_H
#define GRADPOOL_WIRE_WIRE_LIBRARIES_H

#include "svc/base/library.h"

#define WIRE_LIBRARIES 3

/* Fills WIRE_LIBRARIES rows. */
void wire_libraries(struct library *ret_rows);

#endif
