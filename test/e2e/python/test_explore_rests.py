"""Tests rests of trials: the rule that lets trials rest, the wish of a trial to its pool, and with
a real service a trial whose workers sleep, without slots, and go on."""
import fcntl
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import harness
import tap
from gradpool.explore import ASHA, rests, rules, store as stores, trial as trials
from gradpool.explore.engine import Engine
from gradpool.explore.fleet import Fleet
from gradpool.explore.pool import Pool
from gradpool.explore.preload import starter_of
from gradpool.explore.worker import VARIABLE
from harness import GRADPOOL, Service, until
from test_explore import ENVIRONMENT, STUDY_S, trials_in
from test_explore_ends import SETTINGS


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Rules(unittest.TestCase):
    def test_a_trial_rests_until_it_is_among_the_best_of_its_rung(self):
        rule, state = ASHA(first=10, eta=2, rest=True), {}
        verdicts, woken = [], []
        for number, value in ((1, .5), (2, .6), (3, .7), (4, .8), (5, math.nan)):
            verdicts.append(rule.judge(state, rules.Report(number, 10, value))[0])
            state = json.loads(json.dumps(state))
            woken.append(rule.woken(state))
        self.assertEqual(verdicts, ['go on', 'rest', 'rest', 'rest', 'rest'])
        self.assertEqual(woken, [[], [], [2], [], [3]])
        self.assertEqual(state['resting'], {'4': '10', '5': '10'})
        self.assertEqual(repr(rule), 'ASHA(first=10, eta=2, last=None, rest=True)')

    def test_rules_name_the_steps_at_which_they_judge(self):
        self.assertEqual(ASHA(first=10, eta=3, last=270).rungs_of(1), [10, 30, 90])
        self.assertEqual(rules.Median(first=3, every=2).rungs_of(1)[:3], [4, 6, 8])
        hyperband = rules.Hyperband(first=1, last=9)
        late = next(n for n in range(1, 18) if hyperband.bracket_of(n) == 1)
        self.assertEqual(hyperband.rungs_of(late), [3])


