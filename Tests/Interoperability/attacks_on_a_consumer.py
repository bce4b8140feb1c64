"""What a hostile provider tries with an app of this project that sends it requests."""

import os
import socket
import time

import certificates
from attacks_on_an_app import USER, Attacker, Process, honest_use
from connection import Connection
from messages import to_value
from opendynamics_client import CHANNEL_FRAME_MAX, App
from world import SERVICE, SERVICE_VERSION, TimedOut, ending, expect

PROVIDER = "com.example.hostile"


class Provider(App):
    """Takes each introduction as the acceptor, and leaves the rest to the check."""

    def __init__(self, world, **hello):
        self.hello, self.channels, self.current, self.certificate, self.own = hello, [], None, None, None
        super().__init__(world.loop, world.path, world.key("hostile"), PROVIDER, USER)
        world.close_later(self).register((SERVICE, SERVICE_VERSION))

    def introduced(self, introduction, sockets):
        context = certificates.context(True, self.certificate or self.leaf, self.own or self.key, self.authority)
        own = {"version": 1, "ticket": introduction["ticket"], "app_id": PROVIDER, "process": b"p" * 16,
               "requests": 64, "frame_byte_count": CHANNEL_FRAME_MAX, **self.hello}
        channel = Connection(
            self.loop, sockets[0], context, True, "ChannelMessage", on_ready=lambda it: it.send({"hello": own}),
            frame_max=CHANNEL_FRAME_MAX)
        channel.ticket, channel.bulk = introduction["ticket"], sockets[1]
        self.channels.append(channel)

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


def a_certificate_of_another_app(world):
    app, provider = begin(world)
    other = Attacker(world, "other")
    authority = certificates.Authority(world.directory)
    for certificate, key in [(other.leaf, other.key), (provider.key.own, provider.key),
                             (authority.issue(provider.key, PROVIDER, USER), provider.key)]:
        provider.certificate, provider.own = certificate, key
        ask(app)
        expect(app.line(), "failed 9")
        expect([channel.received for channel in provider.channels], [[]] * len(provider.channels))
    provider.certificate = provider.own = None
    provider.channels.clear()
    answers(app, provider)


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
        socket.send_fds(sock, [b"\x16"], [write] * 8)
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
    a_certificate_of_another_app, a_beginning_that_always_fails, messages_that_may_not_come, replies_that_are_none,
    a_channel_that_breaks_while_it_waits, credit_that_comes_later, a_provider_that_takes_small_frames,
    descriptors_that_nobody_asked_for,
]
