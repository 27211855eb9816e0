"""The builds that tests run in: their compiler options, their folders, their list of tests."""
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Sanitizers name lines (-g1) and no variables, and -O1 is enough beside what the address sanitizer
# costs: both halve the time of its build.
CHECKED = ['-Doptimization=1', '-Ddebug=false', '-Db_lundef=false', '-Dc_args=-g1']
ADDRESS = [*CHECKED, '-Db_sanitize=address,undefined']
THREAD = [*CHECKED, '-Db_sanitize=thread']


class Build:
    def __init__(self, name, folder, options=(), compiler=None):
        self.name, self.folder = name, ROOT / folder
        self.options, self.compiler = options, compiler
        self.output = self.folder / 'test-output'
        self.wrapper = []
        self.environment = {}

    def make(self):
        """True unless it failed; then the end of its log has been printed."""
        self.folder.mkdir(exist_ok=True)
        environment = {**os.environ, **({'CC': self.compiler} if self.compiler else {})}
        log = self.folder / 'build.log'
        with open(log, 'w', encoding='utf-8') as file:
            for command in self.commands():
                if subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=file, stderr=subprocess.STDOUT, check=False).returncode:
                    break
            else:
                return True
        print(f'==== {self.name}: the build failed (all of it: {log})')
        print(*log.read_text(errors='replace').splitlines()[-60:], sep='\n', flush=True)
        return False

    def commands(self):
        if not (self.folder / 'build.ninja').exists():
            yield ['meson', 'setup', str(self.folder), *self.options]
        yield ['ninja', '-C', str(self.folder)]

    def tests(self):
        said = subprocess.run(['meson', 'introspect', '--tests', str(self.folder)], cwd=ROOT,
                              capture_output=True, text=True, check=True)
        return json.loads(said.stdout)


def steady_memory():
    """Words before a command of ThreadSanitizer, which needs the layout it was built for."""
    words = ['setarch', platform.machine(), '--addr-no-randomize']
    works = subprocess.run([*words, 'true'], stderr=subprocess.DEVNULL, check=False)
    return [] if works.returncode else words


def sanitizer_options():
    """Variables of the sanitizers' runtimes; meson.build reads the same file."""
    lines = (ROOT / 'test/lib/sanitizers.env').read_text(encoding='utf-8').splitlines()
    return dict(line.replace('@ROOT@', str(ROOT)).split('=', 1) for line in lines)
