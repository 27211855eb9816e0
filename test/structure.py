#!/usr/bin/python3
"""Measures the structure between the files, as a TAP program: one case for each measure, compared
with its limits.

Usage: structure.py [ROOT]                            judges the tree
       structure.py [ROOT] --show MEASURE [SUBJECT]   lists what a measure counts
       structure.py [ROOT] --tighten                  lowers the limits to the values of today

A measure is a function of a House that returns {subject: the counted things, one line each}. The
docstring of the measure is the name of the case. test/structure.limits has the limits,
test/structure.rooms the modules and rooms. test_structure.py checks every measure on a tree that
gets worse.
"""
import argparse
import collections
import fnmatch
import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [HERE, os.path.join(HERE, 'lib')]

import c_units  # noqa: E402
import tidy  # noqa: E402

LIMITS = 'test/structure.limits'
ROOMS = 'test/structure.rooms'
CYCLE_FILES_MAX = 3   # largest cycle of files that is still readable
ROOM_FILES_MAX = 20   # maximum number of files that one header can serve
WHOLE = 'product'     # subject of values that cover all folders of the product


class Wrong(Exception):
    """A table of the structure is invalid; the text names file, line and reason."""


def rows(files, path):
    """Yields (line number, words) of each line of a table, except empty lines and comments."""
    if files.get(path) is None:
        raise Wrong(f'{path}: missing')
    for number, line in enumerate(files[path].split('\n'), 1):
        if words := line.split('#')[0].split():
            yield number, words


class Plan:
    """test/structure.rooms: modules, rooms from the lowest to the highest, public headers."""

    KINDS = ('product', 'module', 'room', 'public')

    def __init__(self, files):
        self.paths = {kind: [] for kind in self.KINDS}
        for number, words in rows(files, ROOMS):
            if len(words) != 2 or words[0] not in self.KINDS:
                raise Wrong(f'{ROOMS}:{number}: expected one of {", ".join(self.KINDS)} and a path')
            if words[1] in self.paths[words[0]]:
                raise Wrong(f'{ROOMS}:{number}: {words[0]} {words[1]} stands there twice')
            self.paths[words[0]].append(words[1])

    def place(self, kind, path):
        """Returns the module or room that contains the file. If several do, returns the one with
        the longest path; if none does, None."""
        owners = [place for place in self.paths[kind] if path.startswith(place + '/')]
        return max(owners, key=len, default=None)


class House:
    """The files of a tree, {path: text}. Each C file of a module is parsed once."""

    def __init__(self, files):
        self.files = files
        self.plan = Plan(files)
        self.modules = {path: self.plan.place('module', path) for path in files}
        self.units = {path: c_units.Unit(text) for path, text in sorted(files.items())
                      if text is not None and path.endswith(('.c', '.h')) and self.modules[path]}
        self.folders = collections.Counter(map(os.path.dirname, files))

    def product(self):
        """Yields (path, unit) of each source file of the product."""
        for path, unit in self.units.items():
            if self.plan.place('product', path):
                yield path, unit

    def is_header_of(self, header, source):
        """Returns whether `header` may declare definitions of `source`."""
        folder = os.path.dirname(source)
        if header in (own_header(source), folder + '/internal.h'):
            return True
        if header in self.plan.paths['public']:
            return source.startswith(os.path.dirname(header) + '/')
        return header == self.room_header(folder)

    def room_header(self, folder):
        """Returns the header with the folder's name, which all files of a room may use; None: the
        folder is no room."""
        is_room = self.folders[folder] <= ROOM_FILES_MAX
        return f'{folder}/{os.path.basename(folder)}.h' if is_room else None

    @functools.cached_property
    def calls(self):
        """Returns {.c file: {.c file of the same module: its functions that the first file
        names}}."""
        sources = {path: unit for path, unit in self.units.items() if path.endswith('.c')}
        definers = collections.defaultdict(set)
        for path, unit in sources.items():
            for name in unit.functions:
                definers[self.modules[path], name].add(path)
        return {path: self.callees(path, unit, definers) for path, unit in sources.items()}

    def callees(self, path, unit, definers):
        own = {'main', *unit.functions, *unit.statics}
        found = collections.defaultdict(list)
        for name in sorted(unit.names - own):
            for other in sorted(definers.get((self.modules[path], name), ())):
                found[other].append(name)
        return found

    @functools.cached_property
    def cycles(self):
        """Returns the cycles of calls, each as a list of files; larger cycles first."""
        reached = {path: reachable(self.calls, path) for path in self.calls}
        found, left = [], set(self.calls)
        while left:
            first = min(left)
            cycle = {path for path in reached[first] if first in reached[path]} | {first}
            left -= cycle
            if len(cycle) > 1:
                found.append(sorted(cycle))
        return sorted(found, key=len, reverse=True)

    @functools.cached_property
    def struct_places(self):
        """Returns {tag: [(path, body)]} of the product."""
        places = collections.defaultdict(list)
        for path, unit in self.product():
            for tag, body in unit.structs:
                places[tag].append((path, body))
        return places

    @functools.cached_property
    def aliases(self):
        return {alias: tag for _, unit in self.product() for alias, tag in unit.aliases.items()}

    def fields_of(self, path, name, is_tag):
        """Returns the fields of the struct with a tag or typedef name, as seen by a file; None: the
        struct is not of this tree."""
        tag = name if is_tag else self.aliases.get(name)
        places = [place for place in self.struct_places.get(tag, ())
                  if place[0] == path or place[0].endswith('.h')]
        if not places:
            return None
        home, body = min(places, key=lambda place: (place[0] != path, place[0]))
        find = functools.partial(self.fields_of, home)
        return list(c_units.fields(body, find))


