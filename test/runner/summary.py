"""Prints a line for each finished program. At the end of a run it prints failures, skips and the
closing line."""
import re
import time


class Summary:
    def __init__(self, title=''):
        self.title, self.start = title, time.monotonic()
        self.outcomes, self.expected = {}, {}   # key: build; values: outcomes, number of programs
        self.failed_builds, self.failures, self.unknown = [], [], []

    def say(self, text):
        print(f'==== {self.clock()} {text}', flush=True)

    def clock(self):
        seconds = int(time.monotonic() - self.start)
        return f'{seconds // 60:2}:{seconds % 60:02}'

    def add_failed_build(self, build):
        self.failed_builds.append(build)

    def add_unknown(self, word):
        self.unknown.append(word)

    def expect(self, build, programs):
        self.expected[build] = programs
        self.outcomes.setdefault(build, [])

    def add(self, program, outcome):
        build = program.build.name
        self.outcomes[build].append(outcome)
        verdict = 'FAIL' if outcome.failed else 'ok  '
        counts = f'{outcome.passed} passed'
        counts += f', {outcome.failed} failed' if outcome.failed else ''
        counts += f', {outcome.skipped} skipped' if outcome.skipped else ''
        print(f'{verdict} {self.clock()} {str(program):40} {counts} '
              f'({program.seconds:.1f} s, {program.cpu_s:.1f} s of CPU)', flush=True)
        if outcome.failed:
            self.failures.append((program, outcome))
            self.show(program, outcome)

    def show(self, program, outcome):
        for line in outcome.lines():
            print('  ' + line)
        if outcome.problem:
            print(f'  the program: {outcome.problem}')
        for line in repeat_lines(program, outcome):
            print('  ' + line, flush=True)

    def close(self):
        """Prints the end of a run. Returns 0 only if every program of the run passed."""
        for program, outcome in self.failures:
            for line in [f'---- failed: {program}', *repeat_lines(program, outcome)]:
                print(line)
        self.name_skips()
        self.name_left()
        totals = [0, 0, 0]
        for word in self.unknown:
            totals[1] += 1
            print(f'no program {word}; `meson test -C build --list` names them')
        for build in self.failed_builds:
            totals[1] += 1
            print(f'{build:10} was not built')
        for build, outcomes in self.outcomes.items():
            sums = [sum(getattr(o, what) for o in outcomes)
                    for what in ('passed', 'failed', 'skipped')]
            if not outcomes or len(outcomes) != self.expected[build]:
                sums[1] += 1
            print(f'{build:10} {sums[0]} passed, {sums[1]} failed, {sums[2]} skipped'
                  f' in {len(outcomes)} of {self.expected[build]} programs')
            totals = [a + b for a, b in zip(totals, sums)]
        self.say(f'end {self.title}'.rstrip())
        print(f'{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped', flush=True)
        return 1 if totals[1] or not totals[0] else 0

    def name_skips(self):
        for build, outcomes in self.outcomes.items():
            for outcome in outcomes:
                for name, reason in outcome.skips:
                    why = reason or 'the test gives no reason'
                    print(f'skipped: {build}:{outcome.name}: {name}: {why}')

    def name_left(self):
        for build, outcomes in self.outcomes.items():
            for outcome in outcomes:
                for process in outcome.left:
                    print(f'left behind: {build}:{outcome.name}: process {process}')


def repeat_lines(program, outcome):
    """Returns the command that repeats each failed case alone."""
    variables = [*program.again, *([f'GRADPOOL_TEST_SEED={outcome.seed}'] if outcome.seed else [])]
    command = ' '.join(['again:', *variables, f'test/run.sh --only {program}'])
    # The name of a subtest ends with its parameters. A name with other characters belongs to a
    # rule, a corpus file or a set-up, and cannot be run alone. Its whole program is repeated.
    cases = {name.partition(' {')[0].strip().replace(' ', '_') for name in outcome.failures}
    names = sorted(case for case in cases if re.fullmatch(r'\w+', case))
    for case in names:
        yield f'{command} --case {case}'
    if outcome.problem or len(names) < len(cases):
        yield command
