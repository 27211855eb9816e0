#!/usr/bin/python3
"""Checks rules of the tree, as a TAP program with one case for each rule.

Usage: tidy.py ROOT

A rule is a function of a Tree that yields complaints ("path:line: what is wrong"); its docstring is
the name of the case. test_tidy.py tests every rule with trees that it must refuse.
"""
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Allowed includes: a module, and the modules below it that it may include. The longest matching
# path counts.
SERVICE = {'svc/aggregator', 'svc/lane', 'svc/replica', 'svc/coordinator', 'svc/cli', 'svc/ops',
           'svc/fabric', 'svc/channel', 'svc/endpoint', 'svc/wire', 'svc/proto', 'svc/host',
           'svc/reduce', 'svc/state', 'svc/timeline', 'svc/base', 'svc/view', 'svc/pool', 'packer',
           'migrator'}
ARROWS = {
    'packer': set(),
    'migrator': set(),
    'svc/reduce': set(),
    'svc/base': set(),
    'svc/view': set(),
    'svc/proto': set(),
    'svc/wire': {'svc/base'},
    'svc/endpoint': {'svc/base'},
    'svc/channel': {'svc/endpoint', 'svc/proto', 'svc/wire', 'svc/base'},
    'svc/fabric': {'svc/endpoint', 'svc/wire', 'svc/base'},
    'svc/state': {'svc/channel', 'svc/reduce', 'svc/wire', 'svc/base'},
    'svc/timeline': {'svc/channel', 'svc/wire', 'svc/base'},
    'svc/host': {'svc/base'},
    'svc/replica': {'svc/fabric', 'svc/wire', 'svc/base'},
    # svc/lane includes packer for the rule of backup workers
    'svc/lane': {'packer', 'svc/reduce', 'svc/fabric', 'svc/wire', 'svc/host', 'svc/base'},
    'svc/aggregator': {'svc/lane', 'migrator', 'svc/replica', 'svc/reduce', 'svc/fabric',
                       'svc/channel', 'svc/endpoint', 'svc/wire', 'svc/host', 'svc/view',
                       'svc/base'},
    'svc/coordinator': {'packer', 'migrator', 'svc/reduce', 'svc/channel', 'svc/endpoint',
                        'svc/wire', 'svc/proto', 'svc/host', 'svc/view',
                        'svc/base'},  # svc/reduce: names and sizes of dtypes
    'svc/pool': {'svc/base'},
    # svc/cli includes svc/ops for the JSON of --json
    'svc/cli': {'svc/ops', 'svc/pool', 'svc/state', 'svc/timeline', 'svc/view', 'svc/fabric',
                'svc/channel', 'svc/endpoint', 'svc/wire', 'svc/base'},
    'svc/ops': {'svc/view', 'svc/channel', 'svc/endpoint', 'svc/wire', 'svc/base'},
    'svc': SERVICE,
    'client': {'svc/fabric', 'svc/channel', 'svc/endpoint', 'svc/wire', 'svc/state',
               'svc/timeline', 'svc/reduce', 'svc/base'},
    'bench/sim': {'packer', 'migrator'},
    # bench/hostile sends messages that no client would send
    'bench/hostile': {'svc/fabric', 'svc/channel', 'svc/endpoint', 'svc/wire', 'svc/base'},
    'bench': {'bench/sim', 'client', 'svc/lane', 'svc/aggregator', 'svc/reduce', 'svc/host',
              'svc/view', 'svc/ops', 'svc/state', 'packer', 'migrator', 'svc/base'},
    'test': SERVICE | {'svc', 'client', 'bench', 'bench/sim'},
}
PURE = {'packer', 'migrator', 'svc/reduce'}
PRODUCT = {'svc', 'client', 'packer', 'migrator'}
# Headers that are generated at build time -> the place of each in the tree.
GENERATED = {'messages.pb-c.h': 'svc/proto/messages.pb-c.h',
             'libfabric_symbols.h': 'svc/fabric/ofi/library/libfabric_symbols.h'}
# Headers whose installed names are used in includes.
INSTALLED = {'gradpool.h': 'client/gradpool.h',
             'gradpool_elastic.h': 'client/gradpool_elastic.h',
             'gradpool_stage.h': 'client/gradpool_stage.h',
             'gradpool_table.h': 'client/gradpool_table.h'}

