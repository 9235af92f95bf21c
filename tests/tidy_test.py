#!/usr/bin/env python3
"""Checks how the sources read and what they may include; prints file:line for every finding.

usage: tidy_test.py [--root DIR] [--longest N]      exit 1 if there is a finding

docs/style.md says why. The rules are functions from a tree (path → text) to findings, so that
tests/tidy_rules_test.py can show each of them a tree that breaks it.
"""
import argparse
import os
import re
import subprocess
import sys

FOLDERS = ("base", "proto", "model", "kernels", "kvstore", "worker", "coordinator", "cli")

# Who may include whom, besides itself. Of kvstore, others see only the libraries listed below.
MAY_INCLUDE = {
    "base": set(),
    "proto": {"base"},
    "kernels": {"base"},
    "model": {"base"},
    "kvstore": {"base", "proto"},
    "coordinator": {"base", "proto", "model", "kvstore"},
    "worker": {"base", "proto", "model", "kernels", "kvstore"},
    "cli": set(FOLDERS),
}
KVSTORE_FOR_ALL = ("kvstore/key.h", "kvstore/policy", "kvstore/client")

# Where a pattern may stand all the same.
FACADES = re.compile(r"(^proto/|_service\.(h|cc)$|_client\.(h|cc)$|/grpc_server\.(h|cc)$|^tests/)")
# What only makes sense inside a whole program; tests/cluster runs those.
PROCESS_TESTED = re.compile(
    r"^(cli/|coordinator/(cluster_loop|grpc_server)\.|worker/(group_member|host_identity|rank_host|"
    r"rank_loader)\.)")
FAMILY_FILES = {
    "model/model_config.cc",
    "model/tokenizer_gguf.cc",  # the format names split patterns by families
    "model/rope_parameters.cc",  # config.json names a kind of scaling by a family
}
FAMILIES = re.compile(r"llama|mistral|mixtral|qwen|gemma|deepseek|smollm", re.I)
OTHER_PROGRAMS = re.compile(r"llama\.cpp|llama-(bench|server|cli)", re.I)
MUTEX_FILES = re.compile(r"^(base/bounded_queue\.h$|proto/stream_queue\.h$|tests/)")
PREPROCESSOR_FILES = re.compile(r"^(kernels/.*_(avx2|avx512)\.(h|cc)|kernels/.*\.(cuh?|inc)|tests/)")
FLAG_FILES = re.compile(r"(^|/)main\.cc$|^cli/|^tests/")

# (pattern in code without comments and strings, what to do instead, files where it is right)
BANNED_CODE = [
    (r"\bthrow\b", "return an absl::Status", None),
    (r"\bcatch\s*\(", "nothing of ours throws; use the form that does not", None),
    (r"\busing\s+namespace\b", "name what is used", None),
    (r"\bstd::(recursive_|timed_|shared_)?mutex\b", "send an event to the owner thread", MUTEX_FILES),
    (r"\babsl::Mutex\b", "send an event to the owner thread", None),
    (r"\b(secure_)?getenv\b", "a flag, read in main()", None),
    (r"#\s*include\s*<ranges>|\bstd::(views|ranges)::", "the classic algorithms", None),
    (r"\bstd::sto(i|l|ll|ul|ull|f|d)\b", "absl::SimpleAtoi and the like, which do not throw", None),
    (r"\b(strcpy|strcat|sprintf|gets|atoi|atof)\s*\(", "a bounded, checked form", None),
    (r"\bABSL_FLAG\b", "an Options struct filled in main.cc", FLAG_FILES),
    (r"\bstd::endl\b", "'\\n'", None),
    (r"\bsleep_for\b|\babsl::SleepFor\b", "a Clock, or a wait with a deadline", 
     r"^(cli|tests)/|^worker/(shm_segment|control_client)\.cc$"),
]
# (pattern in the whole text of code and scripts)
BANNED_TEXT = [
    (r"\bNOLINT", "fix the finding"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", "do it, or leave it out"),
    (r"\bfor now\b|\bplaceholder\b|\bstubbed?\b", "say what is, not what will be"),
    (r"\bKV[ _-]?(page|slot|chunk)s?\b|\b(page_table|slot_mapping|page_size)\b", "a piece of KV is a block"),
]
BANNED_NAME = re.compile(r"(^|_)(utils?|helpers?|common|misc|managers?)(_|\.|$)")
# How the sources were made is nobody's business who reads them.
PROCESS = re.compile(
    r"\bissues?\s+#?\d|(?<![\w-])shared/|\bPOC\b|\bproof of concept\b|known-failures|"
    r"\bdesign\.md\b|\bO(0[1-9]|1[0-9]|2[0-5])\b|/work/|\bAI assistant\b", re.I)

CODE = (".h", ".cc", ".cu", ".cuh", ".inc")
TEXT = CODE + (".py", ".sh", ".cmake", ".md", ".proto", ".json", ".txt", ".yaml", ".yml")
MAX_COLUMNS = 100
MAX_LINES = 500
MAX_BYTES = 256 * 1024
DATA = ("tests/golden/", "tests/traces/")
OWN_FILES = ("tests/tidy_test.py", "tests/tidy_rules_test.py")

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|'
    r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)


