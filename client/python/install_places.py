#!/usr/bin/python3
"""Prints two lines for meson: the folder for the package, and the relative path from there to the
library.

Usage: install_places.py PREFIX LIBDIR
"""
import os
import site
import sys
import sysconfig


def packages_folder(prefix):
    """Returns the folder below the prefix that this interpreter searches: dist-packages on Debian,
    for /usr and /usr/local. Returns the usual folder for other prefixes, which the interpreter does
    not search."""
    for path in site.getsitepackages():
        if path.startswith(os.path.join(prefix, 'lib')):
            return path
    scheme = 'venv' if 'venv' in sysconfig.get_scheme_names() else 'posix_prefix'
    return sysconfig.get_path('purelib', scheme, vars={'base': prefix})


def main(prefix, libdir):
    folder = packages_folder(prefix)
    print(folder)
    print(os.path.relpath(os.path.join(prefix, libdir), os.path.join(folder, 'gradpool')))


if __name__ == '__main__':
    main(*sys.argv[1:])
