"""What a hostile provider tries with an app of this project that sends it requests."""

import os
import socket
import time

from attacks_on_an_app import IGNORED, SECOND_MESSAGE_BYTES, USER, Attacker, Process, honest_use
from connection import Connection
from keys import Key
from messages import to_value
from noise import DoesNotOpen, HandshakeState, SealedSocket
from opendynamics_client import CHANNEL_FRAME_MAX, App, sealed_channel
from tampering import LOW_ORDER, WithoutSecret, no_handshakes, no_messages, no_records, unit
from world import SERVICE, SERVICE_VERSION, TimedOut, ending, expect

PROVIDER = "com.example.hostile"


class Provider(App):
    """Takes each introduction as the acceptor, and leaves the rest to the check."""

    def __init__(self, world, **hello):
        self.hello, self.channels, self.current = hello, [], None
        # What makes a channel's end of an introduction.
        self.sealed = self.honest
        super().__init__(world.loop, world.path, world.key("hostile"), PROVIDER, USER)
        world.close_later(self).register((SERVICE, SERVICE_VERSION))

    def introduced(self, introduction, sockets):
        own = {"version": 2, "ticket": introduction["ticket"], "app_id": PROVIDER, "process": b"p" * 16,
               "requests": 64, "frame_byte_count": CHANNEL_FRAME_MAX, **self.hello}
        channel = Connection(
            self.loop, sockets[0], self.sealed(introduction), "ChannelMessage",
            on_ready=lambda it: it.send({"hello": own}), frame_max=CHANNEL_FRAME_MAX)
        channel.ticket, channel.bulk = introduction["ticket"], sockets[1]
        self.channels.append(channel)

    def honest(self, introduction, state=HandshakeState, key=None, **more):
        """What belongs there, but for what is given."""
        return sealed_channel({**introduction, **more}, self.app_id, self.user, key or self.key, state)

    def next(self):
        """The next channel, after the app's Hello."""
        self.loop.until(lambda: self.channels, what="a channel")
        self.current = self.channels.pop(0)
        self.current.take("hello")
        return self.current

    def channel(self):
        """The channel that is open, or the next one."""
        return self.current if self.current and self.current.ending is None else self.next()


def begin(world, **hello):
    provider = Provider(world, **hello)
    return Process(world), provider


def ask(app, method="echo", params="null"):
    app.process.stdin.write(f"call {PROVIDER} {method} {params}\n")


class Answering(SealedSocket):
    """Takes whatever comes for message 1, and makes an answer of what an honest one would say, if it can."""

    def __init__(self, make, honest):
        super().__init__("KK", honest.handshake)
        self.make, self.has_answered = make, False

    def shake_hands(self):
        if self.has_answered or (first := self.next(0, 65_535)) is None:
            return
        self.has_answered = True
        try:
            self.handshake.read_message(first)
            good = self.handshake.write_message()
        except DoesNotOpen:
            good = os.urandom(SECOND_MESSAGE_BYTES)
        # It is never ready, so that everything else is up to the app.
        self.handshake.ciphers = None
        self.outgoing += self.make(good)


def fails(app, provider, name, sealed, said):
    """What the app is told when the channel that it asked for has this end."""
    provider.sealed = sealed
    ask(app)
    expect((name, app.line()), (name, said))
    (channel,) = provider.channels
    expect((name, ending(channel, 5), channel.received), (name, "end", []))
    provider.channels.clear()


def a_provider_without_the_introduced_key(world):
    """Whatever it answers, the app takes it for an app that is not the introduced one."""
    app, provider = begin(world)
    other = Attacker(world, "other")
    for key in (Key(), other.key):
        fails(app, provider, "another key", lambda it, k=key: Answering(unit, provider.honest(it, key=k)), "failed 9")
    for n, make in enumerate(no_messages(SECOND_MESSAGE_BYTES)):
        fails(app, provider, f"changed: {n}", lambda it, m=make: Answering(m, provider.honest(it)), "failed 9")
    for more in [{"ticket": os.urandom(32)}, {"app_id": other.app_id}, {"activation_user": "bob@example.com"}]:
        fails(app, provider, more, lambda it, m=more: Answering(unit, provider.honest(it, **m)), "failed 9")
    for point in LOW_ORDER:
        state = WithoutSecret.of(point)
        fails(app, provider, point, lambda it, s=state: Answering(unit, provider.honest(it, s)), "failed 9")
    provider.sealed = provider.honest
    answers(app, provider)


