#!/usr/bin/env python3
"""Whole clusters of real processes on loopback: right answers, any start order, limits."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import tiny_model
from local_cluster import (BIN, CLIENT, PATIENCE, Cluster, cairn, free_port, shared_memory_segments,
                           wait_until)

PROMPT = ("--prompt", "The stones that those who pass leave")
GREEDY = (*PROMPT, "--greedy", "--ignore-eos", "--max-tokens", 48)
SAMPLED = (*PROMPT, "--seed", 7, "--temperature", 0.9, "--top-p", 0.9, "--ignore-eos",
           "--max-tokens", 48, "--n", 3, "--repetition-penalty", 1.1)


def choices(done):
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    return [c["ids"] for c in out.get("choices", [out])]


class RightAnswers(unittest.TestCase):
    def test_every_number_of_ranks_and_transport_gives_the_offline_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model.write(os.path.join(folder, "tiny"))
            want = [choices(cairn("generate", "--model", model, "--threads", 1, *what, "--json"))
                    for what in (GREEDY, SAMPLED)]
            self.assertEqual(len({tuple(c) for c in want[1]}), 3, "the choices are all alike")
            for tp, collective in ((1, "auto"), (2, "shm"), (2, "tcp"), (3, "auto"), (4, "auto")):
                with self.subTest(tp=tp, collective=collective):
                    with Cluster(tp=tp, model=model,
                                 coordinator=[f"--collective={collective}"]) as cluster:
                        status = cluster.wait_serving()
                        kind = "solo" if tp == 1 else "shm" if collective == "auto" else collective
                        self.assertEqual(status["groups"][0]["collective"], kind)
                        got = [choices(cluster.generate(*what, "--json"))
                               for what in (GREEDY, SAMPLED)]
                        self.assertEqual(got, want)
                        # Now the prefix is cached: not one bit changes.
                        self.assertEqual(choices(cluster.generate(*GREEDY, "--json")), want[0])
                        cluster.wait_idle()
        self.assertEqual(shared_memory_segments(), set())

    def test_deltas_of_a_stream_are_the_whole_text(self):
        with Cluster() as cluster:
            cluster.wait_serving()
            whole = json.loads(cluster.generate(*GREEDY, "--json").stdout)["text"]
            self.assertEqual(cluster.generate(*GREEDY).stdout, whole + "\n")
            whole.encode("utf-8")

    def test_a_stop_string_ends_the_text_before_it(self):
        with Cluster() as cluster:
            cluster.wait_serving()
            text = json.loads(cluster.generate(*GREEDY, "--json").stdout)["text"]
            stop = next(text[i:i + 2] for i in range(8, len(text) - 2)
                        if "\ufffd" not in text[i:i + 2] and text.index(text[i:i + 2]) == i)
            out = json.loads(cluster.generate(*GREEDY, "--stop", stop, "--json").stdout)
            self.assertEqual(out["text"], text[:text.index(stop)])
            self.assertEqual(out["finish_reason"], "stop")
            self.assertLess(out["usage"]["completion_tokens"], 48)
            cluster.wait_idle()

    def test_chat_streams_an_answer(self):
        with Cluster() as cluster:
            cluster.wait_serving()
            asked = cairn("chat", "--endpoint", cluster.endpoint, "--max-tokens", 20,
                          "Hello <|end|>")
            self.assertEqual(asked.returncode, 0, asked.stderr)
            talk = cairn("chat", "--endpoint", cluster.endpoint, "--max-tokens", 5,
                         stdin="one\ntwo\n\n")
            self.assertEqual(talk.returncode, 0, talk.stderr)

    def test_two_groups_share_the_work(self):
        with Cluster(groups=2) as cluster:
            cluster.wait_serving()
            want = cluster.ids(*GREEDY)
            clients = [cluster.start_stream(*GREEDY, "--json") for _ in range(8)]
            for client in clients:
                self.assertEqual(json.loads(client.communicate()[0])["ids"], want)
            status = wait_until(
                lambda: (s := cluster.status()) and
                all(g["engine"]["generated_tokens"] for g in s["groups"]) and s,
                10, "both groups have worked")
            self.assertEqual(len(status["groups"]), 2)


class Membership(unittest.TestCase):
    def test_workers_may_come_before_the_coordinator_and_status_names_who_is_missing(self):
        with Cluster(tp=2, start=False) as cluster:
            cluster.start_worker(0)
            time.sleep(0.5)
            self.assertIsNone(cluster.processes["worker-0"].poll())
            cluster.start_coordinator()
            status = wait_until(
                lambda: (s := cluster.status()) and s["groups"][0]["ranks"][0]["pid"] and s,
                30, "worker 0 attaches")
            self.assertEqual(cluster.health(), "NOT_SERVING")
            self.assertEqual(status["waiting_for"], "waiting for rank 1 of 2 of model tiny")
            refused = cluster.generate(*GREEDY)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("waiting for rank 1 of 2 of model tiny", refused.stderr)
            cluster.start_worker(1)
            status = cluster.wait_serving()
            self.assertEqual(cluster.health(), "SERVING")
            self.assertEqual([r["address"] for r in status["groups"][0]["ranks"]],
                             ["127.0.0.1"] * 2)
            cluster.ids(*GREEDY)

    def test_a_worker_of_another_model_ends_with_the_reason(self):
        with Cluster(start=False) as cluster:
            cluster.start_coordinator()
            other = os.path.join(cluster.folder, "other")
            tiny_model.write(other)
            config = os.path.join(other, "config.json")
            with open(config, encoding="utf-8") as file:
                text = file.read()
            with open(config, "w", encoding="utf-8") as file:
                file.write(text.replace("10000.0", "20000.0"))
            worker = cluster.start_worker(0, f"--model={other}")
            self.assertEqual(worker.wait(timeout=30 * PATIENCE), 2)
            self.assertIn("model differs", cluster.log("worker-0"))

    def test_ranks_with_other_weights_never_serve_together(self):
        with Cluster(tp=2, start=False) as cluster:
            cluster.start_coordinator()
            other = tiny_model.write(os.path.join(cluster.folder, "other", "tiny"), seed=2)
            cluster.start_worker(0)
            cluster.start_worker(1, f"--model={other}")
            wait_until(lambda: "weights differ" in (cluster.status() or {}).get("waiting_for", ""),
                       30, "the difference is named")

    def test_a_shard_that_is_missing_on_one_host_lets_no_rank_serve(self):
        with Cluster(tp=2, start=False) as cluster:
            tiny_model.split(cluster.model, shards=3)
            other = os.path.join(cluster.folder, "other", "tiny")
            shutil.copytree(cluster.model, other)
            lost = "model-00002-of-00003.safetensors"
            os.remove(os.path.join(other, lost))
            cluster.start_coordinator()
            cluster.start_worker(0)
            worker = cluster.start_worker(1, f"--model={other}")
            self.assertEqual(worker.wait(timeout=30 * PATIENCE), 2)
            self.assertIn(lost, cluster.log("worker-1").strip().splitlines()[-1])
            wait_until(lambda: cluster.status()["waiting_for"] ==
                       "waiting for rank 1 of 2 of model tiny", 20, "only rank 1 is waited for")
            self.assertFalse(cluster.status()["serving"])
            cluster.start_worker(1)
            cluster.wait_serving()

    def test_a_coordinator_without_a_shard_ends_with_its_name(self):
        with Cluster(start=False) as cluster:
            tiny_model.split(cluster.model, shards=3)
            lost = "model-00003-of-00003.safetensors"
            os.remove(os.path.join(cluster.model, lost))
            self.assertEqual(cluster.start_coordinator().wait(timeout=30 * PATIENCE), 1)
            self.assertIn(lost, cluster.log("coordinator").strip().splitlines()[-1])

    def test_a_template_that_is_not_supported_costs_chat_only(self):
        with Cluster(start=False) as cluster:
            path = os.path.join(cluster.model, "tokenizer_config.json")
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            config["chat_template"] = "ok\n{{ messages | mystery }}"
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
            cluster.start_coordinator()
            cluster.start_worker(0)
            cluster.wait_serving()
            self.assertEqual(len(cluster.ids(*GREEDY)), 48)
            chat = cairn("chat", "--endpoint", cluster.endpoint, "Hello")
            self.assertEqual(chat.returncode, 1)
            self.assertIn("mystery", chat.stderr)
            self.assertIn("line 2", chat.stderr)
            self.assertIn("mystery", cluster.log("coordinator"))

    def test_a_block_pool_larger_than_the_memory_is_refused_by_its_numbers(self):
        with Cluster(start=False, coordinator=["--kv-memory=64TiB", "--max-running=4096",
                                               "--chunk=4096"]) as cluster:
            cluster.start_coordinator()
            self.assertEqual(cluster.start_worker(0).wait(timeout=30 * PATIENCE), 2)
            last = cluster.log("worker-0").strip().splitlines()[-1]
            self.assertIn("memory is short", last)
            self.assertIn("--kv-memory", last)

    def test_a_worker_has_the_threads_its_cpus_allow(self):
        usable = len(os.sched_getaffinity(0))
        for cpus, want in (("0", 1), (f"0-{usable - 1}", usable)):
            with self.subTest(cpus=cpus), Cluster(start=False) as cluster:
                cluster.start_coordinator()
                cluster._start("worker-0", "cairn-worker",
                               [f"--model={cluster.model}", f"--coordinator={cluster.endpoint}",
                                f"--secret-file={cluster.secret}"], prefix=["taskset", "-c", cpus])
                status = cluster.wait_serving()
                # A quota may leave less.
                self.assertLessEqual(status["groups"][0]["ranks"][0]["threads"], want)
                self.assertIn(f"affinity={want} ", cluster.log("worker-0"))

    def test_a_worker_with_another_secret_is_turned_away(self):
        with Cluster(start=False) as cluster:
            cluster.start_coordinator()
            wrong = os.path.join(cluster.folder, "wrong")
            with open(os.open(wrong, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(os.urandom(32).hex() + "\n")
            cluster.start_worker(0, f"--secret-file={wrong}")
            wait_until(lambda: "secret" in cluster.log("worker-0"), 20, "the worker says why")
            self.assertEqual(cluster.status()["groups"][0]["ranks"][0]["state"], "missing")
            cluster.start_worker(1)
            cluster.wait_serving()

    def test_a_worker_that_is_asked_to_end_finishes_its_requests(self):
        with Cluster() as cluster:
            cluster.wait_serving()
            client = cluster.start_stream(*PROMPT, "--greedy", "--ignore-eos", "--max-tokens", 3000)
            client.stdout.read(1)
            cluster.kill("worker-0", signal.SIGTERM)
            client.communicate(timeout=60 * PATIENCE)
            self.assertEqual(client.returncode, 0)
            self.assertEqual(cluster.processes["worker-0"].wait(timeout=20 * PATIENCE), 0)


class DamagedModels(unittest.TestCase):
    def test_every_program_refuses_a_file_that_is_cut_in_one_line_with_its_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model.write(os.path.join(folder, "tiny"))
            path = os.path.join(model, "model.safetensors")
            with open(path, "rb") as file:
                sound = file.read()
            secret = os.path.join(folder, "secret")
            with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(os.urandom(32).hex() + "\n")
            programs = (("cairn", "inspect", model),
                        ("cairn", "generate", "--model", model, "--prompt", "x"),
                        ("cairn", "logits", "--model", model, "--out", folder + "/logits"),
                        ("cairn-worker", "--model", model, "--secret-file", secret),
                        ("cairn-coordinator", "--model", model, "--secret-file", secret))
            for length in (len(sound) - 1, len(sound) // 2, 1000, 9, 7, 0):
                with open(path, "wb") as file:
                    file.write(sound[:length])
                for program, *arguments in programs:
                    with self.subTest(length=length, program=program):
                        done = subprocess.run([os.path.join(BIN, program), *arguments], input="[1]",
                                              capture_output=True, text=True,
                                              timeout=60 * PATIENCE)
                        self.assertIn(done.returncode, (1, 2))
                        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                        self.assertIn("model.safetensors", done.stderr)
                        if length > 1000:
                            self.assertRegex(done.stderr, r"tensor \S+: .*\d+\].*"
                                                          r"available_bytes=\d+")


class Reflection(unittest.TestCase):
    def test_lists_what_clients_may_call_and_health(self):
        with Cluster(start=False) as cluster:
            cluster.start_coordinator()
            wait_until(cluster.status, 20, "the coordinator answers")
            names = cluster.ask("services")
            for name in ("cairn.v1.Cairn", "cairn.v1.Admin", "grpc.health.v1.Health"):
                self.assertIn(name, names)


class Draining(unittest.TestCase):
    def test_refuses_new_requests_while_running_ones_finish_and_then_ends(self):
        with Cluster(tp=2, coordinator=[f"--drain-seconds={int(60 * PATIENCE)}"]) as cluster:
            cluster.wait_serving()
            want = cluster.ids(*GREEDY)
            running = cluster.start_stream(*PROMPT, "--greedy", "--ignore-eos", "--max-tokens",
                                           8000, "--json")
            wait_until(lambda: cluster.status()["requests_in_flight"] == 1, 20, "it is in flight")
            drain = cairn("drain", "--endpoint", cluster.endpoint, "--secret-file", cluster.secret,
                          "--wait", 0)
            self.assertEqual(drain.returncode, 0, drain.stderr)
            self.assertIn("1 request in flight", drain.stdout)
            refused = cluster.generate(*GREEDY)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("draining", refused.stderr)
            self.assertEqual(cluster.health(), "NOT_SERVING")
            status = cluster.status()
            self.assertTrue(status["draining"])
            self.assertEqual(status["waiting_for"], "draining")
            again = cairn("drain", "--endpoint", cluster.endpoint, "--secret-file", cluster.secret)
            self.assertEqual(again.returncode, 0, again.stderr)
            ids = json.loads(running.communicate(timeout=60 * PATIENCE)[0])["ids"]
            self.assertEqual((ids[:48], len(ids)), (want, 8000))
            self.assertEqual(cluster.processes["coordinator"].wait(timeout=20 * PATIENCE), 0)
            for name in ("worker-0", "worker-1"):
                self.assertIsNone(cluster.processes[name].poll(), "a worker outlives a coordinator")

    def test_needs_the_secret_and_says_so(self):
        with Cluster() as cluster:
            cluster.wait_serving()
            wrong = os.path.join(cluster.folder, "wrong")
            with open(os.open(wrong, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(os.urandom(32).hex() + "\n")
            for secret, words in ((wrong, "secret"), ("/nowhere", "/nowhere")):
                drain = cairn("drain", "--endpoint", cluster.endpoint, "--secret-file", secret)
                self.assertEqual(drain.returncode, 1)
                self.assertEqual(len(drain.stderr.strip().splitlines()), 1, drain.stderr)
                self.assertIn(words, drain.stderr)
            self.assertFalse(cluster.status()["draining"])
            cluster.ids(*GREEDY)


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(coordinator=["--context=256"])
        cls.cluster.wait_serving()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def refusal(self, *arguments):
        done = self.cluster.generate(*arguments)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        return done.stderr

    def test_a_prompt_that_fills_the_window_is_refused_with_the_numbers(self):
        for length in (256, 257, 2560):
            self.assertIn(f"{length} tokens, at most 255 of a context of 256",
                          self.refusal("--ids", json.dumps([65] * length)))

    def test_an_answer_that_reaches_the_windows_end_ends_with_length(self):
        done = self.cluster.generate("--ids", json.dumps([65] * 250), "--max-tokens", 100,
                                     "--ignore-eos", "--json")
        out = json.loads(done.stdout)
        self.assertEqual((len(out["ids"]), out["finish_reason"]), (6, "length"))

    def test_ids_outside_the_vocabulary_are_refused_and_hurt_nobody(self):
        client = self.cluster.start_stream("--prompt", "x", "--ignore-eos", "--max-tokens", 200,
                                           "--greedy", "--json")
        for bad in (259, 263, 264, 2**31 - 1):
            self.assertIn(f"{bad}, allowed 0..258", self.refusal("--ids", f"[65, {bad}]"))
            self.assertIn(f"{bad}, allowed 0..258",
                          self.refusal("--prompt", "x", "--logit-bias", f"{bad}:5"))
        out, _ = client.communicate(timeout=60 * PATIENCE)
        want = self.cluster.ids("--prompt", "x", "--ignore-eos", "--max-tokens", 200, "--greedy")
        self.assertEqual(json.loads(out)["ids"], want)

    def test_command_lines_that_make_no_sense_say_so_in_one_line(self):
        for arguments in (("generate",), ("generate", "--prompt", "x", "--ids", "[1]"),
                          ("generate", "--prompt", "x", "--temperature", "hot"),
                          ("generate", "--bogus"), ("bogus",), ("chat", "a", "b"),
                          ("serve",), ("logits", "--tp", "0"),
                          ("chat", "hi", "--endpoint", "nonsense"), ("status", "--endpoint", "")):
            done = cairn(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([os.path.join(BIN, "cairn"), "--help"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=60 * PATIENCE)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr,
                         "cairn: cannot write standard output: No space left on device\n")

    def test_every_verb_teaches_itself(self):
        verbs = re.findall(r"^  (\w+) {2,}\w", cairn("--help").stdout, re.M)
        self.assertGreaterEqual(len(verbs), 10)
        for verb in verbs:
            done = cairn(verb, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"usage: cairn {verb}", done.stdout)


class OneCommand(unittest.TestCase):
    def start(self, *more, model=None):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        model = model or tiny_model.write(os.path.join(self.folder.name, "tiny"))
        self.port = free_port()
        self.out = os.path.join(self.folder.name, "out")
        with open(self.out, "wb") as out:
            serve = subprocess.Popen(
                [os.path.join(BIN, "cairn"), "serve", "--model", model, "--port", str(self.port),
                 "--state-dir", os.path.join(self.folder.name, "state"), "--threads", "1",
                 *map(str, more)],
                stdout=out, stderr=subprocess.PIPE, text=True)

        def end():
            if serve.poll() is None:
                serve.kill()
            serve.communicate()
        self.addCleanup(end)
        return serve

    def wait(self):
        done = cairn("status", "--endpoint", f"127.0.0.1:{self.port}", "--wait", int(60 * PATIENCE),
                     "--json", timeout=90)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def wait_said(self, words):
        def said():
            with open(self.out, encoding="utf-8") as file:
                return words in file.read()
        wait_until(said, 30, f"it says: {words}")

    def pids(self, status):
        return [r["pid"] for g in status["groups"] for r in g["ranks"]]

    def ask(self):
        return cairn("generate", "--endpoint", f"127.0.0.1:{self.port}", *GREEDY, "--json")

    def alive(self, pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def test_serves_until_ctrl_c_and_leaves_nothing_behind(self):
        serve = self.start("--tp", "2")
        pids = self.pids(self.wait())
        # It asks for the status as any client does, and may learn of it after us.
        self.wait_said("tiny is served at")
        self.assertEqual(self.ask().returncode, 0)
        serve.send_signal(signal.SIGINT)
        _, error = serve.communicate(timeout=20 * PATIENCE)
        self.assertEqual(serve.returncode, 0, error)
        for pid in pids:
            self.assertFalse(self.alive(pid))
        self.assertEqual(shared_memory_segments(), set())
        secret = os.stat(os.path.join(self.folder.name, "state", "secret"))
        self.assertEqual(secret.st_mode & 0o777, 0o600)

    def drain(self, *more):
        done = cairn("drain", "--endpoint", f"127.0.0.1:{self.port}", "--secret-file",
                     os.path.join(self.folder.name, "state", "secret"), *more)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_ends_at_once_when_an_idle_one_is_drained(self):
        serve = self.start("--tp", "2")
        pids = self.pids(self.wait())
        start = time.monotonic()
        self.drain()
        self.assertLess(time.monotonic() - start, 2 * PATIENCE)
        _, error = serve.communicate(timeout=30 * PATIENCE)
        self.assertEqual(serve.returncode, 0, error)
        self.assertFalse(any(self.alive(pid) for pid in pids))

    def test_says_what_it_drains_and_not_that_it_starts(self):
        serve = self.start("--drain-seconds", int(60 * PATIENCE))
        self.wait()
        self.wait_said("tiny is served at")
        # Seconds of work on a fast machine too: `serve` asks now and then what is in flight.
        running = subprocess.Popen(
            [CLIENT, "generate", "--endpoint", f"127.0.0.1:{self.port}", *PROMPT, "--ignore-eos",
             "--max-tokens", "3000", "--n", "16"], stdout=subprocess.DEVNULL)
        self.addCleanup(running.kill)
        wait_until(lambda: self.wait()["requests_in_flight"] == 1, 20, "it is in flight")
        self.drain("--wait", 0)
        self.wait_said("draining: 1 request in flight")
        self.assertEqual(running.wait(timeout=60 * PATIENCE), 0)
        _, error = serve.communicate(timeout=30 * PATIENCE)
        self.assertEqual(serve.returncode, 0, error)
        with open(self.out, encoding="utf-8") as file:
            after = file.read().split("tiny is served at")[1]
        self.assertIn("drained: ending", after)
        self.assertNotIn("starting", after)

    def test_starts_a_worker_again_that_died(self):
        self.start("--tp", "2")
        first = self.wait()
        want = self.ask().stdout
        victim = self.pids(first)[1]
        os.kill(victim, signal.SIGKILL)
        # The coordinator may not know yet that it is gone.
        second = wait_until(lambda: victim not in self.pids(s := self.wait()) and s, 60,
                            "another worker took its place")
        self.assertIn(self.pids(first)[0], self.pids(second))
        again = json.loads(self.ask().stdout)
        self.assertEqual(again["ids"], json.loads(want)["ids"])

    def test_its_children_die_with_it(self):
        serve = self.start()
        pids = self.pids(self.wait())
        serve.kill()
        wait_until(lambda: not any(self.alive(pid) for pid in pids), 20, "the children end")

    def test_says_in_one_line_why_it_cannot_serve(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = os.path.join(folder, "broken.gguf")
            with open(broken, "wb") as file:
                file.write(b"GGUF" + b"\xff" * 60)
            for more, model, words in (((), broken, "broken.gguf"), ((), "/nowhere", "/nowhere"),
                                       (("--tp", "9"), None, "9"),
                                       (("--context", "1"), None, "context too short: 1 token"),
                                       (("--tp", "64", "--groups", "64"), None, "limit 256"),
                                       (("--host", "0.0.0.0"), None, "--insecure")):
                serve = self.start(*more, model=model)
                _, error = serve.communicate(timeout=60 * PATIENCE)
                self.assertEqual(serve.returncode, 1)
                lines = error.strip().splitlines()
                self.assertEqual(len(lines), 1, error)
                self.assertIn(words, lines[0])

    def test_a_second_one_on_the_same_port_is_refused(self):
        self.start()
        self.wait()
        port, folder = self.port, self.folder
        second = subprocess.run(
            [os.path.join(BIN, "cairn"), "serve", "--model", os.path.join(folder.name, "tiny"),
             "--port", str(port), "--state-dir", os.path.join(folder.name, "state")],
            capture_output=True, text=True, timeout=30 * PATIENCE)
        self.assertEqual(second.returncode, 1)
        self.assertIn("another cairn serve", second.stderr)
        third = subprocess.run(
            [os.path.join(BIN, "cairn"), "serve", "--model", os.path.join(folder.name, "tiny"),
             "--port", str(port), "--state-dir", os.path.join(folder.name, "state2")],
            capture_output=True, text=True, timeout=30 * PATIENCE)
        self.assertEqual(third.returncode, 1)
        self.assertNotIn("is served", third.stdout)
        self.assertIn("port", third.stderr)


if __name__ == "__main__":
    unittest.main()
