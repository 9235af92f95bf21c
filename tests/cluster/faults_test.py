#!/usr/bin/env python3
"""Real processes that are killed or stopped at any moment: nothing hangs, every block comes back,
and the next request gives the same tokens as before."""
import json
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

from local_cluster import (BIN, PATIENCE, Cluster, cairn, descriptors, is_sanitized,
                           resident_bytes, shared_memory_segments, wait_until)

PROBE = ("--prompt", "stones", "--greedy", "--ignore-eos", "--max-tokens", 24)
DECODE = ("--prompt", "stones", "--seed", 5, "--ignore-eos", "--max-tokens", 30000)
# What may come on top in a process that is sound: connections that linger, what allocators keep.
SPARE_DESCRIPTORS, SPARE_BYTES = 8, 16 << 20
LONG_PROMPT = json.dumps([65 + i % 26 for i in range(30000)])
PREFILL = ("--ids", LONG_PROMPT, "--ignore-eos", "--max-tokens", 4)


def loads(log):
    return log.count("rank.loaded ")


class Faults(unittest.TestCase):
    def start(self, **options):
        cluster = Cluster(worker=["--collective-timeout=6"], **options)
        self.addCleanup(lambda: self.assertEqual(shared_memory_segments(), set()))
        self.addCleanup(cluster.close)
        cluster.wait_serving()
        self.want = cluster.ids(*PROBE)
        cluster.wait_idle()
        self.held = {}
        self.check_accounts(cluster)
        return cluster

    def wait_lost(self, cluster, seconds=15, group=0):
        """Until the coordinator knows that a group does not serve: whoever asks sooner may still be
        served by it, or told that it was lost. The status then."""
        return wait_until(
            lambda: (s := cluster.status()) and not s["groups"][group]["serving"] and s, seconds,
            "the group is lost")

    def check_recovered(self, cluster):
        """It serves as before, and nothing of what happened is kept."""
        cluster.wait_serving()
        self.assertEqual(cluster.ids(*PROBE), self.want)
        cluster.wait_idle()
        self.check_accounts(cluster)

    def check_accounts(self, cluster):
        """Blocks came back (wait_idle), and so did memory and descriptors of every process that
        was there before."""
        self.assertEqual(shared_memory_segments(), set())
        for name, process in cluster.processes.items():
            if process.poll() is not None:
                continue
            first_descriptors, first_bytes = self.held.setdefault(
                process.pid, (descriptors(process.pid), resident_bytes(process.pid)))
            wait_until(lambda pid=process.pid, most=first_descriptors + SPARE_DESCRIPTORS:
                       descriptors(pid) <= most, 10,
                       f"descriptors of {name} come back to {first_descriptors}")
            if not is_sanitized(process.pid):
                self.assertLess(resident_bytes(process.pid), first_bytes + SPARE_BYTES, name)

    def begin(self, cluster, phase):
        """A client in the given phase, or none when idle."""
        if phase == "idle":
            return None
        client = cluster.start_stream(*(PREFILL if phase == "prefill" else DECODE))
        if phase == "decode":
            client.stdout.read(1)
        else:
            wait_until(lambda: cluster.in_flight() == 1, 10, "it is in flight")
        return client

    def check_client_ended(self, client, seconds, *words):
        if client is None:
            return
        _, error = client.communicate(timeout=seconds * PATIENCE)
        self.assertEqual(client.returncode, 1)
        error = error.decode()
        self.assertEqual(len(error.strip().splitlines()), 1, error)
        for word in words:
            self.assertIn(word, error)


