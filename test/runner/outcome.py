"""Counts the cases of one test program from its output (TAP)."""
import re

CASE = re.compile(r'^(not ok|ok)\b\s*\d*\s*(?:-\s*)?(?P<name>.*?)\s*$')
SKIPPED = re.compile(r'^(?P<name>.*?)\s*#\s*skip\b:?\s*(?P<reason>.*)$', re.I)
ALL_SKIPPED = re.compile(r'^1\.\.0\s*#\s*skip\S*\s*(?P<reason>.*)$', re.M | re.I)
PLAN = re.compile(r'^1\.\.(\d+)', re.M)
SEED = re.compile(r'GRADPOOL_TEST_SEED=(\d+)')
SHADOW = re.compile(r'^Shadow bytes around', re.M)  # memory map in a sanitizer's report
SHOWN_LINES = 60  # number of lines shown from the beginning, and from the end


class Outcome:
    """One program: counts of its cases, and names of the failed and skipped ones.

    `code` is the exit code, negative for a signal. `ended_for` is the reason why the runner ended
    the program, or None. A program without TAP output (`is_tap` false) is one case. `left`: text
    about processes that remain after the program."""

    def __init__(self, name, code, stdout, stderr='', ended_for=None, is_tap=True, left=()):
        self.name, self.code, self.ended_for, self.is_tap = name, code, ended_for, is_tap
        self.stdout, self.stderr, self.left = stdout, stderr, left
        self.passed = 0
        self.failures, self.skips = [], []  # names; (name, reason)
        self.is_whole_skip = bool(ALL_SKIPPED.search(stdout)) and code == 0
        self.problem = None
        if is_tap:
            self.count_cases()
            self.problem = self.find_problem()
        elif code or ended_for:
            self.problem = ended_for or f'exit code {code}'
        else:
            self.passed = 1

    @property
    def counted(self):
        return self.passed + len(self.failures) + len(self.skips)

    @property
    def failed(self):
        return len(self.failures) + (self.problem is not None)

    @property
    def skipped(self):
        return len(self.skips)

    def count_cases(self):
        # comments since the previous case; cmocka prints the reason of a skip in them
        said = []
        for line in self.stdout.splitlines():
            if not (match := CASE.match(line)):
                said += [] if PLAN.match(line) else [line.lstrip('# ').strip()]
                continue
            if skip := SKIPPED.match(match['name']):
                # cmocka prints "not ok 2 # SKIP name" (later versions: "ok 2"), with the reason in
                # a comment before
                if skip['name']:
                    self.skips.append((skip['name'], skip['reason']))
                else:
                    self.skips.append((skip['reason'], said[-1] if said else ''))
            elif match[1] == 'not ok':
                self.failures.append(match['name'])
            else:
                self.passed += 1
            said = []
        if self.is_whole_skip and not self.counted:
            self.skips.append(('all', ALL_SKIPPED.search(self.stdout)['reason'] or ''))

    def find_problem(self):
        """Returns the reason why the program failed although its cases did not, or None."""
        if self.ended_for:
            return self.ended_for
        if self.code < 0:
            return f'ended by signal {-self.code}'
        if self.is_whole_skip:
            return None
        plan = PLAN.search(self.stdout)
        if not self.counted:
            return f'exit code {self.code} and no case'
        if not plan:
            return f'exit code {self.code} and no plan'
        if self.counted < int(plan[1]):
            return f'{self.counted} of {plan[1]} cases, then exit code {self.code}'
        # cmocka exits with the number of failed cases
        if self.code and not self.failures:
            return f'exit code {self.code} after good cases'
        return None

    @property
    def seed(self):
        """Returns the last seed that was printed before the first failed case."""
        before = re.split(r'^not ok\b(?!.*#\s*skip)', self.stdout, flags=re.M | re.I)[0]
        found = SEED.findall(before) or SEED.findall(self.stdout + self.stderr)
        return found[-1] if found else None

    def lines(self):
        """Returns the output without the passed cases, shortened."""
        told = [x for x in self.stdout.splitlines()
                if not re.match(r'ok\b|1\.\.\d|TAP version', x)]
        told += SHADOW.split(self.stderr)[0].splitlines()
        if len(told) > 2 * SHOWN_LINES:
            told[SHOWN_LINES:-SHOWN_LINES] = ['[...]']
        return told
