#!/usr/bin/env python3
"""Tests the readers on the vectors, and on containers that are made by hand and then damaged."""

from __future__ import annotations

import contextlib
import errno
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
    CODE, EPOCH, RAW, TIME, WORDS, Builder, JournalDraft, encode_extent, encode_first_extent,
    encode_inode, text, u16, varint,
)
from container.catalog import (
    ATTRIBUTE, ENTRY, EXTENT, FILE_KIND, INODE, ROOT, SLAB, STATE, Inode, number_key,
)
from container.fields import ContainerError, Inconsistent, Lost
from container.journal import LAST_OF_COMMIT, SEGMENTS_DURABLE, Change
from container.locks import ENTRY_BYTE, Lock
from container.state import open_container
from container.superblock import (
    NO_END, NO_ID, PASSPHRASE, RAW_KEY, RECOVERY_CODE, Secret, Table,
)
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
NOT_CLOSED = "note: not closed: the last writer did not close the container"
HIGHEST_ID = (1 << 62) - 1

Reading = tuple[int, dict[bytes, dict[bytes, bytes]], list[str]]
Edit = Callable[[bytearray], object]


def observe(path: Path, saving: bool = False) -> tuple[Reading | None, list[str]]:
    """All that can be read from a container, and all that is reported about it."""
    try:
        with open_container(path, RAW_SECRET, accepting_older=True, saving=saving) as container:
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
            findings = [str(finding) for finding in container.findings]
            return (container.state.commit, container.state.catalog.groups, contents), findings
    except ContainerError as error:
        return None, [f"{error.kind}: {error}"]


def start(builder: Builder) -> None:
    """A root directory in the tables, and a journal."""
    builder.catalog[number_key(INODE, ROOT)] = builder.inode(2)
    builder.catalog.update(builder.state())  # type: ignore[arg-type]
    builder.start_generation()
    builder.start_journal()


def build_tree(builder: Builder) -> None:
    """A generation with two journals since: directories, two files, hard and symbolic links."""
    start(builder)
    directory, changes = builder.directory(ROOT, b"folder")
    builder.record(changes, flags=SEGMENTS_DURABLE)
    names = [(ROOT, b"hello"), (directory, b"linked")]
    builder.record(builder.contents(names, {0: HELLO}, len(HELLO)) + builder.state())
    shortcut = builder.link(ROOT, b"shortcut", b"folder/../folder/linked")
    builder.record(shortcut + builder.state(), durable=2)
    builder.start_generation(complete=False)
    builder.start_journal()
    holey = builder.contents([(directory, b"holey")], HOLEY, HOLEY_SIZE)
    builder.record(holey + builder.state())
    builder.complete_generation()
    builder.start_journal()
    builder.record([
        (b"\x7funknown type", b"ignored"), (b"\x7fother", b"deleted"), (b"\x7fother", None),
    ])


def build_layers(builder: Builder) -> list[Change]:
    """Three tables, the newest with tombstones; returns the last commit's changes."""
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
    return last


def flat(reading: Reading | None) -> dict[bytes, bytes]:
    """Keys and values of what was read."""
    assert reading
    return {
        group + rest: value for group, rests in reading[1].items() for rest, value in rests.items()
    }


def xor(at: int, bits: int = 1) -> Edit:
    """Changes one byte."""
    return lambda data: data.__setitem__(at, data[at] ^ bits)


def cut(at: int) -> Edit:
    """Leaves only the beginning."""
    return lambda data: data.__delitem__(slice(at, None))


def put(at: int, new: bytes) -> Callable[[bytes], bytes]:
    """Replaces bytes of a value."""
    return lambda data: data[:at] + new + data[at + len(new) :]


def seal_head(data: bytearray, at: int) -> None:
    """Makes the checksums of a frame right, which anybody can."""
    length = int.from_bytes(data[at + 32 : at + 36], "little") + 41
    data[at + 64 : at + 80] = kb(16, b"", bytes(data[at + 96 : at + 96 + length]))
    data[at + 80 : at + 96] = kb(16, b"", bytes(data[at : at + 80]))


class TestCase(unittest.TestCase):
    """Gives each test a directory."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "container"
        self.containers = 0

    def next_path(self) -> None:
        """Another container."""
        self.containers += 1
        self.path = self.folder / str(self.containers)

    def tree(self, clean: bool = True) -> Builder:
        """The container of build_tree."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.close(clean)
        return builder

    @contextlib.contextmanager
    def changed(self, change: Edit, *names: str) -> Iterator[None]:
        """Files of the container, changed and restored."""
        before = [(self.path / name).read_bytes() for name in names]
        for name, old in zip(names, before):
            data = bytearray(old)
            change(data)
            (self.path / name).write_bytes(data)
        yield
        for name, old in zip(names, before):
            (self.path / name).write_bytes(old)

    def assert_refused(self, kind: str, secret: Secret = RAW_SECRET) -> None:
        """The container must not open, for that reason."""
        with self.assertRaises(ContainerError) as caught:
            with open_container(self.path, secret):
                pass
        self.assertEqual(caught.exception.kind, kind, caught.exception)

    def assert_found(self, *findings: str, saving: bool = False) -> Reading:
        """These findings, by their beginnings, and no others."""
        reading, found = observe(self.path, saving)
        assert reading, found
        self.assertEqual(len(found), len(findings), found)
        for finding, beginning in zip(found, findings):
            self.assertEqual(finding[: len(beginning)], beginning, found)
        return reading

    def assert_intact(self) -> Reading:
        """Nothing may be found."""
        return self.assert_found()

    def assert_torn(self, commit: int, reason: str = "", *findings: str) -> None:
        """The state of that commit, after a torn tail was dropped."""
        reading = self.assert_found(NOT_CLOSED, "note: torn tail: dropped: ", *findings)
        self.assertEqual(reading[0], commit)
        self.assertIn(reason, observe(self.path)[1][1])


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

    def run_reader(
        self, *command: object, secret: str = "--key-file=key", status: int = 0
    ) -> bytes:
        """What the program prints."""
        reader = [sys.executable, str(HERE / "read_container.py"), str(self.path), secret]
        arguments = [*reader, *map(str, command)]
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

    def test_symbolic_links(self) -> None:
        """At most 40, an absolute target begins at the root, and nothing is above the root."""
        builder = Builder(self.folder / "links")
        start(builder)
        changes = builder.contents([(ROOT, b"file")], {0: HELLO}, len(HELLO))
        changes += builder.link(ROOT, b"0", b"/../file")
        for number in range(1, 41):
            changes += builder.link(ROOT, b"%d" % number, b"%d" % (number - 1))
        changes += builder.link(ROOT, b"loop", b"/loop")
        builder.record(changes + builder.state())
        builder.close()
        self.path = self.folder / "links"
        for name, status in (("0", 0), ("39", 0), ("40", 1), ("loop", 1)):
            expected = b"" if status else HELLO
            self.assertEqual(self.run_reader("cat", name, status=status), expected)

    def test_secrets(self) -> None:
        typed = CODE.decode().lower()
        groups = [typed[at : at + 4] for at in range(0, 32, 4)]
        typed = "-".join(groups[:4]) + " " + "-".join(groups[4:])
        (self.folder / "typed").write_text(typed + "\n")
        for name in ("words", "code", "typed"):
            secret = f"--passphrase-file={name}"
            self.assertEqual(self.run_reader("cat", "hello", secret=secret), HELLO)
        (self.folder / "nothing").write_bytes(b"")
        for secret in ("--passphrase-file=key", "--passphrase-file=nothing"):
            self.run_reader("ls", secret=secret, status=1)

    def test_extract_and_hash(self) -> None:
        target = self.folder / "out"
        self.run_reader("extract", target)
        self.assertEqual((target / "folder" / "holey").read_bytes(), HOLEY_BYTES)
        self.assertTrue((target / "hello").samefile(target / "folder" / "linked"))
        self.assertFalse(os.path.lexists(target / "shortcut"))
        self.assertEqual((target / "hello").stat().st_mode & 0o777, 0o640)
        sums = self.run_reader("hash")
        self.assertEqual(len(sums.splitlines()), 3)
        sha256sum = ["sha256sum", "--check", "--quiet"]
        check = subprocess.run(sha256sum, input=sums, cwd=target, check=False)
        self.assertEqual(check.returncode, 0)
        self.run_reader("extract", target, status=1)

    def test_info(self) -> None:
        info: dict[str, Any] = json.loads(self.run_reader("info"))
        found = [info[name] for name in ("commit", "generation", "state", "torn_tail")]
        self.assertEqual((found, len(info["journals"])), ([4, 2, "clean", None], 2))

    def test_verify(self) -> None:
        self.assertEqual(self.run_reader("verify"), b"ok\n")


class FlipTests(TestCase):
    """Each byte of what has two copies, changed: contents stay readable, and verify reports it."""

    def flip_all(self, builder: Builder, step: int = 1, silent: range = range(0)) -> None:
        """The silent bytes of the current journal are beyond its known end."""
        intact = observe(self.path)
        assert intact[0]
        current = f"/{builder.current().id.hex()}" if builder.journal else "none"
        for name in sorted(builder.live):
            if name.startswith("slab/"):
                continue
            data = (self.path / name).read_bytes()
            live = {byte for first, end in builder.live[name] for byte in range(first, end)}
            if name.endswith(current):
                live -= set(silent)
            dead = set(range(len(data))) - live
            sample = {byte for byte in live if byte % step == 0}
            sample |= {byte for byte in dead if byte % 997 == 0 or {byte - 1, byte + 1} & live}
            word = "torn" if name == "superblock" else f"damaged copy: {name}: "
            with (self.path / name).open("r+b", buffering=0) as file:
                for byte in sorted(sample):
                    os.pwrite(file.fileno(), bytes([data[byte] ^ (1 << byte % 8)]), byte)
                    reading, findings = observe(self.path)
                    os.pwrite(file.fileno(), data[byte : byte + 1], byte)
                    self.assertEqual(reading, intact[0], (name, byte, findings))
                    new = [finding for finding in findings if finding not in intact[1]]
                    if byte in live:
                        self.assertEqual(len(new), 1, (name, byte, new))
                        self.assertTrue(new[0].startswith(f"damage: {word}"), (name, byte, new))
                    else:
                        self.assertEqual(new, [], (name, byte))

    def test_small_container(self) -> None:
        builder = Builder(self.path)
        start(builder)
        builder.record(builder.contents([(ROOT, b"a")], {0: b"1"}, 1) + builder.state())
        builder.close()
        self.assert_intact()
        self.flip_all(builder)

    def test_open_container(self) -> None:
        """Beyond the known end the second copy need not be there, and is used where it is."""
        builder = Builder(self.path)
        build_tree(builder)
        journal = builder.current()
        journal.known = journal.end
        builder.record([(b"\x7fbeyond", b"")], durable=1)
        builder.record([(b"\x7fand further", b"")])
        builder.close(clean=False)
        self.assert_found(NOT_CLOSED)
        self.flip_all(builder, step=23, silent=range(journal.known.offset, len(journal.data)))

    def test_several_tables_and_a_pending_generation(self) -> None:
        builder = Builder(self.path)
        build_layers(builder)
        builder.start_generation(complete=False)
        builder.start_journal()
        builder.record([(b"\x7fduring the checkpoint", b"")])
        builder.close()
        self.assertEqual(self.assert_intact()[0], 8)
        self.flip_all(builder, step=11)

    def test_torn_tail(self) -> None:
        builder = Builder(self.path)
        build_tree(builder)
        journal = builder.current()
        journal.known = journal.end
        builder.record([(b"\x7flost", b"")], flags=SEGMENTS_DURABLE)
        journal.data = journal.data[:-1]
        builder.close(clean=False)
        self.assert_torn(4, "cut short")
        self.flip_all(builder, step=41, silent=range(journal.known.offset, len(journal.data)))

    def test_contents(self) -> None:
        """A changed byte of a slab costs its file from there on, and no other."""
        builder = self.tree()
        intact = self.assert_intact()
        for first, end in builder.live["slab/00000000"]:
            for byte in {*range(first, first + 30), *range(first, end, 499), end - 1}:
                with self.changed(xor(byte), "slab/00000000"):
                    reading = self.assert_found("damage: not authentic: file ")
                    different = set(reading[2]) - set(intact[2])
                    self.assertEqual((reading[:2], len(different)), (intact[:2], 1))
        with self.changed(cut(builder.live["slab/00000000"][-1][1] - 1), "slab/00000000"):
            self.assert_found("damage: missing bytes: file 5: grain 4")


