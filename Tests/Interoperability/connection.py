"""Frames within a sealed socket, for any number of connections in one thread."""

import selectors
import socket
import time

from messages import SCHEMA, Malformed
from noise import Broken, DoesNotOpen

GOODBYE_SECONDS = 1


class Fault(Exception):
    """A side has to close the connection with this number of the protocol's table of errors."""

    def __init__(self, number, detail=""):
        super().__init__(f"fault {number} {detail}")
        self.number, self.detail = number, detail


class TimedOut(Exception):
    """What was waited for did not happen."""


class Loop:
    """Calls whoever has something to read or to write."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.timers = []

    def watch(self, sock, callback, writes=False):
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        if sock in self.selector.get_map():
            self.selector.modify(sock, events, callback)
        else:
            self.selector.register(sock, events, callback)

    def forget(self, sock):
        if sock.fileno() >= 0 and sock in self.selector.get_map():
            self.selector.unregister(sock)

    def after(self, seconds, callback):
        self.timers.append((time.monotonic() + seconds, callback))

    def step(self, seconds):
        now = time.monotonic()
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, callback in due:
            callback()
        if self.timers:
            seconds = min(seconds, max(0, min(timer[0] for timer in self.timers) - now))
        for key, _ in self.selector.select(0 if due else seconds):
            key.data()

    def until(self, condition, seconds=20, what="what was waited for"):
        """Runs until the condition holds. Raises TimedOut."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            left = end - time.monotonic()
            if left <= 0:
                raise TimedOut(f"{what} did not happen within {seconds} s")
            self.step(left)
        return found

    def pause(self, seconds):
        """Goes on with everything for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.step(left)


class Connection:
    """One sealed socket, and the messages of one kind on it.

    `received` has all messages that came and that `on_message` did not take. `ending` is None, or how the connection
    ended: the number of the Goodbye that came, "end" for an end of stream without one, "broken" for bytes that do not
    open, "here" when this side closed. `unproven` is the error for a peer without the key that it should have.
    """

    def __init__(self, loop, sock, sealed, kind, on_message=None, on_ready=None, frame_max=1 << 20, sees=None,
                 unproven=18):
        self.loop, self.sock, self.sealed, self.kind, self.frame_max = loop, sock, sealed, kind, frame_max
        self.on_message, self.on_ready, self.unproven = on_message, on_ready, unproven
        self.received, self.buffer, self.pending = [], bytearray(), bytearray()
        self.is_ready, self.ending, self.detail, self.reads = False, None, "", True
        self.fault, self.error = None, None
        # Whoever wants to play it again gets everything that goes over the socket.
        self.sees = sees
        sock.setblocking(False)
        loop.watch(sock, self.pump)
        self.flush()

    # Out

    def send(self, message):
        data = SCHEMA.encode(self.kind, message)
        self.send_bytes(len(data).to_bytes(4, "little") + data)

    def send_bytes(self, data):
        """Bytes within records, whatever they are."""
        if self.ending is None:
            self.send_raw(self.sealed.seal(data))

    def send_raw(self, data):
        """Bytes on the socket, beside the records."""
        self.pending += data
        self.flush()

    def flush(self):
        self.pending += self.sealed.outgoing
        self.sealed.outgoing.clear()
        while self.pending:
            try:
                count = self.sock.send(self.pending[: 1 << 18], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                break
            except OSError:
                self.pending.clear()
                break
            if self.sees is not None:
                self.sees += self.pending[:count]
            del self.pending[:count]
        if self.sock.fileno() >= 0 and (self.reads or self.pending):
            self.loop.watch(self.sock, self.pump, writes=bool(self.pending))

    def stop_reading(self):
        self.reads = False
        self.loop.forget(self.sock)

    # In

    def pump(self):
        while self.ending is None and self.reads:
            try:
                data = self.sock.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.end("end")
                return
            self.sealed.incoming += data
            self.advance()
        if self.ending is None:
            self.flush()

    def advance(self):
        try:
            if not self.is_ready:
                self.begin()
            while self.is_ready and self.ending is None and (data := self.sealed.open()) is not None:
                self.buffer += data
                self.take_frames()
        except Broken as error:
            self.error = error
            if not self.is_ready and isinstance(error, DoesNotOpen):
                self.fault = self.unproven
            self.end("broken")
        except Fault as fault:
            self.close(fault.number, fault.detail)

    def begin(self):
        self.sealed.shake_hands()
        self.flush()
        if self.sealed.is_ready:
            self.is_ready = True
            if self.on_ready:
                self.on_ready(self)

    def take_frames(self):
        while self.ending is None and len(self.buffer) >= 4:
            length = int.from_bytes(self.buffer[:4], "little")
            if not 1 <= length <= self.frame_max:
                raise Fault(101)
            if len(self.buffer) < 4 + length:
                return
            frame = bytes(self.buffer[4 : 4 + length])
            del self.buffer[: 4 + length]
            try:
                message = SCHEMA.decode(self.kind, frame)
            except Malformed as error:
                raise Fault(100, str(error)) from error
            unknown = message.pop("unknown fields", [])
            if not message:
                if not unknown or min(unknown) < 1000:
                    raise Fault(100)
                continue
            if goodbye := message.get("goodbye"):
                self.detail = goodbye.get("detail", "")
                self.end(goodbye.get("error", 0))
            elif message.get("goodbye") is not None:
                self.end(0)
            elif not (self.on_message and self.on_message(self, message)):
                self.received.append(message)

    def take(self, kind, seconds=20):
        """The next message, which has to be of this kind; those that `on_message` takes do not count."""
        self.loop.until(lambda: self.received or self.ending is not None, seconds, f"a message {kind}")
        if not self.received:
            raise Fault(self.reason, f"the connection ended: {self.ending} {self.detail}")
        message = self.received.pop(0)
        if kind not in message:
            raise AssertionError(f"{message} came in place of {kind}")
        return message[kind]

    # The end

    @property
    def reason(self):
        """The number of the error that ended it, whoever said so; connectionLost when nobody did."""
        return self.fault if self.fault is not None else self.ending if isinstance(self.ending, int) else 18

    def close(self, error=0, detail=""):
        """Says goodbye if the socket takes it, and goes on reading until the peer has closed, for a second at most."""
        if self.ending is not None:
            return
        if self.sealed.has_proof:
            self.send({"goodbye": {"error": error, "detail": detail}})
        self.ending, self.fault, self.detail = "here", error, detail
        self.pending.clear()
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.loop.watch(self.sock, self.discard)
        self.loop.after(GOODBYE_SECONDS, self.abandon)

    def discard(self):
        try:
            if self.sock.recv(1 << 18):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.abandon()

    def end(self, how):
        if self.ending is None:
            self.ending = how
            self.abandon()

    def abandon(self):
        """Closes without a word."""
        if self.ending is None:
            self.ending = "here"
        self.loop.forget(self.sock)
        self.sock.close()