def answers_that_are_no_handshake(world):
    """Of another length: that says nothing of keys."""
    app, provider = begin(world)
    for n, data in enumerate(no_handshakes(SECOND_MESSAGE_BYTES)):
        fails(app, provider, n, lambda it, d=data: Answering(lambda _: d, provider.honest(it)), "failed 18")
    provider.sealed = provider.honest
    answers(app, provider)


def records_that_are_none(world):
    """They break the channel, and the app asks over the next one what became of its request."""
    provider = Provider(world)
    for n, (name, make) in enumerate(no_records()):
        # A few of the lengths are enough.
        if 2 <= n < 16:
            continue
        app = Process(world, f"com.example.consumer{n}")
        ask(app)
        channel = provider.next()
        sent = channel.take("request")
        channel.send_raw(make(channel.sealed, IGNORED))
        expect((name, ending(channel)), (name, "end"))
        again = provider.next()
        expect(again.take("inquiry"), {"id": sent["id"], "tickets": [channel.ticket]})
        again.send({"standing": {"id": sent["id"], "state": "UNHEARD"}})
        expect(again.take("request")["id"], sent["id"])
        again.send({"refused": {"id": sent["id"], "failure": {"error": 4}}})
        expect(app.line(), "failed 4")


def answers(app, provider):
    """An honest exchange."""
    provider.hello = {}
    ask(app, "echo", "[1]")
    channel = provider.channel()
    sent = channel.take("request")
    expect((sent["service_id"], sent["version"], sent["method"]), (SERVICE, SERVICE_VERSION, "echo"))
    channel.send({"accepted": {"id": sent["id"]}})
    channel.send({"reply": {"id": sent["id"], "params": sent["params"]}})
    expect(app.line(), "reply [1]")
    expect(channel.take("reply_accepted"), {"id": sent["id"]})


def a_beginning_that_always_fails(world):
    """The app tries again, and again later, and then no more."""
    app, provider = begin(world, ticket=os.urandom(32))
    begun = time.monotonic()
    ask(app)
    expect(app.line(60), "failed 18")
    assert 5 < time.monotonic() - begun < 30, f"after {time.monotonic() - begun} s"
    expect({ending(channel) for channel in provider.channels}, {107})
    expect(len(provider.channels), 8)
    world.loop.pause(0.5)
    expect(len(provider.channels), 8)
    provider.channels.clear()
    answers(app, provider)


def messages_that_may_not_come(world):
    provider = Provider(world)
    for n, (messages, number) in enumerate([
        (["accepted", "accepted"], 102), (["reply"], 102), (["no_reply"], 102), (["accepted", "refused"], 102),
        (["cancelled"], 102), (["standing"], 102), (["accepted", "reply_accepted"], 102),
        (["accepted", {"reply": {"attachments": 1}}], 102),
        (["accepted", {"reply": {"error": {"code": 1, "text": "x" * 4097}}}], 100),
        (["accepted", {"reply": {"error": {"code": 1, "details": to_value(1)}}}], 100),
        ([{"refused": {"failure": {"error": 1, "detail": "x" * 4097}}}], 100),
        ([{"credit": {"more": 1 << 20}}], 100), ([{"hello": {}}], 102),
    ]):
        # Each time another app: one whose channels keep breaking waits longer and longer before the next.
        app = Process(world, f"com.example.consumer{n}")
        ask(app)
        channel = provider.next()
        sent = channel.take("request")
        for message in messages:
            message = {message: {}} if isinstance(message, str) else message
            ((kind, body),) = message.items()
            channel.send({kind: {"id": sent["id"], **body} if kind not in ("credit", "hello") else body})
        expect((messages, ending(channel)), (messages, number))
        # It asks what became of the request, over the next channel.
        again = provider.next()
        expect(again.take("inquiry"), {"id": sent["id"], "tickets": [channel.ticket]})
        again.send({"standing": {"id": sent["id"], "state": "UNHEARD"}})
        if "accepted" in messages:
            expect(app.line(), "failed 18")
        else:
            # It never arrived, so it is sent once more.
            expect(again.take("request")["id"], sent["id"])
            again.send({"refused": {"id": sent["id"], "failure": {"error": 4}}})
            expect(app.line(), "failed 4")
        answers(app, provider)


