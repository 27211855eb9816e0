"""Tests trials whose workers end in a rest: with a real service such a trial goes on at the same
sample with the same bits, and without one the steps of its study."""
import contextlib
import io
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest
from unittest import mock

import harness
import tap
from gradpool.elastic import joining, resting
from gradpool.elastic.settings import check_settings
from gradpool.errors import GradpoolError
from gradpool.explore import rests, rules, store as stores, trial as trials
from gradpool.explore.engine import Engine
from gradpool.explore.fleet import Fleet
from gradpool.explore.preload import starter_of
from harness import GRADPOOL, Service, until
from test_explore import ENVIRONMENT, STUDY_S
from test_explore_ends import SETTINGS

# Writes the samples of each step, and at the end all bits of the model.
TRIAL = '''
import os, sys, time
import torch
import gradpool.elastic
from gradpool.explore import parameters
name, rank = parameters['name'], os.environ['GRADPOOL_RANK']
open(f'begun-{name}', 'a').write(f'{os.getpid()}\\n')
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7)
data = torch.rand(150, 8, generator=torch.Generator().manual_seed(3))
run = gradpool.elastic.Run(model, optimizer, samples=150, batch=8, epochs=2, also=[scheduler],
                           prefetch=int(parameters['prefetch']), reports=['loss'])
run.on_change(lambda workers: None)
samples = open(f'samples-{name}-{rank}', 'a')
for epoch in run.epochs():
    for step in run:
        if step.weight:
            samples.write(''.join(f'{epoch} {step.number} {i}\\n' for i in step.indices.tolist()))
        loss = model(data[step.indices]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step.report(loss=loss)
        while step.number > 12 and os.path.exists('hold-' + name):
            time.sleep(0.01)
    scheduler.step()
samples.flush()
open(f'endings-{name}-{rank}', 'a').write(f'{run.ending}\\n')
if run.ending == 'trained':
    torch.save(list(model.state_dict().values()) + [optimizer.param_groups[0]['lr']],
               f'bits-{name}-{rank}')
'''
SWEEP = '''
import os, sys, threading, time
from gradpool.explore import Study
study = Study('digits', [{python!r}, 'trial.py'], workers=(2, 2))
first, second = [study.submit({{'name': name, 'prefetch': 3}}) for name in ('first', 'second')]
def wake():
    while not os.path.exists('go-on'):
        time.sleep(0.05)
    first.go_on()
threading.Thread(target=wake, daemon=True).start()
for event in study.events():
    if event.trial is first and not os.path.exists('go-on'):
        first.rest()
print('states', first.state, second.state, first.step, second.step)
'''

