"""The builds in which tests run: their compiler options, folders and lists of tests."""
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Sanitizers need line numbers (-g1) but no variables. A higher level than -O1 would save little
# time, because the sanitizer itself costs more time. Both options halve the time of a build.
CHECKED = ['-Doptimization=1', '-Ddebug=false', '-Db_lundef=false', '-Dc_args=-g1']
ADDRESS = [*CHECKED, '-Db_sanitize=address,undefined']
THREAD = [*CHECKED, '-Db_sanitize=thread']


class Build:
    def __init__(self, name, folder, options=(), compiler=None):
        self.name, self.folder = name, ROOT / folder
        self.options, self.compiler = options, compiler
        self.output, self.log = self.folder / 'test-output', self.folder / 'build.log'
        self.wrapper = []
        self.environment = {}

    def configure(self):
        """Starts `meson setup`, or ninja's update of the build files. Returns the process."""
        self.folder.mkdir(exist_ok=True)
        is_new = not (self.folder / 'build.ninja').exists()
        with open(self.log, 'w', encoding='utf-8') as log:
            return self.start(['meson', 'setup', str(self.folder), *self.options] if is_new else
                              ['ninja', '-C', str(self.folder), 'build.ninja'], log)

    def start(self, command, log):
        environment = {**os.environ, **({'CC': self.compiler} if self.compiler else {})}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                                stdout=log, stderr=subprocess.STDOUT)

    def make(self, tests):
        """Builds all targets of the plain build. Other builds only build the needed targets,
        because most programs run only in the plain build. Returns True. After a failure prints the
        last lines of the log."""
        targets = ['all'] if self.name == 'plain' else self.targets_of(tests)
        with open(self.log, 'a', encoding='utf-8') as log:
            ninja = self.start(['ninja', '-C', str(self.folder), 'build.ninja', *targets], log)
            return ninja.wait() == 0 or self.show_failure()

    def show_failure(self):
        print(f'==== {self.name}: the build failed (all of it: {self.log})')
        lines = self.log.read_text(errors='replace').splitlines()
        print(*lines[-60:], sep='\n', flush=True)
        return False

    def tests(self):
        return self.introspect('tests')

    def introspect(self, what):
        said = subprocess.run(['meson', 'introspect', f'--{what}', str(self.folder)], cwd=ROOT,
                              capture_output=True, text=True, check=True)
        return json.loads(said.stdout)

    def targets_of(self, tests):
        """Returns the paths of the targets in the folder, in ninja's form."""
        wanted = {target for test in tests for target in test['depends']}
        return sorted(os.path.relpath(file, self.folder) for target in self.introspect('targets')
                      if target['id'] in wanted for file in target['filename'])


def steady_memory():
    """Returns words to put before the command of a program with ThreadSanitizer, because
    ThreadSanitizer needs a fixed memory layout."""
    words = ['setarch', platform.machine(), '--addr-no-randomize']
    works = subprocess.run([*words, 'true'], stderr=subprocess.DEVNULL, check=False)
    return [] if works.returncode else words


def sanitizer_options():
    """Returns the variables of the sanitizers' runtimes, from the file that meson.build also
    reads."""
    lines = (ROOT / 'test/lib/sanitizers.env').read_text(encoding='utf-8').splitlines()
    return dict(line.replace('@ROOT@', str(ROOT)).split('=', 1) for line in lines)
