"""Checks the relay and the client from outside: a device and back ends in Python, real application servers with
every fault, and the program's own app.

    run.py PROGRAM [--only NAME]
"""

import asyncio
import base64
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import resource
import select
import shutil
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

import websockets
from push_client import Device, close, encrypt, field, gnp, hello, open_, push, request, taken

program = pathlib.Path(sys.argv[1]).resolve()
checks = []


def check(function):
    checks.append(function)
    return function


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{repr(found)[-300:]} in place of {repr(expected)[-300:]}")


class Relay:
    """A relay process, and the folder of everything."""

    def __init__(self, settings=None, *options):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="push-"))
        (self.folder / "settings.json").write_text(
            json.dumps({"newChannelsOfDevice": 100000, "newChannelsOfAddress": 100000, **(settings or {})})
        )
        self.options = options
        self.limit = None  # of open files
        self.ports = {}
        self.start()

    def start(self):
        listen = {
            name: f"127.0.0.1:{self.ports.get(name, 0)}"
            for name in ("devices", "plain-devices", "back-ends", "plain-back-ends", "operator")
        }
        self.process = subprocess.Popen(
            [program, "relay", "--directory", self.folder / "relay", "--settings", self.folder / "settings.json",
             "--log-level", "debug", *[word for name, at in listen.items() for word in ("--" + name, at)],
             *self.options],
            stdout=subprocess.PIPE, stderr=open(self.folder / "log", "a"), text=True,
            # A file that may not grow is an error of a write, and no signal.
            restore_signals=False,
            preexec_fn=self.limit and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (self.limit, self.limit))),
        )
        for _ in listen:
            words = self.process.stdout.readline().split()
            if len(words) != 3:
                raise AssertionError("the relay does not start:\n" + (self.folder / "log").read_text()[-2000:])
            self.ports[words[1]] = int(words[2])
        self.http = self.ports["plain-back-ends"]
        self.url = f"ws://127.0.0.1:{self.ports['plain-devices']}/device"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        equal(self.process.wait(20), 0)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.kill()
        if kind:
            print((self.folder / "log").read_text()[-3000:])
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def app(self, name="device", identifier="com.example.app", *options):
        """The program's app, with an event of it at each `next()`."""
        app = App(
            [program, "listen", identifier, "--json", "--directory", self.folder / name,
             "--relay", f"wss://localhost:{self.ports['devices']}", "--authorities", self.folder / "relay/loopback.pem",
             *options])
        try:
            yield app
        finally:
            app.process.kill()
            app.process.wait()


class App:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def next(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the app has ended")
        return json.loads(line)

    def expect(self, event, **values):
        found = self.next()
        equal({key: found.get(key) for key in ("event", *values)}, {"event": event, **values})
        return found


class Server:
    """An application server. `answer` gets a request and returns status, headers, body; None never answers."""

    def __init__(self, answer, tls=None):
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.requests.append((self.command, self.path, dict(self.headers), body.decode()))
                answer_now = answer(self, body.decode())
                if answer_now is None:
                    time.sleep(30)
                    return
                status, headers, content = answer_now
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content.encode())

            do_GET = do_POST = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"http{'s' if tls else ''}://localhost:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def wait_for(condition, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


async def opened(device, channel=None):
    channel = channel or os.urandom(16)
    await device.send(open_(channel))
    kind, found, token = await device.next()
    equal((kind, found), ("opened", channel))
    return channel, token


def frame(opcode, data):
    """A whole WebSocket frame, masked with 0."""
    head = bytes([0x80 | opcode, 0x80 | len(data)]) if len(data) < 126 else (
        bytes([0x80 | opcode, 0x80 | 126]) + struct.pack("!H", len(data)))
    return head + b"\0\0\0\0" + data


