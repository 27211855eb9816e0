"""Tests gradpool explore with a real service: trials of a plain script report through files, the
study ends the bad ones, and continues after Ctrl-C and after kill -9."""
import contextlib
import csv
import json
import os
import pathlib
import signal
import sqlite3
import sys
import tempfile
import unittest

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
from gradpool.explore import locks, store as stores
from harness import BUILD, GRADPOOL, Service, until

SOURCE = pathlib.Path(__file__).resolve().parents[3]
ENVIRONMENT = {'PYTHONPATH': str(SOURCE / 'client/python'),
               'GRADPOOL_LIBRARY': str(BUILD / 'client/libgradpool.so')}
STUDY_S = 120   # time limit of a study without progress
# Reports steps 1 to 20. A file hold-N-S of the folder holds trial N after its step S.
TRIAL = '''
import os, sys, time
from gradpool import explore
number, folder = explore.parameters['number'], sys.argv[1]
open(f'{folder}/begun-{number}', 'a').write(f'{os.getpid()}\\n')
if sys.argv[2:] == ['fails']:
    sys.exit('no data')
for step in range(1, 21):
    explore.report(step=step, loss=number / step, other=1)
    while os.path.exists(f'{folder}/hold-{number}-{step}'):
        time.sleep(0.01)
'''
SWEEP = '''
import sys
from gradpool.explore import ASHA, Study
study = Study('digits', [sys.executable, 'trial.py', '.'{more}], {options})
for number in {numbers}:
    study.submit({{'number': number, 'kind': 'a b'}})
study.run()
print('best', study.best and study.best.number)
'''


def trials_in(folder):
    """Returns the trials of a study, as `gradpool trials --json` prints them. A wait calls this
    function often, and an interpreter for each call would cost more than the study."""
    if not (folder / stores.NAME).exists():
        return []
    with contextlib.closing(stores.Store(folder)) as store:
        document = stores.document_of(store.settings, store.trials(), locks.is_locked(folder))
    return json.loads(json.dumps(document))['trials']


