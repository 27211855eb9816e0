"""Tests the parts of gradpool.explore that need no service: rules, searchers, reports, the
database, the table, and the adapters of EXPLORING.md."""
import io
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
from unittest import mock

import tap
from gradpool import Mismatch
from gradpool.explore import ASHA, grid, Hyperband, Median, Never, Random, report
from gradpool.explore import locks, reading, rules, service, table, worker
from gradpool.explore import store as stores, trial as trials
from gradpool.explore.pool import check_command, filled, make_folder

PAGE = pathlib.Path(__file__).resolve().parents[3] / 'client/python/EXPLORING.md'
NAN = math.nan


def judge(rule, reports):
    """Returns the verdicts of reports (trial, step, value). The state passes through JSON before
    each one, as in study.db."""
    state, verdicts = {}, []
    for one in reports:
        verdicts.append(rule.judge(state, rules.Report(*one))[0])
        state = json.loads(json.dumps(state))
    return verdicts


def refuses(case, make, words):
    """Checks that a call is refused with these words."""
    with case.assertRaises(Mismatch) as caught:
        make()
    case.assertIn(words, str(caught.exception))


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


class Rules(unittest.TestCase):
    def test_a_third_of_the_trials_of_a_rung_go_on(self):
        rule = ASHA(first=10, eta=3)
        self.assertEqual(judge(rule, [(1, 10, .5), (2, 10, .6), (3, 10, .4), (4, 10, .45),
                                      (5, 10, .41)]),
                         ['go on', 'end', 'go on', 'go on', 'go on'])

    def test_a_trial_is_judged_once_a_rung(self):
        self.assertEqual(judge(ASHA(first=10), [(1, 10, .1), (2, 9, .9), (2, 10, .05), (2, 11, .9),
                                                (2, 29, .9), (2, 30, .9), (1, 35, .1),
                                                (2, 90, .9), (1, 91, .1)]), ['go on'] * 9)
        self.assertEqual(judge(ASHA(first=10), [(1, 30, .1), (2, 10, .9), (2, 30, .9)]),
                         ['go on', 'go on', 'end'])

    def test_a_report_beyond_several_rungs_counts_at_the_highest(self):
        rule, state = ASHA(first=10), {}
        rule.judge(state, rules.Report(1, 100, .5))
        self.assertEqual(state, {'90': {'1': .5}})

    def test_the_last_step_completes_a_trial_and_is_no_rung(self):
        rule = ASHA(first=10, eta=2, last=40)
        self.assertEqual(judge(rule, [(1, 20, .1), (2, 40, .9), (1, 41, .1)]),
                         ['go on', 'done', 'done'])
        self.assertEqual(rule.rung_of(39), 20)

    def test_nan_ranks_last(self):
        self.assertEqual(judge(ASHA(first=1, eta=2), [(1, 1, .5), (2, 1, NAN), (3, 1, 9.),
                                                      (4, 1, math.inf)]),
                         ['go on', 'end', 'go on', 'end'])
        self.assertEqual(judge(ASHA(first=1), [(1, 1, NAN), (2, 1, .9)]), ['go on', 'go on'])
        self.assertEqual(judge(Median(first=1, least=1), [(1, 1, .5), (2, 1, NAN)])[1], 'end')

    def test_equal_values_share_a_place(self):
        self.assertEqual(judge(ASHA(first=1), [(n, 1, .5) for n in range(1, 5)]), ['go on'] * 4)

    def test_brackets_of_hyperband_are_those_of_the_paper(self):
        rule = Hyperband(first=1, last=9)
        self.assertEqual([one.first for one in rule.brackets], [1, 3, 9])
        numbers = [rule.bracket_of(trial) for trial in range(1, 18)]
        self.assertEqual([numbers.count(one) for one in range(3)], [9, 5, 3])
        self.assertEqual(numbers, [rule.bracket_of(trial) for trial in range(18, 35)])
        late = 1 + numbers.index(2)
        early = [n for n in range(1, 18) if numbers[n - 1] == 0][:2]
        self.assertEqual(judge(rule, [(early[0], 1, .1), (early[1], 1, .9), (late, 1, 9.),
                                      (late, 8, 9.), (late, 9, 9.)]),
                         ['go on', 'end', 'go on', 'go on', 'done'])

    def test_the_median_rule_compares_the_best_with_means_of_others(self):
        rule = Median(first=2, every=2, least=3)
        reports = [(n, step, value) for n, value in ((1, 1.), (2, 2.), (3, 3.)) for step in (1, 2)]
        self.assertEqual(judge(rule, [*reports, (4, 1, 9.), (4, 2, 2.5), (5, 1, 1.9), (5, 2, 9.)]),
                         ['go on'] * 7 + ['end', 'go on', 'go on'])
        self.assertEqual(judge(rule, [*reports[:4], (4, 2, 9.)])[-1], 'go on')
        state = {}
        said = [rule.judge(state, rules.Report(*one))[1] for one in [*reports, (4, 2, 2.5)]]
        self.assertEqual(said[-1], 'best 2.5, median 2 of 3 at step 2')

    def test_never_ends_no_trial(self):
        self.assertEqual(judge(Never(), [(1, 1, NAN), (2, 9, math.inf)]), ['go on'] * 2)

    def test_wrong_numbers_of_rules_are_refused(self):
        for make, words in ((lambda: ASHA(first=0), 'ASHA(first=0), expected a whole number of 1 '
                             'or more; change first'),
                            (lambda: ASHA(first=1.5), 'ASHA(first=1.5)'),
                            (lambda: ASHA(first=1, eta=1), 'ASHA(eta=1), expected a whole number '
                             'of 2'),
                            (lambda: Hyperband(first=9, last=3), 'Hyperband(last=3)'),
                            (lambda: Hyperband(1, 10 ** 9), ' trials, expected at most 100000; '
                             'raise first, or lower last'),
                            (lambda: Median(first=True), 'Median(first=True)')):
            refuses(self, make, words)