def raw_device(relay, receive_buffer=None):
    """A connection that is a WebSocket, and reads when the check says so."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", relay.ports["plain-devices"]))
    connection.settimeout(10)
    connection.sendall(
        b"GET /device HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: dynamics-push.v1\r\n\r\n")
    reply = b""
    while b"\r\n\r\n" not in reply:
        reply += connection.recv(4096)
    return connection


# Devices


@check
async def a_device_opens_gets_and_acknowledges(relay):
    async with Device(relay.url) as device:
        equal(await device.greet(), ("welcome", 240, 256))
        channel, token = await opened(device)
        equal([len(part) for part in token.split(" ")], [8, 4, 16, 43])
        equal(gnp(relay.http, token, body=b"one"), 100)
        equal(push(relay.http, token, b"two")[0], 201)
        first, second = await device.next(), await device.next()
        equal((first[0], first[1], first[3]), ("message", channel, b"one"))
        equal((second[0], second[3]), ("message", b"two"))
        assert second[2] > first[2] >= (time.time() - 60) * 1e6
        await device.send(taken(channel, first[2]))
    async with Device(relay.url, device.secret) as device:
        await device.greet()
        await device.send(open_(channel, True, first[2]))
        equal((await device.next())[2], token)
        equal(await device.next(), second)
        await device.send(close(channel))
        kind, _, last, _ = await device.next()
        equal(kind, "closed")
        equal(gnp(relay.http, token), 402)
        equal(push(relay.http, token)[0], 410)
        await device.send(taken(channel, last))
        equal(await device.nothing(), None)


@check
async def bytes_that_break_the_protocol_end_the_connection(relay):
    secret, channel = bytes(32), bytes(16)
    cases = [
        ([b""], 1007), ([b"\xff" * 20], 1007), (["text"], 1003), ([b"x" * 5000], 1009),
        ([open_(channel)], 1007), ([hello(secret[1:])], 1007), ([hello(secret, heartbeat=9)], 1007),
        ([hello(secret, heartbeat=3601)], 1007), ([hello(secret, admission=b"k" * 257)], 1007),
        ([hello(secret), hello(secret)], 1007), ([hello(secret), open_(channel[1:])], 1007),
        ([hello(secret), open_(os.urandom(16)), taken(channel, 1)], 1007), ([hello(secret), field(9, b"")], 1007),
        ([hello(secret, version=2)], 1000),
    ]
    for messages, code in cases:
        async with Device(relay.url) as device:
            for message in messages:
                await device.send(message)
            found = await device.end()
            assert found == code, (repr(messages)[:60], found, code)
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        await device.send(open_(channel))
        equal(await device.next(), ("goodbye", "malformed", 0))
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        equal(gnp(relay.http, token), 100)
        _, _, number, _ = await device.next()
        await device.send(taken(channel, number + 1))
        equal(await device.next(), ("goodbye", "malformed", 0))


@check
async def frames_that_break_rfc_6455_end_the_connection(relay):
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    head = (
        f"GET /device HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: dynamics-push.v1\r\n\r\n"
    ).encode()
    mask = b"\0\0\0\0"
    message = hello(os.urandom(32))
    frames = {
        "not masked": (bytes([0x82, len(message)]) + message, 1002),
        "reserved bit": (bytes([0xC2, 0x80 | len(message)]) + mask + message, 1002),
        "unknown opcode": (bytes([0x83, 0x80]) + mask, 1002),
        "fragmented ping": (bytes([0x09, 0x80]) + mask, 1002),
        "continuation of nothing": (bytes([0x80, 0x80]) + mask, 1002),
        "too long": (bytes([0x82, 0xFF]) + struct.pack("!Q", 1 << 40) + mask, 1009),
        "too long in pieces": (b"".join(
            bytes([0x02 if n == 0 else 0x00, 0x80 | 126]) + struct.pack("!H", 2000) + mask + bytes(2000)
            for n in range(3)), 1009),
    }
    for name, (data, code) in frames.items():
        with socket.create_connection(("127.0.0.1", relay.ports["plain-devices"]), 5) as connection:
            connection.sendall(head)
            reply = b""
            while b"\r\n\r\n" not in reply:
                reply += connection.recv(4096)
            assert b"101" in reply.split(b"\r\n")[0] and b"dynamics-push.v1" in reply
            with contextlib.suppress(OSError):
                connection.sendall(data)
            rest = b""
            with contextlib.suppress(OSError):
                while struct.pack("!H", code) not in rest[-4:] and (part := connection.recv(4096)):
                    rest += part
            assert struct.pack("!H", code) in rest[-4:], (name, rest)
    # In pieces it is the same message.
    with socket.create_connection(("127.0.0.1", relay.ports["plain-devices"]), 5) as connection:
        connection.sendall(head)
        time.sleep(0.2)
        connection.recv(4096)
        connection.sendall(bytes([0x02, 0x80 | 10]) + mask + message[:10])
        connection.sendall(bytes([0x89, 0x80 | 2]) + mask + b"hi")
        connection.sendall(bytes([0x80, 0x80 | (len(message) - 10)]) + mask + message[10:])
        time.sleep(0.3)
        equal(connection.recv(4096), b"\x8a\x02hi\x82\x08\x0a\x06\x08\xf0\x01\x10\x80\x02")


@check
async def what_is_no_websocket_of_ours_is_refused(relay):
    port = relay.ports["plain-devices"]
    equal(request(port, "GET", "/")[0], 404)
    equal(request(port, "GET", "/device")[0], 426)
    upgrade = [
        ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    equal(request(port, "GET", "/device", upgrade)[0], 400)
    equal(request(port, "GET", "/other", [*upgrade, ("Sec-WebSocket-Protocol", "dynamics-push.v1")])[0], 404)


@check
async def the_device_port_speaks_tls_1_3_alone(relay):
    authority = ssl.create_default_context(cafile=relay.folder / "relay/loopback.pem")
    for version, works in ((ssl.TLSVersion.TLSv1_3, True), (ssl.TLSVersion.TLSv1_2, False)):
        authority.maximum_version = version
        try:
            with socket.create_connection(("127.0.0.1", relay.ports["devices"])) as raw:
                with authority.wrap_socket(raw, server_hostname="localhost") as connection:
                    equal((connection.version(), works), ("TLSv1.3", True))
        except ssl.SSLError:
            equal(works, False)
    wait_for(lambda: "a device cannot connect" in (relay.folder / "log").read_text())


@check
async def another_device_gets_neither_channel_nor_messages(relay):
    async with Device(relay.url) as device, Device(relay.url) as other:
        await device.greet()
        await other.greet()
        channel, _ = await opened(device)
        await other.send(open_(channel))
        equal(await other.next(), ("failed", channel, 502))
        await other.send(open_(os.urandom(16), True, 5))
        equal((await other.next())[2], 502)


@check
async def a_second_connection_replaces_the_first(relay):
    async with Device(relay.url) as device, Device(relay.url, device.secret) as second:
        await device.greet()
        channel, token = await opened(device)
        await second.greet()
        equal(await device.next(), ("goodbye", "replaced", 0))
        equal(gnp(relay.http, token), 403)
        await second.send(open_(channel, True, 0))
        equal((await second.next())[2], token)
        equal(gnp(relay.http, token), 100)


@check
async def one_channel_that_is_not_taken_holds_up_no_other(relay):
    async with Device(relay.url) as device:
        await device.greet()
        lazy, lazy_token = await opened(device)
        quick, quick_token = await opened(device)
        for number in range(40):
            equal(push(relay.http, lazy_token, b"%d" % number)[0], 201)
        for _ in range(16):
            equal((await device.next())[1], lazy)
        equal(await device.nothing(), None)
        equal(push(relay.http, quick_token, b"x")[0], 201)
        kind, channel, last, _ = await device.next()
        equal(channel, quick)


@check
async def a_full_queue_refuses_and_loses_nothing(relay):
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        for number in range(20):
            equal(push(relay.http, token, b"%d" % number)[0], 201)
        equal(push(relay.http, token, b"x")[0], 429)
        equal(gnp(relay.http, token), 403)
        seen = []
        while len(seen) < 20:
            _, _, number, body = await device.next()
            seen.append(int(body))
            await device.send(taken(channel, number))
        equal(seen, list(range(20)))
        await asyncio.sleep(0.2)
        equal(push(relay.http, token, b"again")[0], 201)


check_settings = {
    a_full_queue_refuses_and_loses_nothing: {"waitingEvents": 20},
}


@check
async def a_device_that_does_not_read_costs_little(relay):
    def memory():
        text = pathlib.Path(f"/proc/{relay.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) >> 10

    body = b"x" * (1 << 20)
    async with Device(relay.url) as device:
        await device.greet()
        channels = [await opened(device) for _ in range(8)]
        device.socket.transport.pause_reading()
        before = memory()
        for _ in range(15):
            for _, token in channels:
                equal(push(relay.http, token, body)[0], 201)
        # 120 MiB wait. The connection holds its window of 2 MiB and what the store and the sockets need.
        assert memory() - before < 64, f"{memory() - before} MiB"
        device.socket.transport.resume_reading()
        for _ in range(120):
            kind, channel, number, found = await device.next(20)
            equal(found, body)
            await device.send(taken(channel, number))


@check
async def a_device_that_reads_nothing_for_too_long_is_cut(relay):
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        device.socket.transport.pause_reading()
        for _ in range(20):
            equal(push(relay.http, token, b"x" * (1 << 20))[0], 201)
        wait_for(lambda: gnp(relay.http, token, "checkToken") == 403, 10)
        metrics = request(relay.ports["operator"], "GET", "/metrics")[2].decode()
        assert 'push_goodbyes_total{reason="slow"} 1' in metrics
    # Nothing is lost by it.
    async with Device(relay.url, device.secret) as device:
        await device.greet()
        await device.send(open_(channel, True, 0))
        await device.next()
        for _ in range(20):
            kind, _, number, body = await device.next(10)
            equal((kind, len(body)), ("message", 1 << 20))
            await device.send(taken(channel, number))


check_settings[a_device_that_reads_nothing_for_too_long_is_cut] = {
    "writeSeconds": 1, "windowBytes": 32 << 20, "channelWindowBytes": 32 << 20, "channelWindowEvents": 64,
    "waitingBytes": 64 << 20,
}


@check
async def a_device_that_reads_nothing_is_cut_at_default_windows(relay):
    # Few bytes and many: the relay's system takes a window for a device that reads nothing.
    for size in (1 << 20, 200_000):
        connection = raw_device(relay, receive_buffer=4096)
        secret, channel = os.urandom(32), os.urandom(16)
        connection.sendall(frame(2, hello(secret)) + frame(2, open_(channel)))
        token = b""
        while (at := token.find(b"app.gdpush") - 14) < 0 or len(token) < at + 74:
            token += connection.recv(4096)
        token = token[at : at + 74].decode()
        equal(push(relay.http, token, b"x" * size)[0], 201)
        wait_for(lambda: gnp(relay.http, token, "checkToken") == 403, 30)
        connection.close()
    metrics = request(relay.ports["operator"], "GET", "/metrics")[2].decode()
    assert 'push_goodbyes_total{reason="slow"} 2' in metrics, metrics
    # One that reads and does not take is not cut.
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        equal(push(relay.http, token, b"x" * (1 << 20))[0], 201)
        kind, _, number, _ = await device.next()
        await asyncio.sleep(4)
        equal(gnp(relay.http, token, "checkToken"), 100)
        await device.send(taken(channel, number))


check_settings[a_device_that_reads_nothing_is_cut_at_default_windows] = {"writeSeconds": 1}


@check
async def a_device_on_a_slow_line_is_not_cut(relay):
    connection = raw_device(relay, receive_buffer=65536)
    connection.sendall(frame(2, hello(os.urandom(32))) + frame(2, open_(os.urandom(16))))
    token = b""
    while (at := token.find(b"app.gdpush") - 14) < 0 or len(token) < at + 74:
        token += connection.recv(4096)
    token = token[at : at + 74].decode()
    # More than the buffers of both systems have room for waits in the relay.
    for _ in range(16):
        equal(push(relay.http, token, b"x" * (1 << 20))[0], 201)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        connection.recv(65536)
        time.sleep(0.2)
    equal(gnp(relay.http, token, "checkToken"), 100)
    connection.close()


check_settings[a_device_on_a_slow_line_is_not_cut] = {
    "writeSeconds": 3, "windowBytes": 32 << 20, "channelWindowBytes": 32 << 20, "channelWindowEvents": 64,
}


@check
async def pings_of_a_device_that_does_not_read_cost_little(relay):
    def memory():
        text = pathlib.Path(f"/proc/{relay.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) >> 10

    connection = raw_device(relay, receive_buffer=4096)
    connection.sendall(frame(2, hello(os.urandom(32))))
    time.sleep(0.3)
    before = memory()
    own = f"{connection.getsockname()[1]:04X}"

    def buffered(queue=0):
        """Bytes that the relay's system has for the device (0) or of it (1)."""
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, _, remote, _, queues, *_ = line.split()
            if remote.endswith(":" + own):
                return int(queues.split(":")[queue], 16)

    # Long pongs fill the buffers of both systems. Those of the short pings wait in the relay, if it makes them.
    last, same = 0, 0
    while same < 3:
        connection.sendall(frame(9, b"x" * 125) * 1000)
        time.sleep(0.1)
        same = same + 1 if buffered() == last else 0
        last = buffered()
    for _ in range(400):
        connection.sendall(frame(9, b"") * 1000)
    wait_for(lambda: buffered(1) == 0, 60)
    assert memory() - before < 30, f"{memory() - before} MiB"
    connection.close()


