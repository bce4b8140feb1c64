"""What a hostile app of the same user tries with the shared memory of a bulk lane: giving it, and taking it."""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import struct
import tempfile
import time
from contextlib import contextmanager

from attacks_on_an_app import VICTIM, Process
from deliveries import (
    F_ADD_SEALS, HEADER_BYTES, IN_SLOT, MESSAGE_MAX, SEALS, SLOT_BYTES, TAG_FINAL, TAG_MESSAGE, Memory)
from honest_deliveries import FILES, expect_echo, pair, request
from world import SERVICE, SERVICE_VERSION, ending, expect

MESSAGE_BYTES = MESSAGE_MAX + 17
NO_SPACE = 22
LARGE = [("/large", os.urandom((2 << 20) + 1))]
# linux/fcntl.h, linux/falloc.h
SEAL_WRITE = 8
PUNCH_HOLE, KEEP_SIZE = 2, 1
# What an app without channels holds: two sockets are the broker's.
QUIET = (0, 2)
LIBC = ctypes.CDLL(None)


def still_serves(world):
    """An honest app has its requests answered, and gets its files back, in memory both ways, over its own channel."""
    honest = world.app("honest")
    honest.slots = 3
    channel = honest.connect(VICTIM)
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", "still here").wait(), "still here")
    channel.give_memory(2)
    delivery = request(honest, LARGE).offer(channel)
    delivery.wait_reply()
    expect([contents for _, contents in delivery.reply_files], [LARGE[0][1]])
    assert channel.taken.used > 0
    channel.close()


def abandon(channel):
    """Both lanes end without a word."""
    channel.connection.abandon()
    channel.loop.forget(channel.bulk)
    channel.bulk.close()


def abandon_all(app):
    """Those that the victim has asked for, too."""
    for channel in [one for one in app.peer(VICTIM).channels if one.is_open]:
        abandon(channel)


def awaited(app, channel=None):
    """A delivery whose stream the victim awaits, so that it reads the lane; the stream's header has gone."""
    delivery = request(app)
    delivery.stops_after = 0
    delivery.offer(channel or app.connect(VICTIM)).wait("accepted")
    return delivery


def closes(app, act, number):
    """What is done with a delivery's channel makes the victim close it with this error."""
    delivery = awaited(app)
    act(delivery)
    expect(ending(delivery.channel.connection), number)
    abandon(delivery.channel)


# MARK: Bytes of the lane


def memfd(byte_count, seals=SEALS, flags=os.MFD_ALLOW_SEALING):
    descriptor = os.memfd_create("attack", os.MFD_CLOEXEC | flags)
    os.ftruncate(descriptor, byte_count)
    if seals:
        fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
    return descriptor


def give(channel, descriptors, count=2):
    socket.send_fds(channel.bulk, [struct.pack("<III", 0, 4, count)], descriptors)


def say_freed(channel, total):
    channel.bulk.send(struct.pack("<IIQ", 0, 8, total))


def begin_frame(channel, stream, length, body=b""):
    channel.bulk.send(struct.pack("<II", stream, length) + body)


def seal(delivery):
    """The next message."""
    part = delivery.contents[delivery.position : delivery.position + MESSAGE_MAX]
    delivery.position += len(part)
    tag = TAG_FINAL if delivery.position == delivery.byte_count else TAG_MESSAGE
    return delivery.sealing.seal(part, tag)


