#!/usr/bin/python3
"""The runner (runner/) counts no failure as a success, ends only hanging programs, and keeps the
load near the number of cores."""
import contextlib
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, 'lib'), os.path.join(HERE, 'runner')]

import parts  # noqa: E402
import program  # noqa: E402
import progress  # noqa: E402
import main  # noqa: E402
import schedule  # noqa: E402
import tap  # noqa: E402
from outcome import Outcome  # noqa: E402
from summary import Summary  # noqa: E402

SLEEPS = 'import time; time.sleep(60)'
SPINS = 'while True: pass'
# A busy host may stop a process for a second, which then looks quiet. So a case that needs a busy
# process may try several times. A mistake of the runner fails each attempt.
ATTEMPTS = 5


def outcome(stdout, code=0, **more):
    return Outcome('x', code, stdout, **more)


def counts(*arguments, **named):
    o = outcome(*arguments, **named)
    return o.passed, o.failed, o.skipped


class Counting(unittest.TestCase):
    def test_each_case_is_counted(self):
        self.assertEqual(counts('1..3\nok 1 - a\nok 2 - b\nok 3 - c\n'), (3, 0, 0))

    def test_a_failed_case_is_counted_once(self):
        said = '1..2\nok 1 - a\nnot ok 2 - b\n# why\n'
        self.assertEqual(counts(said, 1), (1, 1, 0))
        self.assertEqual(counts(said, 0), (1, 1, 0))

    def test_the_exit_code_of_cmocka_adds_nothing_to_its_cases(self):
        said = '1..3\nnot ok 1 - a\nnot ok 2 - b\nok 3 - c\n# not ok - tests\n'
        self.assertEqual(counts(said, 2), (1, 2, 0))

    def test_a_skipped_case_is_neither_passed_nor_failed(self):
        self.assertEqual(counts('1..2\nok 1 - a # SKIP no IPv6\nok 2 - b\n'), (1, 0, 1))

    def test_a_case_that_cmocka_skips_is_skipped_and_hides_no_failure(self):
        said = '1..2\nok 1 - a\nnot ok 2 # SKIP b\n'
        self.assertEqual(counts(said), (1, 0, 1))
        self.assertEqual(counts(said, 1), (1, 1, 1))
        self.assertEqual(counts(said, -6), (1, 1, 1))
        self.assertEqual(counts('1..2\nnot ok 1 - a\nnot ok 2 # SKIP b\n', 1), (0, 1, 1))

    def test_the_reason_of_a_skip_is_known_from_python_and_from_cmocka(self):
        self.assertEqual(outcome('1..1\nok 1 - a case # SKIP no IPv6\n').skips,
                         [('a case', 'no IPv6')])
        for word in 'not ok', 'ok':
            said = f'1..2\nok 1 - a\n# no memory is mapped\n{word} 2 # SKIP b\n'
            self.assertEqual(outcome(said).skips, [('b', 'no memory is mapped')])
        self.assertEqual(outcome('1..1\nnot ok 1 # SKIP b\n').skips, [('b', '')])

    def test_a_crash_after_good_cases_is_a_failure(self):
        self.assertEqual(counts('1..3\nok 1 - a\n', -11), (1, 1, 0))

    def test_a_crash_after_a_bad_case_is_one_more_failure(self):
        self.assertEqual(counts('1..3\nnot ok 1 - a\n', -11), (0, 2, 0))

    def test_a_sanitizer_report_at_exit_is_a_failure(self):
        self.assertEqual(counts('1..1\nok 1 - a\n', 1), (1, 1, 0))

    def test_an_end_before_the_planned_number_of_cases_is_a_failure(self):
        self.assertEqual(counts('1..4\nok 1 - a\n'), (1, 1, 0))
        self.assertEqual(counts('ok 1 - a\n'), (1, 1, 0))

    def test_a_program_that_was_ended_for_lack_of_progress_is_a_failure(self):
        self.assertEqual(counts('1..2\nok 1 - a\n', -9, ended_for='no progress'), (1, 1, 0))
        self.assertEqual(counts('', -9, ended_for='no progress'), (0, 1, 0))

    def test_a_program_without_output_is_a_failure(self):
        self.assertEqual(counts(''), (0, 1, 0))
        self.assertEqual(counts('', 77), (0, 1, 0))
        self.assertEqual(counts('1..0\n'), (0, 1, 0))

    def test_a_program_that_skips_itself_is_skipped(self):
        self.assertEqual(outcome('1..0 # SKIP no network namespaces\n').skips,
                         [('all', 'no network namespaces')])
        self.assertEqual(counts('1..0 # SKIP no network namespaces\n', 1), (0, 1, 0))

    def test_a_program_without_tap_counts_as_one_case(self):
        self.assertEqual(counts('done\n', is_tap=False), (1, 0, 0))
        self.assertEqual(counts('', 3, is_tap=False), (0, 1, 0))

    def test_words_that_begin_like_a_verdict_are_no_case(self):
        self.assertEqual(counts('1..1\nokay\nok 1 - a\nnothing\n'), (1, 0, 0))

    def test_the_seed_is_found_in_any_line_of_output(self):
        self.assertEqual(outcome('1..1\n# GRADPOOL_TEST_SEED=17\nok 1 - a\n').seed, '17')
        self.assertIsNone(outcome('1..1\nok 1 - a\n').seed)


