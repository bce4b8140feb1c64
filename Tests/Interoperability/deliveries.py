"""Messages with files, as the page says in "Attachments": both sides, for a `Channel` of opendynamics_client.

What arrived is kept in memory, so here "durable" means: until the program ends.
"""

import fcntl
import os
import select
import socket
import struct

from connection import Fault
from messages import from_value, to_value
from nacl import bindings

HEADER_BYTES = 24
TAG_MESSAGE = bindings.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
TAG_FINAL = bindings.crypto_secretstream_xchacha20poly1305_TAG_FINAL
MESSAGE_MAX = 1 << 16
STREAM_CREDIT = 8 << 20
PAGE_FILES_MAX = 256
PAGE_BYTES_MAX = 60 << 10
SLOT_BYTES = 65_600
NUMBER_TAKEN = 25
IN_SLOT = 1 << 31
# linux/fcntl.h
F_ADD_SEALS, F_GET_SEALS, SEALS = 1033, 1034, 1 | 2 | 4


class SecretStream:
    """What the streams of a bulk lane are sealed with: libsodium's, through PyNaCl."""

    def __init__(self, key, header=None):
        self.state, self.header = bindings.crypto_secretstream_xchacha20poly1305_state(), header
        if header is None:
            self.header = bindings.crypto_secretstream_xchacha20poly1305_init_push(self.state, key)
        else:
            bindings.crypto_secretstream_xchacha20poly1305_init_pull(self.state, header, key)

    def seal(self, part, tag):
        return bindings.crypto_secretstream_xchacha20poly1305_push(self.state, part, None, tag)

    def open(self, body):
        return bindings.crypto_secretstream_xchacha20poly1305_pull(self.state, body)


class Delivery:
    """A message with files that this app sends. `files` are pairs of path and contents."""

    def __init__(self, app, files, request, number):
        self.app, self.files, self.request, self.number = app, files, request, number
        self.id = request["id"]
        self.contents = b"".join(contents for _, contents in files)
        self.byte_count = len(self.contents)
        self.events, self.channel, self.stream, self.failure = [], None, None, None
        self.reply, self.reply_files, self.resumed_from = None, None, None
        # Bytes of plaintext of a stream after which nothing more is sent; None: all.
        self.stops_after, self.damages = None, False

    def offer(self, channel):
        self.channel, self.stream = channel, None
        channel.deliveries[self.id] = self
        message = {**self.request, "attachments": len(self.files)}
        body = {"id": self.id, "number": self.number, "incarnation": self.app.incarnation, "floor": self.app.floor()}
        counts = {"file_count": len(self.files), "byte_count": self.byte_count}
        channel.send("offer", {**body, **counts, "request": message})
        return self

    def cancel(self):
        self.stream = None
        self.channel.send("delivery_cancelled", {"id": self.id})

    def wait(self, *events, seconds=20):
        self.app.loop.until(lambda: any(event in self.events for event in events), seconds, f"{events}")
        return self.events[-1]

    def wait_reply(self, seconds=20):
        self.app.loop.until(lambda: self.reply is not None, seconds, "the reply")
        return self.reply

    def page(self, begin):
        files, size = [], 0
        for path, contents in self.files[begin : begin + PAGE_FILES_MAX]:
            size += len(path.encode()) + 40
            if files and size > PAGE_BYTES_MAX:
                break
            files.append({"path": path.encode(), "byte_count": len(contents), "modified": 1, "permissions": 0o600})
        return {"id": self.id, "from": begin, "files": files}

    def begin(self, body):
        self.resumed_from = body.get("resume_from", 0)
        self.events.append("accepted")
        if self.resumed_from == self.byte_count:
            return
        self.sealing = SecretStream(body["key"])
        self.stream, self.position = body["stream"], self.resumed_from
        self.credit = body["credit"]
        self.channel.send_bulk(self.stream, self.sealing.header)
        self.pump()

    def pump(self):
        """As far as there is credit."""
        while self.stream is not None and self.position < self.byte_count:
            part = self.contents[self.position : self.position + MESSAGE_MAX]
            sent = self.position - self.resumed_from
            if sent + len(part) > self.credit or (self.stops_after is not None and sent >= self.stops_after):
                return
            if self.channel.given and self.channel.given.is_full:
                return
            self.position += len(part)
            tag = TAG_FINAL if self.position == self.byte_count else TAG_MESSAGE
            sealed = self.sealing.seal(part, tag)
            if self.damages:
                sealed = sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:]
            if self.channel.given:
                self.channel.given.put(sealed)
                self.channel.send_bulk(self.stream, b"", length=len(sealed) | IN_SLOT)
            else:
                self.channel.send_bulk(self.stream, sealed)


