"""Tests the result of `meson install`. The installation must have exactly the files that this
module lists. A service, a C program and a Python program must work with the installed files alone.
The files are staged in another folder than the configured one, so the programs must find each other
by their own paths."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import harness
import tap
from harness import BUILD, Process, Service, until

SOURCE = pathlib.Path(__file__).resolve().parents[3]
PYTHON = sys.executable  # interpreter of the installed package
REDUCE = '''
import array, sys
import gradpool
library = gradpool._native.binding.lib._name
with gradpool.connect() as client:
    jobs = [client.join('staged', rank, 2) for rank in range(2)]
    tensors = [job.declare('t', 1000) for job in jobs]
    values = [array.array('f', [job.rank + 1.0] * 1000) for job in jobs]
    requests = [job.push_pull(tensor, value, operation='sum')
                for job, tensor, value in zip(jobs, tensors, values)]
    for request in requests:
        request.wait(60000)
    print(gradpool.__file__, library, gradpool.__version__, values[0] == values[1], values[0][999])
'''

stage = None


def run(*command, **variables):
    """Runs the command without the variables of the project's tests. Returns its output."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(('GRADPOOL_', 'PYTHON', 'LD_', 'PKG_CONFIG'))}
    result = harness.run([str(c) for c in command], capture_output=True, text=True, timeout=60,
                         check=False, env={**kept, **variables})
    if result.returncode != 0:
        raise AssertionError(f'{command[0]}: {result.returncode}\n{result.stdout}{result.stderr}')
    return result.stdout


