"""The Noise Protocol Framework, revision 34, as sealed sockets use it: KK and IK with X25519, ChaChaPoly and BLAKE2b.

`CipherState`, `SymmetricState` and `HandshakeState` are those of the specification, and their methods do what it says
of those names. `SealedSocket` is of CHANNEL-PROTOCOL.md, "The sealed socket". check_noise.py compares all of it with
published vectors.
"""

import hashlib
import hmac

from keys import KEY_BYTES, Key
from nacl import bindings, exceptions

HASH_BYTES, TAG_BYTES = 64, 16
RECORD_MAX = 65_535
PLAINTEXT_MAX = RECORD_MAX - TAG_BYTES
# Static keys that both sides know before, the initiator's first; then the tokens of each message.
PATTERNS = {
    "KK": (("initiator", "responder"), (("e", "es", "ss"), ("e", "ee", "se"))),
    "IK": (("responder",), (("e", "es", "s", "ss"), ("e", "ee", "se"))),
}
# Of both handshake messages, with empty payloads.
MESSAGE_BYTES = {"KK": (48, 48), "IK": (96, 48)}


class Broken(Exception):
    """The connection cannot go on."""


class WrongLength(Broken):
    """A handshake message or a record of a length that it cannot have."""


class DoesNotOpen(Broken):
    """A handshake message or a record that is not of the peer, or not the next one; or a secret that is zeros."""


def blake2b(data):
    return hashlib.blake2b(data).digest()


def hmac_blake2b(key, data):
    """HMAC with a block of 128 bytes, which Python takes from the hash."""
    return hmac.new(key, data, hashlib.blake2b).digest()


def hkdf(chaining_key, material):
    """The first two outputs."""
    secret = hmac_blake2b(chaining_key, material)
    first = hmac_blake2b(secret, b"\x01")
    return first, hmac_blake2b(secret, first + b"\x02")


def diffie_hellman(key, public):
    """X25519. The points of low order, with which the result is zeros, are refused."""
    try:
        secret = bindings.crypto_scalarmult(key.private, public)
    except exceptions.RuntimeError as error:
        raise DoesNotOpen("a public key of low order") from error
    if secret == bytes(KEY_BYTES):
        raise DoesNotOpen("a public key of low order")
    return secret


class CipherState:
    """A key, and how many messages it was used for."""

    def __init__(self, key=None):
        self.key, self.number = key, 0

    def nonce(self):
        self.number += 1
        return bytes(4) + (self.number - 1).to_bytes(8, "little")

    def encrypt_with_ad(self, data, plaintext):
        if self.key is None:
            return plaintext
        return bindings.crypto_aead_chacha20poly1305_ietf_encrypt(plaintext, data, self.nonce(), self.key)

    def decrypt_with_ad(self, data, ciphertext):
        if self.key is None:
            return ciphertext
        try:
            return bindings.crypto_aead_chacha20poly1305_ietf_decrypt(ciphertext, data, self.nonce(), self.key)
        except exceptions.CryptoError as error:
            raise DoesNotOpen("an authenticator is wrong") from error


class SymmetricState:
    """The chaining key and the hash of a handshake."""

    def __init__(self, protocol_name):
        name = protocol_name.encode()
        self.hash = name.ljust(HASH_BYTES, b"\0") if len(name) <= HASH_BYTES else blake2b(name)
        self.chaining_key, self.cipher = self.hash, CipherState()

    def mix_key(self, material):
        self.chaining_key, key = hkdf(self.chaining_key, material)
        self.cipher = CipherState(key[:KEY_BYTES])

    def mix_hash(self, data):
        self.hash = blake2b(self.hash + data)

    def encrypt_and_hash(self, plaintext):
        ciphertext = self.cipher.encrypt_with_ad(self.hash, plaintext)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext):
        plaintext = self.cipher.decrypt_with_ad(self.hash, ciphertext)
        self.mix_hash(ciphertext)
        return plaintext

    def split(self):
        """The ciphers of the transport: the initiator's, the responder's."""
        return [CipherState(key[:KEY_BYTES]) for key in hkdf(self.chaining_key, b"")]