class Fake:
    """Tests of a build's programs, without a process."""
    seconds = cpu_s = 0.0
    again = ['MALLOC_PERTURB_=7']

    def __init__(self, build, name):
        self.build, self.name = parts.make_builds()[build], name

    def __str__(self):
        return f'{self.build.name}:{self.name}'


class Closing(unittest.TestCase):
    GOOD, BAD = ('1..1\nok 1 - a\n', 0, ''), ('1..2\nok 1 - b\nnot ok 2 - c d\n# c.c:7: 1 != 2\n',
                                              1, 'ouch GRADPOOL_TEST_SEED=5\n')

    def run_on(self, builds):
        """Runs the runner on builds. `builds`: name -> outputs of its programs, or None for a build
        that failed. Returns (exit code, lines)."""
        with contextlib.redirect_stdout(io.StringIO()) as said:
            summary = Summary()
            for build, outputs in builds.items():
                if outputs is None:
                    summary.add_failed_build(build)
                    continue
                summary.expect(build, len(outputs))
                for number, (stdout, code, stderr) in enumerate(outputs):
                    summary.add(Fake(build, f'p{number}'), Outcome(f'p{number}', code, stdout,
                                                                   stderr))
            code = summary.close()
        return code, said.getvalue().splitlines()

    def test_builds_are_summed_in_the_last_line(self):
        code, lines = self.run_on({'plain': [self.GOOD], 'thread': [self.GOOD, self.GOOD]})
        self.assertEqual((code, lines[-1]), (0, '3 passed, 0 failed, 0 skipped'))

    def test_a_failure_is_shown_with_its_output(self):
        code, lines = self.run_on({'plain': [self.GOOD, self.BAD]})
        self.assertEqual((code, lines[-1]), (1, '2 passed, 1 failed, 0 skipped'))
        self.assertIn('  # c.c:7: 1 != 2', lines)
        self.assertTrue(any(line.startswith('  ouch') for line in lines))

    def test_a_failure_has_the_command_that_repeats_its_case_with_the_seed(self):
        _, lines = self.run_on({'thread': [self.BAD]})
        self.assertIn('again: MALLOC_PERTURB_=7 GRADPOOL_TEST_SEED=5 test/run.sh --only thread:p0 '
                      '--case c_d', lines)

    def test_a_skip_is_named_with_its_reason_and_reads_as_no_failure(self):
        code, lines = self.run_on({'plain': [('1..2\nok 1 - a\n# no disk\nnot ok 2 # SKIP b\n', 0,
                                              '')]})
        self.assertEqual((code, lines[-1]), (0, '1 passed, 0 failed, 1 skipped'))
        self.assertIn('skipped: plain:p0: b: no disk', lines)
        self.assertFalse([line for line in lines if line.startswith('FAIL') or 'not ok' in line])

    def test_a_process_that_a_program_has_left_behind_is_named(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            summary = Summary()
            summary.expect('plain', 1)
            summary.add(Fake('plain', 'p'), Outcome('p', 0, '1..1\nok 1 - a\n', left=['7 x y']))
            summary.close()
        self.assertIn('left behind: plain:p: process 7 x y', said.getvalue().splitlines())

    def test_a_failure_without_a_plain_case_name_repeats_its_whole_program(self):
        said = '1..3\nnot ok 1 - setUpClass (m.X)\nnot ok 2 - a b {\'seed\': 7}\nok 3 - d\n'
        _, lines = self.run_on({'plain': [(said, 1, '')]})
        again = [line for line in lines if line.startswith('again: ')]
        self.assertEqual([line.partition('--only ')[2] for line in again],
                         ['plain:p0 --case a_b', 'plain:p0'])

    def test_a_program_that_does_not_exist_is_a_failure(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            summary = Summary()
            summary.expect('plain', 1)
            summary.add(Fake('plain', 'p'), outcome('1..1\nok 1 - a\n'))
            summary.add_unknown('tpyo')
            code = summary.close()
        self.assertEqual((code, said.getvalue().splitlines()[-1]),
                         (1, '1 passed, 1 failed, 0 skipped'))

    def test_a_build_that_failed_is_a_failure(self):
        code, lines = self.run_on({'plain': [self.GOOD], 'address': None})
        self.assertEqual((code, lines[-1]), (1, '1 passed, 1 failed, 0 skipped'))

    def test_a_build_in_which_no_test_ran_is_a_failure(self):
        code, lines = self.run_on({'plain': []})
        self.assertEqual((code, lines[-1]), (1, '0 passed, 1 failed, 0 skipped'))

    def test_a_program_that_did_not_run_is_a_failure(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            summary = Summary()
            summary.expect('plain', 2)
            summary.add(Fake('plain', 'p'), outcome('1..1\nok 1 - a\n'))
            code = summary.close()
        self.assertEqual((code, said.getvalue().splitlines()[-1]),
                         (1, '1 passed, 1 failed, 0 skipped'))


class Standing(unittest.TestCase):
    """Tests with a hanging process and with a process that is only slow."""

    def patience(self, code, seconds):
        with subprocess.Popen([sys.executable, '-c', code]) as child:
            self.addCleanup(child.kill)
            patience, start = progress.Patience(seconds, child.pid), time.monotonic()
            while not patience.is_over():
                time.sleep(0.05)
            child.kill()
        return time.monotonic() - start

    def test_a_sleeping_process_is_awaited_without_the_busy_factor(self):
        self.assertLess(self.patience(SLEEPS, 2), 2 * progress.Patience.BUSY_FACTOR)

    def test_a_process_that_computes_is_waited_for_ten_times_as_long(self):
        self.assertTrue(any(self.patience(SPINS, 0.3) >= 0.3 * progress.Patience.BUSY_FACTOR
                            for _ in range(ATTEMPTS)))

    def test_a_child_of_a_child_counts_and_so_does_a_process_of_its_session(self):
        table = {1: (0, 1), 10: (1, 10), 11: (10, 10), 12: (11, 12), 13: (1, 10), 14: (1, 14)}
        self.assertEqual(progress.owners([10], table), {10: 10, 11: 10, 12: 10, 13: 10})

    def test_pids_with_a_cycle_of_parents_end_no_process(self):
        self.assertEqual(progress.owners([10], {5: (6, 5), 6: (5, 6), 10: (1, 10)}), {10: 10})


class Running(unittest.TestCase):
    """Tests with programs of a build that exists only for the case."""

    def setUp(self):
        self.build = parts.make_builds()['plain']
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build.folder = pathlib.Path(self.folder.name)
        self.build.output = self.build.folder / 'out'
        self.ended = {}

    def program(self, name, code, is_parallel=True, suites=('x:unit',)):
        return program.Program({'name': name, 'cmd': [sys.executable, '-c', code], 'env': {},
                                'suite': list(suites), 'is_parallel': is_parallel,
                                'protocol': 'tap'}, self.build, 0)

    def run_all(self, *programs):
        def done(ended, its_outcome):
            self.ended[ended.name] = its_outcome
        plan = schedule.Schedule(programs, done, dict(os.environ))
        plan.run()
        return plan

    def test_a_program_without_progress_is_ended_and_prints_its_stacks(self):
        program.QUIET_S, before = 1, program.QUIET_S
        self.addCleanup(setattr, program, 'QUIET_S', before)
        self.run_all(self.program('still', SLEEPS))
        self.assertIn('no progress', self.ended['still'].problem)
        self.assertRegex(self.ended['still'].stderr, r'thread \d+ \S+: S in ')

    def test_a_program_that_spins_is_ended(self):
        program.SILENT_S, before = 1, program.SILENT_S
        self.addCleanup(setattr, program, 'SILENT_S', before)
        self.run_all(self.program('spins', SPINS))
        self.assertEqual('no output for 1 s', self.ended['spins'].problem)
        # D: a process that is starting may wait for a disk
        self.assertRegex(self.ended['spins'].stderr, r'thread \d+ \S+: [RD] in ')

    def test_a_program_that_is_slow_is_not_ended(self):
        program.QUIET_S, before = 1, program.QUIET_S
        self.addCleanup(setattr, program, 'QUIET_S', before)
        for _ in range(ATTEMPTS):
            self.run_all(self.program('slow', 'import time\nend = time.process_time() + 2\n'
                                      'while time.process_time() < end: pass\n'
                                      'print("1..1\\nok 1 - a")'))
            if not self.ended['slow'].problem:
                break
        self.assertEqual((self.ended['slow'].passed, self.ended['slow'].failed), (1, 0))

    def test_processes_that_a_program_leaves_behind_are_ended(self):
        self.run_all(self.program('leaves', 'import subprocess, sys; print(subprocess.Popen('
                                  f'[sys.executable, "-c", "{SLEEPS}"]).pid)'))
        left = int(self.ended['leaves'].stdout)
        self.assertIn(f'{left} {sys.executable}', self.ended['leaves'].left[0])
        for _ in range(1000):
            if progress.processes().get(left) is None or not progress.thread_times(left):
                break
            state = pathlib.Path(f'/proc/{left}/stat').read_text().rpartition(')')[2].split()[0]
            if state == 'Z':
                break
            time.sleep(0.01)
        else:
            self.fail(f'{left} lives')

    def test_programs_that_compute_get_a_core_each_and_those_that_wait_share(self):
        def is_full(*wanted, age_s=10, has_idle_core=False):
            plan = schedule.Schedule((), lambda *_: None, {})
            plan.cores, plan.has_idle_core = 2, has_idle_core
            plan.running = [types.SimpleNamespace(cores=cores, age_s=age_s, is_alone=False)
                            for cores in wanted]
            return plan.is_full()
        self.assertFalse(is_full())
        self.assertFalse(is_full(1.0))
        self.assertTrue(is_full(1.0, 1.0))
        self.assertFalse(is_full(*[0.1] * 6))
        self.assertTrue(is_full(*[0.0] * 100), 'memory has an end, too')
        self.assertFalse(is_full(1.0, 1.0, has_idle_core=True), 'they come in bursts')
        self.assertTrue(is_full(*[0.0] * 4, age_s=0.1), 'nothing is known of them yet')

    def test_a_program_gets_an_interrupt_though_its_runner_began_in_the_background(self):
        """As with `test/run.sh &` in a script: the shell starts background processes with SIGINT
        ignored."""
        case = [sys.executable, '-m', 'unittest', 'test_runner.Running.hear_an_interrupt']
        run = subprocess.run(['sh', '-c', '"$@" & wait $!', 'sh', *case], cwd=HERE,
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)

    def hear_an_interrupt(self):
        self.assertEqual(signal.getsignal(signal.SIGINT), signal.SIG_IGN)
        self.run_all(self.program('hears', 'import os, signal\ntry:\n    signal.raise_signal('
                                  'signal.SIGINT)\nexcept KeyboardInterrupt:\n'
                                  '    print("1..1\\nok 1 - a")'))
        self.assertEqual((self.ended['hears'].passed, self.ended['hears'].failed), (1, 0))

    def test_an_interrupt_ends_a_run_that_was_started_in_the_background(self):
        program.hear_interrupts()
        with self.assertRaises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    def test_programs_of_sanitizer_builds_come_after_all_others_but_those_alone(self):
        builds = parts.make_builds()
        def queued(build, order, is_alone=False):
            return types.SimpleNamespace(build=builds[build], order=order, is_alone=is_alone)
        programs = [queued('thread', -20), queued('plain', 0, True), queued('plain', 0),
                    queued('address', 0), queued('plain', -10)]
        plan = schedule.Schedule(programs, lambda *_: None, {})
        self.assertEqual([programs.index(p) for p in plan.queue], [4, 2, 0, 3, 1])

    def test_the_cores_that_a_program_wants_are_its_running_and_runnable_threads(self):
        """The programs end when the test has seen both of them, or after a minute."""
        spins, sleeps, seen = [], [], self.build.folder / 'seen'
        until_seen = ('import os, time\nend = time.monotonic() + 60\n'
                      f'while not os.path.exists("{seen}") and time.monotonic() < end: ')
        plan = schedule.Schedule([self.program('spins', until_seen + 'pass'),
                                  self.program('sleeps', until_seen + 'time.sleep(0.5)')],
                                 lambda *_: None, dict(os.environ))
        sample = plan.sample

        def look():
            sample()
            for each in plan.running:
                if each.age_s > 1:
                    (spins if each.name == 'spins' else sleeps).append(each.cores)
            if max(spins, default=0) > 0.5 and min(sleeps, default=1) < 0.1:
                seen.touch()
        plan.sample = look
        plan.run()
        self.assertGreater(max(spins), 0.5)
        self.assertLess(min(sleeps), 0.1)

    def test_a_program_that_needs_the_whole_host_runs_alone(self):
        note = ('import os, time; path = "{}"; others = os.listdir(path); '
                'open(path + "/{}", "w"); time.sleep(0.5); os.unlink(path + "/{}"); '
                'print("1..1\\nok 1 - a # company:", *others)')
        folder = self.build.folder / 'company'
        folder.mkdir()
        self.run_all(*(self.program(name, note.format(folder, name, name), not name == 'alone')
                       for name in ('a', 'alone', 'b')))
        self.assertIn('company:\n', self.ended['alone'].stdout)


class Words(unittest.TestCase):
    """The command line of test/run.sh."""

    def refused(self, *words):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as e:
            main.seeds(main.parse(words).long or [])
        self.assertEqual(e.exception.code, 2)
        return said.getvalue()

    def test_a_mistake_is_named_before_anything_is_installed(self):
        self.assertIn('--lnog', self.refused('--lnog'))
        self.assertIn("'falts' is no part", self.refused('--long', 'falts'))
        self.assertIn('exclude each other', self.refused('--quick', '--long', 'fuzz'))
        self.assertIn("'4-8' is no part", self.refused('--long', 'fuzz', '4-8'))

    def test_a_range_of_seeds_that_is_empty_or_open_is_refused(self):
        for word in '8-4', '4-', '-4', 'x':
            self.assertIn(f"'{word}' is no part", self.refused('--long', 'faults', word))

    def test_a_range_of_seeds_may_follow_the_name_of_a_part(self):
        self.assertEqual(main.seeds(['faults', '4-8']), (['faults'], '4-8'))
        self.assertEqual(main.seeds(['fuzz', 'pytorch']), (['fuzz', 'pytorch'], None))

    def test_an_end_to_end_program_that_has_a_long_form_is_in_a_part(self):
        folder = pathlib.Path(HERE) / 'e2e'
        text = (folder / 'meson.build').read_text(encoding='utf-8')
        suites = dict(re.findall(r"'(?:\w+/)?(\w+)': (\[[^\]]*\]|'\w+')", text))
        for path in folder.rglob('test_*.py'):
            name = path.stem.removeprefix('test_')
            if 'GRADPOOL_TEST_LONG' in path.read_text(encoding='utf-8'):
                words = set(re.findall(r"'([\w-]+)'", suites[name]))
                self.assertTrue(words & set(parts.LONG), f'{name}: {words}')

    def test_every_part_is_listed_with_its_minutes_and_none_takes_an_hour(self):
        for name, part in parts.LONG.items():
            self.assertLess(part.minutes, 60)
            self.assertRegex(parts.list_parts(), rf'{name} +{part.minutes} min')


if __name__ == '__main__':
    tap.main()