def only_code(text):
    """The text with comments and strings blanked, lines kept; #include lines stay whole."""
    def blank(match):
        line_start = text.rfind("\n", 0, match.start()) + 1
        if re.match(r"\s*#\s*include", text[line_start:match.start()]):
            return match.group()
        return "".join(c if c == "\n" else " " for c in match.group())
    return TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def is_code(path):
    return path.endswith(CODE)


def is_data(path):
    return path.startswith(DATA)


def source_text(tree):
    """Our own text files, without data and without this test."""
    for path, text in tree.items():
        if path.endswith(TEXT) and not is_data(path) and path not in OWN_FILES and path != "LICENSE":
            yield path, text


def includes(tree):
    for path, text in tree.items():
        if not is_code(path) or is_data(path):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
            if match:
                yield path, number, match.group(2)


def check_include_direction(tree):
    for path, number, target in includes(tree):
        folder, other = path.split("/")[0], target.split("/")[0]
        if folder not in MAY_INCLUDE or other not in MAY_INCLUDE or other == folder:
            continue
        if other not in MAY_INCLUDE[folder]:
            yield path, number, f"{folder} may not include {other}: {target}"
        elif other == "kvstore" and folder != "cli" and not target.startswith(KVSTORE_FOR_ALL):
            yield path, number, f"only key, policy and client of kvstore are for others: {target}"
    for path, number, target in includes(tree):
        if path == "kvstore/key.h" or path == "kvstore/key.cc":
            if target.split("/")[0] in FOLDERS and not target.startswith(("base/", "kvstore/key")):
                yield path, number, f"the identity function needs base alone: {target}"


def check_generated_includes(tree):
    for path, number, target in includes(tree):
        if (target.endswith(".pb.h") or target.startswith(("grpcpp/", "grpc/"))) \
                and not FACADES.search(path):
            yield path, number, f"only *_service, *_client and proto/ see generated code: {target}"


def check_families(tree):
    for path, text in tree.items():
        if not is_code(path) or path.startswith("tests/") or path in FAMILY_FILES:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if FAMILIES.search(OTHER_PROGRAMS.sub("", line)):
                yield path, number, "a model family is named outside model/model_config.cc"


def check_banned_code(tree):
    for path, text in tree.items():
        if not is_code(path) or is_data(path):
            continue
        code = only_code(text)
        for pattern, instead, allowed in BANNED_CODE:
            if allowed is not None and re.search(allowed, path):
                continue
            if path.startswith("tests/") and "sto(i" in pattern:
                continue
            for match in re.finditer(pattern, code):
                yield path, line_of(code, match.start()), f"'{match.group()}': {instead}"
        if path.endswith(".h"):
            for match in re.finditer(r"absl::string_view\s+\w+\s*[,)]", code):
                yield path, line_of(code, match.start()), "absl::string_view parameter: use std's"


