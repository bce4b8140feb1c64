"""What a hostile app of the same user tries with an app of this project, to which the broker introduced it.

And what the honest ones do with that app.
"""

import os
import select
import socket

from connection import Connection, Fault
from honest import VALUE
from keys import Key
from messages import SCHEMA, to_value
from noise import MESSAGE_BYTES, DoesNotOpen, HandshakeState, SealedSocket
from opendynamics_client import BROKER_PROLOGUE, CHANNEL_FRAME_MAX, App, channel_prologue, sealed_channel
from tampering import LOW_ORDER, OfAnotherName, WithoutSecret, no_handshakes, no_messages, no_records, said, unit
from world import SERVICE, SERVICE_VERSION, echo, ending, expect, refusal

VICTIM = "com.example.victim"
USER = "ann@example.com"
PROGRAM = os.environ.get("OPENDYNAMICS_SERVICE_APP", "")
FIRST_MESSAGE_BYTES, SECOND_MESSAGE_BYTES = MESSAGE_BYTES["KK"]


class Process:
    """The app of this project, in a process of its own."""

    def __init__(self, world, app_id=VICTIM, user=USER):
        self.process = world.spawn(PROGRAM, world.path, f"{world.directory}/{app_id}", app_id, user)
        self.world = world
        self.says("ready")

    def line(self, seconds=30):
        """The next line; the loop goes on meanwhile, since this side may have to answer something first."""
        out = self.process.stdout
        self.world.loop.watch(out, lambda: None)
        try:
            self.world.loop.until(lambda: select.select([out], [], [], 0)[0], seconds, "a line of the app")
        finally:
            self.world.loop.forget(out)
        return out.readline().strip()

    def says(self, wanted):
        expect(self.line(), wanted)

    def call(self, app_id, method, params="null"):
        self.process.stdin.write(f"call {app_id} {method} {params}\n")
        return self.line()

    def bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))


class Attacker(App):
    """Gets introduced, and then does what it wants with the sockets."""

    def __init__(self, world, name="attacker", **more):
        self.raw = {}
        super().__init__(world.loop, world.path, world.key(more.pop("key", name)), f"com.example.{name}", **more)
        world.close_later(self)

    def introduced(self, introduction, sockets):
        self.raw[introduction["ticket"]] = (introduction, sockets)

    def dialled(self):
        """An introduction to the victim, and the sockets that came with it."""
        ticket = self.ask("connect", {"app_id": VICTIM})["introduced"]["ticket"]
        self.loop.until(lambda: ticket in self.raw)
        return self.raw.pop(ticket)

    def sealed(self, introduction, key=None, app_id=None, user=None, state=HandshakeState, **more):
        """Its end of a control lane; what is given takes the place of what belongs there."""
        own = (app_id or self.app_id, user or self.user, key or self.key)
        return sealed_channel({**introduction, **more}, *own, state)

    def shaken(self, **more):
        """A connection after the handshake, if the victim goes so far; what comes after it is up to the caller."""
        introduction, (control, self.bulk) = self.dialled()
        connection = Connection(
            self.loop, control, self.sealed(introduction, **more), "ChannelMessage", frame_max=CHANNEL_FRAME_MAX)
        self.loop.until(lambda: connection.is_ready or connection.ending is not None, what="the handshake with the app")
        return introduction["ticket"], connection

    def answer_to(self, make, seconds=5):
        """All that the victim says to bytes that are made of a message 1 that opens."""
        introduction, (control, bulk) = self.dialled()
        control.setblocking(True)
        try:
            control.sendall(make(bytes(self.sealed(introduction).outgoing[2:])))
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = said(control, seconds)
        control.close()
        bulk.close()
        return answer

    def hello(self, ticket, /, **more):
        own = {"version": 2, "ticket": ticket, "app_id": self.app_id, "process": b"p" * 16, "requests": 64}
        return {"hello": {**own, "frame_byte_count": CHANNEL_FRAME_MAX, **more}}

    def begun(self, **more):
        ticket, connection = self.shaken()
        connection.send(self.hello(ticket, **more))
        self.their_hello = connection.take("hello")
        return connection


def request(n, method="echo", **more):
    body = {"id": n.to_bytes(16, "little"), "service_id": SERVICE, "version": SERVICE_VERSION, "method": method}
    return {"request": {**body, **more}}


