#!/usr/bin/python3
"""Builds small libraries, and checks that pure.py accepts the pure ones and names the symbols of
others."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, 'lib')]

import pure  # noqa: E402
import tap  # noqa: E402

COMPILER = os.environ.get('CC', 'cc').split()


def build(folder, *sources):
    """Makes a static library with one member for each source."""
    objects = []
    for number, source in enumerate(sources):
        stem = os.path.join(folder, f'member{number}')
        with open(stem + '.c', 'w', encoding='utf-8') as file:
            file.write(source)
        subprocess.run([*COMPILER, '-O0', '-c', stem + '.c', '-o', stem + '.o'], check=True)
        objects.append(stem + '.o')
    library = os.path.join(folder, 'libx.a')
    subprocess.run(['ar', 'rcs', library, *objects], check=True)
    return library


def uses(header, statement):
    return f'#include <{header}>\nvoid *x;\nvoid f(void) {{ {statement}; }}\n'


class Pure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check(self, *sources):
        return pure.forbidden(build(self.folder, *sources))

    def test_memory_and_arithmetic_pass(self):
        self.assertEqual(self.check(uses('stdlib.h', 'x = malloc(3); free(x)'),
                                    '#include <math.h>\ndouble g(double a) { return log(a); }\n'),
                         [])

    def test_a_call_between_two_members_of_a_library_is_accepted(self):
        self.assertEqual(self.check('int g(void); int f(void) { return g(); }\n',
                                    'int g(void) { return 1; }\n'), [])

    def test_a_call_into_another_module_is_named(self):
        self.assertEqual(self.check('int err_set(void); int f(void) { return err_set(); }\n'),
                         ['err_set'])

    def test_clocks_threads_input_and_chance_are_named(self):
        impure = {
            'clock_gettime': uses('time.h', 'clock_gettime(0, x)'),
            'time': uses('time.h', 'time(0)'),
            'rand': uses('stdlib.h', 'rand()'),
            'getenv': uses('stdlib.h', 'getenv("x")'),
            'puts': uses('stdio.h', 'puts("x")'),
            'fopen': uses('stdio.h', 'fopen("x", "r")'),
            'pthread_create': uses('pthread.h', 'pthread_create(x, 0, 0, 0)'),
            'write': uses('unistd.h', 'if (write(1, x, 1)) return'),
        }
        for symbol, source in impure.items():
            with self.subTest(symbol=symbol):
                self.assertEqual(self.check(source), [symbol])

    def test_the_program_fails_on_an_impure_library(self):
        library = build(self.folder, uses('stdlib.h', 'rand()'))
        program = os.path.join(HERE, 'pure.py')
        said = subprocess.run([sys.executable, program, library], capture_output=True, text=True,
                              check=False)
        self.assertEqual(said.returncode, 1)
        self.assertIn('# libx.a uses rand', said.stdout)


if __name__ == '__main__':
    tap.main()