@check
async def nothing_follows_the_end_of_a_connection(relay):
    secret, channel = os.urandom(32), os.urandom(16)
    connection = raw_device(relay)
    connection.sendall(frame(2, hello(secret)) + frame(2, open_(channel)))
    data = b""
    while b"app.gdpush" not in data:
        data += connection.recv(4096)
    async with Device(relay.url, secret) as device:
        await device.greet()
        data = connection.recv(4096)
        # Goodbye {replaced} and a Close frame; what the device says then is not answered.
        goodbye = bytes([0x82, 4, 0x2A, 2, 0x08, 4])
        end = bytes([0x88, 2]) + struct.pack("!H", 1000)
        connection.sendall(frame(2, taken(channel, 1)) + frame(9, b"x") + frame(2, b"\xff"))
        with contextlib.suppress(OSError):
            while part := connection.recv(4096):
                data += part
        equal(data, goodbye + end)


@check
async def silent_connections_of_an_address_lock_nobody_out(relay):
    def silent(address):
        return socket.create_connection(("127.0.0.1", relay.ports["plain-devices"]), 5, source_address=(address, 0))

    # Of the device's own address, and of many others.
    for addresses in ([1] * 200, [2 + number % 50 for number in range(200)]):
        held = []
        for number in addresses:
            with contextlib.suppress(OSError):
                held.append(silent(f"127.0.0.{number}"))
        time.sleep(0.3)
        async with Device(relay.url) as device:
            equal((await device.greet())[0], "welcome")
        for connection in held:
            connection.close()


