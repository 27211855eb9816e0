#!/usr/bin/python3
"""Checks that pure libraries use only memory and arithmetic, as a TAP program with one case for
each library.

Usage: pure.py LIBRARY.a...

A pure library may need only the external symbols listed here. Any other one (I/O, clocks, threads,
randomness, the environment, locales) is an error.
"""
import re
import subprocess
import sys

ALLOWED = set('''
    memcpy memmove memset memcmp memchr
    malloc calloc realloc reallocarray aligned_alloc free
    strlen strnlen strcmp strncmp strchr strrchr strstr strspn strcspn strdup strndup
    snprintf vsnprintf qsort bsearch __errno_location
    fabs fabsf floor ceil round lround llround trunc fmod fmin fmax
    exp expf exp2 expm1 log logf log2 log10 log1p pow powf sqrt sqrtf cbrt ldexp frexp
    __assert_fail __stack_chk_fail _GLOBAL_OFFSET_TABLE_
    __udivti3 __divti3
    __cpu_model __cpu_features2 __cpu_indicator_init
    __memcpy_chk __memmove_chk __memset_chk __snprintf_chk __vsnprintf_chk
'''.split())
# Symbols that a sanitizer build adds.
INSTRUMENTED = re.compile(r'__(asan|ubsan|tsan|lsan|sanitizer|sancov)_|__(start|stop)___sancov')


def symbols(library, which):
    command = ['nm', '--portability', '--extern-only', which, library]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # a line with one field ("library[member]:") begins a member
    return {fields[0] for fields in map(str.split, listing.splitlines()) if len(fields) > 1}


def forbidden(library):
    """Returns the external symbols that the library needs although they are not permitted."""
    needed = symbols(library, '--undefined-only') - symbols(library, '--defined-only')
    return sorted(s for s in needed if s not in ALLOWED and not INSTRUMENTED.match(s))


def main(libraries):
    print(f'1..{len(libraries)}')
    failed = False
    for number, library in enumerate(libraries, 1):
        found = forbidden(library)
        failed = failed or bool(found)
        name = library.rsplit('/', 1)[-1]
        print(f'{"not ok" if found else "ok"} {number} - {name} needs memory and arithmetic only')
        for symbol in found:
            print(f'# {name} uses {symbol}')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
