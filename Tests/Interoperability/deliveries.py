"""Messages with files, as DELIVERY-PROTOCOL.md has them: both sides, for a `Channel` of opendynamics_client.

What arrived is kept in memory, so here "durable" means: until the program ends. A sender has no container: it seals
each grain with a random key when it sends it.
"""

import fcntl
import os
import select
import socket

from connection import Fault
from frames import (
    BLOCK_MAX, BLOCK_MIN, CONTENTS_MAX, F_GET_SEALS, FILES_MAX, FRAME, FREED, GIVEN, GRAIN_BYTES, HEADER_BYTES, IN_SLOT,
    KEY_BYTES, SEALS, SEGMENT_EXTRA, SEGMENTS_MAX, SLOT_BYTES, STREAM_DAMAGED, TAG_FINAL, TAG_MESSAGE, Frame, Layout,
    Memory, SecretStream, open_segment)
from messages import from_value, to_value

STREAM_CREDIT = 16
PAGE_FILES_MAX = 256
PAGE_BYTES_MAX = 60 << 10
OFFERED_FILES_MAX = 16
# What waits for the socket before another frame is made.
PENDING_MAX = 2 << 20
INVALID_PARAMS, NUMBER_TAKEN, MALFORMED, UNEXPECTED = 8, 25, 100, 102


def stored_byte_count(layout, files):
    """The bytes of all segments of pairs of path and contents, when zeros at a grain's end are not sent."""
    parts = [files[file][1][(begin := grain * GRAIN_BYTES) : begin + length].rstrip(b"\0")
             for file, grain, length in layout.grains(0)]
    return sum(len(part) + SEGMENT_EXTRA for part in parts if part)


