"""Runs the study of EXPLORING.md as it stands, shorter by its own variables, with the service that
the command starts."""
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest

import harness
import tap
from harness import GRADPOOL, until
from test_explore import ENVIRONMENT, trials_in
from test_explore_rules import PAGE, program_of

STUDY_S = 240   # each trial imports torch and scikit-learn, on a busy machine
TRIALS, EPOCHS = 3, 4   # 92 steps: rung 40 and the end
ERROR_MOST = 0.6    # a random guess has 0.9


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        for name in 'sweep.py', 'train.py':
            (self.folder / name).write_text(program_of(name))

    def start(self, *words, name='explore'):
        process = harness.Process(
            ['env', '-C', self.folder, '-u', 'GRADPOOL_ENDPOINT', GRADPOOL, *words], self.folder,
            name, {**ENVIRONMENT, 'CUDA_VISIBLE_DEVICES': '', 'GRADPOOL_STALL_MS': '0',
                   'TRIALS': str(TRIALS), 'EPOCHS': str(EPOCHS)})
        self.addCleanup(process.kill)
        return process

    def rows(self):
        answer = harness.run(['env', '-C', self.folder, GRADPOOL, 'trials', '--json'],
                             capture_output=True, text=True, env={**os.environ, **ENVIRONMENT})
        return json.loads(answer.stdout)['trials'] if answer.returncode == 0 else []

    def test_the_study_of_the_page_runs_and_is_resumed(self):
        command = PAGE.read_text(encoding='utf-8').split('```sh\n')[1].splitlines()[0]
        words = command.split('#')[0].split()
        self.assertEqual(words, 'gradpool explore sweep.py --slots 8'.split())
        process = self.start(*words[1:-1], '2', '--preload', 'torch')
        study = self.folder / 'gradpool-digits'
        until(lambda: any(one['reports'] for one in trials_in(study)), 'a trial reports', STUDY_S,
              process)
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(STUDY_S), 130, process.text())
        second = self.start('explore', '--resume', 'gradpool-digits', name='second')
        self.assertEqual(second.wait(STUDY_S), 0, second.text())
        rows = self.rows()
        self.assertEqual(len(rows), TRIALS)
        self.assertLessEqual({one['state'] for one in rows}, {'trained', 'ended'}, rows)
        self.assertRegex(second.text(), r"\nbest \{'lr': 0.3, .*\} error 0\.")
        best = min(one['value'] for one in rows)
        self.assertLess(best, ERROR_MOST)
        self.assertNotIn('without --preload', process.text() + second.text())
        self.assertEqual(harness.running('serve', str(self.folder)), [])


if __name__ == '__main__':
    sys.exit(tap.main())