class LostRanks(Faults):
    def test_a_killed_rank_ends_its_requests_at_once_and_is_replaced(self):
        cluster = self.start(tp=2)
        for phase in ("idle", "prefill", "decode"):
            for rank in (0, 1):
                with self.subTest(phase=phase, rank=rank):
                    client = self.begin(cluster, phase)
                    victim = cluster.rank_of(rank)
                    other = cluster.rank_of(1 - rank)
                    number = int(victim.split("-")[1])
                    before = loads(cluster.log(other))
                    start = time.monotonic()
                    cluster.kill(victim)
                    self.check_client_ended(client, 10, "rank")
                    self.assertLess(time.monotonic() - start, 5 * PATIENCE)
                    status = self.wait_lost(cluster, 10)
                    self.assertIn(f"rank {rank} of 2", status["groups"][0]["last_failure"])
                    self.assertEqual(cluster.health(), "NOT_SERVING")
                    cluster.start_worker(number)
                    self.check_recovered(cluster)
                    self.assertEqual(cluster.health(), "SERVING")
                    self.assertEqual(loads(cluster.log(other)), before,
                                     "the survivor loaded again")

    def test_a_stopped_rank_is_lost_within_seconds_and_may_come_back(self):
        cluster = self.start(tp=2)
        for phase in ("idle", "decode"):
            for rank in (0, 1):
                with self.subTest(phase=phase, rank=rank):
                    client = self.begin(cluster, phase)
                    victim = cluster.rank_of(rank)
                    start = time.monotonic()
                    cluster.kill(victim, signal.SIGSTOP)
                    self.check_client_ended(client, 15)
                    self.wait_lost(cluster)
                    self.assertLess(time.monotonic() - start, 12 * PATIENCE)
                    cluster.kill(victim, signal.SIGCONT)
                    self.check_recovered(cluster)

    def check_lost_in_decode(self, cluster, ranks):
        for rank in ranks:
            with self.subTest(rank=rank):
                client = self.begin(cluster, "decode")
                victim = cluster.rank_of(rank)
                cluster.kill(victim)
                self.check_client_ended(client, 10, "rank")
                self.wait_lost(cluster)
                cluster.start_worker(int(victim.split("-")[1]))
                self.check_recovered(cluster)

    def test_four_ranks_lose_one_too(self):
        self.check_lost_in_decode(self.start(tp=4), (0, 3))

    def test_a_rank_killed_while_it_loads_is_replaced(self):
        cluster = self.start(tp=2)
        for name in ("worker-0", "worker-1"):
            cluster.kill(name)
        self.wait_lost(cluster)
        for _ in range(3):
            worker = cluster.start_worker(0)
            time.sleep(0.05)
            worker.kill()
            worker.wait()
        cluster.start_worker(0)
        cluster.start_worker(1)
        self.check_recovered(cluster)

    def test_the_other_group_serves_on(self):
        cluster = self.start(groups=2)
        victim = cluster.rank_of(0, group=0)
        cluster.kill(victim)
        self.wait_lost(cluster)
        for _ in range(5):
            self.assertEqual(cluster.ids(*PROBE), self.want)
        cluster.start_worker(int(victim.split("-")[1]))
        self.check_recovered(cluster)

    def test_over_tcp_too(self):
        self.check_lost_in_decode(self.start(tp=2, coordinator=["--collective=tcp"]), (0, 1))


class LostCoordinator(Faults):
    def test_workers_outlive_a_killed_coordinator_and_keep_their_weights(self):
        cluster = self.start(tp=2)
        for phase in ("idle", "prefill", "decode"):
            with self.subTest(phase=phase):
                client = self.begin(cluster, phase)
                epoch = cluster.status()["groups"][0]["epoch"]
                cluster.kill("coordinator")
                self.check_client_ended(client, 10)
                time.sleep(0.3)
                cluster.start_coordinator()
                self.check_recovered(cluster)
                self.assertGreater(cluster.status()["groups"][0]["epoch"], epoch)
                for name in ("worker-0", "worker-1"):
                    self.assertIsNone(cluster.processes[name].poll())
                    self.assertEqual(loads(cluster.log(name)), 1)

    def test_a_coordinator_that_was_stopped_serves_again(self):
        cluster = self.start(tp=2)
        cluster.kill("coordinator", signal.SIGSTOP)
        time.sleep(12 * PATIENCE)
        cluster.kill("coordinator", signal.SIGCONT)

        # At first it may not know that its workers have left.
        def answer():
            done = cluster.generate(*PROBE, "--json")
            return json.loads(done.stdout)["ids"] if done.returncode == 0 else None
        self.assertEqual(wait_until(answer, 60, "it answers"), self.want)
        self.check_recovered(cluster)

    def test_it_drains_on_sigterm(self):
        cluster = self.start(coordinator=[f"--drain-seconds={int(30 * PATIENCE)}"])
        client = cluster.start_stream("--prompt", "x", "--ignore-eos", "--max-tokens", 1000)
        client.stdout.read(1)
        cluster.kill("coordinator", signal.SIGTERM)
        client.communicate(timeout=40 * PATIENCE)
        self.assertEqual(cluster.processes["coordinator"].wait(timeout=20 * PATIENCE), 0)
        self.assertEqual(client.returncode, 0)