class Delivery:
    """A message with files that this app sends. `files` are pairs of path and contents."""

    def __init__(self, app, files, request, number):
        self.app, self.files, self.request, self.number = app, files, request, number
        self.id = request["id"]
        self.layout = Layout([len(contents) for _, contents in files])
        self.byte_count, self.stored_byte_count = self.layout.byte_count, stored_byte_count(self.layout, files)
        self.events, self.channel, self.stream, self.failure = [], None, None, None
        self.reply, self.reply_files, self.resumed_from = None, None, None
        # Bytes of segments of the reply: as they were offered, and as they came.
        self.reply_stored = None
        # Bytes of plaintext of a stream after which nothing more is sent; None: all.
        self.stops_after = None
        # What a frame has at most, which of them go in slots when there is memory, and what is done to one before it
        # goes. Their numbers are counted from the offer.
        self.segments_max, self.uses_slot, self.change = SEGMENTS_MAX, lambda number: True, None
        self.frames, self.position = 0, 0
        # Files of the list that the offer brings.
        self.listed_count = len(files) if len(files) <= OFFERED_FILES_MAX else 0

    @property
    def contents(self):
        return b"".join(contents for _, contents in self.files)

    def offer(self, channel):
        self.channel, self.stream = channel, None
        # Answers DeliveryAccepted, positions of segments that did not open, frames, bytes that the receiver has.
        self.answers, self.damaged, self.frames, self.received = 0, [], 0, 0
        # Where pages began that the receiver has asked for.
        self.asked = []
        # Whether the receiver has said that it is locked.
        self.waits = False
        channel.deliveries[self.id] = self
        message = {**self.request, "attachments": len(self.files)}
        self.incarnation, delivered, first = self.app.receiver(channel.peer.app_id)
        body = {"id": self.id, "number": self.number, "incarnation": self.incarnation, "floor": self.app.floor()}
        body.update(delivered=delivered, may_be_repeated=self.number < first)
        counts = {"file_count": len(self.files), "byte_count": self.byte_count}
        counts["stored_byte_count"] = self.stored_byte_count
        listed = self.page(0)["files"][: self.listed_count]
        channel.send("offer", {**body, **counts, "files": listed, "request": message})
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
        """DeliveryAccepted, the first one or another one."""
        resume, damaged = body.get("resume_from", 0), body.get("damaged", 0) - 1
        stream, key, credit = body.get("stream", 0), body.get("key", b""), body.get("credit", 0)
        if self.answers == 2 or self.answers == 1 and damaged < 0:
            raise Fault(UNEXPECTED)
        if resume > self.byte_count or damaged >= 0 and (self.answers == 0 or not resume <= damaged < self.byte_count):
            raise Fault(MALFORMED)
        is_stream = resume < self.byte_count
        if is_stream != (len(key) == KEY_BYTES) or is_stream != (stream > 0) or is_stream != (credit > 0):
            raise Fault(MALFORMED)
        if is_stream and stream <= self.channel.last_sent_stream:
            raise Fault(MALFORMED)
        self.answers += 1
        self.resumed_from = self.position = resume
        if damaged >= 0:
            self.damaged.append(damaged)
        self.events.append("accepted" if damaged < 0 else "damaged")
        self.stream = None
        if not self.layout.is_boundary(resume):
            self.channel.send("delivery_failed", {"id": self.id, "failure": {"error": INVALID_PARAMS}})
        elif is_stream:
            self.channel.last_sent_stream = self.stream = stream
            self.sealing, self.credit, self.stream_frames = SecretStream(key), credit, 0
            self.channel.pump()

    def progress(self, body):
        if self.answers == 0:
            raise Fault(UNEXPECTED)
        received, credit = body.get("received", 0), body.get("credit", 0)
        if received < self.received or received > self.byte_count or credit < self.credit:
            raise Fault(MALFORMED)
        self.received, self.credit = received, credit
        self.channel.pump()

    def next_frame(self):
        """What comes next, as much as goes into a frame. Zeros at a grain's end are not sent."""
        position, parts, byte_count, files = self.position, [], 0, set()
        for file, grain, length in self.layout.grains(position):
            begin = grain * GRAIN_BYTES
            part = self.files[file][1][begin : begin + length].rstrip(b"\0")
            if file not in files and len(files) == FILES_MAX:
                break
            if part:
                byte_count += len(part) + SEGMENT_EXTRA
                if len(parts) == self.segments_max or byte_count > CONTENTS_MAX:
                    break
                parts.append((file, grain, part))
            files.add(file)
            position += length
        return Frame.of(position, parts, TAG_FINAL if position == self.byte_count else TAG_MESSAGE)

    def rest(self):
        """All frames that are still to come; none has gone afterwards."""
        found, position = [], self.position
        while self.position < self.byte_count:
            found.append(self.next_frame())
            self.position = found[-1].end
        self.position = position
        return found

    def send_frame(self):
        """The next frame, when one may go now. Returns whether it went."""
        if self.stream is None or self.position == self.byte_count or self.stream_frames >= self.credit:
            return False
        if self.stops_after is not None and self.position - self.resumed_from >= self.stops_after:
            return False
        is_in_slot = self.channel.given is not None and self.uses_slot(self.frames)
        if is_in_slot and self.channel.given.is_full:
            return False
        frame = self.next_frame()
        if self.change:
            self.change(self.frames, frame)
        self.put(frame, is_in_slot)
        return True

    def put(self, frame, is_in_slot=False):
        """Sends this frame, whatever it is."""
        self.position = frame.end
        self.put_block(frame.block(), frame.contents, frame.tag, is_in_slot and bool(frame.contents))

    def put_block(self, plaintext, contents=b"", tag=TAG_MESSAGE, is_in_slot=False):
        block = self.sealing.seal(plaintext, tag)
        if self.stream_frames == 0:
            block = self.sealing.header + block
        self.frames += 1
        self.stream_frames += 1
        self.channel.send_frame(self.stream, block, contents, is_in_slot)


class Arrival:
    """A message that comes to this app."""

    def __init__(self, offer):
        self.offer, self.manifest, self.layout = offer, [], None
        # Up to which position the contents are there, and all keys that came.
        self.position, self.contents, self.keys = 0, bytearray(), []
        # Bytes of the segments that are there.
        self.stored = 0
        self.restart(offer)

    def restart(self, offer):
        """It is offered, perhaps again."""
        self.offer, self.stream, self.opening, self.frames, self.damaged = offer, None, None, 0, None

    @property
    def counts(self):
        return [self.offer.get(name, 0) for name in ("id", "file_count", "byte_count")]

    @property
    def is_listed(self):
        return len(self.manifest) == self.offer.get("file_count", 0)

    def lay_out(self):
        self.layout = Layout([file.get("byte_count", 0) for file in self.manifest])
        if not self.contents:
            self.contents = bytearray(self.layout.byte_count)
        return self.layout.byte_count == self.offer.get("byte_count", 0)

    def take(self, sealed, byte_count, read):
        """A frame, whose contents `read` has. Returns it, or the position of a segment that does not open."""
        if self.opening is None:
            self.opening = SecretStream(self.key, sealed[:HEADER_BYTES])
            sealed = sealed[HEADER_BYTES:]
        opened = self.opening.open(sealed)
        if opened is None or opened[1] not in (TAG_MESSAGE, TAG_FINAL):
            raise Fault(STREAM_DAMAGED, "a block does not open")
        frame = Frame.parse(*opened)
        frame.check(self.layout, self.position, byte_count)
        if self.stored + byte_count > self.offer.get("stored_byte_count", 0):
            raise Fault(STREAM_DAMAGED, "more segments than were offered")
        offset, found = 0, []
        for (file, grain, length), key in zip(frame.segments(), frame.keys):
            position, stored = self.layout.position(file, grain), read(offset, length + SEGMENT_EXTRA)
            offset += length + SEGMENT_EXTRA
            plaintext = open_segment(key, stored)
            if plaintext is None:
                return position
            found.append((position, plaintext, key, stored))
        for position, plaintext, key, stored in found:
            self.contents[position : position + len(plaintext)] = plaintext
            self.keys.append((key, stored))
        self.position = frame.end
        self.stored += byte_count
        return frame

    def files(self):
        ends = [begin + size for begin, size in zip(self.layout.begins, self.layout.sizes)]
        contents = [bytes(self.contents[begin:end]) for begin, end in zip(self.layout.begins, ends)]
        return [(file["path"].decode(), one) for file, one in zip(self.manifest, contents)]


