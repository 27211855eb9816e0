"""Writes the header with libfabric's soname and the versions of its functions: symbols.py PROBE
HEADER. PROBE is a program that is linked with libfabric (probe.c)."""
import json
import re
import subprocess
import sys

FUNCTIONS = 'getinfo', 'freeinfo', 'dupinfo', 'fabric', 'version', 'strerror'


def header(elf):
    """Returns the header's text. `elf`: what readelf prints about the program."""
    soname = re.search(r'\(NEEDED\).*\[(libfabric\.so[^\]]*)\]', elf)
    versions = {name: re.search(rf'\bUND fi_{name}(?:@+([\w.]+))?(?:\s|$)', elf, re.M)
                for name in FUNCTIONS}
    missing = [name for name, found in versions.items() if not found]
    if not soname or missing:
        sys.exit('libfabric is no shared library, but gradpool loads it when it needs it; '
                 'install libfabric-dev with libfabric.so')
    note = json.dumps([{'feature': 'network', 'priority': 'required', 'soname': [soname[1]],
                        'description': 'data connections between hosts'}])
    lines = [f'#define LIBFABRIC_SONAME {json.dumps(soname[1])}',
             f'#define LIBFABRIC_NOTE {json.dumps(note)}']
    lines += [f'#define LIBFABRIC_fi_{name} {json.dumps(found[1] or "")}'
              for name, found in versions.items()]
    return '\n'.join(lines) + '\n'


def main():
    probe, path = sys.argv[1:]
    elf = subprocess.run(['readelf', '--wide', '--dynamic', '--dyn-syms', probe], text=True,
                         check=True, capture_output=True).stdout
    with open(path, 'w') as file:
        file.write(header(elf))


if __name__ == '__main__':
    main()
