#!/usr/bin/env python3
"""Two groups of two ranks under random faults for CAIRN_CHAOS_SECONDS (600): after each, all serve
again, answers are as before and nothing is kept. CAIRN_CHAOS_SEED repeats a run's choices."""
import os
import random
import signal
import time
import unittest

from faults_test import Faults
from local_cluster import PATIENCE

SECONDS = int(os.environ.get("CAIRN_CHAOS_SECONDS", "600"))
SEED = int(os.environ.get("CAIRN_CHAOS_SEED", random.randrange(1 << 30)))


class Chaos(Faults):
    def kill_workers(self, cluster, choice):
        names = [name for name in cluster.processes if name.startswith("worker-")]
        victims = choice.sample(names, choice.randint(1, len(names)))
        for name in victims:
            cluster.kill(name)
            time.sleep(choice.choice([0, 0, 0.2, 1]))
        for name in victims:
            cluster.start_worker(int(name.split("-")[1]))

    def stop_worker(self, cluster, choice):
        name = choice.choice([name for name in cluster.processes if name.startswith("worker-")])
        cluster.kill(name, signal.SIGSTOP)
        time.sleep(choice.choice([0.1, 1, 8]) * PATIENCE)
        cluster.kill(name, signal.SIGCONT)

    def kill_coordinator(self, cluster, choice):
        cluster.kill("coordinator")
        time.sleep(choice.choice([0, 0.3, 7]))
        cluster.start_coordinator()

    def kill_all(self, cluster, choice):
        names = list(cluster.processes)
        for name in names:
            cluster.kill(name)
        choice.shuffle(names)
        for name in names:
            if name == "coordinator":
                cluster.start_coordinator()
            else:
                cluster.start_worker(int(name.split("-")[1]))

    def only_clients(self, cluster, choice):
        """What happens to the clients anyway is enough."""

    def test_everything_recovers_from_everything(self):
        choice = random.Random(SEED)
        cluster = self.start(tp=2, groups=2)
        faults = [self.kill_workers, self.stop_worker, self.kill_coordinator, self.kill_all,
                  self.only_clients]
        end = time.monotonic() + SECONDS
        rounds = 0
        while time.monotonic() < end:
            phases = [choice.choice(["prefill", "decode"]) for _ in range(choice.randint(0, 6))]
            clients = [self.begin_any(cluster, phase) for phase in phases]
            time.sleep(choice.random())
            fault = choice.choice(faults)
            with self.subTest(seed=SEED, round=rounds, fault=fault.__name__, phases=phases):
                fault(cluster, choice)
                for client in clients:
                    if choice.random() < 0.5:
                        client.send_signal(choice.choice([signal.SIGKILL, signal.SIGTERM]))
                self.check_recovered_while(cluster, clients)
            rounds += 1
        print(f"{rounds} rounds, seed {SEED}", flush=True)

    def begin_any(self, cluster, phase):
        """A client that is not waited for: it may well be refused."""
        tokens = ("--max-tokens", 400, "--ignore-eos")
        if phase == "decode":
            return cluster.start_stream("--prompt", "stones", *tokens)
        return cluster.start_stream("--prompt", "x" * 8000, *tokens)

    def check_recovered_while(self, cluster, clients):
        """Every client ends, well or with one line, and the cluster is as before."""
        cluster.wait_serving()
        for client in clients:
            _, error = client.communicate(timeout=60 * PATIENCE)
            self.assertIn(client.returncode, (0, 1, -signal.SIGKILL, -signal.SIGTERM, 130, 143))
            self.assertLessEqual(len(error.decode().strip().splitlines()), 1, error)
        self.check_recovered(cluster)


if __name__ == "__main__":
    del Faults
    unittest.main()