check_settings[silent_connections_of_an_address_lock_nobody_out] = {"newConnections": 40}


@check
async def a_device_waits_while_a_relay_greets_others(relay):
    head = b"GET /device HTTP/1.1\r\nHost: x\r\n"
    held = []
    for number in range(8):
        address = (f"127.0.0.{10 + number}", 0)
        connection = socket.create_connection(("127.0.0.1", relay.ports["plain-devices"]), 5, source_address=address)
        connection.sendall(head)
        held.append(connection)
    time.sleep(0.2)
    begin = time.monotonic()
    # It is neither closed nor greeted in their place while they are young.
    async with Device(relay.url) as device:
        equal((await device.greet())[0], "welcome")
    assert 0.5 < time.monotonic() - begin < 5
    for connection in held:
        connection.close()


check_settings[a_device_waits_while_a_relay_greets_others] = {"newConnections": 8}


@check
async def silent_and_slow_starters_are_cut(relay):
    # Nothing at all, half a request, and no Hello: all end after the greeting time.
    head = b"GET /device HTTP/1.1\r\nHost: x\r\n"
    for start in (b"", head):
        with socket.create_connection(("127.0.0.1", relay.ports["plain-devices"]), 10) as connection:
            begin = time.monotonic()
            connection.sendall(start)
            equal(connection.recv(10), b"")
            assert 0.5 < time.monotonic() - begin < 6
    async with Device(relay.url) as device:
        begin = time.monotonic()
        await device.end()
        assert 0.5 < time.monotonic() - begin < 6


check_settings[silent_and_slow_starters_are_cut] = {"greetingSeconds": 1}


@check
async def limits_on_devices_and_channels_hold(relay):
    async with Device(relay.url) as device, Device(relay.url) as second, Device(relay.url) as third:
        equal(await device.greet(), ("welcome", 240, 2))
        for _ in range(2):
            await opened(device)
        channel = os.urandom(16)
        await device.send(open_(channel))
        equal(await device.next(), ("failed", channel, 503))
        await second.greet()
        equal((await third.greet())[:2], ("goodbye", "full"))


check_settings[limits_on_devices_and_channels_hold] = {"devices": 2, "channelsOfDevice": 2}


@check
async def admission_needs_a_key(relay):
    async with Device(relay.url) as device, Device(relay.url) as other:
        equal(await device.greet(), ("goodbye", "not_admitted", 0))
        assert "a device is not taken" in (relay.folder / "log").read_text()
        equal((await other.greet(admission=b"second"))[0], "welcome")


# Back ends: the documented interface, line by line


@check
async def gnp_answers_to_the_letter(relay):
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        text = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", "0")]
        header = ("X-Good-GNP-Token", token)
        cases = [
            # token, method, headers, body, verb, code
            (token, "checkToken", None, b"", None, 100),
            (token, "notify", None, b"", None, 100),
            (token, "notify", [("Content-Length", "2")], b"hi", None, 100),
            (token, "notify", [("Content-Type", "text/plain"), ("Content-Length", "0")], b"", None, 100),
            (token, "other", None, b"", None, 200),
            (token, "checkToken", None, b"", "POST", 200),
            (token, "notify", text, b"", "GET", 200),
            (token, "notify", [("Content-Type", "text/plain")], b"", None, 200),
            (token, "notify", [("Content-Length", "1048577")], b"", None, 200),
            (None, "checkToken", None, b"", None, 401),
            ("one two", "checkToken", None, b"", None, 401),
            ("a  b", "checkToken", None, b"", None, 401),
            ("x " * 300, "checkToken", None, b"", None, 401),
            (token, "checkToken", [header], b"", None, 401),
            ("", "checkToken", None, b"", None, 402),
            (token[:-1], "checkToken", None, b"", None, 402),
            (token + "A", "notify", None, b"", None, 402),
            ("1 2 3", "notify", None, b"", None, 402),
            (token, "notify", [("Content-Type", "application/json"), ("Content-Length", "2")], b"{}", None, 407),
            (token, "notify", [("Content-Type", "text/plain; charset=latin1"), ("Content-Length", "0")], b"", None, 407),
            (token, "notify", None, b"\xff", None, 407),
            (token, "checkToken&pingURL=ftp%3A%2F%2Fx%2F", None, b"", None, 404),
            (token, "checkToken&pingURL=http%3A%2F%2Fu%40x%2F", None, b"", None, 404),
            (token, "checkToken&minPingInterval=5", None, b"", None, 404),
            (token, "checkToken&pingURL=http%3A%2F%2Fx%2F&minPingInterval=x", None, b"", None, 404),
            (token, "checkToken&pingURL=http%3A%2F%2Fx%2F&minPingInterval=10081", None, b"", None, 404),
            (token, "checkToken&pingURL=http%3A%2F%2Fx%2F&minPingInterval=5", None, b"", None, 100),
            (token, "checkToken&pingURL=&disconnectURL=%20", None, b"", None, 100),
        ]
        for token_sent, method, headers, body, verb, code in cases:
            found = gnp(relay.http, token_sent, method, body, headers, verb)
            equal((token_sent, method, headers, found), (token_sent, method, headers, code))
        equal(request(relay.http, "GET", "/GNP2.0?method=checkToken", [header])[1]["X-Good-GNP-Code"], "200 Unsupported")
    equal(gnp(relay.http, token, "checkToken"), 403)
    equal(gnp(relay.http, token, "notify"), 403)
    # What is unknown comes before what is wrong with the rest.
    equal(gnp(relay.http, "1 2 3", "checkToken&pingURL=x"), 402)


