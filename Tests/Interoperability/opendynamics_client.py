"""An app of the service protocol in Python, written from the pages in Documentation and service.proto alone.

One thread and one Loop serve any number of apps. Messages with files are in deliveries.py.
"""

import os
import socket
import stat
import struct

import keys
from connection import Connection, Fault, Loop, TimedOut  # noqa: F401  for who uses this module
from deliveries import Delivering, Outbox
from messages import from_value, to_value
from noise import HandshakeState, SealedSocket

VERSION = 1  # of the broker protocol
CHANNEL_VERSION = 2
BROKER_PROLOGUE = b"OpenDynamics broker 1"
CHANNEL_PROLOGUE = b"OpenDynamics channel 1"
BROKER_FRAME_MAX = 1 << 20
CHANNEL_FRAME_MAX = (1 << 20) + (64 << 10)
CREDIT = 1024


class Refused(Exception):
    """An answer with an error."""

    def __init__(self, failure):
        self.number, self.detail = failure.get("error", 0), failure.get("detail", "")
        super().__init__(f"error {self.number} {self.detail}")


def connected(path):
    """A socket of the broker, which waits ten seconds at most: for its turn, and for each answer."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A socket with a timeout of Python's own does not block, and connect(2) has no other way to wait.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 10, 0))
    sock.connect(path)
    sock.settimeout(10)
    return sock


def dial(path):
    """The socket, and this side's end of the descriptor lane."""
    directory = os.stat(os.path.dirname(path))
    if directory.st_uid != os.geteuid() or stat.S_IMODE(directory.st_mode) & 0o077:
        raise PermissionError(f"{os.path.dirname(path)} belongs to somebody else, or is open to others")
    sock = connected(path)
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.geteuid():
        raise PermissionError("another user's process answers")
    data, descriptors, _, _ = socket.recv_fds(sock, 1, 4)
    if data != b"\0" or len(descriptors) != 1:
        for descriptor in descriptors:
            os.close(descriptor)
        sock.close()
        raise Fault(103 if data else 18, f"the broker began with {data} and {len(descriptors)} descriptors")
    return sock, socket.socket(fileno=descriptors[0])


def sealed_to_broker(key, broker_key, prologue=BROKER_PROLOGUE, state=HandshakeState):
    """The client's end of a broker connection."""
    return SealedSocket("IK", state("IK", True, prologue, key, broker_key))


def channel_prologue(ticket, dialler, acceptor):
    """What both sides of an introduction know. An app is its id and its activation user."""
    (dialler_id, dialler_user), (acceptor_id, acceptor_user) = dialler, acceptor
    texts = [text.encode() for text in (dialler_id, acceptor_id, dialler_user, acceptor_user)]
    return CHANNEL_PROLOGUE + ticket + b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def sealed_channel(introduction, app_id, user, key, state=HandshakeState):
    """This app's end of a control lane."""
    is_dialler = introduction.get("role", "DIALLER") == "DIALLER"
    own, other = (app_id, user), (introduction["app_id"], introduction["activation_user"])
    prologue = channel_prologue(introduction["ticket"], *((own, other) if is_dialler else (other, own)))
    return SealedSocket("KK", state("KK", is_dialler, prologue, key, introduction["public_key"]))