class SuperblockTests(TestCase):
    """Choosing between the slots, and what a slot may not be."""

    def write(self, builder: Builder, edit: Callable[[bytes], bytes]) -> None:
        """A superblock whose authentic body is edited."""
        builder.write_superblock(builder.slot(edit=edit))

    def altered_slot(self, slot: bytes, at: int, new: bytes) -> bytes:
        """A slot with other bytes and a good checksum, which anybody can make."""
        slot = put(at, new)(slot)[:4064]
        return slot + kb(32, b"", slot)

    def test_torn_slots(self) -> None:
        self.tree()
        torn = "damage: torn: superblock: one slot"
        for change in (
            xor(100), xor(65536 + 100), xor(0), xor(65536), cut(4096), cut(65536 + 4095),
            lambda data: data.__setitem__(slice(65536, None), b"another magic" * 400),
        ):
            with self.changed(change, "superblock"):
                self.assert_found(torn)

        def both(data: bytearray) -> None:
            xor(100)(data)
            xor(65536 + 100)(data)

        for change in (both, cut(4000), cut(8)):
            with self.changed(change, "superblock"):
                self.assert_refused("torn")
        with self.changed(lambda data: data.extend(b"more"), "superblock"):
            self.assert_intact()

    def test_no_container(self) -> None:
        self.tree()
        for change in (cut(7), cut(0), lambda data: data.__setitem__(slice(None), bytes(69632))):
            with self.changed(change, "superblock"):
                self.assert_refused("not a container")
        (self.path / "superblock").unlink()
        self.assert_refused("not a container")

    def test_update_under_way(self) -> None:
        """A reader waits for a writer that lives, and for no other."""
        builder = self.tree()
        path = self.path / "superblock"
        whole = path.read_bytes()

        def finish() -> bool:
            path.write_bytes(whole)
            return True

        for sequences, length, kind in (((9, 10), 4000, "torn"), ((9, 9), 4096, "altered")):
            slots = [builder.slot(sequence=sequence)[:length] for sequence in sequences]
            builder.write_superblock(slots[0].ljust(4096, b"\0"), slots[1])
            self.assert_refused(kind)
            slot, _ = superblock.choose_slot(path, finish)
            self.assertEqual(slot.data, whole[:4096])

    def test_versions(self) -> None:
        builder = self.tree()
        for versions in ((3, 3, 3), (4, 3, 3), (4, 3, 4), (9, 3, 5)):
            builder.write_superblock(builder.slot(versions=versions))
            self.assert_intact()
        for versions in (
            (2, 2, 2), (3, 2, 3), (3, 2, 2), (1, 1, 1), (2, 3, 3), (3, 3, 4), (4, 3, 2), (3, 3, 0),
        ):
            builder.write_superblock(builder.slot(versions=versions))
            self.assert_refused("altered")
        wrong_key = Secret(bytes(32), (RAW_KEY,))
        good = builder.slot()
        later = builder.slot(versions=(4, 4, 4))
        for slots in ((later, later), (good, later), (later, good), (later, bytes(4096))):
            builder.write_superblock(*slots)
            self.assert_refused("unsupported format", wrong_key)
        older = self.altered_slot(builder.slot(sequence=1), 40, b"1")
        builder.write_superblock(later, older)  # that comes before fields that are wrong
        self.assert_refused("unsupported format", wrong_key)

    def test_older_slot(self) -> None:
        builder = self.tree()
        newest = builder.slot(sequence=20)
        for behind, level in ((1, "note"), (2, "damage"), (19, "damage")):
            older = builder.slot(clean=False, sequence=20 - behind)
            for slots in ((newest, older), (older, newest)):
                builder.write_superblock(*slots)
                self.assert_found(f"{level}: older slot: superblock: one slot is older by {behind}")
        older = self.altered_slot(older, 1400, b"?")
        builder.write_superblock(newest, older)
        self.assert_found("damage: older slot", "damage: altered: older slot: superblock: MAC")

    def test_one_sequence_twice(self) -> None:
        builder = self.tree()
        builder.write_superblock(builder.slot(sequence=9), builder.slot(sequence=9))
        self.assert_refused("altered")

    def test_two_containers(self) -> None:
        builder = self.tree()
        slot = builder.slot()
        other = self.altered_slot(builder.slot(), 16, b"?")
        for slots in ((slot, other), (other, slot)):
            builder.write_superblock(*slots)
            self.assert_refused("altered")
        builder.write_superblock(other, other)  # every commitment differs
        self.assert_refused("wrong key")

    def test_altered_without_a_key(self) -> None:
        """In either slot, whatever the secret."""
        builder = self.tree()
        good = builder.slot()
        for at in (14, 15, 40, 63, 64 + 1, 64 + 11, 64 + 12, 64 + 137, 64 + 480, 3945, 4031):
            wrong = self.altered_slot(builder.slot(), at, b"\xfe")
            older = self.altered_slot(builder.slot(sequence=1), at, b"\xfe")
            for slots in ((wrong, wrong), (good, wrong), (good, older), (older, good)):
                builder.write_superblock(*slots)
                self.assert_refused("altered", Secret(bytes(32), (RAW_KEY,)))

    def test_altered_with_the_key(self) -> None:
        """There is no way back to the other slot."""
        builder = self.tree()
        good = builder.slot(sequence=5)
        for at in (8, 32, 1344, 1400, 3944, 4040):
            newer = self.altered_slot(builder.slot(sequence=9), at, b"\xfe")
            for slots in ((newer, good), (good, newer)):
                builder.write_superblock(*slots)
                self.assert_refused("altered")

    def test_secrets(self) -> None:
        self.tree()
        self.assert_refused("wrong key", Secret(bytes(32), (RAW_KEY,)))
        self.assert_refused("wrong key", Secret(CODE, (PASSPHRASE,)))
        self.assert_refused("wrong key", Secret(b"", (PASSPHRASE,)))
        for secret in (Secret(CODE, (RECOVERY_CODE,)), Secret(WORDS, (PASSPHRASE,))):
            with open_container(self.path, secret):
                pass
        for code in (CODE[:-1], CODE + b"0", CODE[:-1] + b"U"):
            self.assert_refused("wrong key", Secret(code, (RECOVERY_CODE,)))
        costly = Secret(WORDS, (PASSPHRASE,), memory_kib=7)
        self.assert_refused("more memory than allowed", costly)

    def test_key_slots(self) -> None:
        builder = self.tree()
        slots = builder.key_slot_bytes
        second, last = 160, 160 * 7
        for position, value in (
            (0, 4), (1, 1), (4, 0), (4, 17), (8, 7), (11, 1), (12, 1), (137, 1), (159, 1),
            (second + 4, 1), (second + 8, 1), (last, 4), (last + 9, 1),
        ):
            builder.key_slot_bytes = put(position, bytes([value]))(slots)
            builder.write_superblock(builder.slot())
            self.assert_refused("altered")
        # The commitment covers the first 32 bytes and not the root key.
        for position, kind in ((40, "altered"), (16, "wrong key")):
            builder.key_slot_bytes = put(160 + position, b"?")(slots)
            builder.write_superblock(builder.slot())
            self.assert_refused(kind)
        for key_slot, kind in (
            (builder.key_slot(RAW_KEY, RAW, erase_secret=expand("kept elsewhere", 32)), "altered"),
            (builder.key_slot(RAW_KEY, RAW, root_key=bytes(32)), "altered"),
            (builder.key_slot(RAW_KEY, bytes(32)), "wrong key"),
        ):
            builder.key_slot_bytes = slots[:160] + key_slot + slots[320:]
            builder.write_superblock(builder.slot())
            self.assert_refused(kind)

    def test_labels(self) -> None:
        builder = self.tree()

        def label_of(number: int, data: bytes) -> Callable[[bytes], bytes]:
            return put(2048 + 64 * number, data.ljust(64, b"\0"))

        longest = "ä".encode() * 31 + b"b"
        for number, text in ((0, b"words"), (2, longest)):
            self.write(builder, label_of(number, bytes([len(text)]) + text))
            self.assert_intact()
            with open_container(self.path, Secret(RAW, (RAW_KEY,))) as container:
                self.assertEqual(container.body.labels[number].encode(), text)
        for number, data in (
            (0, bytes([64]) + b"a" * 63), (0, b"\2\xff\xff"), (0, b"\1ab"), (0, b"\0a"),
            (3, b"\1a"), (7, b"\1a"),
        ):
            self.write(builder, label_of(number, data))
            self.assert_refused("altered")
        self.write(builder, put(2047, b"a"))
        self.assert_refused("altered")

    def test_sum_of_costs(self) -> None:
        """No slot may cost more than one of 16 passes over 1 GiB, nor may all together."""
        builder = self.tree()
        slots = builder.key_slot_bytes

        def costs(*costs: tuple[int, int]) -> None:
            key_slots = [
                bytes([1, 0, 0, 0]) + u32(passes) + u32(memory) + bytes(4) + bytes(121) + bytes(23)
                for passes, memory in costs
            ]
            builder.key_slot_bytes = (slots[160:320] + b"".join(key_slots)).ljust(1280, b"\0")
            builder.write_superblock(builder.slot())

        costs((16, 1048576))
        self.assert_intact()
        costs((8, 1048576), (7, 1048576), (16, 65535), (2, 8))
        self.assert_intact()
        for wrong in (
            [(16, 1048576), (1, 8)], [(8, 1048576), (8, 1048576), (1, 8)], [(1, 1048577)],
        ):
            costs(*wrong)
            self.assert_refused("altered")

    def test_body(self) -> None:
        """What only a holder of the root key can make."""
        builder = Builder(self.path)
        build_layers(builder)
        builder.start_generation(complete=False)
        builder.close()
        self.assert_intact()
        pending, complete = 664, 664 + 472
        table = complete + 72
        unused_table, unused = table + 80 * 3, 1672
        journal, end = 1608, 1632
        for at, new in (
            (8, u32(EPOCH + 1)), (12, u32(0)), (12, u32(17)), (12, u32(2)), (16, u32(0)),
            (16 + 4, b"1"), (16 + 40, b"1"), (656, u32(0)), (656, u32(3)), (660, u32(0)),
            (660, u32(3)), (pending, u64(0)), (pending, u64(4)), (pending, u64(3)),
            (pending + 8, u32(EPOCH + 1)), (pending + 12, u16(1)), (pending + 12, u16(0)),
            (pending + 12, u16(3)), (pending + 14, u16(1)), (pending + 48, u64(1)),
            (pending + 56, b"1"), (pending + 72, b"1"), (complete + 12, u16(2)),
            (complete + 14, u16(6)), (complete + 14, u16(2)), (complete + 14, u16(4)),
            (complete + 48, u64(1 << 62)), (complete + 48, u64(99)), (complete + 56, b"1"),
            (table, bytes(16)), (table + 28, u32(EPOCH + 1)), (table + 28, u32(0)),
            (unused_table, b"1"), (complete + 471, b"1"), (journal, bytes(16)),
            (journal + 16, u64(99)), (journal + 16, u64(3)), (end + 32, u64(1)),
            (end + 32, u64(1 << 62)), (unused, b"1"), (2559, b"1"),
        ):
            self.write(builder, put(at, new))
            self.assert_refused("altered")
        self.write(builder, lambda body: put(table + 80, body[table : table + 16])(body))
        self.assert_refused("altered")

        def with_table(body: bytes) -> bytes:
            return put(pending + 72, body[table : table + 80])(put(pending + 14, u16(1))(body))

        self.write(builder, with_table)
        self.assert_refused("altered")  # a pending one with a table
        self.write(builder, lambda body: put(pending, body[complete : complete + 472])(body))
        self.assert_refused("altered")  # two that are complete
        builder.generations = [builder.generations[0]]
        builder.write_superblock(builder.slot())
        self.assert_refused("altered")  # none that is

    def test_epochs(self) -> None:
        builder = self.tree()
        second = u32(EPOCH + 1) + bytes(4) + expand("another epoch", 32)
        self.write(builder, lambda body: put(12, u32(2))(put(56, second)(body)))
        self.assert_intact()
        self.write(builder, lambda body: put(12, u32(2))(put(56, body[16:56])(body)))
        self.assert_refused("altered")

    def test_no_journal(self) -> None:
        """The worked example, and what a body without a journal may not have."""
        builder = Builder(self.path)
        builder.catalog[number_key(INODE, ROOT)] = builder.inode(2)
        builder.catalog.update(builder.state()[:1])  # type: ignore[arg-type]
        builder.start_generation()
        builder.close()
        self.assertEqual(self.assert_intact()[0], 0)
        table = builder.complete.tables[0]
        self.assertEqual((table.size, table.footer_length), (244, 39))
        self.assertEqual((self.path / "superblock").stat().st_size, 69632)
        unused = 664 + 472
        for at, new in (
            (664, u64(0)), (664 + 48, u64(1 << 62)), (unused, b"1"), (unused + 471, b"1"),
        ):
            self.write(builder, put(at, new))
            self.assert_refused("altered")
        for at in (660, 1624, 1632, 1640, 1648, 1664):
            self.write(builder, lambda body: put(at, b"\1")(body))
            self.assert_refused("altered")


