"""What hostile programs of the same user try with the broker: each gets the documented end, and an honest pair goes on working."""

import os
import socket
import ssl
import subprocess
import time

import certificates
from connection import Connection
from messages import SCHEMA
from opendynamics_client import App, dial
from world import SERVICE, SERVICE_VERSION, TimedOut, echo, ending, expect, refusal


def honest_pair(world):
    """Apps that must notice nothing. What is returned asks whether that is so."""
    provider = world.app("provider", serve=echo).register((SERVICE, SERVICE_VERSION))
    consumer = world.app("consumer")

    def check():
        expect([p["app_id"] for p in consumer.find(service_id=SERVICE)], [provider.app_id])
        expect(consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "echo", "still here").wait(), "still here")
        expect((provider.broker.ending, consumer.broker.ending), (None, None))
        again = consumer.connect(provider.app_id)
        expect(again.request(SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)

    check()
    return check


def begun(world, name="attacker"):
    """A connection whose TLS is complete and that said nothing yet."""
    client = world.tool(name)
    world.loop.until(lambda: client.broker.is_ready or client.broker.ending is not None, what="TLS")
    return client


def frame(data):
    return len(data).to_bytes(4, "little") + data


def frames_that_are_none(world):
    check = honest_pair(world)
    for data, number in [
        (b"\0\0\0\0", 101), ((1 << 20 | 1).to_bytes(4, "little"), 101), (b"\xff\xff\xff\xff", 101),
        (frame(b"\xff"), 100), (frame(b"\x0a\xff"), 100), (frame(b"\x0b\x0c"), 100),
        (frame(b"\xba\x3e\0"), 100), (frame(b"\xc2\x3e\0\xba\x3e\0"), 100), (frame(b"\x50\x01"), 100),
        (frame(b"\x52\x05\x12\x03\xff\xff\xff"), 100),
    ]:
        attacker = begun(world)
        attacker.broker.send_bytes(data)
        expect((data[:12], ending(attacker.broker)), (data[:12], number))
    check()


def frames_that_end_in_the_middle(world):
    check = honest_pair(world)
    for data in [b"\x10", b"\x10\0\0\0", b"\x10\0\0\0\x0a"]:
        attacker = begun(world)
        attacker.broker.send_bytes(data)
        attacker.broker.abandon()
        attacker = begun(world)
        attacker.broker.send_bytes(data)
        attacker.broker.sock.shutdown(socket.SHUT_WR)
        assert ending(attacker.broker) in ("end", 18), attacker.broker.ending
    check()


def peers_that_fall_silent(world):
    """All at once, since each takes the ten seconds that the page gives it."""
    check = honest_pair(world)
    half = world.app("half")
    half.broker.send_bytes(b"\x10\0\0\0\x0a")
    undecided = begun(world)
    mute, _ = dial(world.path)
    begin = time.monotonic()
    expect(ending(half.broker, 15), 19)
    expect(ending(undecided.broker, 15), 19)
    mute.settimeout(15)
    assert mute.recv(1) == b"", "a peer that never begins TLS is waited for"
    assert 8 < time.monotonic() - begin < 15
    check()


def bytes_that_are_no_tls(world):
    check = honest_pair(world)
    for data in [b"GET / HTTP/1.0\r\n\r\n", b"\0" * 5, os.urandom(1000), b"\x16\x03\x01\xff\xff" + os.urandom(100)]:
        sock, _ = dial(world.path)
        sock.sendall(data)
        sock.settimeout(15)
        try:
            while sock.recv(1000):
                pass
        except ConnectionResetError:
            pass
    check()


def plain(world, context):
    sock, lane = dial(world.path)
    lane.close()
    return Connection(world.loop, sock, context, False, "BrokerMessage")


def tls_that_is_not_ours(world):
    check = honest_pair(world)
    key = world.key("attacker")
    older = certificates.context(False, key.own, key)
    older.minimum_version = older.maximum_version = ssl.TLSVersion.TLSv1_2
    nobody = certificates.context(False, None, key)
    other = certificates.Key(world.directory, "rsa")
    certificates.openssl("genpkey", "-algorithm", "RSA", "-out", other.path)
    certificates.openssl("req", "-x509", "-new", "-key", other.path, "-subj", "/CN=x", "-days", "1", "-out", other.own)
    for name, context in [("TLS 1.2", older), ("no certificate", nobody),
                          ("RSA", certificates.context(False, other.own, other))]:
        connection = plain(world, context)
        world.loop.until(lambda: connection.is_ready or connection.ending is not None)
        if connection.ending is None:
            connection.send({"attend": {"version": 1}})
        assert ending(connection) in ("end", 9), f"{name}: {connection.ending}"
        expect((name, connection.received), (name, []))
    check()


def messages_that_may_not_come(world):
    check = honest_pair(world)
    question = {"question": {"number": 1, "find": {}}}
    for message, number in [
        (question, 102), ({"enrolled": {}}, 102), ({"answer": {}}, 102), ({"introduction": {}}, 102),
        ({"policy": {}}, 102), ({"forgotten": {}}, 102), ({"attend": {"version": 0}}, 104),
        ({"enrol": {"version": 0, "app_id": "com.example.x", "state": "RUNNING"}}, 104),
        ({"enrol": {"version": 1, "app_id": "no id", "activation_user": "x", "state": "RUNNING"}}, 100),
        ({"enrol": {"version": 1, "app_id": "com.example.x", "activation_user": "x", "state": "NOT_RUNNING"}}, 100),
        ({"enrol": {"version": 1, "app_id": "com.example.x", "activation_user": "x", "state": 9}}, 100),
        ({"enrol": {"version": 1, "app_id": "com.example.x", "activation_user": "x" * 257, "state": "RUNNING"}}, 100),
        ({"attend": {"version": 1, "name": "x" * 257}}, 100),
    ]:
        attacker = begun(world)
        attacker.broker.send(message)
        expect((message, ending(attacker.broker)), (message, number))
    for message, number in [({"attend": {"version": 1}}, 102), ({"question": {"number": 1}}, 100),
                            ({"question": {"number": 1, "register": {}}}, 102),
                            ({"question": {"number": 1, "connect": {"app_id": "com.example.provider"}}}, 102),
                            ({"question": {"number": 1, "administer": {"list_apps": {}}}}, 102),
                            ({"question": {"number": 1, "find": {"service_id": "x" * 300}}}, 100)]:
        attacker = begun(world).attend()
        attacker.broker.send(message)
        expect((message, ending(attacker.broker)), (message, number))
    check()


def another_key_for_an_app_that_enrolled(world):
    check = honest_pair(world)
    expect(refusal(world.app, "provider", key="attacker"), 106)
    expect(refusal(world.app, "provider", key="attacker", user="bob"), 106)
    check()


def administering_without_the_key(world):
    check = honest_pair(world)
    expect(refusal(begun(world).attend, administers=True), 106)
    app = world.app("attacker")
    expect(refusal(app.ask, "administer", {"forget": "com.example.provider"}), 102)
    attacker = begun(world).attend()
    expect(refusal(attacker.ask, "administer", {"front": "com.example.attacker"}), 102)
    mode = os.stat(world.state + "/administrator.key").st_mode & 0o777
    expect((mode, os.stat(world.state).st_mode & 0o777), (0o600, 0o700))
    check()


def a_recorded_session_played_again(world):
    check = honest_pair(world)
    recorded, key = bytearray(), world.key("victim")
    sock, _lane = dial(world.path)
    victim = Connection(
        world.loop, sock, certificates.context(False, key.own, key), False, "BrokerMessage", sees=recorded)
    world.loop.until(lambda: victim.is_ready)
    enrol = {"version": 1, "app_id": "com.example.victim", "activation_user": "ann@example.com", "state": "RUNNING"}
    victim.send({"enrol": enrol})
    victim.take("enrolled")
    replay, _ = dial(world.path)
    replay.sendall(bytes(recorded))
    replay.settimeout(15)
    try:
        while replay.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    # The victim's connection was not taken over, which is what a second proof of its key would have done.
    expect(victim.ending, None)
    victim.send({"question": {"number": 1, "find": {}}})
    expect(victim.take("answer")["number"], 1)
    check()


def more_questions_than_may_wait(world):
    check = honest_pair(world)
    locked = world.app("locked", state="LOCKED").register(("com.example.locked", "1"))
    attacker = world.app("attacker")
    for n in range(1, 257):
        attacker.broker.send({"question": {"number": n, "connect": {"app_id": locked.app_id}}})
    world.loop.until(lambda: len(attacker.waiting) >= 1)
    attacker.broker.send({"question": {"number": 257, "connect": {"app_id": locked.app_id}}})
    expect(ending(attacker.broker), 16)
    attacker = world.app("attacker")
    for _ in range(2):
        attacker.broker.send({"question": {"number": 7, "connect": {"app_id": locked.app_id}}})
    expect(ending(attacker.broker), 102)
    attacker = begun(world).attend()
    for _ in range(64):
        attacker.ask("watch", {})
    expect(refusal(attacker.ask, "watch", {}), 16)
    check()


def a_watcher_that_never_reads(world):
    check = honest_pair(world)
    noisy = world.app("noisy")
    attackers = [begun(world).attend() for _ in range(8)]
    for attacker in attackers:
        for _ in range(64):
            attacker.broker.send({"question": {"number": attacker.number + 1, "watch": {"includes_contents": True}}})
            attacker.number += 1
        attacker.broker.stop_reading()
    before = world.broker_bytes()
    services = [(f"com.example.s{n:02}" + "x" * 40, "1") for n in range(90)]
    for n in range(30):
        noisy.register(*services, name=f"name {n} " + "n" * 200)
    grown = world.broker_bytes() - before
    # 8 connections of 4 MiB each, and what the allocator keeps.
    assert grown < 96 << 20, f"the broker grew by {grown >> 20} MiB"
    check()


def watchers_of_small_changes_that_never_read(world):
    check = honest_pair(world)
    service = ("com.example.noisy", "1")
    noisy = world.app("noisy").register(service)
    for _ in range(8):
        attacker = begun(world).attend()
        for _ in range(60):
            attacker.ask("watch", {"app_id": noisy.app_id})
        attacker.broker.stop_reading()
    before = world.broker_bytes()
    for n in range(60):
        noisy.register(service, name=f"name {n}")
    check()
    grown = world.broker_bytes() - before
    # 28,800 changes, each of some hundred bytes: no more than that, and what the allocator keeps.
    assert grown < 48 << 20, f"the broker grew by {grown >> 20} MiB"


def questions_without_reading_the_answers(world):
    check = honest_pair(world)
    world.app("large").register(*[(f"com.example.s{n:02}" + "x" * 40, "1") for n in range(90)])
    attacker = begun(world).attend()
    attacker.broker.stop_reading()
    before = world.broker_bytes()
    question = frame(SCHEMA.encode("BrokerMessage", {"question": {"number": 1, "find": {"includes_contents": True}}}))
    end = time.monotonic() + 3
    attacker.broker.sock.setblocking(False)
    while time.monotonic() < end:
        try:
            if not attacker.broker.pending:
                attacker.broker.send_bytes(question * 200)
            attacker.broker.flush()
        except (BrokenPipeError, ConnectionResetError, OSError):
            break
        world.loop.step(0.001)
    grown = world.broker_bytes() - before
    assert grown < 64 << 20, f"the broker grew by {grown >> 20} MiB"
    check()


def thousands_of_connections(world):
    check = honest_pair(world)
    silent = []
    for _ in range(3000):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(True)
        sock.settimeout(10)
        try:
            sock.connect(world.path)
        except (BlockingIOError, TimeoutError, ConnectionRefusedError, OSError):
            sock.close()
            continue
        silent.append(sock)
        if len(silent) > 800:
            silent.pop(0).close()
    # Who was let go of hears why, for a second at most.
    world.loop.pause(2)
    open_sockets = 0
    for sock in silent:
        sock.setblocking(False)
        try:
            # The broker's byte, then nothing; an end when it was let go of.
            open_sockets += 1
            while not (data := sock.recv(100)) == b"":
                assert data
            open_sockets -= 1
        except BlockingIOError:
            pass
        except ConnectionResetError:
            open_sockets -= 1
    assert open_sockets <= 80, f"{open_sockets} connections that did not begin are kept"
    for sock in silent:
        sock.close()
    check()


def descriptors_for_the_broker(world):
    check = honest_pair(world)
    sock, lane = dial(world.path)
    read, write = os.pipe()
    socket.send_fds(sock, [b"x"], [write] * 8)
    socket.send_fds(lane, [b"y" * 32], [write] * 2)
    os.close(write)
    # Whoever was sent the writing end does not hold it: a reader sees the end.
    sock.close()
    lane.close()
    os.set_blocking(read, False)

    def is_closed():
        try:
            return os.read(read, 1) == b""
        except BlockingIOError:
            return False

    end = time.monotonic() + 10
    while not is_closed():
        if time.monotonic() > end:
            raise TimedOut("the broker keeps descriptors that it was sent")
        world.loop.pause(0.02)
    os.close(read)
    check()


def another_user(world):
    if os.geteuid() != 0:
        return
    check = honest_pair(world)
    script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1]); print(len(s.recv(1)))"

    def as_nobody():
        return subprocess.run(
            ["/usr/bin/python3", "-c", script, world.path], capture_output=True, text=True, user=65534, group=65534,
            extra_groups=[], check=False)

    assert "PermissionError" in as_nobody().stderr, "the directory lets another user in"
    # Even with an open directory the kernel's credentials tell.
    for path in [world.directory, world.directory + "/run"]:
        os.chmod(path, 0o755)
    os.chmod(world.path, 0o777)
    expect(as_nobody().stdout.strip(), "0")
    os.chmod(world.directory + "/run", 0o700)
    os.chmod(world.directory, 0o700)
    check()


def a_false_broker(world):
    """A process that took the socket's place is not talked to by an app that has pinned the authority."""
    provider = world.app("provider")
    other = certificates.Authority(world.directory)
    expect(refusal(App, world.loop, world.path, provider.key, provider.app_id, pinned=other.der), 105)


CHECKS = [
    frames_that_are_none, frames_that_end_in_the_middle, peers_that_fall_silent, bytes_that_are_no_tls,
    tls_that_is_not_ours, messages_that_may_not_come, another_key_for_an_app_that_enrolled,
    administering_without_the_key, a_recorded_session_played_again, more_questions_than_may_wait,
    a_watcher_that_never_reads, watchers_of_small_changes_that_never_read, questions_without_reading_the_answers,
    thousands_of_connections, descriptors_for_the_broker, another_user, a_false_broker,
]