# The worse trial reports first, so the rule lets both go on. Then a third trial needs a slot.
STANDING_TRIAL = '''
import os, time
import torch
import gradpool.elastic
from gradpool.explore import parameters
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
run = gradpool.elastic.Run(model, optimizer, samples=9999, batch=1, epochs=9, reports=['loss'])
standing = f"gradpool-digits/{parameters['after']}/standing"
while parameters['after'] and not os.path.exists(standing):
    time.sleep(0.05)
for step in run:
    loss = model(torch.ones(len(step.indices), 2)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step.report(loss=parameters['loss'])
    time.sleep(0.03)
'''
STANDING_SWEEP = '''
import os, sys
from gradpool.explore import ASHA, Study
study = Study('digits', [{python!r}, 'trial.py'], rule=ASHA(first=5, eta=40), rest=True)
better = study.submit({{'loss': .1, 'after': '0002'}})
worse = study.submit({{'loss': .5, 'after': ''}})
third = None
for event in study.events():
    if third is None and min(better.step, worse.step) >= 8:
        third = study.submit({{'loss': .3, 'after': ''}})
    if third and third.reports and not third.verdict:
        print('beside the third trial:', better.state, worse.state)
        for trial in study.trials:
            trial.kill()
'''


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Files(Folder):
    def test_a_checkpoint_comes_back_until_workers_have_begun_from_it(self):
        self.assertIsNone(resting.Checkpoint.read(self.folder))
        resting.Checkpoint(41, [7, 2 ** 64 - 1], memoryview(b'state')).write(self.folder)
        found = resting.Checkpoint.read(self.folder)
        self.assertEqual((found.first, found.cursor, bytes(found.state)),
                         (41, (7, 2 ** 64 - 1), b'state'))
        self.assertTrue(rests.has_rested(self.folder))
        with mock.patch.dict(os.environ, {'_GRADPOOL_TRIAL': str(self.folder)}):
            taking = resting.Resting(None, None, 0)
        taking.take()
        taking.take()
        self.assertFalse(rests.has_rested(self.folder))
        self.assertEqual(resting.Checkpoint.read(self.folder).first, 41)
        rests.forget(self.folder)
        self.assertIsNone(resting.Checkpoint.read(self.folder))

    def test_a_damaged_checkpoint_is_refused(self):
        resting.Checkpoint(41, [7], memoryview(b'state')).write(self.folder)
        path = self.folder / rests.RESTED
        whole = path.read_bytes()
        flipped = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1:] for i in range(len(whole))]
        for data in (*flipped, b'', whole[:-1], whole + b'x', whole[:24]
                     + struct.pack('<Q', 2 ** 61) + whole[32:]):
            path.write_bytes(data)
            with self.assertRaisesRegex(GradpoolError, 'is damaged, or has another version'):
                resting.Checkpoint.read(self.folder)

    def test_a_checkpoint_that_cannot_be_read_or_has_other_settings_is_refused(self):
        (self.folder / rests.RESTED).mkdir()
        with self.assertRaisesRegex(GradpoolError, 'cannot be read: Is a directory; the trial '
                                                   'needs this file'):
            resting.Checkpoint.read(self.folder)
        with self.assertRaisesRegex(GradpoolError, ' before the trial rested'):
            check_settings('job', {'lr': .1}, {'lr': .2}, None)

    def test_a_number_of_workers_that_is_none_is_refused(self):
        for text in 'many', '-1', '²':
            with mock.patch.dict(os.environ, {'GRADPOOL_WORKERS_MAX': text}), \
                    self.assertRaisesRegex(GradpoolError, f"GRADPOOL_WORKERS_MAX is '{text}', "
                                           'expected a number of workers; unset the variable'):
                joining.workers_max_of_launcher()

    def decide(self, sums, wish=True):
        """Returns the decision of the giver, whose rounds have these sums."""
        rests.wish(self.folder, wish, wish)
        with mock.patch.dict(os.environ, {'_GRADPOOL_TRIAL': str(self.folder)}):
            one = resting.Resting(mock.Mock(rank=0), None, 0)
        own = []

        def add(value):
            own.append(value)
            return sums.pop(0)
        one._sum = add
        deal = mock.Mock(**{'cursor.return_value': [1]})
        deal.step.number, deal.step.workers, deal.step.giver = 9, 2, 0
        save = mock.Mock(**{'return_value.getbuffer.return_value': memoryview(b'state')})
        return one.decide(deal, save), own

    def test_workers_end_only_when_all_are_there_and_the_checkpoint_is_stored(self):
        self.assertEqual(self.decide([(2, 1), (2, 2)]), (True, [1, 2]))
        self.assertTrue(rests.has_rested(self.folder))
        rests.forget(self.folder)
        for sums, wish, own in (([(1, 1)], True, [1]), ([(2, 0)], True, [1]),
                                ([(2, 0)], False, [0]), ([(2, 1), (1, 0)], True, [1, 2])):
            self.assertEqual(self.decide(sums, wish), (False, own))
            self.assertFalse(rests.has_rested(self.folder))

    def test_a_full_disk_lets_the_workers_sleep(self):
        with mock.patch.object(resting.Checkpoint, 'write', side_effect=OSError(28, 'No space')), \
                contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(self.decide([(2, 1), (2, 3)]), (False, [1, 3]))
        self.assertIn(f'its state was not written to {self.folder}: No space', errors.getvalue())
        self.assertIn('; its workers sleep instead, and keep their memory', errors.getvalue())