class LostClients(Faults):
    def test_a_client_that_is_killed_costs_nothing_afterwards(self):
        cluster = self.start(tp=2)
        for phase in ("prefill", "decode"):
            for number in (signal.SIGKILL, signal.SIGTERM):
                with self.subTest(phase=phase, signal=number):
                    client = self.begin(cluster, phase)
                    client.send_signal(number)
                    client.wait()
                    cluster.wait_idle(5)
        self.check_recovered(cluster)

    def test_clients_killed_while_they_wait_leave_the_queue(self):
        cluster = self.start(coordinator=["--max-running=1"])
        clients = [cluster.start_stream(*DECODE) for _ in range(8)]
        wait_until(lambda: cluster.in_flight() == 8, 20, "all are in flight")
        for client in clients:
            client.kill()
        cluster.wait_idle(10)
        self.check_recovered(cluster)

    def test_a_hundred_in_a_row(self):
        cluster = self.start()
        for i in range(100):
            client = cluster.start_stream(*DECODE)
            if i % 3:
                client.stdout.read(i % 5 + 1)
            client.kill()
            client.wait()
        cluster.wait_idle(20)
        self.check_recovered(cluster)

    def test_a_client_that_does_not_read_is_ended_and_hurts_nobody(self):
        cluster = self.start()
        client = cluster.start_stream(*DECODE)
        client.stdout.read(1)
        client.send_signal(signal.SIGSTOP)
        wait_until(lambda: cluster.in_flight() == 0, 40, "the stream is ended")
        client.send_signal(signal.SIGCONT)
        cluster.wait_idle()
        self.check_recovered(cluster)


class Strangers(Faults):
    """Bytes nobody asked for, on every port that listens."""

    def ports(self, cluster):
        """All TCP ports on which processes of the cluster listen."""
        inodes = set()
        for process in cluster.processes.values():
            folder = f"/proc/{process.pid}/fd"
            try:
                entries = os.listdir(folder)
            except FileNotFoundError:  # killed
                continue
            for entry in entries:
                try:
                    target = os.readlink(os.path.join(folder, entry))
                except FileNotFoundError:
                    continue
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        found = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="utf-8") as file:
                for line in list(file)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and fields[9] in inodes:
                        self.assertIn(fields[1].split(":")[0],
                                      ("0100007F", "00000000000000000000000001000000",
                                       "0000000000000000FFFF00000100007F"),
                                      "it listens beyond loopback")
                        found.add(int(fields[1].split(":")[1], 16))
        return found

    def test_garbage_and_silent_connections_hurt_nobody(self):
        cluster = self.start(tp=2, coordinator=["--collective=tcp"])
        ports = self.ports(cluster)
        self.assertIn(cluster.port, ports)
        sockets = []
        for port in ports:
            for i in range(300):
                s = socket.socket()
                s.settimeout(2)
                try:
                    s.connect(("127.0.0.1", port))
                    if i % 3 == 0:
                        s.sendall(os.urandom(1 + i * 17))
                    if i % 3 == 1:
                        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(i))
                except OSError:
                    pass
                sockets.append(s)
        for _ in range(3):
            self.assertEqual(cluster.ids(*PROBE), self.want)
        for s in sockets:
            s.close()
        # A group that meets while strangers knock.
        stop = threading.Event()

        def knock():
            while not stop.is_set():
                for port in self.ports(cluster):
                    try:
                        with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
                            s.sendall(os.urandom(200))
                    except OSError:
                        pass
                time.sleep(0.02)
        knocker = threading.Thread(target=knock)
        knocker.start()
        try:
            cluster.kill("worker-0")
            self.wait_lost(cluster)
            cluster.start_worker(0)
            self.check_recovered(cluster)
        finally:
            stop.set()
            knocker.join()
        for name, process in cluster.processes.items():
            self.assertIsNone(process.poll(), f"{name} ended")


@unittest.skipUnless(os.geteuid() == 0 and subprocess.run(["sh", "-c", "command -v ip"],
                     stdout=subprocess.DEVNULL).returncode == 0,
                     "network namespaces need root and iproute2")
