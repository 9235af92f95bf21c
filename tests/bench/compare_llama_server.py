#!/usr/bin/env python3
"""Several streams at once, side by side with llama-server: same file, same threads, medians.

usage: compare_llama_server.py --model F.gguf --peer PATH/llama-server
                               [--cairn build/release/bin/cairn] [--rounds 3] [--streams 16]
                               [--prompt 64] [--gen 64] [--prefix 0] [--load N]

Starts both servers (2 threads; the idle one sleeps) and lets them answer in turns.
  default        steady tokens/s while all streams run, and time to first token
  --prefix 4096  four streams that share a warm prefix against one lone stream: first tokens
  --load 8       foreign processes that never sleep run beside: the slowest token of a stream
"""
import argparse
import json
import multiprocessing
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Peer:
    name = "llama-server"

    def __init__(self, args):
        self.port = free_port()
        context = str(args.streams * (args.prefix + args.prompt + args.gen + 64))
        self.process = subprocess.Popen(
            [args.peer, "-m", args.model, "-t", "2", "-tb", "2", "-c", context,
             "-np", str(args.streams), "-fa", "on", "--port", str(self.port), "--no-webui"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 120
        while time.time() < deadline:
            try:
                url = f"http://127.0.0.1:{self.port}/health"
                if urllib.request.urlopen(url, timeout=2).status == 200:
                    return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("llama-server does not come up")

    def stream(self, ids, gen, out):
        body = json.dumps({"prompt": ids, "n_predict": gen, "stream": True, "ignore_eos": True,
                           "temperature": 0, "cache_prompt": True}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", body,
                                         {"Content-Type": "application/json"})
        start = time.time()
        times = []
        with urllib.request.urlopen(request, timeout=600) as answer:
            for line in answer:
                if line.startswith(b"data: ") and not json.loads(line[6:]).get("stop"):
                    times.append(time.time())
        out.append((start, times))

    def run(self, args, streams, prefix, warm):
        if warm:
            self.stream(prefix, 1, [])
        out, threads = [], []
        for _ in range(streams):
            ids = prefix + [random.randrange(10000) for _ in range(args.prompt)]
            threads.append(threading.Thread(target=self.stream, args=(ids, args.gen, out)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        begin = max(times[0] for _, times in out)
        end = min(times[-1] for _, times in out)
        count = sum(begin < t <= end for _, times in out for t in times)
        return {"steady_tokens_per_s": count / (end - begin) if end > begin else 0,
                "first_token_s_max": max(times[0] - start for start, times in out),
                "longest_gap_s": max((b - a for _, times in out for a, b in zip(times, times[1:])),
                                     default=0)}

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Cairn:
    name = "cairn"

    def __init__(self, args):
        self.port = free_port()
        self.state = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [args.cairn, "serve", "--model", args.model, "--threads", "2", "--port",
             str(self.port), "--state-dir", self.state.name],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run([args.cairn, "status", "--endpoint", f"127.0.0.1:{self.port}", "--wait",
                        "120"], check=True, stdout=subprocess.DEVNULL)

    def run(self, args, streams, prefix, warm):
        command = [args.cairn, "bench", "--endpoint", f"127.0.0.1:{self.port}", "--json",
                   "--streams", str(streams), "--prompt", str(args.prompt), "--gen",
                   str(args.gen), "--shared-prefix", str(len(prefix))]
        if warm:
            command.append("--warm")
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(out)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def burn():
    while True:
        pass


def report(name, what, values, unit=""):
    print(f"| {what} | {name} | {statistics.median(values):.3f}{unit} "
          f"| {min(values):.3f}..{max(values):.3f} |")


def compare_streams(args, servers):
    rates = {s.name: [] for s in servers}
    first = {s.name: [] for s in servers}
    gaps = {s.name: [] for s in servers}
    for _ in range(args.rounds):
        for server in servers:
            out = server.run(args, args.streams, [], False)
            rates[server.name].append(out["steady_tokens_per_s"])
            first[server.name].append(out["first_token_s_max"])
            gaps[server.name].append(out["longest_gap_s"])
    print("| what | engine | median | range |\n|---|---|---|---|")
    for server in servers:
        report(server.name, f"{args.streams} streams, steady tokens/s", rates[server.name])
        report(server.name, "last first token, s", first[server.name])
        report(server.name, "longest gap, s", gaps[server.name])
    if len(servers) == 2:
        ratio = statistics.median(rates["cairn"]) / statistics.median(rates["llama-server"])
        print(f"\nsteady tokens/s: {ratio:.2f}x")


def compare_prefix(args, servers):
    print("| what | engine | median | range |\n|---|---|---|---|")
    for server in servers:
        lone, four = [], []
        for _ in range(args.rounds):
            prefix = [random.randrange(10000) for _ in range(args.prefix)]
            lone.append(server.run(args, 1, prefix, True)["first_token_s_max"])
            four.append(server.run(args, 4, prefix, True)["first_token_s_max"])
        report(server.name, f"lone hit of {args.prefix} tokens, first token s", lone)
        report(server.name, "four at once, last first token s", four)
        print(f"\n{server.name}: {statistics.median(four) / statistics.median(lone):.2f}x a lone "
              "hit\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", default="")
    parser.add_argument("--cairn", default="build/release/bin/cairn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--prefix", type=int, default=0)
    parser.add_argument("--load", type=int, default=0)
    args = parser.parse_args()
    servers = ([Peer(args)] if args.peer else []) + [Cairn(args)]
    burners = [multiprocessing.Process(target=burn, daemon=True) for _ in range(args.load)]
    for burner in burners:
        burner.start()
    if args.prefix:
        compare_prefix(args, servers)
    else:
        compare_streams(args, servers)
    for burner in burners:
        burner.kill()
    for server in servers:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
