#!/usr/bin/python3
"""Passes trees to each rule of tidy.py: some must be refused, and others accepted."""
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, 'lib')]

import tap  # noqa: E402
import tidy  # noqa: E402


def complaints(rule, files):
    return list(rule(tidy.Tree(files)))


def lines(count):
    return 'x;\n' * count


def body(lines_count):
    return 'int f(void)\n{\n' + 'x;\n' * (lines_count - 2) + '}\n'


MARK = 'TO' + 'DO'
FORMAT = 'BasedOnStyle: LLVM\n'
PAGE = 'svc/OPERATING.md'
TABLE = '| variable | meaning |\n|---|---|\n| `GRADPOOL_A` | a |\n'

# rule -> trees that the rule must refuse
REFUSED = {
    tidy.arrows_run_downwards: [
        {'svc/base/a.c': '#include "svc/wire/b.h"\n'},
        {'packer/a.c': '#include "svc/base/b.h"\n'},
        {'svc/wire/a.c': '  #  include "svc/aggregator/b.h"\n'},
        {'client/a.c': '#include "svc/coordinator/b.h"\n'},
        {'svc/aggregator/a.c': '#include "packer/packer.h"\n'},
        {'bench/sim/a.c': '#include "svc/base/b.h"\n'},
        {'bench/a.c': '#include "test/lib/b.h"\n'},
        {'svc/base/a.c': '#include "messages.pb-c.h"\n'},
        {'svc/cli/a.c': '#include "gradpool.h"\n'},
    ],
    tidy.includes_are_written_from_the_root: [
        {'svc/base/a.c': '#include "b.h"\n', 'svc/base/b.h': ''},
        {'svc/base/a.c': '#include "svc/base/gone.h"\n'},
    ],
    tidy.libraries_stay_in_their_files: [
        {'svc/lane/lane.c': '#include <jemalloc/jemalloc.h>\n'},
        {'svc/lane/lane.c': '#include <hwloc.h>\n'},
        {'svc/ops/a.c': '#include <sqlite3.h>\n'},
        {'client/a.c': '#include <rdma/fabric.h>\n'},
        {'svc/cli/a.c': '#include <jansson.h>\n'},
        {'svc/coordinator/a.c': '#include <microhttpd.h>\n'},
        {'svc/base/a.c': '#include <cmocka.h>\n'},
        {'svc/base/a.c': '#include <never_heard_of.h>\n'},
        {'packer/a.c': '#include <pthread.h>\n'},
        {'migrator/a.c': '#include <time.h>\n'},
    ],
    tidy.files_are_short: [
        {'a.c': lines(601)}, {'a.h': lines(300)}, {'a.py': lines(601)},
        {'client/gradpool.h': lines(601)}, {'client/lib/gradpool.h': lines(300)},
    ],
    tidy.functions_are_short: [
        {'a.c': body(61)},
        {'a.py': 'def f():\n' + '    x = 1\n' * 60},
    ],
    tidy.lines_are_narrow: [
        {'a.c': 'x' * 101}, {'a.c': 'x \n'}, {'a.c': '\tx\n'}, {'a.sh': 'x' * 101},
    ],
    tidy.dangerous_calls_are_banned: [
        {'svc/base/a.c': f'f({name}(x));\n'} for name in tidy.BANNED
    ],
    tidy.asserts_change_nothing: [
        {'a.c': f'assert({inside});\n'}
        for inside in ('i++', '--i', 'a = b', 'f(a += 1)', 'x <<= 1', '(a) && (b = c)')
    ],
    tidy.c_files_say_what_they_own: [
        {'a.c': '#include <stdio.h>\n'}, {'a.h': '\n/* late */\n'},
    ],
    tidy.nothing_is_unfinished_or_local: [
        {'a.md': f'{MARK}: later\n'}, {'a.c': '/* X' + 'XX */\n'}, {'a.c': '/* FIX' + 'ME */\n'},
        {'a.py': 'open("' + tidy.MACHINE_PATHS[0] + 'data")\n'},
        *({'a.sh': path} for path in tidy.MACHINE_PATHS),
    ],
    tidy.the_product_has_no_hooks_of_tests: [
        {'svc/lane/a.c': '#ifdef GRADPOOL_PLANT_A\n'},
        {'client/lib/a.c': 'f("GRADPOOL_TEST_A");\n'},
    ],
    tidy.modules_have_a_readme: [
        {'svc/base/a.c': ''}, {'packer/README.md': '', 'migrator/a.c': ''},
    ],
    tidy.variables_stand_in_a_page: [
        {PAGE: TABLE, 'a.c': 'getenv("GRADPOOL_A"); getenv("GRADPOOL_B");\n'},
        {PAGE: TABLE, 'a.c': ''},
        {PAGE: TABLE, 'a.py': "os.environ['GRADPOOL_A'], os.environ.get('GRADPOOL_C')\n"},
        {PAGE: TABLE, 'a.sh': 'GRADPOOL_A=1 GRADPOOL_D=1 run\n'},
    ],
    tidy.nothing_generated_is_committed: [
        {'svc/proto/messages.pb-c.c': ''}, {'client/libgradpool.so': None}, {'svc/a.dat': None},
    ],
    tidy.top_level_is_fixed: [
        {'notes.txt': ''}, {'tools/a.c': ''}, {'.github/workflows/a.yml': ''},
    ],
    tidy.sources_are_formatted: [
        {'.clang-format': FORMAT, 'a.c': 'int  a ;\n'}, {'a.c': ''},
    ],
}