# A library's header (or its folder) -> the files or folders that may include it.
LIBRARIES = {
    'rdma/': {'svc/fabric/ofi', 'test/unit/fabric/ofi/strict_provider.c',
              'test/unit/fabric/ofi/test_fabric_ofi_library.c'},
    'protobuf-c/': {'svc/proto'},
    'openssl/': {'svc/channel/tls.c'},
    'hwloc.h': {'svc/host'},
    'hwloc/': {'svc/host'},
    'jemalloc/': {'svc/lane/memory/arena.c'},
    'sanitizer/': {'svc/lane/memory/arena.c', 'test/unit/lane/test_arena.c'},
    'sqlite3.h': {'svc/coordinator', 'test/unit/coordinator/store/test_store.c'},
    'jansson.h': {'svc/ops', 'bench/savings/look_parse.c', 'bench/backup/grid/grid_file.c',
                  'bench/explore/input/stream_file.c'},
    'microhttpd.h': {'svc/ops'},
    'ini.h': {'svc/cli/options/config.c'},
    'cmocka.h': {'test'},
    'mpi.h': {'bench/peers'},
}
C_HEADERS = set('''assert ctype errno fenv float inttypes limits math setjmp stdalign stdarg
    stdatomic stdbool stddef stdint stdio stdlib string strings time'''.split())
PURE_HEADERS = C_HEADERS - {'ctype', 'setjmp', 'stdatomic', 'strings', 'time'}
INTRINSICS = {'immintrin.h', 'cpuid.h'}
SYSTEM_HEADERS = set('''argp dirent dlfcn fcntl ftw getopt grp ifaddrs netdb poll pthread pwd sched
    search semaphore signal spawn syslog unistd'''.split())
SYSTEM_FOLDERS = ('sys/', 'net/', 'netinet/', 'arpa/', 'linux/')

BANNED = {
    'strcpy': 'snprintf or memcpy', 'strcat': 'text_append', 'sprintf': 'snprintf',
    'vsprintf': 'vsnprintf', 'gets': 'fgets', 'strtok': 'strsep or a loop',
    'atoi': 'text_parse_u64', 'atol': 'text_parse_u64', 'atof': 'strtod', 'alloca': 'an array',
    'system': 'posix_spawn', 'popen': 'posix_spawn', 'signal': 'sigaction or signalfd',
    'sleep': 'a wait for readiness', 'usleep': 'a wait for readiness',
}
BANNED_BUT_IN_TESTS = {'sleep', 'usleep'}

TOP_LEVEL = set('''meson.build svc client packer migrator bench test README.md meson_options.txt
    LICENSE .ci .clang-format .editorconfig .gitignore'''.split())
# The pages whose tables contain the variables of workers, of the service and of tests.
VARIABLE_PAGES = ('client/README.md', 'svc/OPERATING.md', 'test/README.md')
DATA_FOLDERS = ('test/fuzz/corpus/', 'test/golden/')
# Concatenated, so that this file does not contain the searched strings.
MACHINE_PATHS = ['/wo' + 'rk/', '/tm' + 'p/b-', '/ro' + 'ot/', '/ho' + 'me/', '../sha' + 'red']
UNFINISHED = re.compile(r'\b(' + 'TO' + r'DO|FIX' + r'ME|X' + r'XX)\b')

FILE_LINES_MAX = 600
HEADER_LINES_MAX = 299
PUBLIC_HEADER_LINES_MAX = 600   # client/gradpool.h may be longer, because its sentences need room
FUNCTION_LINES_MAX = 60
LINE_COLUMNS_MAX = 100
CLANG_FORMATS = '14', '19'    # the versions of Debian 12 and 13, which agree about this tree


class Skip(Exception):
    """Raised by a rule that has no files to check, or lacks its tool."""


class Tree:
    """The files of the project: path from the root -> text (None for binary files)."""

    def __init__(self, files):
        self.files = files

    @classmethod
    def load(cls, root):
        return cls({path: read_text(os.path.join(root, path)) for path in list_paths(root)})

    def select(self, *endings):
        """Yields text files whose name ends with one of these, in order."""
        for path in sorted(self.files):
            if path.endswith(endings) and self.files[path] is not None:
                yield path, self.files[path]

    def sources(self):
        return self.select('.c', '.h')


