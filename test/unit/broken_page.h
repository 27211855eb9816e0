/* Makes a page unreadable, for tests of code that reads such a page. */
#ifndef GRADPOOL_TEST_BROKEN_PAGE_H
#define GRADPOOL_TEST_BROKEN_PAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Maps the page to a place behind the end of its file, so that an access raises SIGBUS. */
static inline void break_page(void *page)
{
    int fd = memfd_create("broken", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_ptr_equal(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), page);
    close(fd);
}

#endif
