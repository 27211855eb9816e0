#!/usr/bin/python3
"""Checks the messages of the product, as a TAP program: test/golden/messages.txt has each
message with the test that provokes it.

Usage: messages.py [ROOT]           judges the tree
       messages.py [ROOT] --write   writes a new golden file; keeps reasons, finds tests

A message is a text of two words or more that the product may show to a user or an operator: an
error, a warning, a log line, or a part of one. A test provokes a message if the test quotes
words that no other message has. test_messages.py checks the rules; e2e_messages compares the
output of real processes with the golden file.
"""
import argparse
import ast
import collections
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE, os.path.join(HERE, 'lib')]

import tidy  # noqa: E402

GOLDEN = 'test/golden/messages.txt'
OPERATING = 'svc/OPERATING.md'
PROVOKING = 'e2e/operating/test_messages.py'    # excluded: this test quotes its own messages
PRODUCT = re.compile(r'(svc|client|packer|migrator)/(?!example\.c|python/examples/)')
TESTS = re.compile(r'test/(e2e|unit|sim)/.*\.(c|h|py)$')
C_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*'
                     r'|[A-Za-z_]\w*|\s+|.', re.S)
# Texts of these files are pages and help. Only arguments of these functions are messages there.
PAGES = re.compile(r'svc/(ops|cli/options|timeline|wire/limit\.h|coordinator/store/store_schema)|'
                   r'.*\.h$|packer/profile/')
EMITTERS = re.compile(r'(log_\w+|err_set|fail|refuse|config_fail|knobs_mistake|argp_error|damaged|'
                      r'fprintf|saving_\w+|\w*_fail|client_error|say)$')
ERRORS = re.compile(r'(log_(error|warn|info)|err_set|knobs_mistake|argp_error|client_error)$')
OPTIONS = re.compile(r'svc/(cli/|main\.c)')     # tables of options and subcommands, which are help
NO_MESSAGE = re.compile(r'_Static_assert|sqlite3_\w+|str\w*cmp|strstr|getenv|json_\w+|'
                        r'operator_parse')
PLACE = re.compile(r'%[-+#0-9.*]*(?:hh|h|ll|l|z|j)?[a-zA-Z@]|%%|@|\{\}')
WORD = re.compile(r'[A-Za-z]{2,}')
VAGUE_BEGINNING = re.compile(r'(\.\.\.|…|(who|what|it|that)\b)', re.I)
# Splits a quoted text at values and at signs of regular expressions.
VALUE = re.compile(r"\0|\{\}|\\d\+?|\.\*\??|\.\+|\[[^]]*\][+*]?|[()^$?]|%[-0-9.]*[a-z]+|"
                   r"[0-9]+(?:[.][0-9]+)*|'[^' ]*'")
ROW = re.compile(r'  (\S+) \| (.*)')


# ---- texts of the sources ------------------------------------------------------------------------

def c_texts(text):
    """Yields for each literal (function that gets it or '', token before it, text). Adjacent
    literals are joined, and a PRI macro becomes @."""
    stack, before, last, literal = [], '', '', None
    for token in C_TOKEN.finditer(text):
        word = token[0]
        if word.isspace() or word.startswith(('/*', '//')):
            continue
        if word[0] == '"' and len(word) > 1:
            literal = (literal or '') + word[1:-1]
            continue
        if literal is not None and re.match(r'PRI\w\d+$', word):
            literal += '@'
            continue
        if literal is not None:
            yield next((name for name in reversed(stack) if name), ''), before + last, literal
            literal, last = None, ''
        if word in '([{':
            stack.append(last if word == '(' and re.match(r'\w', last) else '')
        elif word in ')]}' and stack:
            stack.pop()
        before, last = (last if word == '=' else ''), word


