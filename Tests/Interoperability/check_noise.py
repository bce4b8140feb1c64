"""Whether noise.py is the Noise of the specification, and refuses what it has to: by itself, without a broker."""

import json
import os
import re

import noise
from keys import KEY_BYTES, Key, fingerprint
from messages import SCHEMA
from opendynamics_client import channel_prologue
from tampering import LOW_ORDER, WithoutSecret

VECTORS = os.path.join(os.path.dirname(__file__), "../../Fixtures/noise/vectors.json")
PAGE = os.path.join(os.path.dirname(__file__), "../../Documentation/CHANNEL-PROTOCOL.md")


def agrees_with_published_vectors():
    """Those of cacophony: each message of both sides, byte for byte, and the hash of the handshake."""
    with open(VECTORS, encoding="ascii") as file:
        vectors = json.load(file)
    assert {vector["protocol_name"] for vector in vectors} == {
        f"Noise_{pattern}_25519_ChaChaPoly_BLAKE2b" for pattern in noise.PATTERNS}
    for vector in vectors:
        sides = [handshake_of(vector, "init"), handshake_of(vector, "resp")]
        for n, message in enumerate(vector["messages"]):
            payload, ciphertext = bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"])
            sender, receiver = sides[n % 2], sides[1 - n % 2]
            if sender.ciphers is None:
                assert sender.write_message(payload) == ciphertext, f"{vector['protocol_name']}, message {n}"
                assert receiver.read_message(ciphertext) == payload
                continue
            assert sender.ciphers[0].encrypt_with_ad(b"", payload) == ciphertext
            assert receiver.ciphers[1].decrypt_with_ad(b"", ciphertext) == payload
        assert [side.hash.hex() for side in sides] == [vector["handshake_hash"]] * 2
        assert sides[1].peer == sides[0].own["s"].public


def handshake_of(vector, side):
    def of(name):
        return bytes.fromhex(vector[f"{side}_{name}"]) if f"{side}_{name}" in vector else None

    pattern = vector["protocol_name"].split("_")[1]
    return noise.HandshakeState(
        pattern, side == "init", bytes.fromhex(vector["init_prologue"]), Key(of("static")), of("remote_static"),
        Key(of("ephemeral")))


# MARK: The page's example


def agrees_with_the_example_of_the_page():
    """Everything that CHANNEL-PROTOCOL.md, "Worked example", shows, computed from the numbers that it is given."""
    given, shown = example_of_the_page()

    def counted(name, count=KEY_BYTES):
        return bytes(range(given[name], given[name] + count))

    keys = [Key(counted(f"{side}'s private key")) for side in ("dialler", "acceptor")]
    ephemeral = [Key(counted(f"{side}'s ephemeral private key")) for side in ("dialler", "acceptor")]
    user, ids = "ann@example.com", ("com.example.notes", "com.example.editor")
    prologue = channel_prologue(counted("ticket"), (ids[0], user), (ids[1], user))
    dialler = noise.HandshakeState("KK", True, prologue, keys[0], keys[1].public, ephemeral[0])
    acceptor = noise.HandshakeState("KK", False, prologue, keys[1], keys[0].public, ephemeral[1])
    first = dialler.write_message()
    acceptor.read_message(first)
    second = acceptor.write_message()
    dialler.read_message(second)
    assert dialler.hash == acceptor.hash
    hello = SCHEMA.encode("ChannelMessage", {"hello": {
        "version": 1, "ticket": counted("ticket"), "app_id": ids[0], "process": bytes(range(0xa0, 0xb0)),
        "requests": 1024, "frame_byte_count": 1_114_112}})
    frame = len(hello).to_bytes(4, "little") + hello
    computed = {
        "dialler's public key": keys[0].public, "acceptor's public key": keys[1].public,
        "dialler's fingerprint": fingerprint(keys[0].public), "prologue": prologue, "message 1": first,
        "message 2": second, "handshake hash h": dialler.hash, "transport key of the dialler": dialler.ciphers[0].key,
        "transport key of the acceptor": dialler.ciphers[1].key, "frame with the dialler's Hello": frame}
    sealed = noise.SealedSocket("KK", acceptor)
    sealed.incoming += shown["first record of the dialler"]
    assert sealed.open() == frame
    body = dialler.ciphers[0].encrypt_with_ad(b"", frame)
    computed["first record of the dialler"] = len(body).to_bytes(2, "little") + body
    for name in computed.keys() | shown.keys():
        assert shown.get(name) == computed.get(name), f"{name}: the page differs"


