"""Encrypts, decrypts and re-encrypts one file with a library's streams: MODULE VERB OPERAND…"""

import os
import sys

PIECE = 1 << 20


class SecretStream:
    """libsodium's secretstream through PyNaCl, messages of 64 KiB."""

    MESSAGE = 1 << 16

    def __init__(self):
        from nacl import bindings

        self._nacl = bindings

    def make_key(self, path):
        with open(path, "wb") as file:
            file.write(os.urandom(self._nacl.crypto_secretstream_xchacha20poly1305_KEYBYTES))

    def pieces(self, key, source):
        """The plaintext of an encrypted file, piece by piece."""
        n = self._nacl
        state = n.crypto_secretstream_xchacha20poly1305_state()
        with open(key, "rb") as file:
            secret = file.read()
        header = source.read(n.crypto_secretstream_xchacha20poly1305_HEADERBYTES)
        n.crypto_secretstream_xchacha20poly1305_init_pull(state, header, secret)
        size = self.MESSAGE + n.crypto_secretstream_xchacha20poly1305_ABYTES
        while message := source.read(size):
            piece, tag = n.crypto_secretstream_xchacha20poly1305_pull(state, message)
            yield piece
        if tag != n.crypto_secretstream_xchacha20poly1305_TAG_FINAL:
            raise ValueError("the stream was cut")

    def write(self, key, pieces, target):
        n = self._nacl
        state = n.crypto_secretstream_xchacha20poly1305_state()
        with open(key, "rb") as file:
            secret = file.read()
        target.write(n.crypto_secretstream_xchacha20poly1305_init_push(state, secret))
        last = None
        for piece in pieces:
            if last is not None:
                target.write(n.crypto_secretstream_xchacha20poly1305_push(state, last))
            last = piece
        final = n.crypto_secretstream_xchacha20poly1305_TAG_FINAL
        target.write(n.crypto_secretstream_xchacha20poly1305_push(state, last or b"", tag=final))


class Tink:
    """Tink's AES256_GCM_HKDF_1MB."""

    MESSAGE = PIECE

    def __init__(self):
        import tink
        from tink import secret_key_access, streaming_aead

        streaming_aead.register()
        self._tink, self._access, self._streaming = tink, secret_key_access, streaming_aead

    def make_key(self, path):
        templates = self._streaming.streaming_aead_key_templates
        handle = self._tink.new_keyset_handle(templates.AES256_GCM_HKDF_1MB)
        with open(path, "w") as file:
            file.write(self._tink.json_proto_keyset_format.serialize(handle, self._access.TOKEN))

    def _primitive(self, key):
        with open(key) as file:
            handle = self._tink.json_proto_keyset_format.parse(file.read(), self._access.TOKEN)
        return handle.primitive(self._streaming.StreamingAead)

    def pieces(self, key, source):
        with self._primitive(key).new_decrypting_stream(source, b"") as stream:
            while piece := stream.read(PIECE):
                yield piece

    def write(self, key, pieces, target):
        with self._primitive(key).new_encrypting_stream(target, b"") as stream:
            for piece in pieces:
                stream.write(piece)


def plain(source, size):
    while piece := source.read(size):
        yield piece


def main(module, verb, *operands):
    library = {"nacl": SecretStream, "tink": Tink}[module]()
    if verb == "key":
        library.make_key(operands[0])
        return
    key, source_path, *rest = operands
    target_path = rest[-1]
    with open(source_path, "rb") as source, open(target_path, "wb") as target:
        if verb == "encrypt":
            library.write(key, plain(source, library.MESSAGE), target)
        elif verb == "decrypt":
            for piece in library.pieces(key, source):
                target.write(piece)
        else:
            library.write(rest[0], library.pieces(key, source), target)


main(*sys.argv[1:])
