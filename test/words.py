#!/usr/bin/python3
"""Measures the words of the tree, as a TAP program: one case for each measure, compared with its
limits.

Usage: words.py [ROOT]                            judges the tree
       words.py [ROOT] --show MEASURE [SUBJECT]   lists each value and the lines that it counts
       words.py [ROOT] --show KIND SEED           draws comments, messages or rules to be read
       words.py [ROOT] --tighten                  lowers the limits to the values of today

A measure is a function of the files that returns {subject: a Count}; its docstring is the name of
the case. test/words.limits has the limits. test_words.py checks every measure on a page that gets
worse.
"""
import argparse
import collections
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE, os.path.join(HERE, 'lib')]

import drawing  # noqa: E402
import tidy  # noqa: E402
from structure import Wrong, bar_of, limit_of, rows  # noqa: E402

LIMITS = 'test/words.limits'
TOTAL = 'all'   # subject of the share of all pages together
COLUMNS_MAX = 100
CELL_MAX = 120
VAGUE = frozenset('it that what who whom whose they those'.split())
VAGUE_BEGINNING = re.compile(r'(\.\.\.|…|(who|what|it|that)\b)', re.I)
LINK = re.compile(r'https?://|\]\([^)]+\)')
INVARIANT = re.compile(r'^\s*[-*] \*\*([A-Z]+)[0-9]+\b')
NUMBERED_TABLE_ROW = re.compile(r'^\| \*\*([A-Z]+)[0-9]+\*\*')
C_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
PYTHON_TOKEN = re.compile(r'(?:"""|\'\'\').*?(?:"""|\'\'\')|"(?:\\.|[^"\\\n])*"'
                          r'|\'(?:\\.|[^\'\\\n])*\'|(?:^[ \t]*#[^\n]*\n)+|#[^\n]*', re.S | re.M)


class Count:
    """A value, and the lines that count."""

    def __init__(self, lines=(), value=None):
        self.lines = list(lines)
        self.value = len(self.lines) if value is None else value


def pages(files):
    """Yields (path, text) of each Markdown page to which the measures apply: all pages except
    results and DECISIONS."""
    for path, text in sorted(files.items()):
        if path.endswith('.md') and text is not None and is_judged(path):
            yield path, text


def is_judged(path):
    return not path.startswith('bench/results/') and os.path.basename(path) != 'DECISIONS.md'


def numbered_lines(text):
    """Yields (number, line, whether the line is part of a code block)."""
    in_code = False
    for number, line in enumerate(text.split('\n'), 1):
        is_fence = line.lstrip().startswith('```')
        in_code ^= is_fence
        yield number, line, in_code or is_fence


def prose(text):
    """Returns the words of a page in lower case, without code."""
    plain = ' '.join(line for _, line, is_code in numbered_lines(text) if not is_code)
    return [word.lower() for word in re.findall(r'[A-Za-z]+', re.sub(r'`[^`]*`', ' ', plain))]


# ---- the measures --------------------------------------------------------------------------------

def share(files):
    """no page has a larger share of it, that, what, who, they and those than its limit"""
    counted, everything = {}, []
    for path, text in pages(files):
        words = prose(text)
        counted[path] = share_of(words)
        everything += words
    return {**counted, TOTAL: share_of(everything)}