class Searchers(unittest.TestCase):
    def test_a_grid_has_each_combination_in_order(self):
        self.assertEqual(list(grid(a=[1, 2], b='x y'.split())),
                         [{'a': 1, 'b': 'x'}, {'a': 1, 'b': 'y'}, {'a': 2, 'b': 'x'},
                          {'a': 2, 'b': 'y'}])
        for wrong, words in (({'a': 3}, 'grid(a=3), expected a list of values; put one value in '
                              'brackets'), ({'a': 'xy'}, "grid(a='xy')"),
                             ({'a': []}, 'grid() without a value of a, so there is no trial; give '
                              'a list with a value'),
                             ({}, 'grid() without a value of any name')):
            refuses(self, lambda wrong=wrong: grid(**wrong), words)

    def test_random_choices_are_those_of_their_seed_and_continue(self):
        def make(seed=1):
            return Random(4, seed, lr=lambda r: 10 ** r.uniform(-3, 0), width=[4, 8])
        first, again, other = make(), make(), make(2)
        asked = [first.ask() for _ in range(5)]
        self.assertIsNone(asked[4])
        self.assertEqual(asked[0], again.ask())
        self.assertNotEqual(asked[0], other.ask())
        self.assertTrue(all(.001 <= one['lr'] <= 1 and one['width'] in (4, 8)
                            for one in asked[:4]))
        again.restore(asked[:3])
        self.assertEqual([again.ask(), again.ask()], [asked[3], None])
        with self.assertRaisesRegex(Mismatch, r'Random\(lr=3\), expected a list with a value'):
            Random(4, lr=3)