@check
async def push_answers_as_rfc_8030_says(relay):
    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
    status, headers, _ = push(relay.http, token, b"x", ttl="99999999")
    equal((status, headers["TTL"]), (201, "604800"))
    assert headers["Location"].startswith("/push/")
    cases = [
        (dict(ttl=None), 400), (dict(ttl="-1"), 400), (dict(ttl="x"), 400), (dict(Urgency="soon"), 400),
        (dict(Topic="a b"), 400), (dict(Topic="x" * 33), 400), (dict(Content_Encoding="gzip"), 415),
        (dict(Urgency="high", Topic="t-_9"), 201), (dict(ttl="0"), 201),
    ]
    for more, status in cases:
        equal((more, push(relay.http, token, b"x", **more)[0]), (more, status))
    secret = token.split()[-1]
    equal(push(relay.http, token, b"\xff")[0], 400)
    equal(push(relay.http, "a b c " + "A" * 43)[0], 404)
    equal(push(relay.http, "a b c d")[0], 404)
    equal(request(relay.http, "GET", "/push/" + secret)[0], 405)
    equal(request(relay.http, "POST", "/push/" + secret, [("TTL", "1")])[0], 411)
    equal(request(relay.http, "POST", "/push/" + secret, [("TTL", "1"), ("Content-Length", "1048577")])[0], 413)
    equal(request(relay.http, "GET", "/")[0], 404)


@check
async def requests_share_a_connection_and_broken_ones_do_not_hurt(relay):
    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
        one = (
            f"POST /GNP1.0?method=notify HTTP/1.1\r\nHost: x\r\nX-Good-GNP-Token: {token}\r\nContent-Length: 1\r\n\r\nx"
        ).encode()
        with socket.create_connection(("127.0.0.1", relay.http), 5) as connection:
            connection.sendall(one * 20)
            reply = b""
            while reply.count(b"100 OK") < 20:
                reply += connection.recv(65536)
        for _ in range(16):
            await device.next()
        for broken, answer in (
            (b"nonsense\r\n\r\n", b" 400 "), (one[:-1], b""), (b"GET / HTTP/1.1\r\nX: " + b"y" * 40000 + b"\r\n\r\n", b""),
        ):
            with socket.create_connection(("127.0.0.1", relay.http), 5) as connection:
                connection.sendall(broken)
                connection.shutdown(socket.SHUT_WR)
                reply = b""
                with contextlib.suppress(OSError):
                    while part := connection.recv(65536):
                        reply += part
                assert answer in reply, (broken[:40], reply)
        # A body that does not come is given up.
        with socket.create_connection(("127.0.0.1", relay.http), 10) as connection:
            connection.sendall(one[:-1])
            equal(connection.recv(100)[:0], b"")
        equal(gnp(relay.http, token, "checkToken"), 100)


check_settings[requests_share_a_connection_and_broken_ones_do_not_hurt] = {"bodySeconds": 1}


@check
async def connections_of_one_address_are_counted(relay):
    def is_served(connection):
        connection.sendall(b"GET /GNP1.0?method=checkToken HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            return b"200 OK" in connection.recv(1000)
        except OSError:
            return False

    connections = [socket.create_connection(("127.0.0.1", relay.http), 5) for _ in range(4)]
    time.sleep(0.2)
    equal(sorted(is_served(connection) for connection in connections), [False, False, True, True])
    for connection in connections:
        connection.close()
    time.sleep(0.3)
    with socket.create_connection(("127.0.0.1", relay.http), 5) as connection:
        assert is_served(connection)


check_settings[connections_of_one_address_are_counted] = {"connectionsOfAddress": 2}


@check
async def a_relay_with_few_open_files_stays_alive(relay):
    relay.kill()
    relay.limit = 400
    relay.start()
    # More connections than there are files, of devices that greet, that do not, and of servers.
    held = []
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        for port in (relay.ports["plain-devices"], relay.http, relay.ports["devices"]):
            for _ in range(300):
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", port), 1))
        secrets = []
        for _ in range(250):
            try:
                other = Device(relay.url)
                await asyncio.wait_for(other.__aenter__(), 1)
                await other.send(hello(other.secret))
                secrets.append(other)
            except Exception:
                break
        for connection in held:
            connection.close()
        await asyncio.sleep(1)
        equal(push(relay.http, token, b"still here")[0], 201)
        equal((await device.next())[3], b"still here")
        for other in secrets:
            other.socket.transport.abort()


check_settings[a_relay_with_few_open_files_stays_alive] = {"greetingSeconds": 1}


@check
async def too_many_messages_of_one_sender_are_refused(relay):
    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
        equal([push(relay.http, token)[0] for _ in range(6)], [201] * 5 + [429])
        equal(gnp(relay.http, token), 403)


check_settings[too_many_messages_of_one_sender_are_refused] = {"tokenBurst": 5, "tokenRate": 0}


@check
async def bodies_that_do_not_come_stop_nobody(relay):
    def begin(target, headers, start):
        connection = socket.create_connection(("127.0.0.1", relay.http), 10)
        connection.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode() + start)
        return connection

    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
        length = "Content-Length: 1048576\r\n"
        unknown = [begin("/push/" + "A" * 42 + "E", "TTL: 60\r\n" + length, b"x") for _ in range(20)]
        # They are answered at once, since nobody waits for the body of a token that does not exist.
        for connection in unknown:
            assert b" 404 " in connection.recv(1000)
        secret = token.split()[-1]
        held = [begin("/push/" + secret, "TTL: 60\r\n" + length, b"x" * 1000) for _ in range(20)]
        held += [begin("/GNP1.0?method=notify", f"X-Good-GNP-Token: {token}\r\n" + length, b"x") for _ in range(20)]
        time.sleep(0.3)
        equal(push(relay.http, token, b"x")[0], 201)
        equal(gnp(relay.http, token, body=b"x"), 100)
        # What has arrived counts.
        held += [begin("/push/" + secret, "TTL: 60\r\n" + length, b"x" * 900_000) for _ in range(3)]
        refused, _, _ = select.select(held[-3:], [], [], 60)
        equal(refused[0].recv(1000).split()[1], b"503")
        for connection in unknown + held:
            connection.close()
        wait_for(lambda: push(relay.http, token, b"x" * 100_000)[0] == 201)


