#!/usr/bin/python3
"""Checks exported and needed symbols of libgradpool.so. Prints one TAP case for each rule.

Usage: test_client_library.py LIBRARY HEADER...
"""
import itertools
import os
import re
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def text_of(headers):
    """Returns the headers without comments."""
    text = ''
    for header in headers:
        with open(header, encoding='utf-8') as file:
            text += re.sub(r'/\*.*?\*/', '', file.read(), flags=re.S)
    return text


def declared(headers):
    """Returns the functions of the headers that are marked as exported."""
    return set(re.findall(r'^GP_API [^;(]*?(gp_\w+)\(', text_of(headers), re.M))


def symbols(library):
    """Returns defined dynamic symbols without their version."""
    lines = run('nm', '--dynamic', '--defined-only', '--with-symbol-versions', library).split('\n')
    return {line.split()[-1] for line in lines if line} - {'GRADPOOL_0.1'}


def exports_are_the_headers(library, headers):
    """the library exports what its headers declare, and nothing else"""
    wanted = {f'{name}@@GRADPOOL_0.1' for name in declared(headers)}
    assert len(wanted) > 20, wanted
    found = symbols(library)
    assert found == wanted, f'missing {wanted - found}, unwanted {found - wanted}'


def functions_without_the_mark_are_none(library, headers):
    """every function of the headers carries the export mark"""
    functions = set(re.findall(r'\b(gp_\w+)\(', text_of(headers)))
    assert functions == declared(headers), functions ^ declared(headers)


def no_allocator_and_no_topology(library, headers):
    """jemalloc and hwloc are not pulled in: Python could not load the library"""
    needed = run('ldd', library)
    assert 'jemalloc' not in needed and 'hwloc' not in needed, needed


def soname_carries_the_abi(library, headers):
    """the soname is libgradpool.so.0"""
    assert 'Library soname: [libgradpool.so.0]' in run('readelf', '-d', library)


def no_static_tls(library, headers):
    """the library can be loaded late: no static TLS"""
    assert 'STATIC_TLS' not in run('readelf', '-d', library)


def headers_stand_alone(library, headers):
    """each header compiles alone as C99 and as C++"""
    for header, (language, standard) in itertools.product(headers, STANDARDS):
        with tempfile.NamedTemporaryFile('w', suffix='.' + language) as source:
            source.write(f'#include "{os.path.abspath(header)}"\nint main(void) {{ return 0; }}\n')
            source.flush()
            subprocess.run(['cc', '-x', language, f'-std={standard}', '-pedantic-errors', '-Wall',
                            '-Werror', '-fsyntax-only', source.name], check=True)


STANDARDS = ('c', 'c99'), ('c++', 'c++11')
CASES = [exports_are_the_headers, functions_without_the_mark_are_none, no_allocator_and_no_topology,
         soname_carries_the_abi, no_static_tls, headers_stand_alone]


def main():
    print(f'1..{len(CASES)}')
    wrong = 0
    for number, case in enumerate(CASES, 1):
        try:
            case(sys.argv[1], sys.argv[2:])
            print(f'ok {number} - {case.__doc__}')
        except (AssertionError, subprocess.CalledProcessError) as complaint:
            wrong += 1
            print(f'not ok {number} - {case.__doc__}')
            print('# ' + str(complaint).replace('\n', '\n# '))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