def honest_use(world):
    """Whether an honest app is served as before."""
    consumer = world.app("honest")

    def check():
        expect(consumer.send(VICTIM, SERVICE, SERVICE_VERSION, "echo", "still here").wait(), "still here")
        another = consumer.connect(VICTIM)
        expect(another.request(SERVICE, SERVICE_VERSION, "echo", 2).wait(), 2)
        another.close()

    check()
    return check


# MARK: Honest use


def exchanges_requests_with_an_app_of_this_project(world):
    app = Process(world)
    consumer = world.app("consumer", serve=echo).register((SERVICE, SERVICE_VERSION))
    (found,) = consumer.find(service_id=SERVICE)
    expect(found["app_id"], VICTIM)
    sent = consumer.send(VICTIM, SERVICE, SERVICE_VERSION, "echo", VALUE)
    expect(sent.wait(), VALUE)
    failed = consumer.send(VICTIM, SERVICE, SERVICE_VERSION, "fail")
    refusal(failed.wait)
    expect((failed.error["code"], failed.error["text"]), (-5, "no"))
    nothing = consumer.send(VICTIM, SERVICE, SERVICE_VERSION, "nothing")
    world.loop.until(lambda: nothing.is_ended)
    expect(nothing.events, ["accepted", "no reply"])
    held = consumer.send(VICTIM, SERVICE, SERVICE_VERSION, "hold")
    held.wait_accepted()
    held.cancel()
    expect(held.wait(), "cancelled")
    for service, version, method, error in [("com.example.no", "1.0.0.0", "echo", 4), (SERVICE, "2", "echo", 5),
                                            (SERVICE, SERVICE_VERSION, "no", 6)]:
        expect(refusal(consumer.send(VICTIM, service, version, method).wait), error)
    expect(app.call(consumer.app_id, "echo", '{"a":[1,2],"b":"é"}'), 'reply {"a":[1,2],"b":"é"}')
    expect(app.call(consumer.app_id, "fail"), "error -5 no")
    expect(app.call(consumer.app_id, "nothing"), "no reply")
    expect(app.call(consumer.app_id, "unknown"), "failed 6")
    expect(app.call("com.example.nobody", "echo"), "failed 3")


def sends_it_more_requests_than_its_credit(world):
    Process(world)
    consumer = world.app("consumer")
    consumer.connect(VICTIM)
    sent = [consumer.send(VICTIM, SERVICE, SERVICE_VERSION, "echo", n) for n in range(2500)]
    world.loop.until(lambda: all(one.is_ended for one in sent), 60)
    expect([one.result for one in sent], list(range(2500)))


def asks_it_about_requests_after_a_channel_broke(world):
    Process(world)
    consumer = world.app("consumer")
    sent = consumer.send(VICTIM, SERVICE, SERVICE_VERSION, "hold")
    sent.wait_accepted()
    consumer.peer(VICTIM).newest.connection.abandon()
    consumer.connect(VICTIM)
    world.loop.until(lambda: "standing HANDLING" in sent.events)
    sent.cancel()
    expect(sent.wait(), "cancelled")


# MARK: The beginning of a channel


def handshakes_of_somebody_else(world):
    """Another key than the introduced one, or another introduction: the app closes without a word."""
    Process(world)
    check = honest_use(world)
    attacker, other = Attacker(world), Attacker(world, "other")
    earlier, sockets = attacker.dialled()
    for more in [
        {"key": Key()}, {"key": other.key}, {"key": world.key("honest")}, {"public_key": Key().public},
        {"public_key": attacker.key.public}, {"ticket": earlier["ticket"]}, {"ticket": os.urandom(32)},
        {"ticket": bytes(32)}, {"app_id": other.app_id}, {"app_id": attacker.app_id + "x"},
        {"user": "bob@example.com"}, {"activation_user": "bob@example.com"}, {"state": OfAnotherName},
    ]:
        refused(more, attacker.shaken(**more)[1])
    introduction, (control, _) = attacker.dialled()
    refused("swapped ids", Connection(world.loop, control, swapped(attacker, introduction), "ChannelMessage"))
    introduction, (control, _) = attacker.dialled()
    sealed = SealedSocket("KK", HandshakeState("KK", True, BROKER_PROLOGUE, attacker.key, introduction["public_key"]))
    refused("the broker's prologue", Connection(world.loop, control, sealed, "ChannelMessage"))
    # With the sockets of another introduction to the same app.
    introduction, _ = attacker.dialled()
    refused("other sockets", Connection(world.loop, sockets[0], attacker.sealed(introduction), "ChannelMessage"))
    check()


