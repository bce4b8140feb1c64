"""What a hostile app of the same user tries with the shared memory of a bulk lane: giving it, and taking it."""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import tempfile
import time
from contextlib import contextmanager

from attacks_on_an_app import VICTIM, Process
from attacks_on_deliveries import (
    DAMAGED, LIMIT, MALFORMED, NO_SPACE, UNEXPECTED, abandon, abandon_all, arrives, awaited, closes, put_until,
    still_serves)
from frames import (
    BLOCK_MIN, CONTENTS_MAX, F_ADD_SEALS, F_GET_SEALS, FRAME, FREED, GIVEN, GRAIN_BYTES, HEADER_BYTES, IN_SLOT, SEALS,
    SEGMENT_EXTRA, SLOT_BYTES, Memory, memory_file, seal_segment)
from honest_deliveries import FILES, LARGE, expect_echo, pair, request
from world import SERVICE, SERVICE_VERSION, ending, expect

DESCRIPTORS = 103
# linux/fcntl.h, linux/falloc.h
SEAL_WRITE = 8
PUNCH_HOLE, KEEP_SIZE = 2, 1
# What an app without channels holds: two sockets are the broker's.
QUIET = (0, 2)
LIBC = ctypes.CDLL(None, use_errno=True)
# Frames of 64 KiB.
FEW = 4


def in_small_frames(app, files=None):
    """Four grains in each."""
    delivery = request(app, files)
    delivery.segments_max = FEW
    return delivery


# MARK: Bytes of the lane


def memfd(byte_count, seals=SEALS, flags=os.MFD_ALLOW_SEALING):
    return memory_file(byte_count, seals, flags)[0]


def give(channel, descriptors, count=2):
    socket.send_fds(channel.bulk, [FRAME.pack(0, GIVEN, count)], descriptors)