class Memory:
    """Slots of shared memory, given or taken: where each message goes, one after another."""

    def __init__(self, count, descriptor=None):
        self.count, self.used, self.freed = count, 0, 0
        if descriptor is None:
            descriptor = os.memfd_create("slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, count * SLOT_BYTES)
            fcntl.fcntl(descriptor, F_ADD_SEALS, SEALS)
        self.descriptor = descriptor

    @property
    def is_full(self):
        return self.used - self.freed == self.count

    def next(self):
        self.used += 1
        return (self.used - 1) % self.count * SLOT_BYTES

    def put(self, sealed):
        os.pwrite(self.descriptor, sealed, self.next())

    def get(self, length):
        return os.pread(self.descriptor, length, self.next())


class Arrival:
    """A message that comes to this app."""

    def __init__(self, offer):
        self.offer, self.manifest, self.contents, self.opening = offer, [], b"", None

    @property
    def is_listed(self):
        return len(self.manifest) == self.offer.get("file_count", 0)

    def files(self):
        found, position = [], 0
        for file in self.manifest:
            count = file.get("byte_count", 0)
            found.append((file["path"].decode(), self.contents[position : position + count]))
            position += count
        return found


class Delivering:
    """What a channel does of it. Mixed into `Channel`."""

    def begin_delivering(self):
        self.deliveries, self.arrivals, self.streams, self.last_stream = {}, {}, {}, 0
        # Shared memory that this side gives, and that of the other.
        self.given, self.taken, self.descriptors = None, None, []
        # What came is kept, so that a check can look through it.
        self.bulk_bytes, self.seen_bulk = bytearray(), bytearray()

    # The bulk lane

    def give_memory(self, count):
        """Everything that follows goes in slots."""
        self.given = Memory(count)
        frame = struct.pack("<III", 0, 4, count)
        socket.send_fds(self.bulk, [frame], [self.given.descriptor])
        self.bulk.setblocking(False)
        self.loop.watch(self.bulk, self.read_bulk)

    def send_bulk(self, stream, body, length=None):
        data = memoryview(struct.pack("<II", stream, len(body) if length is None else length) + body)
        while data:
            try:
                data = data[self.bulk.send(data) :]
            except BlockingIOError:
                select.select([], [self.bulk], [], 20)
            except OSError:
                return  # the other side has closed: the control lane says why

    def read_bulk(self):
        try:
            data, descriptors, _, _ = socket.recv_fds(self.bulk, 1 << 20, 1)
        except BlockingIOError:
            return
        except ConnectionResetError:  # the other side has closed, and had not read everything
            data = b""
        if not data:
            return self.loop.forget(self.bulk)
        self.descriptors += descriptors
        self.bulk_bytes += data
        self.seen_bulk += data
        while len(self.bulk_bytes) >= 8:
            stream, length = struct.unpack_from("<II", self.bulk_bytes)
            if stream == 0:
                if len(self.bulk_bytes) < 8 + length:
                    return
                self.take_lane_frame(length)
                del self.bulk_bytes[: 8 + length]
                continue
            if length & IN_SLOT:
                del self.bulk_bytes[:8]
                body = self.taken.get(length ^ IN_SLOT)
                self.seen_bulk += body
                self.send_bulk(0, struct.pack("<Q", self.taken.used))
                self.take_frame(self.streams[stream], body)
                continue
            if stream not in self.streams or not 17 <= length <= MESSAGE_MAX + 17:
                return self.close(111)
            if len(self.bulk_bytes) < 8 + length:
                return
            body = bytes(self.bulk_bytes[8 : 8 + length])
            del self.bulk_bytes[: 8 + length]
            self.take_frame(self.streams[stream], body)

    def take_lane_frame(self, length):
        if length == 4:
            (count,) = struct.unpack_from("<I", self.bulk_bytes, 8)
            self.taken = Memory(count, self.descriptors.pop())
            assert 1 <= count <= self.app.slots, count
            assert os.fstat(self.taken.descriptor).st_size == count * SLOT_BYTES
            assert fcntl.fcntl(self.taken.descriptor, F_GET_SEALS) & SEALS == SEALS
            return
        assert length == 8, length
        (total,) = struct.unpack_from("<Q", self.bulk_bytes, 8)
        assert self.given.freed <= total <= self.given.used, total
        self.given.freed = total
        for delivery in list(self.deliveries.values()):
            delivery.pump()

    def take_frame(self, arrival, body):
        if arrival.opening is None:
            arrival.opening = SecretStream(arrival.key, body)
            return None
        part, tag = arrival.opening.open(body)
        arrival.contents += part
        received = len(arrival.contents)
        if (tag == TAG_FINAL) != (received == arrival.offer["byte_count"]):
            return self.close(111)
        if tag == TAG_FINAL:
            return self.commit(arrival)
        progress = {"id": arrival.offer["id"], "received": received, "credit": received + STREAM_CREDIT}
        return self.send("delivery_progress", progress)

    # As the sender

    def delivery(self, body):
        if body.get("id") not in self.deliveries:
            raise Fault(102)
        return self.deliveries[body["id"]]

    def take_manifest_wanted(self, body):
        self.send("manifest_page", self.delivery(body).page(body.get("from", 0)))

    def take_delivery_accepted(self, body):
        self.delivery(body).begin(body)

    def take_delivery_progress(self, body):
        delivery = self.delivery(body)
        delivery.credit = body.get("credit", 0)
        delivery.pump()

    def settled(self, body, event):
        delivery = self.deliveries.pop(body["id"])
        delivery.stream = None
        delivery.events.append(event)
        self.app.unsettled.discard(delivery.number)
        if self.app.acknowledges:
            self.send("acknowledged", {"floor": self.app.floor(), "incarnation": self.app.incarnation})

    def take_committed(self, body):
        self.app.delivered[body["id"]] = self.delivery(body)
        self.settled(body, "committed")

    def take_delivery_refused(self, body):
        self.delivery(body).failure = body.get("failure", {})
        self.settled(body, "refused")

    def take_delivery_cancelled(self, body):
        if body.get("id") in self.deliveries:
            return self.settled(body, "cancelled")
        self.arrivals.pop(body["id"], None)
        return self.send("delivery_cancelled", {"id": body["id"]})

    def take_request_ended(self, body):
        if body["id"] in self.app.delivered:
            self.app.delivered[body["id"]].events.append("ended")

    def take_reply_standing(self, body):
        self.app.delivered[body["id"]].events.append(f"awaited {body.get('is_awaited', False)}")

    def take_reply_inquiry(self, body):
        self.send("reply_standing", {"id": body["id"], "is_awaited": False})

    # As the receiver

    def take_offer(self, body):
        if len(body.get("id", b"")) != 16 or len(body.get("incarnation", b"")) != 16 or not body.get("number"):
            raise Fault(100)
        known = self.app.ledger.get((self.peer.app_id, body["incarnation"], body["number"]))
        if known == body["id"]:
            return self.send("committed", {"id": body["id"]})
        if known or body["number"] < self.app.floors.get((self.peer.app_id, body["incarnation"]), 0):
            return self.send("delivery_refused", {"id": body["id"], "failure": {"error": NUMBER_TAKEN}})
        arrival = self.arrivals[body["id"]] = Arrival(body)
        return self.listed(arrival) if arrival.is_listed else self.send("manifest_wanted", {"id": body["id"]})

    def take_manifest_page(self, body):
        arrival = self.arrivals[body["id"]]
        arrival.manifest += body["files"]
        if arrival.is_listed:
            self.listed(arrival)
        else:
            self.send("manifest_wanted", {"id": body["id"], "from": len(arrival.manifest)})

    def listed(self, arrival):
        delivery, byte_count = arrival.offer["id"], arrival.offer.get("byte_count", 0)
        if byte_count == 0:
            self.send("delivery_accepted", {"id": delivery})
            return self.commit(arrival)
        self.last_stream += 1
        arrival.key = os.urandom(32)
        self.streams[self.last_stream] = arrival
        # Before it is said: the first frame may follow at once.
        self.bulk.setblocking(False)
        self.loop.watch(self.bulk, self.read_bulk)
        body = {"id": delivery, "credit": STREAM_CREDIT, "stream": self.last_stream, "key": arrival.key}
        return self.send("delivery_accepted", body)

    def take_delivery_failed(self, body):
        self.arrivals.pop(body["id"], None)
        self.send("delivery_cancelled", {"id": body["id"]})

    def commit(self, arrival):
        offer = arrival.offer
        self.app.ledger[(self.peer.app_id, offer["incarnation"], offer["number"])] = offer["id"]
        self.arrivals.pop(offer["id"], None)
        self.send("committed", {"id": offer["id"]})
        if "reply" in offer and offer["reply"]["id"] in self.app.delivered:
            delivery = self.app.delivered[offer["reply"]["id"]]
            delivery.reply, delivery.reply_files = offer["reply"], arrival.files()
            delivery.events.append("replied")
        else:
            self.app.arrived.append((offer, arrival.files()))

    def take_acknowledged(self, body):
        self.app.floors[(self.peer.app_id, body["incarnation"])] = body.get("floor", 0)


class Outbox:
    """What an app knows of its deliveries. Mixed into `App`."""

    def begin_outbox(self):
        # Of shared memory, that this app takes.
        self.slots = 0
        self.incarnation, self.last_number, self.unsettled = os.urandom(16), 0, set()
        self.delivered, self.ledger, self.floors, self.arrived = {}, {}, {}, []
        self.acknowledges = True

    def floor(self):
        return min(self.unsettled, default=self.last_number + 1)

    def delivery(self, files, service, version, method, params=None):
        """A request with files, not offered yet."""
        self.last_number += 1
        self.unsettled.add(self.last_number)
        request = {"id": os.urandom(16), "service_id": service, "version": version, "method": method}
        if params is not None:
            request["params"] = to_value(params)
        return Delivery(self, files, request, self.last_number)


def result(reply):
    return from_value(reply["params"]) if "params" in reply else None
