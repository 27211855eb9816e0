#!/usr/bin/python3
"""Counts each measure of words.py on small trees, and on a worse tree."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, 'lib')]

import drawing  # noqa: E402
import tap  # noqa: E402
import words  # noqa: E402

LONG = 'x' * 101
WIDE_CELL = 'y' * 121
CODE = f'```sh\n{LONG}\n```\n'
RULES = '- **A1 One.** Text.\n- **A2 Two.** Text.\n'

# measure -> (a tree, its values, a change that makes the tree worse, the subject that gets worse)
CASES = {
    words.share: (
        {'README.md': 'Lanes sum gradients, and `it` is code.\n```\nwho\n```\n',
         'svc/README.md': 'Those lanes sum them.\n', 'DECISIONS.md': 'who\n',
         'bench/results/a.md': 'who\n'},
        {'README.md': 0, 'svc/README.md': 2500, 'all': 1000},
        {'README.md': 'What is lent.\n'}, 'README.md'),
    words.wide: (
        {'README.md': f'{LONG}\n{LONG} [a](b.md)\n| {LONG} |\n', 'svc/a.md': CODE},
        {'README.md': 1, 'svc/a.md': 1}, {'svc/a.md': CODE + LONG}, 'svc/a.md'),
    words.cell: (
        {'a.md': f'| a | {WIDE_CELL} |\n```\n| {WIDE_CELL} |\n```\n', 'b.md': '| a \\| b |\n'},
        {'a.md': 1, 'b.md': 0}, {'b.md': f'| {WIDE_CELL} | {WIDE_CELL} |\n'}, 'b.md'),
    words.lines: (
        {'a.md': 'a\nb\n', 'svc/OPTIONS.md': 'a\n' * 500}, {'a.md': 2},
        {'a.md': 'a\n' * 3}, 'a.md'),
    words.numbered: (
        {'a.md': RULES + 'See A1.\n', 'b.md': '| **B1** | text |\n'}, {'a.md': 2, 'b.md': 1},
        {'b.md': RULES}, 'b.md'),
    words.prefix: (
        {'a.md': RULES, 'b.md': '- **B1 One.**\n'}, {'A': 1, 'B': 1}, {'b.md': RULES}, 'A'),
    words.comment: (
        {'svc/a.c': '/* What a lane is. */\nchar *s = "/* who */";\n/* A lane. */\n',
         'svc/b.py': '"""It is."""\n# ... and on\nx = "what"  # of what\n# One\n# who\n'},
        {'svc': 3}, {'svc/c.h': '    /*\n     * that is */\n'}, 'svc'),
}


def values(measure, files):
    return {subject: count.value for subject, count in measure(files).items()}


class Measures(unittest.TestCase):
    """Two cases for each measure, created below."""

    def test_every_measure_is_tested(self):
        self.assertEqual(set(CASES), set(words.MEASURES.values()))


def add_cases(measure, tree, expected, change, subject):
    def counting(self):
        self.assertEqual(values(measure, tree), expected)

    def judging(self):
        self.assertEqual(words.compare(measure(tree), expected), ({}, {}))
        worse, _ = words.compare(measure({**tree, **change}), expected)
        self.assertIn(subject, worse)

    setattr(Measures, f'test_{measure.__name__}_is_counted', counting)
    setattr(Measures, f'test_{measure.__name__}_is_worse_in_a_worse_tree', judging)


for measured, details in CASES.items():
    add_cases(measured, *details)


class Limits(unittest.TestCase):
    def tree(self, limits, text=''):
        return {words.LIMITS: limits, 'README.md': text, 'svc/a.md': 'a\n' * 3}

    def test_a_row_with_the_exact_path_overrides_a_pattern(self):
        files = self.tree('lines * 1\nlines svc/a.md 3\n')
        self.assertEqual(words.compare(words.lines(files), words.read_limits(files)['lines']),
                         ({}, {}))

    def test_a_row_that_cannot_be_read_is_named(self):
        for row in 'lines', 'rows a 1', 'lines a -1', 'lines a 1\nlines a 2':
            with self.subTest(row), self.assertRaisesRegex(words.Wrong, 'test/words.limits:[12]'):
                words.read_limits(self.tree(row + '\n'))

    def test_tighten_lowers_a_limit_and_drops_a_needless_row(self):
        limits = 'lines * 2\nlines svc/a.md 9\nlines README.md 5  # once long\n'
        files = self.tree(limits)
        self.assertEqual(words.tightened(limits, files, words.read_limits(files)),
                         'lines * 2\nlines svc/a.md 3\n')

    def test_a_worse_tree_fails_and_a_tightened_one_passes(self):
        limits = 'share * 0\nlines * 4\ncomment * 0\n'
        for text, status in ('Lanes sum.\n', 0), ('It sums.\n', 1):
            with self.subTest(text), tempfile.TemporaryDirectory() as root:
                write(root, {'README.md': text, words.LIMITS: limits})
                self.assertEqual(run(root), status)
                self.assertEqual(run(root, '--tighten'), status)


class Drawn(unittest.TestCase):
    FILES = {'svc/README.md': '# svc: the service\n\n- **A1 One.** Text\n  goes on.\n',
             'svc/a.c': '/* Adds. */\nint a(int b)\n{\n    return b + 1; /* never wraps */\n}\n'
                        'int b(void)\n{\n    err_set(e, 1, "one; two and three and four");\n}\n'}

    def test_a_comment_has_the_code_below_it_and_the_function_around_it(self):
        self.assertEqual(list(drawing.comments(self.FILES)), [
            ('svc/a.c', 1, '/* Adds. */\nint a(int b)\n{\n    return b + 1; /* never wraps */'),
            ('svc/a.c', 4, 'int a(int b)\n    return b + 1; /* never wraps */')])

    def test_a_message_has_its_call_and_its_function(self):
        self.assertEqual(list(drawing.messages(self.FILES)), [
            ('svc/a.c', 8, 'in b():\nerr_set(e, 1, "one; two and three and four");')])

    def test_a_definition_of_a_function_with_messages_is_no_message(self):
        text = ('static void refuse(int a)\n{\n    say("one; two and three and four");\n}\n'
                'void b(void)\n{\n    refuse("four; three and two and one");\n}\n')
        self.assertEqual([line for _, line, _ in drawing.messages({'svc/a.c': text})], [7])

    def test_a_drawn_rule_begins_with_the_title_of_its_room(self):
        self.assertEqual(list(drawing.rules(self.FILES)), [
            ('svc/README.md', 3, 'room: svc: the service\n- **A1 One.** Text\n  goes on.')])

    def test_a_seed_draws_the_same_items_again(self):
        files = {'a.c': ''.join(f'/* {n} */\n' for n in range(100))}
        printed = []
        for _ in range(2):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                drawing.draw(files, 'comments', '7')
            printed.append(out.getvalue())
        self.assertEqual(*printed)
        self.assertEqual(printed[0].count('a.c:'), 60)


def run(*arguments):
    """Returns the exit code of words.py. Drops the printed lines, which are not part of this test's
    output."""
    with contextlib.redirect_stdout(io.StringIO()):
        return words.main(arguments)


def write(root, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), 'w', encoding='utf-8') as file:
            file.write(text)


if __name__ == '__main__':
    tap.main()
