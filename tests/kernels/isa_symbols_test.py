"""No object of one instruction set exports code that the linker could take for another.

An inline function or a template that an AVX-512 file and an ordinary one both emit becomes one weak
symbol, and which body survives is the linker's choice: AVX-512 code would then run everywhere.
Argument: the archive of the kernels.
"""
import subprocess
import sys


def shared_symbols(archive):
    listing = subprocess.run(["nm", "-A", "-C", "--defined-only", archive], check=True,
                             capture_output=True, text=True).stdout
    members, shared = set(), []
    for line in listing.splitlines():
        _, member, rest = line.split(":", 2)
        if "avx512" not in member:
            continue
        members.add(member)
        _, kind, name = rest.split(maxsplit=2)
        if kind in "WVu" and "cairn::avx512::" not in name and not name.startswith("DW.ref."):
            shared.append(f"{member}: {name}")
    return members, shared


def main():
    members, shared = shared_symbols(sys.argv[1])
    if not members:
        sys.exit("no AVX-512 object in the archive")
    if shared:
        sys.exit("exported by AVX-512 objects:\n" + "\n".join(shared))
    print("nothing shared by", ", ".join(sorted(members)))


if __name__ == "__main__":
    main()
