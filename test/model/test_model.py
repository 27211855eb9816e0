"""The sleep protocol of shared memory (W8) as a model that spin searches whole: no state in which
somebody sleeps on while work waits; and each step that is left out is found to be needed."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import tap

MODEL = pathlib.Path(__file__).with_name('shm_sleep.pml')
SEARCH_S = 120


def search(*defines):
    """Errors found, states seen."""
    with tempfile.TemporaryDirectory(prefix='gradpool-model-') as folder:
        def run(*command):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                                  timeout=SEARCH_S, check=False)
            if done.returncode != 0:
                raise AssertionError(f'{command[0]}: {done.stdout}{done.stderr}')
            return done.stdout

        run('spin', *[f'-D{name}' for name in defines], '-a', str(MODEL))
        run('gcc', '-O1', '-w', '-DSAFETY', '-o', 'pan', 'pan.c')
        said = run('./pan')
    if 'Search not completed' in said and 'errors: 0' in said:
        raise AssertionError(said)
    return (int(re.search(r'errors: (\d+)', said)[1]),
            int(re.search(r'(\d+) states, stored', said)[1]))


@unittest.skipUnless(shutil.which('spin') and shutil.which('gcc'), 'spin or gcc is not installed')
class SleepProtocol(unittest.TestCase):

    def test_nobody_sleeps_on_while_a_record_waits(self):
        errors, states = search()
        self.assertEqual(errors, 0)
        self.assertGreater(states, 1000)

    def test_a_waker_without_a_fence_is_found(self):
        self.assertEqual(search('WITHOUT_WAKER_FENCE')[0], 1)

    def test_a_sleeper_without_a_fence_is_found(self):
        self.assertEqual(search('WITHOUT_SLEEPER_FENCE')[0], 1)

    def test_a_sleeper_that_does_not_look_again_is_found(self):
        self.assertEqual(search('WITHOUT_SECOND_LOOK')[0], 1)

    def test_a_futex_value_read_after_the_second_look_is_found(self):
        self.assertEqual(search('VALUE_READ_LATE')[0], 1)


if __name__ == '__main__':
    tap.main()