def example_of_the_page():
    """The bytes from which numbers count, and the numbers that are shown, by their names."""
    with open(PAGE, encoding="utf-8") as file:
        block = file.read().split("\n### Worked example\n")[1].split("```")[1]
    given = {name: int(begin, 16) for name, begin in re.findall(r"^(\S.*?) +from (\w\w)$", block, re.M)}
    shown = {}
    for name, count, digits in re.findall(r"^(\S.*?) \((\d+) bytes[^)]*\)\n((?:  [0-9a-f]+\n)+)", block, re.M):
        shown[name] = bytes.fromhex(digits)
        assert len(shown[name]) == int(count), f"{name}: {len(shown[name])} bytes"
    return given, shown


# MARK: Both sides here


def pair(pattern="KK", prologues=(b"p", b"p"), keys=None, expected=None, states=(noise.HandshakeState,) * 2):
    """An initiator and a responder. `keys` are theirs, `expected` those that each takes for the other's."""
    keys = keys or (Key(), Key())
    theirs = expected or (keys[1].public, keys[0].public)
    first = states[0](pattern, True, prologues[0], keys[0], theirs[0])
    second = states[1](pattern, False, prologues[1], keys[1], theirs[1] if pattern == "KK" else None)
    return noise.SealedSocket(pattern, first), noise.SealedSocket(pattern, second)


def carry(sender, receiver):
    receiver.incoming += sender.outgoing
    sender.outgoing.clear()


def begun(**more):
    first, second = pair(**more)
    carry(first, second)
    second.shake_hands()
    assert not second.has_proof
    carry(second, first)
    first.shake_hands()
    assert first.is_ready and second.is_ready and first.handshake.hash == second.handshake.hash
    return first, second


def refuses(kind, function, *arguments):
    try:
        function(*arguments)
    except noise.Broken as error:
        assert isinstance(error, kind), f"{error!r}"
        return
    raise AssertionError("it was taken")


def carries_bytes_in_records():
    for pattern in noise.PATTERNS:
        first, second = begun(pattern=pattern)
        for sender, receiver in [(first, second), (second, first)]:
            for data in (b"1", os.urandom(noise.PLAINTEXT_MAX), os.urandom(3 * noise.PLAINTEXT_MAX + 1)):
                receiver.incoming += sender.seal(data)
                opened = b""
                while (part := receiver.open()) is not None:
                    opened += part
                assert opened == data and receiver.has_proof
        assert first.handshake.peer == second.handshake.own["s"].public


def refuses_keys_and_prologues_that_differ():
    """The responder does so at message 1 already."""
    other = Key().public
    for pattern in noise.PATTERNS:
        keys = (Key(), Key())
        differences = [{"prologues": (b"p", b"q")}, {"keys": keys, "expected": (other, keys[0].public)}]
        if pattern == "KK":
            differences.append({"keys": keys, "expected": (keys[1].public, other)})
        for more in differences:
            first, second = pair(pattern, **more)
            carry(first, second)
            refuses(noise.DoesNotOpen, second.shake_hands)


def refuses_handshake_messages_of_other_lengths():
    for pattern, (first_bytes, second_bytes) in noise.MESSAGE_BYTES.items():
        for length in (0, 1, first_bytes - 1, first_bytes + 1, 65_535):
            _, second = pair(pattern)
            second.incoming += length.to_bytes(2, "little")
            refuses(noise.WrongLength, second.shake_hands)
        first, _ = pair(pattern)
        first.incoming += (second_bytes + 1).to_bytes(2, "little")
        refuses(noise.WrongLength, first.shake_hands)