check_settings[bodies_that_do_not_come_stop_nobody] = {"bodyBytesAtOnce": 2 << 20}


@check
async def a_sender_that_waits_for_100_continue_gets_it(relay):
    def begin(token, extra=""):
        connection = socket.create_connection(("127.0.0.1", relay.http), 10)
        connection.sendall(
            f"POST /push/{token.split()[-1]} HTTP/1.1\r\nHost: x\r\nTTL: 60\r\nContent-Length: 20000\r\n"
            f"Expect: 100-Continue\r\n{extra}\r\n".encode())
        return connection, connection.recv(1000)

    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
        connection, answer = begin(token)
        equal(answer, b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b"x" * 20000)
        assert b" 201 " in connection.recv(1000)
        connection.sendall(f"GET /GNP1.0?method=checkToken HTTP/1.1\r\nHost: x\r\nX-Good-GNP-Token: {token}\r\n\r\n".encode())
        assert b"100 OK" in connection.recv(1000)
        # A request that is refused is refused before its body, and the connection ends.
        connection, answer = begin("a b c " + "A" * 43)
        assert b" 404 " in answer and b"close" in answer.lower(), answer
        equal((await device.next())[3], b"x" * 20000)


@check
async def a_flood_of_unknown_tokens_costs_no_memory_and_no_look_ups(relay):
    with socket.create_connection(("127.0.0.1", relay.http), 20) as connection:
        replies = connection.makefile("rb")

        def flood(lines, count, expected):
            found = {}
            for _ in range(count // 50):
                connection.sendall(b"".join(lines() for _ in range(50)))
                for _ in range(50):
                    status = code = length = None
                    while (line := replies.readline()) not in (b"\r\n", b""):
                        if line.startswith(b"HTTP/"):
                            status = int(line.split()[1])
                        elif line.lower().startswith(b"content-length:"):
                            length = int(line.split()[1])
                        elif line.lower().startswith(b"x-good-gnp-code:"):
                            code = int(line.split()[1])
                    replies.read(length)
                    found[code or status] = found.get(code or status, 0) + 1
            equal(sorted(found), sorted(expected))

        def push_line():
            secret = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=")
            return b"POST /push/%s HTTP/1.1\r\nHost: x\r\nTTL: 0\r\nContent-Length: 0\r\n\r\n" % secret

        flood(push_line, 1000, [404, 429])
        flood(lambda: b"GET /GNP1.0?method=checkToken HTTP/1.1\r\nHost: x\r\nX-Good-GNP-Token: a b c d\r\n\r\n",
              1000, [402, 403])


check_settings[a_flood_of_unknown_tokens_costs_no_memory_and_no_look_ups] = {"addressRate": 100}


@check
async def a_relay_that_stops_answers_what_it_has_stored(relay):
    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
    secret, answers, lock = token.split()[-1], [], threading.Lock()

    def send(accepted, stop):
        while not stop.is_set():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", relay.http, timeout=15)
                while not stop.is_set():
                    connection.request("POST", "/push/" + secret, b"x" * 3000, {"TTL": "600"})
                    answer = connection.getresponse()
                    answer.read()
                    with lock:
                        answers.append(answer.status)
                        if answers.count(201) % 1000 == 0:
                            accepted.set()
                    if answer.status == 503:
                        stop.set()
            except (OSError, http.client.HTTPException):
                if relay.process.poll() is not None:
                    return

    for _ in range(4):
        accepted, stop = threading.Event(), threading.Event()
        senders = [threading.Thread(target=send, args=(accepted, stop)) for _ in range(48)]
        for sender in senders:
            sender.start()
        accepted.wait(20)
        # Servers of other listeners have nothing to do, and end first.
        relay.stop()
        stop.set()
        for sender in senders:
            sender.join()
        database = sqlite3.connect(relay.folder / "relay/push.sqlite")
        stored, = database.execute("SELECT count(*) FROM event").fetchone()
        database.close()
        equal((answers.count(201), set(answers) - {201, 503}), (stored, set()))
        relay.start()


check_settings[a_relay_that_stops_answers_what_it_has_stored] = {
    "tokenRate": 1000000, "tokenBurst": 1000000, "addressRate": 1000000, "waitingEvents": 1000000,
    "waitingBytes": 1 << 30,
}


# Application servers


def known(_, body):
    return 200, {"X-Good-GNP-Code": "100 OK"}, body


def quoted(url):
    return urllib.parse.quote(url, safe="")


LOCAL = ("--allow-callbacks-to", "127.0.0.0/8", "--allow-callbacks-to", "::1")
PINGS = {"pingSeconds": 1, "callbackSeconds": 1}


@check
async def each_fault_of_a_server_has_its_code(relay):
    certificate = relay.folder / "relay/loopback.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, relay.folder / "relay/loopback-key.pem")
    unused = socket.socket()
    unused.bind(("127.0.0.1", 0))
    redirected = Server(known)
    servers = [
        (None, "http://no-such-host.invalid/", 600),
        (None, f"http://127.0.0.1:{unused.getsockname()[1]}/", 601),
        (Server(known, context), None, 602),
        (Server(lambda *_: None), None, 603),
        (Server(lambda *_: (500, {}, "")), None, 604),
        (Server(lambda *_: (200, {}, "")), None, 604),
        (Server(lambda *_: (200, {"X-Good-GNP-Code": "201 Parse error"}, "")), None, 604),
        (Server(lambda *_: (302, {"Location": redirected.url}, "")), None, 604),
        (Server(lambda *_: (200, {"X-Good-GNP-Code": "100"}, "x" * 100_000)), None, 604),
        (Server(lambda *_: (200, {"X-Good-GNP-Code": "100"}, "")), None, 605),
        (Server(lambda *_: (200, {"X-Good-GNP-Code": "100"}, "11111111 2222 app.gdpush.local")), None, 605),
    ]
    async with Device(relay.url) as device:
        await device.greet()
        expected = {}
        for server, url, code in servers:
            channel, token = await opened(device)
            expected[channel] = code
            equal(gnp(relay.http, token, "checkToken&pingURL=" + quoted(url or server.url + "/ping")), 100)
        good = Server(known)
        channels = [await opened(device) for _ in range(3)]
        for _, token in channels:
            equal(gnp(relay.http, token, "checkToken&pingURL=" + quoted(good.url + "/all?x=1")), 100)
        found = {}
        while len(found) < len(expected):
            kind, channel, number, code = await device.next(15)
            equal((kind, found.get(channel, code)), ("ping-failed", code))
            found[channel] = code
            await device.send(taken(channel, number))
        equal(found, expected)
        wait_for(lambda: good.requests)
        # One request for all tokens of the URL, with their prefixes and nothing more.
        verb, path, headers, body = good.requests[0]
        equal((verb, path, headers["Content-Type"]), ("POST", "/all?x=1", "text/plain; charset=utf-8"))
        equal(sorted(body.split(",")), sorted(" ".join(token.split()[:3]) for _, token in channels))
        equal(redirected.requests, [])
    for server, *_ in servers:
        if server:
            server.close()


check_settings[each_fault_of_a_server_has_its_code] = (PINGS, LOCAL)


@check
async def addresses_that_are_not_public_are_not_called(relay):
    server = Server(known)
    async with Device(relay.url) as device:
        await device.greet()
        hosts = ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "10.0.0.1"]
        for host in hosts:
            _, token = await opened(device)
            equal(gnp(relay.http, token, "checkToken&pingURL=" + quoted(f"http://{host}:{server.port}/")), 100)
        for _ in hosts:
            kind, channel, number, code = await device.next(15)
            equal((kind, code), ("ping-failed", 601))
        equal(server.requests, [])
        # The operator reads it once for each host, and what allows it.
        await asyncio.sleep(1.5)
        lines = [line for line in (relay.folder / "log").read_text().splitlines() if "a callback is refused" in line]
        equal(len(lines), len(hosts))
        assert all("notice" in line and "--allow-callbacks-to" in line for line in lines), lines