def swapped(attacker, introduction):
    """The right keys, and a prologue with the two apps in each other's places."""
    own, theirs = (attacker.app_id, attacker.user), (introduction["app_id"], introduction["activation_user"])
    prologue = channel_prologue(introduction["ticket"], theirs, own)
    return SealedSocket("KK", HandshakeState("KK", True, prologue, attacker.key, introduction["public_key"]))


def refused(name, connection):
    """The victim ended it at message 1."""
    expect((name, ending(connection, 5)), (name, "end"))
    expect((name, connection.is_ready, connection.received), (name, False, []))


def apps_of_another_user(world):
    """Nobody of another user gets to the app, finds it, or is called by it."""
    app = Process(world)
    check = honest_use(world)
    bob = Attacker(world, "bob", user="bob@example.com")
    bob.register((SERVICE, SERVICE_VERSION))
    expect(refusal(bob.dialled), 13)
    expect(bob.find(service_id=SERVICE), [])
    expect(app.call(bob.app_id, "echo"), "failed 13")
    check()


def bytes_that_are_no_handshake(world):
    """They are not waited for: each is closed at once, without a word."""
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    for data in no_handshakes(FIRST_MESSAGE_BYTES):
        expect((data[:12], attacker.answer_to(lambda _, it=data: it)), (data[:12], b""))
    for n, make in enumerate(no_messages(FIRST_MESSAGE_BYTES)):
        expect((n, attacker.answer_to(make)), (n, b""))
    # The same way, one that opens is answered.
    expect(len(attacker.answer_to(lambda it: unit(it) + unit(b""))) >= 2 + SECOND_MESSAGE_BYTES, True)
    check()


def keys_of_low_order(world):
    """With one, whoever shows it knows part of the secrets, whatever key the app has."""
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    for point in LOW_ORDER:
        refused(point, attacker.shaken(state=WithoutSecret.of(point))[1])
    check()


# What changes nothing: of a kind that may be ignored.
IGNORED = b"\x03\0\0\0\xc2\x3e\0"


def records_that_are_none(world):
    """They end the channel without a word, first thing or later."""
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    for name, make in no_records():
        connection = attacker.begun()
        connection.send_bytes(IGNORED)
        connection.send({"ping": {"number": 1}})
        expect(connection.take("pong"), {"number": 1})
        connection.send_raw(make(connection.sealed, IGNORED))
        expect((name, ending(connection)), (name, "end"))
        expect((name, connection.received), (name, []))
        ticket, connection = attacker.shaken()
        hello = SCHEMA.encode("ChannelMessage", attacker.hello(ticket))
        connection.send_raw(make(connection.sealed, len(hello).to_bytes(4, "little") + hello))
        expect((name, ending(connection)), (name, "end"))
        # Its Hello is all that it said before it knew who this is.
        assert [kind for message in connection.received for kind in message] in ([], ["hello"]), connection.received
    check()