class Studies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service('--lanes-per-core', 2, '--scale', 'off', '--worker-slots', 'here=2')
        cls.addClassCleanup(cls.service.end)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        self.results = self.folder / 'gradpool-digits'
        (self.folder / 'trial.py').write_text(TRIAL)

    # ---- processes ----

    def sweep(self, numbers, options='rule=ASHA(first=10, eta=3)', more=''):
        (self.folder / 'sweep.py').write_text(
            SWEEP.format(numbers=numbers, options=options, more=more))

    def explore(self, *words, name='explore', endpoint=True, environment=None):
        where = ('--endpoint', self.service.endpoint) if endpoint else ()
        site = () if {'--resume', '--site'} & set(words) or not endpoint else ('--site', 'here')
        process = harness.Process(['env', '-C', self.folder, GRADPOOL, 'explore', *words, *where,
                                   *site], self.folder, name,
                                  {**ENVIRONMENT, **(environment or {})})
        self.addCleanup(process.kill)
        return process

    def trials(self, *words):
        return harness.run(['env', '-C', self.folder, GRADPOOL, 'trials', *words],
                           capture_output=True, text=True, env={**os.environ, **ENVIRONMENT})

    def rows(self):
        """Returns the trials by number."""
        return {one['number']: one for one in trials_in(self.results)}

    def state_of(self, number):
        return self.rows().get(number, {}).get('state')

    def hold(self, number, step):
        (self.folder / f'hold-{number}-{step}').touch()

    def release(self, number, step):
        (self.folder / f'hold-{number}-{step}').unlink()

    def begun(self, number):
        path = self.folder / f'begun-{number}'
        return list(map(int, path.read_text().split())) if path.exists() else []

    def await_step(self, number, step, process):
        until(lambda: self.rows().get(number, {}).get('step', 0) >= step,
              f'trial {number} has reported step {step}', STUDY_S, process)

    def finish(self, process, code=0):
        self.assertEqual(process.wait(STUDY_S), code, process.text())
        return process.text()

    def jobs(self):
        answer = self.service.ask('jobs', '--json')
        return json.loads(answer.stdout)

    # ---- cases ----

    def test_a_bad_trial_is_ended_and_the_best_is_named(self):
        self.sweep([1, 2, 3])
        for number in 2, 3:
            self.hold(number, 9)
            self.hold(number, 15)   # until the end by the rule
        process = self.explore('sweep.py')
        self.await_step(1, 20, process)
        for number in 2, 3:
            self.await_step(number, 9, process)
            self.release(number, 9)
        text = self.finish(process)
        self.assertRegex(text, r'trial 1 reports after [0-9.]+ s, loss \S+ \(number=1 kind=a b\)')
        self.assertIn('trial 1 trained at step 20, loss 0.05', text)
        self.assertRegex(text, r'trial 2 ended at step \d+, loss \S+ \(place 2 of [23] at step 10')
        self.assertIn('the best is trial 1', text)
        self.assertIn('best 1\n', text)
        rows = self.rows()
        self.assertEqual([rows[n]['state'] for n in (1, 2, 3)], ['trained', 'ended', 'ended'])
        with open(self.results / 'trials.csv', newline='') as file:
            found = list(csv.DictReader(file))
        self.assertEqual([one['number'] for one in found], ['1', '2', '3'])
        self.assertEqual(json.loads((self.results / 'trials.json').read_text())['trials'][0],
                         rows[1])
        printed = self.trials('--json')
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertEqual(json.loads(printed.stdout)['trials'], list(rows.values()))
        self.assertIn('start', (self.results / '0001/rank-0.log').read_text())
        self.assertEqual([site['held'] for site in self.jobs()['sites']], [0])

    def check_queue(self, rows, first_pids):
        """Checks that each trial has trained, and that trials 3 to 6 began once."""
        self.assertEqual({number: one['state'] for number, one in rows.items()},
                         dict.fromkeys(range(1, 7), 'trained'))
        for number in range(3, 7):
            self.assertEqual(len(self.begun(number)), 1, number)
        self.assertEqual([self.begun(number)[0] for number in (1, 2)], first_pids)

    def begin_with_queue(self):
        """Starts a study of six trials for two slots. Trials 1 and 2 are held at step 5."""
        self.sweep(range(1, 7), 'workers=(1, 1)')
        for number in 1, 2:
            self.hold(number, 5)
        process = self.explore('sweep.py')
        for number in 1, 2:
            self.await_step(number, 5, process)
        return process, [pid for number in (1, 2) for pid in self.begun(number)]

    def test_a_resumed_study_has_its_queue(self):
        process, pids = self.begin_with_queue()
        process.kill()
        self.assertTrue(all(map(harness.is_alive, pids)))
        self.release(1, 5)      # the trial ends while no process of the study runs
        until(lambda: not harness.is_alive(pids[0]), 'trial 1 ends', STUDY_S)
        until(lambda: self.begun(3), 'trial 3, which the service has queued, begins', STUDY_S)
        self.assertEqual(self.state_of(5), 'waiting')
        self.assertFalse((self.results / '0005').exists())
        second = self.explore('--resume', 'gradpool-digits', name='second')
        self.release(2, 5)
        self.finish(second)
        self.check_queue(self.rows(), pids)
        self.assertEqual([len(self.begun(number)) for number in (1, 2)], [1, 1])
        self.assertEqual({one['skipped'] for one in self.rows().values()}, {0})

    def test_trials_of_a_burst_begin_together(self):
        self.sweep([1, 2], 'workers=(1, 2)')
        for number in 1, 2:
            self.hold(number, 1)
        process = self.explore('sweep.py')
        for number in 1, 2:
            self.await_step(number, 1, process)
        self.assertEqual([len(self.begun(number)) for number in (1, 2)], [1, 1])
        for number in 1, 2:
            self.release(number, 1)
        self.finish(process)

    def test_trials_begin_in_the_order_of_their_submission(self):
        self.sweep(range(1, 5))
        for number in range(1, 5):
            self.hold(number, 1)
        process = self.explore('sweep.py')
        for number in range(1, 5):
            self.await_step(number, 1, process)
            self.release(number, 1)
        self.finish(process)
        times = [(self.folder / f'begun-{n}').stat().st_mtime_ns for n in range(1, 5)]
        self.assertLess(max(times[:2]), min(times[2:]))

    def test_a_study_continues_after_ctrl_c(self):
        process, pids = self.begin_with_queue()
        process.signal(signal.SIGINT)
        text = self.finish(process, 130)
        self.assertIn('ends all trials; `gradpool explore --resume', text)
        until(lambda: not any(map(harness.is_alive, pids)), 'the workers have ended')
        self.assertEqual({one['state'] for one in self.rows().values()}, {'waiting'})
        self.assertIn('does not run; gradpool explore --resume gradpool-digits',
                      self.trials().stdout)
        self.assertEqual(self.trials('kill', '6').stdout,
                         'trial 6 ends when the study is resumed\n')
        for number in 1, 2:
            self.release(number, 5)
        second = self.explore('--resume', self.results, name='second')
        self.finish(second)
        self.assertEqual([one['state'] for one in self.rows().values()],
                         ['trained'] * 5 + ['killed'])
        self.assertEqual([len(self.begun(number)) for number in range(1, 7)], [2, 2, 1, 1, 1, 0])
        self.assertEqual(self.rows()[1]['skipped'], 5)  # steps that were reported before

    def test_workers_of_a_killed_pool_are_adopted(self):
        process, pids = self.begin_with_queue()
        pool = int((self.results / '0001/lock').read_text())
        os.kill(pool, signal.SIGKILL)
        until(lambda: 'adopted 1 workers' in (self.results / '0001/pool.log').read_text(),
              'a new pool adopts the worker', STUDY_S, process)
        for number in 1, 2:
            self.release(number, 5)
        self.finish(process)
        # nobody can read the exit code of an adopted worker, and this one has joined no job: a new
        # one is started
        self.assertEqual(self.begun(1)[:1], pids[:1])
        self.assertEqual({one['state'] for one in self.rows().values()}, {'trained'})

    def test_a_user_ends_a_trial_and_sees_the_others(self):
        process, pids = self.begin_with_queue()
        self.assertIn('process', self.finish(self.explore('--resume', self.results, name='other'),
                                             1))
        answer = self.trials('kill', '1', 'gradpool-digits')
        self.assertEqual((answer.returncode, answer.stdout), (0, 'trial 1 ends now\n'))
        until(lambda: self.state_of(1) == 'killed', 'trial 1 is killed', STUDY_S, process)
        until(lambda: not harness.is_alive(pids[0]), 'its worker has ended', STUDY_S)
        shown = self.trials().stdout
        self.assertRegex(shown, r'(?m)^ +1  number=1 kind=a b +killed')
        self.assertRegex(shown, r'study digits: .*; the study runs')
        self.release(2, 5)
        self.finish(process)
        self.assertIn('trial 1 has ended already: killed', self.trials('kill', '1').stdout)
        for words, code, said in ((('kill', '9'), 3, 'there is no trial 9 in'),
                                  (('nowhere',), 3, 'gradpool: there is no study in nowhere; give '
                                   'the folder of a study'),
                                  (('kill',), 2, 'missing: the number of a trial'),
                                  (('kill', '1', '--json'), 2, '--json is for the list'),
                                  (('a', 'b'), 2, 'one argument too many; give one folder')):
            answer = self.trials(*words)
            self.assertEqual(answer.returncode, code, answer.stderr)
            self.assertIn(said, answer.stderr)

    def test_a_command_that_fails_stops_the_study(self):
        self.sweep(range(1, 9), 'workers=(1, 1)', ", 'fails'")
        text = self.finish(self.explore('sweep.py'), 1)
        self.assertRegex(text, r'[34] trials in a row have failed without a report, the last one '
                               r'with: exit code 1: no data; see \S+/rank-0.log, mend the command')
        states = [one['state'] for one in self.rows().values()]
        self.assertGreaterEqual(states.count('failed'), 3)
        self.assertNotIn('trained', states)
        self.assertEqual([site['held'] for site in self.jobs()['sites']], [0])

    def test_a_report_without_the_metric_is_explained(self):
        self.sweep([1], "metric='acc'")
        text = self.finish(self.explore('sweep.py'))
        self.assertIn("trial 1 has reported loss, other, and the metric of the study is 'acc'; "
                      'report this value, or change metric=', text)
        self.assertEqual((self.rows()[1]['state'], self.rows()[1]['skipped']), ('trained', 20))
        self.assertIn('best None', text)

    def test_a_changed_script_and_wrong_folders_are_refused(self):
        self.sweep([1])
        self.finish(self.explore('sweep.py'))
        for words, said in ((('sweep.py',), 'has a study already; continue it with `gradpool'),
                            (('sweep.py', '--folder', 'other', '--site', 'there'),
                             'start the service with --worker-slots there=8, give another --site, '
                             'or give --slots without an endpoint')):
            self.assertIn(said, self.finish(self.explore(*words, name=words[-1]), 1))
        self.sweep([2])
        self.assertIn('trial 1 of study digits has number=1 kind=a b, and the script now submits '
                      'number=2 kind=a b; restore the script, or begin in another folder',
                      self.finish(self.explore('--resume', self.results, name='a'), 1))
        self.sweep([1], "mode='max'")
        self.assertIn("mode is 'max', and was 'min' when the study began",
                      self.finish(self.explore('--resume', self.results, name='b'), 1))
        self.assertIn('there is no study in a folder here', harness.run(
            [GRADPOOL, 'trials'], capture_output=True, text=True, cwd='/',
            env={**os.environ, **ENVIRONMENT}).stderr)
        for words, code, said in (
                (('--resume', 'nowhere'), 3, 'there is no study in nowhere'),
                (('a',) * 300, 2, 'a script has at most 254 arguments'),
                (('nowhere.py',), 2, "nowhere.py' does not exist; give the path"),
                ((), 2, 'missing: SCRIPT'),
                (('sweep.py', '--slots', '2'), 2, '--slots starts a service for this study'),
                (('sweep.py', '--slots', '2', '--engine', 'slurm'), 2,
                 '--slots starts a service that other nodes do not reach'),
                (('--resume', 'x', '--engine', 'slurm'), 2, 'leave out the rest'),
                (('sweep.py', '--resume', 'x'), 2, '--resume continues with the script'),
                (('sweep.py', '--slots', '0'), 2, '--slots')):
            process = self.explore(*words, name='wrong')
            self.assertIn(said, self.finish(process, code))

    def test_wrong_studies_are_refused(self):
        for text, said in (
                ("Study('a/b', ['x'])", "Study('a/b'), expected a name"),
                ("Study('a', 'x y')", "command 'x y', expected a list of texts"),
                ("Study('a', ['x'], workers=(2, 1))", 'Study(workers=(2, 1)), expected the fewest'),
                ("Study('a', ['x'], mode='best')", "mode='best'), expected the name of a value"),
                ("Study('a', ['x'], searcher=3)", 'searcher int has no method ask(); add it'),
                ("Study('a', ['x'], workers=(3, 4))",
                 'study a: a trial needs 3 slots, and site here has 2; give fewer workers'),
                ("[Study(n, ['x'], folder=n) for n in 'ab']", "a second Study, 'b', in one"),
                ("Study('a', ['x'], searcher=Random(1)).submit({})", 'whose searcher chooses'),
                ('None', 'has made no Study, so nothing was run')):
            with self.subTest(text):
                folder = tempfile.mkdtemp(dir=self.folder)
                script = pathlib.Path(folder, 'wrong.py')
                script.write_text(f'from gradpool.explore import Random, Study\n{text}\n')
                process = self.explore(script, '--folder', f'{folder}/results', name='wrong')
                self.assertIn(said, self.finish(process, 1))

    def test_a_searcher_asks_and_learns_and_continues(self):
        (self.folder / 'sweep.py').write_text('''
import sys
from gradpool.explore import Random, Study

class Told(Random):
    def tell(self, number, value, state):
        print('told', number, value, state, flush=True)

    def restore(self, trials):
        super().restore(trials)
        for one in trials:
            if one.is_over:
                self.tell(one.number, one.value, one.state)

study = Study('digits', [sys.executable, 'trial.py', '.'], searcher=Told(9, number=[3]), trials=5)
study.run()
''')
        self.hold(3, 5)
        process = self.explore('sweep.py')
        self.await_step(2, 5, process)
        self.assertEqual(len(self.rows()), 4)   # two slots: no more than four trials are asked for
        process.kill()
        second = self.explore('--resume', self.results, name='second')
        self.release(3, 5)
        text = self.finish(second)
        self.assertEqual(sorted(line for line in text.splitlines() if line.startswith('told')),
                         [f'told {n} 0.15 trained' for n in range(1, 6)])
        self.assertEqual(len(self.rows()), 5)

    def test_a_searcher_without_restore_is_not_resumed(self):
        (self.folder / 'sweep.py').write_text('''
from gradpool.explore import Study

class Silent:
    def ask(self): return None
    def tell(self, number, value, state): pass

Study('digits', ['true'], searcher=Silent()).run()
''')
        self.assertIn('no trial; results: ', self.finish(self.explore('sweep.py')))
        self.assertIn('searcher Silent has no method restore(trials), so its study cannot be '
                      'resumed; add the method',
                      self.finish(self.explore('--resume', self.results, name='second'), 1))

    def test_commands_name_wrong_uses(self):
        for words, path, code, said in (
                ([GRADPOOL, 'trials'], '/nowhere', 1, 'python3 cannot be executed: No such file or '
                 'directory; install python3, and put it in PATH'),
                ([sys.executable, '-m', 'gradpool.explore', 'x'], '/bin', 2,
                 'expected explore or trials; see gradpool help explore'),
                ([GRADPOOL, 'run', '--workers-max', 1, '--study', 'a', 'true'], '/bin', 2,
                 '--study is for the scheduler of a site: give --site, too'),
                ([GRADPOOL, 'run', '--workers-max', 1, '--rest', 'true'], '/bin', 2,
                 '--rest is for the scheduler of a site: give --site, too'),
                ([GRADPOOL, 'run', '--workers-max', 1, '--site', 'here', '--announce', 2, 'true'],
                 '/bin', 2, '--announce counts jobs of a study: give --study, too'),
                ([GRADPOOL, 'run', '--workers-max', 1, '--site', 'here', '--study', 'a"', 'true'],
                 '/bin', 2, '--study: expected a name of 1 to 127 bytes, without double quotes'),
                ([GRADPOOL, 'run', '--workers-max', 1, '--site', 'here', '--folder',
                  self.folder / 'gone', '--endpoint', self.service.endpoint, 'sh', '-c',
                  f'rm -r {self.folder}/gone'], '/bin', 0, 'the exit code was not stored: ')):
            done = harness.run(words, capture_output=True, text=True,
                               env={**os.environ, **ENVIRONMENT, 'PATH': path})
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stderr)

    def test_a_loop_over_events_decides_by_itself(self):
        (self.folder / 'sweep.py').write_text('''
import sys
from gradpool.explore import Study
study = Study('digits', [sys.executable, 'trial.py', '.'])
study.submit({'number': 1})
for event in study.events():
    if type(event).__name__ == 'Report' and event.step == 5:
        event.trial.kill()
    if type(event).__name__ == 'Ended':
        print('end', event.trial.number, event.trial.state)
''')
        self.hold(1, 6)
        self.assertIn('end 1 killed', self.finish(self.explore('sweep.py')))

    def test_a_study_has_a_service_of_its_own_and_ends_it(self):
        self.sweep(range(1, 4), 'workers=(1, 1)')
        self.hold(1, 5)
        process = self.explore('sweep.py', '--slots', '2', endpoint=False)
        self.await_step(1, 5, process)
        process.kill()
        self.assertTrue(harness.running('serve', str(self.results)))
        second = self.explore('--resume', self.results, endpoint=False, name='second')
        self.await_step(1, 5, second)
        self.release(1, 5)
        self.finish(second)
        self.assertEqual({one['state'] for one in self.rows().values()}, {'trained'})
        self.assertEqual(len(self.begun(1)), 1)
        self.assertEqual(harness.running('serve', str(self.results)), [])

    def test_verdicts_wait_while_the_database_is_full(self):
        self.sweep([1, 2])
        for number in 1, 2:
            self.hold(number, 9)
        process = self.explore('sweep.py')
        for number in 1, 2:
            self.await_step(number, 9, process)
        with sqlite3.connect(self.results / 'study.db', isolation_level=None) as base:
            base.execute('BEGIN EXCLUSIVE')     # as a full disk: no other process can write
            for number in 1, 2:
                self.release(number, 9)
            process.wait_for('until then trials train on, and none is started or ended', STUDY_S)
            base.execute('ROLLBACK')
        text = self.finish(process)
        self.assertIn('can be written again', text)
        self.assertEqual(self.state_of(1), 'trained')


if __name__ == '__main__':
    sys.exit(tap.main())
