"""Reads C sources without a compiler: functions, declarations, structs and names of each file.

The files have the format of clang-format, and each closes every brace that it opens. Functions that
macros define are not found."""
import functools
import re

import tidy

GUARDED = re.compile(r'^#\s*ifdef __cplusplus\b.*?^#\s*endif\b', re.M | re.S)
DIRECTIVE = re.compile(r'^[ \t]*#(?:\\\n|[^\n])*', re.M)
ATTRIBUTE = re.compile(r'__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)')
ALIGNED = re.compile(r'\b(?:_Alignas|alignas)\s*\([^)]*\)')
MARK = re.compile(r'[{};]')
BRACE = re.compile(r'[{}]')
# The name of a member (after a dot or an arrow) is not the name of a function.
NAME = re.compile(r'(?<![\w.>])[A-Za-z_]\w*')
STATIC = re.compile(r'\b(?:static|inline_always)\b')  # svc/reduce defines the second word
LOCAL = re.compile(r'\b(?:static|inline_always|typedef|_Static_assert)\b'
                   r'|^\s*(?:struct|union|enum)\s+\w+\s*$')
STRUCT = re.compile(r'\b(typedef\s+)?struct\s+(\w+)\s*\{')
ALIAS = re.compile(r'\btypedef\s+struct\s+(\w+)\s+(\w+)\s*;')
VALUE = re.compile(r'(?:(?:const|volatile)\s+)*(struct\s+)?(\w+)\s+(?=[\w*])')
NESTED = re.compile(r'(?:(?:const|volatile)\s+)*(?:struct|union)\b')
POINTER_NAME = re.compile(r'\(\s*\*+\s*(\w+)')
PLAIN_NAME = re.compile(r'(\w+)\s*(?:\[[^]]*\]\s*)*(?::[^:]*)?$')


class Unit:
    """A source file. `functions` and `statics` are its defined functions, `declared` its
    declarations for other files, and `variables` its data that other files may name. `structs` maps
    each tag to the body of the struct, and `aliases` maps each typedef name to its tag."""

    def __init__(self, text):
        code = GUARDED.sub('', tidy.code_only(text))
        plain = DIRECTIVE.sub('', code)
        self.names = set(NAME.findall(code))
        self.functions, self.statics, self.declared, self.variables = [], [], [], []
        for head, has_braces, is_body in top_level(plain):
            if is_body:
                name, before = function_name(head)
                (self.statics if STATIC.search(before) else self.functions).append(name)
            elif not LOCAL.search(head):
                self.sort(head, has_braces)
        self.structs, self.aliases = read_structs(plain)

    def sort(self, head, has_braces):
        name, _ = function_name(head)
        if name:
            self.declared.append(name)
        elif 'extern' in head:
            self.declared += data_names(head)
        elif '=' in head or not has_braces:
            self.variables += data_names(head)


def top_level(code):
    """Yields (head, whether a body in braces follows, whether the body belongs to a function) of
    each definition and declaration."""
    start, opened, depth = 0, None, 0
    for mark in MARK.finditer(code):
        at = mark.start()
        if mark[0] == '{':
            opened = at if opened is None else opened
            depth += 1
            continue
        depth -= mark[0] == '}'
        if depth > 0:
            continue
        head = code[start:at if opened is None else opened]
        is_body = mark[0] == '}' and function_name(head)[0] is not None
        if mark[0] == ';' or is_body:
            yield head, opened is not None, is_body
            start, opened = at + 1, None


def function_name(head):
    """Returns (name, text before it) of a function's head, else (None, '')."""
    head = ATTRIBUTE.sub('', head).rstrip() if '__attribute__' in head else head.rstrip()
    if not head.endswith(')') or '=' in head:
        return None, ''
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += {')': 1, '(': -1}.get(head[at], 0)
        if depth == 0:
            break
    name = re.search(r'\w+$', head[:at])
    return (name[0], head[:name.start()]) if name else (None, '')


def data_names(head):
    """Returns the names of variables in a declaration."""
    head = ATTRIBUTE.sub('', head).split('=')[0]
    pieces = [re.sub(r'\[[^]]*\]', '', piece) for piece in split_commas(head)]
    return [found[0] for piece in pieces if (found := re.search(r'\w+(?=\s*$)', piece))]


def split_commas(text):
    """Yields the pieces of a text between commas outside of brackets."""
    depth, start = 0, 0
    for at, mark in enumerate(text):
        depth += (mark in '([{') - (mark in ')]}')
        if mark == ',' and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def closing(code, start):
    """Returns the offset of the brace that closes the one before `start`."""
    depth = 1
    for mark in BRACE.finditer(code, start):
        depth += 1 if mark[0] == '{' else -1
        if depth == 0:
            return mark.start()
    return len(code)


def read_structs(code):
    """Returns ([(tag, body)], {typedef name: tag}) of a file, including structs inside of structs.
    """
    structs, aliases = [], {alias: tag for tag, alias in ALIAS.findall(code)}
    for found in STRUCT.finditer(code):
        end = closing(code, found.end())
        structs.append((found[2], code[found.end():end]))
        name = re.compile(r'\s*(\w+)\s*;').match(code, end + 1)
        if found[1] and name:
            aliases[name[1]] = found[2]
    return structs, aliases


def members(body):
    """Yields (type and first declarator, body of an inner struct or None, further text) of each
    declaration."""
    start, end = 0, len(body)
    while start < end:
        mark = MARK.search(body, start)
        if not mark:
            return
        inner, head, tail = None, body[start:mark.start()].strip(), ''
        if mark[0] == '{':
            close = closing(body, mark.end())
            inner = body[mark.end():close]
            stop = body.find(';', close)
            tail, start = body[close + 1:stop].strip(), stop + 1
        else:
            start = mark.end()
        if head and not head.startswith('_Static_assert'):
            yield head, inner, tail


def fields(body, find):
    """Yields the names of the fields of a struct. An inner struct by value counts by its fields.
    find(name, is_tag) returns the fields of a struct of the tree by its tag or typedef name, or
    None."""
    for head, inner, tail in members(body):
        head = ALIGNED.sub('', ATTRIBUTE.sub('', head)).strip()
        if inner is None:
            kind = VALUE.match(head)
            inside = functools.partial(find, kind[2], kind[1] is not None) if kind else nothing
            yield from declared_fields(head[kind.end():] if kind else head, inside)
        elif not NESTED.match(head):
            yield from declared_fields(tail, nothing)
        elif tail:
            yield from declared_fields(tail, functools.partial(fields, inner, find))
        elif NESTED.fullmatch(head):
            yield from fields(inner, find)


def nothing():
    return None


def declared_fields(declarators, inside):
    """Yields the names of declared fields. inside() returns the fields of the declared struct, or
    None. A pointer or an array is one field."""
    for declarator in filter(None, split_commas(ATTRIBUTE.sub('', declarators))):
        name = POINTER_NAME.search(declarator) or PLAIN_NAME.search(declarator)
        name = name[1] if name else declarator
        parts = None if re.search(r'[*\[(]', declarator) else inside()
        yield from [name] if parts is None else [f'{name}.{field}' for field in parts]