class Client:
    """A connection to the broker: of an app, or of a tool that attends."""

    def __init__(self, loop, path, key, pinned=None):
        self.loop, self.key = loop, key
        self.answers, self.changes, self.waiting, self.others = {}, [], [], []
        self.number = 0
        self.broker_key = keys.read_broker_key(path)
        if pinned not in (None, self.broker_key):
            raise Fault(105)
        sock, self.lane = dial(path)
        self.broker = Connection(
            loop, sock, sealed_to_broker(key, self.broker_key), "BrokerMessage", self.take_broker_message,
            frame_max=BROKER_FRAME_MAX, unproven=105)
        self.lane.setblocking(False)
        loop.watch(self.lane, self.take_descriptors)

    def take_broker_message(self, _, message):
        if "answer" in message:
            self.answers[message["answer"].get("number", 0)] = message["answer"]
        elif "providers_changed" in message:
            self.changes.append(message["providers_changed"])
        elif "waiting" in message:
            self.waiting.append(message["waiting"])
        elif set(message) & {"policy", "front_changed", "forgotten", "peer_waits", "traffic_wanted"}:
            self.others.append(message)
        else:
            return False
        return True

    def receive_descriptors(self):
        """A ticket and two descriptors, or None. Closes the connection with anything else."""
        try:
            ticket, descriptors, _, _ = socket.recv_fds(self.lane, 32, 2)
        except BlockingIOError:
            return None
        except OSError:
            ticket, descriptors = b"", []
        if len(ticket) == 32 and len(descriptors) == 2:
            return ticket, [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        self.loop.forget(self.lane)
        if ticket:
            self.broker.close(103)
        return None

    def take_descriptors(self):
        if received := self.receive_descriptors():
            for sock in received[1]:
                sock.close()
            self.broker.close(103)

    def shake_hands(self):
        broker = self.broker
        self.loop.until(lambda: broker.is_ready or broker.ending is not None, what="the handshake with the broker")
        return self

    def begin(self, message, pends=False):
        """Waits for the handshake, sends the first message and waits for `enrolled`, or for `pending` when that is
        expected: then `approved` waits for the rest."""
        self.shake_hands()
        self.broker.send(message)
        if pends:
            self.broker.take("pending")
            return self
        return self.approved()

    def approved(self, seconds=20):
        self.enrolled = self.broker.take("enrolled", seconds)
        return self

    def attend(self, name="check", administers=False):
        return self.begin({"attend": {"version": VERSION, "name": name, "administers": administers}})

    def ask_later(self, kind, body):
        self.number += 1
        self.broker.send({"question": {"number": self.number, kind: body}})
        return self.number

    def answer(self, number, seconds=20):
        """The answer to a question, and nothing else of it. Raises Refused."""
        broker = self.broker
        self.loop.until(lambda: number in self.answers or broker.ending is not None, seconds, f"the answer to {number}")
        if number not in self.answers:
            raise Fault(broker.reason, f"no answer: {broker.ending} {broker.detail}")
        answer = self.answers.pop(number)
        if "failure" in answer:
            raise Refused(answer["failure"])
        return answer

    def ask(self, kind, body, seconds=20):
        return self.answer(self.ask_later(kind, body), seconds)

    def find(self, **question):
        """All providers, page after page."""
        found = []
        while True:
            page = self.ask("find", question).get("providers", {})
            found += page.get("providers", [])
            if not page.get("more"):
                return found
            question["after"] = found[-1]["app_id"]

    def close(self):
        self.broker.close()
        self.loop.forget(self.lane)
        self.lane.close()


class App(Outbox, Client):
    """An app that enrolled. `serve(request)` answers what comes: see `Served`."""

    def __init__(self, loop, path, key, app_id, user="ann@example.com", serve=None, pinned=None, state="RUNNING",
                 pends=False, presence_key=b"", stands_in=False):
        super().__init__(loop, path, key, pinned)
        self.app_id, self.user, self.serve = app_id, user, serve
        self.process = os.urandom(16)
        self.begin_outbox()
        self.peers, self.sockets, self.introductions, self.dials = {}, {}, {}, {}
        # For attacks, by its kind: what a channel says in place of a message; None: nothing.
        self.says = {}
        # Tickets of those that were not taken, and why.
        self.refused = {}
        enrol = {"version": VERSION, "app_id": app_id, "activation_user": user, "state": state}
        if presence_key:
            enrol["presence_key"] = presence_key
        if stands_in:
            enrol["stands_in"] = True
        self.begin({"enrol": enrol}, pends)

    def register(self, *services, name=None):
        """Services are (id, version)."""
        body = {"name": name or self.app_id, "entitlement_id": self.app_id, "entitlement_version": "1.0.0.0"}
        body["services"] = [{"id": service, "version": version} for service, version in services]
        self.ask("register", body)
        return self

    # Introductions

    def take_broker_message(self, connection, message):
        if "introduction" not in message:
            return super().take_broker_message(connection, message)
        introduction = message["introduction"]
        if len(introduction.get("public_key", b"")) != keys.KEY_BYTES:
            raise Fault(100)
        self.introductions[introduction["ticket"]] = introduction
        self.match(introduction["ticket"])
        return True

    def take_descriptors(self):
        if received := self.receive_descriptors():
            ticket, sockets = received
            self.sockets[ticket] = sockets
            self.match(ticket)

    def match(self, ticket):
        if ticket in self.sockets and ticket in self.introductions:
            self.introduced(self.introductions.pop(ticket), self.sockets.pop(ticket))

    def introduced(self, introduction, sockets):
        ticket = introduction["ticket"]
        if introduction.get("activation_user", "") != self.user:
            for sock in sockets:
                sock.close()
            self.refused[ticket] = 13
        else:
            self.dials[ticket] = self.peer(introduction["app_id"]).open(introduction, *sockets)

    def peer(self, app_id):
        return self.peers.setdefault(app_id, Peer(self, app_id))

    def connect(self, app_id, seconds=30):
        """A channel that is open."""
        ticket = self.ask("connect", {"app_id": app_id}, seconds)["introduced"]["ticket"]
        self.loop.until(lambda: ticket in self.dials or ticket in self.refused, what="the introduction")
        if ticket in self.refused:
            raise Fault(self.refused.pop(ticket))
        channel = self.dials.pop(ticket)
        self.loop.until(lambda: channel.hello or channel.connection.ending is not None, what="the other side's Hello")
        if not channel.hello:
            raise Fault(channel.connection.reason, "no Hello")
        return channel

    def send(self, app_id, service, version, method, params=None, **more):
        """A request over the newest channel, or over a new one."""
        peer = self.peer(app_id)
        channel = peer.newest or self.connect(app_id)
        return channel.request(service, version, method, params, **more)


class Sent:
    """A request of ours: what became of it, in order."""

    def __init__(self, channel, body):
        self.channel, self.credit_channel, self.id, self.body = channel, channel, body["id"], body
        self.process, self.tickets = channel.hello["process"], [channel.ticket]
        self.events, self.result, self.error, self.is_accepted = [], None, None, False

    @property
    def is_ended(self):
        ends = ("refused", "replied", "failed", "no reply", "cancelled", "lost")
        return bool(self.events) and self.events[-1] in ends

    def wait(self, seconds=20):
        self.channel.loop.until(lambda: self.is_ended, seconds, "the end of a request")
        if self.events[-1] == "replied" and self.error is None:
            return self.result
        raise Refused(self.error if isinstance(self.error, dict) else {"error": 0, "detail": self.events[-1]})

    def wait_accepted(self, seconds=20):
        self.channel.loop.until(lambda: self.is_accepted or self.is_ended, seconds, "Accepted")

    def cancel(self):
        self.channel.send("cancel", {"id": self.id, "after_accepted": self.is_accepted})


class Served:
    """A request of the peer's. `App.serve` calls `reply`, `fail`, `end` or `refuse`, now or later."""

    def __init__(self, channel, body):
        self.channel, self.id, self.body, self.state = channel, body["id"], body, "ARRIVED"
        self.answer, self.is_cancelled = None, False
        self.params = from_value(body["params"]) if "params" in body else None

    def accept(self):
        self.state = "HANDLING"
        self.channel.send("accepted", {"id": self.id})

    def refuse(self, error, detail=""):
        self.channel.peer.incoming.pop(self.id, None)
        self.channel.send("refused", {"id": self.id, "failure": {"error": error, "detail": detail}})

    def reply(self, params=None):
        self.answered("REPLIED", "reply", {"id": self.id, "params": to_value(params)})

    def fail(self, code, text="", details=None):
        error = {"code": code, "text": text}
        if details is not None:
            error["details"] = to_value(details)
        self.answered("REPLIED", "reply", {"id": self.id, "error": error})

    def end(self):
        self.answered("ENDED", "no_reply", {"id": self.id})

    def answered(self, state, kind, body):
        self.state, self.answer = state, (kind, body)
        self.channel.send(kind, body)


class Peer:
    """Another app, over all channels with it."""

    def __init__(self, app, app_id):
        self.app, self.app_id = app, app_id
        self.channels, self.outgoing, self.incoming = [], {}, {}

    @property
    def newest(self):
        return next((channel for channel in reversed(self.channels) if channel.is_open), None)

    def open(self, introduction, control, bulk):
        self.channels = [channel for channel in self.channels if channel.connection.ending is None]
        channel = Channel(self, introduction, control, bulk)
        self.channels.append(channel)
        return channel


class Channel(Delivering):
    """A control lane, with the bulk lane beside it."""

    def __init__(self, peer, introduction, control, bulk):
        app = peer.app
        self.peer, self.app, self.loop, self.bulk = peer, app, app.loop, bulk
        self.introduction, self.ticket = introduction, introduction["ticket"]
        self.hello, self.credit, self.waiting, self.pongs = None, 0, [], []
        self.begin_delivering()
        sealed = sealed_channel(introduction, app.app_id, app.user, app.key)
        # Only who dialled tells somebody that the other side does not have the key of the introduction.
        unproven = 9 if sealed.handshake.is_initiator else 18
        self.connection = Connection(
            app.loop, control, sealed, "ChannelMessage", self.take, self.begin, CHANNEL_FRAME_MAX, unproven=unproven)

    @property
    def is_open(self):
        return self.hello is not None and self.connection.ending is None

    def send(self, kind, body):
        if change := self.app.says.get(kind):
            body = change(self, body)
        if body is not None:
            self.connection.send({kind: body})

    def close(self, error=0, detail=""):
        self.connection.close(error, detail)
        self.end_delivering()

    def begin(self, connection):
        own = {"version": CHANNEL_VERSION, "ticket": self.ticket, "app_id": self.app.app_id, "process": self.app.process}
        limits = {"requests": CREDIT, "frame_byte_count": CHANNEL_FRAME_MAX, "slots": self.app.slots}
        connection.send({"hello": {**own, **limits}})

    # As the consumer

    def request(self, service, version, method, params=None, **more):
        body = {"id": os.urandom(16), "service_id": service, "version": version, "method": method, **more}
        if params is not None:
            body["params"] = to_value(params)
        sent = Sent(self, body)
        self.peer.outgoing[sent.id] = sent
        self.waiting.append(sent)
        self.send_waiting()
        return sent

    def send_waiting(self):
        while self.waiting and self.credit > 0:
            self.credit -= 1
            self.send("request", self.waiting.pop(0).body)

    def finish(self, sent, event):
        sent.events.append(event)
        del self.peer.outgoing[sent.id]
        if sent.credit_channel is self:
            self.credit += 1
            self.send_waiting()

    def inquire(self):
        for sent in list(self.peer.outgoing.values()):
            if sent.channel.connection.ending is None or sent in self.waiting:
                continue
            if sent.process != self.hello["process"]:
                self.finish(sent, "lost")
                continue
            tickets, sent.channel = list(sent.tickets), self
            sent.tickets.append(self.ticket)
            self.send("inquiry", {"id": sent.id, "tickets": tickets})

    def take(self, _, message):
        ((kind, body),) = message.items()
        if self.hello is None:
            if kind != "hello":
                raise Fault(102)
            if body.get("ticket") != self.ticket:
                raise Fault(107)
            if body.get("app_id") != self.peer.app_id:
                raise Fault(9)
            self.hello, self.credit = body, body.get("requests", 0)
            self.inquire()
            return True
        taker = getattr(self, f"take_{kind}", None)
        if taker is None:
            return False
        taker(body)
        return True

    def sent(self, body):
        if body.get("id") not in self.peer.outgoing:
            raise Fault(102)
        return self.peer.outgoing[body["id"]]

    def take_request_waiting(self, body):
        sent = self.sent(body)
        if sent.is_accepted:
            raise Fault(102)
        sent.events.append("waiting")

    def take_accepted(self, body):
        sent = self.sent(body)
        sent.is_accepted = True
        sent.events.append("accepted")

    def take_refused(self, body):
        sent = self.sent(body)
        sent.error = body.get("failure", {})
        self.finish(sent, "refused")

    def take_reply(self, body):
        sent = self.sent(body)
        if body.get("attachments"):
            raise Fault(102)
        self.send("reply_accepted", {"id": sent.id})
        if "error" in body:
            sent.error = body["error"]
        elif "failure" in body:
            sent.error = body["failure"]
        elif "params" in body:
            sent.result = from_value(body["params"])
        self.finish(sent, "failed" if "failure" in body else "replied")

    def take_no_reply(self, body):
        sent = self.sent(body)
        self.send("reply_accepted", {"id": sent.id})
        self.finish(sent, "no reply")

    def take_cancelled(self, body):
        if not body.get("done"):
            if body.get("id") in self.peer.outgoing:
                self.peer.outgoing[body["id"]].events.append("not cancelled")
            return
        self.finish(self.sent(body), "cancelled")

    def take_standing(self, body):
        sent = self.sent(body)
        sent.events.append(f"standing {body.get('state', 'UNHEARD')}")
        if body.get("state", "UNHEARD") == "UNHEARD":
            self.finish(sent, "lost")

    def take_credit(self, body):
        self.credit += body.get("more", 0)
        self.send_waiting()

    # As the provider

    def take_request(self, body):
        if len(body.get("id", b"")) != 16:
            raise Fault(100)
        # A request with files is a delivery.
        if body["id"] in self.peer.incoming or body.get("attachments"):
            raise Fault(102)
        served = self.peer.incoming[body["id"]] = Served(self, body)
        if self.app.serve is None:
            served.refuse(4)
        else:
            self.app.serve(served)

    def take_reply_accepted(self, body):
        if self.peer.incoming.pop(body.get("id"), None) is None:
            raise Fault(102)

    def take_cancel(self, body):
        served = self.peer.incoming.get(body["id"])
        done = served is not None and served.state == "ARRIVED"
        if served:
            served.is_cancelled = True
        if done:
            del self.peer.incoming[body["id"]]
        self.send("cancelled", {"id": body["id"], "done": done})

    def take_inquiry(self, body):
        for channel in self.peer.channels:
            if channel is not self and channel.ticket in body.get("tickets", []):
                channel.close()
        served = self.peer.incoming.get(body["id"])
        self.send("standing", {"id": body["id"], "state": served.state if served else "UNHEARD"})
        if served:
            served.channel = self
            if served.answer:
                self.send(*served.answer)

    # Both

    def take_ping(self, body):
        self.send("pong", body)

    def take_pong(self, body):
        self.pongs.append(body.get("number", 0))
