"""Runs a Slurm cluster for tests: munged, slurmctld and slurmd for each node. It has its own
configuration, key and ports on 127.0.0.1, and runs as the user of the tests. An installed cluster
is neither read nor changed."""
import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import unittest

import harness
from harness import WAIT_S, Process, free_ports, until

PATH = os.environ['PATH'] + ':/usr/sbin:/sbin'     # search path of commands, including the daemons
PROGRAMS = 'munged', 'slurmctld', 'slurmd', 'srun', 'sbatch', 'squeue', 'scancel', 'scontrol'
TASKS_MOST = 4
NODE_TIMEOUT_S = 300

# Ports and folders are used only by this cluster. With `cons_tres` several jobs can share the node.
SETTINGS = '''\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdTimeout={node_timeout_s}
{nodes}
{partitions}
'''


NODE = 'NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={tasks} \
State=UNKNOWN'


PARTITION = 'PartitionName={name} Nodes={nodes} Default={is_first} MaxTime=INFINITE State=UP \
OverSubscribe=YES'


class Slurm:
    """A running cluster. `environment` contains the variables for its commands. end() stops the
    cluster. Raises SkipTest, with the reason, where no cluster can be started.

      partitions   {name: names of its nodes}; the first one is the default of jobs
      tasks        CPUs of each node"""

    def __init__(self, partitions=(('main', ('n1',)),), tasks=TASKS_MOST):
        missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
        if missing:
            raise unittest.SkipTest(f'Slurm is not installed: no {missing[0]} in PATH; '
                                    'test/setup.sh --tests installs it')
        self.partitions, self.tasks = dict(partitions), tasks
        self.names = [name for names in self.partitions.values() for name in names]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-slurm-'))
        self.folder.chmod(0o755)    # munged requires these permissions
        self.environment = {'SLURM_CONF': str(self.folder / 'slurm.conf'), 'PATH': PATH}
        self.daemons = []
        try:
            self.start_munge()
            self.ports = free_ports(1 + len(self.names))
            self.configure(NODE_TIMEOUT_S)
            self.start_controller()
            self.nodes = {name: self.start_node(name) for name in self.names}
            until(self.is_up, 'the nodes of Slurm are idle', process=self.controller)
        except AssertionError as error:
            self.end()
            words = ' '.join(str(error).split())[:300]
            raise unittest.SkipTest(f'Slurm cannot be started: {words}') from None
        except BaseException:
            self.end()
            raise

    def start(self, program, *options):
        # setpriv finds the program in the PATH of the environment. The kernel kills the daemon when
        # this process dies.
        daemon = Process(['/usr/bin/setpriv', '--pdeathsig', 'KILL', program, *options],
                         self.folder, program, self.environment)
        self.daemons.append(daemon)
        return daemon

    def start_node(self, name):
        return self.start('slurmd', '-D', '-N', name)

    def start_controller(self):
        self.controller = self.start('slurmctld', '-D')

    def stop_controller(self):
        """Ends slurmctld, which stores its state; a killed one forgets steps of the last seconds.
        start_controller() starts it again, with this state."""
        self.controller.signal(signal.SIGTERM)
        self.controller.wait()
        self.daemons.remove(self.controller)

    def run(self, *words, check=True):
        """Runs a command of Slurm. Returns its standard output."""
        done = harness.run(list(map(str, words)), capture_output=True, text=True, check=False,
                           env={**os.environ, **self.environment}, timeout=WAIT_S)
        if check and done.returncode:
            raise AssertionError(f'{words}: {done.stderr}')
        return done.stdout.strip()

    def start_munge(self):
        key, stem = self.folder / 'munge.key', f'{self.folder}/munge'
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        munge = self.start('munged', '--foreground', f'--key-file={key}', f'--socket={stem}.socket',
                           f'--pid-file={stem}.pid', f'--seed-file={stem}.seed')
        until(lambda: (self.folder / 'munge.socket').exists() or munge.child.poll() is not None,
              'munged listens', process=munge)

    def configure(self, node_timeout_s):
        """Writes the configuration. A node is down after this silence of its slurmd."""
        host = socket.gethostname().split('.')[0]
        nodes = [NODE.format(name=name, host=host, port=self.ports + 1 + index, tasks=self.tasks)
                 for index, name in enumerate(self.names)]
        partitions = [PARTITION.format(name=name, nodes=','.join(names),
                                       is_first='NO' if index else 'YES')
                      for index, (name, names) in enumerate(self.partitions.items())]
        settings = SETTINGS.format(
            folder=self.folder, user=getpass.getuser(), port=self.ports, host=host,
            nodes='\n'.join(nodes), partitions='\n'.join(partitions),
            node_timeout_s=node_timeout_s)
        (self.folder / 'slurm.conf').write_text(settings)

    def set_node_timeout(self, seconds):
        self.configure(seconds)
        self.run('scontrol', 'reconfigure')

    def lose_node(self, name):
        """Kills slurmd of a node. Processes of its jobs live on."""
        self.nodes[name].kill()
        self.daemons.remove(self.nodes[name])

    def return_node(self, name):
        self.nodes[name] = self.start_node(name)

    def is_up(self):
        for daemon in self.daemons:
            if daemon.child.poll() is not None:
                raise AssertionError(f'{daemon.name} ended:\n{daemon.tail()}')
        states = self.run('sinfo', '-h', '-N', '-o', '%t', check=False).split()
        return states == ['idle'] * len(self.names)

    def end(self):
        """Ends the daemons in reverse order. At its end slurmd sends a message to slurmctld, and
        both need munged."""
        for daemon in reversed(self.daemons):
            daemon.signal(signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                daemon.wait(5)
            daemon.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