class Values(Folder):
    def test_parameters_fill_the_command(self):
        self.assertEqual(filled(1, ['a', '--lr={lr}', '{x} {1} {}'], {'lr': .1, 'x': 'y'}),
                         ['a', '--lr=0.1', 'y {1} {}'])
        refuses(self, lambda: filled(3, ['{rate}'], {'lr': .1}), 'trial 3: the command has '
                '{rate}, and the parameters are lr; name one of them')
        with self.assertRaises(OSError) as caught:
            make_folder('/dev/null/x')
        self.assertEqual(str(caught.exception), 'folder /dev/null/x cannot be made: Not a '
                         'directory; name another one')
        for wrong, words in (('a b', 'expected a list of texts'), ([], 'expected a list'),
                             (['--x'], "command '--x' is an option"), (['a\0'], 'list of texts')):
            with self.assertRaisesRegex(Mismatch, words):
                check_command(wrong)

    def test_parameters_that_json_does_not_give_back_are_refused(self):
        trials.check_parameters(1, {'a': [1, {'b': None}], 'c': 'x', 'd': True})
        for wrong, words in (([1], r'parameters are \[1\], expected a dict'),
                             ({'a': (1, 2)}, r"parameter 'a' is \(1, 2\) \(tuple\)"),
                             ({'a': {1: 2}}, r"parameter 'a'"),
                             ({'a': [object]}, r"parameter 'a'.*convert the value")):
            with self.assertRaisesRegex(Mismatch, words):
                trials.check_parameters(1, wrong)

    def test_the_best_trial_has_the_best_last_value(self):
        def make(state, value):
            return trials.Trial(1, {}, state=state, value=value)
        ended, trained, worse = make('ended', .1), make('trained', .2), make('trained', .3)
        nan, silent = make('trained', NAN), make('trained', None)
        self.assertIs(trials.best_of([silent, nan, worse, ended, trained], 'min'), ended)
        self.assertIs(trials.best_of([ended, nan, worse, trained], 'max'), worse)
        self.assertIsNone(trials.best_of([nan, silent], 'max'))
        self.assertIs(trials.best_of([worse, make('ended', .3)], 'min'), worse)
        self.assertIsNone(trials.best_of([silent], 'min'))

    def test_a_step_that_does_not_rise_is_skipped_and_counted(self):
        trial = trials.Trial(1, {}, submitted_s=10.)
        taken = [trial.take(step, value, 2, 12. + step)
                 for step, value in ((0, .5), (0, .4), (3, .3), (2, .1), (4, .2))]
        self.assertEqual(taken, [True, False, True, False, True])
        self.assertEqual((trial.step, trial.value, trial.reports, trial.skipped, trial.feedback_s),
                         (4, .2, 3, 2, 2.))
        self.assertEqual(trial.steps_per_s, 1.)
        for step in range(5, 200):
            trial.take(step, .1, 1, 20. + step)
        self.assertLess(len(trial.curve), 33)


class Reports(Folder):
    def test_reports_reach_the_reader_in_order(self):
        with mock.patch.dict(os.environ, {worker.VARIABLE: self.folder}), \
                mock.patch.object(worker, '_reporter', worker._Reporter()):
            report(loss=.5)
            report(loss=.25, accuracy=1)
            report(step=9, loss=NAN)
            worker.write(10, 3, {'loss': .1})
        found, bad, offset = reading.read(self.folder, 0)
        self.assertEqual([(step, workers) for step, workers, _, _ in found],
                         [(1, 1), (2, 1), (9, 1), (10, 3)])
        self.assertEqual([found[0][3], found[1][3], bad],
                         [{'loss': .5}, {'loss': .25, 'accuracy': 1.}, 0])
        self.assertTrue(math.isnan(found[2][3]['loss']))
        self.assertEqual(reading.read(self.folder, offset), ([], 0, offset))

    def test_a_torn_line_waits_and_a_line_of_something_else_is_counted(self):
        path = pathlib.Path(self.folder, worker.REPORTS)
        line = '{"step": 1, "workers": 1, "time": 1, "values": {"loss": 1}}\n'
        path.write_text(line + line[:20])
        found, bad, offset = reading.read(self.folder, 0)
        self.assertEqual((len(found), bad, offset), (1, 0, len(line)))
        path.write_text(line + 'no report\n[]\n{"step": "x"}\n' + line)
        self.assertEqual([len(one) if isinstance(one, list) else one
                          for one in reading.read(self.folder, offset)[:2]], [1, 3])

    def test_only_rank_0_reports(self):
        with mock.patch.dict(os.environ, {worker.VARIABLE: self.folder, 'GRADPOOL_RANK': '1'}):
            report(loss=1)
        self.assertEqual(reading.read(self.folder, 0), ([], 0, 0))

    def test_a_report_that_cannot_be_written_does_not_end_the_training(self):
        said = io.StringIO()
        with mock.patch.dict(os.environ, {worker.VARIABLE: self.folder + '/nowhere'}), \
                mock.patch.object(worker, '_reporter', worker._Reporter()), \
                mock.patch.object(sys, 'stderr', said):
            report(loss=1)
            report(loss=1)
        self.assertEqual(said.getvalue().count('the report of step 1 was not written to'), 1)
        self.assertEqual(said.getvalue().count('gradpool:'), 1)

    def test_wrong_reports_are_refused(self):
        for make, words in ((report, 'report() without a value; say report(loss=loss)'),
                            (lambda: report(step=-1, a=1), 'report() of step -1, expected a whole '
                             'number from 0; give the number of the step'),
                            (lambda: report(step='a', a=1), "report() of step 'a'"),
                            (lambda: report(a='x'), "report() of 'a' with str, expected one "
                             'number; report a mean')):
            refuses(self, make, words)

    def test_without_a_study_there_are_no_parameters_and_no_file(self):
        import gradpool.explore
        self.assertEqual(gradpool.explore.parameters, {})
        report(loss=1)


