"""Runs a Slurm cluster for tests: munged, slurmctld and one slurmd. It has its own configuration,
key and ports on 127.0.0.1, and runs as the user of the tests. An installed cluster is neither read
nor changed."""
import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import socket
import tempfile

import harness
from harness import WAIT_S, Process, free_ports, until

PATH = os.environ['PATH'] + ':/usr/sbin:/sbin'     # search path of commands, including the daemons
TASKS_MOST = 4

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
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
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
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs={tasks} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
'''


class Slurm:
    """A running cluster. `environment` contains the variables for its commands. end() stops the
    cluster."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-slurm-'))
        self.folder.chmod(0o755)    # munged requires these permissions
        self.environment = {'SLURM_CONF': str(self.folder / 'slurm.conf'), 'PATH': PATH}
        self.daemons = []
        try:
            self.start_munge()
            self.configure()
            controller = self.start('slurmctld', '-D')
            self.start('slurmd', '-D', '-N', 'n1')
            until(self.is_up, 'the node of Slurm is idle', process=controller)
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

    def start_munge(self):
        key, stem = self.folder / 'munge.key', f'{self.folder}/munge'
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        munge = self.start('munged', '--foreground', f'--key-file={key}', f'--socket={stem}.socket',
                           f'--pid-file={stem}.pid', f'--seed-file={stem}.seed')
        until(lambda: (self.folder / 'munge.socket').exists() or munge.child.poll() is not None,
              'munged listens', process=munge)

    def configure(self):
        port = free_ports(2)
        settings = SETTINGS.format(
            folder=self.folder, user=getpass.getuser(), port=port, node_port=port + 1,
            host=socket.gethostname().split('.')[0], tasks=TASKS_MOST)
        (self.folder / 'slurm.conf').write_text(settings)

    def is_up(self):
        for daemon in self.daemons:
            if daemon.child.poll() is not None:
                raise AssertionError(f'{daemon.name} ended:\n{daemon.tail()}')
        told = harness.run(['sinfo', '-h', '-o', '%t'], capture_output=True, text=True,
                           check=False, env={**os.environ, **self.environment}, timeout=WAIT_S)
        return told.stdout.strip() == 'idle'

    def end(self):
        """Ends the daemons in reverse order. At its end slurmd sends a message to slurmctld, and
        both need munged."""
        for daemon in reversed(self.daemons):
            daemon.signal(signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                daemon.wait(5)
            daemon.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