def own_header(source):
    return source.removesuffix('.c') + '.h'


def reachable(calls, start):
    seen, ahead = set(), [start]
    while ahead:
        for path in calls[ahead.pop()]:
            if path not in seen:
                seen.add(path)
                ahead.append(path)
    return seen


# ---- the measures --------------------------------------------------------------------------------

def cycle(house):
    """no module has a larger cycle of calls among its files than its limit"""
    largest = {}
    for files in house.cycles:
        largest.setdefault(house.modules[files[0]], cycle_lines(house, files))
    return largest


def cyclic(house):
    """no module has more files in large cycles (of more than three files) than its limit"""
    counted = collections.defaultdict(list)
    for files in house.cycles:
        if len(files) > CYCLE_FILES_MAX:
            counted[house.modules[files[0]]] += cycle_lines(house, files)
    return counted


def cycle_lines(house, files):
    """Returns one line for each file: the other files of the cycle that it names, with the
    functions."""
    return [path + ' -> ' + ', '.join(f'{os.path.basename(other)} ({" ".join(names)})'
                                      for other, names in house.calls[path].items()
                                      if other in files) for path in files]


def arrow(house):
    """no module has more arrows from a lower room to a higher one than its limit"""
    order = {room: height for height, room in enumerate(house.plan.paths['room'])}
    upward = collections.defaultdict(list)
    for path, callees in house.calls.items():
        room = house.plan.place('room', path)
        for other, names in callees.items():
            above = house.plan.place('room', other)
            if room and above and order[room] < order[above]:
                upward[house.modules[path]].append(f'{path} -> {other} ({" ".join(names)})')
    return upward


def folder(house):
    """no folder has more files than its limit"""
    listed = collections.defaultdict(list)
    for path in sorted(house.files):
        if not path.startswith(tidy.DATA_FOLDERS):
            listed[os.path.dirname(path) or '.'].append(path)
    return listed


def declaration(house):
    """no module has more declarations in another file's header than its limit"""
    definers = collections.defaultdict(set)
    for path, unit in house.product():
        if path.endswith('.c'):
            for name in unit.functions + unit.variables:
                definers[name].add(path)
    strays = collections.defaultdict(list)
    for path, unit in house.product():
        for name in unit.declared:
            homes = sorted(definers[name] - {path})
            if homes and not any(house.is_header_of(path, home) for home in homes):
                strays[house.modules[path]].append(f'{path}: {name} ({homes[0]})')
    return strays


def headerless(house):
    """no module has more files without a header, their own or their room's, than its limit"""
    bare = collections.defaultdict(list)
    for path, unit in house.product():
        home = os.path.dirname(path)
        headers = {own_header(path), home + '/internal.h', house.room_header(home)}
        serves = set(unit.functions + unit.variables) - {'main'}
        if path.endswith('.c') and serves and not headers & house.files.keys():
            bare[house.modules[path]].append(path)
    return bare


def fields(house):
    """no struct has more fields, including the fields of inner structs, than its limit"""
    found = {}
    for tag, places in house.struct_places.items():
        versions = [house.fields_of(path, tag, True) for path, _ in places]
        found[tag] = max(versions, key=len)
    return found


def tag(house):
    """no more structs share a tag than the limit"""
    return {WHOLE: [f'{name}: {path}' for name, places in sorted(house.struct_places.items())
                    if len(places) > 1 for path, _ in places]}


def static(house):
    """no more static functions share a name than the limit"""
    homes = collections.defaultdict(set)
    for path, unit in house.product():
        for name in unit.statics:
            homes[name].add(path)
    return {WHOLE: [f'{name}: {path}' for name, paths in sorted(homes.items()) if len(paths) > 1
                    for path in sorted(paths)]}