def share_of(words):
    """Returns the share in hundredths of a percent, rounded up."""
    vague = collections.Counter(word for word in words if word in VAGUE)
    value = -(-sum(vague.values()) * 10000 // max(1, len(words)))
    return Count([f'{count} {word}' for word, count in vague.most_common()]
                 + [f'of {len(words)} words'], value)


def wide(files):
    """no page has more lines of over 100 columns, tables and links aside, than its limit"""
    return {path: Count(f'{path}:{number}: {len(line)} columns'
                        for number, line, _ in numbered_lines(text)
                        if len(line) > COLUMNS_MAX and not line.startswith('|')
                        and not LINK.search(line))
            for path, text in pages(files)}


def cell(files):
    """no page has more table cells of over 120 characters than its limit"""
    return {path: Count(f'{path}:{number}: {len(text)} characters: {text[:60]}...'
                        for number, line, is_code in numbered_lines(page)
                        if line.startswith('|') and not is_code
                        for text in map(str.strip, re.split(r'(?<!\\)\|', line))
                        if len(text) > CELL_MAX)
            for path, page in pages(files)}


def lines(files):
    """no page has more lines than its limit"""
    return {path: Count(value=text.count('\n')) for path, text in pages(files)
            if os.path.basename(path) != 'OPTIONS.md'}


def numbered(files):
    """no page has more numbered invariants than its limit"""
    return {path: Count(f'{path}:{number}: {line[:70]}' for number, line, _ in numbered_lines(text)
                        if prefix_of(line))
            for path, text in pages(files)}


def prefix(files):
    """no prefix of invariants is used in more pages than its limit"""
    users = collections.defaultdict(set)
    for path, text in pages(files):
        for _, line, _ in numbered_lines(text):
            if found := prefix_of(line):
                users[found].add(path)
    return {name: Count(sorted(paths)) for name, paths in users.items()}


def prefix_of(line):
    found = INVARIANT.match(line) or NUMBERED_TABLE_ROW.match(line)
    return found and found[1]


def comment(files):
    """no folder has more comments that begin with who, what, it, that or dots than its limit"""
    found = collections.defaultdict(list)
    for path, text in sorted(files.items()):
        if text is not None and path.endswith(('.c', '.h', '.py')):
            found[path.split('/')[0]] += vague_comments(path, text)
    return {folder: Count(said) for folder, said in found.items()}


def vague_comments(path, text):
    find = python_comments if path.endswith('.py') else c_comments
    return [f'{path}:{line_at(text, place)}: {said[:60]}'
            for place, said in find(text) if VAGUE_BEGINNING.match(said)]


def line_at(text, place):
    return text.count('\n', 0, place) + 1


def c_comments(text):
    for token in C_TOKEN.finditer(text):
        if token[0].startswith('/'):
            yield token.start(), token[0].lstrip('/* \n')


def python_comments(text):
    """Yields comments, and strings that are statements: docstrings."""
    for token in PYTHON_TOKEN.finditer(text):
        if token[0].lstrip().startswith('#'):
            yield token.start() + len(token[0]) - len(token[0].lstrip()), token[0].strip(' \t#\n')
        elif not text[text.rfind('\n', 0, token.start()) + 1:token.start()].strip():
            yield token.start(), token[0].strip('"\'\n ')


MEASURES = {measure.__name__: measure for measure in (
    share, wide, cell, lines, numbered, prefix, comment)}


# ---- the limits ----------------------------------------------------------------------------------

def read_limits(files):
    """Returns {measure: {subject or pattern: limit}}."""
    limits = {name: {} for name in MEASURES}
    for number, words in rows(files, LIMITS):
        if len(words) != 3 or words[0] not in MEASURES or not words[2].isdecimal():
            raise Wrong(f'{LIMITS}:{number}: expected one of {", ".join(MEASURES)}, '
                        'a subject and a number')
        if words[1] in limits[words[0]]:
            raise Wrong(f'{LIMITS}:{number}: {words[0]} {words[1]} stands there twice')
        limits[words[0]][words[1]] = int(words[2])
    return limits


def compare(counted, limits):
    """Returns ({subject: value} of subjects above their limit, the same of subjects below their own
    limit)."""
    values = {subject: counted[subject].value if subject in counted else 0
              for subject in {*counted, *limits} if '*' not in subject}
    worse = {subject: value for subject, value in sorted(values.items())
             if value > limit_of(limits, subject)}
    better = {subject: value for subject, value in sorted(values.items())
              if subject in limits and value < limits[subject]}
    return worse, better


def judge(number, name, files, limits):
    """Prints the case. Returns false if a value is above its limit."""
    worse, better = compare(MEASURES[name](files), limits)
    print(f'{"not ok" if worse else "ok"} {number} - {MEASURES[name].__doc__}')
    for subject, value in worse.items():
        print(f'# {name} {subject}: {value}, at most {limit_of(limits, subject)}; '
              f'see: python3 test/words.py --show {name} {subject}')
    for subject, value in better.items():
        print(f'# {name} {subject}: {value}, better than its limit {limits[subject]}; '
              'write it: python3 test/words.py --tighten')
    return not worse


def tightened(text, files, limits):
    """Returns the text of the limits file with lower numbers. A row is removed if the limit of a
    pattern makes the row unnecessary."""
    better = {name: compare(MEASURES[name](files), limits[name])[1] for name in MEASURES}
    kept = []
    for line in text.split('\n'):
        words = line.split('#')[0].split()
        value = better[words[0]].get(words[1]) if words else None
        if value is None:
            kept.append(line)
        elif value > bar_of(limits[words[0]], words[1]):
            kept.append(f'{words[0]} {words[1]} {value}')
    return '\n'.join(kept)


def judge_all(files):
    limits = read_limits(files)
    print(f'1..{len(MEASURES)}')
    passed = [judge(number, name, files, limits[name]) for number, name in enumerate(MEASURES, 1)]
    return 0 if all(passed) else 1


def tighten(root, files):
    text = tightened(files[LIMITS], files, read_limits(files))
    with open(os.path.join(root, LIMITS), 'w', encoding='utf-8') as file:
        file.write(text)
    return judge_all({**files, LIMITS: text})


def show(files, name, subject):
    if name in drawing.KINDS:
        return drawing.draw(files, name, subject)
    counted = MEASURES[name](files)
    for key in [subject] if subject else sorted(counted):
        of = counted.get(key, Count())
        print('\n  '.join([f'{name} {key} {of.value}', *of.lines]))
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(description='Measures the words of pages and comments.')
    parser.add_argument('root', nargs='?', default=os.path.dirname(HERE))
    parser.add_argument('--tighten', action='store_true', help='lower the limits to the values')
    parser.add_argument('--show', nargs='+', metavar=('MEASURE', 'SUBJECT'),
                        help='list what a measure counts: ' + ', '.join(MEASURES)
                        + '; or draw by a seed: ' + ', '.join(drawing.KINDS))
    options = parser.parse_args(arguments)
    if options.show and not is_shown(*options.show):
        parser.error('--show takes a measure and perhaps a subject: ' + ', '.join(MEASURES)
                     + '; or a kind and a seed: ' + ', '.join(drawing.KINDS))
    return options


def is_shown(name, *subject):
    return len(subject) == 1 if name in drawing.KINDS else name in MEASURES and len(subject) < 2


def main(arguments):
    options = parse(arguments)
    try:
        files = tidy.Tree.load(options.root).files
        if options.show:
            return show(files, options.show[0], (options.show + [None])[1])
        return tighten(options.root, files) if options.tighten else judge_all(files)
    except Wrong as reason:
        print(f'Bail out! {reason}')
        return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
