"""The command of a worker: python3 [OPTION...] SCRIPT [ARGUMENT...], or -m MODULE instead of
SCRIPT."""
import collections
import importlib
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
import types

from .refusal import Refusal

_FLAGS = 'bBdEIOPqRsSuv'    # options of Python without a value, with an effect at its start
_WITH_VALUE = 'WX'
_HERE = os.path.dirname(__file__)


class Command(collections.namedtuple('Command', ('python', 'options', 'module', 'words'))):
    """`options` of Python; `module`: its name, None for a script; `words`: sys.argv of the script,
    or the arguments of the module."""

    def set_path(self):
        """Sets the first folder that is searched for modules, as Python does."""
        if sys.flags.isolated or getattr(sys.flags, 'safe_path', False):
            return
        if self.module is not None:
            sys.path[0] = os.getcwd()
        elif pkgutil.get_importer(self.words[0]):
            sys.path[0] = os.path.abspath(self.words[0])
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(self.words[0]))

    def run(self):
        """Runs the script as __main__, as Python does. An exception ends this process with a
        traceback without frames of this package."""
        importlib.invalidate_caches()
        self.set_path()
        failure = None
        try:
            self._execute()
        except (Exception, KeyboardInterrupt) as error:
            failure = error
        if failure is not None:
            _show(failure)
        if isinstance(failure, KeyboardInterrupt):
            sys.excepthook = _ignore    # Python ends this process by SIGINT, after exit functions
            raise failure
        if failure is not None:
            sys.exit(1)

    def _execute(self):
        main = sys.modules['__main__'] = types.ModuleType('__main__')
        main.__builtins__ = sys.modules['builtins']
        sys.orig_argv[:] = [self.python, *self.options,
                            *(['-m', self.module] if self.module is not None else ()), *self.words]
        sys.argv[:] = ['-m', *self.words] if self.module is not None else self.words
        if self.module is not None:
            runpy._run_module_as_main(self.module)
        elif pkgutil.get_importer(self.words[0]):   # a folder or an archive with __main__.py
            runpy._run_module_as_main('__main__', False)
        else:
            exec(self._code_for(main), main.__dict__)

    def _code_for(self, main):
        path = os.path.abspath(self.words[0])
        main.__file__, main.__cached__, main.__annotations__ = path, None, {}
        kinds = importlib.machinery
        if path.endswith('.pyc'):
            main.__loader__ = kinds.SourcelessFileLoader('__main__', path)
            return main.__loader__.get_code('__main__')
        main.__loader__ = kinds.SourceFileLoader('__main__', path)
        try:
            with io.open_code(path) as file:
                text = file.read()
        except OSError as error:
            print(f"{self.python}: can't open file '{path}': [Errno {error.errno}] "
                  f'{error.strerror}', file=sys.stderr)
            sys.exit(2)
        return compile(text, path, 'exec', dont_inherit=True)


def _show(failure):
    """Prints an exception as Python does at the end of a script."""
    frames = failure.__traceback__
    while frames is not None and os.path.dirname(frames.tb_frame.f_code.co_filename) == _HERE:
        frames = frames.tb_next
    failure.__traceback__ = frames
    sys.last_type, sys.last_value, sys.last_traceback = type(failure), failure, frames
    sys.excepthook(type(failure), failure, frames)


def _ignore(*_):
    pass


def parse(words):
    """Returns the Command. Raises Refusal for a command that cannot be forked."""
    if not os.path.basename(words[0]).startswith('python'):
        raise Refusal(f"program '{words[0]}' is not Python, so its workers cannot be forked; give "
                      'python3 and a script')
    at = 1
    while at < len(words) and words[at].startswith('-'):
        if words[at].startswith('-m'):
            return _module_of(words, at)
        at += _length_of(words[at])
    if at >= len(words):
        raise Refusal(f"command '{' '.join(words)}' has no script, so no worker can be forked; "
                      'give a script, or -m and a module')
    return Command(words[0], words[1:at], None, words[at:])


def _module_of(words, at):
    rest = at + (1 if words[at][2:] else 2)
    if rest > len(words):
        raise _refuse(words[at])
    return Command(words[0], words[1:at], words[at][2:] or words[at + 1], words[rest:])


def _length_of(word):
    """Returns the number of words of an option."""
    if word[1:2] and word[1] in _WITH_VALUE:
        return 1 if word[2:] else 2
    if not word[1:] or word[1:].strip(_FLAGS):
        raise _refuse(word)
    return 1


def _refuse(word):
    return Refusal(f"option '{word}' of Python cannot be used with --preload; give a script, or -m "
                   'and a module')