class JournalTests(TestCase):
    """Ends of journals: torn, damaged, altered."""

    def journal(
        self, *durable: int, flags: int = LAST_OF_COMMIT | SEGMENTS_DURABLE, clean: bool = False,
        known: int | None = None,
    ) -> Builder:
        """A container with a commit for each "durable through"; the first frame begins at 4096."""
        builder = Builder(self.path)
        start(builder)
        for number, through in enumerate(durable):
            builder.record([(b"\x7f%d" % number, b"value")], durable=through, flags=flags)
            if number + 1 == known:
                builder.current().known = builder.current().end
        builder.close(clean)
        self.both = self.names(builder)
        return builder

    def names(self, builder: Builder) -> tuple[str, str]:
        """The two copies of the current journal."""
        name = builder.current().id.hex()
        return f"journal/{name}", f"copy/{name}"

    def test_torn_unless_durable(self) -> None:
        self.journal(0, 0, 1, 2)
        self.assert_found(NOT_CLOSED)
        third = 3 * 4096
        # Magic, id, a zero field, the checksum of the head, the payload.
        for at in (third, third + 9, third + 60, third + 90, third + 100):
            with self.changed(xor(at), *self.both):
                self.assert_torn(2)
        for at in (third, third + 8):  # frames of something else, with good checksums

            def other(data: bytearray) -> None:
                data[at] ^= 1
                seal_head(data, third)

            with self.changed(other, *self.both):
                self.assert_torn(2)
        with self.changed(xor(2 * 4096), *self.both):
            self.assert_refused("damage")
        with self.changed(cut(4 * 4096 + 50), *self.both):
            self.assert_torn(3, "cut short")
        with self.changed(cut(4 * 4096), *self.both):
            self.assertEqual(self.assert_found(NOT_CLOSED)[0], 3)

    def test_proven_by_either_copy(self) -> None:
        """Records behind the torn one are looked for in both copies."""
        self.journal(0, 0, 1, 2)
        second, third, fourth = 2 * 4096, 3 * 4096, 4 * 4096
        with self.changed(xor(second), *self.both):
            for name in self.both:
                with self.changed(cut(third), name):
                    self.assert_refused("damage")
            with self.changed(xor(fourth), *self.both):
                self.assert_torn(1)  # the third proves the first only

    def test_search_behind_does_not_need_the_chain(self) -> None:
        self.journal(0, 0, 1, 2)
        with self.changed(xor(2 * 4096), *self.both), self.changed(xor(3 * 4096), *self.both):
            self.assert_refused("damage")  # the fourth proves the second

    def test_known_end_of_an_open_container(self) -> None:
        self.journal(0, 0, 0, known=2)
        self.assert_found(NOT_CLOSED)
        with self.changed(xor(2 * 4096), *self.both):
            self.assert_refused("damage")
        with self.changed(xor(3 * 4096), *self.both):
            self.assert_torn(2)
        with self.changed(cut(2 * 4096), *self.both):
            self.assert_refused("damage")
        for name in self.both:
            with self.changed(cut(3 * 4096), name):
                self.assert_found(NOT_CLOSED)  # the second copy is durable up to the known end
            with self.changed(cut(2 * 4096), name):
                found = f"damage: damaged copy: {name}: record 2"
                self.assertEqual(self.assert_found(found, NOT_CLOSED)[0], 3)

    def test_record_from_either_copy(self) -> None:
        """A good frame in one copy is enough, whatever the other has."""
        self.journal(0, 0, 1, clean=True)
        first, second = self.both
        intact = self.assert_intact()
        with self.changed(xor(4096), first), self.changed(xor(2 * 4096), second):
            found = [f"damage: damaged copy: {name}" for name in self.both]
            self.assertEqual(self.assert_found(*found), intact)

        def alter(data: bytearray) -> None:
            data[4096 + 35] ^= 1
            seal_head(data, 4096)

        with self.changed(alter, first):
            self.assertEqual(self.assert_found(f"damage: damaged copy: {first}"), intact)
            with self.changed(xor(4096), second):
                self.assert_refused("altered")
        for name in self.both:
            (self.path / name).rename(self.folder / "away")
            self.assert_found(f"damage: damaged copy: {name}: absent")
            (self.folder / "away").rename(self.path / name)

    def test_header_is_never_torn(self) -> None:
        self.journal(0)
        for change in (xor(0), xor(100), cut(0), cut(200)):
            with self.changed(change, *self.both):
                self.assert_refused("damage")

        def alter(data: bytearray) -> None:
            data[120] ^= 1
            seal_head(data, 0)

        with self.changed(alter, *self.both):
            self.assert_refused("altered")
        for name in self.both:
            (self.path / name).unlink()
        self.assert_refused("damage")

    def test_altered(self) -> None:
        """Checksums can be made by anybody; what they cover has to open then."""
        self.journal(0, 0, 1)

        def alter(at: int) -> Edit:
            def change(data: bytearray) -> None:
                data[2 * 4096 + at] ^= 16
                seal_head(data, 2 * 4096)

            return change

        # Number, N out of range, zero fields, previous tag, header and ciphertext of the message.
        for at in (24, 34, 36, 40, 56, 100, 96 + 25):
            with self.changed(alter(at), *self.both):
                self.assert_refused("altered")
            with self.changed(alter(at), self.both[0]), self.changed(xor(2 * 4096), self.both[1]):
                self.assert_refused("altered")

        def repeat(data: bytearray) -> None:
            data[2 * 4096 : 3 * 4096] = data[4096 : 2 * 4096]

        with self.changed(repeat, *self.both):
            self.assert_refused("altered")
        with self.changed(lambda data: data.__delitem__(slice(4096, 8192)), *self.both):
            self.assert_refused("altered")

    def test_clean_end_is_exact(self) -> None:
        self.journal(0, 0, clean=True)
        self.assert_intact()
        for change in (cut(2 * 4096), xor(4200)):
            with self.changed(change, *self.both):
                self.assert_refused("damage")
        for change in (lambda data: data.extend(b"ignored" * 1000), xor(5000)):
            with self.changed(change, *self.both):
                self.assert_intact()
        twice: Edit = lambda data: data.__setitem__(slice(8192, None), data[4096:8192])
        with self.changed(twice, *self.both):
            self.assert_refused("altered")

    def test_wrong_ends(self) -> None:
        """Ends that are authentic, and others than the journal has, in both states."""
        for clean in (True, False):
            self.next_path()
            builder = self.journal(0, 0, clean=clean, known=2)
            right = builder.current().end
            for kind, wrong in (
                ("altered", replace(right, offset=right.offset + 1)),
                ("altered", replace(right, tag=bytes(16))),
                ("altered", replace(right, commit=1)),
                ("altered", replace(right, number=1)),
                ("damage", replace(right, number=3)),
            ):
                builder.current().end = builder.current().known = wrong
                builder.write_superblock(builder.slot(clean))
                self.assert_refused(kind)

    def test_base_commit(self) -> None:
        """The oldest journal goes on from the tables, each other from its predecessor."""
        for predecessor, kind in ((False, "damage"), (True, "altered")):
            self.path = self.folder / kind
            builder = Builder(self.path)
            start(builder)
            builder.record([])
            if not predecessor:
                builder.start_generation()
            builder.commit_number += 1
            if builder.journal:
                builder.journal.end = replace(builder.journal.end, commit=2)
            builder.start_journal()
            builder.close(clean=False)
            self.assert_refused(kind)

    def test_circle(self) -> None:
        builder = self.journal()
        first, second = builder.current(), JournalDraft(builder.random(16), 1, builder.random(16))
        for journal, other in ((first, second), (second, first)):
            header = u32(1) + u32(0) + journal.session + u64(1) + u64(TIME)
            header += other.id + u64(1) + NO_END.encode()
            data = builder.frame(0, header.ljust(128, b"\0"), NO_ID, journal)
            builder.write_twice("journal", journal.id, data, [])
        self.assertIn("its own predecessor", observe(self.path)[1][0])
        self.assert_refused("altered")

    def test_header_fields(self) -> None:
        """What only a holder of the key can write into record 0."""
        for at, new in (
            (0, u32(2)), (4, b"1"), (24, u64(2)), (40, b"1"), (56, u64(1)), (64, u64(1)),
            (72, u64(1)), (80, b"1"), (104, b"1"), (127, b"1"), (128, b"1"),
        ):
            self.next_path()
            builder = Builder(self.path)
            frame = builder.frame

            def edited(number: int, payload: bytes, *rest: Any) -> bytes:
                return frame(number, payload if number else put(at, new)(payload), *rest)

            with mock.patch.object(builder, "frame", edited):
                start(builder)
            builder.close()
            self.assert_refused("damage")

    def test_predecessor_of_a_later_generation(self) -> None:
        builder = self.journal(0)
        builder.start_generation(complete=False)
        builder.start_journal()
        builder.start_journal(generation=1)
        builder.close()
        self.assert_refused("damage")

    def test_predecessor_of_an_unknown_generation(self) -> None:
        builder = self.journal(0)
        builder.start_generation(complete=False)
        builder.start_journal()
        pending, complete = builder.generations
        builder.generations = [replace(pending, number=3), complete]
        builder.journals[builder.current().id] = 2
        builder.start_journal()
        builder.close()
        self.assert_refused("altered")

    def test_malformed_records(self) -> None:
        """What only a holder of the key can write into another record."""
        good = u64(1) + u64(0) + u64(TIME) + u32(3) + u32(1) + b"\1" + text(b"\x7f") + u32(0)
        for payload in (
            b"?", good + b"?", good[:-1], u64(2) + good[8:], u64(0) + good[8:],
            put(8, u64(1))(good), put(24, u32(4))(good), put(28, u32(0))(good),
            put(28, u32(2))(good), put(32, b"\0")(good), put(32, b"\3")(good),
            put(32, b"\3")(good)[:-4],
            good[:33] + u16(0) + u32(0), good[:33] + text(bytes(601)) + u32(0),
            good[:36] + u32(32769) + bytes(32769),
        ):
            for clean in (True, False):
                self.next_path()
                builder = Builder(self.path)
                start(builder)
                builder.append(payload)
                builder.close(clean)
                self.assert_refused("damage")
        self.next_path()
        builder = Builder(self.path)
        start(builder)
        builder.record([(b"\x7f" * 600, bytes(32768)), (b"\x7f", b""), (b"\x7fnever there", None)])
        builder.close()
        self.assert_intact()

    def test_copy_of_the_header_is_no_later_record(self) -> None:
        """Its session is where records have "durable through"."""
        builder = self.journal(0, 0, 0)
        data = builder.current().data
        builder.current().data = data[: 2 * 4096] + bytes(4096) + data[:4096]
        builder.write_journal()
        self.assert_torn(1)

    def test_changes_apply_in_order(self) -> None:
        builder = self.journal(0)
        builder.record(
            [(b"\x7fa", b"1"), (b"\x7fa", b"2"), (b"\x7fb", b"1")], flags=SEGMENTS_DURABLE
        )
        builder.record([(b"\x7fa", b"3"), (b"\x7fb", None)])
        builder.close()
        groups = self.assert_intact()[1]
        self.assertEqual(groups[b"\x7fa"], {b"": b"3"})
        self.assertNotIn(b"\x7fb", groups)

    def test_end_inside_a_step(self) -> None:
        """There is no tail to report before the next frame's offset."""
        builder = self.journal(0)
        length = len(builder.current().data)
        for extra, torn in ((1, False), (8192 - length, False), (8193 - length, True)):
            for name in self.both:
                with self.changed(lambda data: data.extend(b"x" * extra), name):
                    if torn:
                        self.assert_torn(1)
                    else:
                        self.assert_found(NOT_CLOSED)

    def test_commit_without_its_last_record(self) -> None:
        builder = self.journal(0, 0)
        builder.record([(b"\x7fhalf", b"")], flags=SEGMENTS_DURABLE)
        builder.record([(b"\x7fhalf again", b"")], flags=SEGMENTS_DURABLE)
        builder.close(clean=False)
        self.assert_torn(2, "without its last record")
        builder.current().known = builder.current().end
        for clean in (True, False):
            builder.write_superblock(builder.slot(clean))
            self.assert_refused("altered")

    def test_predecessor(self) -> None:
        """A recovery's journal names the end of the one before; what follows does not count."""
        builder = self.journal(0, 0)
        first, end = self.both, builder.current().end
        builder.start_journal()
        builder.record([(b"\x7fafter recovery", b"")])
        builder.close()
        self.assertEqual(self.assert_intact()[0], 3)
        with self.changed(lambda data: data.extend(b"torn" * 4000), *first):
            self.assert_intact()
        for change in (cut(2 * 4096), xor(end.offset - 1)):
            with self.changed(change, *first):
                self.assert_refused("damage")
            with self.changed(change, first[1]):
                self.assert_found(f"damage: damaged copy: {first[1]}: record 2")

    def test_saving_what_is_left(self) -> None:
        """The commits before damage, on demand, and the damage is reported."""
        builder = self.journal(0, 0, 0, clean=True)
        builder.start_journal()
        builder.record([])
        builder.close()
        with self.changed(xor(2 * 4096), *self.both):
            self.assert_refused("damage")
            reading, findings = observe(self.path, saving=True)
            self.assertEqual(reading and reading[0], 1)
            self.assertIn(f"damage: damage: journal {self.both[0][8:]}: record 2 of 3", findings[0])
            self.assertEqual(len(findings), 1)

    def test_saving_without_a_journal(self) -> None:
        """Nothing names those before it, so the tables are all that is left."""
        self.journal(0, clean=True)
        with self.changed(xor(0), *self.both):
            self.assert_refused("damage")
            reading, findings = observe(self.path, saving=True)
            self.assertEqual(reading and reading[0], 0)
            self.assertIn("record 0", findings[0])
            self.assertFalse([finding for finding in findings if "rolled back" in finding])

    def test_largest_record(self) -> None:
        for longer in (0, 1):
            self.next_path()
            builder = self.journal()
            head = u64(1) + u64(0) + u64(TIME) + u32(3) + u32(32)
            value = u32(32700) + bytes(32700)
            changes = b"".join(b"\1" + text(b"\x7f%02d" % at) + value for at in range(31))
            size = 1044480 - len(head) - len(changes) - 8 + longer
            builder.append(head + changes + b"\1" + text(b"\x7f") + u32(size) + bytes(size))
            builder.current().end = replace(builder.current().end, commit=1)
            builder.close()
            if longer:
                self.assert_refused("altered")
            else:
                self.assert_intact()

    def unsynced(self, flags: int) -> Builder:
        """A commit with contents, and one after it."""
        builder = self.journal(0)
        changes = builder.contents([(ROOT, b"unsynced")], {0: b"not on disk"}, 11)
        builder.record(changes + builder.state(), flags=flags)
        builder.record([(b"\x7flater", b"")], flags=flags)
        builder.close(clean=False)
        return builder

    def test_unsynced_segments(self) -> None:
        """Without flag bit 1 a commit counts only as far as its segments open."""
        synced = LAST_OF_COMMIT | SEGMENTS_DURABLE
        slab = "note: unknown file: slab/00000000"
        for flags, commit in ((LAST_OF_COMMIT, 1), (synced, 3)):
            self.next_path()
            builder = self.unsynced(flags)
            self.assertEqual(self.assert_found(NOT_CLOSED)[0], 3)
            for change in (cut(10), xor(20)):
                with self.changed(change, "slab/00000000"):
                    if commit == 1:
                        self.assert_torn(1, "segments that do not open", slab)
                    else:
                        self.assertEqual(self.assert_found(NOT_CLOSED, "damage: ")[0], 3)
            if flags == LAST_OF_COMMIT:
                for known in (builder.current().end, None):
                    if known:  # up to a known end commits count
                        builder.current().known = known
                        builder.write_superblock(builder.slot(clean=False))
                    with self.changed(cut(10), "slab/00000000"):
                        self.assertEqual(self.assert_found(NOT_CLOSED, "damage: missing")[0], 3)

    def test_unsynced_segments_beside_a_lost_table(self) -> None:
        """Nobody knows which segments are new, and none is evidence."""
        builder = self.unsynced(LAST_OF_COMMIT)
        name = builder.complete.tables[0].id.hex()
        for slab, lost, commit in ((cut(10), False, 1), (cut(10), True, 3), (cut(1 << 30), True, 3)):
            with contextlib.ExitStack() as stack:
                stack.enter_context(self.changed(slab, "slab/00000000"))
                if lost:
                    stack.enter_context(self.changed(cut(0), f"catalog/{name}", f"copy/{name}"))
                reading, findings = observe(self.path)
                self.assertEqual(reading and reading[0], commit, findings)

    def test_unsynced_segments_while_a_writer_lives(self) -> None:
        self.unsynced(LAST_OF_COMMIT)
        with self.changed(cut(10), "slab/00000000"), self.writer():
            self.assertEqual(self.assert_found("damage: missing bytes")[0], 3)

    @contextlib.contextmanager
    def writer(self) -> Iterator[None]:
        """While a writer lives."""
        with (self.path / "lock").open("r+b") as lock:
            byte = struct.pack("@hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, byte)
            yield

    def test_unsynced_segments_before_a_durable_record(self) -> None:
        """An authentic record behind the torn one proves that the commit was durable."""
        for through, commit in ((0, 1), (2, 2)):
            self.next_path()
            builder = self.journal(0)
            changes = builder.contents([(ROOT, b"unsynced")], {0: b"not on disk"}, 11)
            builder.record(changes + builder.state(), flags=LAST_OF_COMMIT)
            lost = len(builder.current().data) + 4095 & -4096
            builder.record([(b"\x7flost", b"")])
            builder.record([(b"\x7flater", b"")], durable=through)
            builder.close(clean=False)
            (self.path / "slab/00000000").write_bytes(b"")
            with self.changed(xor(lost), *self.both):
                reading, findings = observe(self.path)
                self.assertEqual(reading and reading[0], commit, findings)

    def test_unsynced_version(self) -> None:
        """Segments of a version in the outbox are its commit's, unless the file named them."""
        for file_first, torn in ((True, False), (False, True)):
            self.next_path()
            builder = self.journal(0)
            changes = builder.contents([(ROOT, b"file")], {0: b"contents"}, 8)
            inode_key = number_key(INODE, builder.next_file - 1)
            inode = dict(changes)[inode_key]
            assert inode
            if file_first:
                builder.record(changes + builder.state())
            file_id = builder.next_file - 1
            version: list[Change] = [
                (number_key(b"\x70", 1), bytes(8) + u64(TIME) + bytes(16) + u64(1) + u64(8) + u64(49) + b"r"),
                (number_key(b"\x71", 1) + bytes(4), u64(file_id) + u16(5) + b"/file" + inode),
                (number_key(b"\x75", file_id) + number_key(b"", 1) + bytes(4), b""),
                (b"\x74", u64(2)), (b"\x76r", u64(1) + bytes(16) + u64(1) + u64(0)),
            ]
            builder.record(version + builder.state(), flags=LAST_OF_COMMIT)
            builder.close(clean=False)
            self.assert_found(NOT_CLOSED)
            with self.changed(cut(0), "slab/00000000"):
                reading, findings = observe(self.path)
                self.assertEqual(reading and reading[0], 1 if torn else 3, findings)

    def test_old_segments_are_no_reason_to_drop_a_commit(self) -> None:
        builder = self.journal(0)
        builder.record(builder.contents([(ROOT, b"file")], {0: b"contents"}, 8) + builder.state())
        inode = number_key(INODE, builder.next_file - 1)
        changes: list[Change] = [(inode, put(3, b"\0\0")(builder.catalog[inode]))]
        builder.record(changes, flags=LAST_OF_COMMIT)
        builder.close(clean=False)
        with self.changed(cut(0), "slab/00000000"):
            reading = self.assert_found(NOT_CLOSED, "damage: missing bytes: file 2: grain 0")
            self.assertEqual(reading[0], 3)


class TableTests(TestCase):
    """Tables: two copies, and what is lost with a block that is whole in neither."""

    def layers(self) -> tuple[Builder, dict[bytes, bytes | None]]:
        """The container of build_layers, and its last commit."""
        builder = Builder(self.path)
        last = build_layers(builder)
        builder.close()
        return builder, dict(last)

    def names(self, table: Table) -> tuple[str, str]:
        """The two copies of a table."""
        return f"catalog/{table.id.hex()}", f"copy/{table.id.hex()}"

    def blocks(self, builder: Builder, table: Table) -> list[tuple[int, bytes, bytes | None]]:
        """Offset and first key of each data block, and the first key of the next."""
        entries = builder.table_entries[table.id]
        keys = sorted(entries)
        found: list[tuple[int, bytes, bytes | None]] = []
        offset = 0
        for first in range(0, len(keys), 3):
            block = keys[first : first + 3]
            end = keys[first + 3] if first + 3 < len(keys) else None
            found.append((offset, block[0], end))
            offset += 45 + sum(7 + len(key) + len(entries[key] or b"") for key in block)
        return found

    def index_blocks(self, builder: Builder, table: Table) -> list[int]:
        """The offset of each index block."""
        offset = table.size - table.footer_length - 41
        found: list[int] = []
        firsts = [first for _, first, _ in self.blocks(builder, table)]
        for pair in reversed([firsts[at : at + 2] for at in range(0, len(firsts), 2)]):
            offset -= 45 + sum(14 + len(first) for first in pair)
            found.insert(0, offset)
        return found

    def is_lost(
        self, builder: Builder, key: bytes, lost: set[tuple[int, int]],
        blocks: list[list[tuple[int, bytes, bytes | None]]],
    ) -> bool:
        """A look-up as on the page: from the newest table on, the first with the key decides."""
        for level, table in enumerate(builder.complete.tables):
            for block, (_, first, end) in enumerate(blocks[level]):
                if (level, block) in lost and first <= key and (end is None or key < end):
                    return True
            if key in builder.table_entries[table.id]:
                return False
        return False

    def check_lost(
        self, builder: Builder, last: dict[bytes, bytes | None], lost: set[tuple[int, int]]
    ) -> None:
        """Exactly the keys of those blocks are lost."""
        blocks = [self.blocks(builder, table) for table in builder.complete.tables]
        tables = builder.complete.tables
        keys = set(last).union(*(builder.table_entries[table.id] for table in tables))
        with open_container(self.path, RAW_SECRET) as container:
            found = {str(finding)[:22] for finding in container.findings}
            self.assertEqual(found, {"damage: damage: table "})
            for key in keys:
                if key not in last and self.is_lost(builder, key, lost, blocks):
                    with self.assertRaises(Lost):
                        container.state.catalog.get(key)
                else:
                    found_value = container.state.catalog.get(key)
                    self.assertEqual(found_value, builder.catalog.get(key))

    def test_tombstones_and_merging(self) -> None:
        builder, _ = self.layers()
        tables = builder.complete.tables
        self.assertEqual(len(tables), 3)
        self.assertIn(None, builder.table_entries[tables[0].id].values())
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        for shared in (3, 4, 2, 1, 0):
            builder.start_generation(shared=shared)
            self.assertEqual(len(builder.complete.tables), shared + 1)
            builder.start_journal()
            builder.record([(b"\x7fof merge %d" % shared, b"")])
            builder.close()
            self.assertEqual(flat(self.assert_intact()), builder.catalog)

    def test_blocks_damaged_in_one_copy(self) -> None:
        """Different blocks may be damaged in each copy."""
        builder, _ = self.layers()
        intact = self.assert_intact()
        for table in builder.complete.tables:
            first, second = self.names(table)
            places = [offset for offset, _, _ in self.blocks(builder, table)]
            places += self.index_blocks(builder, table)
            places.append(table.size - table.footer_length - 41)
            for one, other in zip(places, places[1:] + places[:1]):
                with self.changed(xor(one + 30), first), self.changed(xor(other + 30), second):
                    found = [f"damage: damaged copy: {name}: block at " for name in (first, second)]
                    self.assertEqual(self.assert_found(*found), intact)
            for name in (first, second):
                (self.path / name).rename(self.folder / "away")
                damaged = f"damage: damaged copy: {name}: "
                self.assertEqual(self.assert_found(damaged), intact)
                (self.folder / "away").rename(self.path / name)
                for change in (cut(0), cut(table.size - 1), lambda data: data.append(0)):
                    with self.changed(change, name):
                        self.assertEqual(self.assert_found(damaged), intact)

    def test_lost_blocks(self) -> None:
        """What newer tables and commits have of their keys counts, older tables not."""
        builder, last = self.layers()
        tables = builder.complete.tables
        blocks = [self.blocks(builder, table) for table in tables]
        self.assertGreater(len(blocks[2]), 2)
        single = [{(level, block)} for level in range(3) for block in range(len(blocks[level]))]
        pairs = [one | other for one in single for other in single if one != other]
        for lost in single + pairs:
            with contextlib.ExitStack() as stack:
                for level, block in lost:
                    change = xor(blocks[level][block][0] + 30)
                    stack.enter_context(self.changed(change, *self.names(tables[level])))
                self.check_lost(builder, last, lost)

    def test_lost_index_blocks_and_footers(self) -> None:
        builder, last = self.layers()
        tables = builder.complete.tables
        for level, table in enumerate(tables):
            count = len(self.blocks(builder, table))
            for number, offset in enumerate(self.index_blocks(builder, table)):
                pair = range(2 * number, min(2 * number + 2, count))
                with self.changed(xor(offset + 30), *self.names(table)):
                    self.check_lost(builder, last, {(level, block) for block in pair})
            names = self.names(table)
            found = [f"damage: damaged copy: {name}: block at " for name in names]
            for change in (xor(table.size - 30), xor(table.size - 1)):
                with self.changed(change, *names):
                    self.assertEqual(flat(self.assert_found(*found)), builder.catalog)
            for change in (cut(0), cut(table.size - 1)):
                index_block = xor(self.index_blocks(builder, table)[-1] + 30)
                with self.changed(index_block, *names), self.changed(change, *names):
                    with open_container(self.path, RAW_SECRET) as container:
                        for key in builder.table_entries[table.id].keys() - last.keys():
                            if self.is_in_newer(builder, level, key):
                                found = container.state.catalog.get(key)
                                self.assertEqual(found, builder.catalog.get(key))
                                continue
                            with self.assertRaises(Lost):
                                container.state.catalog.get(key)

    def is_in_newer(self, builder: Builder, level: int, key: bytes) -> bool:
        """Whether a newer table has a key."""
        newer = builder.complete.tables[:level]
        return any(key in builder.table_entries[table.id] for table in newer)

    def test_verify_reports_the_cause_alone(self) -> None:
        """Each block lost by itself: one finding, of the block."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.record(DeliveryTests.sound(builder))
        builder.start_generation()
        builder.close()
        self.assert_intact()
        table = builder.complete.tables[0]
        for offset in [offset for offset, _, _ in self.blocks(builder, table)]:
            with self.changed(xor(offset + 30), *self.names(table)):
                self.assert_found(f"damage: damage: table {table.id.hex()}: block at {offset}")
        for offset in self.index_blocks(builder, table):
            with self.changed(xor(offset + 30), *self.names(table)):
                self.assert_found(f"damage: damage: table {table.id.hex()}: block at {offset}")
        names = self.names(table)
        with self.changed(xor(table.size - 30), *names):
            self.assert_found(*(f"damage: damaged copy: {name}: block at " for name in names))

    def test_commands_go_on_without_what_is_lost(self) -> None:
        builder, _ = self.layers()
        (self.folder / "key").write_bytes(RAW)
        key = f"--key-file={self.folder / 'key'}"
        reader = [str(HERE / "read_container.py"), str(self.path), key]
        oldest = builder.complete.tables[-1]
        for block, words in ((0, b"keys of 100000000000000001 are lost"), (2, b"is lost")):
            offset = self.blocks(builder, oldest)[block][0]
            with self.changed(xor(offset + 30), *self.names(oldest)):
                listing = subprocess.run(
                    [sys.executable, *reader, "ls"], capture_output=True, check=False
                )
                self.assertEqual(listing.returncode, 1)
                self.assertIn(words, listing.stderr)
                verification = subprocess.run(
                    [sys.executable, *reader, "verify"], capture_output=True, check=False
                )
                lines = verification.stdout.splitlines()
                self.assertEqual((verification.returncode, len(lines)), (1, 2), lines)
                self.assertEqual(lines[1], b"damaged")

    def test_keys_of_tables(self) -> None:
        """A table opens with the secret and the epoch of its entry, and with no other."""
        builder, _ = self.layers()
        tables = builder.complete.tables
        wrong = replace(tables[0], secret=tables[1].secret)
        builder.generations = [replace(builder.complete, tables=[wrong, *tables[1:]])]
        builder.write_superblock(builder.slot())
        self.assert_found(f"damage: damage: table {wrong.id.hex()}: ")
        builder.generations = [replace(builder.complete, tables=tables)]
        second = u32(EPOCH + 1) + bytes(4) + expand("another epoch", 32)
        at = 664 + 72 + 28  # the newest table's epoch

        def other_epoch(body: bytes) -> bytes:
            return put(at, u32(EPOCH + 1))(put(12, u32(2))(put(56, second)(body)))

        builder.write_superblock(builder.slot(edit=other_epoch))
        self.assert_found(f"damage: damage: table {wrong.id.hex()}: ")

    def test_malformed(self) -> None:
        """Authentic tables that are not as the page has them; what is whole of them is read."""
        entries: list[Change] = [(b"\x7f%d" % number, b"value") for number in range(5)]
        tables: list[Callable[[Builder], Table]] = [
            lambda builder: builder.table([(b"\x7f2", b""), (b"\x7f1", b"")]),
            lambda builder: builder.table([(b"\x7f2", b""), (b"\x7f2", b"")]),
            lambda builder: builder.table([(b"\x7f", b""), (b"\x7f" * 601, b"")]),
            lambda builder: builder.table([(b"\x7f", b""), (b"", b"")]),
            lambda builder: builder.table([(b"\x7f", bytes(32769))]),
            lambda builder: builder.table([(b"\x7f%d" % at, bytes(32768)) for at in range(2)]),
            lambda builder: builder.table([(b"\x7f2", b""), (b"\x7f3", None)]),
            lambda builder: builder.table([*entries, (b"\x7f1", b"")]),
            lambda builder: builder.table(
                [(b"\x7f1", None)],
                edit=lambda kind, data: data if kind != 1 else put(4, b"\3")(data),
            ),
            lambda builder: builder.table(  # the first key is another than its block's
                entries[:1], edit=lambda kind, data: data if kind == 1 else data[:-1] + b"\0"
            ),
            lambda builder: replace(builder.table(entries), footer_length=1),
            lambda builder: replace(builder.table(entries), footer_length=1 << 25),
            lambda builder: replace(builder.table(entries), footer_length=0),
            lambda builder: replace(builder.table(entries), footer_tag=bytes(16)),
        ]

        def ordered(order: str, builder: Builder) -> Table:
            return builder.table([(b"\x7f" + name.encode(), b"") for name in order])

        # Blocks out of order, index blocks out of order, a block with a key of the next.
        tables += [functools.partial(ordered, order) for order in ("345012", "345678012", "0143")]
        edits: list[Callable[[int, bytes], bytes]] = [
            lambda kind, data: data if kind != 3 else u64(6) + data[8:],  # entries
            lambda kind, data: data if kind != 3 else data[:8] + u64(3) + data[16:],  # data blocks
            lambda kind, data: data if kind != 3 else data[:20] + b"1" + data[21:],  # zero
            lambda kind, data: data if kind != 2 else data[:-1] + b"X",  # first key
            lambda kind, data: data if kind != 3 else data[:-1] + b"X",  # first key
            lambda kind, data: data if kind != 2 else data[:4] + u64(1 << 63) + data[12:],  # offset
            lambda kind, data: data if kind != 3 else data[:24] + u64(1 << 63) + data[32:],
            lambda kind, data: data if kind != 1 else bytes(4),  # no entries
            lambda kind, data: data if kind != 2 else bytes(4),
            lambda kind, data: bytes(24) if kind == 3 else data,  # names no index block
            lambda kind, data: data + b"\0" if kind == 1 else data,
            lambda kind, data: data + b"\0" if kind == 2 else data,
            lambda kind, data: data + b"\0" if kind == 3 else data,
            lambda kind, data: data if kind != 1 else put(4, b"\3")(data),  # op
            # A gap: the index block names one data block of two.
            lambda kind, data: data if kind != 2 else u32(1) + data[4:20],
        ]

        def edited(change: Callable[[int, bytes], bytes], builder: Builder) -> Table:
            return builder.table(entries, edit=change)

        tables += [functools.partial(edited, change) for change in edits]
        for number, make in enumerate(tables):
            self.next_path()
            builder = Builder(self.path)
            builder.start_generation()
            root: Change = (number_key(INODE, ROOT), builder.inode(2))
            first = builder.table([*builder.state()[:1], root])
            if number != 6:  # the oldest table may have no tombstones
                builder.complete.tables[:] = [make(builder), first]
            else:
                builder.complete.tables[:] = [first, make(builder)]
            builder.remove_unneeded()
            builder.close()
            reading, findings = observe(self.path)
            self.assertIsNotNone(reading, number)
            self.assertTrue(findings, number)
            # A footer that is malformed in both copies is damage of these.
            words = ("damage: damage: table ", "damage: damaged copy: ")
            for finding in findings:
                self.assertTrue(finding.startswith(words), (number, findings))

    def test_empty_table(self) -> None:
        builder = Builder(self.path)
        builder.start_generation()
        builder.complete.tables[:] = [builder.table([])]
        builder.close()
        with open_container(self.path, RAW_SECRET) as container:
            self.assertEqual((container.state.catalog.groups, container.findings), ({}, []))
        builder.complete.tables[:] = []
        builder.close()
        with open_container(self.path, RAW_SECRET) as container:
            self.assertEqual((container.state.catalog.groups, container.findings), ({}, []))


class CheckpointTests(TestCase):
    """Generations under way."""

    def pending(self) -> Builder:
        """A pending generation and the first journal under its key."""
        builder = Builder(self.path)
        build_tree(builder)
        builder.start_generation(complete=False)
        builder.start_journal()
        builder.record([(b"\x7fduring the checkpoint", b"1")])
        builder.close(clean=False)
        self.assertEqual(flat(self.assert_found(NOT_CLOSED)), builder.catalog)
        return builder

    def test_completed(self) -> None:
        """The tables hold the state that the first journal under its key is based on."""
        for shared in (0, 1):
            self.next_path()
            builder = self.pending()
            builder.complete_generation(shared)
            builder.close()
            self.assertEqual(flat(self.assert_intact()), builder.catalog)
            self.assertEqual((builder.complete.commit, builder.commit_number), (4, 5))

    def test_gone_on_with_after_a_crash(self) -> None:
        builder = self.pending()
        secret = builder.generations[0].secret
        builder.start_journal()
        builder.record([(b"\x7fafter the crash", b"2")])
        builder.close()
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        builder.complete_generation(shared=1)
        builder.close()
        self.assertEqual(flat(self.assert_intact()), builder.catalog)
        self.assertEqual((builder.complete.secret, builder.complete.commit), (secret, 4))
        builder.generations = [replace(builder.complete, commit=5)]
        builder.close()
        self.assert_refused("damage")

    def test_pins(self) -> None:
        """The entry pin is released when the pin of the commit is held."""
        self.tree()
        lock = contextlib.closing(Lock(self.path / "lock"))
        with open_container(self.path, RAW_SECRET), lock as other:
            held = [byte for byte in range(8) if other.is_held(ENTRY_BYTE + byte)]
        self.assertEqual(held, [1 + 4])

    def test_without_a_lock(self) -> None:
        self.tree()
        (self.path / "lock").unlink()
        self.assert_found("note: not locked: ")
        os.mkfifo(self.path / "lock")
        self.assert_found("note: not locked: ")


class LaterStateTests(TestCase):
    """Journals that go on after the last commit and that nothing names."""

    def test_older_superblock(self) -> None:
        builder = self.tree()
        before = (self.path / "superblock").read_bytes()
        builder.start_journal()
        builder.close(clean=False)
        (self.path / "superblock").write_bytes(before)
        name = builder.current().id.hex()
        both = (f"journal/{name}", f"copy/{name}")
        unknown = [f"note: unknown file: {path}" for path in both]
        # Durable before it is named, and named before record 1: this one is what a crash leaves.
        self.assert_found(*unknown)
        builder.record([(b"\x7flater", b"")])
        builder.close(clean=False)
        self.assert_found(NOT_CLOSED)
        (self.path / "superblock").write_bytes(before)
        self.assert_refused("rolled back")
        self.assertEqual(self.assert_found("damage: rolled back: file ", *unknown)[0], 4)
        with self.changed(xor(100), *both):  # record 1 alone counts
            self.assert_refused("rolled back")
        for change in (xor(4096 + 100), cut(4096)):
            with self.changed(change, *both):
                self.assert_found(*unknown)
            for path in both:  # one copy is enough
                with self.changed(change, path):
                    self.assert_refused("rolled back")
        for path, other in (both, both[::-1]):
            (self.path / path).rename(self.folder / "away")
            self.assert_refused("rolled back")
            (self.folder / "away").rename(self.path / path)
        self.check_commands()

    def test_files_of_later_updates(self) -> None:
        """The next update's files are what a crash leaves; later ones were named by a superblock."""
        builder = self.tree()
        for folder in ("journal", "catalog", "copy"):
            for updates, is_later in ((0, False), (1, False), (2, True), (1 << 31, True), (1 << 62, False)):
                name = f"{folder}/{builder.sequence + updates:016x}{'5' * 16}"
                (self.path / name).write_bytes(b"of a state whose keys nobody has")
                if is_later:
                    self.assert_refused("rolled back")
                else:
                    self.assert_found(f"note: unknown file: {name}")
                (self.path / name).unlink()

    def check_commands(self) -> None:
        """They go on only when the older state is accepted; verify reports it in any case."""
        (self.folder / "key").write_bytes(RAW)
        key = f"--key-file={self.folder / 'key'}"
        reader = [sys.executable, str(HERE / "read_container.py"), str(self.path), key]
        for options, status in ((["ls"], 1), (["--accept-older", "ls"], 0), (["verify"], 1)):
            result = subprocess.run([*reader, *options], capture_output=True, check=False)
            self.assertEqual(result.returncode, status)
            self.assertIn(b"rolled back", result.stdout + result.stderr)

    def test_not_while_a_writer_lives(self) -> None:
        builder = self.tree()
        before = (self.path / "superblock").read_bytes()
        builder.start_journal()
        builder.record([(b"\x7flater", b"")])
        builder.close(clean=False)
        (self.path / "superblock").write_bytes(before)
        self.assert_refused("rolled back")
        with (self.path / "lock").open("r+b") as lock:
            byte = struct.pack("@hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, byte)
            self.assert_found("note: unknown file: ", "note: unknown file: ")

    def test_journals_of_others(self) -> None:
        """One that does not open, and one whose commit is not later."""
        builder = self.tree()
        other = Builder(self.folder / "other", "other")
        start(other)
        other.record([])
        other.close()
        journal = other.current()
        (self.path / "journal" / journal.id.hex()).write_bytes(journal.data)
        self.assert_found("note: unknown file: journal/")
        (self.path / "journal" / journal.id.hex()).unlink()
        builder.start_generation()  # removes the journals
        builder.close()
        self.assert_intact()


class FileTests(TestCase):
    """Files in the container's directories that are not what they should be."""

    def test_other_files(self) -> None:
        """A reader ignores the reserve, and files that it does not know."""
        self.tree()
        (self.path / "reserve").write_bytes(bytes(10000))
        (self.path / "notes.txt").write_bytes(b"of somebody else")
        (self.path / "folder").mkdir()
        self.assert_intact()

    def test_unknown_files(self) -> None:
        self.tree()
        names = [
            "journal/" + "0" * 31 + "1", "journal/x", "catalog/x", "copy/" + "0" * 31 + "a", "slab/00000007", "slab/7",
        ]
        for name in names:
            (self.path / name).write_bytes(b"?")
        self.assert_found(*(f"note: unknown file: {name}" for name in names))

    def test_directories_that_are_links(self) -> None:
        self.tree()
        for name in ("journal", "catalog", "copy", "slab"):
            (self.path / name).rename(self.folder / "away")
            (self.path / name).symlink_to(self.folder / "away")
            self.assert_refused("altered")
            (self.path / name).unlink()
            (self.folder / "away").rename(self.path / name)
        self.assert_intact()

    def test_files_that_are_not_regular(self) -> None:
        """A copy of a table or journal is taken as absent, a slab too."""
        builder = self.tree()
        kinds: list[Callable[[Path], None]] = [
            os.mkfifo, os.mkdir, lambda path: path.symlink_to(self.folder / "away"),
        ]
        names = [name for name in sorted(builder.live) if name != "superblock"]
        for make in kinds:
            for name in names:
                (self.path / name).rename(self.folder / "away")
                make(self.path / name)
                if name.startswith("slab/"):
                    self.assert_found(*(f"damage: missing bytes: file {file}" for file in (3, 5)))
                else:
                    self.assert_found(f"damage: damaged copy: {name}: absent")
                path = self.path / name
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
                (self.folder / "away").rename(self.path / name)
            (self.path / "superblock").rename(self.folder / "away")
            make(self.path / "superblock")
            self.assert_refused("not a container")
            path = self.path / "superblock"
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            (self.folder / "away").rename(self.path / "superblock")
        self.assert_intact()

    def test_sectors_that_cannot_be_read(self) -> None:
        """What the disk does not give back is read from the other copy."""
        builder = self.tree()
        intact = self.assert_intact()
        name = f"catalog/{builder.complete.tables[0].id.hex()}"
        inode = (self.path / name).stat().st_ino
        pread = os.pread

        def failing(file: int, length: int, offset: int) -> bytes:
            if os.fstat(file).st_ino == inode:
                raise OSError("a bad sector")
            return pread(file, length, offset)

        with mock.patch.object(os, "pread", failing):
            self.assertEqual(self.assert_found(f"damage: damaged copy: {name}: "), intact)

    def test_files_that_cannot_be_opened(self) -> None:
        """What is wrong with one file alone costs that copy; what others would meet ends everything."""
        builder = self.tree()
        intact = self.assert_intact()
        name = f"catalog/{builder.complete.tables[0].id.hex()}"
        system_open = os.open
        for refused in (name, "lock"):
            for number in (errno.EIO, errno.EUCLEAN, errno.EACCES, errno.EMFILE):

                def failing(path: Path, flags: int) -> int:
                    if str(path).endswith("/" + refused):
                        raise OSError(number, os.strerror(number))
                    return system_open(path, flags)

                with mock.patch.object(os, "open", failing):
                    is_common = number == errno.EMFILE or (number == errno.EACCES and refused == name)
                    if is_common:
                        self.assertRaises(OSError, observe, self.path)
                    elif refused == name:
                        found = self.assert_found(f"damage: damaged copy: {name}: absent")
                        self.assertEqual(found, intact)
                    else:
                        self.assertEqual(self.assert_found("note: not locked: "), intact)


class FixtureTests(unittest.TestCase):
    """Containers that the library wrote."""

    def test_containers(self) -> None:
        folders = sorted(path for path in (HERE / "Containers").glob("v3*") if path.is_dir())
        if not folders:
            self.skipTest("there are none of format 3 yet")
        for folder in folders:
            with self.subTest(folder.name):
                secret = Secret((folder / "key").read_bytes(), (RAW_KEY,))
                with open_container(folder / "container", secret) as container:
                    verify(container)
                    serious = [str(item) for item in container.findings if item.is_serious]
                    self.assertEqual(serious, [])
                    contents = {
                        os.fsdecode(path): b"".join(
                            container.file(file_id, inode).contents(container.stored)
                        )
                        for path, file_id, inode in container.state.catalog.tree()
                        if inode.kind == FILE_KIND
                    }
                expected = folder / "expected"
                files = [path for path in expected.rglob("*") if path.is_file()]
                self.assertEqual(
                    contents, {str(path.relative_to(expected)): path.read_bytes() for path in files}
                )


class InodeTests(TestCase):
    """The values of type 20."""

    secret = expand("secret", 32)
    session = expand("session", 16)

    def parse(self, data: bytes) -> Inode:
        """An inode."""
        return Inode.parse(data, "inode")

    def test_fields(self) -> None:
        counter, slab = (1 << 64) - 80000, (1 << 31) - 1
        extent = Extent(1 << 40, 70000, 16384, self.session, counter, 1 << 33, slab)
        lowest, highest = -(1 << 63), (1 << 63) - 1
        for times in (
            (TIME, TIME - 1, TIME + 64), (lowest, highest, 0), (highest, lowest, -1),
            (-1, 0, lowest),
        ):
            data = encode_inode(
                1, size=(1 << 62) - 1, links=(1 << 32) - 1, secret=self.secret,
                tail=encode_first_extent(extent), flags=1, times=times, version=(1 << 64) - 1,
                epoch=(1 << 32) - 1,
            )
            inode = self.parse(data)
            self.assertEqual((inode.created, inode.modified, inode.changed), times)
            self.assertEqual((inode.kind, inode.permissions), (1, 0o640))
            self.assertEqual((inode.links, inode.size), ((1 << 32) - 1, (1 << 62) - 1))
            found = (inode.version, inode.epoch, inode.secret)
            self.assertEqual(found, ((1 << 64) - 1, (1 << 32) - 1, self.secret))
            self.assertEqual((inode.first, inode.target), (extent, b""))
            tagged = put(2, b"\3")(data) + b"t" * 16
            self.assertEqual(self.parse(tagged), replace(inode, has_run_tag=True))
        self.assertEqual(encode_inode(2).hex()[26:30], "0000")
        self.assertEqual(len(encode_inode(2)), 19)
        link = self.parse(encode_inode(3, size=4096, tail=b"t" * 4096))
        self.assertEqual((link.size, link.target, link.first), (4096, b"t" * 4096, None))
        self.assertEqual(self.parse(put(3, u16(0o7777))(encode_inode(2))).permissions, 0o7777)

    def test_differences(self) -> None:
        """Byte for byte: -1 is 1, 1 is 2, -64 is 127, 64 is 128."""
        for difference, coded in ((0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")):
            data = bytes([2, 2, 0]) + bytes(10) + bytes.fromhex(coded) + b"\0\1\0\0\5"
            self.assertEqual(self.parse(data).modified, difference)

    def test_malformed(self) -> None:
        file = encode_inode(1, secret=self.secret)
        directory = encode_inode(2)
        extent = Extent(0, 1, 5, self.session, 1, 0)

        def written(flags: int = 1, more: bytes = b"", **changes: int) -> bytes:
            tail = encode_first_extent(replace(extent, **changes)) + more
            return encode_inode(1, size=5, secret=self.secret, tail=tail, flags=flags)

        tagged = written(3, b"t" * 16)
        for data in (file, directory, written(), tagged):
            self.parse(data)
            for length in range(len(data)):
                with self.assertRaises(Inconsistent):
                    self.parse(data[:length])
            with self.assertRaises(Inconsistent):
                self.parse(data + b"\0")
        first_extent = encode_first_extent(extent)
        wrong = {
            "layout 0": b"\0" + file[1:],
            "layout 1": b"\1" + file[1:],
            "layout 3": b"\3" + file[1:],
            "kind 0": b"\2\0" + file[2:],
            "kind 4": b"\2\4" + file[2:],
            "kind 4 like a directory": b"\2\4" + directory[2:],
            "flags 2": b"\2\1\2" + file[3:],
            "flags 4": b"\2\1\4" + file[3:],
            "a run tag without an extent": b"\2\1\2" + file[3:] + b"t" * 16,
            "flags 1 of a directory": b"\2\2\1" + directory[3:] + first_extent,
            "flags 1 of a link": encode_inode(3, size=1, tail=b"t" + first_extent, flags=1),
            "permissions": put(3, u16(0o10000))(file),
            "size of a directory": encode_inode(2, size=1),
            "secret of a directory": encode_inode(2, secret=self.secret),
            "size": encode_inode(1, size=1 << 62, secret=self.secret),
            "no target": encode_inode(3),
            "long target": encode_inode(3, size=4097, tail=b"t" * 4097),
            "short target": encode_inode(3, size=2, tail=b"t"),
            "NUL in the target": encode_inode(3, size=3, tail=b"a\0b"),
            "link count": encode_inode(1, links=1 << 32, secret=self.secret),
            "epoch": encode_inode(1, epoch=1 << 32, secret=self.secret),
            "slab": written(slab=1 << 31),
            "count": written(count=1 << 32),
            "count 0": written(count=0),
            "last length 0": written(last_length=0),
            "last length": written(last_length=16385),
            "extent without its flag": written(0),
        }
        beginning, rest = directory[:13], directory[14:]
        self.parse(beginning + b"\xff" * 9 + b"\1" + rest)
        for name, coded in (
            ("two bytes for 0", b"\x80\0"),
            ("three bytes for 128", b"\x80\x81\0"),
            ("ten bytes for 0", b"\x80" * 9 + b"\0"),
            ("2^64", b"\xff" * 9 + b"\2"),
            ("eleven bytes", b"\xff" * 10 + b"\1"),
        ):
            wrong[name] = beginning + coded + rest
        for name, data in wrong.items():
            with self.assertRaises(Inconsistent, msg=name):
                self.parse(data)


class CatalogTests(TestCase):
    """What verify finds in a catalog that is authentic and wrong."""

    def findings(
        self, change: Callable[[Builder], list[Change]],
        versions: tuple[int, int, int] = (3, 3, 3),
    ) -> str:
        """What is found when a commit makes that change."""
        self.next_path()
        builder = Builder(self.path)
        build_tree(builder)
        builder.record(change(builder))
        builder.close()
        builder.write_superblock(builder.slot(versions=versions))
        reading, findings = observe(self.path)
        self.assertTrue(reading)
        return "\n".join(findings)

    def edit(self, key: bytes, at: int, data: bytes) -> Callable[[Builder], list[Change]]:
        """Bytes of a value."""
        return lambda builder: [(key, put(at, data)(builder.catalog[key]))]

    def put(self, key: bytes, value: bytes | None) -> Callable[[Builder], list[Change]]:
        """Another value, or none."""
        return lambda builder: [(key, value)]

    def test_intact(self) -> None:
        self.assertEqual(self.findings(lambda builder: []), "")

    def test_inconsistent(self) -> None:
        edit, new = self.edit, self.put
        hello = number_key(INODE, 3)
        entry = number_key(ENTRY, ROOT) + b"hello"
        counter = SLAB + bytes(4)
        state = u64(6) + u32(1) + bytes(4)
        second = number_key(EXTENT, 5) + (3).to_bytes(8, "big")
        extent = Extent(0, 1, 5, bytes(16), 1, 0)
        loop = lambda builder: [
            builder.entry(6, b"a", 2, 7), builder.entry(7, b"b", 2, 6),
            (number_key(INODE, 6), builder.inode(2)), (number_key(INODE, 7), builder.inode(2)),
            (STATE, u64(8) + state[8:]),
        ]
        cases: list[tuple[str, Callable[[Builder], list[Change]]]] = [
            ("link count 3", edit(hello, 15, b"\3")),
            ("trailing bytes", lambda builder: [(hello, builder.catalog[hello] + b"\0")]),
            ("no inode", new(hello, None)),
            ("permissions", edit(hello, 3, u16(0o10000))),
            ("0 entries", lambda builder: [(number_key(INODE, 6), builder.inode(2, links=0))]),
            ("link count 0", edit(number_key(INODE, 2), 15, b"\0")),
            ("differ in kind", edit(entry, 0, b"\3")),
            ("kind 4", edit(entry, 0, b"\4")),
            ("not zero", edit(entry, 1, b"\1")),
            ("trailing bytes", lambda builder: [(entry, builder.catalog[entry] + b"\0")]),
            ("file id 0", edit(entry, 8, u64(0))),
            ("file id", edit(entry, 8, u64(1 << 62))),
            ("two entries", lambda builder: [builder.entry(2, b"loop", 2, 2)]),
            ("two entries", lambda builder: [builder.entry(2, b"root", 2, ROOT)]),
            ("file 6: 0 entries, link count 1", loop),
            ("no inode", lambda builder: [builder.entry(ROOT, b"nowhere", 1, 3000)]),
            ("type 10 without", lambda builder: [builder.entry(77, b"x", 1, 3)]),
            ("type 10 without", lambda builder: [builder.entry(3, b"in a file", 1, 3)]),
            ("length of the target 0", lambda builder: builder.link(ROOT, b"nowhere", b"")),
            ("out of order", new(number_key(EXTENT, 5) + bytes(8), encode_extent(extent))),
            ("type 30 without", new(number_key(EXTENT, 4) + bytes(8), encode_extent(extent))),
            ("extent at 1 of file 6: out of order", lambda builder: [
                *builder.contents([(ROOT, b"no first extent")], {}, 5 * GRAIN), *builder.state(),
                (number_key(EXTENT, 6) + (1).to_bytes(8, "big"), encode_extent(extent)),
            ]),
            ("type 30 without", new(number_key(EXTENT, 99) + bytes(8), encode_extent(extent))),
            ("type 30 without", new(number_key(EXTENT, 2) + bytes(8), encode_extent(extent))),
            ("type 40 without", new(number_key(ATTRIBUTE, 99) + b"x", b"")),
            ("too short", edit(second, 20, u32(1))),
            ("flags of an extent 2", edit(second, 20, u32(2))),
            ("trailing bytes", lambda builder: [(second, builder.catalog[second] + bytes(16))]),
            ("slab 2147483648", edit(second, 0, u32(1 << 31))),
            ("count of segments 0", edit(second, 4, u32(0))),
            ("last length 0", edit(second, 16, u32(0))),
            ("last length 16385", edit(second, 16, u32(16385))),
            ("bytes are live", edit(counter, 0, b"\xff")),
            ("live bytes 0", edit(counter, 0, u64(0))),
            ("runs end at", edit(counter, 8, u64(100))),
            ("end 67108865", edit(counter, 8, u64(67108865))),
            ("trailing bytes", lambda builder: [(counter, builder.catalog[counter] + b"\0")]),
            ("has no counter", new(counter, None)),
            ("0 bytes are live", new(SLAB + b"\0\0\0\7", u64(1) + u64(4096))),
            ("number 2147483648", new(SLAB + b"\x80\0\0\0", u64(1) + u64(4096))),
            ("no state", new(STATE, None)),
            ("file id 5 is in use", new(STATE, u64(5) + state[8:])),
            ("next slab 0 is in use", new(STATE, u64(6) + bytes(8))),
            ("next file id 1", new(STATE, u64(1) + state[8:])),
            ("next file id", new(STATE, u64(1 << 62) + state[8:])),
            ("next slab 2147483648", new(STATE, u64(6) + u32(1 << 31) + bytes(4))),
            ("not zero", new(STATE, state[:15] + b"\1")),
            ("trailing bytes", new(STATE, state + b"\0")),
            ("too short", new(STATE, state[:15])),
            ("too short", new(number_key(b"\x80", 1), bytes(39))),
            ("trailing bytes", new(number_key(b"\x80", 1), bytes(41))),
            ("key of type 80 has the number 0", new(number_key(b"\x80", 0), bytes(40))),
        ]
        for words, change in cases:
            findings = self.findings(change)
            self.assertIn(words, findings)
            self.assertIn("damage: inconsistent: ", findings, words)
        for name in (b".", b"..", b"a/b", b"a\0b"):
            findings = self.findings(lambda builder: [builder.entry(ROOT, name, 1, 3)])
            self.assertIn("a name that is not possible", findings)
        for key in (
            STATE + b"\0", number_key(ENTRY, ROOT), number_key(ENTRY, ROOT) + b"n" * 256,
            hello + b"\0", INODE, number_key(EXTENT, 3), number_key(EXTENT, 3) + bytes(9),
            number_key(ATTRIBUTE, 3), number_key(ATTRIBUTE, 3) + b"n" * 256, SLAB + bytes(3),
            number_key(b"\x80", 1) + b"\0",
        ):
            words = f"a key of type {key[:1].hex()} has {len(key)} bytes"
            self.assertIn(words, self.findings(new(key, b"")))
        for number in (0, 1 << 62):
            findings = self.findings(new(number_key(INODE, number), encode_inode(2)))
            self.assertIn(f"a key of type 20 has the number {number}", findings)
        link = new(number_key(INODE, ROOT), encode_inode(3, size=1, tail=b"t"))
        self.assertIn("the root is no directory", self.findings(link))

    def test_contents(self) -> None:
        """A file whose extents are not possible, or not what is stored."""
        hello = number_key(INODE, 3)
        second = number_key(EXTENT, 5) + (3).to_bytes(8, "big")
        for words, change in (
            ("damaged extent: file 3: grain 0", self.edit(hello, 16, b"\2")),
            ("damage: file 3: no key for epoch 7", self.edit(hello, 18, b"\7")),
            ("not authentic: file 3: grain 0", self.edit(hello, 19, b"?")),
            ("missing bytes: file 5: grain 3", self.edit(second, 0, u32(7))),
            ("damaged extent: file 5: grain 3", self.edit(second, 8, u64(67108864 - 100))),
            ("damaged extent: file 5: grain 3", self.edit(second, 8, u64((1 << 64) - 1))),
            ("damaged extent: file 5: grain 3", self.edit(second, 40, u64(0))),
            ("not authentic: file 5: grain 3", self.edit(second, 40, u64(9))),
        ):
            self.assertIn("damage: " + words, self.findings(change))

    def test_runs_that_share_bytes(self) -> None:
        """Two files with one segment, as no writer leaves them."""

        def share(builder: Builder) -> list[Change]:
            builder.next_file = 7
            inode = put(15, b"\1")(builder.catalog[number_key(INODE, 3)])
            same = builder.entry(ROOT, b"same", 1, 6)
            return [same, (number_key(INODE, 6), inode), *builder.state()]

        self.assertIn("two runs share the bytes from 3 on", self.findings(share))

    def test_run_tags(self) -> None:
        """Readers skip them, and writers of this version must not see them."""
        hello = number_key(INODE, 3)
        second = number_key(EXTENT, 5) + (3).to_bytes(8, "big")
        for key, at, flag in ((hello, 2, b"\3"), (second, 20, u32(1))):

            def change(builder: Builder) -> list[Change]:
                return [(key, put(at, flag)(builder.catalog[key]) + b"t" * 16)]

            self.assertEqual(self.findings(change, versions=(4, 3, 4)), "")
            self.assertIn("a run tag, and the minimum writer version", self.findings(change))

    def test_allowed(self) -> None:
        """What looks odd and is right."""

        def open_and_removed(builder: Builder) -> list[Change]:
            builder.next_file = 7
            secret = expand("secret", 32)
            inode = encode_inode(1, links=0, secret=secret)
            return [(number_key(INODE, 6), inode), *builder.state()]

        self.assertEqual(self.findings(open_and_removed), "")
        self.assertEqual(self.findings(self.edit(number_key(INODE, 2), 18, b"\7")), "")
        self.assertEqual(self.findings(self.put(number_key(b"\x80", 3), bytes(40))), "")
        for key in (b"\x7a", b"\x63", b"\x02", b"\x81\0", b"\xff" * 600):
            self.assertEqual(self.findings(self.put(key, b"of a later version")), "")
        counter = SLAB + bytes(4)
        self.assertEqual(self.findings(self.edit(counter, 8, u64(67108864))), "")
        state = u64(HIGHEST_ID) + u32((1 << 31) - 1) + bytes(4)
        self.assertEqual(self.findings(self.put(STATE, state)), "")


class DeliveryTests(TestCase):
    """What verify finds in records of messages, of their deliveries and of their files."""

    SENDER = b"com.example"
    KNOWN = u64(7) + b"i" * 16 + u64(5) + u64(5) + u64(2) + u64(1) + u64(TIME)
    DELIVERED = u64(7) + b"i" * 16 + u64(TIME)
    RECEIVER = u64(1) + b"i" * 16 + u64(1) + u64(1)
    DIRECTORY = b"/Inbox/com.example/20260101T000000.000Z"

    @staticmethod
    def queued(
        length: int = 3, files: int = 2, sender: bytes = SENDER, directory: bytes = DIRECTORY,
        state: bytes = bytes(3),
    ) -> bytes:
        """The value of type 78."""
        value = u64(TIME) + bytes(16) + u32(length) + state + bytes([len(sender)]) + u64(files)
        return value + sender + directory

    @classmethod
    def delivery(cls, number: int, sender: bytes = SENDER) -> bytes:
        """The key of type 61."""
        return number_key(b"\x61" + sender + bytes(1), number) + b"m" * 16

    @classmethod
    def sound(cls, builder: Builder) -> list[Change]:
        """Some of everything, and all of it right. File 3 has a version in the outbox."""
        builder.next_file = 60
        paths = varint(300) + b"\1a" + varint(0) + b"\4d/\xc3\xbc"
        request = b"\x62" + bytes([len(cls.SENDER)]) + cls.SENDER + b"id"
        large = bytes(40_000)
        inode = builder.catalog[number_key(INODE, 3)]
        size = Inode.parse(inode, "file").size
        entry = bytes(8) + u64(TIME) + bytes(16) + u64(1) + u64(size) + u64(size + 41)
        return [
            (b"\x60" + cls.SENDER, cls.KNOWN),
            (cls.delivery(5), cls.DELIVERED),
            (request, u64(TIME) + u64(1) + u64(2) + cls.DIRECTORY),
            (number_key(b"\x78", 50), cls.queued()),
            (number_key(b"\x79", 50) + bytes(4), b"msg" + paths),
            (number_key(b"\x78", 51), cls.queued(len(large), 0, directory=b"", state=b"\1\0\0")),
            (number_key(b"\x79", 51) + bytes(4), large[:32768]),
            (number_key(b"\x79", 51) + bytes(3) + b"\1", large[32768:]),
            (number_key(b"\x70", 1), entry + b"com.receiver"),
            (number_key(b"\x71", 1) + bytes(4), u64(3) + u16(6) + b"/hello" + inode),
            (number_key(b"\x73", 1) + bytes(4), b"m"),
            (b"\x74", u64(2)),
            (number_key(b"\x75", 3) + number_key(b"", 1) + bytes(4), b""),
            (b"\x76com.receiver", cls.RECEIVER),
            (number_key(b"\x77", 2), expand("staged", 16) + u64(1) + u64(2) + u64(3)),
            *builder.state(),
        ]

    def findings(self, changes: list[Change]) -> str:
        """What is found when a commit makes these changes."""
        self.next_path()
        builder = Builder(self.path)
        build_tree(builder)
        builder.record(self.sound(builder))
        for begin in range(0, len(changes), 8):  # a record has room for so many large values
            builder.record(changes[begin : begin + 8])
        builder.close()
        reading, findings = observe(self.path)
        self.assertTrue(reading)
        return "\n".join(findings)

    def test_intact(self) -> None:
        self.assertEqual(self.findings([]), "")

    def test_older_incarnations(self) -> None:
        """What arrived under another incarnation is not counted, and may be far below the floor."""
        known = (b"\x60" + self.SENDER, put(24, u64(300) + u64(0) + u64(44))(self.KNOWN))
        for delivered in (put(0, u64(6))(self.DELIVERED), put(8, b"j")(self.DELIVERED)):
            self.assertEqual(self.findings([known, (self.delivery(5), delivered)]), "")

    def test_keys(self) -> None:
        for key in (
            b"\x60", b"\x60" + b"a" * 256, b"\x61\0" + bytes(24), b"\x61" + b"a" * 281, b"\x76",
            b"\x76" + b"a" * 256, b"\x62\1a", b"\x78zz", number_key(b"\x78", 50) + b"\0",
            number_key(b"\x79", 50), number_key(b"\x77", 2) + b"\0",
            number_key(b"\x70", 1) + b"\0", number_key(b"\x71", 1),
            number_key(b"\x72", 1) + bytes(4),
            number_key(b"\x73", 1), b"\x74\0", number_key(b"\x75", 3),
        ):
            self.assertIn(f"a key of type {key[:1].hex()}", self.findings([(key, b"")]))

    def test_arrivals(self) -> None:
        sender, known = b"\x60" + self.SENDER, self.KNOWN
        ledger, delivered = self.delivery(5), self.DELIVERED
        request = b"\x62" + bytes([len(self.SENDER)]) + self.SENDER
        request_value = u64(TIME) + u64(1) + u64(2)
        small, contents = number_key(b"\x78", 50), number_key(b"\x79", 50)
        large = number_key(b"\x79", 51)
        unnamed = self.queued(0, 0, directory=b"")
        longest = b"b/" * 127 + b"b"
        cases: list[tuple[str, bytes, bytes | None]] = [
            ("sender: too short", sender, b"zz"),
            ("sender: generation 0", sender, put(0, bytes(1))(known)),
            ("sender: generation", sender, put(0, u64(1 << 62))(known)),
            ("sender: floor 0", sender, put(24, bytes(1))(known)),
            ("sender: floor", sender, put(24, u64(1 << 62))(known)),
            ("sender: arrived messages", sender, put(32, u64(1 << 62))(known)),
            ("sender: counts 2 deliveries of 1", sender, put(48, b"\2")(known)),
            ("sender: forgotten number 0", sender, put(40, bytes(1))(known)),
            ("sender: forgotten number 2", sender, put(24, u64(5 + 254))(known)),
            ("sender: forgotten number", sender, put(40, u64(1 << 62))(known)),
            ("sender: trailing bytes", sender, known + b"\0"),
            ("sender: a sender", b"\x60a/b", known), ("sender: a sender", b"\x60a\n", known),
            ("sender: a sender", b"\x60a\xff", known),
            ("delivery 0: number 0", self.delivery(0), delivered),
            ("delivery 5: a sender that cannot be", self.delivery(5, b"a/b"), delivered),
            ("delivery 5: of a sender that is not known", self.delivery(5, b"b"), delivered),
            ("delivery 5: too far below its floor", sender, put(24, u64(5 + 257) + u64(5) + u64(6))(known)),
            ("delivery 5: of a generation above", ledger, put(0, b"\x08")(delivered)),
            ("sender: more deliveries than the 0", sender, put(32, u64(0))(known)),
            ("delivery 5: generation 0", ledger, put(0, bytes(1))(delivered)),
            ("delivery 5: too short", ledger, delivered[:-1]),
            ("delivery 5: trailing bytes", ledger, delivered + b"\0"),
            ("by request: a sender", b"\x62\1/id", request_value + self.DIRECTORY),
            ("key of a delivery by request: length", request, request_value + self.DIRECTORY),
            ("a request id that is not UTF-8", request + b"\xff", request_value + self.DIRECTORY),
            ("delivery by request: too short", request + b"x", b"q"),
            ("by request: no directory", request + b"x", request_value + b"/Inbox/com.other/x"),
            ("by request: no directory", request + b"x", request_value + self.DIRECTORY + b"/x"),
            ("by request: no directory", request + b"x", request_value + self.DIRECTORY + b"\xff"),
            ("queued message 50: too short", small, b"short"),
            ("queued message 50: number of files", small, self.queued(files=1 << 32)),
            ("queued message 50: length 2097153", small, self.queued((2 << 20) + 1)),
            ("queued message 50: bytes that are not zero", small, self.queued(state=b"\0\1\0")),
            ("queued message 50: its state", small, self.queued(state=b"\4\0\0")),
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
            ("queued message 0: arrival 0", number_key(b"\x78", 0), unnamed),
            ("queued message 60: its number", number_key(b"\x78", 60), unnamed),
            ("queued message 3: its number", number_key(b"\x78", 3), unnamed),
        ]
        for place in (b"a", b"", b"/b", b"b/", b"../b", b"b\7", b"\xff", b"b/" + longest):
            entries = b"msg" + varint(300) + b"\1a" + varint(1) + varint(len(place)) + place
            cases.append(("a path of a file", contents + bytes(4), entries))
        for size in ((1 << 62) - 300, (1 << 64) - 1):
            entries = b"msg" + varint(300) + b"\1a" + varint(size) + b"\1b"
            cases.append(("bytes of the files", contents + bytes(4), entries))
        for words, key, value in cases:
            self.assertIn(words, self.findings([(key, value)]))
        self.assertEqual(self.findings([(sender, put(24, u64(5 + 256) + u64(5) + u64(5))(known))]), "")
        self.assertEqual(self.findings([(ledger, put(0, b"\1")(delivered)), (sender, put(32, u64(0))(known))]), "")
        entries = b"msg" + varint(300) + b"\1a" + varint((1 << 62) - 301)
        entries += varint(len(longest)) + longest
        self.assertEqual(self.findings([(contents + bytes(4), entries)]), "")

    def test_outbox(self) -> None:
        message, part = number_key(b"\x70", 1), number_key(b"\x73", 1)
        version = number_key(b"\x71", 1) + bytes(4)
        pin = number_key(b"\x75", 3) + number_key(b"", 1) + bytes(4)

        def values(builder: Builder) -> dict[bytes, bytes | None]:
            return dict(self.sound(builder))

        builder = Builder(self.folder / "values")
        build_tree(builder)
        sound = values(builder)
        entry, pinned = sound[message], sound[version]
        assert entry and pinned
        extent = encode_extent(Extent(1, 1, 5, bytes(16), 1, 0))
        pinned_extent = number_key(b"\x72", 1) + bytes(4) + (1).to_bytes(8, "big")
        receiver, known = b"\x76com.receiver", self.RECEIVER
        other_pin = number_key(b"\x75", 5) + number_key(b"", 1) + bytes(4)
        cases: list[tuple[str, list[Change]]] = [
            ("length of the receiver 0", [(message, entry[:56])]),
            ("length of the receiver 256", [(message, entry[:56] + b"r" * 256)]),
            ("a receiver that is not UTF-8", [(message, entry + b"\xff")]),
            ("message 0: number 0", [(number_key(b"\x70", 0), entry)]),
            ("message 1: a part of another length", [(part + bytes(3) + b"\1", b"x")]),
            ("message 1: a part of another length", [(part + bytes(4), b"")]),
            ("message 1: length", [(part + u32(index)[::-1], bytes(32768)) for index in range(65)]),
            ("a pin with a value", [(pin, b"x")]),
            ("layout 1", [(version, put(16, b"\1")(pinned))]),
            ("no file", [(version, pinned[:16] + encode_inode(2))]),
            ("trailing bytes", [(version, pinned + b"\0")]),
            ("damaged extent", [(pinned_extent, put(4, u32((1 << 32) - 1))(extent))]),
            ("out of order", [(pinned_extent[:13] + bytes(8), extent)]),
            ("trailing bytes", [(pinned_extent, extent + b"\0")]),
            ("extents without an attachment", [(pinned_extent[:12] + b"\1" + bytes(8), extent)]),
            ("state 2", [(message, put(0, b"\2")(entry))]),
            ("not zero", [(message, put(1, b"\1")(entry))]),
            ("counts 2", [(message, put(32, u64(2))(entry))]),
            ("and counts 99", [(message, put(40, u64(99))(entry))]),
            ("stored bytes, and counts 98", [(message, put(48, u64(98))(entry))]),
            ("has attachments [1]", [(version, None), (version[:12] + b"\1", pinned)]),
            ("message 1: no entry", [(message, None)]),
            ("no pin for attachment 0 of message 1", [(pin, None)]),
            ("a pin without attachment 0 of message 1", [(other_pin, b"")]),
            ("a pin without attachment 1 of message 1", [(pin[:-1] + b"\1", b"")]),
            ("attachment 0 of message 1: grain 0", [(version, put(16 + 16, b"\1")(pinned))]),
            ("a path that cannot be", [(version, u64(3) + u16(6) + b"/../ab" + pinned[16:])]),
            ("a path that cannot be", [(version, u64(3) + u16(6) + b"hello!" + pinned[16:])]),
            ("length of the path", [(version, u64(3) + u16(32001) + bytes(32001) + pinned[16:])]),
            ("file id 1", [(version, u64(1) + pinned[8:])]),
            ("never there", [(version, u64(60) + pinned[8:])]),
            ("outbox: state: too short", [(b"\x74", b"x")]),
            ("trailing bytes", [(b"\x74", u64(2) + b"\0")]),
            ("next number 0", [(b"\x74", u64(0))]),
            ("the next number is in use", [(b"\x74", u64(1))]),
            ("no state", [(b"\x74", None)]),
            ("nothing is known of its receiver", [(receiver, None)]),
            ("receiver: too short", [(receiver, known[:-1])]),
            ("receiver: trailing bytes", [(receiver, known + b"\0")]),
            ("receiver: generation 0", [(receiver, put(0, bytes(1))(known))]),
            ("receiver: first number 0", [(receiver, put(24, bytes(1))(known))]),
            ("receiver: a number that was never given", [(receiver, put(24, b"\3")(known))]),
            ("receiver: a number that was never given", [(receiver, put(32, b"\2")(known))]),
            ("receiver: delivered number", [(receiver, put(32, u64(1 << 62))(known))]),
            ("receiver: a receiver that is not UTF-8", [(b"\x76\xff", known)]),
        ]
        for words, changes in cases:
            self.assertIn(words, self.findings(changes), words)

    def test_staging(self) -> None:
        staged = number_key(b"\x77", 2)
        value = expand("staged", 16)
        for words, key, new in (
            ("number 0", staged, value + u64(0) + u64(1) + u64(1)),
            ("number 4611686018427387904", staged, value + u64(1 << 62) + u64(1) + u64(1)),
            ("number of files 0", staged, value + u64(1) + u64(0) + u64(1)),
            ("number of files", staged, value + u64(1) + u64(1 << 32) + u64(1)),
            ("bytes of the files", staged, value + u64(1) + u64(1) + u64(1 << 62)),
            ("too short", staged, value + u64(1) + u64(1)),
            ("trailing bytes", staged, value + u64(1) + u64(1) + u64(1) + b"\0"),
            ("no directory", number_key(b"\x77", 3), value + u64(1) + u64(1) + u64(1)),
            ("file 30: no inode", number_key(b"\x77", 30), value + u64(1) + u64(1) + u64(1)),
        ):
            self.assertIn(words, self.findings([(key, new)]))

    def test_versions_of_a_file_that_is_gone(self) -> None:
        """Their segments are live, each once, and nothing else shares them."""
        file, inode = number_key(INODE, 3), b""
        self.next_path()
        builder = Builder(self.path)
        build_tree(builder)
        inode = builder.catalog[file]
        second: list[Change] = [
            (number_key(b"\x70", 2), bytes(8) + u64(TIME) + bytes(16) + u64(1) + u64(13) + u64(54) + b"r"),
            (number_key(b"\x71", 2) + bytes(4), u64(3) + u16(6) + b"/hello" + inode),
            (number_key(b"\x75", 3) + number_key(b"", 2) + bytes(4), b""),
            (b"\x74", u64(3)), (b"\x76r", self.RECEIVER),
        ]
        builder.record(self.sound(builder) + second)
        gone = [file]
        gone.append(number_key(ATTRIBUTE, 3) + b"user.note")
        gone += [number_key(ENTRY, ROOT) + b"hello", number_key(ENTRY, 2) + b"linked"]
        builder.record([(key, None) for key in gone] + builder.state())
        builder.close()
        self.assert_intact()
        with self.changed(xor(10), "slab/00000000"):
            found = "damage: not authentic: attachment 0 of message "
            self.assert_found(found + "1: grain 0", found + "2: grain 0")


if __name__ == "__main__":
    unittest.main()