def begin_frame(channel, stream, block_length, contents_length, body=b""):
    channel.send_bulk(FRAME.pack(stream, block_length, contents_length) + body)


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
def meddling(memory, act):
    """Another process, which has the giver's mapping, does something to it, again and again."""
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            while os.getppid() == parent:
                act(memory)
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
        descriptor = os.memfd_create("attack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        os.ftruncate(descriptor, 2 << 20)
        fcntl.fcntl(descriptor, F_ADD_SEALS, SEALS)
    except OSError:
        return None
    return descriptor


def descriptors_that_are_no_memory(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)
    descriptors = [
        *os.pipe(), *[end.detach() for end in socket.socketpair()], file_in(world.directory), file_in("/dev/shm"),
        os.open("/dev/zero", os.O_RDWR), os.open("/tmp", os.O_RDONLY), os.eventfd(0), huge_pages(),
        os.open(f"/proc/self/fd/{good}", os.O_PATH), memfd(0), memfd(2 * SLOT_BYTES - 1),
        memfd(2 * SLOT_BYTES + 1), memfd(3 * SLOT_BYTES), memfd(2 * SLOT_BYTES, seals=0),
        memfd(2 * SLOT_BYTES, seals=0, flags=0),
        *[memfd(2 * SLOT_BYTES, seals=SEALS ^ seal) for seal in (1, 2, 4)],
        # As they were of a page before.
        memfd(2 * 65_600),
    ]
    for descriptor in filter(None, descriptors):
        closes(app, lambda delivery, it=descriptor: give(delivery.channel, [it]), MALFORMED)
        os.close(descriptor)
    os.close(good)
    still_serves(world)


def memory_that_may_not_come(world):
    _, app, channel = pair(world)
    most = channel.hello["slots"]
    channel.close()
    good, beyond, nothing = memfd(2 * SLOT_BYTES), memfd((most + 1) * SLOT_BYTES), memfd(0)
    for descriptors, count, number in [
        ([], 2, MALFORMED), ([], 0, MALFORMED), ([good] * 2, 2, DESCRIPTORS), ([good] * 253, 2, DESCRIPTORS),
        ([nothing], 0, LIMIT), ([good], 0, LIMIT), ([beyond], most + 1, LIMIT), ([good], 1025, LIMIT),
        ([good], (1 << 31) + 2, LIMIT), ([good], (1 << 32) - 1, LIMIT), ([good], 1, MALFORMED),
        ([good], 3, MALFORMED),
    ]:
        closes(app, lambda it, of=descriptors, n=count: give(it.channel, of, n), number)

    def twice(delivery):
        give(delivery.channel, [good])
        give(delivery.channel, [good])

    def again_without(delivery):
        give(delivery.channel, [good])
        give(delivery.channel, [])

    closes(app, twice, UNEXPECTED)
    closes(app, again_without, MALFORMED)
    for descriptor in (good, beyond, nothing):
        os.close(descriptor)
    still_serves(world)


def descriptors_without_their_frame(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)

    def with_a_frame(delivery):
        frame, send = delivery.next_frame(), delivery.channel.send_bulk
        delivery.channel.send_bulk = lambda data: socket.send_fds(delivery.channel.bulk, [data], [good])
        delivery.put(frame)
        delivery.channel.send_bulk = send

    def within_a_frame(delivery):
        for _ in range(2):
            socket.send_fds(delivery.channel.bulk, [b"\0"], [good])

    for n, act in enumerate([with_a_frame, within_a_frame]):
        expect((n, closes(app, act, DESCRIPTORS, [("/small", b"s")]).channel.connection.ending), (n, DESCRIPTORS))
    # Its frame may come in pieces.
    delivery = awaited(app)
    delivery.channel.given = memory = Memory(1)
    for n, byte in enumerate(FRAME.pack(0, GIVEN, 1)):
        socket.send_fds(delivery.channel.bulk, [bytes([byte])], [memory.descriptor] if n == 0 else [])
        world.loop.pause(0.005)
    give_the_rest(delivery)
    expect_echo(delivery, FILES)
    abandon(delivery.channel)
    os.close(good)
    still_serves(world)


def give_the_rest(delivery):
    """What an awaited stream has, in slots."""
    delivery.stops_after = None
    delivery.channel.pump()
    delivery.wait("committed")


def frames_that_are_none(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)
    for kind in (0, 3, 4, 8, 29, 53, (1 << 31) - 1, IN_SLOT, GIVEN | IN_SLOT, FREED | IN_SLOT, (1 << 32) - 1):
        closes(app, lambda it, of=kind: begin_frame(it.channel, 0, of, 1, bytes(100)), DAMAGED)
    # Slots that are free, of no memory.
    for count in (0, 1, (1 << 32) - 1):
        closes(app, lambda it, of=count: it.channel.send_lane_frame(FREED, of), DAMAGED)
    first = BLOCK_MIN + HEADER_BYTES
    for length in (IN_SLOT, IN_SLOT | 42, IN_SLOT | CONTENTS_MAX):
        closes(app, lambda it, of=length: begin_frame(it.channel, it.stream, first, of, bytes(first)), DAMAGED)

    def in_memory(length, stream=None, body=bytes(first)):
        def act(delivery):
            give(delivery.channel, [good])
            begin_frame(delivery.channel, stream or delivery.stream, first, length | IN_SLOT, body)

        return act

    for length in (0, CONTENTS_MAX + 1, SLOT_BYTES, 1 << 24, (1 << 31) - 1):
        closes(app, in_memory(length), DAMAGED)
    closes(app, in_memory(CONTENTS_MAX, 77), DAMAGED)
    # Its block does not open.
    closes(app, in_memory(CONTENTS_MAX), DAMAGED)
    os.close(good)
    still_serves(world)


def slots_with_nothing_in_them(world):
    """A block as it has to be, and zeros where its segments are to be: they are asked for once."""
    _, app, channel = pair(world)
    channel.give_memory(1)
    delivery = awaited(app, channel=channel)
    frame, *others = delivery.rest()
    frame.contents = bytes(len(frame.contents))
    put_until(delivery, [frame, *others], True)
    delivery.wait("damaged")
    give_the_rest(delivery)
    expect_echo(delivery, FILES)
    still_serves(world)


def slots_used_before_they_are_free(world):
    """What was to be read there is gone: it is asked for, or the channel ends, and all of it arrives as it is."""
    _, app, channel = pair(world)
    channel.close()
    for count in (1, 2, 3):
        channel = app.connect(VICTIM)
        channel.give_memory(count)
        # No more frames than its credit.
        delivery = awaited(app, LARGE, channel, 20)
        for frame in delivery.rest():
            delivery.put(frame, True)
        connection = channel.connection
        world.loop.until(lambda: connection.ending is not None or set(delivery.events) & {"damaged", "committed"})
        expect("committed" in delivery.events, False)
        assert connection.ending in (None, DAMAGED), connection.ending
        arrives(app, delivery)
    still_serves(world)


def flip_and_restore(memory):
    for position in range(40, len(memory), 1 << 12):
        memory[position] ^= 1
        memory[position] ^= 1


def clear_and_restore(memory):
    for begin in range(0, len(memory), SLOT_BYTES):
        saved = memory[begin : begin + GRAIN_BYTES]
        memory[begin : begin + GRAIN_BYTES] = bytes(GRAIN_BYTES)
        memory[begin : begin + GRAIN_BYTES] = saved


def error_number(function, *arguments, **more):
    try:
        function(*arguments, **more)
    except OSError as error:
        return error.errno
    return None


def contents_that_change_while_they_are_read(world):
    """What opens is right, and all else is asked for once, and then closes the channel."""
    process, app, channel = pair(world)
    channel.close()
    ends = set()
    for act in (flip_and_restore, clear_and_restore):
        for _ in range(4):
            channel = app.connect(VICTIM)
            channel.give_memory(2)
            delivery = in_small_frames(app, LARGE)
            with meddling(channel.given.mapping, act):
                delivery.offer(channel)
                world.loop.until(lambda: "committed" in delivery.events or channel.connection.ending is not None)
            ends.add(channel.connection.ending)
            if channel.connection.ending is None:
                expect_echo(delivery, LARGE)
            else:
                arrives(app, delivery)
            abandon(channel)
    assert ends <= {None, DAMAGED}, ends
    expect(process.process.poll(), None)
    still_serves(world)


def segments_that_change_to_others_under_their_keys(world):
    """Both open. Whichever is taken, each grain is wholly of one of them: nothing is read twice."""
    _, app, channel = pair(world)
    channel.close()
    ones, others = ([os.urandom(GRAIN_BYTES) for _ in range(60)] for _ in range(2))
    files = [("/either", b"".join(ones))]
    for _ in range(8):
        channel = app.connect(VICTIM)
        channel.give_memory(1)
        delivery = awaited(app, files, channel)
        frame = delivery.next_frame()
        one, other = frame.contents, b"".join(map(seal_segment, frame.keys, others))

        def alternate(memory, both=(one, other)):
            for part in reversed(both):
                for begin in range(0, len(part), GRAIN_BYTES + SEGMENT_EXTRA):
                    memory[begin : begin + GRAIN_BYTES + SEGMENT_EXTRA] = part[begin:][: GRAIN_BYTES + SEGMENT_EXTRA]

        with meddling(channel.given.mapping, alternate):
            delivery.put(frame, True)
            delivery.wait("committed", "damaged")
        if "committed" in delivery.events:
            delivery.wait_reply()
            ((_, found),) = delivery.reply_files
            expect(len(found), len(files[0][1]))
            for n, pair_of in enumerate(zip(ones, others)):
                assert found[n * GRAIN_BYTES :][:GRAIN_BYTES] in pair_of, f"grain {n} is neither"
        else:
            give_the_rest(delivery)
            expect_echo(delivery, files)
        abandon_all(app)
    still_serves(world)


def frames_in_any_mixture(world):
    """What goes on the socket uses no slot."""
    _, app, channel = pair(world)
    channel.give_memory(2)
    for is_in_slot in (lambda n: n % 2 == 0, lambda n: n % 3 > 0, lambda n: n > 20, lambda n: n == 32):
        used = channel.given.used
        delivery = in_small_frames(app, LARGE)
        delivery.uses_slot = is_in_slot
        delivery.offer(channel).wait("committed")
        expect_echo(delivery, LARGE)
        expected = used + sum(map(is_in_slot, range(33)))
        world.loop.until(lambda: channel.given.freed == channel.given.used, what="free slots")
        expect((delivery.frames, channel.given.used), (33, expected))
    still_serves(world)


def memory_in_the_middle_of_a_stream(world):
    _, app, channel = pair(world)
    delivery = in_small_frames(app, LARGE)
    delivery.stops_after = 1 << 20
    delivery.offer(channel)
    world.loop.until(lambda: "accepted" in delivery.events and delivery.position == 1 << 20)
    channel.give_memory(3)
    give_the_rest(delivery)
    expect_echo(delivery, LARGE)
    world.loop.until(lambda: channel.given.freed == 17, what="free slots")
    expect(channel.given.used, 17)
    still_serves(world)


def deliveries_that_share_slots(world):
    _, app, channel = pair(world, slots=1)
    channel.give_memory(1)
    files = [[(f"/{n}", os.urandom((1 << 20) + n))] for n in range(4)]
    deliveries = [in_small_frames(app, one).offer(channel) for one in files]
    for delivery in deliveries:
        delivery.wait_reply()
        expect_echo(delivery, delivery.files)
    count = 16 + 3 * 17
    world.loop.until(lambda: channel.given.freed == count, what="free slots")
    expect(channel.given.used, count)
    assert channel.taken.used >= 4, channel.taken.used
    still_serves(world)


def taken_back_with_slots_in_use(world):
    _, app, channel = pair(world)
    channel.give_memory(3)
    for n in range(3):
        delivery = in_small_frames(app, LARGE)
        delivery.stops_after = (n + 5) * FEW * GRAIN_BYTES
        delivery.offer(channel)
        world.loop.until(lambda: delivery.stream is not None and delivery.frames >= 2)
        stream = delivery.stream
        delivery.cancel()
        # What crosses is skipped, and its slot is free again.
        delivery.stream = stream
        delivery.stops_after = None
        channel.pump()
        expect(delivery.wait("cancelled", "committed"), "cancelled")
        world.loop.until(lambda: channel.given.freed == channel.given.used, what="free slots")
        other = in_small_frames(app, LARGE).offer(channel)
        other.wait("committed")
        expect_echo(other, LARGE)
    still_serves(world)


def channels_that_end_with_slots_in_use(world):
    """Nothing of their memory is kept."""
    process, app, channel = pair(world)
    channel.close()
    holds(world, process, QUIET)
    delivery = in_small_frames(app)
    for n in range(12):
        channel = app.connect(VICTIM)
        channel.give_memory(1 + n % 3)
        delivery.stops_after = (n % 5) * FEW * GRAIN_BYTES
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
    delivery = in_small_frames(app)
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
    app.frees = False
    delivery = request(app).offer(channel)
    world.loop.until(lambda: channel.taken and channel.taken.used == 2)
    before = processor_seconds(process)
    world.loop.pause(0.3)
    assert processor_seconds(process) - before < 0.1
    # Its memory, and its mapping of that.
    memory, _ = held(process)
    assert memory <= 2, memory
    expect((channel.taken.used, delivery.reply), (2, None))
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)
    other = request(app, LARGE).offer(channel)
    other.wait("committed")
    app.frees = True
    abandon(channel)
    app.connect(VICTIM)
    expect_echo(delivery, FILES)
    expect_echo(other, LARGE)
    # With one that the victim has asked for meanwhile.
    world.loop.pause(0.5)
    abandon_all(app)
    holds(world, process, QUIET)
    still_serves(world)


