"""Draws random comments, messages and rules of the tree from a seed, for human readers.

Each item is printed with lines of its context: the code below a comment, the call that contains a
message, or the title of the README that contains a rule.
"""
import os
import random
import re

import words

CODE_LINES = 3
MESSAGE_CHARACTERS_MIN = 25   # a shorter string is a format or a name
CALL = re.compile(r'\b(?:err_set|client_error|log_[a-z_]+|\w*(?:_fail|_refused?|_break)|refuse'
                  r'|evict|doctor_say)\((?:"(?:\\.|[^"\\])*"|[^;"])*;')
FUNCTION = re.compile(r'^[a-z][^\n;=]*?\b(\w+)\([^;{]*\)\s*\{', re.M)
OUTER = re.compile(r'^[a-z@].*', re.M)   # a line without indentation: a function, a struct, a class
SKIPPED = re.compile(r'--|clang-format|noqa')   # titles of sections, and comments for tools
NUMBER = re.compile(r'\([A-Z]{1,2}[0-9]+[^)]*\)')


def comments(files):
    """Yields (path, line, text) of each comment and docstring with its code."""
    for path, text in sources(files):
        find = words.python_comments if path.endswith('.py') else words.c_comments
        for place, said in find(text):
            is_text = path.endswith('.py') and not text.startswith(('#', '"""'), place)
            if is_text or SKIPPED.match(said):
                continue
            yield path, words.line_at(text, place), with_code(text, place, said)


def with_code(text, place, said):
    """Returns the enclosing declaration, the lines of the comment, and the code below it."""
    start = text.rfind('\n', 0, place) + 1
    end = text.find('\n', text.find(said, place) + len(said))
    end = len(text) if end < 0 else end
    above = text[:start].rstrip('\n').split('\n')[-1:] if text.startswith('"""', place) else []
    around = OUTER.findall(text[:start])[-1:] if text[start:start + 1].isspace() else []
    below = [] if text[start:place].strip() else text[end + 1:].split('\n')[:CODE_LINES]
    return '\n'.join([*around, *(line for line in above if line not in around),
                      text[start:end], *below])


def messages(files):
    """Yields (path, line, text) of each call with a message for users, in the C programs. A call is
    indented; a definition or a declaration of the same name is not."""
    for path, text in sources(files):
        if path.endswith('.py') or path.startswith('test/'):
            continue
        functions = [(found.start(), found[1]) for found in FUNCTION.finditer(text)]
        for call in CALL.finditer(text):
            is_call = text[text.rfind('\n', 0, call.start()) + 1].isspace()
            if is_call and longest_string(call[0]) >= MESSAGE_CHARACTERS_MIN:
                name = [name for start, name in functions if start < call.start()][-1:]
                yield (path, words.line_at(text, call.start()),
                       f'in {"".join(name)}():\n{call[0]}')


def longest_string(code):
    return max((len(token[0]) for token in words.C_TOKEN.finditer(code) if token[0][0] == '"'),
               default=0)


def rules(files):
    """Yields (path, line, text) of each numbered rule, with the title of the README of its folder.
    """
    for path, text in words.pages(files):
        room = purpose(files, os.path.dirname(path))
        for number, block in blocks(text):
            if words.prefix_of(block) or NUMBER.search(block):
                yield path, number, f'room: {room}\n{block}'


def blocks(text):
    """Yields (line, text) of the paragraphs, list items and table rows of a page. The text of a row
    begins with the names of the columns."""
    begin, block, columns = 1, [], []
    for number, line, is_code in words.numbered_lines(text + '\n'):
        is_row = line.startswith('|')
        if not line.strip() or is_code or is_row or line.startswith(('- ', '#')):
            if block:
                yield begin, '\n'.join([*columns, *block])
            begin, block = number, []
        columns = (columns or [line]) if is_row else []
        if line.strip() and not is_code and not line.startswith('#') and columns != [line]:
            begin, block = (begin if block else number), block + [line]


def purpose(files, room):
    """Returns the title of a folder's README: its name and one line."""
    return (files.get(os.path.join(room, 'README.md')) or room).split('\n')[0].strip('# ')


def sources(files):
    for path, text in sorted(files.items()):
        if text is not None and path.endswith(('.c', '.h', '.py')):
            yield path, text


COUNTS = {comments: 60, messages: 40, rules: 20}
KINDS = {kind.__name__: kind for kind in COUNTS}


def draw(files, name, seed):
    """Prints a sample of one kind: comments, messages or rules. The same tree and seed give the
    same items."""
    found = list(KINDS[name](files))
    drawn = random.Random(seed).sample(found, min(len(found), COUNTS[KINDS[name]]))
    for number, (path, line, text) in enumerate(drawn, 1):
        print(f'{number}. {path}:{line}\n{text}\n')
    return 0
