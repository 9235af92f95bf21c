"""Starts coordinators and workers as processes of their own, for tests that kill them."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import tiny_model

BIN = os.environ.get("CAIRN_BIN",
                     os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
# A client of another build may ask a sanitized cluster.
CLIENT = os.environ.get("CAIRN_CLIENT", os.path.join(BIN, "cairn"))
# Sanitizer builds and busy machines need longer; every wait ends all the same.
PATIENCE = float(os.environ.get("CAIRN_TEST_PATIENCE", "1"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, seconds, what):
    """The first true value of condition(); fails after `seconds`."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds * PATIENCE:.0f} s: {what}")
        time.sleep(0.05)


def cairn(*arguments, stdin="", timeout=60, check=False):
    done = subprocess.run([CLIENT, *map(str, arguments)], input=stdin,
                          capture_output=True, text=True, timeout=timeout * PATIENCE)
    if check and done.returncode:
        raise AssertionError(f"cairn {arguments}: {done.returncode}: {done.stderr}")
    return done


class Cluster:
    def __init__(self, tp=1, groups=1, model=None, coordinator=(), worker=(), start=True):
        self.folder = tempfile.mkdtemp(prefix="cairn-test-")
        self.model = model or tiny_model.write(os.path.join(self.folder, "tiny"))
        self.port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self.secret = os.path.join(self.folder, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(os.urandom(32).hex() + "\n")
        self.size = tp * groups
        self.coordinator_flags = [f"--tp={tp}", f"--groups={groups}", "--kv-memory=64MiB",
                                  "--drain-seconds=2",
                                  f"--heartbeat-timeout={int(5 * PATIENCE)}", *coordinator]
        self.worker_flags = list(worker)
        self.processes, self.logs, self.others = {}, {}, []
        if start:
            self.start_coordinator()
            for i in range(self.size):
                self.start_worker(i)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _start(self, name, program, arguments, prefix=()):
        log = os.path.join(self.folder, f"{name}.log")
        self.logs[name] = log
        with open(log, "ab") as out:
            self.processes[name] = subprocess.Popen(
                [*prefix, os.path.join(BIN, program), *arguments], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL)
        return self.processes[name]

    def start_coordinator(self):
        return self._start("coordinator", "cairn-coordinator",
                           [f"--model={self.model}", f"--listen={self.endpoint}",
                            f"--secret-file={self.secret}", *self.coordinator_flags])

    def start_worker(self, i, *more):
        return self._start(f"worker-{i}", "cairn-worker",
                           [f"--model={self.model}", f"--coordinator={self.endpoint}",
                            f"--secret-file={self.secret}", "--threads=1", *self.worker_flags,
                            *more])

    def kill(self, name, number=signal.SIGKILL):
        self.processes[name].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[name].wait()

    def log(self, name):
        with open(self.logs[name], encoding="utf-8", errors="replace") as file:
            return file.read()

    def status(self):
        done = cairn("status", "--endpoint", self.endpoint, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def in_flight(self):
        status = self.status()
        return status["requests_in_flight"] if status else None

    def ask(self, *question):
        """What a client without our .proto is told: `services`, or `health` of a service."""
        what, *names = question
        done = subprocess.run([os.path.join(BIN, "../tests/ask_server"), what, self.endpoint,
                               *names], capture_output=True, text=True, timeout=60 * PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def health(self):
        return self.ask("health", "cairn.v1.Cairn")[0]

    def wait_serving(self, seconds=60):
        """Until every group serves."""
        def serves():
            status = self.status()
            return status if status and all(g["serving"] for g in status["groups"]) else None
        try:
            return wait_until(serves, seconds, "all groups serve")
        except AssertionError as error:
            logs = "\n".join(f"== {n}\n{self.log(n)[-3000:]}" for n in self.logs)
            raise AssertionError(f"{error}\n{self.status()}\n{logs}") from None

    def rank_of(self, rank, group=0):
        """Name of the process that holds a rank."""
        status = self.status()
        pid = status["groups"][group]["ranks"][rank]["pid"]
        return next(n for n, p in self.processes.items() if p.pid == pid)

    def wait_idle(self, seconds=15):
        """Until no request runs and every block is free or evictable: nothing is lost."""
        def idle():
            status = self.status()
            if not status or status["requests_in_flight"]:
                return False
            engines = [g["engine"] for g in status["groups"]]
            return all(e["running"] == e["waiting"] == 0 and e["blocks"] > 0 and
                       e["free_blocks"] + e["cached_blocks"] == e["blocks"] for e in engines)
        wait_until(idle, seconds, f"idle with all blocks back: {self.status()}")

    def generate(self, *arguments, timeout=60):
        return cairn("generate", "--endpoint", self.endpoint, *arguments, timeout=timeout)

    def ids(self, *arguments, timeout=60):
        done = self.generate(*arguments, "--json", timeout=timeout)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["ids"]

    def start_stream(self, *arguments):
        """A client whose text comes through a pipe."""
        client = subprocess.Popen(
            [CLIENT, "generate", "--endpoint", self.endpoint, *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.others.append(client)
        return client

    def close(self):
        everything = [*self.others, *self.processes.values()]
        for process in everything:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in everything:
            try:
                process.wait(timeout=15 * PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def descriptors(pid):
    """How many files and sockets a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_sanitized(pid):
    """Sanitizers keep freed memory for a while: what they hold says nothing."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return "san.so" in file.read()


def shared_memory_segments():
    """Those that are left, but for what another program on this machine is just using: it may run
    a cluster of its own."""
    left = {name for name in os.listdir("/dev/shm") if name.startswith("cairn-")}
    if left:
        time.sleep(0.2)  # whoever has just made one has mapped it by now
        left = {name for name in left if os.path.exists(f"/dev/shm/{name}")} - segments_of_others()
    return left


def segments_of_others():
    """What processes of other sessions have mapped: ours stay in this one, orphans too."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
                names = set(re.findall(r"/dev/shm/(cairn-\S+)", file.read()))
            if names and os.getsid(int(pid)) != os.getsid(0):
                found |= names
        except OSError:
            pass  # it has ended, or is not ours to look at
    return found
