"""A device and a back end of the push protocol, written from Documentation/PUSH-PROTOCOL.md alone."""

import asyncio
import base64
import http.client
import os
import struct

import websockets
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# Protocol Buffers, as much as the protocol needs.


def varint(value):
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    found, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = read()
        if key & 7 == 0:
            found[key >> 3] = read()
        else:
            length = read()
            found[key >> 3] = data[at : at + length]
            at += length
    return found


def hello(secret, version=1, admission=b"", heartbeat=240):
    return field(1, field(1, version) + field(2, secret) + field(3, admission) + field(4, heartbeat))


def open_(channel, is_known=False, taken=0):
    return field(2, field(1, channel) + field(2, int(is_known)) + field(3, taken))


def close(channel):
    return field(3, field(1, channel))


def taken(channel, through):
    return field(4, field(1, channel) + field(2, through))


REASONS = [
    "unspecified", "malformed", "version", "not_admitted", "replaced", "slow", "silent", "full", "draining", "failed",
]


def parse(data):
    """A message of the relay as (kind, ...)."""
    (kind, content), = fields(data).items()
    content = fields(content)
    if kind == 1:
        return "welcome", content[1], content[2]
    if kind == 2:
        return "opened", content[1], content[2].decode()
    if kind == 3:
        return "failed", content[1], content[2]
    if kind == 5:
        return "goodbye", REASONS[content.get(1, 0)], content.get(2, 0)
    for number, name in ((3, "message"), (4, "ping-failed"), (5, "closed"), (6, "error")):
        if number in content:
            value = content[number]
            if number == 3:
                value = fields(value).get(1, b"")
            return name, content[1], content[2], value
    raise ValueError("no known message")


class Device:
    """One connection."""

    def __init__(self, url, secret=None):
        self.url = url
        self.secret = secret or os.urandom(32)

    async def __aenter__(self):
        self.socket = await websockets.connect(
            self.url, subprotocols=["dynamics-push.v1"], compression=None, ping_interval=None, max_size=2 << 20
        )
        return self

    async def __aexit__(self, *_):
        await self.socket.close()

    async def greet(self, **more):
        await self.socket.send(hello(self.secret, **more))
        return await self.next()

    async def send(self, message):
        await self.socket.send(message)

    async def next(self, seconds=5):
        return parse(await asyncio.wait_for(self.socket.recv(), seconds))

    async def nothing(self, seconds=0.3):
        try:
            return await self.next(seconds)
        except asyncio.TimeoutError:
            return None

    async def end(self):
        """The code with which the relay closes."""
        try:
            while True:
                await asyncio.wait_for(self.socket.recv(), 5)
        except websockets.ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None


def request(port, method, target, headers=(), body=None):
    """Status, headers, body. `headers` are pairs, sent as they are."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    if body is not None:
        try:
            connection.send(body)
        except OSError:
            pass
    response = connection.getresponse()
    answer = response.status, response.headers, response.read()
    connection.close()
    return answer


def gnp(port, token, method="notify", body=b"", headers=None, verb=None):
    """The number of X-Good-GNP-Code. Checks what every answer has."""
    if headers is None:
        headers = []
        if method.startswith("notify"):
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    if token is not None:
        headers = [*headers, ("X-Good-GNP-Token", token)]
    is_notify = method.startswith("notify")
    status, answer, content = request(
        port, verb or ("POST" if is_notify else "GET"), f"/GNP1.0?method={method}", headers, body if is_notify else None
    )
    assert (status, answer["Content-Length"], answer["Content-Type"], content) == (200, "0", "text/plain", b""), (
        status, answer.items(), content,
    )
    return int(answer["X-Good-GNP-Code"].split()[0])


def push(port, token, body=b"", ttl="3600", **more):
    headers = [("Content-Length", str(len(body)))]
    if ttl is not None:
        headers.append(("TTL", ttl))
    headers += [(name.replace("_", "-"), value) for name, value in more.items()]
    return request(port, "POST", "/push/" + token.split()[-1], headers, body)


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encrypt(plain, public_key, authentication_secret, record=4096):
    """`aes128gcm`, after RFC 8291 and RFC 8188."""

    def derive(salt, key, info, length):
        return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=info).derive(key)

    receiver, secret = decode(public_key), decode(authentication_secret)
    own = ec.generate_private_key(ec.SECP256R1())
    own_public = own.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    shared = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), receiver))
    material = derive(secret, shared, b"WebPush: info\0" + receiver + own_public, 32)
    salt = os.urandom(16)
    key = derive(salt, material, b"Content-Encoding: aes128gcm\0", 16)
    nonce = int.from_bytes(derive(salt, material, b"Content-Encoding: nonce\0", 12), "big")
    out = salt + struct.pack("!IB", record, len(own_public)) + own_public
    room = record - 17
    pieces = [plain[at : at + room] for at in range(0, len(plain), room)] or [b""]
    for number, piece in enumerate(pieces):
        end = b"\2" if number == len(pieces) - 1 else b"\1"
        out += AESGCM(key).encrypt((nonce ^ number).to_bytes(12, "big"), piece + end, None)
    return out