def list_paths(root):
    """Returns the files that git tracks or would add; without git, all except hidden folders and
    builds."""
    command = ['git', '-C', root, 'ls-files', '-z', '--cached', '--others', '--exclude-standard']
    try:
        listing = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        paths = set(filter(None, listing.split('\0')))
    except (OSError, subprocess.CalledProcessError):
        paths = set(walk(root))
    return sorted(p for p in paths if os.path.isfile(os.path.join(root, p)))


def walk(root):
    for folder, folders, names in os.walk(root):
        here = os.path.relpath(folder, root)
        if here == '.':
            folders[:] = [f for f in folders if f != '.git' and not f.startswith('build')]
        folders[:] = [f for f in folders if f != '__pycache__']
        yield from (os.path.normpath(os.path.join(here, name)) for name in names)


def read_text(path):
    try:
        with open(path, encoding='utf-8') as file:
            return file.read()
    except UnicodeDecodeError:
        return None


TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(text):
    """Returns the line feeds of the text, so that lines keep their numbers."""
    return '\n' * text.count('\n')


def without_comments(text):
    return TOKEN.sub(lambda m: blank(m[0]) + ' ' if m[0][0] == '/' else m[0], text)


def code_only(text):
    """Returns C code without comments, and with empty strings. The lines keep their numbers."""
    return TOKEN.sub(lambda m: blank(m[0]) + ' ' if m[0][0] == '/' else m[0][0] * 2, text)


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


def module_of(path):
    owners = [m for m in ARROWS if path == m or path.startswith(m + '/')]
    return max(owners, key=len, default=None)


def lies_in(path, places):
    return any(path == place or path.startswith(place + '/') for place in places)


def includes(text):
    """Yields (line, opening mark, header) of each include."""
    pattern = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
    plain = without_comments(text)
    for match in pattern.finditer(plain):
        yield line_of(plain, match.start()), match[1], match[2]


# ---- the rules -----------------------------------------------------------------------------------

def arrows_run_downwards(tree):
    """a module includes only modules below it"""
    for path, text in tree.sources():
        own = module_of(path)
        for line, mark, header in includes(text):
            if mark != '"' or own is None:
                continue
            target = INSTALLED.get(header) or GENERATED.get(header) or header
            other = module_of(target)
            if other != own and other is not None and other not in ARROWS[own]:
                yield f'{path}:{line}: {own} may not include {other} ("{header}")'


def includes_are_written_from_the_root(tree):
    """quoted includes name a file from the root"""
    for path, text in tree.sources():
        for line, mark, header in includes(text):
            known = header in tree.files or header in GENERATED or header in INSTALLED
            if mark == '"' and not known:
                yield f'{path}:{line}: no file "{header}" from the root'


def libraries_stay_in_their_files(tree):
    """a library's headers are included only in the files and folders of LIBRARIES"""
    for path, text in tree.sources():
        for line, mark, header in includes(text):
            if mark != '<' or header_is_allowed(path, header):
                continue
            yield f'{path}:{line}: <{header}> may not be included here'


def header_is_allowed(path, header):
    for prefix, places in LIBRARIES.items():
        if header == prefix or (prefix.endswith('/') and header.startswith(prefix)):
            return lies_in(path, places)
    plain = header.removesuffix('.h')
    if module_of(path) in PURE:
        return plain in PURE_HEADERS or header in INTRINSICS
    return (plain in C_HEADERS | SYSTEM_HEADERS or header in INTRINSICS
            or header.startswith(SYSTEM_FOLDERS))


def files_are_short(tree):
    """no source file is longer than 600 lines, no header than 299, gradpool.h than 600"""
    for path, text in tree.select('.c', '.h', '.py', '.sh', '.proto', '.build'):
        most = HEADER_LINES_MAX if path.endswith('.h') else FILE_LINES_MAX
        most = PUBLIC_HEADER_LINES_MAX if path == 'client/gradpool.h' else most
        if text.count('\n') > most:
            yield f'{path}:{most + 1}: {text.count(chr(10))} lines, at most {most}'


def functions_are_short(tree):
    """no function is longer than 60 lines"""
    for path, text in tree.sources():
        for line, lines in c_functions(code_only(text)):
            if lines > FUNCTION_LINES_MAX:
                yield f'{path}:{line}: {lines} lines, at most {FUNCTION_LINES_MAX}'
    for path, text in tree.select('.py'):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield f'{path}:{node.lineno}: {lines} lines, at most {FUNCTION_LINES_MAX}'