class Delivering:
    """What a channel does of it. Mixed into `Channel`."""

    def begin_delivering(self):
        self.deliveries, self.arrivals, self.last_stream, self.last_sent_stream = {}, {}, 0, 0
        # Streams that come; None for one that is skipped.
        self.streams = {}
        # Shared memory that this side gives, and that of the other.
        self.given, self.taken, self.descriptors = None, None, []
        # What came is kept, so that a check can look through it; and of each frame its stream, and whether it was in a
        # slot.
        self.bulk_bytes, self.seen_bulk, self.seen_frames = bytearray(), bytearray(), []
        self.bulk_pending = bytearray()
        self.bulk.setblocking(False)
        self.loop.watch(self.bulk, self.serve_bulk)

    def end_delivering(self):
        """Closes the bulk lane, and its memory."""
        self.loop.forget(self.bulk)
        self.bulk.close()
        for memory in (self.given, self.taken):
            if memory:
                memory.close()

    # The bulk lane, out

    def give_memory(self, count):
        """Everything that follows goes in slots."""
        self.drain_bulk()
        self.given = Memory(count)
        # Nothing waits here any more, but the socket may be full.
        select.select([], [self.bulk], [], 10)
        socket.send_fds(self.bulk, [FRAME.pack(0, GIVEN, count)], [self.given.descriptor])

    def send_frame(self, stream, block, contents, is_in_slot=False):
        header = FRAME.pack(stream, len(block), len(contents) | (IN_SLOT if is_in_slot else 0))
        if is_in_slot:
            self.given.put(contents)
            contents = b""
        self.send_bulk(header + block + contents)

    def send_lane_frame(self, kind, number):
        self.send_bulk(FRAME.pack(0, kind, number))

    def send_bulk(self, data):
        self.bulk_pending += data
        self.flush_bulk()

    def flush_bulk(self):
        while self.bulk_pending and self.bulk.fileno() >= 0:
            try:
                del self.bulk_pending[: self.bulk.send(self.bulk_pending[: 1 << 20], socket.MSG_NOSIGNAL)]
            except BlockingIOError:
                break
            except OSError:  # the other side has closed: the control lane says why
                self.bulk_pending.clear()
        if self.bulk.fileno() >= 0 and self.bulk in self.loop.selector.get_map():
            self.loop.watch(self.bulk, self.serve_bulk, writes=bool(self.bulk_pending))

    def drain_bulk(self):
        self.loop.until(lambda: not self.bulk_pending, what="room on the bulk lane")

    def pump(self):
        """As far as there is credit, and in turns."""
        while len(self.bulk_pending) < PENDING_MAX:
            if not any([delivery.send_frame() for delivery in list(self.deliveries.values())]):
                return

    # The bulk lane, in

    def serve_bulk(self):
        if self.bulk.fileno() < 0:
            return
        had_pending = bool(self.bulk_pending)
        self.flush_bulk()
        try:
            self.read_bulk()
            if had_pending and not self.bulk_pending:
                self.pump()
        except Fault as fault:
            self.close(fault.number, fault.detail)

    def read_bulk(self):
        try:
            data, descriptors, _, _ = socket.recv_fds(self.bulk, 1 << 20, 1)
        except BlockingIOError:
            return
        except ConnectionResetError:  # the other side has closed, and had not read everything
            data, descriptors = b"", []
        if not data:
            self.loop.forget(self.bulk)
            return
        self.descriptors += descriptors
        self.bulk_bytes += data
        self.seen_bulk += data
        while len(self.bulk_bytes) >= FRAME.size and self.take_bulk(*FRAME.unpack_from(self.bulk_bytes)):
            pass

    def take_bulk(self, stream, block_length, contents_length):
        """A frame, if all of it is there."""
        if stream == 0:
            del self.bulk_bytes[: FRAME.size]
            self.take_lane_frame(block_length, contents_length)
            return True
        if stream not in self.streams:
            raise Fault(STREAM_DAMAGED, "an unknown stream")
        arrival, is_in_slot = self.streams[stream], contents_length >= IN_SLOT
        contents_length &= ~IN_SLOT
        header = 0 if arrival and arrival.opening else HEADER_BYTES
        if not BLOCK_MIN + (header if arrival else 0) <= block_length <= BLOCK_MAX + header:
            raise Fault(STREAM_DAMAGED, "a block of an impossible length")
        if contents_length > CONTENTS_MAX or is_in_slot and (self.taken is None or contents_length == 0):
            raise Fault(STREAM_DAMAGED, "contents of an impossible length")
        begin = FRAME.size + block_length
        end = begin + (0 if is_in_slot else contents_length)
        if len(self.bulk_bytes) < end:
            return False
        block, contents = bytes(self.bulk_bytes[FRAME.size : begin]), bytes(self.bulk_bytes[begin:end])
        del self.bulk_bytes[:end]
        self.seen_frames.append((stream, is_in_slot))
        assert not is_in_slot or not self.taken.is_full, "a slot that is not free"
        read = self.taken.reader() if is_in_slot else lambda offset, count: contents[offset : offset + count]
        if is_in_slot:
            self.seen_bulk += read(0, contents_length)
        if arrival:
            self.take_frame(arrival, block, contents_length, read)
        if is_in_slot and self.app.frees:
            self.taken.freed += 1
            self.send_lane_frame(FREED, 1)
        return True

    def take_lane_frame(self, kind, number):
        if kind == GIVEN:
            if not self.descriptors:
                raise Fault(MALFORMED)
            if self.taken:
                raise Fault(UNEXPECTED)
            self.taken = Memory(number, self.descriptors.pop())
            assert 1 <= number <= self.app.slots, number
            assert os.fstat(self.taken.descriptor).st_size == number * SLOT_BYTES
            assert fcntl.fcntl(self.taken.descriptor, F_GET_SEALS) & SEALS == SEALS
            return
        if kind != FREED or self.given is None or not 1 <= number <= self.given.used - self.given.freed:
            raise Fault(STREAM_DAMAGED, "a frame of the lane")
        self.given.freed += number
        self.pump()

    def take_frame(self, arrival, block, byte_count, read):
        arrival.frames += 1
        if arrival.frames > arrival.credit:
            raise Fault(16)
        if self.app.spoils and self.app.spoils(arrival):
            whole, read = read, None

            def read(offset, count):
                stored = whole(offset, count)
                return stored[:-1] + bytes([stored[-1] ^ 1])

        found = arrival.take(block, byte_count, read)
        if isinstance(found, int):
            if arrival.damaged is not None:
                raise Fault(STREAM_DAMAGED, "a segment does not open, again")
            arrival.damaged = found
            return self.accept(arrival)
        if found.tag == TAG_FINAL:
            del self.streams[arrival.stream]
            return self.commit(arrival)
        arrival.credit = arrival.frames + self.app.credit
        progress = {"id": arrival.offer["id"], "received": arrival.position, "credit": arrival.credit}
        return self.send("delivery_progress", progress)

    # As the sender

    def delivery(self, body):
        if body.get("id") not in self.deliveries:
            raise Fault(UNEXPECTED)
        return self.deliveries[body["id"]]

    def take_manifest_wanted(self, body):
        delivery = self.delivery(body)
        delivery.asked.append(body.get("from", 0))
        self.send("manifest_page", delivery.page(body.get("from", 0)))

    def take_delivery_accepted(self, body):
        self.delivery(body).begin(body)

    def take_delivery_progress(self, body):
        self.delivery(body).progress(body)

    def settled(self, body, event):
        delivery = self.deliveries.pop(body["id"])
        delivery.stream = None
        delivery.events.append(event)
        self.app.unsettled.discard(delivery.number)
        if self.app.acknowledges:
            self.send("acknowledged", {"floor": self.app.floor(), "incarnation": self.app.receiver(self.peer.app_id)[0]})

    def take_committed(self, body):
        delivery = self.app.delivered[body["id"]] = self.delivery(body)
        known = self.app.receiver(self.peer.app_id)
        if known[0] == delivery.incarnation:
            known[1] = max(known[1], body.get("count", 0))
        self.settled(body, "committed")

    def take_put_back(self, body):
        delivery, count = self.delivery(body), body.get("count", 0)
        known = self.app.receiver(self.peer.app_id)
        if count >= known[1]:
            raise Fault(MALFORMED)
        known[1] = count
        delivery.events.append("put back")

    def take_delivery_waiting(self, body):
        delivery = self.delivery(body)
        reason = body.get("reason", "UNLOCK")
        if delivery.answers or delivery.waits == reason:
            raise Fault(UNEXPECTED)
        delivery.waits = reason
        delivery.events.append("waiting" if reason == "UNLOCK" else f"waiting for {reason.lower()}")

    def take_delivery_refused(self, body):
        delivery = self.delivery(body)
        delivery.failure, delivery.generation = body.get("failure", {}), body.get("generation", 0)
        self.settled(body, "refused")

    def take_delivery_cancelled(self, body):
        if body.get("id") in self.deliveries:
            return self.settled(body, "cancelled")
        self.withdraw(body)
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
        incarnation = body.get("incarnation", {})
        if len(body.get("id", b"")) != 16 or len(incarnation.get("draw", b"")) != 16 or not body.get("number"):
            raise Fault(MALFORMED)
        place, generation = (self.peer.app_id, body["id"]), incarnation.get("generation", 0)
        stored_max = (1 << 62) - 1 if body.get("byte_count") else 0
        if not 1 <= generation < 1 << 62 or body.get("stored_byte_count", 0) > stored_max:
            raise Fault(MALFORMED)
        sender = self.app.senders.get(self.peer.app_id) or Sender(incarnation)
        is_newest = sender.incarnation == incarnation
        if (is_newest or sender.generation < generation) and body.get("delivered", 0) > is_newest * len(sender.numbers):
            self.app.told_put_back += 1
            self.send("put_back", {"id": body["id"], "count": is_newest * len(sender.numbers)})
        if place in self.app.ledger:
            return self.send("committed", {"id": body["id"]})
        if sender.generation >= generation and (not is_newest or sender.has_used(body["number"])):
            failure = {"id": body["id"], "failure": {"error": NUMBER_TAKEN}, "generation": sender.generation}
            return self.send("delivery_refused", failure)
        if self.app.is_locked:
            self.app.held[body["id"]] = lambda: self.begin_arrival(place, body)
            return self.send("delivery_waiting", {"id": body["id"]})
        return self.begin_arrival(place, body)

    def begin_arrival(self, place, body):
        fresh, staged = Arrival(body), self.app.staged.get(place)
        arrival = staged if staged and staged.counts == fresh.counts else fresh
        arrival.restart(body)
        self.app.was_listed = len(body.get("files", []))
        if self.app.reads_lists:
            arrival.manifest += body.get("files", [])[len(arrival.manifest) :]
        self.arrivals[body["id"]] = self.app.staged[place] = arrival
        return self.listed(arrival) if arrival.is_listed else self.ask_for_page(arrival)

    def ask_for_page(self, arrival):
        self.send("manifest_wanted", {"id": arrival.offer["id"], "from": len(arrival.manifest)})

    def take_manifest_page(self, body):
        arrival = self.arrivals[body["id"]]
        if body.get("from", 0) != len(arrival.manifest) or not body.get("files"):
            raise Fault(UNEXPECTED)
        arrival.manifest += body["files"]
        if arrival.is_listed:
            self.listed(arrival)
        else:
            self.ask_for_page(arrival)

    def listed(self, arrival):
        if not arrival.lay_out():
            body = {"id": arrival.offer["id"], "failure": {"error": INVALID_PARAMS}}
            return self.send("delivery_refused", body)
        if arrival.position < arrival.layout.byte_count:
            return self.accept(arrival)
        body = {"id": arrival.offer["id"], "resume_from": arrival.position}
        self.send("delivery_accepted", body)
        return self.commit(arrival)

    def accept(self, arrival):
        """Expects a stream, then says so; what comes of one before is skipped."""
        if arrival.stream is not None:
            self.streams[arrival.stream] = None
        self.last_stream += 1
        arrival.key, arrival.stream, arrival.opening = os.urandom(KEY_BYTES), self.last_stream, None
        arrival.frames, arrival.credit = 0, self.app.credit
        self.streams[self.last_stream] = arrival
        body = {"id": arrival.offer["id"], "resume_from": arrival.position, "credit": arrival.credit}
        body.update(stream=self.last_stream, key=arrival.key)
        if arrival.damaged is not None:
            body["damaged"] = arrival.damaged + 1
        self.send("delivery_accepted", body)

    def withdraw(self, body):
        self.app.held.pop(body["id"], None)
        arrival = self.arrivals.pop(body["id"], None)
        if arrival:
            if arrival.stream is not None:
                self.streams[arrival.stream] = None
            self.app.staged.pop(self.place(arrival), None)
        return arrival

    def place(self, arrival):
        return (self.peer.app_id, arrival.offer["id"])

    def take_delivery_failed(self, body):
        self.withdraw(body)
        self.app.failed.append(body)
        self.send("delivery_cancelled", {"id": body["id"]})

    def commit(self, arrival):
        offer = arrival.offer
        self.app.ledger.add(self.place(arrival))
        sender = self.sender(offer["incarnation"])
        sender.numbers.add(offer["number"])
        self.arrivals.pop(offer["id"], None)
        self.app.staged.pop(self.place(arrival), None)
        self.send("committed", {"id": offer["id"], "count": len(sender.numbers)})
        self.app.keys += arrival.keys
        if "reply" in offer and offer["reply"]["id"] in self.app.delivered:
            delivery = self.app.delivered[offer["reply"]["id"]]
            delivery.reply, delivery.reply_files = offer["reply"], arrival.files()
            delivery.reply_stored = offer.get("stored_byte_count", 0), arrival.stored
            delivery.events.append("replied")
        else:
            self.app.arrived.append((offer, arrival.files()))

    def take_acknowledged(self, body):
        self.sender(body["incarnation"]).raise_floor(body["incarnation"], body.get("floor", 0))

    def sender(self, incarnation):
        """What is known of the peer as a sender; a newer incarnation begins anew."""
        known = self.app.senders.get(self.peer.app_id)
        if known is None or known.generation < incarnation["generation"]:
            known = self.app.senders[self.peer.app_id] = Sender(incarnation)
        return known