def replies_that_are_none(world):
    app, provider = begin(world)
    for body, said in [
        ({"params": to_value([1, "mixed"])}, "failed 8"), ({"params": {}}, "failed 8"),
        ({"error": {"code": 7, "details": {"object": {"members": [{"name": "a"}]}}}}, "failed 8"),
        ({"failure": {"error": 16, "detail": "channel frame bytes"}}, "failed 16"),
        ({"failure": {"error": 77}}, "failed 1"),
    ]:
        ask(app)
        channel = provider.channel()
        sent = channel.take("request")
        channel.send({"accepted": {"id": sent["id"]}})
        channel.send({"reply": {"id": sent["id"], **body}})
        expect((body, app.line()), (body, said))
        expect(channel.take("reply_accepted"), {"id": sent["id"]})
    for error, said in [(4, "failed 4"), (77, "failed 1"), (4_000_000_000, "failed 1"), (0, "failed 1")]:
        ask(app)
        channel = provider.channel()
        channel.send({"refused": {"id": channel.take("request")["id"], "failure": {"error": error}}})
        expect((error, app.line()), (error, said))
    answers(app, provider)


def a_channel_that_breaks_while_it_waits(world):
    app, provider = begin(world)
    ask(app)
    tickets = []
    sent = None
    for state in ["ARRIVED", "QUEUED", "HANDLING"]:
        channel = provider.next()
        if sent is None:
            sent = channel.take("request")
        else:
            inquiry = channel.take("inquiry")
            expect(inquiry, {"id": sent["id"], "tickets": tickets})
            channel.send({"standing": {"id": sent["id"], "state": state}})
        tickets.append(channel.ticket)
        channel.abandon()
    channel = provider.next()
    expect(channel.take("inquiry")["tickets"], tickets)
    channel.send({"standing": {"id": sent["id"], "state": "REPLIED"}})
    channel.send({"reply": {"id": sent["id"], "params": to_value("at last")}})
    expect(app.line(), 'reply "at last"')
    expect(channel.take("reply_accepted"), {"id": sent["id"]})
    # Another process of the provider knows nothing.
    ask(app)
    channel.send({"accepted": {"id": channel.take("request")["id"]}})
    world.loop.pause(0.1)
    provider.hello = {"process": b"q" * 16}
    channel.abandon()
    expect(app.line(), "failed 18")
    provider.next()
    answers(app, provider)


def credit_that_comes_later(world):
    app, provider = begin(world, requests=0)
    ask(app)
    channel = provider.next()
    channel.send({"ping": {"number": 1}})
    channel.take("pong")
    expect(channel.received, [])
    channel.send({"credit": {"more": 1}})
    channel.send({"refused": {"id": channel.take("request")["id"], "failure": {"error": 6}}})
    expect(app.line(), "failed 6")
    answers(app, provider)


def a_provider_that_takes_small_frames(world):
    app, provider = begin(world, frame_byte_count=8192)
    ask(app, "echo", '"' + "x" * 9000 + '"')
    expect(app.line(), "failed 16")
    provider.next()
    answers(app, provider)


def descriptors_that_nobody_asked_for(world):
    Process(world)
    check = honest_use(world)
    attacker = Attacker(world)
    _, sockets = attacker.dialled()
    read, write = os.pipe()
    for sock in sockets:
        sock.setblocking(True)
        socket.send_fds(sock, [b"\x30"], [write] * 8)
    os.close(write)
    for sock in sockets:
        sock.close()
    os.set_blocking(read, False)
    end = time.monotonic() + 20
    while True:
        try:
            expect(os.read(read, 1), b"")
            break
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise TimedOut("the app keeps descriptors that it was sent") from error
            world.loop.pause(0.02)
    os.close(read)
    check()


CHECKS = [
    a_provider_without_the_introduced_key, answers_that_are_no_handshake, records_that_are_none,
    a_beginning_that_always_fails, messages_that_may_not_come, replies_that_are_none,
    a_channel_that_breaks_while_it_waits, credit_that_comes_later, a_provider_that_takes_small_frames,
    descriptors_that_nobody_asked_for,
]
