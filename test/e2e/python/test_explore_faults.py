"""Tests faults around a study: its own service is killed, its script has changed, a lock cannot be
opened, the Python package is missing."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import harness
import tap
from gradpool.explore import locks, service
from harness import GRADPOOL, until
from test_explore import ENVIRONMENT, STUDY_S
import test_explore_ends


class Ends(test_explore_ends.Ends):
    """The study of test_explore_ends, with a service of its own."""

    def text_of(self, name):
        path = self.results / name
        return path.read_text() if path.exists() else ''

    def test_a_killed_service_of_the_study_is_started_again(self):
        process = self.start()
        self.await_reports(process)
        pid = re.match(r'pid (\d+)', self.text_of('service/lock'))[1]
        before = self.workers()
        os.kill(int(pid), signal.SIGKILL)
        process.wait_for('it is started again, and the trials train on', STUDY_S)
        until(lambda: 'orders arrive again' in self.text_of('0001/pool.log'),
              'the pool has joined again', STUDY_S, process)
        self.assertTrue(set(before) <= set(self.workers()))
        (self.folder / 'end').touch()
        self.assertEqual(process.wait(STUDY_S), 0, process.text())
        self.assertRegex(process.text(), r'the service of this study has ended by itself, see '
                                         r'\S+/service\.log; it is started again')
        self.check_nothing_runs()

    def test_a_changed_script_leaves_the_trials_of_a_killed_study(self):
        process = self.start()
        self.await_reports(process)
        before = self.workers()
        process.kill()
        script = self.folder / 'sweep.py'
        whole = script.read_text()
        script.write_text(whole.replace('submit({})', "submit({'lr': 1})", 1))
        second = self.start(None, ('--resume', self.results))
        self.assertEqual(second.wait(STUDY_S), 1, second.text())
        self.assertIn('restore the script, or begin in another folder', second.text())
        self.assertIn('its trials train on; correct the script, and `gradpool explore --resume',
                      second.text())
        self.assertEqual(set(before), set(self.workers()))
        script.write_text(whole)
        (self.folder / 'end').touch()
        third = self.start(None, ('--resume', str(self.results) + '/'))
        self.assertEqual(third.wait(STUDY_S), 0, third.text())
        self.check_nothing_runs()

    def test_a_resumed_study_names_no_other_service(self):
        process = self.start()
        self.await_reports(process)
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(STUDY_S), 130, process.text())
        second = self.start(None, ('--resume', self.results, '--endpoint', 'gradpool://[::1]:1'))
        self.assertEqual(second.wait(STUDY_S), 2, second.text())
        self.assertIn('study digits uses a service of its own, and --endpoint or '
                      'GRADPOOL_ENDPOINT names gradpool://[::1]:1; leave out --endpoint',
                      second.text())


for _name in [name for name in dir(test_explore_ends.Ends) if name.startswith('test_')]:
    setattr(Ends, _name, None)      # these cases run in their own module


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_lock_that_cannot_be_opened_is_named(self):
        pathlib.Path(self.folder, locks.NAME).mkdir()
        with self.assertRaisesRegex(OSError, 'study.lock cannot be opened: Is a directory; check '
                                    'its permissions, or give another folder'):
            locks.lock(self.folder)

    def test_a_service_that_does_not_start_again_ends_the_study(self):
        with mock.patch.object(service.Own, '_find', return_value='gradpool://x'):
            own = service.Own(self.folder, 'here', 1)
        own._looked_s, said = 0, []
        with mock.patch.dict(os.environ, {service.PROGRAM: '/bin/false'}):
            with self.assertRaisesRegex(OSError, 'the service of this study has not started'):
                own.keep(said.append)
        self.assertIn('has ended by itself, see ', said[0])

    def test_a_missing_package_is_named(self):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ('PYTHONPATH', 'GRADPOOL_LIBRARY')}
        done = harness.run([GRADPOOL, 'trials'], capture_output=True, text=True, cwd='/',
                           env=environment)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^gradpool trials: \S+ cannot import gradpool: No module "
                         r"named 'gradpool'; install the Python package, or set PYTHONPATH to its "
                         r'folder\n$')


# Ends with an exit code, and tells how the library leaves its job.
EXITS = '''
import atexit, sys
from unittest import mock
atexit.register(lambda: leave())    # after the handler of the library, which is registered later
from gradpool._native import failing

def leave():
    with mock.patch.object(failing, 'lib') as lib:
        failing.leave(None)
        print('failed' if lib.gp_job_leave_failed.called else 'well')

def fails():
    sys.exit(3)
'''


class Exits(unittest.TestCase):
    def check(self, script, said):
        done = subprocess.run([sys.executable, '-c', EXITS + script], capture_output=True,
                              text=True, check=False, env={**os.environ, **ENVIRONMENT})
        self.assertEqual(done.stdout, said + '\n', done.stderr)

    def test_an_exit_with_an_error_is_no_end_of_a_training(self):
        self.check('fails()', 'failed')
        self.check('try:\n    fails()\nfinally:\n    x = 1', 'failed')
        self.check("sys.exit('no data')", 'failed')

    def test_an_exit_without_an_error_or_caught_by_the_script_is_well(self):
        self.check('sys.exit()', 'well')
        self.check('sys.exit(0)', 'well')
        self.check('try:\n    fails()\nexcept SystemExit:\n    pass', 'well')


if __name__ == '__main__':
    sys.exit(tap.main())
