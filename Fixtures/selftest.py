#!/usr/bin/env python3
"""Tests the readers on the vectors, and on containers made by hand and then spoiled in every way that came to mind."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator
from unittest import mock

import opendynamics
import purestream
import read_file
from container import superblock
from builder import (
    CODE, EPOCH, RAW, TIME, WORDS, Builder, JournalDraft, compact_extent, compact_inode, u16, varint,
)
from container.catalog import ATTRIBUTE, FILE_KIND, INODE, ROOT, Inode, number_key
from container.fields import ContainerError, Damage
from container.journal import LAST_OF_COMMIT, SEGMENTS_DURABLE, Change
from container.locks import ENTRY_BYTE, Lock
from container.state import open_container
from container.superblock import PASSPHRASE, RAW_KEY, RECOVERY_CODE, End, Generation, Secret, Table
from container.verify import verify
from opendynamics import GRAIN, Extent, FileError, kb, u32, u64
from sealing import expand

HERE = Path(__file__).resolve().parent
RAW_SECRET = Secret(RAW, (RAW_KEY,))
HELLO = b"hello, world\n"
HOLEY = {1: b"after a hole", 3: expand("a full grain and more", GRAIN + 9)}
HOLEY_SIZE = 6 * GRAIN + 1
HOLEY_BYTES = (
    bytes(GRAIN) + HOLEY[1].ljust(2 * GRAIN, b"\0") + HOLEY[3].ljust(3 * GRAIN, b"\0") + b"\0"
)

Reading = tuple[int, dict[bytes, dict[bytes, bytes]], list[str]]


def observe(path: Path) -> tuple[Reading | None, list[str]]:
    """All that can be read from a container, and all that is reported about it."""
    try:
        with open_container(path, RAW_SECRET) as container:
            verify(container)
            contents = []
            for file_id in container.state.catalog.numbers(INODE):
                digest = hashlib.sha256()
                outcome = "ok"
                try:
                    inode = container.state.catalog.inode(file_id)
                    for piece in container.file(file_id, inode).contents(container.stored):
                        digest.update(piece)
                except (FileError, ContainerError) as error:
                    outcome = str(error)
                contents.append(f"{file_id} {outcome} {digest.hexdigest()}")
            findings = [f"{finding.level}: {finding.text}" for finding in container.findings]
            return (container.state.commit, container.state.catalog.groups, contents), findings
    except ContainerError as error:
        return None, [f"{error.kind}: {error}"]


def build_tree(builder: Builder) -> None:
    """Two generations with a journal each: directories, two files, a hard link, a symbolic link."""
    builder.catalog[number_key(INODE, ROOT)] = builder.inode(2)
    builder.catalog.update(builder.state())  # type: ignore[arg-type]
    builder.start_generation()
    builder.start_journal()
    directory, changes = builder.directory(ROOT, b"folder")
    builder.record(changes, flags=SEGMENTS_DURABLE)
    names = [(ROOT, b"hello"), (directory, b"linked")]
    builder.record(builder.contents(names, {0: HELLO}, len(HELLO)) + builder.state())
    builder.record(builder.link(ROOT, b"shortcut", b"folder/../folder/linked") + builder.state(), durable=2)
    builder.start_generation()
    builder.start_journal()
    builder.record(builder.contents([(directory, b"holey")], HOLEY, HOLEY_SIZE) + builder.state())
    builder.record([(b"\x7funknown type", b"ignored"), (b"\x7fother", b"deleted"), (b"\x7fother", None)], durable=1)


def build_layers(builder: Builder) -> list[Change]:
    """Two generations that share two tables, the newest with tombstones; returns the last commit's changes."""
    build_tree(builder)
    builder.record([(number_key(ATTRIBUTE, 3) + b"user.note", None)])
    builder.start_generation(shared=1)
    builder.start_journal()
    hello = number_key(INODE, 3)
    inode = builder.catalog[hello]
    at = 15  # the link count's, after two differences of a byte
    builder.record([
        (builder.entry(ROOT, b"hello", 1, 3)[0], None),
        (hello, inode[:at] + b"\1" + inode[at + 1 :]),
        (b"\x7funknown type", None),
        (b"\x7fdeleted and made again", b"first"),
    ])
    builder.start_generation(shared=2)
    builder.start_journal()
    last: list[Change] = [(b"\x7fdeleted and made again", None), (b"\x7fnewest", b"")]
    builder.record(last)
    builder.drop_generations()
    return last


def flat(reading: Reading | None) -> dict[bytes, bytes]:
    """Keys and values of what was read."""
    assert reading
    return {group + rest: value for group, rests in reading[1].items() for rest, value in rests.items()}


def xor(at: int, bits: int = 1) -> Callable[[bytearray], object]:
    """Changes one byte."""
    return lambda data: data.__setitem__(at, data[at] ^ bits)


class TestCase(unittest.TestCase):
    """Gives each test a directory."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "container"

    def tree(self, clean: bool = True, container_format: int = 2) -> Builder:
        """The container of build_tree."""
        builder = Builder(self.path, container_format=container_format)
        build_tree(builder)
        builder.close(clean)
        return builder

    @contextlib.contextmanager
    def changed(self, name: str, change: Callable[[bytearray], object]) -> Iterator[None]:
        """A file of the container as changed, and as it was afterwards."""
        path = self.path / name
        before = path.read_bytes()
        data = bytearray(before)
        change(data)
        path.write_bytes(data)
        yield
        path.write_bytes(before)

    def assert_refused(self, kind: str, secret: Secret = RAW_SECRET) -> None:
        """The container must not open, for that reason."""
        with self.assertRaises(ContainerError) as caught:
            with open_container(self.path, secret):
                pass
        self.assertEqual(caught.exception.kind, kind, caught.exception)

    def assert_intact(self) -> Reading:
        """Nothing may be found."""
        reading, findings = observe(self.path)
        self.assertEqual(findings, [])
        assert reading
        return reading

    def assert_torn(self, commit: int, reason: str = "") -> None:
        """The state must be that of a commit, after a torn tail was dropped; nothing else may be damage."""
        reading, findings = observe(self.path)
        assert reading, findings
        self.assertEqual(reading[0], commit)
        self.assertTrue(findings and findings[0].startswith("note: torn tail"), findings)
        self.assertIn(reason, findings[0])
        self.assertFalse([finding for finding in findings if finding.startswith("damage")])


class VectorTests(unittest.TestCase):
    """The vectors, and the page's account of the secretstream."""

    def segment_vectors(self) -> int:
        paths = sorted(str(path) for path in (HERE / "Vectors" / "segment").glob("*.json"))
        self.assertGreater(len(paths), 40)
        with contextlib.redirect_stdout(io.StringIO()):
            return read_file.main(paths)

    def test_generator_gives_the_same(self) -> None:
        generator = [sys.executable, str(HERE / "Vectors" / "generate.py"), "--check"]
        self.assertEqual(subprocess.run(generator, check=False).returncode, 0)

    def test_segment_vectors(self) -> None:
        self.assertEqual(self.segment_vectors(), 0)

    def test_segment_vectors_without_libsodium(self) -> None:
        pure = mock.patch.multiple(opendynamics, open_message=purestream.open_message, hchacha20=purestream.hchacha20)
        with pure, mock.patch.object(opendynamics, "_state", side_effect=AssertionError):
            self.assertEqual(self.segment_vectors(), 0)

    def test_first_messages_without_libsodium(self) -> None:
        for path in (HERE / "Vectors" / "secretstream").glob("*.json"):
            vector = json.loads(path.read_text())
            if "initial_counter" in vector:
                continue
            message = vector["messages"][0]
            opened = []
            for opener in (opendynamics.open_message, purestream.open_message):
                sealed = bytes.fromhex(vector["header"] + message["ciphertext"])
                try:
                    opened.append(opener(bytes.fromhex(vector["key"]), bytes.fromhex(message["ad"]), sealed).hex())
                except opendynamics.NotAuthentic as error:
                    opened.append(str(error))
            self.assertEqual(opened[0], opened[1], path.name)
            if vector.get("fail_at") != 0 and message["tag"] == 3:
                self.assertEqual(opened[0], message["plaintext"], path.name)


