#!/usr/bin/env python3
"""Writes the vectors beside it: generate.py. With --check, compares them with what is there and writes nothing."""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from nacl.exceptions import CryptoError  # noqa: E402

from opendynamics import FINAL, GRAIN, HEADER, STRIDE, Extent, File, segment_ad, segment_key, writer_key  # noqa: E402
from read_file import read  # noqa: E402
from sealing import MESSAGE, PUSH, REKEY, Stream, expand, seal, seal_run  # noqa: E402

Vector = dict[str, Any]
Message = tuple[int, bytes, bytes]  # tag, ad, plaintext


# Secretstreams


def stream(
    name: str,
    comment: str,
    messages: list[Message],
    initial_counter: int | None = None,
    rekey_before: int | None = None,
) -> Vector:
    """A stream that opens."""
    key, header = expand(f"{name} key", 32), expand(f"{name} header", HEADER)
    state = Stream(key, header)
    vector: Vector = {"name": name, "comment": comment, "key": key.hex(), "header": header.hex(), "expect": "ok"}
    if initial_counter is not None:
        vector["initial_counter"] = initial_counter
        state.set_counter(initial_counter)
    vector["messages"] = []
    for index, (tag, ad, plaintext) in enumerate(messages):
        message = {"tag": tag, "ad": ad.hex(), "plaintext": plaintext.hex()}
        if index == rekey_before:
            message["rekey_before"] = True
            state.rekey()
        message["ciphertext"] = state.push(plaintext, ad, tag).hex()
        vector["messages"].append(message)
    return vector


def broken(
    name: str, comment: str, intact: Vector, fail_at: int, change: Callable[[list[Vector], Vector], object]
) -> Vector:
    """The stream after a change that makes the message fail_at the first that does not open, and the last given."""
    vector = copy.deepcopy(intact)
    change(vector["messages"], vector)
    vector.update(name=name, comment=comment, expect="not-authentic", fail_at=fail_at)
    del vector["messages"][fail_at + 1 :]
    return vector


def flip(hexadecimal: str, position: int, bit: int = 0) -> str:
    """The bytes with one bit changed; a negative position counts from the end."""
    data = bytearray.fromhex(hexadecimal)
    data[position] ^= 1 << bit
    return data.hex()


def check_stream(vector: Vector) -> None:
    """Opens a stream with this binding and holds it against the expectation."""
    state = Stream(bytes.fromhex(vector["key"]), bytes.fromhex(vector["header"]))
    if "initial_counter" in vector:
        state.set_counter(vector["initial_counter"])
    failed_at = None
    for index, message in enumerate(vector["messages"]):
        if message.get("rekey_before"):
            state.rekey()
        try:
            found = state.pull(bytes.fromhex(message["ciphertext"]), bytes.fromhex(message["ad"]))
        except CryptoError:
            failed_at = index
            break
        assert found == (bytes.fromhex(message["plaintext"]), message["tag"]), vector["name"]
    assert failed_at == vector.get("fail_at"), vector["name"]
    assert (failed_at is None) == (vector["expect"] == "ok"), vector["name"]