def check_banned_text(tree):
    for path, text in source_text(tree):
        for pattern, instead in BANNED_TEXT:
            for match in re.finditer(pattern, text):
                yield path, line_of(text, match.start()), f"'{match.group()}': {instead}"
        for match in PROCESS.finditer(text):
            yield path, line_of(text, match.start()), f"'{match.group()}': how it was made"


def check_preprocessor(tree):
    for path, text in tree.items():
        if not is_code(path) or PREPROCESSOR_FILES.search(path) or is_data(path):
            continue
        for match in re.finditer(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*", text, re.M):
            yield path, line_of(text, match.start()), "#if: let the build choose files instead"


def check_names(tree):
    for path in tree:
        if not is_data(path) and any(BANNED_NAME.search(part) for part in path.split("/")):
            yield path, 1, "a name that says nothing (utils, helpers, common, misc, manager)"


def check_headers(tree):
    included = {target for path, _, target in includes(tree)}
    for path, text in tree.items():
        if not path.endswith((".h", ".cuh")) or is_data(path):
            continue
        if path not in included and os.path.basename(path) not in included:
            yield path, 1, "no file includes this header"
        if "#pragma once" not in text:
            yield path, 1, "#pragma once is missing"
        if not text.startswith("//"):
            yield path, 1, "a header opens with what it is"


def check_own_header_first(tree):
    """A header that its source includes first compiles alone."""
    first = {}
    for path, number, target in includes(tree):
        first.setdefault(path, (number, target))
    for path in tree:
        header = path[:-len(".cc")] + ".h"
        if path.endswith(".cc") and header in tree and not path.startswith("tests/"):
            number, target = first.get(path, (1, ""))
            if target != header:
                yield path, number, f"the first include is the own header: {header}"


def check_sources_are_built(tree):
    for path, text in tree.items():
        if not path.endswith((".cc", ".cu", ".inc")) or is_data(path):
            continue
        if path.endswith(".inc"):
            if not any(target.endswith(os.path.basename(path)) for _, _, target in includes(tree)):
                yield path, 1, "no file includes this one"
            continue
        lists = ""
        folder = os.path.dirname(path)
        while folder:
            lists += tree.get(folder + "/CMakeLists.txt", "")
            folder = os.path.dirname(folder)
        name = os.path.basename(path)
        stems = [name] + ([name[:-len("_test.cc")]] if name.endswith("_test.cc") else [])
        if not any(re.search(rf"(?<![\w.]){re.escape(stem)}(?![\w.])", lists) for stem in stems):
            yield path, 1, "no CMakeLists.txt builds this file"


def check_modules_are_tested(tree):
    """A test includes the header, or one of a module of the same folder that stands on it."""
    users = {}
    for path, _, target in includes(tree):
        users.setdefault(target, set()).add(path)

    def reaches_a_test(header, seen):
        for path in users.get(header, ()):
            if path.startswith("tests/"):
                return True
            user = os.path.splitext(path)[0] + ".h"
            same_folder = os.path.dirname(user) == os.path.dirname(header)
            if same_folder and user not in seen:
                seen.add(user)
                if reaches_a_test(user, seen):
                    return True
        return False
    for path in tree:
        header = path[:-3] + ".h"
        if path.endswith(".cc") and path.split("/")[0] in FOLDERS and header in tree \
                and not FACADES.search(path) and not PROCESS_TESTED.search(path) \
                and not reaches_a_test(header, {header}):
            yield path, 1, f"no test reaches {header}"


def check_layout(tree):
    for path, text in source_text(tree):
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip():
                yield path, number, "trailing space"
            if "\t" in line:
                yield path, number, "tab"
            if len(line) > MAX_COLUMNS and not path.endswith((".md", ".json")) \
                    and "https://" not in line and 'R"' not in line:
                yield path, number, f"{len(line)} columns, at most {MAX_COLUMNS}"
        if text and not text.endswith("\n"):
            yield path, line_of(text, len(text)), "no newline at the end"
        if is_code(path) and not path.startswith("tests/") and text.count("\n") > MAX_LINES + 50:
            yield path, 1, f"{text.count(chr(10))} lines, about {MAX_LINES} at most: divide it"


def check_readme(tree):
    """Every file, preset and verb that the README and docs/ name exists."""
    presets = set(re.findall(r'"name": "(\w+)"', tree.get("CMakePresets.json", "")))
    command_line = "".join(text for path, text in tree.items() if path.startswith("cli/"))
    folders = set()
    for path in tree:
        while path := os.path.dirname(path):
            folders.add(path)

    def exists(name):
        return name in tree or name.rstrip("/") in folders
    for path, text in tree.items():
        if path != "README.md" and not (path.startswith("docs/") and path.endswith(".md")):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            named = re.findall(r"(?:deploy|tests|docs|\.ci)/[\w./-]*\w", line)
            named += re.findall(rf"(?<![\w/])(?:{'|'.join(FOLDERS)})/[\w/]+\.\w+", line)
            for name in named:
                if not exists(name) and "/foo" not in name:
                    yield path, number, f"there is no {name}"
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", line):
                if not exists(os.path.normpath(os.path.join(os.path.dirname(path), target))):
                    yield path, number, f"the link leads nowhere: {target}"
            for name in re.findall(r"--preset[ =](\w+)", line):
                if name not in presets:
                    yield path, number, f"there is no preset {name}"
            for verb in re.findall(r"bin/cairn ([a-z]+)\b", line):
                if f'"{verb}"' not in command_line:
                    yield path, number, f"cairn has no verb {verb}"


CHECKS = [check_include_direction, check_generated_includes, check_families, check_banned_code,
          check_banned_text, check_preprocessor, check_names, check_headers,
          check_own_header_first, check_sources_are_built, check_modules_are_tested, check_layout, check_readme]


def findings(tree):
    return sorted({finding for check in CHECKS for finding in check(tree)})


def list_files(root):
    """Files that git tracks or would add; without git, all but build folders."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                            capture_output=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.decode().split("\0") if name]
    result = []
    for folder, subfolders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        if relative == ".":
            subfolders[:] = [name for name in subfolders if name not in ("build", ".git", ".cache")]
        subfolders[:] = [name for name in subfolders if name != "__pycache__"]
        result += [os.path.normpath(os.path.join(relative, name)) for name in names]
    return result


def read_tree(root):
    """The tree, and findings about files that are too big to belong in it."""
    tree, large = {}, []
    for path in list_files(root):
        full = os.path.join(root, path)
        if not os.path.isfile(full):
            continue
        if os.path.getsize(full) > MAX_BYTES and not is_data(path):
            large.append((path, 1, f"{os.path.getsize(full)} bytes, at most {MAX_BYTES}"))
        text = ""
        if not is_data(path) and os.path.getsize(full) <= MAX_BYTES:
            with open(full, encoding="utf-8", errors="replace") as file:
                text = file.read()
        tree[path] = text
    return tree, large


def print_longest(root, tree, count):
    """A report to read, not a gate."""
    try:
        import lizard
    except ImportError:
        print("longest functions: lizard is not installed, not measured")
        return
    files = [os.path.join(root, path) for path in tree
             if path.endswith(".cc") and not path.startswith("tests/")]
    functions = [(function.length, function.long_name, os.path.relpath(file.filename, root),
                  function.start_line)
                 for file in lizard.analyze_files(files) for function in file.function_list]
    for length, name, path, line in sorted(functions, reverse=True)[:count]:
        print(f"{length:4} lines  {path}:{line}  {name[:70]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--longest", type=int, default=0, metavar="N",
                        help="print the N longest functions too")
    args = parser.parse_args()
    tree, large = read_tree(args.root)
    found = sorted(large + findings(tree))
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    if args.longest:
        print_longest(args.root, tree, args.longest)
    print(f"tidy: {len(tree)} files, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
