#!/usr/bin/env python3
"""Tests the readers on the vectors, and on containers that are made by hand and then damaged."""

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
    CODE, EPOCH, RAW, TIME, WORDS, Builder, encode_extent, encode_first_extent, encode_inode, text,
    u16, varint,
)
from container.catalog import (
    ATTRIBUTE, ENTRY, EXTENT, FILE_KIND, INODE, ROOT, SLAB, STATE, Inode, number_key,
)
from container.fields import ContainerError, Inconsistent, Lost
from container.journal import LAST_OF_COMMIT, SEGMENTS_DURABLE, Change
from container.locks import ENTRY_BYTE, Lock
from container.state import open_container
from container.superblock import (
    NO_END, PASSPHRASE, RAW_KEY, RECOVERY_CODE, Generation, Secret, Table,
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
    """A generation with two journals since: directories, two files, a hard link, a symbolic link."""
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
        self.assertEqual(found, (4, 2, "clean", None, 2))

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
        self.flip_all(builder, step=11, silent=range(journal.known.offset, len(journal.data)))

    def test_several_tables_and_a_pending_generation(self) -> None:
        builder = Builder(self.path)
        build_layers(builder)
        builder.start_generation(complete=False)
        builder.start_journal()
        builder.record([(b"\x7fduring the checkpoint", b"")])
        builder.close()
        self.assertEqual(self.assert_intact()[0], 8)
        self.flip_all(builder, step=5)

    def test_torn_tail(self) -> None:
        builder = Builder(self.path)
        build_tree(builder)
        journal = builder.current()
        journal.known = journal.end
        builder.record([(b"\x7flost", b"")], flags=SEGMENTS_DURABLE)
        journal.data = journal.data[:-1]
        builder.close(clean=False)
        self.assert_torn(4, "cut short")
        self.flip_all(builder, step=29, silent=range(journal.known.offset, len(journal.data)))

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
        builder = self.tree()
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
        twice = u32(EPOCH) + second[4:]
        self.write(builder, lambda body: put(12, u32(2))(put(56, twice)(body)))
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
        with self.changed(lambda data: (xor(4096 + 35)(data), seal_head(data, 4096)), first):
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
        builder = self.journal(0)
        first = builder.current()
        builder.start_journal()
        builder.journal = replace(first)
        second = max(builder.journals, key=list(builder.journals).index)
        header = u32(1) + u32(0) + first.session + u64(1) + u64(TIME) + second + u64(1)
        header += NO_END.encode()
        first.data = builder.frame(0, header.ljust(128, b"\0"), bytes(16), first)
        first.end = first.known = replace(NO_END, offset=len(first.data), tag=first.data[-16:])
        builder.journal = None
        builder.start_journal()
        builder.journal = first
        builder.close()
        again = u32(1) + u32(0) + first.session + u64(1) + u64(TIME) + first.id + u64(1)
        again += first.end.encode()
        other = replace(first, id=second, data=b"")
        other.data = builder.frame(0, again.ljust(128, b"\0"), bytes(16), other)
        builder.write_twice("journal", second, other.data, [])
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
        """A recovery's journal names the end of the one before; what follows there does not count."""
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
        """The segments of a version in the outbox count as its commit's, unless the file named them."""
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
                (number_key(b"\x70", 1), bytes(8) + u64(TIME) + bytes(16) + u64(1) + u64(8) + b"r"),
                (number_key(b"\x71", 1) + bytes(4), u64(file_id) + u16(5) + b"/file" + inode),
                (number_key(b"\x75", file_id) + number_key(b"", 1) + bytes(4), b""),
                (b"\x74", bytes(16) + u64(2)),
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


if __name__ == "__main__":
    unittest.main()
