"""What hostile programs do to sealed sockets: keys of low order, bytes that are no handshake, records that are none."""

import os

from noise import RECORD_MAX, TAG_BYTES, CipherState, HandshakeState

PRIME = 2**255 - 19
# All that there are, with the highest bit, which X25519 does not look at, and without it.
LOW_ORDER = [(number | bit).to_bytes(32, "little") for number in (
    0, 1, PRIME - 1, PRIME, PRIME + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823) for bit in (0, 1 << 255)]


class OfAnotherName(HandshakeState):
    """The same messages by the name of another protocol."""

    functions = "25519_AESGCM_BLAKE2b"


class LowOrderKey:
    """A public key whose owner knows every secret with it: zeros."""

    private = None

    def __init__(self, public):
        self.public = public


class WithoutSecret(HandshakeState):
    """Shows a point of low order in place of its ephemeral key, or of its static one."""

    point, letter = LOW_ORDER[0], "e"

    @classmethod
    def of(cls, point, letter="e"):
        return type("WithoutSecretOf", (cls,), {"point": point, "letter": letter})

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.own[self.letter] = LowOrderKey(self.point)

    def diffie_hellman(self, key, public):
        return bytes(32) if key.private is None else super().diffie_hellman(key, public)


def said(sock, seconds=5):
    """All that still comes, up to the end."""
    sock.setblocking(True)
    sock.settimeout(seconds)
    data = b""
    try:
        while part := sock.recv(1 << 16):
            data += part
    except ConnectionResetError:
        pass
    return data


def unit(body, length=None):
    """A handshake message or a record as it goes over the socket."""
    return (len(body) if length is None else length).to_bytes(2, "little") + body


def changed(data, place, bit=1):
    """The bytes with one bit of them changed."""
    data = bytearray(data)
    data[place] ^= bit
    return bytes(data)


def no_handshakes(length):
    """Bytes that do not begin with a handshake message of this length."""
    hello = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"
    yield from [b"GET / HTTP/1.0\r\n\r\n", bytes(5), hello + os.urandom(506), b"\xff" * 1000]
    for wrong in (0, 1, 16, length - 1, length + 1, 2 * length, 65_535):
        yield unit(b"", wrong)
        yield unit(os.urandom(wrong))
    # The other byte order.
    yield length.to_bytes(2, "big") + os.urandom(length)


def no_messages(length):
    """Functions that make a handshake message that does not open, and has the right length, of one that does."""
    yield lambda good: unit(os.urandom(length))
    yield lambda good: unit(bytes(length))
    yield lambda good: unit(bytes(32) + good[32:])
    # A bit in a byte of eight, and in the last byte of each part. X25519 does not look at the last bit of the ephemeral
    # key, but the hash does.
    for place in {*range(0, length, 8), *range(31, length, 16)}:
        yield lambda good, n=place: unit(changed(good, n, 0x80))


def no_records():
    """What ends a connection as broken: names, and functions of its sealed socket and of bytes that change nothing."""
    for length in range(TAG_BYTES + 1):
        yield f"{length} bytes", lambda it, good, n=length: unit(os.urandom(n))
    yield "a length alone", lambda it, good: unit(b"", TAG_BYTES)
    yield "a record of nobody", lambda it, good: unit(os.urandom(TAG_BYTES + len(good)))
    yield "the longest record of nobody", lambda it, good: unit(os.urandom(RECORD_MAX))
    yield "plaintext", lambda it, good: unit(good + bytes(TAG_BYTES))
    # The first byte and the last of what is sealed, and of the authenticator.
    for place in (2, -TAG_BYTES - 1, -TAG_BYTES, -1):
        yield f"a bit changed at {place}", lambda it, good, n=place: changed(it.record(good), n)
    for more in (-1, 1):
        yield f"a length changed by {more}", lambda it, good, n=more: of_length(it.record(good), n) + it.record(good)
    yield "a record that is longer", lambda it, good: unit(it.record(good)[2:] + b"\0")
    yield "a record twice", lambda it, good: 2 * it.record(good)
    yield "two records swapped", lambda it, good: b"".join(reversed([it.record(good), it.record(good)]))
    yield "a record left out", lambda it, good: b"".join([it.record(good) for _ in range(3)][::2])
    yield "a record of the other side", lambda it, good: unit(theirs(it).encrypt_with_ad(b"", good))


def theirs(sealed):
    """What the other side sealed its first record with."""
    return CipherState(sealed.handshake.ciphers[1].key)


def of_length(record, more):
    """The same bytes behind another length."""
    return unit(record[2:], len(record) - 2 + more)
