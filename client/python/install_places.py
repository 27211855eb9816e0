#!/usr/bin/python3
"""Asked by meson: the folder that the package is installed in, and the way from there to the
library, a line each.

Usage: install_places.py PREFIX LIBDIR
"""
import os
import site
import sys
import sysconfig


def packages_folder(prefix):
    """Folder where this interpreter itself looks below the prefix (on Debian dist-packages, for
    /usr and /usr/local). Below any other prefix it looks nowhere; the usual folder is used then."""
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
