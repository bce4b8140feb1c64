"""What hostile programs of the same user try with the broker.

Each gets the documented end, and an honest pair goes on working.
"""

import os
import socket
import subprocess
import time

from connection import Connection
from keys import Key, fingerprint, read_broker_key
from messages import SCHEMA
from noise import MESSAGE_BYTES
from opendynamics_client import CHANNEL_PROLOGUE, App, connected, dial, sealed_to_broker
from tampering import LOW_ORDER, OfAnotherName, WithoutSecret, no_handshakes, no_messages, no_records, said, unit
from world import SERVICE, SERVICE_VERSION, TimedOut, echo, ending, expect, refusal

FIRST_MESSAGE_BYTES, SECOND_MESSAGE_BYTES = MESSAGE_BYTES["IK"]


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
    """A connection whose handshake is complete and that said nothing yet."""
    return world.tool(name).shake_hands()


def dialled(world):
    """The socket alone, on which nothing was sent."""
    sock, lane = dial(world.path)
    lane.close()
    return sock


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
    # What a handshake message may end after.
    first = first_message(world)
    mute = [dialled(world) for _ in range(4)]
    for sock, byte_count in zip(mute, (0, 1, 2, len(first) - 1)):
        sock.sendall(first[:byte_count])
    # The first record too may stay half.
    cut = begun(world)
    cut.broker.send_raw(cut.broker.sealed.seal(ATTEND)[:-1])
    begin = time.monotonic()
    expect(ending(half.broker, 15), 19)
    # Who has proved no key is told nothing.
    for client in (undecided, cut):
        assert ending(client.broker, 15) in ("end", 19), client.broker.ending
    for sock in mute:
        expect(said(sock, 15), b"")
    assert 8 < time.monotonic() - begin < 15
    check()


def first_message(world, key=None, broker_key=None, **more):
    """As it goes over the socket: of the attacker and for the broker, unless something else is said."""
    sealed = sealed_to_broker(key or world.key("attacker"), broker_key or read_broker_key(world.path), **more)
    return bytes(sealed.outgoing)


def bytes_that_are_no_handshake(world):
    """They are not waited for: each is closed at once, without a word."""
    check = honest_pair(world)
    for data in no_handshakes(FIRST_MESSAGE_BYTES):
        expect((data[:12], answer_to(world, data)), (data[:12], b""))
    check()


def answer_to(world, data):
    sock = dialled(world)
    try:
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass
    answer = said(sock)
    sock.close()
    return answer


def handshakes_that_are_not_ours(world):
    """Right in length, and made for somebody else, with another prologue or protocol, or changed on the way."""
    check = honest_pair(world)
    for name, data in [
        ("another broker's key", first_message(world, broker_key=Key().public)),
        ("the sender's own key", first_message(world, broker_key=world.key("attacker").public)),
        ("an app's key", first_message(world, broker_key=world.key("provider").public)),
        ("another version", first_message(world, prologue=b"OpenDynamics broker 2")),
        ("a channel", first_message(world, prologue=CHANNEL_PROLOGUE)),
        ("no prologue", first_message(world, prologue=b"")),
        ("another protocol", first_message(world, state=OfAnotherName)),
        *[(f"changed: {n}", make(first_message(world)[2:])) for n, make in enumerate(no_messages(FIRST_MESSAGE_BYTES))],
    ]:
        expect((name, len(data), answer_to(world, data)), (name, 2 + FIRST_MESSAGE_BYTES, b""))
    check()


def keys_of_low_order(world):
    """Everything that follows from such a key is known to whoever shows it, and would open."""
    check = honest_pair(world)
    for letter in ("e", "s"):
        for point in LOW_ORDER:
            data = first_message(world, state=WithoutSecret.of(point, letter))
            expect((letter, point, answer_to(world, data)), (letter, point, b""))
    check()


# A message that changes nothing, and one that a connection may begin with.
IGNORED = b"\x03\0\0\0\xc2\x3e\0"
ATTEND = frame(SCHEMA.encode("BrokerMessage", {"attend": {"version": 1}}))


