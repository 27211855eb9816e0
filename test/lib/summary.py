#!/usr/bin/python3
"""Counts the cases of several builds from meson's logs, shows what failed, prints the closing line.

Usage: summary.py BUILD=LOG...

LOG holds a build's meson-logs/testlog*.json. A LOG that is not there is a build that did not get
as far as testing: one failure. The last line is "N passed, N failed"; exits 1 if anything failed.
"""
import json
import re
import sys

CASE = re.compile(r'^(not ok|ok)\b(?P<rest>.*)$')
SKIPPED = re.compile(r'#\s*skip', re.I)
ALL_SKIPPED = re.compile(r'^1\.\.0\b', re.M)
SHADOW = re.compile(r'^Shadow bytes around', re.M)  # of interest to nobody here
SHOWN_LINES = 60  # of the beginning, and of the end


class Outcome:
    """What one test program did."""

    def __init__(self, name, record):
        self.name = name
        self.passed = self.failed = self.skipped = 0
        self.skipped_by_cmocka = 0  # which says "not ok 1 # SKIP"; meson takes that for a failure
        self.result = record['result']
        self.stdout = record.get('stdout') or ''
        self.stderr = record.get('stderr') or ''
        self.count_cases()
        self.count_program(record.get('returncode'))

    def count_cases(self):
        for line in self.stdout.splitlines():
            if not (match := CASE.match(line)):
                continue
            if SKIPPED.search(match['rest']):
                self.skipped += 1
                self.skipped_by_cmocka += match[1] == 'not ok'
            elif match[1] == 'not ok':
                self.failed += 1
            else:
                self.passed += 1

    def count_program(self, code):
        """A program that crashed, hung or said nothing is a failure, whatever its cases said."""
        counted = self.passed + self.failed + self.skipped
        if self.result == 'SKIP' and code == 0 and not counted:
            # meson's word for a TAP program without a case; a real skip says "1..0".
            if ALL_SKIPPED.search(self.stdout):
                self.skipped += 1
            else:
                self.failed += 1
                self.result = 'SAID NOTHING'
        elif self.result == 'SKIP' and not counted:
            self.skipped += 1
        elif self.result == 'FAIL' and code == 0 and self.skipped_by_cmocka and not self.failed:
            self.result = 'OK'
        elif self.result in ('OK', 'EXPECTEDFAIL'):
            self.passed += not counted
        elif self.result != 'SKIP' and (not self.failed or self.died(code)):
            self.failed += 1

    def died(self, code):
        # cmocka exits with the number of failed cases, so the code alone proves nothing.
        planned = re.search(r'^1\.\.(\d+)', self.stdout, re.M)
        counted = self.passed + self.failed + self.skipped
        return (self.result in ('TIMEOUT', 'INTERRUPT') or (code or 0) < 0
                or not planned or counted < int(planned[1]))

    def show(self):
        print(f'---- {self.name}: {self.result}')
        told = [x for x in self.stdout.splitlines() if not re.match(r'ok\b|1\.\.\d', x)]
        told += SHADOW.split(self.stderr)[0].splitlines()
        if len(told) > 2 * SHOWN_LINES:
            told[SHOWN_LINES:-SHOWN_LINES] = ['[...]']
        for line in told:
            print('  ' + line)


def read_log(path):
    """The outcomes in a log, or None where there is none."""
    try:
        with open(path, encoding='utf-8') as log:
            records = [json.loads(line) for line in log if line.strip()]
    except FileNotFoundError:
        return None
    return [Outcome(record['name'].removeprefix('gradpool:'), record) for record in records]


def summarize(builds):
    """Prints all; returns (passed, failed)."""
    lines = []
    passed = failed = 0
    for build, path in builds:
        outcomes = read_log(path)
        if not outcomes:
            failed += 1
            why = 'not built: its log is above' if outcomes is None else 'no test ran'
            lines.append(f'{build:10} {why}')
            continue
        for outcome in outcomes:
            if outcome.failed:
                outcome.name = f'{build}: {outcome.name}'
                outcome.show()
        sums = [sum(getattr(o, what) for o in outcomes) for what in ('passed', 'failed', 'skipped')]
        lines.append(f'{build:10} {sums[0]} passed, {sums[1]} failed, {sums[2]} skipped'
                     f' in {len(outcomes)} programs')
        passed, failed = passed + sums[0], failed + sums[1]
    print('\n' + '\n'.join(lines))
    return passed, failed


def main(arguments):
    passed, failed = summarize([argument.split('=', 1) for argument in arguments])
    print(f'{passed} passed, {failed} failed')
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