class HandshakeState:
    """One side of a handshake. `peer` is the other side's static key, which a responder of IK learns.

    `ciphers` are this side's and the peer's, once the last message was written or read.
    """

    functions = "25519_ChaChaPoly_BLAKE2b"

    def __init__(self, pattern, is_initiator, prologue, key, peer=None, ephemeral=None):
        self.is_initiator, self.ciphers = is_initiator, None
        # By their letters in the patterns: this side's keys, and the peer's public ones.
        self.own, self.remote = {"s": key, "e": ephemeral}, {"s": peer, "e": None}
        self.symmetric = SymmetricState(f"Noise_{pattern}_{self.functions}")
        self.symmetric.mix_hash(prologue)
        known, messages = PATTERNS[pattern]
        for side in known:
            self.symmetric.mix_hash(key.public if (side == "initiator") == is_initiator else peer)
        self.messages = list(messages)

    @property
    def peer(self):
        return self.remote["s"]

    @property
    def hash(self):
        return self.symmetric.hash

    def write_message(self, payload=b""):
        message = bytearray()
        for token in self.messages.pop(0):
            if token == "e":
                self.own["e"] = self.own["e"] or Key()
                message += self.own["e"].public
                self.symmetric.mix_hash(self.own["e"].public)
            elif token == "s":
                message += self.symmetric.encrypt_and_hash(self.own["s"].public)
            else:
                self.symmetric.mix_key(self.secret(token))
        message += self.symmetric.encrypt_and_hash(payload)
        self.split()
        return bytes(message)

    def read_message(self, message):
        """Its payload. Raises DoesNotOpen."""
        position = 0

        def take(count):
            nonlocal position
            if count > len(message) - position:
                raise WrongLength("a handshake message is too short")
            position += count
            return message[position - count : position]

        for token in self.messages.pop(0):
            if token == "e":
                self.remote["e"] = take(KEY_BYTES)
                self.symmetric.mix_hash(self.remote["e"])
            elif token == "s":
                self.remote["s"] = self.symmetric.decrypt_and_hash(take(KEY_BYTES + TAG_BYTES))
            else:
                self.symmetric.mix_key(self.secret(token))
        payload = self.symmetric.decrypt_and_hash(message[position:])
        self.split()
        return payload

    def secret(self, token):
        """The first letter is of the initiator's key, the second of the responder's."""
        own, remote = token if self.is_initiator else reversed(token)
        return self.diffie_hellman(self.own[own], self.remote[remote])

    def diffie_hellman(self, key, public):
        return diffie_hellman(key, public)

    def split(self):
        if not self.messages:
            ciphers = self.symmetric.split()
            self.ciphers = ciphers if self.is_initiator else ciphers[::-1]


class SealedSocket:
    """The bytes of one sealed socket, whoever carries them.

    What came goes into `incoming`, and `outgoing` has the handshake message that is to be sent.
    """

    def __init__(self, pattern, handshake):
        self.handshake, self.lengths = handshake, list(MESSAGE_BYTES[pattern])
        self.incoming, self.outgoing = bytearray(), bytearray()
        # A responder may act on nothing before a record of the peer has opened.
        self.has_proof = False
        if handshake.is_initiator:
            self.write_message()

    @property
    def is_ready(self):
        return self.handshake.ciphers is not None

    def write_message(self):
        self.lengths.pop(0)
        message = self.handshake.write_message()
        self.outgoing += len(message).to_bytes(2, "little") + message

    def shake_hands(self):
        """Goes on as far as the messages that came allow. Raises Broken."""
        while not self.is_ready:
            message = self.next(self.lengths[0], self.lengths[0])
            if message is None:
                return
            self.lengths.pop(0)
            self.handshake.read_message(message)
            self.has_proof = self.handshake.is_initiator
            if not self.is_ready:
                self.write_message()

    def seal(self, data):
        """Records with these bytes."""
        records = bytearray()
        for begin in range(0, len(data), PLAINTEXT_MAX):
            records += self.record(data[begin : begin + PLAINTEXT_MAX])
        return bytes(records)

    def record(self, plaintext):
        body = self.handshake.ciphers[0].encrypt_with_ad(b"", bytes(plaintext))
        return len(body).to_bytes(2, "little") + body

    def open(self):
        """The bytes of the next record, or None when it has not come. Raises Broken."""
        body = self.next(TAG_BYTES + 1, RECORD_MAX)
        if body is None:
            return None
        plaintext = self.handshake.ciphers[1].decrypt_with_ad(b"", body)
        self.has_proof = True
        return plaintext

    def next(self, least, most):
        """What is behind the next length, which is looked at as soon as it is there; None when not all has come."""
        if len(self.incoming) < 2:
            return None
        length = int.from_bytes(self.incoming[:2], "little")
        if not least <= length <= most:
            raise WrongLength(f"{length} bytes where {least} to {most} may be")
        if len(self.incoming) < 2 + length:
            return None
        body = bytes(self.incoming[2 : 2 + length])
        del self.incoming[: 2 + length]
        return body