check_settings[addresses_that_are_not_public_are_not_called] = (PINGS, ())


@check
async def a_server_hears_of_the_end_also_when_it_was_away(relay):
    state = {"isUp": False}
    server = Server(lambda *_: (204, {}, "") if state["isUp"] else (500, {}, ""))
    async with Device(relay.url) as device:
        await device.greet()
        channel, token = await opened(device)
        equal(gnp(relay.http, token, "checkToken&disconnectURL=" + quoted(server.url + "/gone?id=7")), 100)
        await device.send(close(channel))
        equal((await device.next())[0], "closed")
    wait_for(lambda: server.requests)
    equal(server.requests[0][:2], ("GET", "/gone?id=7"))
    equal(server.requests[0][2]["X-Good-GNP-Token"], token)
    # The call outlives the relay.
    relay.kill()
    relay.start()
    state["isUp"] = True
    count = len(server.requests)
    wait_for(lambda: len(server.requests) > count)
    time.sleep(1.5)
    equal(len(server.requests), count + 1)
    server.close()


check_settings[a_server_hears_of_the_end_also_when_it_was_away] = ({}, LOCAL)


# The program's own app


@check
async def the_app_gets_what_servers_send(relay):
    with relay.app() as app:
        event = app.expect("opened")
        token = event["token"]
        equal(gnp(relay.http, token, body="Grüße".encode()), 100)
        app.expect("message", text="Grüße")
        # Encrypted for the app: the relay has no key.
        for text in ("short", "x" * 10_000, ""):
            body = encrypt(text.encode(), event["publicKey"], event["authenticationSecret"])
            equal(push(relay.http, token, body, Content_Encoding="aes128gcm", Urgency="high")[0], 201)
            app.expect("message", text=text, urgency="high")
        body = bytearray(encrypt(b"flipped", event["publicKey"], event["authenticationSecret"]))
        body[-1] ^= 1
        for broken in (bytes(body), b"", b"x" * 20, bytes(200)):
            equal(push(relay.http, token, broken, Content_Encoding="aes128gcm")[0], 201)
        equal(gnp(relay.http, token, body=b"after"), 100)
        app.expect("message", text="after")
    database = b"".join(path.read_bytes() for path in (relay.folder / "relay").glob("push.sqlite*"))
    assert token.split()[-1].encode() not in database
    state = b"".join(path.read_bytes() for path in (relay.folder / "device").glob("push.sqlite*"))
    assert token.split()[-1].encode() not in state and b"com.example.app" not in state


@check
async def a_ping_failure_and_the_end_reach_the_app(relay):
    server = Server(lambda *_: (200, {"X-Good-GNP-Code": "100"}, ""))
    with relay.app() as app:
        token = app.expect("opened")["token"]
        equal(gnp(relay.http, token, "checkToken&pingURL=" + quoted(server.url)), 100)
        app.expect("ping-failed", code=605)
        revoke = [program, "revoke", " ".join(token.split()[:3]), "--operator", f"http://127.0.0.1:{relay.ports['operator']}"]
        equal(subprocess.run(revoke, capture_output=True, text=True).stdout, "revoked\n")
        while (event := app.next())["event"] == "ping-failed":
            pass
        equal((event["event"], event["code"]), ("error", 504))
        log = (relay.folder / "log").read_text()
        assert "a token is revoked" in log and " ".join(token.split()[:3]) in log and token.split()[-1] not in log
    server.close()


check_settings[a_ping_failure_and_the_end_reach_the_app] = (PINGS, LOCAL)


@check
async def a_relay_that_stops_sends_its_devices_away_and_takes_them_back(relay):
    with relay.app() as app:
        token = app.expect("opened")["token"]
        relay.stop()
        relay.start()
        equal(push(relay.http, token, b"after")[0], 201)
        app.expect("message", text="after")