def python_texts(text):
    """Yields literals and f-strings except docstrings. A value becomes {}."""
    tree = ast.parse(text)
    alone = {id(node.value) for node in ast.walk(tree)
             if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}

    def visit(node):
        if isinstance(node, ast.JoinedStr):
            yield ''.join(part.value if isinstance(part, ast.Constant) else '{}'
                          for part in node.values)
            children = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        else:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            children = ast.iter_child_nodes(node)
        for child in children:
            if id(child) not in alone:
                yield from visit(child)
    return visit(tree)


def unescape(literal):
    return literal.replace('\\"', '"').replace('\\n', '\n').replace('\\\\', '\\')


def is_shown(path, function, before):
    """Returns whether a literal of C at this place may be shown as a message."""
    if NO_MESSAGE.match(function):
        return False
    if EMITTERS.match(function) or PAGES.match(path):
        return bool(EMITTERS.match(function))
    if OPTIONS.match(path) and not function:
        return before in ('return', '?', ':') or (
            before.endswith('=') and before not in ('before=', 'after=', 'operands='))
    return True


def is_sentence(text, is_error=False):
    """Returns whether the text has two words or more; for an error, one word and a colon
    suffice."""
    least = 1 if is_error and ':' in text else 2
    return (text.count(' ') >= least and len(WORD.findall(PLACE.sub(' ', text))) >= least
            and not re.match(r'\s*(<|[{,]\s*")', text))


def messages(files):
    """Returns {path: messages in order}."""
    found = {}
    for path, text in sorted(files.items()):
        if text is None or not PRODUCT.match(path):
            continue
        if path.endswith(('.c', '.h')):
            texts = (unescape(literal) for function, before, literal in c_texts(text)
                     if is_shown(path, function, before)
                     and is_sentence(unescape(literal), ERRORS.match(function)))
        elif path.endswith('.py'):
            texts = filter(is_sentence, python_texts(text))
        else:
            continue
        if said := list(dict.fromkeys(texts)):
            found[path] = said
    return found


# ---- quotes of the tests -------------------------------------------------------------------------

def quotes(files):
    """Returns {words in order without values: tests with this quote}."""
    found = collections.defaultdict(set)
    for path, text in sorted(files.items()):
        if text is None or not TESTS.match(path):
            continue
        texts = python_texts(text) if path.endswith('.py') else (
            unescape(literal) for _, _, literal in c_texts(text))
        for quote in texts:
            for pieces in parts_of(quote):
                if any(len(piece) >= 8 and len(WORD.findall(piece)) >= 2 for piece in pieces):
                    found[pieces].add(path)
    return found


def parts_of(quote):
    """Returns a quote, its alternatives, and its long pieces, because an output may have several
    messages."""
    whole = pieces_of(quote)
    return {whole, *map(pieces_of, re.split(r'\||\.\*\??', quote)),
            *((piece,) for piece in whole if len(piece) >= 16)}


def pieces_of(text):
    """Returns the words between values."""
    return tuple(filter(None, (piece.strip(' \n\0') for piece in VALUE.split(text))))


def plain(message):
    """Returns a message with a mark in place of each value."""
    return PLACE.sub('\0', message)


def has(text, pieces):
    """Returns whether the text contains the pieces in this order."""
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def provokers(said, quoted):
    """Returns {message: {test: length of the test's quote}}. A quote counts if only this message
    contains its words."""
    texts = {message: plain(message) for message in said}
    everything = '\1'.join(texts.values())
    found = collections.defaultdict(dict)
    for pieces, tests in quoted.items():
        if max(pieces, key=len) not in everything:
            continue
        holders = [message for message, text in texts.items() if has(text, pieces)]
        if len(holders) == 1:
            for test in tests:
                size = sum(map(len, pieces))
                found[holders[0]][test] = max(size, found[holders[0]].get(test, 0))
    add_filled_in(texts, quoted, found)
    return found


