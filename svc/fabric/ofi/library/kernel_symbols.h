/* Keeps libfabric from reading the table of the kernel's symbols. */
#ifndef GRADPOOL_FABRIC_OFI_LIBRARY_KERNEL_SYMBOLS_H
#define GRADPOOL_FABRIC_OFI_LIBRARY_KERNEL_SYMBOLS_H

#include <stdbool.h>

/* Hides /proc/kallsyms from fopen() in this thread, or shows the file again. */
void kernel_symbols_hide(bool is_hidden);

#endif