class Stores(Folder):
    SETTINGS = {'name': 'digits', 'metric': 'loss', 'mode': 'min', 'rule': 'Never()'}

    def make(self):
        return stores.Store.create(self.folder, self.SETTINGS)

    def test_trials_come_back_as_they_were(self):
        store = self.make()
        trial = trials.Trial(1, {'lr': .1, 'names': ['a', None]}, submitted_s=1.)
        trial.take(3, NAN, 2, 4.)
        other = trials.Trial(2, {'lr': 2}, state='failed', reason='exit code 3', is_told=True)
        store.write([trial, other], {'rule_state': {'10': {'1': NAN}}}, [])
        store.close()
        again = stores.Store(self.folder)
        self.assertEqual([str(vars(one)) for one in again.trials()],
                         [str(vars(trial)), str(vars(other))])
        self.assertEqual(str(again.settings['rule_state']), "{'10': {'1': nan}}")

    def test_orders_of_another_process_arrive_once(self):
        store, other = self.make(), stores.Store(self.folder)
        other.order(7)
        other.order(3)
        self.assertEqual(sorted(store.orders().values()), [3, 7])
        store.write([], {}, list(store.orders()))
        self.assertEqual(store.orders(), {})

    def test_a_failed_write_leaves_the_former_rows(self):
        store = self.make()
        store.write([trials.Trial(1, {})], {}, [])
        bad = trials.Trial(2, {})
        bad.reason = object()
        with self.assertRaisesRegex(
                stores.Failure, '; free space, check the permissions, or give another folder'):
            store.write([trials.Trial(1, {}, state='failed'), bad], {}, [])
        self.assertEqual([one.state for one in store.trials()], ['waiting'])

    def test_a_folder_has_one_process(self):
        held = locks.lock(self.folder)
        self.assertTrue(locks.is_locked(self.folder))
        with self.assertRaisesRegex(OSError, f'process {os.getpid()} runs this study'):
            locks.lock(self.folder)
        os.close(held)
        self.assertFalse(locks.is_locked(self.folder))

    def test_a_database_of_another_version_is_refused(self):
        store = self.make()
        store._base.execute('PRAGMA user_version = 99')
        store.close()
        refuses(self, lambda: stores.Store(self.folder), 'has version 99, expected 2: another '
                'gradpool has made this study; use that version')

    def test_the_copies_are_json_and_csv(self):
        trial = trials.Trial(1, {'lr': .1}, submitted_s=1.)
        trial.take(3, NAN, 2, 4.)
        stores.write_copies(self.folder, self.SETTINGS, [trial], True)
        found = json.loads(pathlib.Path(self.folder, 'trials.json').read_text(),
                           parse_constant=self.fail)
        self.assertEqual(found['trials'][0]['parameters'], {'lr': .1})
        self.assertIsNone(found['trials'][0]['value'])
        head, row = pathlib.Path(self.folder, 'trials.csv').read_text().splitlines()
        self.assertEqual(dict(zip(head.split(','), row.split(',')))['lr'], '0.1')


class Services(Folder):
    def use(self, text):
        """Makes a script the program `gradpool`."""
        path = pathlib.Path(self.folder, 'gradpool')
        path.write_text('#!/bin/sh\n' + text)
        path.chmod(0o755)
        patch = mock.patch.dict(os.environ, {service.PROGRAM: str(path)})
        patch.start()
        self.addCleanup(patch.stop)

    def fails(self, words):
        with self.assertRaises(OSError) as caught:
            service.slots_of('gradpool://here:1', 'here')
        self.assertIn(words, str(caught.exception))

    def test_a_missing_program_is_named(self):
        with mock.patch.dict(os.environ, {'PATH': self.folder}):
            os.environ.pop(service.PROGRAM, None)
            self.fails("there is no program 'gradpool' in PATH, which starts the trials; install")

    def test_a_service_without_an_answer_is_named(self):
        self.use('true')
        self.fails('gradpool jobs: the service does not answer; start a service with gradpool '
                   'serve --worker-slots')
        with self.assertRaises(OSError) as caught:
            service.Own(self.folder, 'here', 2)
        self.assertIn('the service of this study has not started; see', str(caught.exception))
        self.use('exec sleep 60')
        with mock.patch.object(service, '_ASK_S', 0.01):
            self.fails('gradpool jobs has not answered within 0.01 s; look at the service')