MEASURES = {measure.__name__: measure for measure in (
    cycle, cyclic, arrow, folder, declaration, headerless, fields, tag, static)}


# ---- the limits ----------------------------------------------------------------------------------

def read_limits(files):
    """Returns {measure: {subject or pattern: limit}}."""
    limits = {name: {} for name in MEASURES}
    for number, words in rows(files, LIMITS):
        place = f'{LIMITS}:{number}'
        if len(words) != 3 or not words[2].isdecimal():
            raise Wrong(f'{place}: expected a measure, a subject and a number')
        if words[0] not in MEASURES:
            raise Wrong(f'{place}: no measure {words[0]}; there are {", ".join(MEASURES)}')
        if words[1] in limits[words[0]]:
            raise Wrong(f'{place}: {words[0]} {words[1]} stands there twice')
        limits[words[0]][words[1]] = int(words[2])
    return limits


def limit_of(limits, subject):
    """Returns the limit of the subject, else of the longest matching pattern, else 0."""
    return limits[subject] if subject in limits else bar_of(limits, subject)


def bar_of(limits, subject):
    fitting = [pattern for pattern in limits
               if '*' in pattern and fnmatch.fnmatchcase(subject, pattern)]
    return limits[max(fitting, key=len)] if fitting else 0


def compare(counted, limits):
    """Returns two dictionaries {subject: value}: of subjects above their limit, and of subjects
    below their own limit."""
    values = {subject: len(counted.get(subject, ())) for subject in {*counted, *limits}
              if '*' not in subject}
    worse = {subject: value for subject, value in sorted(values.items())
             if value > limit_of(limits, subject)}
    better = {subject: value for subject, value in sorted(values.items())
              if subject in limits and value < limits[subject]}
    return worse, better


def judge(number, name, house, limits):
    """Prints the case. Returns false if a value is above its limit."""
    worse, better = compare(MEASURES[name](house), limits)
    print(f'{"not ok" if worse else "ok"} {number} - {MEASURES[name].__doc__}')
    for subject, value in worse.items():
        print(f'# {name} {subject}: {value}, at most {limit_of(limits, subject)}; '
              f'see: python3 test/structure.py --show {name} {subject}')
    for subject, value in better.items():
        print(f'# {name} {subject}: {value}, better than its limit {limits[subject]}; '
              'write it: python3 test/structure.py --tighten')
    return not worse


def tightened(text, house, limits):
    """Returns the text of the limits file with lower numbers. A row is removed if the limit of a
    pattern makes the row unnecessary."""
    better = {name: compare(MEASURES[name](house), limits[name])[1] for name in MEASURES}
    lines = []
    for line in text.split('\n'):
        words = line.split('#')[0].split()
        value = better[words[0]].get(words[1]) if words else None
        if value is None:
            lines.append(line)
        elif value > bar_of(limits[words[0]], words[1]):
            lines.append(f'{words[0]} {words[1]} {value}')
    return '\n'.join(lines)


def judge_all(house):
    limits = read_limits(house.files)
    print(f'1..{len(MEASURES)}')
    passed = [judge(number, name, house, limits[name]) for number, name in enumerate(MEASURES, 1)]
    return 0 if all(passed) else 1


def tighten(root, house):
    text = house.files[LIMITS]
    with open(os.path.join(root, LIMITS), 'w', encoding='utf-8') as file:
        file.write(tightened(text, house, read_limits(house.files)))
    return judge_all(House(tidy.Tree.load(root).files))


def show(house, name, subject):
    counted = MEASURES[name](house)
    for key in [subject] if subject else sorted(counted):
        lines = counted.get(key, [])
        print('\n  '.join([f'{name} {key} {len(lines)}', *lines]))
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(description='Measures the structure between the files.')
    parser.add_argument('root', nargs='?', default=os.path.dirname(HERE))
    parser.add_argument('--tighten', action='store_true', help='lower the limits to the values')
    parser.add_argument('--show', nargs='+', metavar=('MEASURE', 'SUBJECT'),
                        help='list what a measure counts: ' + ', '.join(MEASURES))
    options = parser.parse_args(arguments)
    if options.show and (options.show[0] not in MEASURES or len(options.show) > 2):
        parser.error('--show takes a measure and perhaps a subject: ' + ', '.join(MEASURES))
    return options


def main(arguments):
    options = parse(arguments)
    try:
        house = House(tidy.Tree.load(options.root).files)
        if options.show:
            return show(house, options.show[0], (options.show + [None])[1])
        return tighten(options.root, house) if options.tighten else judge_all(house)
    except Wrong as reason:
        print(f'Bail out! {reason}')
        return 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