class TwoHosts(unittest.TestCase):
    """Coordinator and rank 0 in one network namespace, rank 1 in another, joined by a veth pair."""

    def run_ip(self, *arguments):
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        if done.returncode:
            self.skipTest(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

    def setUp(self):
        tag = f"c{os.getpid() % 10000}"
        self.near, self.far = f"{tag}n", f"{tag}f"
        for name in (self.near, self.far):
            self.run_ip("netns", "add", name)
            self.addCleanup(subprocess.run, ["ip", "netns", "del", name])
            self.run_ip("-n", name, "link", "set", "lo", "up")
        self.run_ip("link", "add", f"{tag}a", "netns", self.near, "type", "veth", "peer", "name",
                    f"{tag}b", "netns", self.far)
        for name, link, address in ((self.near, f"{tag}a", "10.77.0.1"),
                                    (self.far, f"{tag}b", "10.77.0.2")):
            self.run_ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            self.run_ip("-n", name, "link", "set", link, "up")
        self.links = {self.near: f"{tag}a", self.far: f"{tag}b"}

    def start(self, cluster, name, program, namespace, *flags):
        return cluster._start(name, program, [f"--model={cluster.model}",
                                              f"--secret-file={cluster.secret}", *flags],
                              prefix=["ip", "netns", "exec", namespace])

    def ask(self, *arguments, namespace=None):
        return subprocess.run(["ip", "netns", "exec", namespace or self.far,
                               os.path.join(BIN, "cairn"), *map(str, arguments)],
                              capture_output=True, text=True, timeout=60 * PATIENCE)

    def status(self, namespace=None):
        done = self.ask("status", "--endpoint", "10.77.0.1:7070", "--json", namespace=namespace)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def test_ranks_meet_over_tcp_and_say_which_address_each_advertises(self):
        with Cluster(start=False) as cluster:
            self.start(cluster, "coordinator", "cairn-coordinator", self.near,
                       "--listen=10.77.0.1:7070", "--insecure", "--tp=2", "--kv-memory=64MiB")
            self.start(cluster, "worker-0", "cairn-worker", self.near,
                       "--coordinator=10.77.0.1:7070", "--threads=1")
            self.start(cluster, "worker-1", "cairn-worker", self.far,
                       "--coordinator=10.77.0.1:7070", "--threads=1",
                       f"--advertise=interface:{self.links[self.far]}")
            status = wait_until(lambda: (s := self.status()) and s["serving"] and s, 60,
                                f"it serves: {self.status()}")
            self.assertEqual(status["groups"][0]["collective"], "tcp")
            self.assertEqual(sorted(r["address"] for r in status["groups"][0]["ranks"]),
                             ["10.77.0.1", "10.77.0.2"])
            got = self.ask("generate", "--endpoint", "10.77.0.1:7070", *PROBE, "--json")
            want = cairn("generate", "--model", cluster.model, "--threads", 1, *PROBE, "--json")
            self.assertEqual(json.loads(got.stdout)["ids"], json.loads(want.stdout)["ids"])
            self.assertIn("address=10.77.0.2", cluster.log("worker-1"))

    def test_a_rank_that_is_cut_off_is_lost_within_seconds_and_comes_back(self):
        with Cluster(start=False) as cluster:
            self.start(cluster, "coordinator", "cairn-coordinator", self.near,
                       "--listen=10.77.0.1:7070", "--insecure", "--tp=2", "--kv-memory=64MiB",
                       f"--heartbeat-timeout={int(5 * PATIENCE)}")
            for i, name in enumerate((self.near, self.far)):
                self.start(cluster, f"worker-{i}", "cairn-worker", name,
                           "--coordinator=10.77.0.1:7070", "--threads=1", "--collective-timeout=6")
            serves = lambda: (s := self.status(self.near)) and s["serving"]  # noqa: E731
            wait_until(serves, 60, "it serves")
            probe = ("generate", "--endpoint", "10.77.0.1:7070", *PROBE, "--json")
            want = json.loads(self.ask(*probe, namespace=self.near).stdout)["ids"]
            client = subprocess.Popen(
                ["ip", "netns", "exec", self.near, os.path.join(BIN, "cairn"), "generate",
                 "--endpoint", "10.77.0.1:7070", *map(str, DECODE)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            client.stdout.read(1)
            # Nothing is closed: packets go nowhere.
            self.run_ip("-n", self.far, "link", "set", self.links[self.far], "down")
            start = time.monotonic()
            _, error = client.communicate(timeout=15 * PATIENCE)
            self.assertEqual(client.returncode, 1)
            self.assertEqual(len(error.decode().strip().splitlines()), 1, error)
            wait_until(lambda: not serves(), 15, "it is lost")
            self.assertLess(time.monotonic() - start, 12 * PATIENCE)
            self.run_ip("-n", self.far, "link", "set", self.links[self.far], "up")
            wait_until(serves, 60, "it serves again")
            self.assertEqual(json.loads(self.ask(*probe, namespace=self.near).stdout)["ids"], want)

    def test_a_coordinator_on_loopback_is_no_route_for_another_host(self):
        with Cluster(start=False) as cluster:
            worker = self.start(cluster, "worker-0", "cairn-worker", self.far,
                                "--coordinator=10.77.0.1:7070", "--advertise=127.0.0.1")
            self.start(cluster, "coordinator", "cairn-coordinator", self.near,
                       "--listen=10.77.0.1:7070", "--insecure")
            self.assertEqual(worker.wait(timeout=30 * PATIENCE), 2)
            self.assertIn("127.0.0.1", cluster.log("worker-0"))


if __name__ == "__main__":
    unittest.main()