def send_mixed(delivery, is_in_slot):
    """From now on a message goes in a slot only where the function says so of its number; credit is not looked at."""

    def pump():
        given = delivery.channel.given
        while delivery.stream is not None and delivery.position < delivery.byte_count:
            is_inside = is_in_slot(delivery.position // MESSAGE_MAX)
            if is_inside and given.is_full:
                return
            sealed = seal(delivery)
            if is_inside:
                given.put(sealed)
                delivery.channel.send_bulk(delivery.stream, b"", length=len(sealed) | IN_SLOT)
            else:
                delivery.channel.send_bulk(delivery.stream, sealed)

    delivery.pump = pump
    return delivery


def free_nothing(channel):
    """The victim is not told what was read of its slots."""
    send = channel.send_bulk
    channel.send_bulk = lambda stream, body, length=None: send(stream, body, length) if stream else None


# MARK: What the victim holds


def processor_seconds(process):
    with open(f"/proc/{process.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def held(process):
    """Its sockets, descriptors of shared memory, and mappings of it. A thread of a lane that goes on holds a socket."""
    directory, names = f"/proc/{process.process.pid}", []
    for number in os.listdir(directory + "/fd"):
        try:
            names.append(os.readlink(f"{directory}/fd/{number}"))
        except FileNotFoundError:
            pass
    with open(directory + "/maps", encoding="ascii") as file:
        names += list(file)
    return sum("/memfd:" in name for name in names), sum(name.startswith("socket:") for name in names)


def holds(world, process, wanted):
    end = time.monotonic() + 5
    while held(process) != wanted and time.monotonic() < end:
        world.loop.pause(0.005)
    expect(held(process), wanted)


@contextmanager
def meddling(descriptor, act):
    """Another process does something to the memory, again and again."""
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            with mmap.mmap(descriptor, 0) as memory:
                while os.getppid() == parent:
                    act(descriptor, memory)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# MARK: As the giver


def file_in(directory):
    descriptor, path = tempfile.mkstemp(dir=directory)
    os.unlink(path)
    os.ftruncate(descriptor, 2 * SLOT_BYTES)
    return descriptor


def huge_pages():
    """None where the system makes no such memory. Its length is no multiple of a slot's."""
    try:
        return memfd(2 << 20, flags=os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    except OSError:
        return None


def descriptors_that_are_no_memory(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)
    descriptors = [
        *os.pipe(), *[end.detach() for end in socket.socketpair()], file_in(world.directory), file_in("/dev/shm"),
        os.open("/dev/zero", os.O_RDWR), os.open("/tmp", os.O_RDONLY), os.eventfd(0), huge_pages(),
        os.open(f"/proc/self/fd/{good}", os.O_PATH), memfd(0), memfd(2 * SLOT_BYTES - 1),
        memfd(2 * SLOT_BYTES + 1), memfd(3 * SLOT_BYTES), memfd(2 * SLOT_BYTES, seals=0),
        memfd(2 * SLOT_BYTES, seals=0, flags=0), *[memfd(2 * SLOT_BYTES, seals=SEALS ^ seal) for seal in (1, 2, 4)],
    ]
    for descriptor in filter(None, descriptors):
        closes(app, lambda delivery, it=descriptor: give(delivery.channel, [it]), 100)
        os.close(descriptor)
    os.close(good)
    still_serves(world)


def memory_that_may_not_come(world):
    _, app, channel = pair(world)
    most = channel.hello["slots"]
    channel.close()
    good, beyond, nothing = memfd(2 * SLOT_BYTES), memfd((most + 1) * SLOT_BYTES), memfd(0)
    for descriptors, count, number in [
        ([], 2, 100), ([], 0, 100), ([good] * 2, 2, 103), ([good] * 253, 2, 103), ([nothing], 0, 16),
        ([good], 0, 16), ([beyond], most + 1, 16), ([good], 1025, 16), ([good], (1 << 31) + 2, 16),
        ([good], (1 << 32) - 1, 16), ([good], 1, 100), ([good], 3, 100),
    ]:
        closes(app, lambda it, of=descriptors, n=count: give(it.channel, of, n), number)

    def twice(delivery):
        give(delivery.channel, [good])
        give(delivery.channel, [good])

    def again_without(delivery):
        give(delivery.channel, [good])
        give(delivery.channel, [])

    closes(app, twice, 102)
    closes(app, again_without, 100)
    for descriptor in (good, beyond, nothing):
        os.close(descriptor)
    still_serves(world)


def descriptors_without_their_frame(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)

    def with_a_message(delivery):
        sealed = seal(delivery)
        frame = struct.pack("<II", delivery.stream, len(sealed)) + sealed
        socket.send_fds(delivery.channel.bulk, [frame], [good])

    def within_a_frame(delivery):
        for _ in range(2):
            socket.send_fds(delivery.channel.bulk, [b"\0"], [good])

    closes(app, with_a_message, 103)
    closes(app, within_a_frame, 103)
    # Its frame may come in pieces.
    delivery = awaited(app)
    delivery.channel.given = memory = Memory(1)
    for n, byte in enumerate(struct.pack("<III", 0, 4, 1)):
        socket.send_fds(delivery.channel.bulk, [bytes([byte])], [memory.descriptor] if n == 0 else [])
        world.loop.pause(0.005)
    give_the_rest(delivery)
    expect_echo(delivery, FILES)
    abandon(delivery.channel)
    os.close(good)
    still_serves(world)


def give_the_rest(delivery):
    """What an awaited stream has, in slots."""
    channel = delivery.channel
    channel.bulk.setblocking(False)
    channel.loop.watch(channel.bulk, channel.read_bulk)
    delivery.stops_after = None
    delivery.pump()
    delivery.wait("committed")


def frames_that_are_none(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)
    for length in (0, 1, 3, 5, 7, 9, (1 << 31) - 1, IN_SLOT, 4 | IN_SLOT, 8 | IN_SLOT, (1 << 32) - 1):
        closes(app, lambda it, of=length: begin_frame(it.channel, 0, of, bytes(16)), 111)
    closes(app, lambda it: begin_frame(it.channel, it.stream, MESSAGE_BYTES | IN_SLOT), 111)
    for total in (0, 1, (1 << 64) - 1):
        closes(app, lambda it, of=total: say_freed(it.channel, of), 111)

    def in_memory(length, stream=None):
        def act(delivery):
            give(delivery.channel, [good])
            begin_frame(delivery.channel, stream or delivery.stream, length | IN_SLOT)

        return act

    for length in (0, 16, 17, 24, MESSAGE_BYTES - 1, MESSAGE_BYTES + 1, SLOT_BYTES, (1 << 31) - 1):
        closes(app, in_memory(length), 111)
    closes(app, in_memory(MESSAGE_BYTES, 77), 111)
    # Nothing was written to the slot.
    closes(app, in_memory(MESSAGE_BYTES), 111)
    os.close(good)
    still_serves(world)


def a_header_in_a_slot(world):
    _, app, channel = pair(world)
    headers = []
    channel.send_bulk = lambda _, body, length=None: headers.append(body)
    delivery = awaited(app, channel)
    memory = memfd(SLOT_BYTES)
    os.pwrite(memory, headers[0], 0)
    give(channel, [memory], 1)
    begin_frame(channel, delivery.stream, len(headers[0]) | IN_SLOT)
    expect(ending(channel.connection), 111)
    os.close(memory)
    still_serves(world)


def flip_and_restore(_, memory):
    for position in range(40, 4 * SLOT_BYTES, 1 << 12):
        memory[position] ^= 1
        memory[position] ^= 1


def punch_holes(descriptor, _):
    LIBC.fallocate(descriptor, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(2 * SLOT_BYTES))
    time.sleep(0.001)


def cannot_be_cut(descriptor):
    for byte_count in (0, SLOT_BYTES, 1 << 30):
        expect(error_number(os.ftruncate, descriptor, byte_count), errno.EPERM)
    expect(error_number(fcntl.fcntl, descriptor, F_ADD_SEALS, SEAL_WRITE), errno.EPERM)


def error_number(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return None


def read_to_the_end(channel):
    """A lane that the victim closes before it has read everything is reset."""
    read = channel.read_bulk

    def read_or_forget():
        try:
            read()
        except ConnectionResetError:
            channel.loop.forget(channel.bulk)

    channel.read_bulk = read_or_forget


def contents_that_change_while_they_are_read(world):
    """What opens is right, and all else closes the channel."""
    process, app, channel = pair(world)
    channel.close()
    ends = set()
    for act in (flip_and_restore, punch_holes):
        for _ in range(4):
            channel = app.connect(VICTIM)
            read_to_the_end(channel)
            channel.give_memory(4)
            delivery = request(app, LARGE)
            with meddling(channel.given.descriptor, act):
                delivery.offer(channel)
                world.loop.until(lambda: "committed" in delivery.events or channel.connection.ending is not None)
            ends.add(channel.connection.ending)
            if channel.connection.ending is None:
                expect_echo(delivery, LARGE)
            abandon(channel)
    assert ends <= {None, 111}, ends
    expect(process.process.poll(), None)
    still_serves(world)


def frames_in_any_mixture(world):
    """What goes on the socket uses no slot."""
    _, app, channel = pair(world)
    channel.give_memory(2)
    for is_in_slot in (lambda n: n % 2 == 0, lambda n: n % 3 > 0, lambda n: n > 20, lambda n: n == 32):
        used = channel.given.used
        delivery = send_mixed(request(app, LARGE), is_in_slot).offer(channel)
        delivery.wait("committed")
        expect_echo(delivery, LARGE)
        expected = sum(map(is_in_slot, range(33)))
        expect((channel.given.used - used, channel.given.freed - used), (expected, expected))
    still_serves(world)


def memory_in_the_middle_of_a_stream(world):
    _, app, channel = pair(world)
    delivery = request(app, LARGE)
    delivery.stops_after = 1 << 20
    delivery.offer(channel)
    world.loop.until(lambda: "accepted" in delivery.events and delivery.position == 1 << 20)
    channel.give_memory(3)
    give_the_rest(delivery)
    expect_echo(delivery, LARGE)
    expect(channel.given.freed, 17)
    still_serves(world)


def deliveries_that_share_slots(world):
    _, app, channel = pair(world, slots=1)
    channel.give_memory(1)
    files = [[(f"/{n}", os.urandom((1 << 20) + n))] for n in range(4)]
    deliveries = [request(app, one).offer(channel) for one in files]
    for delivery in deliveries:
        delivery.wait_reply()
        expect_echo(delivery, delivery.files)
    count = 16 + 3 * 17
    expect((channel.given.used, channel.given.freed, channel.taken.used), (count, count, count))
    still_serves(world)


def taken_back_with_slots_in_use(world):
    _, app, channel = pair(world)
    channel.give_memory(3)
    for n in range(3):
        delivery = request(app, LARGE)
        delivery.stops_after = (n + 5) * MESSAGE_MAX
        delivery.offer(channel)
        world.loop.until(lambda: "accepted" in delivery.events and channel.given.used >= 2)
        stream = delivery.stream
        delivery.cancel()
        # What crosses is skipped, and its slot is free again.
        delivery.stream = stream
        delivery.stops_after = None
        delivery.pump()
        expect(delivery.wait("cancelled", "committed"), "cancelled")
        other = request(app, LARGE).offer(channel)
        other.wait("committed")
        expect_echo(other, LARGE)
    still_serves(world)


def channels_that_end_with_slots_in_use(world):
    """Nothing of their memory is kept."""
    process, app, channel = pair(world)
    channel.close()
    holds(world, process, QUIET)
    delivery = request(app)
    for n in range(12):
        channel = app.connect(VICTIM)
        channel.give_memory(1 + n % 3)
        delivery.stops_after = (n % 5) * MESSAGE_MAX
        delivery.events.clear()
        delivery.offer(channel).wait("accepted")
        holds(world, process, (1, 4))
        abandon(channel)
        holds(world, process, QUIET)
    delivery.stops_after = None
    delivery.events.clear()
    channel = app.connect(VICTIM)
    channel.give_memory(2)
    delivery.offer(channel).wait("committed")
    expect_echo(delivery, FILES)
    still_serves(world)


def goes_on_in_memory_where_a_process_was_killed(world):
    process, app, channel = pair(world, slots=2)
    channel.give_memory(3)
    delivery = request(app)
    delivery.stops_after = 2 << 20
    delivery.offer(channel).wait("accepted")
    world.loop.until(lambda: delivery.position >= 2 << 20 and not channel.given.used - channel.given.freed)
    process.process.kill()
    expect(ending(channel.connection), "end")
    abandon(channel)
    process = Process(world)
    channel = app.connect(VICTIM)
    channel.give_memory(3)
    delivery.stops_after = None
    delivery.events.clear()
    delivery.offer(channel).wait("committed")
    expect_echo(delivery, FILES)
    still_serves(world)


# MARK: As the taker


def slots_that_are_never_free(world):
    """The victim waits, without work, and goes on with everything else; what waits goes over the next channel."""
    process, app, channel = pair(world, slots=2)
    free_nothing(channel)
    delivery = request(app).offer(channel)
    world.loop.until(lambda: channel.taken and channel.taken.used == 2)
    before = processor_seconds(process)
    world.loop.pause(0.3)
    assert processor_seconds(process) - before < 0.1
    expect((channel.taken.used, delivery.reply, held(process)[0]), (2, None, 2))
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)
    request(app, LARGE).offer(channel).wait("committed")
    abandon(channel)
    app.connect(VICTIM)
    expect_echo(delivery, FILES)
    abandon_all(app)
    holds(world, process, QUIET)
    still_serves(world)


def totals_that_cannot_be(world):
    _, app, channel = pair(world, slots=4)
    channel.close()
    peer, opened = app.peer(VICTIM), app.peer(VICTIM).open

    def open_without_freeing(*arguments):
        channel = opened(*arguments)
        free_nothing(channel)
        return channel

    def stuck():
        """The victim asks for channels, too."""
        return next((one for one in peer.channels if one.is_open and one.taken and one.taken.used == 4), None)

    peer.open = open_without_freeing
    delivery = request(app).offer(app.connect(VICTIM))
    for totals in [(5,), (1, 0), (4, 3), (1 << 32,), (1 << 63,), ((1 << 64) - 1,)]:
        channel = world.loop.until(stuck)
        world.loop.forget(channel.bulk)
        for total in totals:
            say_freed(channel, total)
        expect(ending(channel.connection), 111)
        abandon(channel)
        app.connect(VICTIM)
    peer.open = opened
    abandon_all(app)
    app.connect(VICTIM)
    expect_echo(delivery, FILES)
    still_serves(world)


def memory_that_the_taker_changes(world):
    """What it does to the victim's memory the victim does not notice."""
    process, app, channel = pair(world, slots=2)
    free_nothing(channel)
    channel.take_frame = lambda *_: None
    request(app).offer(channel)
    world.loop.until(lambda: channel.taken and channel.taken.used == 2)
    memory = channel.taken.descriptor
    cannot_be_cut(memory)
    with meddling(memory, punch_holes):
        for total in range(1, 20):
            say_freed(channel, total)
            world.loop.until(lambda: channel.taken.used == 2 + total)
    expect((process.process.poll(), channel.connection.ending), (None, None))
    abandon(channel)
    still_serves(world)


def memory_that_changes_while_it_is_sealed(world):
    """Whoever has the memory changes what is sealed there: it must not open, or be right.

    It is a race, and tried some times.
    """
    _, app, channel = pair(world, slots=1)
    channel.close()
    for _ in range(10):
        channel = app.connect(VICTIM)
        read_to_the_end(channel)
        flipped = []

        def flip_once(_, memory, last=flipped):
            """As soon as a byte near the beginning was sealed, before all of the message is."""
            last or last.append(memory[101])
            if len(last) == 1 and (byte := memory[101]) != last[0]:
                memory[101] = byte ^ 1
                last.append(byte)

        delivery = request(app, LARGE).offer(channel)
        world.loop.until(lambda: channel.taken)
        with meddling(channel.taken.descriptor, flip_once):
            try:
                delivery.wait_reply(5)
            except Exception:  # noqa: BLE001  it did not open
                abandon(channel)
                continue
        expect(delivery.reply_files[0][1] == LARGE[0][1], True)
        abandon(channel)


def memory_that_cannot_be_read(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)
    unreadable = os.open(f"/proc/self/fd/{good}", os.O_WRONLY)
    closes(app, lambda delivery: give(delivery.channel, [unreadable]), 100)
    os.close(good)
    os.close(unreadable)
    still_serves(world)


def a_header_in_a_slot_of_a_stream_that_was_taken_back(world):
    _, app, channel = pair(world)
    channel.send_bulk = lambda *_, length=None: None
    delivery = request(app)
    delivery.stops_after = 0
    delivery.offer(channel).wait("accepted")
    stream = delivery.stream
    delivery.cancel()
    delivery.wait("cancelled")
    memory = memfd(SLOT_BYTES)
    give(channel, [memory], 1)
    begin_frame(channel, stream, HEADER_BYTES | IN_SLOT)
    # So that the lane is read.
    request(app).offer(channel)
    expect(ending(channel.connection, 5), 111)
    os.close(memory)
    still_serves(world)


def an_offer_of_more_than_there_is_room_for(world):
    """It is refused, and nobody hears how much is free."""
    _, app, channel = pair(world)
    delivery = request(app)
    delivery.byte_count = 1 << 60
    delivery.offer(channel).wait("refused")
    expect(delivery.failure["error"], NO_SPACE)
    expect(any(letter.isdigit() for letter in delivery.failure.get("detail", "")), False)
    expect_echo(request(app).offer(channel), FILES)


CHECKS = [
    an_offer_of_more_than_there_is_room_for, descriptors_that_are_no_memory, memory_that_may_not_come, descriptors_without_their_frame,
    frames_that_are_none, a_header_in_a_slot, contents_that_change_while_they_are_read, frames_in_any_mixture,
    memory_in_the_middle_of_a_stream, deliveries_that_share_slots, taken_back_with_slots_in_use,
    channels_that_end_with_slots_in_use, goes_on_in_memory_where_a_process_was_killed, slots_that_are_never_free,
    totals_that_cannot_be, memory_that_the_taker_changes, memory_that_changes_while_it_is_sealed,
    memory_that_cannot_be_read, a_header_in_a_slot_of_a_stream_that_was_taken_back,
]
