#!/bin/bash
# All tests of gradpool, from a fresh clone: set-up, builds, every case, one closing line. `--help`
# has the options. The runner needs the system's python3, and installs all other packages.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x /usr/bin/python3 ] || test/setup.sh --tests
exec /usr/bin/python3 test/runner/main.py "$@"