def intact_streams() -> Iterator[Vector]:
    """Streams that open."""
    for length in (0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 1000):
        name = f"length_{length}"
        plaintext = expand(f"{name} plaintext", length)
        yield stream(name, f"One message of {length} bytes, tag FINAL, no ad.", [(FINAL, b"", plaintext)])
    for tag, text in ((MESSAGE, "message"), (PUSH, "push"), (REKEY, "rekey"), (FINAL, "final")):
        name = f"tag_{text}"
        plaintext = expand(f"{name} plaintext", 21)
        yield stream(name, f"One message with tag {text.upper()} ({tag}).", [(tag, b"", plaintext)])
    for length in (1, 15, 16, 17, 31, 80, 81):
        name = f"ad_{length}"
        ad, plaintext = expand(f"{name} ad", length), expand(f"{name} plaintext", 37)
        yield stream(name, f"{length} bytes of ad with 37 of plaintext.", [(FINAL, ad, plaintext)])
    yield stream("ad_without_plaintext", "A message that is all ad.", [(FINAL, b"only associated data", b"")])
    name = "every_length_modulo_16"
    yield stream(
        name,
        "Plaintexts of 0 to 33 bytes with ads of 33 to 0: every pair of remainders modulo 16 that add up to 1.",
        [(MESSAGE, expand(f"{name} ad {n}", 33 - n), expand(f"{name} {n}", n)) for n in range(34)],
    )
    yield stream("three_messages", "A stream of three.", three_messages())
    name = "rekey_in_the_middle"
    tags = (MESSAGE, REKEY, MESSAGE, REKEY, PUSH, FINAL)
    yield stream(
        name,
        "A message with tag REKEY changes the key for those after it and sets the counter back to 1.",
        [(tag, b"", expand(f"{name} {n}", 20 + n)) for n, tag in enumerate(tags)],
    )
    name = "explicit_rekey"
    yield stream(
        name,
        "Both sides call rekey before the message that has rekey_before; no tag says so.",
        [(MESSAGE, b"", expand(f"{name} {n}", 20 + n)) for n in range(3)],
        rekey_before=1,
    )
    name = "message_after_final"
    yield stream(
        name,
        "FINAL contains the bits of PUSH and REKEY: the key changes, and the primitive opens what follows.",
        [(FINAL, b"", expand(f"{name} 0", 20)), (FINAL, b"", expand(f"{name} 1", 20))],
    )
    name = "counter_wraps"
    yield stream(
        name,
        "When the counter comes back to 0 after message 1, the key changes and the counter becomes 1.",
        [(MESSAGE, b"", expand(f"{name} {n}", 20 + n)) for n in range(4)],
        initial_counter=0xFFFF_FFFE,
    )
    name = "counter_at_its_end"
    yield stream(
        name,
        "The first message has the last counter; tag and wrap-around ask for one change of the key, not for two.",
        [(REKEY, b"", expand(f"{name} {n}", 20)) for n in range(2)],
        initial_counter=0xFFFF_FFFF,
    )
    yield from bulk_streams()


def bulk_streams() -> Iterator[Vector]:
    """Streams that open, of the lengths for which a reader may use another cipher: multiples of 8 from 256 on."""
    for length in (256, 264, GRAIN):
        name = f"bulk_{length}"
        ad, plaintext = expand(f"{name} ad", 80), expand(f"{name} plaintext", length)
        yield stream(name, f"One message of {length} bytes, tag FINAL, with 80 bytes of ad.", [(FINAL, ad, plaintext)])
    name = "bulk_rekey_and_wrap"
    parts = ((MESSAGE, 256, 0), (MESSAGE, 264, 80), (REKEY, GRAIN, 80), (MESSAGE, 264, 16), (PUSH, 257, 1))
    yield stream(
        name,
        "Long messages: the counter comes back to 0 after message 1, tag REKEY follows with message 2, "
        "and message 4 is no multiple of 8.",
        [
            (tag, expand(f"{name} ad {n}", ad_length), expand(f"{name} {n}", length))
            for n, (tag, length, ad_length) in enumerate((*parts, (FINAL, 256, 80)))
        ],
        initial_counter=0xFFFF_FFFE,
    )
    name = "bulk_counter_at_its_end"
    yield stream(
        name,
        "As counter_at_its_end, with long messages.",
        [(REKEY, expand(f"{name} ad {n}", 80), expand(f"{name} {n}", 264)) for n in range(2)],
        initial_counter=0xFFFF_FFFF,
    )