class Terminal(io.StringIO):
    encoding = 'utf-8'

    def isatty(self):
        return True


class Tables(unittest.TestCase):
    def make(self):
        rows = []
        for number in range(1, 31):
            one = trials.Trial(number, {'lr': .1 * number, 'name': 'a' * 60}, submitted_s=0.)
            for step in range(number % 4):
                one.take(step, 1. / (1 + step), 2, 1. + step)
            rows.append(one)
        rows[3].state, rows[3].value, rows[3].reports = 'trained', .5, 1
        return rows

    def test_a_table_is_as_wide_as_the_terminal_and_names_each_trial(self):
        rows = self.make()
        lines = table.table_of(rows, 'loss', 80, rows[3])
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertEqual(len(lines), 31)
        self.assertIn('loss', lines[0])
        self.assertIn('trained *', lines[4])
        whole = table.table_of(rows, 'loss', None, rows[3])
        self.assertIn('a' * 60, whole[1])

    def test_a_trend_has_bars_and_marks(self):
        self.assertEqual(table.trend_of([[1, 1.], [2, .5], [3, 0.], [4, NAN]], '0123'), '310!')
        self.assertEqual(table.trend_of([[1, 2.], [2, 2.]], '0123'), '00')

    def test_a_terminal_shows_a_table_that_is_drawn_again_over_itself(self):
        out, rows = Terminal(), self.make()
        study = types.SimpleNamespace(name='digits', folder='here', metric='loss', mode='min',
                                      trials=rows, best=rows[3])
        with mock.patch.dict(os.environ, {'TERM': 'xterm', 'LINES': '24', 'COLUMNS': '90'}):
            shown = table.Table(out)
            shown.begin(study)
            shown.draw()
            first = out.getvalue()
            shown._drawn_s = 0
            shown.draw()
            shown.end()
        frame = first.split('results: here\n')[1].splitlines()
        self.assertLess(len(frame), 24)
        self.assertIn('study digits', frame[0])
        self.assertIn('13 more: gradpool trials', frame)
        self.assertIn(f'\x1b[{len(frame)}F\x1b[J', out.getvalue()[len(first):])
        self.assertIn('the best is trial 4', out.getvalue())
        plain = re.sub(r'\x1b\[[0-9;]*[mFJ]', '', first)
        self.assertLessEqual(max(map(len, plain.splitlines())), 90)


# ---- stand-ins with the documented interfaces of Optuna and Ray Tune ----

class OptunaTrial:
    def __init__(self, number, params):
        self.number, self.params, self.reported = number, params, []

    def report(self, value, step):
        self.reported.append((float(value), int(step)))


class OptunaStudy:
    """Study of Optuna 3: ask(fixed_distributions), tell(trial, values, state), enqueue_trial()."""

    def __init__(self):
        self.trials, self.told, self.queue = [], {}, []

    def enqueue_trial(self, params, user_attrs=None, skip_if_exists=False):
        self.queue.append(dict(params))

    def ask(self, fixed_distributions=None):
        number = len(self.trials)
        params = self.queue.pop(0) if self.queue else {name: number for name in
                                                       fixed_distributions}
        self.trials.append(OptunaTrial(number, params))
        return self.trials[-1]

    def tell(self, trial, values=None, state=None, skip_if_finished=False):
        number = trial if isinstance(trial, int) else trial.number
        if number in self.told or not 0 <= number < len(self.trials):
            raise ValueError(f'trial {number} cannot be told')
        if state.name in ('PRUNED', 'FAIL') and values is not None:
            raise ValueError('values for a trial that is not complete')
        if state.name == 'COMPLETE' and values is None:
            raise ValueError('no values')
        self.told[number] = state.name, values