def add_filled_in(texts, quoted, found):
    """Adds the tests that quote a whole message, with values in their places."""
    whole = [('\0'.join(pieces), tests) for pieces, tests in quoted.items()]
    for message, text in texts.items():
        pieces = pieces_of(text)
        size = sum(map(len, pieces))
        if message in found or size < 10:
            continue
        for quote, tests in whole:
            if len(quote) >= size and has(quote, pieces):
                found[message].update((test, size) for test in tests)


# ---- the golden file -----------------------------------------------------------------------------

class Golden:
    """The golden file: reasons for messages that no test provokes, the number of messages with
    neither a test nor a reason, and the rows {path: {message: test, reason, or ?}}."""

    def __init__(self, text):
        self.head, self.reasons, self.limit, self.rows = [], {}, 0, {}
        path = None
        for line in text.split('\n'):
            row = ROW.match(line)
            if row and path:
                self.rows.setdefault(path, {})[row[2].replace('\\n', '\n')] = row[1]
            elif line and not line.startswith('#'):
                path = self.read_head(line)
            if path is None:
                self.head.append(line)

    def read_head(self, line):
        """Returns None for a line of the head, or the path for the rows below."""
        name, _, rest = line.partition(' ')
        if name.startswith('!'):
            self.reasons[name] = rest
        elif name == '?':
            self.limit = int(rest.split()[0])
        else:
            return line
        return None

    def missing(self):
        return [(path, message) for path, rows in self.rows.items()
                for message, by in rows.items() if by == '?']

    def assign(self, test, said):
        """Writes this test into the rows of the messages in `said`, except rows that name another
        test or a reason. Removes this test from all other rows."""
        for rows in self.rows.values():
            for message, by in rows.items():
                if by in ('?', test):
                    rows[message] = test if message in said else '?'

    def text(self):
        head = [re.sub(r'^\? \d+', f'? {len(self.missing())}', line) for line in self.head]
        lines = '\n'.join(head).rstrip('\n').split('\n')
        for path, rows in sorted(self.rows.items()):
            lines += ['', path]
            lines += [f'  {by} | ' + message.replace('\n', '\\n') for message, by in rows.items()]
        return '\n'.join(lines) + '\n'


NUMBER, LINE = r'[-+.0-9e]+', re.compile(r'msg="((?:\\.|[^"\\])*)"')


def finder(golden):
    """Returns a function that finds the messages of the golden file in a printed line, with any
    values."""
    known = []
    for message in {message for rows in golden.rows.values() for message in rows}:
        for line in filter(str.strip, message.split('\n')):
            anchor = max(PLACE.sub('\0', line).split('\0'), key=len)
            known.append((anchor.replace('"', "'"), re.compile(expression(line)), message))
    return lambda line: {message for anchor, pattern, message in known
                         if anchor in line.replace('"', "'") and pattern.search(line)}


def expression(message):
    parts, end = [], 0
    for place in PLACE.finditer(message):
        parts.append(re.escape(message[end:place.start()]))
        kind = place[0][-1]
        parts.append('%' if place[0] == '%%' else '.*?' if kind in 's}c' else
                     '[0-9a-f]+' if kind in 'xo' else NUMBER)
        end = place.end()
    # A log has ' in place of each quotation mark.
    return (''.join(parts) + re.escape(message[end:])).replace('"', '["\']')


def lines_of(text):
    """Yields the lines that processes have printed. For a line of a log, yields only its
    message."""
    for line in filter(str.strip, text.split('\n')):
        logged = LINE.search(line)
        yield unescape(logged[1]) if logged else line


def short(test):
    return test.removeprefix('test/')