class CommandTests(TestCase):
    """The program, on an intact container."""

    def setUp(self) -> None:
        super().setUp()
        self.tree()
        (self.folder / "key").write_bytes(RAW)
        (self.folder / "words").write_bytes(WORDS + b"\nanother line")
        (self.folder / "code").write_bytes(CODE)

    def run_reader(self, *command: object, secret: str = "--key-file=key", status: int = 0) -> bytes:
        """What the program prints."""
        arguments = [sys.executable, str(HERE / "read_container.py"), str(self.path), secret, *map(str, command)]
        result = subprocess.run(arguments, cwd=self.folder, capture_output=True, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout

    def test_ls(self) -> None:
        expected = [
            "directory\t0\tfolder",
            f"file\t{HOLEY_SIZE}\tfolder/holey",
            f"file\t{len(HELLO)}\tfolder/linked",
            f"file\t{len(HELLO)}\thello",
            "symlink\t23\tshortcut",
        ]
        self.assertEqual(self.run_reader("ls").decode().splitlines(), expected)

    def test_cat(self) -> None:
        for path in ("hello", "/folder//linked", "shortcut", "./folder/../../hello"):
            self.assertEqual(self.run_reader("cat", path), HELLO)
        self.assertEqual(self.run_reader("cat", "folder/holey"), HOLEY_BYTES)
        for path in ("folder", "none", "hello/x"):
            self.run_reader("cat", path, status=1)

    def test_secrets(self) -> None:
        typed = CODE.decode().lower()
        typed = " ".join("-".join(typed[start : start + 4] for start in range(half, half + 16, 4)) for half in (0, 16))
        (self.folder / "typed").write_text(typed + "\n")
        for secret in ("--passphrase-file=words", "--passphrase-file=code", "--passphrase-file=typed"):
            self.assertEqual(self.run_reader("cat", "hello", secret=secret), HELLO)
        (self.folder / "nothing").write_bytes(b"")
        for secret in ("--passphrase-file=key", "--passphrase-file=nothing"):
            self.run_reader("ls", secret=secret, status=1)

    def test_extract_and_hash(self) -> None:
        target = self.folder / "out"
        self.run_reader("extract", target)
        self.assertEqual((target / "folder" / "holey").read_bytes(), HOLEY_BYTES)
        self.assertEqual((target / "hello").stat().st_ino, (target / "folder" / "linked").stat().st_ino)
        self.assertFalse(os.path.lexists(target / "shortcut"))
        self.assertEqual((target / "hello").stat().st_mode & 0o777, 0o640)
        sums = self.run_reader("hash")
        self.assertEqual(len(sums.splitlines()), 3)
        check = subprocess.run(["sha256sum", "--check", "--quiet"], input=sums, cwd=target, check=False)
        self.assertEqual(check.returncode, 0)
        self.run_reader("extract", target, status=1)

    def test_info(self) -> None:
        info: dict[str, Any] = json.loads(self.run_reader("info"))
        found = (info["commit"], info["generation"], info["state"], info["torn_tail"], len(info["journals"]))
        self.assertEqual(found, (4, 2, "clean", None, 1))

    def test_verify(self) -> None:
        self.assertEqual(self.run_reader("verify"), b"ok\n")


class FlipTests(TestCase):
    """Bytes of a container, changed: reported when they are live, without effect when they are not.

    All of journals and tables, a sample of the superblock, of which one MAC covers all, and of slabs.
    """

    def flip_all(self, builder: Builder, torn: range = range(0), superblock_step: int = 13) -> None:
        """The range is that of the current journal's torn tail: changes in it may be reported or not."""
        intact = observe(self.path)
        assert intact[0]
        current = f"journal/{builder.current().id.hex()}"
        for name in sorted(builder.live):
            data = (self.path / name).read_bytes()
            live = {byte for start, end in builder.live[name] for byte in range(start, end)}
            dead = set(range(len(data))) - live
            # Full grains and bytes that do not count are many and alike: a sample of them will do.
            sample = {byte for byte in live if not name.startswith("slab/") or byte < 400 or byte % 97 == 0}
            if name == "superblock":
                sample = {byte for byte in live if byte % superblock_step == 0}
            sample |= {byte for byte in dead if byte % 97 == 0 or byte - 1 in live or byte + 1 in live}
            with (self.path / name).open("r+b") as file:
                for byte in sorted(sample):
                    os.pwrite(file.fileno(), bytes([data[byte] ^ (1 << byte % 8)]), byte)
                    found = observe(self.path)
                    os.pwrite(file.fileno(), data[byte : byte + 1], byte)
                    if name == current and byte in torn:
                        self.assertEqual(found[0], intact[0], (name, byte))
                    elif byte in live:
                        self.assertGreater(set(found[1]), set(), (name, byte))
                        self.assertNotEqual(found[1], intact[1], (name, byte))
                    else:
                        self.assertEqual(found, intact, (name, byte))

    def test_clean(self) -> None:
        self.flip_all(self.tree(), superblock_step=3)

    def test_clean_format_1(self) -> None:
        self.flip_all(self.tree(container_format=1))

    def test_shared_tables_and_a_pending_generation(self) -> None:
        builder = Builder(self.path)
        build_layers(builder)
        builder.start_generation(complete=False)
        builder.start_journal()
        builder.record([(b"\x7fduring the checkpoint", b"")])
        builder.close(clean=False)
        self.assertEqual(self.assert_intact()[0], 8)
        self.flip_all(builder)

    def test_after_a_checkpoint(self) -> None:
        """The current journal is part of the second copy only."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.start_generation()
        builder.close()
        self.assertEqual(self.assert_intact()[0], 4)
        self.flip_all(builder)

    def test_open_with_torn_tail(self) -> None:
        builder = Builder(self.path)
        build_tree(builder)
        before = replace(builder.current().end)
        builder.record([(b"\x7flost", b"")], durable=2, flags=SEGMENTS_DURABLE)
        journal = builder.current()
        journal.live.pop()
        journal.data = journal.data[:-1]
        builder.close(clean=False)
        self.assert_torn(4, "cut short")
        self.flip_all(builder, range(before.offset, len(journal.data)))


class SuperblockTests(TestCase):
    """Choosing between the slots, and what a slot may not be."""

    def test_torn_slots(self) -> None:
        self.tree()
        for position in (100, 65536 + 100):
            with self.changed("superblock", lambda data: data.__setitem__(position, data[position] ^ 1)):
                reading, findings = observe(self.path)
                self.assertTrue(reading)
                self.assertEqual(findings, ["damage: superblock: one slot is torn"])

        def both(data: bytearray) -> None:
            data[100] ^= 1
            data[65536 + 100] ^= 1

        with self.changed("superblock", both):
            self.assert_refused("torn")
        with self.changed("superblock", lambda data: data.__setitem__(slice(4096, None), b"")):
            self.assertEqual(observe(self.path)[1], ["damage: superblock: one slot is torn"])
        with self.changed("superblock", lambda data: data.__setitem__(slice(65536, None), b"another magic" * 400)):
            self.assertEqual(observe(self.path)[1], ["damage: superblock: one slot is torn"])
        with self.changed("superblock", lambda data: data.__setitem__(slice(4000, None), b"")):
            self.assert_refused("torn")

    def test_update_under_way(self) -> None:
        """A reader waits for a writer that lives, and for no other."""
        builder = self.tree()
        path = self.path / "superblock"
        whole = path.read_bytes()

        def finish() -> bool:
            path.write_bytes(whole)
            return True

        for sequences, torn, kind in (((9, 10), 4000, "torn"), ((9, 9), 4096, "altered")):
            first, second = (builder.slot(clean=True, sequence=sequence)[:torn] for sequence in sequences)
            builder.write_superblock(first.ljust(4096, b"\0"), second)
            self.assert_refused(kind)
            slot, _ = superblock.choose_slot(path, finish)
            self.assertEqual(slot.data, whole[:4096])

    def test_no_container(self) -> None:
        builder = self.tree()
        builder.write_superblock(bytes(4096))
        self.assert_refused("not a container")
        (self.path / "superblock").unlink()
        self.assert_refused("not a container")

    def test_versions(self) -> None:
        for container_format in (1, 2):
            self.path = self.folder / str(container_format)
            builder = self.tree(container_format=container_format)
            for version in (container_format, container_format + 1):
                builder.write_superblock(builder.slot(clean=True, versions=(version, container_format)))
                self.assert_intact()
            below, other = container_format - 1, 3 - container_format
            for versions in ((0, 0), (container_format, 0), (below, container_format), (2, other)):
                builder.write_superblock(builder.slot(clean=True, versions=versions))
                self.assert_refused("altered")
            builder.write_superblock(builder.slot(clean=True, versions=(3, 3)))
            self.assert_refused("unsupported format", Secret(bytes(32), (RAW_KEY,)))

    def test_older_slot(self) -> None:
        builder = self.tree()
        newest = builder.slot(clean=True)
        for behind, level in ((1, "note"), (2, "damage")):
            older = builder.slot(clean=False, sequence=builder.sequence - behind - (behind - 1))
            for first, second in ((newest, older), (older, newest)):
                builder.write_superblock(first, second)
                reading, findings = observe(self.path)
                self.assertTrue(reading)
                self.assertEqual(findings, [f"{level}: superblock: one slot is older by {behind}"])

    def test_one_sequence_twice(self) -> None:
        builder = self.tree()
        builder.write_superblock(builder.slot(clean=True, sequence=9), builder.slot(clean=True, sequence=9))
        self.assert_refused("altered")

    def test_altered_with_a_good_checksum(self) -> None:
        """There is no way back to the other slot."""
        self.tree()
        for position in (8, 14, 50, 32, 1344, 3944, 3950, 4040):

            def alter(data: bytearray) -> None:
                data[position] ^= 1
                data[4064:4096] = kb(32, b"", bytes(data[:4064]))
                data[32] |= 128  # the newer of the two
                data[4064:4096] = kb(32, b"", bytes(data[:4064]))

            with self.changed("superblock", alter):
                self.assert_refused("altered")

    def test_secrets(self) -> None:
        builder = self.tree()
        self.assert_refused("wrong key", Secret(bytes(32), (RAW_KEY,)))
        self.assert_refused("wrong key", Secret(CODE, (PASSPHRASE,)))
        with open_container(self.path, Secret(CODE, (RECOVERY_CODE,))):
            pass
        for code in (CODE[:-1], CODE + b"0", CODE[:-1] + b"U"):
            self.assert_refused("wrong key", Secret(code, (RECOVERY_CODE,)))
        self.assert_refused("more memory than allowed", Secret(WORDS, (PASSPHRASE,), memory_kib=7))
        slots = builder.key_slot_bytes
        second, last = 160, 160 * 7
        wrong = ((0, 4), (1, 1), (4, 0), (4, 17), (8, 7), (12, 1), (137, 1), (second + 4, 1), (last + 9, 1))
        for position, value in wrong:
            builder.key_slot_bytes = slots[:position] + bytes([value]) + slots[position + 1 :]
            builder.write_superblock(builder.slot(clean=True))
            self.assert_refused("altered")
        # The commitment covers the first 32 bytes and not the root key.
        builder.key_slot_bytes = slots[: 160 + 40] + bytes([slots[160 + 40] ^ 1]) + slots[160 + 41 :]
        builder.write_superblock(builder.slot(clean=True))
        self.assert_refused("altered")
        builder.key_slot_bytes = slots[: 160 + 16] + bytes([slots[160 + 16] ^ 1]) + slots[160 + 17 :]
        builder.write_superblock(builder.slot(clean=True))
        self.assert_refused("wrong key")


class JournalTests(TestCase):
    """Ends of journals: torn, damaged, altered."""

    def journal(self, *durable: int, flags: int = LAST_OF_COMMIT | SEGMENTS_DURABLE, clean: bool = False) -> Builder:
        """A container with a commit for each "durable through"; the first frame begins at 4096."""
        builder = Builder(self.path)
        builder.catalog[number_key(INODE, ROOT)] = builder.inode(2)
        builder.catalog.update(builder.state())  # type: ignore[arg-type]
        builder.start_generation()
        builder.start_journal()
        for number, through in enumerate(durable):
            builder.record([(b"\x7f%d" % number, b"value")], durable=through, flags=flags)
        builder.close(clean)
        self.name = f"journal/{builder.current().id.hex()}"
        return builder

    def test_torn_unless_durable(self) -> None:
        self.journal(0, 0, 1, 2)
        self.assert_intact()
        spoil: list[Callable[[bytearray], object]] = [
            lambda data: data.__setitem__(3 * 4096, 0),  # magic
            lambda data: data.__setitem__(3 * 4096 + 9, data[3 * 4096 + 9] ^ 1),  # id
            lambda data: data.__setitem__(3 * 4096 + 60, 1),  # zero field
            lambda data: data.__setitem__(3 * 4096 + 90, data[3 * 4096 + 90] ^ 1),  # checksum of the head
            lambda data: data.__setitem__(3 * 4096 + 100, data[3 * 4096 + 100] ^ 1),  # payload
        ]
        for change in spoil:
            with self.changed(self.name, change):
                self.assert_torn(2)
        with self.changed(self.name, lambda data: data.__setitem__(2 * 4096, 0)):
            self.assert_refused("damage")
        with self.changed(self.name, lambda data: data.__delitem__(slice(4 * 4096 + 50, None))):
            self.assert_torn(3, "cut short")
        with self.changed(self.name, lambda data: data.__delitem__(slice(4 * 4096, None))):
            reading, findings = observe(self.path)
            self.assertEqual((reading and reading[0], findings), (3, []))

    def test_header_is_never_torn(self) -> None:
        self.journal(0)
        for change in (
            lambda data: data.__setitem__(0, 0),
            lambda data: data.__setitem__(100, data[100] ^ 1),
            lambda data: data.clear(),
        ):
            with self.changed(self.name, change):
                self.assert_refused("damage")
        (self.path / self.name).unlink()
        self.assert_refused("damage")

    def test_altered(self) -> None:
        """Checksums can be made by anybody; what they cover has to open then."""
        self.journal(0, 0, 1)

        def checksums(data: bytearray, start: int) -> None:
            length = int.from_bytes(data[start + 32 : start + 36], "little") + 41
            data[start + 64 : start + 80] = kb(16, b"", bytes(data[start + 96 : start + 96 + length]))
            data[start + 80 : start + 96] = kb(16, b"", bytes(data[start : start + 80]))

        def alter(at: int) -> Callable[[bytearray], object]:
            def change(data: bytearray) -> None:
                data[2 * 4096 + at] ^= 16
                checksums(data, 2 * 4096)

            return change

        # Number, N out of range, zero fields, previous authenticator, header and ciphertext of the message.
        for at in (24, 34, 36, 40, 56, 100, 96 + 25):
            with self.changed(self.name, alter(at)):
                self.assert_refused("altered")

        def repeat(data: bytearray) -> None:
            data[2 * 4096 : 3 * 4096] = data[4096 : 2 * 4096]

        with self.changed(self.name, repeat):
            self.assert_refused("altered")

        def drop(data: bytearray) -> None:
            del data[4096 : 2 * 4096]

        with self.changed(self.name, drop):
            self.assert_refused("altered")

    def test_clean_end_is_exact(self) -> None:
        self.journal(0, 0, clean=True)
        self.assert_intact()
        with self.changed(self.name, lambda data: data.__delitem__(slice(2 * 4096, None))):
            self.assert_refused("damage")
        with self.changed(self.name, lambda data: data.extend(b"what follows the end is ignored" * 1000)):
            self.assert_intact()
        with self.changed(self.name, lambda data: data.__setitem__(5000, 1)):
            self.assert_intact()
        with self.changed(self.name, lambda data: data.__setitem__(4200, data[4200] ^ 1)):
            self.assert_refused("damage")
        with self.changed(self.name, lambda data: data.__setitem__(slice(8192, None), data[4096:8192])):
            self.assert_refused("altered")

    def test_wrong_ends(self) -> None:
        """Ends that are authentic, and others than the journal has."""
        builder = self.journal(0, 0, clean=True)
        right = builder.current().end
        for wrong in (
            replace(right, offset=right.offset + 1),
            replace(right, authenticator=bytes(16)),
            replace(right, commit=1),
            replace(right, number=1),
        ):
            builder.current().end = wrong
            builder.write_superblock(builder.slot(clean=True))
            self.assert_refused("altered")
        builder.current().end = replace(right, number=3)
        builder.write_superblock(builder.slot(clean=True))
        self.assert_refused("damage")

    def test_base_commit(self) -> None:
        """The oldest journal goes on from the tables, each other from its predecessor."""
        for new_generation, kind in ((True, "damage"), (False, "altered")):
            self.path = self.folder / kind
            builder = Builder(self.path)
            build_tree(builder)
            if new_generation:
                builder.start_generation()
            journal = builder.current()
            journal.end = replace(journal.end, commit=journal.end.commit - 1)
            builder.start_journal()
            builder.close(clean=False)
            self.assert_refused(kind)

    def test_copy_of_the_header_is_no_later_record(self) -> None:
        """Its session stands where records have "durable through"."""
        builder = self.journal(0, 0, 0)
        builder.current().data = builder.current().data[: 2 * 4096] + bytes(4096) + builder.current().data[:4096]
        builder.write_journal()
        self.assert_torn(1)

    def test_changes_apply_in_order(self) -> None:
        builder = self.journal(0)
        builder.record([(b"\x7fa", b"1"), (b"\x7fa", b"2"), (b"\x7fb", b"1")], flags=SEGMENTS_DURABLE)
        builder.record([(b"\x7fa", b"3"), (b"\x7fb", None)])
        builder.close(clean=False)
        self.assertEqual(self.assert_intact()[1][b"\x7fa"], {b"": b"3"})
        self.assertNotIn(b"\x7fb", self.assert_intact()[1])

    def test_end_inside_a_step(self) -> None:
        """Up to the next frame's place there is no tail to report, from there on there is."""
        builder = self.journal(0)
        journal = builder.current().data
        for extra, torn in ((1, False), (8192 - len(journal), False), (8193 - len(journal), True)):
            with self.changed(self.name, lambda data: data.extend(b"x" * extra)):
                if torn:
                    self.assert_torn(1, "cut short")
                else:
                    self.assert_intact()

    def test_commit_without_its_last_record(self) -> None:
        builder = self.journal(0, 0)
        builder.record([(b"\x7fhalf", b"")], flags=SEGMENTS_DURABLE)
        builder.record([(b"\x7fhalf again", b"")], flags=SEGMENTS_DURABLE)
        builder.close(clean=False)
        self.assert_torn(2, "without its last record")
        builder.write_superblock(builder.slot(clean=True))
        self.assert_refused("altered")

    def test_predecessor(self) -> None:
        """A recovery's journal names where the one before ends; what follows there does not count."""
        builder = self.journal(0, 0)
        first = self.name
        end = builder.current().end
        builder.start_journal()
        builder.record([(b"\x7fafter recovery", b"")])
        builder.close(clean=False)
        self.assertEqual(self.assert_intact()[0], 3)
        with self.changed(first, lambda data: data.extend(b"torn" * 4000)):
            self.assert_intact()
        for change in (
            lambda data: data.__delitem__(slice(2 * 4096, None)),
            lambda data: data.__setitem__(end.offset - 1, data[end.offset - 1] ^ 1),
        ):
            with self.changed(first, change):
                self.assert_refused("damage")

    def test_commit_numbers_have_no_gap(self) -> None:
        builder = self.journal(0)
        builder.commit_number += 1
        builder.record([])
        builder.close(clean=False)
        self.assert_refused("damage")

    def test_unsynced_segments(self) -> None:
        """Without flag bit 1 a commit counts only as far as its segments are there."""
        for flags, commit in ((LAST_OF_COMMIT, 1), (LAST_OF_COMMIT | SEGMENTS_DURABLE, 3)):
            self.path = self.folder / str(flags)
            builder = self.journal(0)
            changes = builder.contents([(ROOT, b"unsynced")], {0: b"not on disk"}, 11) + builder.state()
            builder.record(changes, flags=flags)
            builder.record([(b"\x7flater", b"")], flags=flags)
            builder.close(clean=False)
            self.assertEqual(self.assert_intact()[0], 3)
            with self.changed("slab/00000000", lambda data: data.__delitem__(slice(10, None))):
                reading, findings = observe(self.path)
                self.assertEqual(reading and reading[0], commit)
                self.assertIn("do not open" if commit == 1 else "missing-bytes", " ".join(findings))

    def test_unsynced_segments_before_a_durable_record(self) -> None:
        """An authentic record behind the torn tail says that the commit was durable."""
        for through, commit in ((0, 1), (2, 2)):
            self.path = self.folder / str(through)
            builder = self.journal(0)
            changes = builder.contents([(ROOT, b"unsynced")], {0: b"not on disk"}, 11) + builder.state()
            builder.record(changes, flags=LAST_OF_COMMIT)
            lost = len(builder.current().data) + 4095 & -4096
            builder.record([(b"\x7flost", b"")])
            builder.record([(b"\x7flater", b"")], durable=through)
            builder.close(clean=False)
            (self.path / "slab/00000000").write_bytes(b"")
            with self.changed(self.name, lambda data: data.__setitem__(lost, 0)):
                reading, findings = observe(self.path)
                self.assertEqual(reading and reading[0], commit, findings)

    def test_old_segments_are_no_reason_to_drop_a_commit(self) -> None:
        builder = self.journal(0)
        builder.record(builder.contents([(ROOT, b"file")], {0: b"contents"}, 8) + builder.state())
        inode = number_key(INODE, builder.next_file - 1)
        changes: list[Change] = [(inode, builder.catalog[inode][:3] + b"\0\0" + builder.catalog[inode][5:])]
        builder.record(changes, flags=LAST_OF_COMMIT)
        builder.close(clean=False)
        with self.changed("slab/00000000", lambda data: data.clear()):
            reading, findings = observe(self.path)
            self.assertEqual(reading and reading[0], 3)
            self.assertEqual([finding for finding in findings if "torn" in finding], [])


class GenerationTests(TestCase):
    """Tables, the second copy, and checkpoints that did not end."""

    def test_second_copy(self) -> None:
        builder = self.tree()
        intact = self.assert_intact()
        newest, older = (f"catalog/{generation.tables[0].id.hex()}" for generation in builder.generations)
        for name, words in ((newest, "generation 2 is not usable"), (older, "generation 1")):
            for change in (
                lambda data: data.__setitem__(60, data[60] ^ 1),
                lambda data: data.__delitem__(-1),
                lambda data: data.append(0),
                lambda data: data.clear(),
            ):
                with self.changed(name, change):
                    reading, findings = observe(self.path)
                    self.assertEqual(reading, intact)
                    self.assertIn(words, findings[0])
                    self.assertFalse([finding for finding in findings if "another state" in finding])
        (self.path / newest).unlink()
        self.assertEqual(observe(self.path)[0], intact)
        (self.path / older).unlink()
        self.assert_refused("damage")

    def test_pending_generation(self) -> None:
        """It has no tables, and the current journal is under its key."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.start_generation(complete=False)
        builder.start_journal()
        builder.record([(b"\x7fduring the checkpoint", b"")])
        builder.close(clean=False)
        self.assertEqual(self.assert_intact()[0], 5)

    def test_malformed_body(self) -> None:
        """What only a holder of the root key can make."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.start_generation(complete=False)
        pending, newest, older = builder.generations
        builder.close()
        self.assert_intact()
        for generations in (
            [replace(pending, commit=4), newest, older],
            [replace(pending, tables=newest.tables), newest, older],
            [pending, replace(newest, complete=False, commit=0, tables=[]), older],
            [replace(pending, number=9), replace(pending, number=8), newest],
            [newest, replace(older, complete=False, commit=0, tables=[])],
            [older, newest],
            [newest, newest],
            [replace(newest, epoch=9), older],
            [older],
            [pending],
        ):
            builder.generations[:] = generations
            if builder.current().generation not in [generation.number for generation in generations]:
                builder.journal = replace(builder.current(), generation=99)
            with mock.patch.object(builder, "write_journal"):
                builder.close()
            self.assert_refused("altered")

    def test_pins(self) -> None:
        """The entry pin is let go when the pin of the commit is held."""
        self.tree()
        with open_container(self.path, RAW_SECRET), contextlib.closing(Lock(self.path / "lock")) as other:
            held = [byte for byte in range(8) if other.is_held(ENTRY_BYTE + byte)]
        self.assertEqual(held, [1 + 4])

    def test_no_journal(self) -> None:
        for container_format, size in ((1, 321), (2, 244)):  # the page's worked example
            self.path = self.folder / str(container_format)
            builder = Builder(self.path, container_format=container_format)
            builder.catalog[number_key(INODE, ROOT)] = builder.inode(2)
            builder.catalog.update(builder.state()[:1])  # type: ignore[arg-type]
            builder.start_generation()
            builder.close()
            self.assertEqual(self.assert_intact()[0], 0)
            table = builder.generations[0].tables[0]
            self.assertEqual((table.size, table.footer_length), (size, 39))
        end = End(0, 0, bytes(16), 1)
        builder.journal = replace(JournalDraft(bytes(16), 0, bytes(16)), end=end)
        builder.write_superblock(builder.slot(clean=True))
        self.assert_refused("altered")

    def test_several_tables_and_tombstones(self) -> None:
        builder = Builder(self.path)
        builder.catalog[number_key(INODE, ROOT)] = builder.inode(2)
        builder.catalog.update(builder.state())  # type: ignore[arg-type]
        builder.catalog[b"\x7fold"], builder.catalog[b"\x7fkept"] = b"old", b"kept"
        builder.start_generation()
        generation = builder.generations[0]
        generation.tables.insert(0, builder.table(generation, [(b"\x7fnew", b"new"), (b"\x7fold", None)]))
        builder.close()
        catalog = self.assert_intact()[1]
        self.assertEqual(sorted(key for key in catalog if key[:1] == b"\x7f"), [b"\x7fkept", b"\x7fnew"])

    def test_malformed_tables(self) -> None:
        """Authentic tables that are not as the page says."""
        entries: list[Change] = [(b"\x7f%d" % number, b"value") for number in range(5)]
        tables: list[Callable[[Builder, Generation], Table]] = [
            lambda builder, generation: builder.table(generation, [(b"\x7f2", b""), (b"\x7f1", b"")]),
            lambda builder, generation: builder.table(generation, [(b"\x7f", b""), (bytes([0x7f]) * 601, b"")]),
            lambda builder, generation: builder.table(generation, [(b"\x7f", b""), (b"", b"")]),
            lambda builder, generation: builder.table(generation, [(b"\x7f", bytes(32769))]),
            lambda builder, generation: replace(builder.table(generation, entries), footer_length=1),
            lambda builder, generation: replace(builder.table(generation, entries), footer_length=1 << 25),
            lambda builder, generation: builder.table(generation, [(b"\x7f2", b""), (b"\x7f3", None)]),
            lambda builder, generation: builder.table(generation, [*entries, (b"\x7f1", b"")]),
            lambda builder, generation: replace(builder.table(generation, entries), secret=bytes(31) + b"1"),
            lambda builder, generation: replace(builder.table(generation, entries), secret=bytes(32), epoch=0),
        ]

        def ordered(order: str, builder: Builder, generation: Generation) -> Table:
            return builder.table(generation, [(b"\x7f" + name.encode(), b"") for name in order])

        # Blocks out of order, index blocks out of order, and a block with a key that belongs to the next.
        tables += [functools.partial(ordered, order) for order in ("345012", "345678012", "0143")]
        in_a_block = {0, 1, 2, 3, 6, 7, 12, 15, 16, 19}
        edits: list[Callable[[int, bytes], bytes]] = [
            lambda kind, data: data if kind != 3 else u64(6) + data[8:],  # entries
            lambda kind, data: data if kind != 3 else data[:8] + u64(3) + data[16:],  # data blocks
            lambda kind, data: data if kind != 2 else data[:4] + data[4:-1] + b"X",  # first key
            lambda kind, data: data if kind != 3 else data[:-1] + b"X",  # first key
            lambda kind, data: data if kind != 2 else data[:4] + u64(1 << 63) + data[12:],  # offset
            lambda kind, data: data if kind != 3 else data[:24] + u64(1 << 63) + data[32:],  # offset
            lambda kind, data: data if kind != 1 else bytes(4),  # no entries
            lambda kind, data: data + b"\0",
            lambda kind, data: {2: u32(1) + data[4:20], 3: u64(3) + u64(1) + data[16:]}.get(kind, data),  # a gap
        ]

        def edited(change: Callable[[int, bytes], bytes], builder: Builder, generation: Generation) -> Table:
            return builder.table(generation, entries, edit=change)

        tables += [functools.partial(edited, change) for change in edits]
        for number, make in enumerate(tables):
            self.path = self.folder / str(number)
            builder = Builder(self.path)
            builder.start_generation()
            generation = builder.generations[0]
            generation.tables[:] = [make(builder, generation)]
            builder.close()
            # Damage of one block does not keep the rest from being read.
            reading, findings = observe(self.path)
            self.assertEqual(reading is None, number not in in_a_block, (number, findings))
            self.assertTrue(findings[0].startswith("damage: ") and "table " in findings[0], (number, findings))

    def test_empty_table(self) -> None:
        builder = Builder(self.path)
        builder.start_generation()
        generation = builder.generations[0]
        generation.tables[:] = [builder.table(generation, [])]
        builder.close()
        with open_container(self.path, RAW_SECRET) as container:
            self.assertEqual(container.state.catalog.groups, {})


class SharedTableTests(TestCase):
    """Generations that share tables, of which there is no second copy."""

    def layers(self) -> tuple[Builder, list[Change]]:
        """The container of build_layers."""
        builder = Builder(self.path)
        last = build_layers(builder)
        builder.close()
        return builder, last

    def test_tombstones_and_merging(self) -> None:
        builder, _ = self.layers()
        newest, older = builder.generations
        self.assertEqual((len(newest.tables), newest.tables[1:]), (3, older.tables))
        self.assertIn(None, builder.table_entries[newest.tables[0].id].values())
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        for shared in (3, 4, 2, 1, 0):
            builder.start_generation(shared=shared)
            builder.drop_generations()
            self.assertEqual(len(builder.generations[0].tables), shared + 1)
            builder.start_journal()
            builder.record([(b"\x7fof merge %d" % shared, b"")])
            builder.close()
            self.assertEqual(flat(self.assert_intact()), builder.catalog)

    def test_damaged_blocks(self) -> None:
        """What newer tables and commits say of their keys still counts; what older tables say does not."""
        builder = Builder(self.path)
        last = dict(build_layers(builder))
        builder.drop_generations(kept=1)
        builder.close()
        tables = builder.generations[0].tables
        blocks = [self.blocks(builder, table) for table in tables]
        self.assertGreater(len(blocks[2]), 2)
        keys = set().union(last, *(builder.table_entries[table.id] for table in tables))
        single = [{(level, block)} for level in range(3) for block in range(len(blocks[level]))]
        pairs = [one | other for one in single for other in single if one != other]
        for lost in single + pairs:
            with contextlib.ExitStack() as stack:
                for level, block in lost:
                    name = f"catalog/{tables[level].id.hex()}"
                    stack.enter_context(self.changed(name, xor(blocks[level][block][0] + 30)))
                with open_container(self.path, RAW_SECRET) as container:
                    self.assertEqual(len(container.findings), len(lost))
                    self.assertTrue(all("in part lost" in finding.text for finding in container.findings))
                    for key in keys:
                        if key not in last and self.is_lost(builder, key, lost, blocks):
                            with self.assertRaises(Damage):
                                container.state.catalog.get(key)
                        else:
                            self.assertEqual(container.state.catalog.get(key), builder.catalog.get(key))

    def blocks(self, builder: Builder, table: Table) -> list[tuple[int, bytes, bytes | None]]:
        """Offset and first key of each data block, and the first key of the next."""
        entries = builder.table_entries[table.id]
        keys = sorted(entries)
        found: list[tuple[int, bytes, bytes | None]] = []
        offset = 0
        for start in range(0, len(keys), 3):
            block = keys[start : start + 3]
            found.append((offset, block[0], keys[start + 3] if start + 3 < len(keys) else None))
            offset += 4 + sum(1 + 2 + len(key) + 4 + len(entries[key] or b"") for key in block) + 41
        return found

    def is_lost(
        self,
        builder: Builder,
        key: bytes,
        lost: set[tuple[int, int]],
        blocks: list[list[tuple[int, bytes, bytes | None]]],
    ) -> bool:
        """A look-up as the page has it: from the newest table on, the first that has the key decides."""
        for level, table in enumerate(builder.generations[0].tables):
            for block, (_, first, end) in enumerate(blocks[level]):
                if (level, block) in lost and first <= key and (end is None or key < end):
                    return True
            if key in builder.table_entries[table.id]:
                return False
        return False

    def test_damaged_index_block(self) -> None:
        """It stands for all its data blocks, of which it has two here."""
        builder = Builder(self.path)
        last = dict(build_layers(builder))
        builder.close()
        tables = builder.generations[0].tables
        blocks = [self.blocks(builder, table) for table in tables]
        level, oldest = len(tables) - 1, tables[-1]
        self.assertIn(len(blocks[level]), (3, 4))
        footer = oldest.size - oldest.footer_length - 41
        first, second = 4 + 2 * 14, 4 + (len(blocks[level]) - 2) * 14
        first += sum(len(key) for _, key, _ in blocks[level][:2]) + 41
        second += sum(len(key) for _, key, _ in blocks[level][2:]) + 41
        for place, lost in ((footer - second - first, range(2)), (footer - second, range(2, len(blocks[level])))):
            with self.changed(f"catalog/{oldest.id.hex()}", xor(place)):
                with open_container(self.path, RAW_SECRET) as container:
                    self.assertIn("in part lost", container.findings[0].text)
                    for key in builder.table_entries[oldest.id]:
                        if key not in last and self.is_lost(builder, key, {(level, block) for block in lost}, blocks):
                            with self.assertRaises(Damage):
                                container.state.catalog.get(key)
                        else:
                            self.assertEqual(container.state.catalog.get(key), builder.catalog.get(key))

    def test_tables_that_are_lost(self) -> None:
        """Without its footer a table is nothing."""
        builder, _ = self.layers()
        for table in builder.generations[1].tables:
            name = f"catalog/{table.id.hex()}"
            for change in (xor(table.size - 30), lambda data: data.append(0), lambda data: data.__delitem__(-1)):
                with self.changed(name, change):
                    self.assert_refused("damage")
            (self.path / name).rename(self.folder / "away")
            self.assert_refused("damage")
            (self.folder / "away").rename(self.path / name)

    def test_second_copy(self) -> None:
        """The newest table is not shared; without it the generation before leads to the same state."""
        builder, _ = self.layers()
        intact = self.assert_intact()
        newest, middle, oldest = (f"catalog/{table.id.hex()}" for table in builder.generations[0].tables)
        for change in (xor(30), xor(-30), lambda data: data.append(0), lambda data: data.clear()):
            with self.changed(newest, change):
                reading, findings = observe(self.path)
                self.assertEqual(reading, intact)
                self.assertIn("generation 4 is not usable", findings[0])
                with self.changed(oldest, xor(30)):
                    reading, findings = observe(self.path)
                    self.assertEqual(reading and reading[0], intact[0])
                    self.assertIn("generation 4 is not usable", findings[0])
                    self.assertIn("generation 3, in part lost", findings[1])
                with self.changed(middle, xor(-30)):
                    self.assert_refused("damage")

    def test_commands_go_on_without_what_is_lost(self) -> None:
        builder, _ = self.layers()
        (self.folder / "key").write_bytes(RAW)
        reader = [sys.executable, str(HERE / "read_container.py"), str(self.path), f"--key-file={self.folder / 'key'}"]
        oldest = builder.generations[0].tables[-1]
        with self.changed(f"catalog/{oldest.id.hex()}", xor(30)):
            listing = subprocess.run([*reader, "ls"], capture_output=True, check=False)
            self.assertEqual(listing.returncode, 1)
            self.assertIn(b"keys of 100000000000000001 are lost", listing.stderr)
            verification = subprocess.run([*reader, "verify"], capture_output=True, check=False)
            self.assertEqual((verification.returncode, verification.stdout[-8:]), (1, b"damaged\n"))

    def test_second_copy_of_another_state(self) -> None:
        for committed, words in ((False, "leads to another state at key 7f78"), (True, "leads to commit 4")):
            self.path = self.folder / words
            builder = Builder(self.path)
            build_tree(builder)
            if not committed:
                builder.catalog[b"\x7fx"] = b"in no journal"
            builder.start_generation(shared=1)
            if committed:
                builder.generations[0] = replace(builder.generations[0], commit=5)
            builder.drop_generations()
            builder.close()
            reading, findings = observe(self.path)
            self.assertTrue(reading)
            self.assertEqual(findings, [f"damage: generation 2: {words}"])

    def test_keys_of_tables(self) -> None:
        """A table opens with the secret, the id and the epoch of its entry, and with no other."""
        builder, _ = self.layers()
        newest, older = builder.generations
        table, other = newest.tables[:2]
        for wrong in (replace(table, secret=other.secret), replace(table, secret=bytes(32), epoch=0)):
            builder.generations[:] = [replace(newest, tables=[wrong, *newest.tables[1:]]), older]
            builder.write_superblock(builder.slot(clean=True))
            reading, findings = observe(self.path)
            self.assertTrue(reading)
            self.assertIn("generation 4 is not usable", findings[0])

        def second_epoch(body: bytes) -> bytes:
            epochs = body[16:56] + u32(EPOCH + 1) + bytes(4) + expand("another epoch", 32)
            body = body[:12] + u32(2) + epochs + body[16 + len(epochs) :]
            return body[:764] + u32(EPOCH + 1) + body[768:]  # of the newest generation's newest table

        builder.generations[:] = [newest, older]
        builder.write_superblock(builder.slot(clean=True, edit=lambda body: second_epoch(body)[:764] + body[764:]))
        self.assert_intact()
        builder.write_superblock(builder.slot(clean=True, edit=second_epoch))
        self.assertIn("generation 4 is not usable", observe(self.path)[1][0])

    def test_malformed_body(self) -> None:
        builder, _ = self.layers()
        newest, older = builder.generations
        tables = newest.tables
        for wrong in (
            [tables[0], tables[1], tables[0]],
            [tables[0], replace(tables[0], secret=tables[1].secret)],
            [replace(tables[0], epoch=EPOCH + 1), *tables[1:]],
            [replace(tables[0], epoch=0), *tables[1:]],
            [replace(tables[0], secret=bytes(32)), *tables[1:]],
        ):
            builder.generations[:] = [replace(newest, tables=wrong), older]
            builder.write_superblock(builder.slot(clean=True))
            self.assert_refused("altered")
        builder.generations[:] = [newest, older]

        def put(at: int, data: bytes) -> Callable[[bytes], bytes]:
            return lambda body: body[:at] + data + body[at + len(data) :]

        # Six tables, bytes of an unused table, of an unused generation, after the last field, zeros of a generation.
        unused_table, unused_generation = 736 + 80 * 3, 664 + 472 * 2
        for at, data in (
            (678, b"\6"), (unused_table, b"1"), (unused_generation, b"1"), (2144, b"1"), (2559, b"1"), (720, b"1"),
        ):
            builder.write_superblock(builder.slot(clean=True, edit=put(at, data)))
            self.assert_refused("altered")
        builder.write_superblock(builder.slot(clean=True))
        self.assert_intact()

    def test_malformed_body_of_format_1(self) -> None:
        builder = self.tree(container_format=1)

        def put(at: int, data: bytes) -> Callable[[bytes], bytes]:
            return lambda body: body[:at] + data + body[at + len(data) :]

        # Nine tables, zeros of a table's entry, of an unused one, of an unused generation, after the last field.
        for at, data in ((678, b"\11"), (764, b"1"), (736 + 48, b"1"), (664 + 456 * 2, b"1"), (2096, b"1")):
            builder.write_superblock(builder.slot(clean=True, edit=put(at, data)))
            self.assert_refused("altered")


class FixtureTests(unittest.TestCase):
    """Containers that the library wrote."""

    def test_containers(self) -> None:
        folders = sorted(path for path in (HERE / "Containers").iterdir() if path.is_dir())
        self.assertTrue(folders)
        for folder in folders:
            secret = Secret((folder / "key").read_bytes(), (RAW_KEY,))
            with open_container(folder / "container", secret) as container:
                verify(container)
                self.assertFalse([finding.text for finding in container.findings if finding.is_serious])
                contents = {
                    os.fsdecode(path): b"".join(container.file(file_id, inode).contents(container.stored))
                    for path, file_id, inode in container.state.catalog.tree()
                    if inode.kind == FILE_KIND
                }
            expected = folder / "expected"
            files = [path for path in expected.rglob("*") if path.is_file()]
            self.assertEqual(contents, {str(path.relative_to(expected)): path.read_bytes() for path in files})


class CheckpointTests(TestCase):
    """Generations under way, and containers that become ones of format 2."""

    def pending(self) -> Builder:
        """A pending generation and the first journal under its key."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.start_generation(complete=False)
        builder.start_journal()
        builder.record([(b"\x7fduring the checkpoint", b"1")])
        builder.close(clean=False)
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        return builder

    def test_completed(self) -> None:
        """The tables hold the state that the first journal under its key is based on."""
        for shared in (0, 1):
            self.path = self.folder / str(shared)
            builder = self.pending()
            builder.complete_generation(shared)
            builder.drop_generations()
            builder.close()
            self.assertEqual(flat(self.assert_intact()), builder.catalog)
            self.assertEqual((builder.generations[0].commit, builder.commit_number), (4, 5))

    def test_gone_on_with_after_a_crash(self) -> None:
        builder = self.pending()
        secret = builder.generations[0].secret
        builder.start_journal()
        builder.record([(b"\x7fafter the crash", b"2")])
        builder.close(clean=False)
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        builder.complete_generation(shared=1)
        builder.drop_generations()
        builder.close(clean=False)
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        self.assertEqual((builder.generations[0].secret, builder.generations[0].commit), (secret, 4))
        builder.generations[0] = replace(builder.generations[0], commit=5)
        builder.close(clean=False)
        self.assert_refused("damage")

    def test_damage_while_one_is_pending(self) -> None:
        builder = self.pending()
        intact = self.assert_intact()
        with self.changed(f"catalog/{builder.generations[1].tables[0].id.hex()}", lambda data: data.clear()):
            reading, findings = observe(self.path)
            self.assertEqual(reading, intact)
            self.assertIn("generation 2 is not usable", findings[0])
        with self.changed(f"journal/{builder.current().id.hex()}", xor(100)):
            self.assert_refused("damage")

    def test_upgrade(self) -> None:
        """The first update makes the superblock one of format 2; the next checkpoint merges the tables."""
        builder = self.tree(container_format=1)
        catalog = flat(self.assert_intact())
        old = builder.slot(clean=True)
        self.assertTrue(all(table.is_of_format_1 for item in builder.generations for table in item.tables))
        builder.upgrade()
        builder.start_journal()
        builder.write_journal()
        builder.write_superblock(builder.slot(), old)
        reading, findings = observe(self.path)
        self.assertEqual((flat(reading), findings), (catalog, ["note: superblock: one slot is older by 1"]))
        builder.record(builder.contents([(ROOT, b"of layout 2")], {0: HELLO}, len(HELLO)) + builder.state())
        builder.close()
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        layouts = {value[0] for key, value in builder.catalog.items() if key[:1] == INODE}
        self.assertEqual(layouts, {1, 2})
        tables = [generation.tables[0] for generation in builder.generations]
        with self.changed(f"catalog/{tables[0].id.hex()}", xor(30)):
            self.assertIn("generation 2 is not usable", observe(self.path)[1][0])
        for shared in (0, 1):
            builder.start_generation(shared=shared)
            builder.drop_generations()
            builder.start_journal()
            builder.record([(b"\x7fafter generation %d" % builder.generations[0].number, b"")])
            builder.close()
            self.assertEqual(flat(self.assert_intact()), builder.catalog)
        self.assertFalse({table.id for table in tables} & {t.id for item in builder.generations for t in item.tables})

    def test_table_of_format_1_under_another_generation(self) -> None:
        """Its key is not that of another generation."""
        builder = self.tree(container_format=1)
        builder.upgrade()
        builder.start_generation()
        newest, middle, _ = builder.generations
        builder.generations[:] = [replace(newest, tables=[*newest.tables, *middle.tables]), middle]
        builder.close()
        self.assertIn("generation 3 is not usable", observe(self.path)[1][0])

    def test_older_superblock(self) -> None:
        """Journals that go on after the last commit and that nothing names: the superblock was put back."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.close()
        before = (self.path / "superblock").read_bytes()
        builder.start_journal()
        builder.close(clean=False)
        (self.path / "superblock").write_bytes(before)
        # Durable before it is named, and named before its first record: this one is what a crash leaves.
        self.assertEqual([finding[:19] for finding in observe(self.path)[1]], ["note: nothing names"])
        builder.record([(b"\x7flater", b"")])
        builder.close(clean=False)
        self.assert_intact()
        (self.path / "superblock").write_bytes(before)
        reading, findings = observe(self.path)
        self.assertEqual(reading and reading[0], 4)
        self.assertTrue(findings[0].startswith("rolled back: journal"), findings)
        (self.folder / "key").write_bytes(RAW)
        command = [str(HERE / "read_container.py"), str(self.path), f"--key-file={self.folder / 'key'}", "verify"]
        verification = subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=False)
        self.assertEqual(verification.returncode, 1)
        name = f"journal/{builder.current().id.hex()}"
        for change in (xor(100), xor(4096 + 100), lambda data: data.__delitem__(slice(4096, None))):
            with self.changed(name, change):
                self.assertFalse([finding for finding in observe(self.path)[1] if finding.startswith("rolled")])

    def test_no_older_superblock(self) -> None:
        """A journal that nothing reads any more, and one that a writer is about to name."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.start_journal()
        builder.record([(b"\x7fone commit", b"")])
        builder.start_generation()
        builder.close()
        self.assertEqual(self.assert_intact()[0], 5)
        before = (self.path / "superblock").read_bytes()
        builder.start_journal()
        builder.record([(b"\x7flater", b"")])
        builder.close(clean=False)
        (self.path / "superblock").write_bytes(before)
        self.assertIn("rolled back", observe(self.path)[1][0])
        with (self.path / "lock").open("r+b") as lock:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack("@hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            self.assertNotIn("rolled back", " ".join(observe(self.path)[1]))

    def test_other_files(self) -> None:
        """A reader has nothing to do with the reserve, nor with files that it does not know."""
        self.tree()
        (self.path / "reserve").write_bytes(bytes(10000))
        (self.path / "notes.txt").write_bytes(b"of somebody else")
        (self.path / "folder").mkdir()
        self.assert_intact()


class CompactInodeTests(TestCase):
    """Inodes of layout 2."""

    secret = expand("secret", 32)
    session = expand("session", 16)

    def parse(self, data: bytes) -> Inode:
        return Inode.parse(data, "inode", newest_layout=2)

    def test_fields(self) -> None:
        extent = Extent(1 << 40, 70000, 16384, self.session, (1 << 64) - 80000, 1 << 33, 4294967294)
        lowest, highest = -(1 << 63), (1 << 63) - 1
        for times in ((TIME, TIME - 1, TIME + 64), (lowest, highest, 0), (highest, lowest, -1), (-1, 0, lowest)):
            data = compact_inode(
                1, size=(1 << 62) - 1, links=(1 << 32) - 1, secret=self.secret, tail=compact_extent(extent), flags=1,
                times=times, version=(1 << 64) - 1, epoch=(1 << 32) - 1,
            )
            inode = self.parse(data)
            self.assertEqual((inode.created, inode.modified, inode.changed), times)
            self.assertEqual((inode.kind, inode.permissions), (1, 0o640))
            self.assertEqual((inode.links, inode.size), ((1 << 32) - 1, (1 << 62) - 1))
            self.assertEqual((inode.version, inode.epoch, inode.secret), ((1 << 64) - 1, (1 << 32) - 1, self.secret))
            self.assertEqual((inode.first, inode.target), (extent, b""))
        self.assertEqual(compact_inode(2).hex()[26:30], "0000")
        self.assertEqual(len(compact_inode(2)), 19)
        link = self.parse(compact_inode(3, size=4096, tail=b"t" * 4096))
        self.assertEqual((link.size, link.target, link.first), (4096, b"t" * 4096, None))

    def test_differences(self) -> None:
        """Byte for byte: -1 is 1, 1 is 2, -64 is 127, 64 is 128."""
        for difference, coded in ((0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")):
            data = bytes([2, 2, 0]) + bytes(2) + bytes(8) + bytes.fromhex(coded) + b"\0\1\0\0\5"
            self.assertEqual(self.parse(data).modified, difference)

    def test_malformed(self) -> None:
        file = compact_inode(1, secret=self.secret)
        directory = compact_inode(2)
        extent = Extent(0, 1, 5, self.session, 1, 0)
        written = compact_inode(1, size=5, secret=self.secret, tail=compact_extent(extent), flags=1)
        for data in (file, directory, written):
            self.parse(data)
            for length in range(len(data)):
                with self.assertRaises(Damage):
                    self.parse(data[:length])
            with self.assertRaises(Damage):
                self.parse(data + b"\0")
        wrong = {
            "layout 0": b"\0" + file[1:],
            "layout 3": b"\3" + file[1:],
            "kind 0": b"\2\0" + file[2:],
            "kind 4": b"\2\4" + file[2:],
            "flags 2": b"\2\1\2" + file[3:],
            "flags 1 of a directory": b"\2\2\1" + directory[3:] + compact_extent(extent),
            "flags 1 of a link": compact_inode(3, size=1, tail=b"t" + compact_extent(extent), flags=1),
            "size of a directory": compact_inode(2, size=1),
            "secret of a directory": compact_inode(2, secret=self.secret),
            "no target": compact_inode(3),
            "long target": compact_inode(3, size=4097, tail=b"t" * 4097),
            "short target": compact_inode(3, size=2, tail=b"t"),
            "link count": compact_inode(1, links=1 << 32, secret=self.secret),
            "epoch": compact_inode(1, epoch=1 << 32, secret=self.secret),
            "slab": compact_inode(
                1, size=5, secret=self.secret, tail=compact_extent(replace(extent, slab=1 << 32)), flags=1
            ),
            "count": compact_inode(
                1, size=5, secret=self.secret, tail=compact_extent(replace(extent, count=1 << 32)), flags=1
            ),
            "extent without its flag": compact_inode(1, size=5, secret=self.secret, tail=compact_extent(extent)),
        }
        beginning, rest = directory[:13], directory[14:]
        highest = b"\xff" * 9 + b"\1"
        self.parse(beginning + highest + rest)
        for name, varint_bytes in (
            ("two bytes for 0", b"\x80\0"),
            ("three bytes for 128", b"\x80\x81\0"),
            ("ten bytes for 0", b"\x80" * 9 + b"\0"),
            ("2^64", b"\xff" * 9 + b"\2"),
            ("eleven bytes", b"\xff" * 10 + b"\1"),
        ):
            wrong[name] = beginning + varint_bytes + rest
        for name, data in wrong.items():
            with self.assertRaises(Damage, msg=name):
                self.parse(data)

    def test_in_a_container(self) -> None:
        """Verify sees to the rest, as in layout 1."""
        hello = number_key(INODE, 3)

        def edit(at: int, data: bytes) -> Callable[[Builder], list[Change]]:
            def change(builder: Builder) -> list[Change]:
                value = builder.catalog[hello]
                return [(hello, value[:at] + data + value[at + len(data) :])]

            return change

        cases: list[tuple[str, Callable[[Builder], list[Change]]]] = [
            ("link count 3", edit(15, b"\3")),
            ("damaged-extent", edit(16, b"\2")),
            ("no key for epoch", edit(18, b"\7")),
            ("trailing bytes", lambda builder: [(hello, builder.catalog[hello] + b"\0")]),
            ("out of place", lambda builder: [(number_key(b"\x30", 2) + bytes(8), bytes(48))]),
        ]
        for number, (words, change) in enumerate(cases):
            self.path = self.folder / str(number)
            builder = Builder(self.path)
            build_tree(builder)
            builder.record(change(builder))
            builder.close()
            self.assertIn(words, "\n".join(observe(self.path)[1]))


class CatalogTests(TestCase):
    """What verify finds in a catalog that is authentic and wrong. Inodes of layout 1 have fields at fixed places."""

    def findings(self, change: Callable[[Builder], list[Change]], container_format: int = 1) -> str:
        """What is found when a commit makes that change."""
        self.path = self.folder / str(len(list(self.folder.iterdir())))
        builder = Builder(self.path, container_format=container_format)
        build_tree(builder)
        builder.record(change(builder))
        builder.close()
        reading, findings = observe(self.path)
        self.assertTrue(reading)
        return "\n".join(findings)

    def test_intact(self) -> None:
        for container_format in (1, 2):
            self.assertEqual(self.findings(lambda builder: [], container_format), "")

    def test_wrong(self) -> None:
        hello, holey = number_key(INODE, 3), number_key(INODE, 5)

        def edit(key: bytes, at: int, data: bytes) -> Callable[[Builder], list[Change]]:
            def change(builder: Builder) -> list[Change]:
                value = builder.catalog[key]
                return [(key, value[:at] + data + value[at + len(data) :])]

            return change

        self.assertIn("link count 3", self.findings(edit(hello, 4, b"\3")))
        self.assertIn("layout 2", self.findings(edit(hello, 0, b"\2")))
        self.assertIn("differ in kind", self.findings(edit(number_key(b"\x10", ROOT) + b"hello", 0, b"\3")))
        self.assertIn("damaged-extent", self.findings(edit(hello, 8, b"\x0c")))
        self.assertIn("out of place", self.findings(edit(holey, 96, b"\x04")))
        self.assertIn("not-authentic at grain 0", self.findings(edit(hello, 60, b"\xff\xff")))
        self.assertIn("no key for epoch", self.findings(edit(hello, 48, b"\7")))
        self.assertIn("bytes are live", self.findings(edit(b"\x50\0\0\0\0", 0, b"\xff")))
        self.assertIn("extents end at", self.findings(edit(b"\x50\0\0\0\0", 8, b"\0\0\0")))
        self.assertIn("file id", self.findings(edit(b"\x01", 0, b"\2")))
        self.assertIn("out of place", self.findings(lambda builder: [(number_key(b"\x30", 2) + bytes(8), bytes(48))]))
        orphan = number_key(b"\x30", 99) + bytes(8)
        self.assertIn("without an inode", self.findings(lambda builder: [(orphan, bytes(48))]))
        self.assertIn("no inode", self.findings(lambda builder: [(hello, None)]))
        self.assertIn("a name", self.findings(lambda builder: [builder.entry(ROOT, b"..", 1, 3)]))
        self.assertIn("two entries", self.findings(lambda builder: [builder.entry(2, b"loop", 2, 2)]))
        self.assertIn("no state", self.findings(lambda builder: [(b"\x01", None)]))
        self.assertIn("live bytes 0", self.findings(lambda builder: [(b"\x50\0\0\0\7", u64(0) + u64(4096))]))
        self.assertIn("end 67108865", self.findings(edit(b"\x50\0\0\0\0", 8, u64(67108865))))
        self.assertIn("length of the target 0", self.findings(lambda builder: builder.link(ROOT, b"nowhere", b"")))
        self.assertIn("link count 0", self.findings(edit(number_key(INODE, 2), 4, b"\0")))
        self.assertIn("0 entries", self.findings(lambda builder: [(number_key(INODE, 6), builder.inode(2, links=0))]))
        self.assertIn("a key of type 20", self.findings(lambda builder: [(number_key(INODE, 3) + b"\0", bytes(96))]))
        self.assertIn("a key of type 50", self.findings(lambda builder: [(b"\x50\0", b"")]))
        self.assertIn("damaged-extent at grain 0", self.findings(edit(hello, 8, u64(1 << 62))))

    def test_allowed(self) -> None:
        """What looks odd and is right."""

        def open_and_removed(builder: Builder) -> list[Change]:
            builder.next_file = 7
            return [(number_key(INODE, 6), builder.inode(1, links=0)), *builder.state()]

        def another_epoch(builder: Builder) -> list[Change]:
            value = builder.catalog[number_key(INODE, 2)]
            return [(number_key(INODE, 2), value[:48] + b"\7" + value[49:])]

        self.assertEqual(self.findings(open_and_removed), "")
        self.assertEqual(self.findings(another_epoch), "")


class DeliveryTests(TestCase):
    """What verify finds in records of messages that arrived, that wait for a handler, and that wait to be sent."""

    SENDER = b"com.example"
    FROM = SENDER + bytes(1) + b"i" * 16
    DIRECTORY = b"/Inbox/com.example/20260101T000000.000Z"

    def queued(
        self, length: int = 3, files: int = 2, sender: bytes = SENDER, directory: bytes = DIRECTORY, zero: bytes = bytes(3)
    ) -> bytes:
        """The value of type 78."""
        return u64(TIME) + bytes(16) + u32(length) + zero + bytes([len(sender)]) + u64(files) + sender + directory

    def sound(self, builder: Builder) -> list[Change]:
        """Some of everything, and all of it right. File 3 has a version in the outbox."""
        builder.next_file = 60
        places = b"".join(varint(size) + varint(len(place)) + place for size, place in ((300, b"a"), (0, b"d/\xc3\xbc")))
        large = bytes(40_000)
        inode = builder.catalog[number_key(INODE, 3)]
        size = Inode.parse(inode, "file", newest_layout=2).size
        return [
            (b"\x60" + self.FROM, u64(5) + u64(TIME)),
            (number_key(b"\x61" + self.FROM, 5), bytes([1]) + bytes(7) + u64(TIME) + bytes(16)),
            (b"\x62" + bytes([len(self.SENDER)]) + self.SENDER + b"id", u64(TIME) + u64(1) + u64(2) + self.DIRECTORY),
            (number_key(b"\x78", 50), self.queued()),
            (number_key(b"\x79", 50) + bytes(4), b"msg" + places),
            (number_key(b"\x78", 51), self.queued(len(large), 0, directory=b"")),
            (number_key(b"\x79", 51) + bytes(4), large[:32768]),
            (number_key(b"\x79", 51) + bytes(3) + b"\1", large[32768:]),
            (number_key(b"\x70", 1), bytes(8) + u64(TIME) + bytes(16) + u64(1) + u64(size) + b"com.receiver"),
            (number_key(b"\x71", 1) + bytes(4), u64(3) + u16(6) + b"/hello" + inode),
            (number_key(b"\x73", 1) + bytes(4), b"m"),
            (b"\x74", bytes(16) + u64(2)),
            (number_key(b"\x75", 3) + number_key(b"", 1) + bytes(4), b""),
            *builder.state(),
        ]

    def findings(self, changes: list[Change]) -> str:
        """What is found when a commit makes these changes."""
        self.path = self.folder / str(len(list(self.folder.iterdir())))
        builder = Builder(self.path)
        build_tree(builder)
        builder.record(self.sound(builder))
        for begin in range(0, len(changes), 8):  # a record has room for so many of the largest values
            builder.record(changes[begin : begin + 8])
        builder.close()
        reading, findings = observe(self.path)
        self.assertTrue(reading)
        return "\n".join(findings)

    def test_intact(self) -> None:
        self.assertEqual(self.findings([]), "")

    def test_keys(self) -> None:
        for key in (
            b"\x60\0" + b"i" * 16, b"\x60" + b"a" * 256 + b"\0" + b"i" * 16, b"\x61a\0" + b"i" * 16, b"\x62\1a",
            b"\x78zz", number_key(b"\x78", 50) + b"\0", number_key(b"\x79", 50), number_key(b"\x40", 3),
            number_key(b"\x40", 3) + b"n" * 256,
        ):
            self.assertIn(f"a key of type {key[:1].hex()}", self.findings([(key, b"")]))

    def test_arrivals(self) -> None:
        ledger = number_key(b"\x61" + self.FROM, 5)
        delivered = bytes([1]) + bytes(7) + u64(TIME) + bytes(16)
        request = b"\x62" + bytes([len(self.SENDER)]) + self.SENDER
        request_value = u64(TIME) + u64(1) + u64(2)
        small, contents, large = number_key(b"\x78", 50), number_key(b"\x79", 50), number_key(b"\x79", 51)
        longest = b"b/" * 127 + b"b"
        cases: list[tuple[str, bytes, bytes | None]] = [
            ("delivery floor: too short", b"\x60" + self.FROM, b"zz"),
            ("delivery floor: number 0", b"\x60" + self.FROM, u64(0) + u64(TIME)),
            ("delivery floor: trailing bytes", b"\x60" + self.FROM, u64(1) + u64(TIME) + b"\0"),
            ("delivery floor: a sender", b"\x60a/b\0" + b"i" * 16, u64(1) + u64(TIME)),
            ("delivery floor: a sender", b"\x60a\n\0" + b"i" * 16, u64(1) + u64(TIME)),
            ("delivery floor: a sender", b"\x60a\xff\0" + b"i" * 16, u64(1) + u64(TIME)),
            ("delivery 5: below its floor", b"\x60" + self.FROM, u64(6) + u64(TIME)),
            ("delivery 5: state 2", ledger, b"\2" + delivered[1:]),
            ("delivery 5: bytes that are not zero", ledger, b"\1\1" + delivered[2:]),
            ("delivery 5: trailing bytes", ledger, delivered + b"\0"),
            ("key of a delivery by request: a sender", b"\x62\1/id", request_value + self.DIRECTORY),
            ("key of a delivery by request: length", request, request_value + self.DIRECTORY),
            ("a request id that is not UTF-8", request + b"\xff", request_value + self.DIRECTORY),
            ("delivery by request: too short", request + b"x", b"q"),
            ("delivery by request: no directory", request + b"x", request_value + b"/Inbox/com.other/x"),
            ("delivery by request: no directory", request + b"x", request_value + self.DIRECTORY + b"/x"),
            ("delivery by request: no directory", request + b"x", request_value + self.DIRECTORY + b"\xff"),
            ("queued message 50: too short", small, b"short"),
            ("queued message 50: number of files", small, self.queued(files=1 << 32)),
            ("queued message 50: length 2097153", small, self.queued((2 << 20) + 1)),
            ("queued message 50: bytes that are not zero", small, self.queued(zero=b"\0\1\0")),
            ("queued message 50: a sender", small, self.queued(sender=b"..")),
            ("queued message 50: no directory", small, self.queued(directory=b"")),
            ("queued message 50: no directory", small, self.queued(files=0)),
            ("contents of queued message 50: too short", small, self.queued(5)),
            ("contents of queued message 50: too short", small, self.queued(files=3)),
            ("contents of queued message 50: trailing bytes", small, self.queued(files=1)),
            ("contents of queued message 50: too short", contents + bytes(4), None),
            ("queued message 50: a part of another length", contents + bytes(3) + b"\1", b""),
            ("queued message 50: a part of another length", contents + bytes(3) + b"\1", b"x"),
            ("queued message 50: parts are missing", contents + bytes(3) + b"\2", b"x"),
            ("queued message 51: parts are missing", large + bytes(4), None),
            ("contents of a queued message that is not there", small, None),
            ("queued message 60: its number", number_key(b"\x78", 60), self.queued(0, 0, directory=b"")),
            ("queued message 3: its number", number_key(b"\x78", 3), self.queued(0, 0, directory=b"")),
        ]
        for place in (b"a", b"", b"/b", b"b/", b"../b", b"b\7", b"\xff", b"b/" + longest):
            entries = b"msg" + varint(300) + b"\1a" + varint(1) + varint(len(place)) + place
            cases.append(("a file in a place", contents + bytes(4), entries))
        for size in ((1 << 62) - 300, (1 << 64) - 1):
            entries = b"msg" + varint(300) + b"\1a" + varint(size) + b"\1b"
            cases.append(("bytes of the files", contents + bytes(4), entries))
        for words, key, value in cases:
            self.assertIn(words, self.findings([(key, value)]))
        entries = b"msg" + varint(300) + b"\1a" + varint((1 << 62) - 301) + varint(len(longest)) + longest
        self.assertEqual(self.findings([(contents + bytes(4), entries)]), "")

    def test_outbox(self) -> None:
        message, version, part = number_key(b"\x70", 1), number_key(b"\x71", 1) + bytes(4), number_key(b"\x73", 1)
        pin = number_key(b"\x75", 3) + number_key(b"", 1) + bytes(4)

        def values(builder: Builder) -> dict[bytes, bytes | None]:
            return dict(self.sound(builder))

        builder = Builder(self.folder / "values")
        build_tree(builder)
        sound = values(builder)
        entry, pinned = sound[message], sound[version]
        assert entry and pinned
        layout_1 = bytes([1, 1]) + u16(0o640) + u32(1) + bytes(40) + u32(EPOCH) + bytes(44)
        cases: list[tuple[str, list[Change]]] = [
            ("length of the receiver 0", [(message, entry[:48])]),
            ("length of the receiver 256", [(message, entry[:48] + b"r" * 256)]),
            ("a receiver that is not UTF-8", [(message, entry + b"\xff")]),
            ("message 0: number 0", [(number_key(b"\x70", 0), entry)]),
            ("message 1: a part of another length", [(part + bytes(3) + b"\1", b"x")]),
            ("message 1: a part of another length", [(part + bytes(4), b"")]),
            ("message 1: length", [(part + u32(index)[::-1], bytes(32768)) for index in range(65)]),
            ("a pin with a value", [(pin, b"x")]),
            ("another layout", [(version, pinned[:16] + layout_1)]),
            ("a path that cannot be", [(version, u64(3) + u16(6) + b"/../ab" + pinned[16:])]),
            ("a path that cannot be", [(version, u64(3) + u16(6) + b"hello!" + pinned[16:])]),
            ("length of the path", [(version, u64(3) + u16(32001) + b"/a" * 16000 + b"a" + pinned[16:])]),
            ("file id 1", [(version, u64(1) + pinned[8:])]),
            ("never there", [(version, u64(60) + pinned[8:])]),
            ("outbox: state: too short", [(b"\x74", b"x")]),
            ("next number 0", [(b"\x74", bytes(16) + u64(0))]),
            ("the next number is in use", [(b"\x74", bytes(16) + u64(1))]),
            ("no state", [(b"\x74", None)]),
        ]
        for words, changes in cases:
            self.assertIn(words, self.findings(changes), words)


if __name__ == "__main__":
    unittest.main()