def records_that_are_cut(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    for byte_count in (1, 2, 3, 20, 22):
        connection = attacker.begun()
        connection.send_raw(connection.sealed.seal(IGNORED)[:byte_count])
        connection.sock.shutdown(socket.SHUT_WR)
        expect((byte_count, ending(connection)), (byte_count, "end"))
    check()


def takes_records_of_all_lengths(world):
    """Messages go on in the next record, share one, and begin within one."""
    Process(world)
    attacker = Attacker(world)
    data = b"".join(
        len(it).to_bytes(4, "little") + it
        for it in (SCHEMA.encode("ChannelMessage", {"ping": {"number": n}}) for n in range(1, 9)))
    connection = attacker.begun()
    for byte_count in (1, 3, 7, len(data)):
        for begin in range(0, len(data), byte_count):
            connection.send_bytes(data[begin : begin + byte_count])
        expect([connection.take("pong")["number"] for _ in range(8)], list(range(1, 9)))
    # What is longer than a record, both ways, with what follows in the same one.
    params = to_value(bytes(range(256)) * 1024)
    sent = SCHEMA.encode("ChannelMessage", request(1, params=params))
    connection.send_bytes(len(sent).to_bytes(4, "little") + sent + data)
    world.loop.until(lambda: len(connection.received) == 10 or connection.ending is not None)
    answers = {kind: body for message in connection.received for kind, body in message.items()}
    expect(answers["reply"]["params"] == params, True)


def hellos_of_another_introduction(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    first = attacker.dialled()[0]["ticket"]
    for more, number in [
        ({"ticket": first}, 107), ({"ticket": b""}, 107), ({"ticket": os.urandom(32)}, 107),
        ({"app_id": "com.example.honest"}, 9), ({"version": 0}, 104), ({"version": 1}, 104), ({"process": b"x"}, 100),
        ({"frame_byte_count": 8191}, 100), ({"requests": (1 << 20) + 1}, 100),
    ]:
        ticket, connection = attacker.shaken()
        connection.send(attacker.hello(ticket, **more))
        expect((more, ending(connection)), (more, number))
    for message in [request(1), {"ping": {"number": 1}}, {"credit": {"more": 1}}]:
        _, connection = attacker.shaken()
        connection.send(message)
        expect((message, ending(connection)), (message, 102))
    check()


def peers_that_fall_silent(world):
    """All at once, since each takes the ten seconds that the page gives it."""
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    ticket, silent = attacker.shaken()
    _, cut = attacker.shaken()
    cut.send_raw(cut.sealed.seal(b"\x10\0\0\0\x0a")[:-1])
    # As many channels as one app may have.
    mute = []
    for byte_count in (0, 2 + FIRST_MESSAGE_BYTES - 1):
        introduction, (control, _bulk) = attacker.dialled()
        control.sendall(bytes(attacker.sealed(introduction).outgoing[:byte_count]))
        mute.append(control)
    # Who has proved no key is told nothing but Hello.
    for connection in (silent, cut):
        assert ending(connection, 15) in ("end", 19), connection.ending
    for control in mute:
        expect(said(control, 15), b"")
    # Who has proved its key, and says nothing else.
    half = attacker.begun()
    half.send_bytes(b"\x10\0\0\0\x0a")
    expect(ending(half, 15), 19)
    check()


# MARK: What may not come


def messages_that_may_not_come(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    unknown = b"u" * 16
    for message, number in [
        (attacker.hello(b"x" * 32), 102), ({"accepted": {"id": unknown}}, 102), ({"refused": {"id": unknown}}, 102),
        ({"reply": {"id": unknown}}, 102), ({"no_reply": {"id": unknown}}, 102),
        ({"reply_accepted": {"id": unknown}}, 102), ({"cancelled": {"id": unknown}}, 102),
        ({"standing": {"id": unknown}}, 102), ({"accepted": {"id": b"short"}}, 100),
        ({"request": {"id": b"short"}}, 100), ({"credit": {"more": 0}}, 100), ({"credit": {"more": 1 << 20}}, 100),
        (request(1, foreground=9), 100), (request(1, method="m" * 256), 100), (request(1, attachments=1), 102),
        ({"committed": {"id": unknown}}, 102), ({"delivery_accepted": {"id": unknown}}, 102),
        ({"delivery_refused": {"id": unknown}}, 102), ({"delivery_progress": {"id": unknown}}, 102),
        ({"manifest_wanted": {"id": unknown}}, 102), ({"delivery_cancelled": {"id": unknown}}, 102),
        ({"delivery_failed": {"id": unknown}}, 102), ({"reply_standing": {"id": unknown}}, 102),
        ({"inquiry": {"id": unknown, "tickets": [b"t" * 31]}}, 100),
        ({"inquiry": {"id": unknown, "tickets": [os.urandom(32) for _ in range(65)]}}, 100),
    ]:
        connection = attacker.begun()
        connection.send(message)
        expect((message, ending(connection)), (message, number))
    connection = attacker.begun()
    connection.send(request(1, "hold"))
    connection.take("accepted")
    connection.send(request(1, "hold"))
    expect(ending(connection), 102)
    connection = attacker.begun()
    connection.send(request(2, "hold"))
    connection.take("accepted")
    connection.send({"reply_accepted": {"id": request(2)["request"]["id"]}})
    expect(ending(connection), 102)
    # Allowed, and of no consequence.
    connection = attacker.begun()
    connection.send({"cancel": {"id": unknown}})
    expect(connection.take("cancelled").get("done", False), False)
    connection.send({"inquiry": {"id": unknown, "tickets": [os.urandom(32)]}})
    expect(connection.take("standing").get("state", "UNHEARD"), "UNHEARD")
    check()


def frames_that_are_none(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    for data, number in [
        (b"\0\0\0\0", 101), ((CHANNEL_FRAME_MAX + 1).to_bytes(4, "little"), 101), (b"\xff" * 4, 101),
        (b"\x01\0\0\0\xff", 100), (b"\x03\0\0\0\xba\x3e\0", 100), (b"\x02\0\0\0\x0b\x0c", 100),
    ]:
        connection = attacker.begun()
        connection.send_bytes(data)
        expect((data, ending(connection)), (data, number))
    connection = attacker.begun()
    connection.send_bytes(b"\x03\0\0\0\xc2\x3e\0")
    connection.send({"ping": {"number": 5}})
    expect(connection.take("pong"), {"number": 5})
    check()


def requests_beyond_the_credit(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    connection = attacker.begun()
    credit = attacker.their_hello["requests"]
    expect(credit, 1024)
    for n in range(credit):
        connection.send(request(n, "hold"))
    world.loop.until(lambda: len(connection.received) == credit or connection.ending is not None)
    expect(connection.ending, None)
    connection.send(request(credit, "hold"))
    expect(ending(connection), 16)
    check()


def params_that_are_none(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    connection = attacker.begun()
    deep = to_value(1)
    for _ in range(33):
        deep = {"array": {"elements": [deep]}}
    twice = {"object": {"members": [{"name": "a", "value": to_value(1)}] * 2}}
    for n, params in enumerate([deep, twice, {}, {"number": float("inf")}, to_value([1, "mixed"])]):
        connection.send(request(n, params=params))
        expect((params, connection.take("refused")["failure"]["error"]), (params, 8))
    bottomless = to_value(1)
    for _ in range(200):
        bottomless = {"array": {"elements": [bottomless]}}
    connection.send(request(99, params=bottomless))
    expect(ending(connection), 100)
    check()


def a_reply_that_does_not_fit(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    connection = attacker.begun(frame_byte_count=8192)
    connection.send(request(1, "large", params=to_value(100_000)))
    connection.take("accepted")
    reply = connection.take("reply")
    expect(reply["failure"], {"error": 16, "detail": "channel frame bytes"})
    connection.send({"reply_accepted": {"id": reply["id"]}})
    connection.send(request(2, "large", params=to_value(100)))
    connection.take("accepted")
    expect(len(connection.take("reply")["params"]["bytes"]), 100)
    check()


# MARK: A peer that does not keep pace


def peers_that_never_read(world):
    app = Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    before = app.bytes()
    for n, message in enumerate([{"ping": {"number": 1}}, {"cancel": {"id": b"u" * 16}},
                                 request(1, "large", params=to_value(500_000))]):
        connection = attacker.begun()
        connection.stop_reading()
        data = SCHEMA.encode("ChannelMessage", message)
        bundle = (len(data).to_bytes(4, "little") + data) * 1000
        try:
            for round_ in range(400):
                if n == 2:
                    if round_ == 60:
                        break
                    data = SCHEMA.encode("ChannelMessage", request(round_ + 1, "large", params=to_value(500_000)))
                    bundle = len(data).to_bytes(4, "little") + data
                connection.send_bytes(bundle)
                for _ in range(20):
                    if not connection.pending:
                        break
                    world.loop.pause(0.005)
                    connection.flush()
        except OSError:
            pass
        check()
        connection.abandon()
    grown = app.bytes() - before
    assert grown < 160 << 20, f"the app grew by {grown >> 20} MiB"


def channels_and_introductions_without_end(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    begun = []
    for _ in range(6):
        try:
            begun.append(attacker.begun())
        except (Fault, AssertionError):
            pass
    expect(len([one for one in begun if one.ending is None]) <= 4, True)
    for _ in range(200):
        _, (control, bulk) = attacker.dialled()
        control.close()
        bulk.close()
    check()


def a_recorded_channel_played_again(world):
    """Over another introduction not even its first message opens, and over its own there is no second time."""
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    introduction, (control, _) = attacker.dialled()
    recorded = bytearray()
    connection = Connection(
        world.loop, control, attacker.sealed(introduction), "ChannelMessage", sees=recorded)
    world.loop.until(lambda: connection.is_ready)
    connection.send(attacker.hello(introduction["ticket"]))
    connection.send(request(1))
    connection.take("hello")
    connection.take("accepted")
    connection.abandon()
    expect(attacker.answer_to(lambda _: bytes(recorded)), b"")
    # Behind a message 1 that opens the records do not.
    records = bytes(recorded[2 + FIRST_MESSAGE_BYTES :])
    answer = attacker.answer_to(lambda good: unit(good) + records)
    expect(int.from_bytes(answer[:2], "little"), SECOND_MESSAGE_BYTES)
    check()


def another_key_for_an_app_that_it_has_met(world):
    """The broker names it, as one that lies does, or that forgot the app: nothing is exchanged before it is trusted."""
    app = Process(world)
    check = honest_use(world)
    known = world.app("known", serve=echo).register((SERVICE, SERVICE_VERSION))
    expect(known.send(VICTIM, SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)
    administrator = world.administrator()
    administrator.ask("administer", {"forget": known.app_id})
    attacker = Attacker(world, "known", key="another")
    for _ in range(3):
        ticket, connection = attacker.shaken()
        if connection.ending is None:
            connection.send(attacker.hello(ticket))
            connection.send(request(1))
        expect((ending(connection), connection.received), (113, []))
        attacker.bulk.close()
    attacker.close()
    impostor = world.app("known", key="another", serve=echo).register((SERVICE, SERVICE_VERSION))
    expect(app.call(impostor.app_id, "echo"), "failed 26")
    expect(refusal(impostor.connect, VICTIM), 113)
    administrator.ask("administer", {"forget": impostor.app_id})
    known = world.app("known", serve=echo).register((SERVICE, SERVICE_VERSION))
    expect(known.send(VICTIM, SERVICE, SERVICE_VERSION, "echo", 2).wait(), 2)
    expect(app.call(known.app_id, "echo", "3"), "reply 3")
    check()


# MARK: In the broker's place


class FalseBroker:
    """A process that took the socket's place, with a key of its own. `heard` is what came over each connection."""

    def __init__(self, world, answer):
        self.loop, self.answer, self.heard, self.sockets = world.loop, answer, [], []
        if os.path.exists(world.path):
            os.unlink(world.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(world.path)
        self.listener.listen()
        self.loop.watch(self.listener, self.accept)

    def accept(self):
        sock, _ = self.listener.accept()
        lane, theirs = socket.socketpair()
        try:
            socket.send_fds(sock, [b"\0"], [theirs.fileno()])
        except BrokenPipeError:
            # The app, which asks now and then, has gone meanwhile: it may have seen the key first.
            return sock.close()
        finally:
            theirs.close()
        self.sockets += [sock, lane]
        self.heard.append(bytearray())
        self.loop.watch(sock, lambda heard=self.heard[-1]: self.hear(sock, heard))

    def hear(self, sock, heard):
        try:
            data = sock.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self.loop.forget(sock)
        elif not heard:
            sock.sendall(self.answer)
        heard += data

    def close(self):
        for sock in [self.listener, *self.sockets]:
            self.loop.forget(sock)
            sock.close()


def a_false_broker(world):
    """An app that has enrolled sends it nothing when it shows its own key, and else nothing that it can open."""
    app = Process(world)
    app.process.stdin.close()
    app.process.wait(20)
    right, false = world.tool().broker_key, Key()
    world.stop_broker()
    for shown in (false.public, right):
        with open(world.path + ".key.pub", "w", encoding="ascii") as file:
            file.write(shown.hex() + "\n")
        broker = FalseBroker(world, unit(os.urandom(48)))
        process = world.spawn(PROGRAM, world.path, f"{world.directory}/{VICTIM}", VICTIM, USER)
        world.loop.pause(3)
        assert not is_ready(process), "the app takes it for its broker"
        # A connection of this moment may have said nothing yet.
        heard_of = [heard for heard in broker.heard if heard]
        for heard in heard_of:
            if shown == false.public:
                expect(bytes(heard), b"")
            else:
                expect((len(heard), opens(heard[2:], false)), (2 + MESSAGE_BYTES["IK"][0], False))
        assert shown == false.public or heard_of, "it did not dial"
        process.kill()
        broker.close()


def is_ready(process):
    return bool(select.select([process.stdout], [], [], 0)[0]) and process.stdout.readline().strip() == "ready"


def opens(message, key):
    try:
        HandshakeState("IK", False, BROKER_PROLOGUE, key).read_message(bytes(message))
    except DoesNotOpen:
        return False
    return True


CHECKS = [
    exchanges_requests_with_an_app_of_this_project, sends_it_more_requests_than_its_credit,
    asks_it_about_requests_after_a_channel_broke, takes_records_of_all_lengths, handshakes_of_somebody_else,
    apps_of_another_user, bytes_that_are_no_handshake, keys_of_low_order, records_that_are_none,
    records_that_are_cut, hellos_of_another_introduction, peers_that_fall_silent, messages_that_may_not_come,
    frames_that_are_none, requests_beyond_the_credit, params_that_are_none, a_reply_that_does_not_fit,
    peers_that_never_read, channels_and_introductions_without_end, a_recorded_channel_played_again,
    another_key_for_an_app_that_it_has_met, a_false_broker,
]