class Stage:
    """Installs into a folder that replaces the root folder /. Configured paths are below this
    folder."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-test-'))
        run('meson', 'install', '-C', BUILD, '--no-rebuild', '--destdir', self.folder)
        options = {o['name']: o['value']
                   for o in json.loads(run('meson', 'introspect', '--buildoptions', BUILD))}
        self.is_sanitized = options['b_sanitize'] != 'none'
        self.prefix = pathlib.Path(options['prefix'])
        self.bin, self.lib, self.include, self.data = (
            self.below(self.prefix / options[name])
            for name in ('bindir', 'libdir', 'includedir', 'datadir'))
        asked = run(PYTHON, SOURCE / 'client/python/install_places.py', self.prefix, 'lib')
        self.packages = self.below(asked.splitlines()[0])

    def below(self, path):
        return self.folder / pathlib.Path(path).relative_to('/')

    def files(self):
        return {path for path in self.folder.rglob('*') if not path.is_dir()}


def setUpModule():
    global stage
    if not shutil.which('meson'):
        raise unittest.SkipTest('no meson')
    stage = Stage()


def tearDownModule():
    shutil.rmtree(stage.folder, ignore_errors=True)


class Files(unittest.TestCase):
    def test_the_installed_files_are_exactly_these(self):
        version = run(stage.bin / 'gradpool', 'version').split()[1]
        source = SOURCE / 'client/python/gradpool'
        package = [path.relative_to(source) for path in source.rglob('*.py')]
        wanted = {stage.bin / 'gradpool', stage.bin / 'gradpool-bench',
                  *(stage.include / f'gradpool{part}.h'
                    for part in ['', '_elastic', '_stage', '_table']),
                  stage.data / 'gradpool/schema.json',
                  stage.lib / 'pkgconfig/gradpool.pc',
                  stage.lib / 'libgradpool.so', stage.lib / 'libgradpool.so.0',
                  stage.lib / f'libgradpool.so.{version}',
                  *(stage.packages / 'gradpool' / name for name in [*package, '_installed.py'])}
        found = stage.files()
        self.assertEqual((found - wanted, wanted - found), (set(), set()))

    def test_links_to_the_library_are_relative_and_lead_to_the_library(self):
        for name in 'libgradpool.so', 'libgradpool.so.0':
            self.assertFalse(os.path.isabs(os.readlink(stage.lib / name)))
            self.assertTrue((stage.lib / name).exists())

    def test_every_user_may_read_files_and_run_programs(self):
        for path in stage.files():
            is_program = path.parent == stage.bin
            self.assertEqual(path.stat().st_mode & 0o555, 0o555 if is_program else
                             path.stat().st_mode & 0o111 | 0o444, path)

    def test_nothing_points_into_the_build_folder(self):
        for path in stage.bin / 'gradpool', stage.lib / 'libgradpool.so.0':
            self.assertNotIn(str(BUILD).encode(), path.read_bytes())
        for path in stage.bin / 'gradpool', stage.bin / 'gradpool-bench':
            self.assertNotIn(str(BUILD), run('readelf', '-d', path))
            self.assertNotIn('not found', run('ldd', path))

    def test_this_interpreter_searches_the_installed_folder(self):
        if str(stage.prefix) not in ('/usr', '/usr/local'):
            self.skipTest(f'no interpreter looks below {stage.prefix}')
        folders = run(PYTHON, '-c', 'import site; print(*site.getsitepackages(), sep="\\n")')
        self.assertIn('/' + str(stage.packages.relative_to(stage.folder)), folders.splitlines())


class Library(unittest.TestCase):
    def test_the_soname_is_that_of_the_abi(self):
        self.assertIn('Library soname: [libgradpool.so.0]',
                      run('readelf', '-d', stage.lib / 'libgradpool.so'))

    def test_each_symbol_has_a_version_and_is_of_the_api(self):
        lines = run('nm', '-D', '--defined-only', '--with-symbol-versions',
                    stage.lib / 'libgradpool.so').splitlines()
        names = [line.split()[-1] for line in lines if ' A ' not in line]
        self.assertGreater(len(names), 20)
        for name in names:
            self.assertRegex(name, r'^gp_\w+@@GRADPOOL_0\.1$')


class Hardening(unittest.TestCase):
    def test_program_and_library_are_hardened_against_faults_in_memory(self):
        """Sanitizers replace these measures."""
        if stage.is_sanitized:
            self.skipTest('a build with sanitizers is not hardened')
        for file in (stage.bin / 'gradpool').resolve(), stage.lib / 'libgradpool.so':
            facts = run('readelf', '-W', '-h', '-l', '-d', '--dyn-syms', file)
            for words in (r'Type: +DYN', 'GNU_RELRO', r'\bBIND_NOW\b', r'GNU_STACK .* RW ',
                          '__stack_chk_fail'):
                self.assertRegex(facts, words, file.name)


class PrivatePrefix(unittest.TestCase):
    """Installs with a prefix outside of /usr, where ld.so does not search."""

    def test_a_c_program_finds_its_library_by_itself(self):
        with tempfile.TemporaryDirectory(prefix='gradpool-test-') as folder:
            folder = pathlib.Path(folder)
            run('meson', 'setup', folder / 'build', SOURCE, '--prefix', folder / 'private',
                '--libdir', 'lib')
            library = folder / 'private/lib'
            library.mkdir(parents=True)
            for name in 'libgradpool.so', 'libgradpool.so.0':
                shutil.copy(stage.lib / 'libgradpool.so', library / name)
            flags = run('pkg-config', '--libs', folder / 'build/meson-private/gradpool.pc').split()
            program = folder / 'example'
            run('cc', '-I', SOURCE / 'client', '-o', program, SOURCE / 'client/example.c', *flags)
            self.assertIn(f'libgradpool.so.0 => {library}', run('ldd', program))


class Use(unittest.TestCase):
    """Uses a service started from the staged program, which starts its own aggregator."""

    def setUp(self):
        built, harness.GRADPOOL = harness.GRADPOOL, stage.bin / 'gradpool'
        self.addCleanup(setattr, harness, 'GRADPOOL', built)
        self.service = Service(aggregators=1)
        self.addCleanup(self.service.end)

    def test_all_processes_of_a_service_run_the_staged_program(self):
        for pid in [self.service.serve.pid, *self.service.pids()]:
            self.assertEqual(os.readlink(f'/proc/{pid}/exe'), str(stage.bin / 'gradpool'))

    def test_a_c_program_is_compiled_with_pkg_config_and_pushes(self):
        flags = run('pkg-config', '--cflags', '--libs', 'gradpool',
                    PKG_CONFIG_LIBDIR=str(stage.lib / 'pkgconfig'),
                    PKG_CONFIG_SYSROOT_DIR=str(stage.folder), PKG_CONFIG_ALLOW_SYSTEM_LIBS='1',
                    PKG_CONFIG_ALLOW_SYSTEM_CFLAGS='1').split()
        program = self.service.folder / 'example'
        shutil.copy(SOURCE / 'client/example.c', self.service.folder)
        run('cc', '-Wall', '-Werror', '-o', program, self.service.folder / 'example.c', *flags)
        self.assertIn('libgradpool.so.0', run('readelf', '-d', program))
        ranks = [Process([program], self.service.folder, f'example.{rank}',
                         {'GRADPOOL_ENDPOINT': self.service.endpoint, 'GRADPOOL_JOB': 'c',
                          'LD_LIBRARY_PATH': str(stage.lib), 'GRADPOOL_RANK': str(rank),
                          'GRADPOOL_SIZE': '2'}) for rank in range(2)]
        for rank in ranks:
            self.assertEqual(rank.wait(), 0, rank.tail())
            self.assertIn('step 2: mean 1.5 2\n', rank.text())

    def test_python_imports_the_staged_package_alone_and_reduces(self):
        said = run(PYTHON, '-P', '-c', REDUCE, GRADPOOL_ENDPOINT=self.service.endpoint,
                   PYTHONPATH=str(stage.packages), PYTHONDONTWRITEBYTECODE='1').split()
        self.assertEqual(said[0], str(stage.packages / 'gradpool/__init__.py'))
        self.assertEqual(os.path.realpath(said[1]),
                         os.path.realpath(stage.lib / 'libgradpool.so.0'))
        self.assertEqual(said[2:], [run(stage.bin / 'gradpool', 'version').split()[1], 'True',
                                    '3.0'])

    def test_the_bench_finds_library_and_service_beside_its_own_path(self):
        bench = Process([stage.bin / 'gradpool-bench', 'push', '--endpoint', self.service.endpoint,
                         '--job', 'b', '--rank', 0, '--workers', 1, '--rounds', 10, '--json'],
                        self.service.folder, 'bench')
        self.service.children.append(bench)
        until(lambda: bench.child.poll() is not None, 'the bench ends', process=bench)
        self.assertEqual(bench.wait(), 0, bench.tail())
        self.assertIn('libgradpool.so.0 => ' + str(stage.bin),
                      run('ldd', stage.bin / 'gradpool-bench'))


if __name__ == '__main__':
    tap.main()
