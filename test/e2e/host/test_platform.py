"""Runs the tests of this tree on another Debian release. Uses test/platform.sh in a clean root."""
import pathlib
import re
import subprocess
import unittest

import tap

SCRIPT = pathlib.Path(__file__).parents[2] / 'platform.sh'
# Reasons for which a case may be skipped on every release.
EVERYWHERE = ('takes minutes', 'torch finds no GPU', 'over this transport no memory is mapped',
              'over shared memory all of it is copied in one turn',
              'a thread of the sanitizer itself wakes up', 'ThreadSanitizer allows no threads')


def run_on(release):
    """Runs the tests on the release. Prints each line as soon as it arrives. Returns the exit
    status and all lines."""
    lines = []
    with subprocess.Popen([SCRIPT, release], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as script:
        for line in script.stdout:
            lines.append(line.rstrip())
            tap.emit(f'# {lines[-1]}')
    return script.returncode, lines


class Platform(unittest.TestCase):
    def test_trixie_passes_every_test_and_the_demo(self):
        code, lines = run_on('trixie')
        self.assertEqual(code, 0, '\n'.join(lines[-60:]))
        self.assertRegex(lines[-1], r'^[1-9]\d+ passed, 0 failed, \d+ skipped$')
        tap.emit(f'# trixie: {lines[-1]}')
        for line in lines:
            if re.match('skipped: ', line):
                self.assertTrue(any(reason in line for reason in EVERYWHERE), line)


if __name__ == '__main__':
    tap.main()
