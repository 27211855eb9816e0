#!/usr/bin/python3
"""Checks each rule of messages.py on a small tree, and on a tree that breaks the rule."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, 'lib')]

import messages  # noqa: E402
import tap  # noqa: E402

SOURCE = '''
/* "no message in a comment" */
static const struct knob knobs[] = {{"workers", "N", "number of all workers"}};
int f(int lane)
{
    if (strcmp(name, "not a message at all"))
        return err_set(err, -EINVAL, "lane %u is closed "
                       "for %" PRIu64 " s; open the lane", lane);
    const char *why = lane ? "the lane was lost" : "x";
}
'''
CLOSED = 'lane %u is closed for %@ s; open the lane'
TEST = 'void a(void) { expect("lane 7 is closed for"); expect("because the lane was lost"); }'
GOLDEN = f'''# A head.
!memory an allocation failed
? 0

svc/cli/a.c
  unit/a.c | {CLOSED}
  unit/a.c | the lane was lost
'''
TREE = {'svc/cli/a.c': SOURCE, 'test/unit/a.c': TEST, messages.GOLDEN: GOLDEN}
LATE = 'raise E(f"rank {rank} is late; wait")'


def complaints(case, **changes):
    files = {**TREE, **{path.replace('__', '/').replace('_c', '.c'): text
                        for path, text in changes.items()}}
    return list(case(messages.Tree(files)))


class Texts(unittest.TestCase):
    def test_texts_that_are_shown_are_messages(self):
        self.assertEqual(messages.messages(TREE), {'svc/cli/a.c': [CLOSED, 'the lane was lost']})

    def test_a_page_has_messages_only_where_errors_are_made(self):
        source = 'void f(void) { put("three words here"); log_warn("a page is bad"); }'
        page = {'svc/ops/a.c': source}
        self.assertEqual(messages.messages(page), {'svc/ops/a.c': ['a page is bad']})

    def test_an_f_string_of_python_is_a_message_and_a_docstring_is_none(self):
        source = {'client/python/gradpool/a.py': f'"""A module of words."""\n{LATE}\n'}
        self.assertEqual(list(messages.messages(source).values()), [['rank {} is late; wait']])


class Quotes(unittest.TestCase):
    def by(self, said, test):
        return messages.provokers(said, messages.quotes({'test/e2e/a.py': test}))

    def test_a_quote_that_fits_only_one_message_marks_this_message(self):
        said = ['lane %u is closed now', 'lane %u is open now']
        self.assertEqual(list(self.by(said, 'f("lane 3 is closed")')), said[:1])
        self.assertEqual(list(self.by(said, 'f("lane 3 is")')), [])

    def test_a_quoted_message_with_values_marks_its_message(self):
        self.assertEqual(list(self.by(['no lane %s for job %s'], 'f("x: no lane a for job b!")')),
                         ['no lane %s for job %s'])

    def test_each_alternative_of_a_quoted_expression_marks_a_message(self):
        said = ['the first lane', 'the second lane']
        self.assertEqual(sorted(self.by(said, 'f("the first lane|the second lane")')), said)


class Rules(unittest.TestCase):
    def test_a_right_tree_has_no_complaint(self):
        for case in messages.CASES:
            self.assertEqual(complaints(case), [], case.__doc__)

    def test_a_message_that_is_new_or_gone_is_named(self):
        more = SOURCE + 'void g(void) { log_warn("a lane is slow"); }'
        self.assertIn('a lane is slow', complaints(messages.all_are_there, svc__cli__a_c=more)[0])
        self.assertIn('only in', complaints(messages.all_are_there, svc__cli__a_c='')[0])

    def test_a_test_that_quotes_nothing_is_named(self):
        found = complaints(messages.all_are_quoted, test__unit__a_c='')
        self.assertEqual(len(found), 2)
        self.assertIn('unit/a.c quotes no words', found[0])

    def test_a_message_without_test_and_reason_is_named(self):
        for by, words in ('?', '1 messages without'), ('!other', 'no such reason'):
            golden = {**TREE, messages.GOLDEN: GOLDEN.replace('unit/a.c | the', f'{by} | the')}
            self.assertIn(words, next(messages.all_have_reasons(messages.Tree(golden))))
        golden = {**TREE, messages.GOLDEN: GOLDEN.replace('unit/a.c | the', '!memory | the')}
        self.assertEqual(list(messages.all_have_reasons(messages.Tree(golden))), [])

    def test_a_message_with_a_vague_beginning_is_named(self):
        vague = 'void g(void) { log_warn("it has left the lane"); }'
        self.assertIn('it has left the lane',
                      complaints(messages.none_is_vague, svc__cli__a_c=vague)[0])


    def test_a_symptom_that_no_message_has_is_named(self):
        page = '## Symptoms\n| `lane N is closed for` | x |\n| `a lane is gone: ...` | x |\n'
        tree = messages.Tree({**TREE, messages.OPERATING: page})
        found = list(messages.symptoms_are_messages(tree))
        self.assertEqual(len(found), 1)
        self.assertIn('a lane is gone', found[0])


class Output(unittest.TestCase):
    def test_a_printed_line_has_its_message(self):
        find = messages.finder(messages.Golden(GOLDEN))
        logged = 'level=warn who="x" msg="lane 3 is closed for 5 s; open the lane"'
        self.assertEqual(find(next(messages.lines_of(logged))), {CLOSED})
        self.assertEqual(find('lane x is closed for 5 s; open the lane'), set())

    def test_write_renews_rows_and_keeps_reasons(self):
        golden = GOLDEN.replace('unit/a.c | the', '!memory | the').replace('? 0', '? 9')
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**TREE, messages.GOLDEN: golden, 'svc/cli/b.c': SOURCE.replace(
                    'closed', 'shut')}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), 'w', encoding='utf-8') as file:
                    file.write(text)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(messages.main([root]), 1)
                self.assertEqual(messages.main([root, '--write']), 0)
                self.assertEqual(messages.main([root]), 0)
            with open(os.path.join(root, messages.GOLDEN), encoding='utf-8') as file:
                text = file.read()
        self.assertIn('  !memory | the lane was lost', text)
        self.assertRegex(text, r'(?m)^\? 1\b')


if __name__ == '__main__':
    tap.main()