def c_functions(code):
    """Yields (first line, number of lines) of each function body. The format puts its braces into
    the first column."""
    start = None
    for number, line in enumerate(code.split('\n'), 1):
        if line.startswith('{'):
            start = number
        elif line.startswith('}') and start is not None:
            yield start, number - start + 1
            start = None


def lines_are_narrow(tree):
    """no line is wider than 100 columns, ends in blanks or holds a tab"""
    for path, text in tree.select('.c', '.h', '.py', '.sh', '.proto', '.build', '.ci/run'):
        for number, line in enumerate(text.split('\n'), 1):
            if len(line) > LINE_COLUMNS_MAX:
                yield f'{path}:{number}: {len(line)} columns, at most {LINE_COLUMNS_MAX}'
            if line != line.rstrip():
                yield f'{path}:{number}: blanks at the end'
            if '\t' in line:
                yield f'{path}:{number}: a tab'


def dangerous_calls_are_banned(tree):
    """no call that overruns, guesses, hides errors or sleeps in place of readiness"""
    pattern = re.compile(r'(?<![\w.>])(' + '|'.join(BANNED) + r')\s*\(')
    for path, text in tree.sources():
        code = code_only(text)
        for match in pattern.finditer(code):
            name = match[1]
            if name in BANNED_BUT_IN_TESTS and lies_in(path, {'test'}):
                continue
            yield f'{path}:{line_of(code, match.start())}: {name}(): use {BANNED[name]}'


def asserts_change_nothing(tree):
    """an assert has no side effect"""
    change = re.compile(r'\+\+|--|(?<![=!<>])=(?!=)|<<=|>>=')
    for path, text in tree.sources():
        code = code_only(text)
        for match in re.finditer(r'\bassert\s*\(', code):
            inside = balanced(code, match.end())
            if change.search(inside):
                yield f'{path}:{line_of(code, match.start())}: assert({inside.strip()})'


def balanced(code, start):
    """Returns the text from `start`, after a parenthesis, up to the closing parenthesis."""
    depth = 1
    for end in range(start, len(code)):
        depth += {'(': 1, ')': -1}.get(code[end], 0)
        if depth == 0:
            return code[start:end]
    return code[start:]


def c_files_say_what_they_own(tree):
    """each C file opens with a comment"""
    for path, text in tree.sources():
        if not text.startswith('/*'):
            yield f'{path}:1: say what this file owns and what it must never do'


def nothing_is_unfinished_or_local(tree):
    """no mark of unfinished work and no path of one machine"""
    for path, text in tree.select(''):
        for number, line in enumerate(text.split('\n'), 1):
            found = [p for p in MACHINE_PATHS if p in line]
            found += UNFINISHED.findall(line)
            for what in found:
                yield f'{path}:{number}: {what}'


def the_product_has_no_hooks_of_tests(tree):
    """the product has no variable or macro of tests; tests use the linker's --wrap"""
    hook = re.compile(r'\bGRADPOOL_(?:TEST|PLANT)_[A-Z_]+')
    for path, text in tree.sources():
        plain = without_comments(text)
        for match in hook.finditer(plain) if lies_in(path, PRODUCT) else ():
            yield f'{path}:{line_of(plain, match.start())}: {match[0]}'


def modules_have_a_readme(tree):
    """each module has a README.md"""
    inhabited = {module_of(path) for path in tree.files} - {None}
    for module in sorted(inhabited):
        if f'{module}/README.md' not in tree.files:
            yield f'{module}/README.md:1: missing'


def variables_stand_in_a_page(tree):
    """each GRADPOOL_ variable has a row in a table of a page, and each row names a used variable"""
    rows = documented_variables(tree)
    if not rows:
        raise Skip(f'no page has a table of variables: {", ".join(VARIABLE_PAGES)}')
    used = used_variables(tree)
    for name in sorted(used.keys() - rows.keys()):
        yield f'{used[name]}: {name} has no row in a table of {", ".join(VARIABLE_PAGES)}'
    for name in sorted(rows.keys() - used.keys() - option_variables(tree)):
        yield f'{rows[name]}:1: nothing uses {name}'