def counts_that_cannot_be(world):
    """Of slots that are free: none, or more than were used."""
    _, app, channel = pair(world, slots=2)
    channel.close()
    peer = app.peer(VICTIM)

    def stuck():
        """The victim asks for channels, too."""
        return next((one for one in peer.channels if one.is_open and one.taken and one.taken.used == 2), None)

    app.frees = False
    delivery = request(app).offer(app.connect(VICTIM))
    for counts in [(0,), (3,), (2, 3), (1, 0), (1 << 31,), ((1 << 32) - 1,), (1, (1 << 32) - 1)]:
        channel = world.loop.until(stuck)
        world.loop.forget(channel.bulk)
        channel.send_bulk(b"".join(FRAME.pack(0, FREED, count) for count in counts))
        expect((counts, ending(channel.connection)), (counts, DAMAGED))
        abandon_all(app)
        app.staged.clear()
        # What was given is kept for two seconds, and there is memory for four such channels at once.
        world.loop.pause(2.2)
        app.connect(VICTIM)
    app.frees = True
    abandon_all(app)
    app.staged.clear()
    app.connect(VICTIM)
    expect_echo(delivery, FILES)
    still_serves(world)


def memory_that_the_taker_changes(world):
    """It spoils what it is sent itself, and nothing else: the victim reads nothing of it."""
    process, app, channel = pair(world, slots=2)
    app.frees = False
    delivery = request(app).offer(channel)
    world.loop.until(lambda: channel.taken and channel.taken.used == 2)
    memory, size = channel.taken.descriptor, 2 * SLOT_BYTES
    expect(fcntl.fcntl(memory, F_GET_SEALS) & SEALS, SEALS)
    again = os.open(f"/proc/self/fd/{memory}", os.O_RDWR)
    for descriptor in (memory, again):
        for byte_count in (0, SLOT_BYTES, 1 << 30):
            expect(error_number(os.ftruncate, descriptor, byte_count), errno.EPERM)
        for seal in (SEAL_WRITE, 0):
            expect(error_number(fcntl.fcntl, descriptor, F_ADD_SEALS, seal), errno.EPERM)
        kept = os.pread(descriptor, size, 0)
        LIBC.fallocate(descriptor, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(size))
        expect(os.pwrite(descriptor, kept, 0), size)
    os.close(again)
    app.frees = True
    channel.taken.freed += 2
    channel.send_lane_frame(FREED, 2)
    expect_echo(delivery, FILES)
    expect(process.process.poll(), None)
    still_serves(world)


