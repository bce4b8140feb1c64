"""What a hostile app of the same user tries with an app of this project, to which the broker introduced it; and what the honest ones do with
that app."""

import os
import select

import certificates
from connection import Connection, Fault
from honest import VALUE
from messages import SCHEMA, to_value
from opendynamics_client import CHANNEL_FRAME_MAX, App
from world import SERVICE, SERVICE_VERSION, echo, ending, expect, refusal

VICTIM = "com.example.victim"
USER = "ann@example.com"
PROGRAM = os.environ.get("OPENDYNAMICS_SERVICE_APP", "")


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
        ticket = self.ask("connect", {"app_id": VICTIM})["introduced"]["ticket"]
        self.loop.until(lambda: ticket in self.raw)
        return ticket, self.raw.pop(ticket)[1]

    def tls(self, certificate=None, key=None):
        """TLS with the victim; what comes after it is up to the caller."""
        ticket, (control, self.bulk) = self.dialled()
        context = certificates.context(False, certificate or self.leaf, key or self.key, self.authority)
        connection = Connection(self.loop, control, context, False, "ChannelMessage", frame_max=CHANNEL_FRAME_MAX)
        self.loop.until(lambda: connection.is_ready or connection.ending is not None, what="TLS with the app")
        return ticket, connection

    def hello(self, ticket, /, **more):
        own = {"version": 1, "ticket": ticket, "app_id": self.app_id, "process": b"p" * 16, "requests": 64}
        return {"hello": {**own, "frame_byte_count": CHANNEL_FRAME_MAX, **more}}

    def begun(self, **more):
        ticket, connection = self.tls()
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


def certificates_of_another_app(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    other = Attacker(world, "other")
    key = world.key("attacker")
    authority = certificates.Authority(world.directory)
    bob = Attacker(world, "bob", user="bob@example.com")
    for name, certificate, its_key in [
        ("self-signed", key.own, key), ("another authority", authority.issue(key, attacker.app_id, USER), key),
        ("another app", other.leaf, other.key), ("the authority's name", authority.path + ".pem", None),
    ]:
        if its_key is None:
            its_key = type("Key", (), {"path": authority.path + ".key"})
        _, connection = attacker.tls(certificate, its_key)
        found = ending(connection)
        assert found in ("end", 9), f"{name}: {found}"
        expect((name, connection.received), (name, []))
    _, connection = bob.tls()
    assert ending(connection) in ("end", 13), connection.ending
    expect(connection.received, [])
    check()


def hellos_of_another_introduction(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    first, _ = attacker.dialled()
    for more, number in [
        ({"ticket": first}, 107), ({"ticket": b""}, 107), ({"ticket": os.urandom(32)}, 107),
        ({"app_id": "com.example.honest"}, 9), ({"version": 0}, 104), ({"process": b"x"}, 100),
        ({"frame_byte_count": 8191}, 100), ({"requests": (1 << 20) + 1}, 100),
    ]:
        ticket, connection = attacker.tls()
        connection.send(attacker.hello(ticket, **more))
        expect((more, ending(connection)), (more, number))
    for message in [request(1), {"ping": {"number": 1}}, {"credit": {"more": 1}}]:
        _, connection = attacker.tls()
        connection.send(message)
        expect((message, ending(connection)), (message, 102))
    # TLS and nothing else, or not even that.
    _, silent = attacker.tls()
    _, (control, _bulk) = attacker.dialled()
    expect(ending(silent, 15), 19)
    control.settimeout(15)
    expect(control.recv(1), b"")
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
    half = attacker.begun()
    half.send_bytes(b"\x10\0\0\0\x0a")
    expect(ending(half, 15), 19)
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
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    ticket, (control, _) = attacker.dialled()
    context = certificates.context(False, attacker.leaf, attacker.key, attacker.authority)
    recorded = bytearray()
    connection = Connection(world.loop, control, context, False, "ChannelMessage", sees=recorded)
    world.loop.until(lambda: connection.is_ready)
    connection.send(attacker.hello(ticket))
    connection.send(request(1))
    connection.take("hello")
    connection.take("accepted")
    connection.abandon()
    _, (control, _) = attacker.dialled()
    control.setblocking(True)
    control.settimeout(15)
    control.sendall(bytes(recorded))
    try:
        while control.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    check()


CHECKS = [
    exchanges_requests_with_an_app_of_this_project, sends_it_more_requests_than_its_credit,
    asks_it_about_requests_after_a_channel_broke, certificates_of_another_app, hellos_of_another_introduction,
    messages_that_may_not_come, frames_that_are_none, requests_beyond_the_credit, params_that_are_none,
    a_reply_that_does_not_fit, peers_that_never_read, channels_and_introductions_without_end,
    a_recorded_channel_played_again,
]