class Steps(Folder):
    def make_engine(self, *rows, **settings):
        store = stores.Store.create(self.folder, {**SETTINGS, 'cwd': str(self.folder), **settings})
        store.write(list(rows), {}, [])
        self.said = []
        options = {'ahead': 4, 'program': 'gradpool', 'site': 'here', 'endpoint': 'x',
                   'starter': mock.Mock(is_ready=lambda: True, words=[])}
        return Engine(str(self.folder), store, rules.Never(), None, None, options,
                      self.said.append)

    def end_pool(self, number, code):
        """Makes the files of a trial whose workers have ended for a rest."""
        folder = self.folder / f'{number:04d}'
        folder.mkdir()
        (folder / 'state').write_text(f'result {code}\n' if code is not None else 'pool 1\n')
        resting.Checkpoint(41, [7], memoryview(b'state')).write(folder)
        return folder

    def test_a_trial_without_processes_rests_and_starts_again(self):
        folder = self.end_pool(1, 0)
        engine = self.make_engine(trials.Trial(1, {}, state='running', rests='user'))
        start = engine._options['starter'].start
        engine.turn()
        self.assertEqual((engine.trials[0].state, engine.is_over()), ('resting', False))
        start.assert_not_called()
        start.side_effect = OSError(28, 'No space left')
        engine.trials[0].go_on()
        engine.turn()
        self.assertEqual(engine.trials[0].state, 'waiting')
        start.assert_called_once()
        self.assertTrue(rests.has_rested(folder))
        engine.trials[0].kill()
        engine.turn()
        self.assertEqual(engine.trials[0].state, 'killed')
        self.assertFalse(rests.has_rested(folder))

    def test_a_script_that_ends_before_its_first_step_fails_in_place_of_endless_starts(self):
        self.end_pool(1, 0)
        engine = self.make_engine(trials.Trial(1, {}, state='running'))
        one = mock.Mock(fd=0, **{'code.return_value': 0, 'rests.return_value': False})
        engine._options['starter'].start.return_value = one
        states = []
        with mock.patch.object(Fleet, 'wait'):
            while len(states) < 4 and not engine.is_over():
                engine.turn()
                states.append(engine.trials[0].state)
        self.assertEqual(states[-1], 'failed', states)
        self.assertIn('the script has ended with 0 after a rest, before its first step; train',
                      engine.trials[0].reason)
        engine._options['starter'].start.assert_called_once()

    def test_a_killed_pool_is_started_again_and_learns_the_end(self):
        self.end_pool(1, None)
        engine = self.make_engine(trials.Trial(1, {}, state='running', rests='user'))
        engine.trials[0].state = 'resting'      # as after the last turn of a process that goes on
        engine.turn()
        engine._options['starter'].start.assert_called_once()

    def test_a_database_of_version_2_is_read_and_renewed(self):
        store = stores.Store.create(self.folder, SETTINGS)
        store._base.execute('PRAGMA user_version = 2')
        again = stores.Store(self.folder)
        again.renew()
        self.assertEqual(store._base.execute('PRAGMA user_version').fetchone(), (3,))

    def make_fleet(self, **settings):
        said = []
        fleet = Fleet(lambda trial: str(self.folder / f'{trial.number:04d}'),
                      {**SETTINGS, 'cwd': str(self.folder), **settings},
                      {'ahead': 9, 'starter': mock.Mock(is_ready=lambda: True)},
                      lambda number: [], said.append)
        for number in 1, 2, 3:
            (self.folder / f'{number:04d}').mkdir()
            fleet._pools[number] = mock.Mock(**{'is_queued.return_value': True,
                                                'rests.return_value': False})
        return fleet, said

    def test_the_number_of_trials_that_sleep_has_a_limit(self):
        fleet, said = self.make_fleet(resting_max=1)
        all_of = [trials.Trial(number, {}, state='running', rests='user') for number in (1, 2, 3)]
        fleet.act(all_of)
        ends = [rests.ends_processes(self.folder / f'000{number}') for number in (1, 2, 3)]
        self.assertEqual(ends, [False, True, True])
        self.assertEqual(said, ['trial 2 rests without processes, and so do further ones: 1 '
                                'trials sleep in memory; --resting-max allows more'])
        for one in all_of[:2]:
            one.go_on()
        fleet.act(all_of)
        all_of[1].rest()
        fleet.act(all_of)
        self.assertFalse(rests.ends_processes(self.folder / '0002'))
        self.assertTrue(rests.is_wished(self.folder / '0002'))

    def test_the_command_line_names_one_way_to_rest(self):
        for words, text in (
                (('--rest', 'later'), "'later' is no way to rest; give sleep or exit"),
                (('--rest', 'exit', '--resting-max', 2),
                 '--rest exit lets no trial sleep, and --resting-max is a number of trials that '
                 'sleep: leave out one of them')):
            answer = harness.run([GRADPOOL, 'explore', *map(str, words), 'sweep.py'],
                                 capture_output=True, text=True)
            self.assertEqual(answer.returncode, 2)
            self.assertIn(text, answer.stderr)

    def test_a_full_disk_of_a_trial_keeps_the_process_that_forks_workers(self):
        said, preload = [], {**SETTINGS, 'command': ['sleep', '9'], 'preload': 'x', 'cwd': '/'}
        starter = starter_of(str(self.folder), preload, said.append)
        self.addCleanup(starter.close)
        for error in OSError(28, 'No space left'), BrokenPipeError(32, 'Broken pipe'):
            with mock.patch('gradpool.explore.pool.Pool.start', side_effect=[error, None]) as start:
                if error.errno == 28:
                    self.assertRaises(OSError, starter.start, '1', ['--preload', 'x'], '/', {})
                else:
                    starter.start('1', ['--preload', 'x'], '/', {})
                self.assertEqual((start.call_count, len(said)), (1, 0) if error.errno == 28
                                 else (2, 1))

    def test_with_rest_exit_no_trial_sleeps(self):
        fleet, said = self.make_fleet(resting_max=0)
        fleet.act([trials.Trial(1, {}, state='running', rests='rule')])
        self.assertTrue(rests.ends_processes(self.folder / '0001'))
        self.assertEqual(said, [])