def memory_that_cannot_be_read(world):
    _, app, channel = pair(world)
    channel.close()
    good = memfd(2 * SLOT_BYTES)
    unreadable = os.open(f"/proc/self/fd/{good}", os.O_WRONLY)
    closes(app, lambda delivery: give(delivery.channel, [unreadable]), MALFORMED)
    os.close(good)
    os.close(unreadable)
    still_serves(world)


def slots_of_a_stream_that_was_taken_back(world):
    """They are free again, whatever is in them; but contents of length 0 cannot be in one."""
    _, app, channel = pair(world)
    channel.give_memory(2)
    delivery = awaited(app, channel=channel)
    stream = delivery.stream
    delivery.cancel()
    delivery.wait("cancelled")
    for length in (1, SEGMENT_EXTRA, CONTENTS_MAX, 100, 200):
        world.loop.until(lambda: not channel.given.is_full, what="a free slot")
        channel.send_frame(stream, os.urandom(BLOCK_MIN + HEADER_BYTES), bytes(length), True)
        if length == SEGMENT_EXTRA:
            # So that the lane is read.
            other = awaited(app, channel=channel)
    other.stops_after = None
    channel.pump()
    other.wait("committed")
    expect_echo(other, FILES)
    delivery = awaited(app, channel=channel)
    stream = delivery.stream
    delivery.cancel()
    delivery.wait("cancelled")
    begin_frame(channel, stream, BLOCK_MIN, IN_SLOT, bytes(BLOCK_MIN))
    request(app).offer(channel)
    expect(ending(channel.connection, 5), DAMAGED)
    still_serves(world)


def an_offer_of_more_than_there_is_room_for(world):
    """It is refused, and nobody hears how much is free."""
    _, app, channel = pair(world)
    delivery = request(app)
    delivery.stored_byte_count = 1 << 60
    delivery.offer(channel).wait("refused")
    expect(delivery.failure["error"], NO_SPACE)
    expect(any(letter.isdigit() for letter in delivery.failure.get("detail", "")), False)
    expect_echo(request(app).offer(channel), FILES)


CHECKS = [
    an_offer_of_more_than_there_is_room_for, descriptors_that_are_no_memory, memory_that_may_not_come,
    descriptors_without_their_frame, frames_that_are_none, slots_with_nothing_in_them,
    slots_used_before_they_are_free, contents_that_change_while_they_are_read,
    segments_that_change_to_others_under_their_keys, frames_in_any_mixture,
    memory_in_the_middle_of_a_stream, deliveries_that_share_slots, taken_back_with_slots_in_use,
    channels_that_end_with_slots_in_use, goes_on_in_memory_where_a_process_was_killed, slots_that_are_never_free,
    counts_that_cannot_be, memory_that_the_taker_changes, memory_that_cannot_be_read,
    slots_of_a_stream_that_was_taken_back,
]
