"""Runs a unittest module as a TAP program, so that meson counts each case.

    if __name__ == '__main__':
        tap.main()

The name of a case is made from its method: test_a_stale_route_is_refused -> "a stale route is
refused"."""
import fnmatch
import os
import sys
import traceback
import unittest

# Logs whose last lines are printed after a failed case. Each log has a name and a method tail().
witnesses = []


def statement(test):
    # Returns the name of a case. A failure outside of a method (setUpClass) has only an id.
    name = getattr(test, '_testMethodName', None) or test.id()
    return name.removeprefix('test_').replace('_', ' ')


def emit(line):
    sys.stdout.write(line + '\n')
    sys.stdout.flush()


class TapResult(unittest.TestResult):
    """Prints one line for each case, and the text of a failure as comments below it."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def say(self, verdict, test, suffix=''):
        self.number += 1
        emit(f'{verdict} {self.number} - {statement(test)}{suffix}')

    def explain(self, error):
        """Prints the message of the error, then the trace, and the logs. The message comes
        first, because readers of long outputs may see their first lines only."""
        for part in traceback.format_exception_only(*error[:2]), traceback.format_exception(*error):
            for line in ''.join(part).splitlines():
                emit('# ' + line)
        for witness in witnesses:
            for line in witness.tail().splitlines():
                emit(f'# {witness.name}: {line}')

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say('ok', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say('ok', test, f' # SKIP {reason}')

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say('not ok', test)
        self.explain(err)

    def addError(self, test, err):
        super().addError(test, err)
        self.say('not ok', test)
        self.explain(err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.say('not ok', test, f' {dict(subtest.params)}')
            self.explain(err)


def seed(default):
    """Returns the seed for the test's random numbers, and prints it: GRADPOOL_TEST_SEED, or
    `default`."""
    chosen = int(os.environ.get('GRADPOOL_TEST_SEED') or default)
    emit(f'# GRADPOOL_TEST_SEED={chosen}')
    return chosen


def cases(suite, pattern):
    """Yields the cases of a suite whose names match `pattern`, which may contain *. In these names
    _ replaces each blank."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test, pattern)
        elif fnmatch.fnmatchcase(statement(test).replace(' ', '_'), pattern.removeprefix('test_')):
            yield test


def main(module='__main__'):
    """Runs all cases of the module, or the cases that match GRADPOOL_TEST_CASE. Prints the plan
    last. Exits with 1 if a case failed."""
    result, suite = TapResult(), unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module])
    if pattern := os.environ.get('GRADPOOL_TEST_CASE'):
        suite = unittest.TestSuite(cases(suite, pattern))
    suite.run(result)
    emit(f'1..{result.number}')
    sys.exit(0 if result.wasSuccessful() else 1)