class Tree:
    """The messages, the tests that provoke them, and the golden file."""

    def __init__(self, files):
        self.said = messages(files)
        texts = list(dict.fromkeys(message for of in self.said.values() for message in of))
        self.by = provokers(texts, quotes(files))
        self.golden = Golden(files.get(GOLDEN) or '')
        self.symptoms = (files.get(OPERATING) or '').partition('## Symptoms')[2]

    def renewed(self):
        """Returns the golden file for the present sources."""
        rows = {path: {message: self.provoker(path, message) for message in of}
                for path, of in self.said.items()}
        golden = self.golden
        golden.rows = rows
        return golden.text()

    def provoker(self, path, message):
        """Returns the test or the reason of the golden file if it is still valid, else the test
        with the longest quote."""
        by = self.golden.rows.get(path, {}).get(message, '?')
        tests = {short(test): size for test, size in self.by.get(message, {}).items()}
        if by in self.golden.reasons or by in tests or by == PROVOKING:
            return by
        return max(sorted(tests), key=tests.get) if tests else '?'


# ---- the cases -----------------------------------------------------------------------------------

def all_are_there(tree):
    """every message of the sources is in the golden file, and no other"""
    for path in sorted({*tree.said, *tree.golden.rows}):
        said, rows = tree.said.get(path, []), tree.golden.rows.get(path, {})
        yield from (f'{path}: not in {GOLDEN}: {message!r}' for message in said
                    if message not in rows)
        yield from (f'{path}: only in {GOLDEN}: {message!r}' for message in rows
                    if message not in said)


def all_are_quoted(tree):
    """the test that a row names quotes the message"""
    for path, rows in tree.golden.rows.items():
        for message, by in rows.items():
            tests = {PROVOKING, *map(short, tree.by.get(message, {}))}
            if by[0] not in '!?' and by not in tests:
                yield f'{path}: {by} quotes no words that only this message has: {message!r}'


def all_have_reasons(tree):
    """a message without a test has a reason; the golden file limits the number of exceptions"""
    for path, rows in tree.golden.rows.items():
        yield from (f'{path}: no such reason: {by}' for by in rows.values()
                    if by[0] == '!' and by not in tree.golden.reasons)
    missing, limit = tree.golden.missing(), tree.golden.limit
    if len(missing) > limit:
        yield f'{len(missing)} messages without test and reason, at most {limit}'
        yield from (f'{path}: {message!r}' for path, message in missing)


def none_is_vague(tree):
    """no message begins with who, what, it, that or dots"""
    for path, said in tree.said.items():
        yield from (f'{path}: {message!r}' for message in said if VAGUE_BEGINNING.match(message))


def symptoms_are_messages(tree):
    """the words of each symptom in OPERATING.md are in a message"""
    texts = [plain(message) for of in tree.said.values() for message in of]
    for row in re.findall(r'^\| `([^`|]+)', tree.symptoms, re.M):
        for words in re.split(r'\.\.\.|\b[A-Z]+(?::[A-Z]+)?\b', row):
            words = words.strip(' :')
            if ' ' in words and not any(words in text for text in texts):
                yield f'{OPERATING}: no message has the words {words!r}'


CASES = (all_are_there, all_are_quoted, all_have_reasons, none_is_vague, symptoms_are_messages)


def judge_all(tree):
    print(f'1..{len(CASES)}')
    complaints = [list(case(tree)) for case in CASES]
    for number, (case, said) in enumerate(zip(CASES, complaints), 1):
        print(f'{"not ok" if said else "ok"} {number} - {case.__doc__}')
        for line in said:
            print(f'# {line}')
    if any(complaints):
        print('# python3 test/messages.py --write renews the golden file; review the difference')
    return 1 if any(complaints) else 0


def main(arguments):
    parser = argparse.ArgumentParser(description='Compares messages with the golden file.')
    parser.add_argument('root', nargs='?', default=os.path.dirname(HERE))
    parser.add_argument('--write', action='store_true', help='write the golden file anew')
    options = parser.parse_args(arguments)
    tree = Tree(tidy.Tree.load(options.root).files)
    if not options.write:
        return judge_all(tree)
    with open(os.path.join(options.root, GOLDEN), 'w', encoding='utf-8') as file:
        file.write(tree.renewed())
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