def documented_variables(tree):
    """Returns name -> page. The first cell of a row may contain several names."""
    rows = {}
    for page in VARIABLE_PAGES:
        for cell in re.findall(r'^\|([^|\n]*)\|', tree.files.get(page) or '', re.M):
            rows.update((name, page) for name in re.findall(r'`(GRADPOOL_[A-Z0-9_]+)`', cell))
    return rows


def option_variables(tree):
    """Returns the variables of command-line options, which may have rows of their own."""
    return {'GRADPOOL_' + option.upper().replace('-', '_')
            for path, text in tree.select('.c', '.h') if path.startswith('svc/cli/')
            for option in re.findall(r'\{[\s\\]*"([a-z][a-z-]+)", ', text)}


def used_variables(tree):
    """Returns name -> place of use. In C a variable is a string; a macro with that name does not
    count."""
    used = {}
    for path, text in tree.select('.c', '.h', '.py', '.sh', '.build'):
        if path.startswith('test/') and os.path.basename(path).startswith('test_'):
            continue  # cases also contain misspelled variables
        in_c = path.endswith(('.c', '.h'))
        pattern = r'"(GRADPOOL_[A-Z0-9_]+)"' if in_c else r'\b(GRADPOOL_[A-Z0-9_]+)\b'
        plain = without_comments(text) if in_c else text
        for match in re.finditer(pattern, plain):
            used.setdefault(match[1], f'{path}:{line_of(plain, match.start())}')
    return used


def nothing_generated_is_committed(tree):
    """no generated or binary file outside the data folders"""
    endings = ('.pb-c.c', '.pb-c.h', '.o', '.a', '.so', '.pyc', '.log', '.orig', '.rej')
    for path, text in sorted(tree.files.items()):
        is_binary = text is None and not path.startswith(DATA_FOLDERS)
        if path.endswith(endings) or is_binary:
            yield f'{path}:1: generated or binary'


def top_level_is_fixed(tree):
    """the root holds nothing but the named folders and files"""
    for name in sorted({path.split('/')[0] for path in tree.files} - TOP_LEVEL):
        yield f'{name}:1: not a name of the top level'


def find_clang_format():
    """Returns the path of a clang-format whose version is one of CLANG_FORMATS."""
    found = []
    for name in *(f'clang-format-{version}' for version in CLANG_FORMATS), 'clang-format':
        if command := shutil.which(name):
            said = subprocess.check_output([command, '--version'], text=True)
            found += re.findall(r'version (\d+)', said)
            if found and found[-1] in CLANG_FORMATS:
                return command
    raise Skip(f'clang-format {" and ".join(CLANG_FORMATS)} format the tree; here is: '
               f'{", ".join(found) or "none"}')


def sources_are_formatted(tree):
    """clang-format changes nothing"""
    if not (rules := tree.files.get('.clang-format')):
        yield '.clang-format:1: missing'
        return
    program = find_clang_format()
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, {'.clang-format': rules, **dict(tree.sources())})
        paths = [path for path, _ in tree.sources()]
        if not paths:
            return
        command = [program, '--dry-run', *paths]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        yield from re.findall(r'^(\S+:\d+):\d+: .*clang-formatted.*$', said.stderr, re.M)


def write_files(folder, files):
    for path, text in files.items():
        place = os.path.join(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, 'w', encoding='utf-8') as file:
            file.write(text)


RULES = [
    arrows_run_downwards, includes_are_written_from_the_root, libraries_stay_in_their_files,
    files_are_short, functions_are_short, lines_are_narrow, dangerous_calls_are_banned,
    asserts_change_nothing, c_files_say_what_they_own, nothing_is_unfinished_or_local,
    the_product_has_no_hooks_of_tests, modules_have_a_readme, variables_stand_in_a_page,
    nothing_generated_is_committed, top_level_is_fixed, sources_are_formatted,
]


def run_rule(number, rule, tree):
    """Prints the case. Returns False if it failed."""
    try:
        complaints = list(rule(tree))
    except Skip as reason:
        print(f'ok {number} - {rule.__doc__} # SKIP {reason}')
        return True
    print(f'{"not ok" if complaints else "ok"} {number} - {rule.__doc__}')
    for complaint in complaints:
        print('# ' + complaint)
    return not complaints


def main(root):
    tree = Tree.load(root)
    print(f'1..{len(RULES)}')
    passed = [run_rule(number, rule, tree) for number, rule in enumerate(RULES, 1)]
    return 0 if all(passed) else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