class RaySearcher:
    """Searcher of Ray Tune 2: suggest(), on_trial_complete(), add_evaluated_point()."""
    FINISHED = 'FINISHED'

    def __init__(self, count):
        self.count, self.live, self.complete, self.points = count, {}, {}, []

    def suggest(self, trial_id):
        if len(self.live) >= self.count:
            return self.FINISHED
        if len(self.live) - len(self.complete) >= 2:
            return None
        self.live[trial_id] = {'lr': len(self.live)}
        return self.live[trial_id]

    def on_trial_complete(self, trial_id, result=None, error=False):
        if trial_id not in self.live:
            raise KeyError(trial_id)
        self.complete[trial_id] = result, error

    def add_evaluated_point(self, parameters, value, error=False, pruned=False,
                            intermediate_values=None):
        self.points.append((parameters, value))


def program_of(name):
    """Returns a program of the page."""
    found = re.findall(r'^```python\n# (\S+?)(?::[^\n]*)?\n(.*?)^```$',
                       PAGE.read_text(encoding='utf-8'), re.M | re.S)
    return dict(found)[name]


def class_of(name, kind):
    namespace = {}
    exec(program_of(name), namespace)
    return namespace[kind]


def restored(*rows):
    return [trials.Trial(n, params, state=state, value=value)
            for n, (params, state, value) in enumerate(rows, 1)]


class Adapters(unittest.TestCase):
    def test_adapters_have_at_most_20_lines(self):
        for name in 'optuna_searcher.py', 'ray_searcher.py':
            lines = [line for line in program_of(name).splitlines() if line.strip()]
            self.assertLessEqual(len(lines), 20, name)

    def make_optuna(self):
        states = {name: types.SimpleNamespace(name=name) for name in ('COMPLETE', 'PRUNED', 'FAIL')}
        fake = types.SimpleNamespace(trial=types.SimpleNamespace(TrialState=states))
        with mock.patch.dict(sys.modules, {'optuna': fake}):
            kind = class_of('optuna_searcher.py', 'Optuna')
        study = OptunaStudy()
        return kind(study, {'lr': None}), study

    def test_the_adapter_of_optuna_passes_asks_and_ends(self):
        searcher, study = self.make_optuna()
        self.assertEqual([searcher.ask() for _ in range(5)], [{'lr': n} for n in range(5)])
        for number, value, state in ((2, .5, 'ended'), (1, .1, 'trained'), (3, .3, 'killed'),
                                     (4, None, 'failed'), (5, None, 'trained')):
            searcher.tell(number, value, state)
        self.assertEqual(study.told, {0: ('COMPLETE', .1), 1: ('PRUNED', None), 2: ('FAIL', None),
                                      3: ('FAIL', None), 4: ('FAIL', None)})
        self.assertEqual(study.trials[1].reported, [(.5, 1)])

    def test_the_adapter_of_optuna_is_restored(self):
        searcher, study = self.make_optuna()
        searcher.restore(restored(({'lr': 7}, 'trained', .1), ({'lr': 8}, 'running', .2)))
        self.assertEqual([one.params for one in study.trials], [{'lr': 7}, {'lr': 8}])
        self.assertEqual(study.told, {0: ('COMPLETE', .1)})
        searcher.tell(2, .4, 'ended')
        self.assertEqual((study.told[1], searcher.ask()), (('PRUNED', None), {'lr': 2}))

    def test_the_adapter_of_ray_passes_asks_and_ends(self):
        searcher = RaySearcher(3)
        adapter = class_of('ray_searcher.py', 'RayTune')(searcher, 'loss')
        self.assertEqual([adapter.ask() for _ in range(3)], [{'lr': 0}, {'lr': 1}, None])
        adapter.tell(2, .5, 'ended')
        self.assertEqual([adapter.ask(), adapter.ask()], [{'lr': 2}, None])
        adapter.tell(1, None, 'failed')
        self.assertEqual(searcher.complete, {'2': ({'loss': .5}, False), '1': (None, True)})

    def test_the_adapter_of_ray_is_restored(self):
        searcher = RaySearcher(3)
        adapter = class_of('ray_searcher.py', 'RayTune')(searcher, 'loss')
        adapter.restore(restored(({'lr': 7}, 'trained', .1), ({'lr': 8}, 'running', .2)))
        adapter.tell(2, .4, 'trained')
        self.assertEqual(searcher.points, [({'lr': 7}, .1), ({'lr': 8}, .4)])
        self.assertEqual((adapter.ask(), list(searcher.live)), ({'lr': 0}, ['3']))


if __name__ == '__main__':
    tap.main()