@check
async def operators_see_health_and_metrics(relay):
    port = relay.ports["operator"]
    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
        push(relay.http, token, b"x")
        equal(request(port, "GET", "/health")[::2], (200, b"ok\n"))
        status, headers, text = request(port, "GET", "/metrics")
        equal((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        lines = text.decode().splitlines()
        assert "push_connections 1" in lines and 'push_requests_total{interface="push",result="201"} 1' in lines, text
    equal(request(port, "POST", "/revoke", [("Content-Length", "3")], b"a b")[0], 404)
    log = (relay.folder / "log").read_text()
    assert token.split()[-1] not in log


@check
async def a_relay_that_cannot_write_is_not_healthy(relay):
    port = relay.ports["operator"]
    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
        equal(request(port, "GET", "/health")[0], 200)
        # No file may grow: a disk that is full.
        size = (relay.folder / "relay/push.sqlite-wal").stat().st_size
        _, hard = resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (size, hard))
        equal(push(relay.http, token, b"x" * 100_000)[0], 503)
        status, _, text = request(port, "GET", "/health")
        assert status == 503 and text, (status, text)
        # That a few bytes may fit changes nothing.
        push(relay.http, token, b"x")
        equal(request(port, "GET", "/health")[0], 503)
        # It is healthy again without another message.
        resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        equal(request(port, "GET", "/health")[::2], (200, b"ok\n"))
        equal(push(relay.http, token, b"x")[0], 201)


@check
async def a_relay_keeps_its_directory_to_itself(relay):
    second = subprocess.run(
        [program, "relay", "--directory", relay.folder / "relay", "--devices", "none", "--back-ends", "none",
         "--plain-back-ends", "none", "--operator", "127.0.0.1:0"], capture_output=True, text=True, timeout=20)
    assert second.returncode != 0 and "is used by another process" in second.stderr, second.stderr
    async with Device(relay.url) as device:
        await device.greet()
        _, token = await opened(device)
        equal(push(relay.http, token, b"x")[0], 201)
    # After a clean stop one file is the database.
    relay.stop()
    log = (relay.folder / "log").read_text()
    assert "the relay has stopped" in log and " error " not in log, log[-1000:]
    copy = pathlib.Path(shutil.copy(relay.folder / "relay/push.sqlite", relay.folder / "copy.sqlite"))
    database = sqlite3.connect(copy)
    equal(database.execute("SELECT count(*) FROM event").fetchone(), (1,))
    database.close()
    equal(oct((relay.folder / "relay/push.sqlite").stat().st_mode & 0o777), "0o600")
    # A damaged one is named.
    data = bytearray((relay.folder / "relay/push.sqlite").read_bytes())
    for at in range(8192, len(data), 4096):
        data[at : at + 64] = b"\xff" * 64
    (relay.folder / "relay/push.sqlite").write_bytes(data)
    damaged = subprocess.run(
        [program, "relay", "--directory", relay.folder / "relay", "--devices", "none", "--back-ends", "none",
         "--plain-back-ends", "none", "--operator", "127.0.0.1:0"], capture_output=True, text=True, timeout=20)
    assert damaged.returncode != 0 and "push.sqlite is damaged" in damaged.stderr, damaged.stderr
    shutil.copy(copy, relay.folder / "relay/push.sqlite")
    relay.start()


@check
async def settings_that_are_wrong_are_named(relay):
    for content, expected in (
        ('{"waitingEvnts": 1}', "waitingEvnts"), ("{", "JSON"), ('{"waitingEvents": "x"}', "waitingEvents"),
        ('{"writeSeconds": 9223372036854775807}', "writeSeconds"), ('{"windowBytes": -1}', "windowBytes"),
        ('{"pingSeconds": 0}', "pingSeconds"), ('{"devices": 9223372036854775807}', "devices"),
    ):
        (relay.folder / "bad.json").write_text(content)
        found = subprocess.run(
            [program, "relay", "--directory", relay.folder / "other", "--settings", relay.folder / "bad.json"],
            capture_output=True, text=True, timeout=20)
        assert found.returncode != 0 and expected in found.stderr, (content, found.stderr)
    for options, expected in (
        (["--devices", "0.0.0.0:0"], "--certificate"), (["--plain-back-ends", "0.0.0.0:0"], "--allow-plain"),
        (["--plain-devices", "0.0.0.0:0"], "loopback"), (["--name", "A"], "--name"), (["--devices", "x"], "HOST:PORT"),
    ):
        found = subprocess.run(
            [program, "relay", "--directory", relay.folder / "other", *options],
            capture_output=True, text=True, timeout=20)
        assert found.returncode != 0 and expected in found.stderr, (options, found.stderr)
    second = subprocess.run(
        [program, "relay", "--directory", relay.folder / "third", "--devices", f"127.0.0.1:{relay.ports['devices']}",
         "--back-ends", "none", "--plain-back-ends", "none", "--operator", "none"],
        capture_output=True, text=True, timeout=20)
    assert second.returncode != 0 and "in use" in second.stderr, second.stderr


@check
async def a_relay_with_another_key_does_not_start(relay):
    async with Device(relay.url) as device:
        await device.greet()
        await opened(device)
    relay.kill()
    key = relay.folder / "relay/relay.key"
    key.rename(relay.folder / "old.key")
    found = subprocess.run(
        [program, "relay", "--directory", relay.folder / "relay", "--devices", "none", "--back-ends", "none",
         "--plain-back-ends", "none", "--operator", "127.0.0.1:0"], capture_output=True, text=True, timeout=20)
    assert found.returncode != 0 and "put relay.key back" in found.stderr, found.stderr
    (relay.folder / "old.key").rename(key)
    relay.start()


def main():
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    failed = 0
    for function in checks:
        if only not in function.__name__:
            continue
        settings = check_settings.get(function, {})
        settings, options = settings if isinstance(settings, tuple) else (settings, ())
        begin = time.monotonic()
        try:
            if function is admission_needs_a_key:
                keys = pathlib.Path(tempfile.mkdtemp()) / "keys"
                keys.write_text("first\nsecond\n")
                options = ("--admission-keys", keys)
            with Relay(settings, *options) as relay:
                asyncio.run(function(relay))
                if relay.process.poll() is not None:
                    raise AssertionError("the relay has ended")
            result = "ok"
        except Exception:
            traceback.print_exc()
            result = "FAILED"
            failed += 1
        print(f"{result:7}{time.monotonic() - begin:5.1f} s  {function.__name__.replace('_', ' ')}", flush=True)
    sys.exit(f"{failed} failed" if failed else 0)


main()