class Sender:
    """The newest incarnation of a sender, and which of its numbers have arrived."""

    def __init__(self, incarnation):
        self.incarnation, self.floor, self.numbers = incarnation, 1, set()

    @property
    def generation(self):
        return self.incarnation.get("generation", 0)

    def has_used(self, number):
        return number < self.floor or number in self.numbers

    def raise_floor(self, incarnation, floor):
        if incarnation == self.incarnation:
            self.floor = max(self.floor, floor)


class Outbox:
    """What an app knows of its deliveries. Mixed into `App`."""

    def begin_outbox(self):
        # Of shared memory, that this app takes; frames that it takes of a stream at once.
        self.slots, self.credit = 0, STREAM_CREDIT
        self.last_number, self.unsettled, self.receivers, self.senders = 0, set(), {}, {}
        self.delivered, self.ledger, self.arrived = {}, set(), []
        # What came of messages that are not complete, of what failed, and keys and segments of those that arrived.
        self.staged, self.failed, self.keys = {}, [], []
        # For attacks: whether it says so when it has read a slot.
        self.acknowledges, self.frees = True, True
        # Whether it takes the list of files from an offer, and how many files of a list the last offer brought.
        self.reads_lists, self.was_listed = True, None
        # How often this side said that it was put back.
        self.told_put_back = 0
        # While it is locked, what goes on when it is unlocked.
        self.is_locked, self.held = False, {}
        # Of an arrival whose next frame this side takes for damaged.
        self.spoils = None

    def unlock(self):
        self.is_locked, held, self.held = False, self.held, {}
        for go_on in held.values():
            go_on()

    def receiver(self, app_id):
        """For a receiver: the incarnation, how many messages it says that it has, the first number."""
        incarnation = {"generation": 1, "draw": os.urandom(16)}
        return self.receivers.setdefault(app_id, [incarnation, 0, 1])

    def draw(self, app_id, above):
        """Another incarnation, after the receiver has seen later ones."""
        incarnation = {"generation": above + 1, "draw": os.urandom(16)}
        self.receivers[app_id] = [incarnation, 0, self.last_number + 1]

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
