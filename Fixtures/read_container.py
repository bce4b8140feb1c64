#!/usr/bin/env python3
"""Reads containers, from the format's pages alone.

ls           kind, size and path of everything, separated by tabs; in paths, a tab, newline or
             backslash is written \\t, \\n or \\\\
cat PATH     a file's contents; symbolic links are followed inside the container
extract DIR  all but symbolic links and extended attributes, into a directory that is empty or does
             not exist
hash         SHA-256, two spaces and path of each regular file, sorted by path, in the form of
             sha256sum
info         the state that was found, as JSON
verify       reads both copies and opens everything that is live; prints what it finds; exit
             status 1 if there is damage or the container was rolled back

ls, extract and hash go on without what a damaged block of a table held, report it, and exit with 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from container.catalog import DIRECTORY_KIND, FILE_KIND, LINK_KIND, ROOT, Catalog, Inode
from container.fields import ContainerError, Finding
from container.state import Container, open_container
from container.superblock import MEMORY_WITHOUT_ASKING, PASSPHRASE, RAW_KEY, RECOVERY_CODE, Secret
from container.verify import verify
from opendynamics import FileError

KIND_NAMES = {FILE_KIND: b"file", DIRECTORY_KIND: b"directory", LINK_KIND: b"symlink"}
MAXIMUM_LINKS = 40
ESCAPES = ((b"\\", b"\\\\"), (b"\n", b"\\n"))


class CommandError(Exception):
    """Arguments that ask for what cannot be done."""


def escape(path: bytes, escapes: tuple[tuple[bytes, bytes], ...] = ESCAPES) -> bytes:
    """A path that stays in its line."""
    for character, escaped in escapes:
        path = path.replace(character, escaped)
    return path


def sorted_tree(container: Container) -> list[tuple[bytes, int, Inode]]:
    """Everything with a path, by path; what is damaged is reported and left out."""
    tree = container.state.catalog.tree(container.report_error)
    return sorted(tree, key=lambda item: item[0])


def list_all(container: Container, out: BinaryIO) -> None:
    """The command ls."""
    for path, _, inode in sorted_tree(container):
        shown = escape(path, (*ESCAPES, (b"\t", b"\\t")))
        out.write(b"%s\t%d\t%s\n" % (KIND_NAMES[inode.kind], inode.size, shown))


def resolve(catalog: Catalog, path: bytes) -> tuple[int, Inode]:
    """The file that a path names. Absolute targets begin at the root, which is its own parent."""
    trail = [ROOT]
    names = path.split(b"/")[::-1]
    links = 0
    while names:
        name = names.pop()
        if name in (b"", b"."):
            continue
        if name == b"..":
            trail = trail[:-1] or [ROOT]
            continue
        entry = catalog.entry(trail[-1], name)
        if catalog.inode(trail[-1]).kind != DIRECTORY_KIND or entry is None:
            raise CommandError(os.fsdecode(path))
        file_id = entry.file_id
        inode = catalog.inode(file_id)
        if inode.kind == LINK_KIND:
            links += 1
            if links > MAXIMUM_LINKS:
                raise CommandError(f"{os.fsdecode(path)}: too many symbolic links")
            if inode.target.startswith(b"/"):
                trail = [ROOT]
            names += inode.target.split(b"/")[::-1]
        else:
            trail.append(file_id)
    inode = catalog.inode(trail[-1])
    if inode.kind != FILE_KIND:
        raise CommandError(f"{os.fsdecode(path)}: not a regular file")
    return trail[-1], inode


def cat(container: Container, path: bytes, out: BinaryIO) -> None:
    """The command cat."""
    for piece in container.file(*resolve(container.state.catalog, path)).contents(container.stored):
        out.write(piece)


def hash_all(container: Container, out: BinaryIO) -> None:
    """The command hash."""
    digests: dict[int, bytes] = {}
    for path, file_id, inode in sorted_tree(container):
        if inode.kind != FILE_KIND:
            continue
        if file_id not in digests:
            digest = hashlib.sha256()
            for piece in container.file(file_id, inode).contents(container.stored):
                digest.update(piece)
            digests[file_id] = digest.hexdigest().encode()
        shown = escape(path)
        out.write((b"\\" if shown != path else b"") + digests[file_id] + b"  " + shown + b"\n")


def extract(container: Container, target: bytes) -> None:
    """The command extract. It makes no symbolic links, which would name other things outside."""
    os.makedirs(target, mode=0o700, exist_ok=True)
    if os.listdir(target):
        raise CommandError(f"{os.fsdecode(target)}: not empty")
    directories = [(target, container.state.catalog.inode(ROOT))]
    made: dict[int, bytes] = {}
    for path, file_id, inode in container.state.catalog.tree(container.report_error):
        native = os.path.join(target, path)
        if inode.kind == DIRECTORY_KIND:
            os.mkdir(native, mode=0o700)
            directories.append((native, inode))
        elif inode.kind == LINK_KIND:
            print(f"not extracted, a symbolic link: {os.fsdecode(escape(path))}", file=sys.stderr)
        elif file_id in made:
            os.link(made[file_id], native)
        else:
            extract_file(container, native, file_id, inode)
            made[file_id] = native
    # Deepest first: what is made in a directory changes its time, and permissions may forbid it.
    for native, inode in reversed(directories):
        os.chmod(native, inode.permissions & 0o777)
        os.utime(native, ns=(inode.modified, inode.modified))


def extract_file(container: Container, native: bytes, file_id: int, inode: Inode) -> None:
    """Writes one file, with its holes. Set-user-id and its like are not taken over."""
    with open(os.open(native, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        for position, plaintext in container.file(file_id, inode).pieces(container.stored):
            file.seek(position)
            file.write(plaintext)
        file.truncate(inode.size)
        file.flush()
        os.fchmod(file.fileno(), inode.permissions & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO))
        os.utime(file.fileno(), ns=(inode.modified, inode.modified))


def info(container: Container) -> dict[str, object]:
    """The command info."""
    state = container.state
    torn = state.torn
    return {
        "commit": state.commit,
        "container_id": container.id.hex(),
        "format": container.slot.version,
        "generation": container.body.complete.number,
        "generations": [
            {
                "commit": generation.commit,
                "number": generation.number,
                "state": "complete" if generation.complete else "pending",
                "tables": [table.id.hex() for table in generation.tables],
            }
            for generation in container.body.generations
        ],
        "journals": [
            {
                "accepted_end": contents.end.offset,
                "generation": journal.link.generation,
                "id": journal.link.id.hex(),
                "last_commit": contents.end.commit,
                "last_record": contents.end.number,
                "session": journal.session.hex(),
            }
            for journal, contents in state.journals
        ],
        "minimum_reader": container.slot.minimum_reader,
        "minimum_writer": container.slot.minimum_writer,
        "sequence": container.slot.sequence,
        "state": "clean" if container.body.clean else "open",
        "torn_tail": torn and {
            "journal": torn.journal.hex(),
            "offset": torn.offset,
            "reason": torn.reason,
            "record": torn.record,
        },
        "writer": container.lock.writer_is_alive(),
    }


def read_secret(arguments: argparse.Namespace) -> Secret:
    """The secret that the arguments name."""
    memory = arguments.allow_memory * 1024
    if arguments.key_file:
        data = arguments.key_file.read_bytes()
        if len(data) != 32:
            raise CommandError(f"{arguments.key_file}: not 32 bytes")
        return Secret(data, (RAW_KEY,), memory)
    # A recovery code is a line of text, too; it is tried on its own slots.
    line = arguments.passphrase_file.read_bytes().split(b"\n")[0]
    return Secret(line, (PASSPHRASE, RECOVERY_CODE), memory)


def run(arguments: argparse.Namespace, out: BinaryIO) -> int:
    """Runs a command and returns the exit status."""
    accepting_older = arguments.accept_older or arguments.command == "verify"
    secret = read_secret(arguments)
    with open_container(arguments.container, secret, accepting_older, arguments.save) as container:
        if arguments.command == "verify":
            return print_verification(container, out)
        found = len(container.findings)
        print_findings(container.findings)
        if arguments.command == "ls":
            list_all(container, out)
        elif arguments.command == "cat":
            cat(container, os.fsencode(arguments.path), out)
        elif arguments.command == "extract":
            extract(container, os.fsencode(arguments.path))
        elif arguments.command == "hash":
            hash_all(container, out)
        else:
            out.write(json.dumps(info(container), indent=2).encode() + b"\n")
        print_findings(container.findings[found:])
        return 1 if len(container.findings) > found else 0


def print_findings(findings: list[Finding]) -> None:
    """What there is to report, on standard error."""
    for finding in findings:
        print(finding, file=sys.stderr)


def print_verification(container: Container, out: BinaryIO) -> int:
    """The command verify."""
    verify(container)
    for finding in container.findings:
        out.write(os.fsencode(f"{finding}\n"))
    damage = any(finding.is_serious for finding in container.findings)
    out.write(b"damaged\n" if damage else b"ok\n")
    return 1 if damage else 0


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("container", type=Path, metavar="CONTAINER")
    secret = parser.add_mutually_exclusive_group(required=True)
    secret.add_argument("--key-file", type=Path, metavar="K", help="32 raw bytes")
    secret.add_argument(
        "--passphrase-file", type=Path, metavar="F", help="its first line is the passphrase"
    )
    parser.add_argument(
        "--allow-memory", type=int, default=MEMORY_WITHOUT_ASKING // 1024, metavar="MIB",
        help="for the passphrase's hash",
    )
    parser.add_argument(
        "--accept-older", action="store_true", help="go on although the container was rolled back"
    )
    parser.add_argument(
        "--save", action="store_true", help="go on with the commits before damage of a journal"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in ("ls", "hash", "info", "verify"):
        commands.add_parser(name)
    commands.add_parser("cat").add_argument("path", metavar="PATH")
    commands.add_parser("extract").add_argument("path", metavar="DIR")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Runs; what goes wrong becomes a line on standard error and exit status 1."""
    parsed = parse_arguments(arguments)
    out = sys.stdout.buffer
    try:
        return run(parsed, out)
    except ContainerError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
    except (FileError, CommandError, OSError) as error:
        print(error, file=sys.stderr)
    finally:
        out.flush()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