def refuses_changed_handshake_messages():
    for pattern in noise.PATTERNS:
        for place in range(2, 2 + noise.MESSAGE_BYTES[pattern][0]):
            first, second = pair(pattern)
            first.outgoing[place] ^= 1
            carry(first, second)
            refuses(noise.DoesNotOpen, second.shake_hands)
        for place in range(2, 2 + noise.MESSAGE_BYTES[pattern][1]):
            first, second = pair(pattern)
            carry(first, second)
            second.shake_hands()
            second.outgoing[place] ^= 1
            carry(second, first)
            refuses(noise.DoesNotOpen, first.shake_hands)


def refuses_keys_of_low_order():
    """Where the attacker knows all secrets, as the results are zeros, and everything else is right."""
    for pattern in noise.PATTERNS:
        for point in LOW_ORDER:
            first, second = pair(pattern, states=(WithoutSecret.of(point), noise.HandshakeState))
            carry(first, second)
            refuses(noise.DoesNotOpen, second.shake_hands)
            first, second = pair(pattern, states=(noise.HandshakeState, WithoutSecret.of(point)))
            carry(first, second)
            second.shake_hands()
            carry(second, first)
            refuses(noise.DoesNotOpen, first.shake_hands)
    for point in LOW_ORDER:
        first, second = pair("IK", states=(WithoutSecret.of(point, "s"), noise.HandshakeState))
        carry(first, second)
        refuses(noise.DoesNotOpen, second.shake_hands)


def finds_keys_of_low_order_itself():
    """Were they taken, all of it would open: so it is the secret that is refused, and nothing else."""
    taking = type("Taking", (noise.HandshakeState,), {"diffie_hellman": taken})
    for point in LOW_ORDER:
        for letter in ("e", "s"):
            first, second = pair("IK", states=(WithoutSecret.of(point, letter), taking))
            carry(first, second)
            second.shake_hands()
            assert second.is_ready


def taken(_, key, public):
    try:
        return noise.diffie_hellman(key, public)
    except noise.DoesNotOpen:
        return bytes(32)


def refuses_changed_records():
    for place in range(2, 2 + 3 + noise.TAG_BYTES):
        first, second = begun()
        record = bytearray(first.record(b"abc"))
        record[place] ^= 1
        second.incoming += record
        refuses(noise.DoesNotOpen, second.open)
    for length in range(noise.TAG_BYTES + 1):
        first, second = begun()
        second.incoming += length.to_bytes(2, "little")
        refuses(noise.WrongLength, second.open)


def refuses_records_in_another_order():
    for opened, refused in [((0,), 0), ((), 1), ((0,), 2), ((0, 1), 0)]:
        first, second = begun()
        records = [first.record(bytes([n])) for n in range(3)]
        for n in opened:
            second.incoming += records[n]
            assert second.open() == bytes([n])
        second.incoming += records[refused]
        refuses(noise.DoesNotOpen, second.open)


def refuses_records_of_others():
    """Those that come back to their sender, and those of another connection."""
    first, second = begun()
    first.incoming += first.record(b"x")
    refuses(noise.DoesNotOpen, first.open)
    other, _ = begun()
    second.incoming += other.record(b"x")
    refuses(noise.DoesNotOpen, second.open)


CHECKS = [
    agrees_with_published_vectors, agrees_with_the_example_of_the_page, carries_bytes_in_records,
    refuses_keys_and_prologues_that_differ,
    refuses_handshake_messages_of_other_lengths, refuses_changed_handshake_messages, refuses_keys_of_low_order,
    finds_keys_of_low_order_itself, refuses_changed_records, refuses_records_in_another_order,
    refuses_records_of_others,
]

if __name__ == "__main__":
    for check in CHECKS:
        check()
        print(f"ok      {check.__name__}")