def records_that_are_none(world):
    """They end the connection without a word, and it with what it was, first thing or later."""
    check = honest_pair(world)
    tool = world.tool().attend()
    for n, (name, make) in enumerate(no_records()):
        # An app may register thirty times at once.
        service_id = f"com.example.attacked{n}"
        app = world.app(f"attacker{n}").register((service_id, "1"))
        # Those that are right change nothing.
        app.broker.send_bytes(IGNORED)
        expect(len(app.find(service_id=service_id, includes_own=True)), 1)
        app.broker.send_raw(make(app.broker.sealed, IGNORED))
        expect((name, ending(app.broker)), (name, "end"))
        world.loop.until(lambda: not_running(tool, app.app_id), what="the end of the app")
        first = begun(world)
        first.broker.send_raw(make(first.broker.sealed, ATTEND))
        # Of some the first one is right, and answered.
        expect((name, ending(first.broker)), (name, "end"))
    check()


def not_running(tool, app_id):
    (found,) = tool.find(app_id=app_id)
    return found.get("state", "NOT_RUNNING") == "NOT_RUNNING"


def records_that_are_cut(world):
    check = honest_pair(world)
    for byte_count in (1, 2, 3, 20, len(ATTEND) + 17):
        attacker = begun(world)
        attacker.broker.send_raw(attacker.broker.sealed.seal(ATTEND)[:byte_count])
        attacker.broker.sock.shutdown(socket.SHUT_WR)
        expect((byte_count, ending(attacker.broker)), (byte_count, "end"))
        expect(attacker.broker.received, [])
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
        ({"enrol": {"version": 1, "app_id": "com.example.x", "activation_user": "x", "state": "RUNNING",
                    "presence_key": bytes(31)}}, 100),
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


def more_than_standing_in(world):
    """What a process tries that has found the presence key of an app."""
    check = honest_pair(world)
    victim = world.app("victim", presence_key=world.key("presence").public)
    victim.register(("com.example.other", "1.0.0.0")).close()
    tool = world.tool().attend()
    world.loop.until(lambda: not_running(tool, victim.app_id))
    place = {"key": "presence", "state": "LOCKED", "stands_in": True}
    for body in [{"state": "RUNNING"}, {"state": "SUSPENDED"}, {"presence_key": bytes(32)}]:
        expect((body, refusal(world.app, "victim", **{**place, **body})), (body, 100))
    expect(refusal(world.app, "victim", **place, user="bob"), 13)
    for app, body in [("victim", {"key": "presence"}), ("victim", {**place, "key": "victim"}), ("another", place)]:
        expect((app, body, refusal(world.app, app, **body)), (app, body, 106))
    for kind, body in [("find", {}), ("watch", {}), ("unwatch", {}), ("register", {}), ("unregister", {}),
                       ("state", {"state": "RUNNING"}), ("connect", {"app_id": "com.example.provider"}),
                       ("bring_to_front", {"app_id": "com.example.provider"}), ("administer", {"list_apps": {}})]:
        attacker = world.app("victim", **place)
        attacker.ask_later(kind, body)
        expect((kind, ending(attacker.broker)), (kind, 102))
    # The app has its place, its state and its key as before; forgotten, it leaves nothing to whoever has the other one.
    app = world.app("victim")
    expect((app.enrolled["version"], app.others), (1, []))
    world.administrator().ask("administer", {"forget": app.app_id})
    expect(refusal(world.app, "victim", **place), 106)
    expect(world.app("victim").enrolled["version"], 1)
    check()


def another_key_for_an_app_that_enrolled(world):
    check = honest_pair(world)
    expect(refusal(world.app, "provider", key="attacker"), 106)
    expect(refusal(world.app, "provider", key="attacker", user="bob"), 106)
    check()


