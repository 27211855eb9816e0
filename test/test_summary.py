#!/usr/bin/python3
"""Sees to it that no way of failing is counted as a success by lib/summary.py."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib')
sys.path.insert(0, LIB)

import summary  # noqa: E402
import tap  # noqa: E402


def outcome(stdout, result='OK', code=0):
    return summary.Outcome('x', {'result': result, 'stdout': stdout, 'returncode': code})


def counts(*arguments, **named):
    o = outcome(*arguments, **named)
    return o.passed, o.failed, o.skipped


class Counting(unittest.TestCase):
    def test_each_case_is_counted(self):
        self.assertEqual(counts('1..3\nok 1 - a\nok 2 - b\nok 3 - c\n'), (3, 0, 0))

    def test_a_failed_case_is_counted_once(self):
        said = '1..2\nok 1 - a\nnot ok 2 - b\n# why\n'
        self.assertEqual(counts(said, 'ERROR', 1), (1, 1, 0))
        self.assertEqual(counts(said, 'FAIL', 0), (1, 1, 0))

    def test_the_exit_code_of_cmocka_adds_nothing_to_its_cases(self):
        said = '1..3\nnot ok 1 - a\nnot ok 2 - b\nok 3 - c\n# not ok - tests\n'
        self.assertEqual(counts(said, 'ERROR', 2), (1, 2, 0))

    def test_a_skipped_case_is_neither_passed_nor_failed(self):
        self.assertEqual(counts('1..2\nok 1 - a # SKIP no IPv6\nok 2 - b\n'), (1, 0, 1))

    def test_what_cmocka_skips_is_skipped_and_hides_no_failure(self):
        said = '1..2\nok 1 - a\nnot ok 2 # SKIP b\n'
        self.assertEqual(counts(said, 'FAIL', 0), (1, 0, 1))
        self.assertEqual(counts(said, 'ERROR', 1), (1, 1, 1))
        self.assertEqual(counts(said, 'ERROR', -6), (1, 1, 1))
        self.assertEqual(counts('1..2\nnot ok 1 - a\nnot ok 2 # SKIP b\n', 'ERROR', 1), (0, 1, 1))

    def test_a_crash_after_good_cases_is_a_failure(self):
        self.assertEqual(counts('1..3\nok 1 - a\n', 'ERROR', -11), (1, 1, 0))

    def test_a_crash_after_a_bad_case_is_one_more_failure(self):
        self.assertEqual(counts('1..3\nnot ok 1 - a\n', 'ERROR', -11), (0, 2, 0))

    def test_a_sanitizer_report_at_exit_is_a_failure(self):
        self.assertEqual(counts('1..1\nok 1 - a\n', 'ERROR', 1), (1, 1, 0))

    def test_an_early_exit_that_looks_well_is_a_failure(self):
        self.assertEqual(counts('1..4\nok 1 - a\n', 'ERROR', 0), (1, 1, 0))

    def test_a_timeout_is_a_failure(self):
        self.assertEqual(counts('1..2\nok 1 - a\n', 'TIMEOUT', -15), (1, 1, 0))
        self.assertEqual(counts('', 'TIMEOUT', -15), (0, 1, 0))

    def test_a_program_that_says_nothing_is_a_failure(self):
        self.assertEqual(counts('', 'SKIP', 0), (0, 1, 0))

    def test_a_program_that_skips_itself_is_skipped(self):
        self.assertEqual(counts('1..0 # SKIP no network namespaces\n', 'SKIP', 0), (0, 0, 1))
        self.assertEqual(counts('', 'SKIP', 77), (0, 0, 1))

    def test_a_program_without_cases_counts_as_one(self):
        self.assertEqual(counts('done\n'), (1, 0, 0))
        self.assertEqual(counts('', 'FAIL', 3), (0, 1, 0))

    def test_words_that_begin_like_a_verdict_are_no_case(self):
        self.assertEqual(counts('1..1\nokay\nok 1 - a\nnothing\n'), (1, 0, 0))


class Closing(unittest.TestCase):
    def run_on(self, logs):
        """logs: build -> records, or None for a build that failed. Returns (exit code, lines)."""
        with tempfile.TemporaryDirectory() as folder, \
                contextlib.redirect_stdout(io.StringIO()) as said:
            arguments = []
            for build, records in logs.items():
                path = os.path.join(folder, build)
                arguments.append(f'{build}={path}')
                if records is not None:
                    with open(path, 'w', encoding='utf-8') as file:
                        file.write('\n'.join(map(json.dumps, records)))
            code = summary.main(arguments)
        return code, said.getvalue().splitlines()

    GOOD = {'name': 'gradpool:unit / a', 'result': 'OK', 'stdout': '1..1\nok 1 - a\n',
            'returncode': 0}
    BAD = {'name': 'gradpool:unit / b', 'result': 'ERROR', 'returncode': 1,
           'stdout': '1..2\nok 1 - b\nnot ok 2 - c\n# c.c:7: 1 != 2\n', 'stderr': 'ouch'}

    def test_builds_are_summed_in_the_last_line(self):
        code, lines = self.run_on({'plain': [self.GOOD], 'thread': [self.GOOD, self.GOOD]})
        self.assertEqual((code, lines[-1]), (0, '3 passed, 0 failed'))

    def test_a_failure_is_shown_with_its_output(self):
        code, lines = self.run_on({'plain': [self.GOOD, self.BAD]})
        self.assertEqual((code, lines[-1]), (1, '2 passed, 1 failed'))
        self.assertIn('---- plain: unit / b: ERROR', lines)
        self.assertIn('  # c.c:7: 1 != 2', lines)
        self.assertIn('  ouch', lines)

    def test_a_build_that_failed_is_a_failure(self):
        code, lines = self.run_on({'plain': [self.GOOD], 'address': None})
        self.assertEqual((code, lines[-1]), (1, '1 passed, 1 failed'))

    def test_a_build_in_which_no_test_ran_is_a_failure(self):
        code, lines = self.run_on({'plain': []})
        self.assertEqual((code, lines[-1]), (1, '0 passed, 1 failed'))


if __name__ == '__main__':
    tap.main()