# rule -> trees that the rule must accept
PASSED = {
    tidy.arrows_run_downwards: [
        {'svc/wire/a.c': '#include "svc/base/b.h"\n#include "svc/wire/c.h"\n'},
        {'svc/main.c': '#include "svc/coordinator/b.h"\n'},
        {'svc/base/a.c': '/* #include "svc/wire/b.h" */\n'},
        {'test/unit/a.c': '#include "svc/coordinator/b.h"\n'},
        {'client/a.c': '#include "gradpool.h"\n'},
        {'svc/channel/a.c': '#include "messages.pb-c.h"\n'},
    ],
    tidy.includes_are_written_from_the_root: [
        {'svc/base/a.c': '#include "svc/base/b.h"\n', 'svc/base/b.h': ''},
        {'client/a.c': '#include "gradpool.h"\n#include "messages.pb-c.h"\n'},
    ],
    tidy.libraries_stay_in_their_files: [
        {'svc/lane/memory/arena.c': '#include <jemalloc/jemalloc.h>\n'},
        {'svc/fabric/ofi/a.c': '#include <rdma/fi_cm.h>\n#include <sys/epoll.h>\n'},
        {'packer/a.c': '#include <string.h>\n'},
        {'svc/reduce/a.c': '#include <immintrin.h>\n'},
    ],
    tidy.files_are_short: [{'a.c': lines(600), 'a.h': lines(299), 'a.json': lines(9000),
                             'client/gradpool.h': lines(600)}],
    tidy.functions_are_short: [{'a.c': body(60) + body(60)}],
    tidy.lines_are_narrow: [{'a.c': 'x' * 100 + '\n', 'a.md': 'x' * 300}],
    tidy.dangerous_calls_are_banned: [
        {'svc/base/a.c': '/* system(x) */ p->system(x); my_sleep(1); s = "gets(";\n'},
        {'test/unit/a.c': 'usleep(1);\n'},
    ],
    tidy.asserts_change_nothing: [
        {'a.c': 'assert(a == b && c <= d && e >= f && g != h && p->x);\n'},
        {'a.c': 'static_assert(x);\n_Static_assert(sizeof(x) == 1, "a = b");\n'},
    ],
    tidy.c_files_say_what_they_own: [{'a.c': '/* Owns x. */\n'}],
    tidy.nothing_is_unfinished_or_local: [{'a.c': 'mkstemp("a.X' + 'XXXXX"); "/tmp/x";\n'}],
    tidy.the_product_has_no_hooks_of_tests: [
        {'svc/a.c': '/* GRADPOOL_TEST_A */\n', 'test/a.c': '#ifdef GRADPOOL_PLANT_A\n'},
    ],
    tidy.modules_have_a_readme: [{'svc/base/a.c': '', 'svc/base/README.md': ''}],
    tidy.variables_stand_in_a_page: [
        {PAGE: TABLE, 'a.c': '#ifndef GRADPOOL_A_H\n/* "GRADPOOL_X" */ f("GRADPOOL_A");\n'},
    ],
    tidy.nothing_generated_is_committed: [{'a.c': '', 'test/fuzz/corpus/record/1': None}],
    tidy.top_level_is_fixed: [{'svc/a.c': '', 'LICENSE': '', '.ci/run': ''}],
    tidy.sources_are_formatted: [{'.clang-format': FORMAT, 'a.c': 'int a;\n'}],
}