class Wishes(Folder):
    def setUp(self):
        super().setUp()
        self.trial = self.folder / '0001'
        self.trial.mkdir()
        (self.trial / rests.RUNGS).write_text('[10, 30]')
        self.signals = []
        before = signal.signal(signal.SIGUSR1, lambda *_: self.signals.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

    def hold(self, path):
        """Holds the lock of a file, as a pool or a study."""
        held = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(held, fcntl.LOCK_EX)
        os.write(held, str(os.getpid()).encode())
        self.addCleanup(os.close, held)

    def test_a_pool_that_does_not_expect_a_signal_is_not_ended_by_it(self):
        blocks = ('import signal, time; signal.pthread_sigmask(0, [signal.SIGUSR2]); '
                  'print(1, flush=True); time.sleep(600)')
        for command, code in (('sleep', '600'), None), (
                (sys.executable, '-c', blocks), signal.SIGUSR2):
            with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
                self.addCleanup(child.kill)
                if code is not None:
                    child.stdout.readline()
                pool = Pool(str(self.trial), child.pid)
                pool.signal(signal.SIGUSR1)
                pool.signal(signal.SIGUSR2)
                with open(f'/proc/{child.pid}/status', encoding='utf-8') as status:
                    pending = next(line for line in status if line.startswith('ShdPnd:'))
                self.assertIsNone(child.poll())
                self.assertEqual(int(pending.split()[1], 16), code and 1 << (code - 1) or 0)
                child.kill()
                pool.close()

    def test_a_trial_without_a_study_rests_at_its_next_rung(self):
        self.hold(self.trial / 'lock')
        watch = rests.Watch(str(self.trial))
        watch.reach(9)
        self.assertFalse(rests.is_wished(self.trial))
        watch.reach(12)
        self.assertTrue(rests.is_wished(self.trial))
        self.assertEqual(self.signals, [1])

    def test_a_trial_of_a_study_that_runs_is_not_touched(self):
        self.hold(self.folder / 'study.lock')
        rests.Watch(str(self.trial)).reach(50)
        self.assertFalse(rests.is_wished(self.trial))

    def test_a_rung_without_a_pool_leaves_the_wish_for_the_next_pool(self):
        rests.Watch(str(self.trial)).reach(10)
        self.assertTrue(rests.is_wished(self.trial))
        self.assertEqual(self.signals, [])
        rests.wish(self.trial, False)
        rests.wish(self.trial, False)
        self.assertFalse(rests.is_wished(self.trial))


class Parts(Folder):
    def make_fleet(self):
        self.said, self.pool = [], mock.Mock()
        fleet = Fleet(lambda trial: str(self.folder / f'{trial.number:04d}'),
                      {**SETTINGS, 'cwd': str(self.folder)},
                      {'ahead': 2, 'program': 'gradpool', 'site': 'here', 'endpoint': 'x',
                       'starter': starter_of(str(self.folder), SETTINGS, self.said.append)},
                      lambda number: [], self.said.append)
        fleet._pools[1] = self.pool
        (self.folder / '0001').mkdir()
        self.pool.is_queued.return_value, self.pool.rests.return_value = True, False
        return fleet

    def test_a_pool_learns_once_that_its_trial_rests_and_goes_on(self):
        fleet, trial = self.make_fleet(), trials.Trial(1, {}, state='running')
        fleet.act([trial])
        trial.rest()
        fleet.act([trial])
        fleet.act([trial])
        self.assertTrue(rests.is_wished(self.folder / '0001'))
        self.assertEqual(self.pool.signal.mock_calls, [mock.call(signal.SIGUSR1)])
        self.pool.rests.return_value, trial.state = True, 'resting'
        trial.go_on()
        fleet.act([trial])
        self.assertFalse(rests.is_wished(self.folder / '0001'))
        self.assertEqual(len(self.pool.signal.mock_calls), 2)

    def test_a_pool_gets_rung_and_value_of_its_trial_once_a_rung(self):
        fleet, trial = self.make_fleet(), trials.Trial(1, {}, state='running')
        fleet._rungs_of, fleet._settings['mode'] = lambda number: [10, 30], 'max'
        for step, value, signals, text in ((9, .1, 0, None), (10, .5, 1, '1 -0.5\n'),
                                           (29, .7, 1, '1 -0.5\n'), (90, math.nan, 2, '2 nan\n')):
            trial.step, trial.value = step, value
            fleet.act([trial])
            self.assertEqual(self.pool.signal.mock_calls, signals * [mock.call(signal.SIGUSR2)])
            path = self.folder / '0001' / 'standing'
            self.assertEqual(path.read_text() if path.exists() else None, text)

    def test_a_trial_that_probes_rests_after_its_first_report(self):
        fleet, trial = self.make_fleet(), trials.Trial(1, {}, state='probing', rests='user')
        fleet.act([trial])
        self.pool.signal.assert_not_called()
        trial.state = 'running'
        fleet.act([trial])
        self.pool.signal.assert_called_once()

    def test_trials_that_rest_leave_room_for_others(self):
        fleet, others = self.make_fleet(), [trials.Trial(3, {}), trials.Trial(4, {})]
        resting = [trials.Trial(number, {}, state='resting', rests='rule') for number in (1, 2)]
        fleet._pools[2] = self.pool
        (self.folder / '0002').mkdir()
        with mock.patch('gradpool.explore.pool.Pool.start', return_value=self.pool):
            self.assertEqual(fleet.act([*resting, *others]), others)

    def test_a_killed_pool_of_a_resting_trial_is_started_again_and_the_trial_rests(self):
        fleet, trial = self.make_fleet(), trials.Trial(2, {}, state='resting', rests='rule')
        with mock.patch('gradpool.explore.pool.Pool.start', return_value=self.pool):
            self.assertEqual(fleet.act([trial]), [trial])
            self.assertTrue(rests.is_wished(self.folder / '0002'))
            waiting = trials.Trial(3, {}, rests='rule')
            self.assertEqual(fleet.act([trial, waiting]), [])

    def test_a_searcher_is_asked_while_trials_rest(self):
        store = stores.Store.create(self.folder, SETTINGS)
        store.write([trials.Trial(1, {}, state='resting', rests='rule')], {}, [])
        searcher = mock.Mock()
        searcher.ask.side_effect = [{'x': 1}, None]
        options = {'ahead': 1, 'starter': mock.Mock(is_ready=lambda: False)}
        engine = Engine(str(self.folder), store, rules.Never(), searcher, None, options,
                        mock.Mock())
        engine.turn()
        self.assertEqual([one.parameters for one in engine.trials], [{}, {'x': 1}])

    def test_workers_of_a_trial_without_a_pool_end_with_the_trial(self):
        store = stores.Store.create(self.folder, SETTINGS)
        store.write([trials.Trial(1, {}, state='resting', rests='user')], {}, [])
        options = {'ahead': 1, 'starter': mock.Mock(is_ready=lambda: False)}
        engine = Engine(str(self.folder), store, rules.Never(), None, None, options, mock.Mock())
        (self.folder / '0001').mkdir()
        worker = subprocess.Popen(['sleep', '60'], env={VARIABLE: str(self.folder / '0001')})
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        engine.trials[0].kill()
        engine.turn()
        self.assertEqual(engine.trials[0].state, 'killed')
        self.assertEqual(worker.wait(10), -signal.SIGKILL)

    def test_a_script_keeps_its_own_option_of_the_name_preload(self):
        said, words = [], ['gradpool', 'run', 'x', 'train.py', '--preload', 'y']
        settings = {**SETTINGS, 'command': ['false'], 'preload': 'json', 'cwd': '/'}
        starter = starter_of(str(self.folder), settings, said.append)
        self.addCleanup(starter.close)
        until(starter.is_ready, 'the process that imports modules has ended', STUDY_S)
        self.assertIn('Trials are started without --preload', said[0])
        with mock.patch('gradpool.explore.pool.Pool.start') as start:
            starter.start('folder', words, '/', {})
        self.assertEqual(start.mock_calls, [mock.call('folder', words, '/', {})])

    def test_a_full_disk_delays_the_start_of_a_trial(self):
        fleet, trial = self.make_fleet(), trials.Trial(2, {})
        with mock.patch.object(stores, 'write_json', side_effect=OSError(28, 'No space left')):
            self.assertEqual([fleet.act([trial]), fleet.act([trial])], [[], []])
        self.assertEqual(len(self.said), 1)
        self.assertIn('trial 2 was not started: ', self.said[0])
        self.assertIn('No space left; until then trials train on, and none is started',
                      self.said[0])
        with mock.patch('gradpool.explore.pool.Pool.start', return_value=self.pool):
            self.assertEqual(fleet.act([trial]), [trial])
        self.assertEqual(self.said[1], 'trials are started again')

    def test_rests_of_the_rule_end_with_the_last_other_trial(self):
        store = stores.Store.create(self.folder, SETTINGS)
        store.write([trials.Trial(1, {}, state='resting', rests='rule'),
                     trials.Trial(2, {}, state='resting', rests='user')], {}, [])
        options = {'ahead': 2, 'starter': mock.Mock(is_ready=lambda: False)}
        engine = Engine(str(self.folder), store, rules.Never(), None, None, options, mock.Mock())
        engine.turn()
        self.assertEqual([one.verdict for one in engine.trials], ['', ''])
        engine.trials[1].kill()
        engine.turn()
        engine.turn()
        self.assertEqual([one.state for one in engine.trials], ['ended', 'killed'])


# Holds each step from step 3 on while the file `hold` is there.
TRIAL = '''
import os, sys, time
import torch
import gradpool.elastic
folder = sys.argv[1]
open(f'{folder}/begun', 'a').write(f'{os.getpid()}\\n')
torch.manual_seed(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = torch.ones(800, 2)
run = gradpool.elastic.Run(model, optimizer, samples=800, batch=4, epochs=1, reports=['loss'])
for step in run:
    loss = model(data[step.indices]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step.report(loss=loss)
    time.sleep(0.02)
    while step.number > 2 and os.path.exists(f'{folder}/hold'):
        time.sleep(0.01)
open(f'{folder}/ended', 'a').write(f'{run.ending}\\n')
'''
SWEEP = '''
import os, sys, threading, time
from gradpool.explore import ASHA, Study
study = Study('digits', [{python!r}, 'trial.py', '.'], rule=ASHA(first=10, eta=40), {more})
trial = study.submit({{}})
def wake():
    while not os.path.exists('go-on'):
        time.sleep(0.05)
    trial.go_on()
threading.Thread(target=wake, daemon=True).start()
for event in study.events():
    if type(event).__name__ == 'Report' and 20 <= event.step < 30:
        {act}
print('state', study.trials[0].state, study.trials[0].step)
'''


class Studies(Folder):
    def setUp(self):
        super().setUp()
        self.service = Service('--lanes-per-core', 2, '--scale', 'off', '--worker-slots', 'here=2')
        self.addCleanup(self.service.end)
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        self.addCleanup(lambda: harness.kill_all(
            pid for pid in self.pids() if harness.is_alive(pid)))
        self.results = self.folder / 'gradpool-digits'
        (self.folder / 'trial.py').write_text(TRIAL)

    def pids(self):
        path = self.folder / 'begun'
        return list(map(int, path.read_text().split())) if path.exists() else []

    def start(self, act, more='workers=(1, 2)', words=('sweep.py', '--site', 'here'), name='study'):
        (self.folder / 'sweep.py').write_text(SWEEP.format(
            python=sys.executable, act=act, more=more))
        process = harness.Process(['env', '-C', self.folder, GRADPOOL, 'explore', *words,
                                   '--endpoint', self.service.endpoint], self.folder, name,
                                  ENVIRONMENT)
        self.addCleanup(process.kill)
        return process

    def row(self):
        found = trials_in(self.results)
        return found[0] if found else {}

    def site(self):
        return json.loads(self.service.ask('jobs', '--json').stdout)['sites'][0]

    def await_rest(self, process=None):
        until(lambda: self.row().get('state') == 'resting', 'the trial rests', STUDY_S, process)
        until(lambda: self.site()['held'] + self.site()['leaving'] == 0, 'its slots are free',
              STUDY_S, process)

    def test_a_trial_rests_without_slots_and_goes_on(self):
        process = self.start('event.trial.rest()')
        self.await_rest(process)
        alive = [pid for pid in self.pids() if harness.is_alive(pid)]
        self.assertEqual(len(alive), 1)     # of two workers, one has left
        step = self.row()['step']
        said = self.service.ask('explain', 'digits/1').stdout
        self.assertIn(' times the speed of one worker before, by order', said)
        log = self.results / '0001/pool.log'
        self.assertIn('job digits/1 rests: its workers sleep, without slots', log.read_text())
        self.assertEqual(self.row()['step'], step)
        (self.folder / 'go-on').touch()
        self.assertEqual(process.wait(STUDY_S), 0, process.text())
        self.assertIn('state trained 200', process.text())
        self.assertIn('job digits/1 goes on after its rest', log.read_text())
        self.assertEqual(self.row()['skipped'], 0)

    def test_a_pool_without_slots_cannot_rest(self):
        pool = harness.Process(
            [GRADPOOL, 'run', '--workers-max', 1, '--folder', self.folder / 'pool', '--endpoint',
             self.service.endpoint, 'sh', '-c',
             f'touch {self.folder}/up; until [ -e {self.folder}/end ]; do sleep 0.1; done'],
            self.folder, 'pool')
        self.addCleanup(pool.kill)
        until(lambda: (self.folder / 'up').exists(), 'the worker runs', STUDY_S, pool)
        pool.signal(signal.SIGUSR1)
        pool.wait_for('cannot rest: its service has no slots; start the pool with --site', STUDY_S)
        (self.folder / 'end').touch()
        self.assertEqual(pool.wait(STUDY_S), 0, pool.text())

    def test_a_resting_trial_survives_a_restart_of_the_service(self):
        process = self.start('event.trial.rest()', 'workers=(1, 1)')
        self.await_rest(process)
        self.service.serve.kill()
        self.service.start('again')
        until(lambda: 'orders arrive again' in (self.results / '0001/pool.log').read_text(),
              'the pool has joined again', STUDY_S, process)
        self.assertEqual(self.row()['state'], 'resting')
        (self.folder / 'go-on').touch()
        self.assertEqual(process.wait(STUDY_S), 0, process.text())
        self.assertIn('state trained 200', process.text())

    def test_a_killed_study_leaves_a_trial_that_rests_and_goes_on(self):
        (self.folder / 'hold').touch()
        process = self.start('pass', 'workers=(1, 1)')
        until(lambda: self.row().get('step', 0) >= 1, 'the trial reports', STUDY_S, process)
        process.kill()
        (self.folder / 'hold').unlink()
        until(lambda: ' rests: ' in (self.results / '0001/pool.log').read_text(),
              'the trial rests', STUDY_S)
        second = self.start('pass', 'workers=(1, 1)', ('--resume', 'gradpool-digits'), 'second')
        self.assertEqual(second.wait(STUDY_S), 0, second.text())
        self.assertIn('state trained 200', second.text())
        self.assertEqual(len(self.pids()), 1)


if __name__ == '__main__':
    sys.exit(tap.main())