def failing_bulk_streams() -> Iterator[Vector]:
    """Streams of long messages that must not open from a message on."""
    lengths = (256, 264, 256)
    messages = [
        (MESSAGE, expand(f"bulk not authentic ad {n}", 80), expand(f"bulk not authentic {n}", length))
        for n, length in enumerate(lengths)
    ]
    intact = stream("bulk not authentic", "", messages)
    grain = stream("bulk grain not authentic", "", [(FINAL, bytes(80), expand("bulk grain not authentic", GRAIN))])

    def edit(index: int, field: str, position: int, bit: int = 0) -> Callable[[list[Vector], Vector], object]:
        return lambda messages, _: messages[index].update({field: flip(messages[index][field], position, bit)})

    changes = {
        "tag_byte_flipped": ("MESSAGE would become PUSH.", edit(1, "ciphertext", 0)),
        "ciphertext_first_bit_flipped": ("Bit 0 of the first byte.", edit(1, "ciphertext", 1)),
        "ciphertext_last_bit_flipped": ("Bit 7 of the last byte.", edit(1, "ciphertext", -17, 7)),
        "authenticator_first_bit_flipped": ("Bit 0 of the first byte.", edit(1, "ciphertext", -16)),
        "authenticator_last_bit_flipped": ("Bit 7 of the last byte.", edit(1, "ciphertext", -1, 7)),
        "wrong_ad": ("One bit of the ad differs.", edit(1, "ad", -1)),
    }
    for name, (comment, change) in changes.items():
        yield broken(f"bulk_{name}", f"In a message of 264 bytes. {comment}", intact, 1, change)
    middle = edit(0, "ciphertext", GRAIN // 2)
    yield broken(f"bulk_{GRAIN}_ciphertext_bit_flipped", "One bit in the middle.", grain, 0, middle)


def three_messages() -> list[Message]:
    """Messages of equal length, with ads of equal length, from which the failing streams are made."""
    return [(MESSAGE, b"ad number %d" % n, b"the plaintext of message %d" % n) for n in range(3)]


def failing_streams() -> Iterator[Vector]:
    """Streams that must not open from a message on."""
    intact = stream("not authentic", "", three_messages())

    def edit(index: int, field: str, change: Callable[[str], str]) -> Callable[[list[Vector], Vector], object]:
        return lambda messages, _: messages[index].update({field: change(messages[index][field])})

    def swap(messages: list[Vector], _: Vector) -> None:
        messages[0]["ciphertext"], messages[1]["ciphertext"] = messages[1]["ciphertext"], messages[0]["ciphertext"]

    def ciphertext(name: str, comment: str, change: Callable[[str], str]) -> Vector:
        return broken(name, comment, intact, 1, edit(1, "ciphertext", change))

    yield ciphertext("ciphertext_bit_flipped", "Bit 0 of the first byte.", lambda c: flip(c, 1))
    yield ciphertext("ciphertext_last_bit_flipped", "Bit 7 of the last byte.", lambda c: flip(c, -17, 7))
    yield ciphertext("authenticator_bit_flipped", "Bit 0 of the first byte.", lambda c: flip(c, -16))
    yield ciphertext("authenticator_last_bit_flipped", "Bit 7 of the last byte.", lambda c: flip(c, -1, 7))
    yield ciphertext("tag_byte_flipped", "MESSAGE would become PUSH.", lambda c: flip(c, 0))
    yield ciphertext("truncated_by_one", "The last byte is missing.", lambda c: c[:-2])
    yield ciphertext("first_byte_missing", "The stream begins one byte late.", lambda c: c[2:])
    yield ciphertext("extended_by_one", "A zero byte follows.", lambda c: c + "00")
    yield ciphertext("shorter_than_17_bytes", "16 bytes: an authenticator, but no tag byte.", lambda c: c[-32:])
    yield ciphertext("empty", "No bytes at all.", lambda c: "")
    yield ciphertext("zeroed", "All bytes are zero.", lambda c: "00" * (len(c) // 2))
    yield broken("wrong_ad", "One bit of the ad differs.", intact, 1, edit(1, "ad", lambda ad: flip(ad, -1)))
    yield broken("ad_missing", "Opened without ad.", intact, 1, edit(1, "ad", lambda ad: ""))
    yield broken(
        "ad_padded",
        "A zero byte more of ad: the padding of the authenticated text hides it, its length does not.",
        intact,
        1,
        edit(1, "ad", lambda ad: ad + "00"),
    )
    yield broken("messages_swapped", "Messages 0 and 1 have changed places, the ads have not.", intact, 0, swap)
    yield broken(
        "message_repeated", "Message 0 comes twice.", intact, 1, lambda messages, _: messages.insert(1, messages[0])
    )
    yield broken("message_dropped", "Message 1 is missing.", intact, 1, lambda messages, _: messages.pop(1))
    yield broken("first_message_dropped", "Message 0 is missing.", intact, 0, lambda messages, _: messages.pop(0))
    comment = "Bytes 0 to 15 of the header make the key, 16 to 23 the nonce."
    for part, position in (("first", 0), ("last", -1)):
        header = flip(intact["header"], position)
        yield broken(f"wrong_header_{part}_byte", comment, intact | {"header": header}, 0, lambda messages, _: None)
    yield broken(
        "wrong_key", "One bit of the key differs.", intact, 0, lambda _, v: v.update(key=flip(v["key"], 31, 7))
    )
    yield broken(
        "counter_ahead", "The counter starts at 2 instead of 1.", intact, 0, lambda _, v: v.update(initial_counter=2)
    )
    rekeyed = stream("rekey not followed", "", three_messages(), rekey_before=1)
    yield broken(
        "rekey_not_followed",
        "The sealing side called rekey before message 1, the opening side does not.",
        rekeyed,
        1,
        lambda messages, _: messages[1].pop("rekey_before"),
    )
    yield broken(
        "rekey_without_cause",
        "Only the opening side calls rekey before message 1.",
        intact,
        1,
        lambda messages, _: messages[1].update(rekey_before=True),
    )
    yield from failing_bulk_streams()


# Files


class Draft:
    """A file under construction: its extents, the bytes of one slab, and what it ought to contain."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.file = File(key=expand(f"{name} file key", 32), size=0, extents=[])
        self.stored = b""
        self.plaintexts: dict[int, bytes] = {}

    def add(self, start: int, length: int, counter: int | None = None, session: str = "a", zeros: bool = False) -> None:
        """Appends a run with that many bytes of plaintext, in one extent."""
        size = max(self.file.size, GRAIN * start + length)
        plaintext = bytes(length) if zeros else expand(f"{self.name} plaintext {start}", length)
        count = (length + GRAIN - 1) // GRAIN
        extent = Extent(
            start=start,
            count=count,
            last_length=length - GRAIN * (count - 1),
            session=expand(f"{self.name} session {session}", 16),
            counter=start + 1 if counter is None else counter,
            offset=len(self.stored),
        )
        extents = sorted([*self.file.extents, extent], key=lambda extent: extent.start)
        self.file = replace(self.file, size=size, extents=extents)
        self.stored += seal_run(self.file, extent, plaintext)
        self.plaintexts[start] = plaintext

    def edit(self, index: int, **changes: Any) -> None:
        """Changes fields of an extent, which no longer fits what is stored then."""
        self.file.extents[index] = replace(self.file.extents[index], **changes)

    def segment(self, index: int) -> bytes:
        """The stored bytes of the extent, which has one segment."""
        extent = self.file.extents[index]
        return self.stored[extent.offset : extent.offset + extent.stored_length()]

    def put(self, index: int, stored: bytes) -> None:
        """Overwrites the stored bytes of an extent."""
        offset = self.file.extents[index].offset
        self.stored = self.stored[:offset] + stored + self.stored[offset + len(stored) :]

    def resealed(self, at: int, tag: int = FINAL, ad_edit: tuple[int, bytes] | None = None, **changes: Any) -> bytes:
        """The segment of an extent, sealed anew as if it were in another place, of another file or another kind."""
        extent = self.file.extents[at]
        place: dict[str, Any] = {
            "file_key": self.file.key,
            "session": extent.session,
            "counter": extent.counter,
            "index": extent.start,
            "length": extent.last_length,
        }
        place.update(changes)
        ad = segment_ad(place["length"])
        if ad_edit:
            position, field = ad_edit
            ad = ad[:position] + field + ad[position + len(field) :]
        key = segment_key(writer_key(place["file_key"], place["session"]), place["counter"], place["index"])
        header = expand(f"{self.name} resealed header", HEADER)
        return seal(key, header, ad, self.plaintexts[extent.start], tag)

    def vector(self, comment: str, expect: str = "ok", fail_grain: int | None = None) -> Vector:
        """The finished vector."""
        length = self.file.size if fail_grain is None else min(GRAIN * fail_grain, self.file.size)
        if expect == "damaged-extent":
            length = 0
        plaintext = bytearray(length)
        for start, piece in self.plaintexts.items():
            place = GRAIN * start
            piece = piece[: max(0, length - place)]
            plaintext[place : place + len(piece)] = piece
        assert len(plaintext) == length
        vector: Vector = {
            "name": self.name,
            "comment": comment,
            "file_key": self.file.key.hex(),
            "size": self.file.size,
            "extents": [
                {
                    "start": extent.start,
                    "count": extent.count,
                    "last_length": extent.last_length,
                    "session": extent.session.hex(),
                    "counter": extent.counter,
                    "offset": extent.offset,
                }
                for extent in self.file.extents
            ],
            "stored": self.stored.hex(),
            "expect": expect,
            "plaintext_sha256": hashlib.sha256(plaintext).hexdigest(),
        }
        if fail_grain is not None:
            vector["fail_grain"] = fail_grain
        return vector

    def resize(self, size: int) -> None:
        """Gives the file another size."""
        self.file = replace(self.file, size=size)


def check_file(vector: Vector) -> None:
    """Reads a file with the published reader and holds it against the expectation."""
    expected = (vector["expect"], vector.get("fail_grain"), vector["plaintext_sha256"])
    assert read(vector) == expected, vector["name"]


def intact_files() -> Iterator[Vector]:
    """Files that can be read."""
    yield Draft("empty_file").vector("No extents, nothing stored.")
    for name, size in (("one_byte", 1), ("size_16383", 16383), ("size_16384", 16384), ("size_16385", 16385)):
        draft = Draft(name)
        draft.add(0, size)
        yield draft.vector(f"One extent of {size} bytes of plaintext.")

    draft = Draft("odd_lengths")
    for grain, length in enumerate((2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127)):
        draft.add(grain, length)
    yield draft.vector("Short segments of odd lengths, each in an extent of its own.")

    draft = Draft("two_extents")
    draft.add(0, GRAIN)
    draft.add(1, 100, counter=9, session="b")
    yield draft.vector("Two extents from two sessions.")

    draft = Draft("hole_at_the_beginning")
    draft.add(1, 50)
    yield draft.vector("Grain 0 is a hole.")

    draft = Draft("hole_in_the_middle")
    draft.add(0, 40)
    draft.add(3, 50)
    yield draft.vector("Grains 1 and 2 are a hole.")

    draft = Draft("hole_at_the_end")
    draft.add(0, 40)
    draft.resize(2 * GRAIN + 11)
    yield draft.vector("The size is beyond the last extent: the rest reads as zeros.")

    draft = Draft("only_a_hole")
    draft.resize(GRAIN + 5)
    yield draft.vector("A size and no extents.")

    draft = Draft("short_segment_inside_its_grain")
    draft.add(0, 40)
    draft.resize(41)
    yield draft.vector("The segment holds 40 of the file's 41 bytes; the last reads as zero.")

    draft = Draft("short_segment_before_another")
    draft.add(0, 40)
    draft.add(1, 50)
    yield draft.vector("The rest of grain 0 after its 40 bytes reads as zeros.")

    draft = Draft("stored_out_of_order")
    for grain in (2, 0, 1):
        draft.add(grain, 30 + grain, counter=10 - grain)
    yield draft.vector("The offsets and the counters are not in the order of the extents.")

    draft = Draft("gaps_between_runs")
    for grain in range(3):
        draft.stored += expand(f"gap {grain}", 19)
        draft.add(grain, 30)
    yield draft.vector("Bytes between the runs belong to nobody.")

    draft = Draft("zeros_as_plaintext")
    draft.add(0, 48, zeros=True)
    yield draft.vector("Zeros can be sealed as well as anything; this is not a hole.")

    draft = Draft("highest_counter")
    draft.add(0, 20, counter=(1 << 64) - 2)
    yield draft.vector("The greatest counter: with the count it makes 2^64 - 1.")


def three(name: str) -> Draft:
    """Three segments of 70 bytes in three extents, from which most failing files are made."""
    draft = Draft(name)
    for grain in range(3):
        draft.add(grain, 70)
    return draft


def failing_files() -> Iterator[Vector]:
    """Files of which something must not be released."""
    yield from changed_bytes()
    yield from misplaced_segments()
    yield from wrong_tags()
    yield from damaged_extents()
    yield from missing_bytes()


def changed_bytes() -> Iterator[Vector]:
    """Stored bytes that were changed in place."""
    positions = {
        "header_first_bit_flipped": 0,
        "header_last_bit_flipped": 23,
        "tag_byte_flipped": 24,
        "ciphertext_first_bit_flipped": 25,
        "ciphertext_last_bit_flipped": 94,
        "authenticator_first_bit_flipped": 95,
        "authenticator_last_bit_flipped": 110,
    }
    for name, position in positions.items():
        draft = three(name)
        draft.put(1, bytes.fromhex(flip(draft.segment(1).hex(), position)))
        yield draft.vector(f"One bit of byte {position} of the segment of grain 1.", "not-authentic", 1)

    draft = three("segment_zeroed")
    draft.put(1, bytes(111))
    yield draft.vector("Erased bytes are not a hole.", "not-authentic", 1)

    draft = three("segment_truncated_in_place")
    end = draft.file.extents[1].offset + 111
    draft.stored = draft.stored[: end - 1] + draft.stored[end:]
    yield draft.vector("The last byte of grain 1 is missing; what follows moved up.", "not-authentic", 1)


def misplaced_segments() -> Iterator[Vector]:
    """Segments that are authentic somewhere else."""
    draft = three("segments_swapped")
    first, second = draft.segment(0), draft.segment(1)
    draft.put(0, second)
    draft.put(1, first)
    yield draft.vector("The stored bytes of grains 0 and 1 have changed places.", "not-authentic", 0)

    draft = Draft("segments_swapped_in_a_run")
    draft.add(0, 2 * GRAIN)
    draft.stored = draft.stored[STRIDE:] + draft.stored[:STRIDE]
    yield draft.vector("Two full segments of one run have changed places.", "not-authentic", 0)

    draft = three("segment_repeated")
    draft.put(1, draft.segment(0))
    yield draft.vector("The stored bytes of grain 0 stand for grain 1, too.", "not-authentic", 1)

    other: dict[str, tuple[str, dict[str, Any]]] = {
        "segment_of_another_file": ("Sealed with another file's key.", {"file_key": bytes(32)}),
        "segment_of_another_index": ("Sealed for grain 5.", {"index": 5}),
        "old_version_other_counter": ("An older version, from the same session.", {"counter": 1}),
        "old_version_other_session": ("An older version, from another session.", {"session": bytes(16)}),
        "other_segment_size": ("Sealed for segments of 65536 bytes.", {"ad_edit": (20, (65536).to_bytes(4, "little"))}),
        "other_format": ("Sealed under the label OD2-segment.", {"ad_edit": (0, b"OD2")}),
        "other_length_in_ad": ("Sealed with 71 as the length in the ad.", {"length": 71}),
    }
    for name, (comment, changes) in other.items():
        draft = three(name)
        draft.put(1, draft.resealed(1, **changes))
        yield draft.vector(f"Grain 1: {comment}", "not-authentic", 1)

    for name, length in (("length_one_less", 69), ("length_one_more", 71)):
        draft = three(name)
        draft.edit(1, last_length=length)
        yield draft.vector(f"Grain 1 has 70 bytes, its extent says {length}.", "not-authentic", 1)

    draft = three("wrong_file_key")
    draft.file = replace(draft.file, key=bytes(32))
    yield draft.vector("Everything was sealed with another key.", "not-authentic", 0)


def wrong_tags() -> Iterator[Vector]:
    """Segments that open, but not with tag FINAL."""
    for tag, text in ((MESSAGE, "message"), (PUSH, "push"), (REKEY, "rekey")):
        draft = three(f"tag_{text}_instead_of_final")
        draft.put(1, draft.resealed(1, tag=tag))
        yield draft.vector(f"Grain 1 opens with tag {text.upper()}.", "not-authentic", 1)


def damaged_extents() -> Iterator[Vector]:
    """Extents that cannot be right, whatever is stored."""
    draft = Draft("extents_overlap")
    draft.add(0, GRAIN + 10)
    draft.add(1, 10, counter=9)
    yield draft.vector("Grain 1 is in both extents.", "damaged-extent", 1)

    draft = three("extents_with_one_start")
    draft.edit(2, start=1, counter=2, offset=draft.file.extents[1].offset)
    draft.resize(GRAIN + 70)
    yield draft.vector("The same extent twice: it would open both times.", "damaged-extent", 1)

    draft = three("extent_past_the_size")
    draft.resize(2 * GRAIN + 69)
    yield draft.vector("The last segment has one byte more than the file.", "damaged-extent", 2)

    draft = three("extent_beyond_the_size")
    draft.resize(GRAIN + 70)
    yield draft.vector("The last extent begins where the file has ended.", "damaged-extent", 2)

    draft = three("size_2_62")
    draft.resize(1 << 62)
    yield draft.vector("The size is 2^62 bytes; the extents are right.", "damaged-extent", 0)

    changes = {
        "last_length_0": {"last_length": 0},
        "last_length_16385": {"last_length": GRAIN + 1},
        "count_0": {"count": 0},
        "counter_0": {"counter": 0},
        "counter_and_count_2_64": {"counter": (1 << 64) - 1},
        "counter_overflows": {"count": 2, "counter": (1 << 64) - 1},
        "offset_2_48": {"offset": 1 << 48},
        "offset_overflows": {"offset": (1 << 64) - 1},
        "start_2_48": {"start": 1 << 48},
        "start_overflows": {"start": (1 << 64) - 1},
    }
    for name, change in changes.items():
        draft = three(name)
        draft.resize((1 << 62) - 1 if "start" in change else 4 * GRAIN)
        draft.edit(2, **change)
        comment = f"The last extent has {change}.".replace("'", "")
        yield draft.vector(comment, "damaged-extent", change.get("start", 2))


def missing_bytes() -> Iterator[Vector]:
    """Runs that are not stored as far as their extents say."""
    draft = three("stored_one_byte_short")
    draft.stored = draft.stored[:-1]
    yield draft.vector("The last byte of the last segment is not there.", "missing-bytes", 2)

    draft = Draft("stored_run_short")
    draft.add(0, GRAIN + 70)
    draft.stored = draft.stored[: STRIDE + 41]
    yield draft.vector("Of the second segment of the run, 41 of 111 bytes are there.", "missing-bytes", 1)

    draft = three("nothing_stored")
    draft.stored = b""
    yield draft.vector("The slab is empty.", "missing-bytes", 0)

    draft = three("offset_beyond_the_end")
    draft.edit(1, offset=len(draft.stored))
    yield draft.vector("The second extent begins where the slab ends.", "missing-bytes", 1)

    draft = three("offset_highest")
    draft.edit(1, offset=(1 << 48) - 1)
    yield draft.vector("The second extent has the greatest offset.", "missing-bytes", 1)

    draft = three("count_4294967295")
    draft.resize(GRAIN * ((1 << 32) + 1))
    draft.edit(2, count=(1 << 32) - 1)
    yield draft.vector("The last extent promises 64 TiB; a reader must not allocate them.", "missing-bytes", 2)


# Output


def render() -> dict[Path, str]:
    """Every vector, checked, as the text of its file."""
    output: dict[Path, str] = {}
    families = (
        ("secretstream", check_stream, (intact_streams, failing_streams)),
        ("segment", check_file, (intact_files, failing_files)),
    )
    for folder, check, sources in families:
        for vector in (vector for source in sources for vector in source()):
            check(vector)
            path = HERE / folder / f"{vector['name']}.json"
            assert path not in output, path
            output[path] = json.dumps(vector, indent=2, sort_keys=True) + "\n"
    return output


def main(arguments: list[str]) -> int:
    """Writes or compares."""
    output = render()
    present = set(HERE.glob("*/*.json"))
    if arguments == ["--check"]:
        wrong = present - output.keys()
        wrong |= {path for path, text in output.items() if path not in present or path.read_text() != text}
        for path in sorted(wrong):
            print(f"differs: {path.relative_to(HERE)}")
        return 1 if wrong else 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    for path in present - output.keys():
        path.unlink()
    for path, text in output.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    print(f"{len(output)} vectors")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