def need_clang_format():
    try:
        tidy.find_clang_format()
    except tidy.Skip as reason:
        raise unittest.SkipTest(reason) from None


class Rules(unittest.TestCase):
    """Two cases for each rule, created below."""


def add_cases(kind, table, judge):
    for rule, trees in table.items():
        def case(self, rule=rule, trees=trees):
            if rule == tidy.sources_are_formatted:
                need_clang_format()
            for files in trees:
                with self.subTest(files=str(files)[:80]):
                    judge(self, complaints(rule, files))
        setattr(Rules, f'test_{rule.__name__}_{kind}', case)


add_cases('or_it_complains', REFUSED, lambda self, found: self.assertNotEqual(found, []))
add_cases('and_it_is_silent', PASSED, lambda self, found: self.assertEqual(found, []))


class Program(unittest.TestCase):
    def test_every_rule_is_tested_both_ways(self):
        self.assertEqual(set(REFUSED), set(tidy.RULES))
        self.assertEqual(set(PASSED), set(tidy.RULES))

    def test_a_complaint_names_file_and_line(self):
        found = complaints(tidy.dangerous_calls_are_banned, {'a.c': '/* 1\n2 */\nx;\ngets(x);\n'})
        self.assertEqual(found, ['a.c:4: gets(): use fgets'])

    def test_variables_are_not_judged_without_a_table(self):
        with self.assertRaises(tidy.Skip):
            complaints(tidy.variables_stand_in_a_page, {'a.c': 'getenv("GRADPOOL_B");\n'})

    def test_another_clang_format_than_that_of_the_tree_is_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, 'clang-format')
            with open(program, 'w', encoding='utf-8') as file:
                file.write('#!/bin/sh\necho Debian clang-format version 16.0.6\n')
            os.chmod(program, 0o755)
            with unittest.mock.patch.dict(os.environ, PATH=folder):
                with self.assertRaisesRegex(tidy.Skip, 'here is: 16$'):
                    complaints(tidy.sources_are_formatted, {'.clang-format': FORMAT, 'a.c': ''})

    def test_a_bad_tree_on_disk_fails_the_program_and_a_good_one_does_not(self):
        with tempfile.TemporaryDirectory() as folder:
            good = {'.clang-format': FORMAT, 'svc/a.c': '/* Owns a. */\n', 'svc/README.md': 'a\n'}
            tidy.write_files(folder, good)
            self.assertEqual(run(folder).returncode, 0)
            tidy.write_files(folder, {'svc/wire/b.c': '/* b */\n#include "svc/cli/c.h"\n'})
            said = run(folder)
            self.assertEqual(said.returncode, 1)
            self.assertIn('not ok 1 - a module includes only modules below it', said.stdout)
            self.assertIn('# svc/wire/b.c:2:', said.stdout)

    def test_a_build_folder_is_not_looked_into(self):
        with tempfile.TemporaryDirectory() as folder:
            tidy.write_files(folder, {'build-address/a.c': '', 'svc/a.c': ''})
            self.assertEqual(tidy.list_paths(folder), ['svc/a.c'])


def run(folder):
    command = [sys.executable, os.path.join(HERE, 'tidy.py'), folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == '__main__':
    tap.main()
