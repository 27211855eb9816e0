#!/usr/bin/python3
"""Counts each measure of structure.py on small trees, and on a worse tree."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, 'lib')]

import c_units  # noqa: E402
import structure  # noqa: E402
import tap  # noqa: E402
import tidy  # noqa: E402

PLAN = '''# two modules of the product, and one beside it
product svc
product client
module svc
module svc/a
module client
module bench
room svc/a/low
room svc/a/middle
room svc/a/high
public client/face.h
'''


def house(files):
    return structure.House({structure.ROOMS: PLAN, **files})


def counts(measure, files):
    return {subject: len(lines) for subject, lines in measure(house(files)).items() if lines}


def defines(name, *calls):
    return f'void {name}(void)\n{{\n' + ''.join(f'    {call}();\n' for call in calls) + '}\n'


def ring(folder, names):
    """Returns files that call each other in one cycle."""
    followers = names[1:] + names[:1]
    return {f'{folder}/{name}.c': defines(name, other) for name, other in zip(names, followers)}


def struct(tag, *members):
    return f'struct {tag} {{\n' + ''.join(f'    {member};\n' for member in members) + '};\n'


ROOMS = {'svc/a/low/x.c': defines('x', 'y'), 'svc/a/middle/y.c': defines('y', 'x'),
         'svc/a/high/z.c': defines('z', 'x', 'y'), 'svc/a/root.c': defines('root', 'x', 'z')}
SHARED = 'static int ask(void) { return 1; }\n'

# measure -> (a tree, its counts, changes that make the tree worse, the subject that gets worse)
CASES = {
    structure.cycle: (
        {**ring('svc/a', ['p', 'q', 'r']), **ring('client', ['s', 't'])},
        {'svc/a': 3, 'client': 2}, ring('client', ['s', 't', 'u']), 'client'),
    structure.cyclic: (
        {**ring('svc/a', ['p', 'q', 'r', 's']), **ring('svc/a/low', ['t', 'u', 'v'])},
        {'svc/a': 4}, ring('svc/a/high', ['f', 'g', 'h', 'i']), 'svc/a'),
    structure.arrow: (
        ROOMS, {'svc/a': 1}, {'svc/a/low/w.c': defines('w', 'z')}, 'svc/a'),
    structure.folder: (
        {'svc/a/1.c': '', 'svc/a/README.md': '', 'svc/a/b/2.c': '', 'LICENSE': '',
         'test/golden/a': '', 'svc/a/picture': None},
        {'svc/a': 3, 'svc/a/b': 1, '.': 1, 'test': 1}, {'svc/a/b/3.c': ''}, 'svc/a/b'),
    structure.declaration: (
        {'svc/a/x.c': defines('x') + 'int level = 3;\n', 'svc/a/x.h': 'void x(void);\n',
         'svc/a/other.h': 'void x(void);\nextern int level;\nextern int foreign;\n'},
        {'svc/a': 2}, {'client/y.c': 'void x(void);\n'}, 'client'),
    structure.headerless: (
        {'svc/a/x.c': defines('x'), 'svc/a/y.c': defines('y'), 'svc/a/y.h': '',
         'svc/a/low/z.c': defines('z'), 'svc/a/low/internal.h': '', 'svc/main.c': defines('main'),
         'svc/a/high/w.c': defines('w'), 'svc/a/high/high.h': '', 'bench/v.c': defines('v')},
        {'svc/a': 1}, {'client/table.c': 'const int table[] = {1, 2};\n'}, 'client'),
    structure.fields: (
        {'svc/a/x.h': struct('list', 'struct list *next, *previous') + struct('x', 'int a, b[3]'),
         'svc/a/y.c': struct('y', 'struct list link', 'struct x x, *other, many[2]')},
        {'list': 2, 'x': 2, 'y': 6}, {'svc/a/x.h': struct('list', 'int a, b, c')}, 'list'),
    structure.tag: (
        {'svc/a/x.c': struct('x', 'int a'), 'client/x.c': struct('x', 'int a'),
         'svc/a/y.c': struct('y', 'int a') + 'struct x;\n', 'bench/y.c': struct('y', 'int a')},
        {'product': 2}, {'svc/z.c': 'void f(void)\n{\n    struct x {\n    } a;\n}\n'}, 'product'),
    structure.static: (
        {'svc/a/x.c': SHARED, 'client/x.c': SHARED, 'client/y.c': 'static int ask(void);\n',
         'bench/y.c': SHARED, 'svc/z.c': 'static int other(void) { return ask(); }\n'},
        {'product': 2}, {'client/y.c': SHARED}, 'product'),
}


class Measures(unittest.TestCase):
    """Two cases for each measure, created below."""

    def test_every_measure_is_tested(self):
        self.assertEqual(set(CASES), set(structure.MEASURES.values()))

    def test_a_struct_that_grows_raises_the_counts_of_structs_that_contain_it(self):
        tree = {'svc/a/x.h': struct('x', 'int a, b'), 'svc/a/y.h': struct('y', 'struct x x')}
        self.assertEqual(counts(structure.fields, tree), {'x': 2, 'y': 2})
        tree['svc/a/x.h'] = struct('x', 'int a, b, c')
        self.assertEqual(counts(structure.fields, tree), {'x': 3, 'y': 3})


def add_cases(measure, tree, expected, change, subject):
    def counting(self):
        self.assertEqual(counts(measure, tree), expected)

    def judging(self):
        self.assertEqual(structure.compare(measure(house(tree)), expected), ({}, {}))
        worse, _ = structure.compare(measure(house({**tree, **change})), expected)
        self.assertIn(subject, worse)

    setattr(Measures, f'test_{measure.__name__}_is_counted', counting)
    setattr(Measures, f'test_{measure.__name__}_is_worse_in_a_worse_tree', judging)


for measured, details in CASES.items():
    add_cases(measured, *details)


class Calls(unittest.TestCase):
    """Tests of names that make an edge between two files, and of names that make none."""

    def callees(self, text):
        tree = {'svc/a/from.c': text, 'svc/a/to.c': defines('wanted') + SHARED}
        return dict(house(tree).calls['svc/a/from.c'])

    def test_a_function_that_is_called_or_named_makes_an_edge(self):
        for text in ('wanted();', 'run(wanted);', 'f = &wanted;', '{.done = wanted}',
                     '(wanted)();'):
            with self.subTest(text=text):
                found = self.callees(f'void from(void)\n{{\n    {text}\n}}\n')
                self.assertEqual(found, {'svc/a/to.c': ['wanted']})

    def test_a_macro_of_the_file_makes_an_edge(self):
        self.assertEqual(self.callees('#define RUN(x) \\\n    wanted(x)\n'),
                         {'svc/a/to.c': ['wanted']})

    def test_comments_strings_members_and_static_names_are_no_callees(self):
        for text in ('/* wanted() */', '// wanted', 'f("wanted");', 'p->wanted();', 'a.wanted = 1;',
                     '{.wanted = 1}', 'ask();', 'unwanted();'):
            with self.subTest(text=text):
                self.assertEqual(self.callees(f'void from(void)\n{{\n    {text}\n}}\n'), {})

    def test_a_function_of_the_file_itself_hides_one_of_that_name(self):
        self.assertEqual(self.callees('static int wanted(void) { return wanted(); }\n'), {})

    def test_main_and_functions_of_another_module_are_no_callees(self):
        tree = {'svc/a/x.c': defines('main', 'y'), 'client/y.c': defines('y'),
                'svc/a/z.c': defines('z', 'main')}
        self.assertEqual(list(map(dict, house(tree).calls.values())), [{}, {}, {}])

    def test_two_cycles_with_a_common_file_count_as_one(self):
        tree = {**ring('svc/a', ['p', 'q', 'r']), 'svc/a/s.c': defines('s', 'p')}
        tree['svc/a/q.c'] = defines('q', 'r', 's')
        self.assertEqual(counts(structure.cycle, tree), {'svc/a': 4})
        self.assertIn('svc/a/q.c -> r.c (r), s.c (s)', structure.cycle(house(tree))['svc/a'])


class Headers(unittest.TestCase):
    """Tests of headers that may contain a declaration."""

    def strays(self, header, source, more=None):
        tree = {header: 'int x(void);\n', source: defines('x'), **(more or {})}
        return sum(counts(structure.declaration, tree).values())

    def test_the_header_of_a_file_or_of_its_room_may_declare_its_functions(self):
        for header in ('svc/a/low/x.h', 'svc/a/low/internal.h', 'svc/a/low/low.h'):
            self.assertEqual(self.strays(header, 'svc/a/low/x.c'), 0, header)

    def test_headers_of_neighbours_and_other_rooms_are_strays(self):
        for header in ('svc/a/low/y.h', 'svc/a/x.h', 'svc/a/internal.h', 'svc/a/high/high.h'):
            self.assertEqual(self.strays(header, 'svc/a/low/x.c'), 1, header)

    def test_a_file_may_declare_its_own_function_first(self):
        tree = {'svc/a/x.c': 'void x(void);\n' + defines('x')}
        self.assertEqual(counts(structure.declaration, tree), {})

    def test_a_public_header_may_declare_functions_of_its_whole_folder(self):
        self.assertEqual(self.strays('client/face.h', 'client/lib/x.c'), 0)
        self.assertEqual(self.strays('client/face.h', 'svc/a/x.c'), 1)

    def test_a_large_folder_has_no_header_for_all_its_files(self):
        many = {f'svc/a/low/{number}.c': '' for number in range(structure.ROOM_FILES_MAX - 2)}
        self.assertEqual(self.strays('svc/a/low/low.h', 'svc/a/low/x.c', many), 0)
        many['svc/a/low/more.c'] = ''
        self.assertEqual(self.strays('svc/a/low/low.h', 'svc/a/low/x.c', many), 1)


class Sources(unittest.TestCase):
    """Tests of the parser with forms that occur in the tree."""

    def test_definitions_and_declarations_are_told_apart(self):
        unit = c_units.Unit('''
struct later;
typedef int (*call_fn)(void *data);
_Static_assert(sizeof(int) == 4, "x");
extern const struct rule rules[], *first;
WIRE(Reply) * build(struct a *a,
                    void (*done)(int)) __attribute__((format(printf, 1, 2)));
static int hidden(void);
const struct rule rules[] = {{.f = hidden}};
__attribute__((target("avx2"))) static void fast(void)
{
    struct inner {
        int x;
    } y = {1};
}
inline_always int quick(int x) { return x; }
MAKE(one)
MAKE(two)
API WIRE(Reply) * build(struct a *a, void (*done)(int))
{
}
''')
        self.assertEqual(unit.functions, ['build'])
        self.assertEqual(unit.statics, ['fast', 'quick'])
        self.assertEqual(unit.declared, ['rules', 'first', 'build'])
        self.assertEqual(unit.variables, ['rules'])
        self.assertEqual([tag for tag, _ in unit.structs], ['inner'])

    def test_the_brace_of_an_extern_c_block_hides_no_declaration(self):
        unit = c_units.Unit('#ifdef __cplusplus\nextern "C" {\n#endif\nint f(void);\n'
                            '#ifdef __cplusplus\n}\n#endif\n')
        self.assertEqual(unit.declared, ['f'])

    def fields(self, *members):
        text = struct('inner', 'int a, b') + 'typedef struct inner alias;\n' + struct('x', *members)
        return structure.fields(house({'svc/a/x.h': text}))['x']

    def test_each_kind_of_field_is_counted(self):
        for member, names in {
                'unsigned long size': ['size'], 'uint64_t a, *b, c[N + 1], d : 3': list('abcd'),
                'void (*done)(struct s *s, int code)': ['done'], 'const struct inner *p': ['p'],
                'struct inner i': ['i.a', 'i.b'], 'const struct inner i, *p': ['i.a', 'i.b', 'p'],
                'alias i': ['i.a', 'i.b'], 'struct inner i[2]': ['i'], 'struct foreign f': ['f'],
                'struct { int x, y; } pair': ['pair.x', 'pair.y'],
                'union { int x; char y; }': ['x', 'y'],
                'struct { int x, y; } many[3]': ['many'], 'enum { A, B } state': ['state'],
                'struct deep { struct inner i; } d': ['d.i.a', 'd.i.b'],
                'struct type { int x; }': [],
                'alignas(64) struct inner i': ['i.a', 'i.b'], '_Atomic(int) count': ['count'],
                'int c __attribute__((aligned(8)))': ['c']}.items():
            with self.subTest(member=member):
                self.assertEqual(self.fields(member), names)

    def test_a_tag_with_two_definitions_counts_the_larger_one_and_means_its_own_file(self):
        tree = {'svc/a/x.c': struct('x', 'int a') + struct('y', 'struct x x'),
                'svc/z.h': struct('x', 'int a, b, c')}
        self.assertEqual(counts(structure.fields, tree), {'x': 3, 'y': 1})


LIMITS = '''# kept
cycle * 3
folder * 2   # bar
folder svc/a 4
folder svc/gone 9
'''


class Limits(unittest.TestCase):
    def test_an_exact_row_overrides_patterns_and_a_longer_pattern_a_shorter_one(self):
        limits = {'*': 20, 'test/*': 45, 'test/tall': 96}
        for path, limit in {'svc': 20, 'test/unit': 45, 'test/tall': 96, 'test': 20}.items():
            self.assertEqual(structure.limit_of(limits, path), limit)
        self.assertEqual(structure.limit_of({}, 'svc'), 0)

    def test_a_bad_table_is_refused_with_its_line(self):
        for text in ('cycle svc', 'cycle svc -1', 'cycle svc 1 2', 'circle svc 1',
                     'cycle svc 1\ncycle svc 2'):
            with self.subTest(text=text), self.assertRaisesRegex(structure.Wrong, r'limits:\d: '):
                structure.read_limits({structure.LIMITS: text})
        for text in ('module', 'floor svc', 'module svc\nmodule svc'):
            with self.subTest(text=text), self.assertRaisesRegex(structure.Wrong, r'rooms:\d: '):
                structure.Plan({structure.ROOMS: text})
        with self.assertRaisesRegex(structure.Wrong, 'missing'):
            structure.read_limits({})

    def test_tightening_lowers_rows_drops_needless_ones_and_raises_none(self):
        tree = {f'svc/a/{number}.c': '' for number in range(3)}
        tree.update({f'svc/{number}.c': '' for number in range(9)})
        limits = structure.read_limits({structure.LIMITS: LIMITS})
        self.assertEqual(structure.tightened(LIMITS, house(tree), limits),
                         '# kept\ncycle * 3\nfolder * 2   # bar\nfolder svc/a 3\n')


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write(structure.ROOMS, PLAN)
        self.write(structure.LIMITS, 'folder * 2\nfolder svc/a 4\n')
        for number in range(3):
            self.write(f'svc/a/{number}.c', defines(f'f{number}'))
            self.write(f'svc/a/{number}.h', f'void f{number}(void);\n')

    def write(self, path, text):
        tidy.write_files(self.root, {path: text})

    def run_program(self, *options):
        command = [sys.executable, os.path.join(HERE, 'structure.py'), self.root, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def limits(self):
        return tidy.read_text(os.path.join(self.root, structure.LIMITS))

    def test_a_value_above_its_limit_fails_and_is_named(self):
        said = self.run_program()
        self.assertEqual(said.returncode, 1)
        self.assertIn('not ok 4 - no folder has more files', said.stdout)
        self.assertIn('# folder svc/a: 6, at most 4; see:', said.stdout)

    def test_a_value_below_its_limit_passes_and_is_named(self):
        self.write(structure.LIMITS, 'folder * 2\nfolder svc/a 7\n')
        said = self.run_program()
        self.assertEqual(said.returncode, 0)
        self.assertIn('# folder svc/a: 6, better than its limit 7; write it:', said.stdout)

    def test_tightening_writes_the_value_and_still_fails_on_a_worse_one(self):
        self.write(structure.LIMITS, 'folder * 2\nfolder svc/a 7\n')
        self.assertEqual(self.run_program('--tighten').returncode, 0)
        self.assertEqual(self.limits(), 'folder * 2\nfolder svc/a 6\n')
        self.write('svc/a/more.h', '')
        self.assertEqual(self.run_program('--tighten').returncode, 1)
        self.assertEqual(self.limits(), 'folder * 2\nfolder svc/a 6\n')

    def test_counted_places_can_be_listed(self):
        said = self.run_program('--show', 'folder', 'svc/a').stdout.split('\n')
        self.assertEqual(said[:2], ['folder svc/a 6', '  svc/a/0.c'])
        self.assertEqual(self.run_program('--show', 'circle').returncode, 2)

    def test_a_tree_without_limits_or_with_bad_ones_is_no_success(self):
        self.write(structure.LIMITS, 'folder svc/a\n')
        said = self.run_program()
        self.assertEqual(said.returncode, 1)
        self.assertIn('Bail out! test/structure.limits:1: expected', said.stdout)


if __name__ == '__main__':
    tap.main()