def ids_without_end(world):
    """Some that nobody has approved; further ones wait, and few. None takes an id or a place of another."""
    world.stop_broker()
    world.broker_options = []
    world.start_broker()
    check = honest_pair(world)
    many = [world.app(f"many{n}") for n in range(6)]
    expect(refusal(world.app, "second", key="many0"), 106)
    expect(refusal(world.app, "MANY1", key="capitals"), 106)
    waiting = [world.app(f"more{n}", pends=True) for n in range(8)]
    expect(refusal(world.app, "more8", pends=True), 16)
    check()
    administrator = world.administrator()
    apps = administrator.ask("administer", {"list_apps": {}})["apps"]
    expect(len(apps["apps"]), 8)
    expect([app["provider"]["app_id"] for app in apps["pending"]], [app.app_id for app in waiting])
    # Those that wait are not there, and may ask nothing.
    expect(refusal(world.tool().attend().ask, "administer", {"list_apps": {}}), 102)
    for n, question in enumerate([("find", {}), ("connect", {"app_id": "com.example.provider"})]):
        expect(refusal(waiting[n].ask, *question), 102)
    approval = {"app_id": waiting[2].app_id, "key_fingerprint": fingerprint(waiting[2].key.public)}
    administrator.ask("administer", {"approve": approval})
    expect(waiting[2].approved().find(app_id=waiting[2].app_id), [])
    expect(refusal(administrator.ask, "administer", {"approve": {**approval, "key_fingerprint": bytes(16)}}), 9)
    administrator.ask("administer", {"forget": waiting[3].app_id})
    expect(ending(waiting[3].broker), 110)
    many[0].close()
    world.app("many0")
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
    """Nothing is acted on before a record of this handshake has opened: the key in message 1 alone does nothing."""
    check = honest_pair(world)
    recorded, tool = bytearray(), world.tool().attend()
    victim = recorded_session(world, recorded)
    message, first_record = recorded[: 2 + FIRST_MESSAGE_BYTES], recorded[2 + FIRST_MESSAGE_BYTES :]
    expect(int.from_bytes(first_record[:2], "little"), len(first_record) - 2)
    waiting = dialled(world)
    waiting.sendall(message)
    for data in (recorded, message + unit(first_record[2:] + bytes(16)), recorded + first_record):
        # The broker's message, and then nothing: the record does not open.
        expect(len(answer_to(world, data)), 2 + SECOND_MESSAGE_BYTES)
    # The victim's connection was not taken over, which is what a second proof of its key would have done.
    expect(victim.ending, None)
    services = [{"id": "com.example.victim", "version": "1"}]
    body = {"name": "victim", "entitlement_id": "com.example.victim", "entitlement_version": "1", "services": services}
    victim.send({"question": {"number": 1, "register": body}})
    expect(victim.take("answer").get("number"), 1)
    victim.abandon()
    world.loop.until(lambda: not_running(tool, "com.example.victim"), what="the end of the victim")
    expect(len(answer_to(world, recorded)), 2 + SECOND_MESSAGE_BYTES)
    expect(not_running(tool, "com.example.victim"), True)
    waiting.close()
    check()


def recorded_session(world, recorded):
    """An app's connection that has enrolled, and what it sent for that."""
    sealed = sealed_to_broker(world.key("victim"), read_broker_key(world.path))
    victim = Connection(world.loop, dialled(world), sealed, "BrokerMessage", sees=recorded)
    world.loop.until(lambda: victim.is_ready)
    enrol = {"version": 1, "app_id": "com.example.victim", "activation_user": "ann@example.com", "state": "RUNNING"}
    victim.send({"enrol": enrol})
    victim.take("enrolled")
    victim.sees = None
    return victim


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
    # Each may register thirty times at once.
    noisy = [world.app(name).register(service) for name in ("noisy", "noisier", "noisiest")]
    for _ in range(8):
        attacker = begun(world).attend()
        for _ in range(20):
            for app in noisy:
                attacker.ask("watch", {"app_id": app.app_id})
        attacker.broker.stop_reading()
    before = world.broker_bytes()
    for n in range(29):
        for app in noisy:
            app.register(service, name=f"name {n}")
    check()
    grown = world.broker_bytes() - before
    # 13,920 changes, each of some hundred bytes: no more than that, and what the allocator keeps.
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
        silent.append(connected(world.path))
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
    script = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1]);"
        "print(len(s.recv(1)))")

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
    """A broker with another key than the pinned one is sent nothing."""
    provider = world.app("provider")
    expect(refusal(App, world.loop, world.path, provider.key, provider.app_id, pinned=Key().public), 105)


CHECKS = [
    frames_that_are_none, frames_that_end_in_the_middle, peers_that_fall_silent, bytes_that_are_no_handshake,
    handshakes_that_are_not_ours, keys_of_low_order, records_that_are_none, records_that_are_cut,
    messages_that_may_not_come, another_key_for_an_app_that_enrolled, more_than_standing_in,
    ids_without_end, administering_without_the_key,
    a_recorded_session_played_again, more_questions_than_may_wait, a_watcher_that_never_reads,
    watchers_of_small_changes_that_never_read, questions_without_reading_the_answers, thousands_of_connections,
    descriptors_for_the_broker, another_user, a_false_broker,
]