class Studies(Folder):
    def setUp(self):
        super().setUp()
        self.service = Service('--lanes-per-core', 2, '--scale', 'off', '--worker-slots',
                               'here=4,two=2')
        self.addCleanup(self.service.end)
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        (self.folder / 'trial.py').write_text(TRIAL)
        (self.folder / 'sweep.py').write_text(SWEEP.format(python=sys.executable))

    def start(self, *words, name='study'):
        process = harness.Process(['env', '-C', self.folder, GRADPOOL, 'explore', *words,
                                   '--endpoint', self.service.endpoint], self.folder, name,
                                  ENVIRONMENT)
        self.addCleanup(process.kill)
        return process

    def row(self, number=1):
        answer = harness.run(['env', '-C', self.folder, GRADPOOL, 'trials', '--json',
                              'gradpool-digits'], capture_output=True, text=True,
                             env={**os.environ, **ENVIRONMENT})
        found = json.loads(answer.stdout)['trials'] if answer.returncode == 0 else []
        return found[number - 1] if found else {}

    def lines(self, name):
        return [line for rank in (0, 1)
                for line in (self.folder / f'{name}-{rank}').read_text().splitlines()]

    def test_a_trial_whose_workers_end_goes_on_with_the_same_bits(self):
        hold = self.folder / 'hold-first'
        hold.touch()
        process = self.start('sweep.py', '--site', 'here', '--rest', 'exit')
        # the trial rests at step 13 at the latest
        until(lambda: (self.folder / 'gradpool-digits/0001/rest').exists(), 'the wish to rest',
              STUDY_S, process)
        hold.unlink()
        pids = [int(line) for line in (self.folder / 'begun-first').read_text().split()]
        until(lambda: self.row().get('state') == 'resting'
              and not any(map(harness.is_alive, pids)), 'its workers have ended', STUDY_S, process)
        until(lambda: self.row(2).get('state') == 'trained', 'the other trial', STUDY_S, process)
        self.assertEqual(json.loads(self.service.ask('jobs', '--json').stdout)['jobs'], [])
        self.assertEqual(self.lines('endings-first'), ['rests', 'rests'])
        process.kill()
        (self.folder / 'go-on').touch()
        second = self.start('--resume', 'gradpool-digits', name='second')
        self.assertEqual(second.wait(STUDY_S), 0, second.text())
        steps = self.row(2)['step']
        self.assertIn(f'states trained trained {steps} {steps}', second.text())
        self.assertEqual(sorted(self.lines('endings-first')), 2 * ['rests'] + 2 * ['trained'])
        self.assertEqual(sorted(self.lines('samples-first')), sorted(self.lines('samples-second')))
        used = sorted(tuple(line.split()[::2]) for line in self.lines('samples-first'))
        self.assertEqual(used, sorted((str(epoch), str(i)) for epoch in (0, 1) for i in range(150)))
        for rank in 0, 1:
            self.assertEqual(self.bits(f'bits-first-{rank}'), self.bits(f'bits-second-{rank}'))
        self.assertFalse((self.folder / 'gradpool-digits/0001/checkpoint').exists())

    def test_the_trial_with_the_worse_standing_rests_for_another_one(self):
        (self.folder / 'trial.py').write_text(STANDING_TRIAL)
        (self.folder / 'sweep.py').write_text(STANDING_SWEEP.format(python=sys.executable))
        process = self.start('sweep.py', '--site', 'two')
        self.assertEqual(process.wait(STUDY_S), 0, process.text())
        self.assertIn('beside the third trial: running resting', process.text())

    def bits(self, name):
        import torch     # slow, and unused by the other tests
        *values, rate = torch.load(self.folder / name)
        return [value.numpy().tobytes() for value in values], rate


if __name__ == '__main__':
    sys.exit(tap.main())
