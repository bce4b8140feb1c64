"""What a hostile app of the same user tries with messages with files: frames that may not come, segments that do not
open, and answers that no receiver gives."""

import os

from attacks_on_an_app import VICTIM
from deliveries import STREAM_CREDIT
from frames import (
    BLOCK, BLOCK_MAX, BLOCK_MIN, CONTENTS_MAX, FRAME, GRAIN_BYTES, HEADER_BYTES, KEY_BYTES, RUN, SEGMENT_EXTRA,
    SEGMENTS_MAX, TAG_FINAL, TAG_MESSAGE, Frame, SecretStream, associated_data, open_segment, seal_segment)
from honest_deliveries import FILES, LARGE, expect_contents, expect_echo, pair, request, sparse_files
from world import SERVICE, SERVICE_VERSION, ending, expect

INVALID_PARAMS, LIMIT, NO_SPACE, SOURCE_DAMAGED = 8, 16, 22, 23
LOST, MALFORMED, UNEXPECTED, DAMAGED = 18, 100, 102, 111
# What the victim does about a frame whose block opens and breaks a rule: it closes the channel.
AGAINST_THE_RULES = "refused"
# Five grains: 16,384, 16,384 and 7,232 bytes, none, and 16,384 and 3,616 bytes.
SMALL = [("/a", os.urandom(40_000)), ("/empty", b""), ("/b", os.urandom(20_000))]
ENDS = [16_384, 32_768, 40_000, 56_384, 60_000]


def still_serves(world):
    """An honest app has its requests answered, and gets its files back, in memory both ways, over its own channel."""
    honest = world.app("honest")
    honest.slots = 3
    channel = honest.connect(VICTIM)
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", "still here").wait(), "still here")
    channel.give_memory(2)
    delivery = request(honest, LARGE).offer(channel)
    delivery.wait_reply()
    expect_contents(delivery.reply_files, LARGE)
    assert channel.taken.used > 0
    channel.close()


def abandon(channel):
    """Both lanes end without a word."""
    channel.connection.abandon()
    channel.end_delivering()


def abandon_all(app):
    """Those that the victim has asked for, too."""
    for channel in [one for one in app.peer(VICTIM).channels if one.is_open]:
        abandon(channel)


def awaited(app, files=None, channel=None, segments_max=SEGMENTS_MAX):
    """A delivery whose stream the victim awaits; nothing goes by itself."""
    delivery = request(app, files)
    delivery.segments_max, delivery.stops_after = segments_max, 0
    delivery.offer(channel or app.connect(VICTIM)).wait("accepted")
    return delivery


def closes(app, act, number, files=None):
    """What is done with a delivery's channel makes the victim close it with this error."""
    delivery = awaited(app, files)
    act(delivery)
    expect(ending(delivery.channel.connection), number)
    abandon(delivery.channel)
    return delivery


def arrives(app, delivery):
    """What was begun arrives as it is when it is offered again; so nothing has arrived before, and nothing is wrong."""
    abandon_all(app)
    delivery.stops_after = delivery.change = None
    delivery.events.clear()
    delivery.offer(app.connect(VICTIM)).wait("committed")
    assert "accepted" in delivery.events, "it had arrived already"
    expect_echo(delivery, delivery.files)
    abandon_all(app)


def damage(frame, index=-1):
    """One bit of a segment."""
    lengths = [length + SEGMENT_EXTRA for _, _, length in frame.segments()]
    index %= len(lengths)
    at = sum(lengths[:index]) + HEADER_BYTES + 3
    frame.contents = frame.contents[:at] + bytes([frame.contents[at] ^ 1]) + frame.contents[at + 1 :]
    return frame


# MARK: Frames that may not come


def one(*changes, at=2, **fields):
    """Changes frame `at` of five that have a segment each; nothing comes behind it."""

    def change(frames):
        frame = frames[at]
        for name, value in fields.items():
            setattr(frame, name, value)
        for it in changes:
            it(frame)
        return frames[: at + 1]

    return change


def run(**fields):
    """Changes the run of a frame that has one."""

    def change(frame):
        for name, value in fields.items():
            frame.runs[0][["file", "start", "count", "last"].index(name)] = value

    return change


def whole(change):
    """All in one frame, of which runs, keys or contents are changed."""

    def joined(frames):
        frame = Frame(
            ENDS[-1], [run for it in frames for run in it.runs], [key for it in frames for key in it.keys],
            b"".join(it.contents for it in frames), TAG_FINAL)
        change(frame)
        return [frame]

    return joined


def segment(file, grain, length):
    """A frame's only segment, sealed as it has to be."""

    def change(frame):
        key = os.urandom(KEY_BYTES)
        frame.runs, frame.keys = [[file, grain, 1, length]], [key]
        frame.contents = seal_segment(key, os.urandom(length))

    return change


def swap(frame, first, second):
    """Two segments of frames of one segment each, with their runs and keys."""
    ends, parts = [0], []
    for _, _, length in frame.segments():
        ends.append(ends[-1] + length + SEGMENT_EXTRA)
        parts.append(frame.contents[ends[-2] : ends[-1]])
    for values in (frame.runs, frame.keys, parts):
        values[first], values[second] = values[second], values[first]
    frame.contents = b"".join(parts)


def spoiled(app, changes, wanted=AGAINST_THE_RULES):
    """Frames of which something is wrong close the channel, and what is right arrives over the next one."""
    for n, change in enumerate(changes):
        delivery = awaited(app, SMALL, segments_max=1)
        for it in change(delivery.rest()):
            delivery.put(it)
        expect_end(app, delivery, n, wanted)


def expect_end(app, delivery, name, wanted):
    """It ended like this, with nothing delivered; and then it arrives, unless it was refused for good."""
    expect((name, how_it_ended(delivery)), (name, wanted))
    if wanted == "refused":
        abandon_all(app)
    else:
        arrives(app, delivery)


def how_it_ended(delivery):
    """The number of the Goodbye, or what became of the delivery."""
    connection = delivery.channel.connection
    wrong = {"damaged", "committed", "refused"}
    delivery.app.loop.until(lambda: connection.ending is not None or wrong & set(delivery.events), what="an end")
    return delivery.events[-1] if connection.ending is None else connection.ending


def ends_that_cannot_be(world):
    _, app, channel = pair(world)
    channel.close()
    # Where it is already, before that, inside of a grain, before the end of the frame's own segment, and beyond.
    for at, ends in [
        (0, [0, 1, 16_383, 16_385, 60_001, 1 << 32, 1 << 63, (1 << 64) - 1]),
        (2, [32_768, 16_384, 0, 39_999, 40_001, 41_000]), (4, [56_384, 59_999, 60_001, 65_536]),
    ]:
        spoiled(app, [one(at=at, end=end, tag=TAG_MESSAGE) for end in ends])
    # The same, with no segment.
    nothing = {"runs": [], "keys": [], "contents": b""}
    spoiled(app, [one(end=end, **nothing) for end in (0, 16_384, 32_768, 33_000, 60_001)])
    still_serves(world)


def runs_that_cannot_be(world):
    _, app, channel = pair(world)
    channel.close()
    spoiled(app, map(one, [
        # Of a file that is not there, of one that is empty, and of grains that are not there.
        *[segment(file, 0, 1) for file in (1, 3, 4, 1 << 31, (1 << 32) - 1)],
        *[segment(0, grain, 1) for grain in (3, 4, 1 << 32, 1 << 48, 1 << 63, (1 << 64) - 1)],
        # What another frame had, and what is behind the end.
        segment(0, 0, GRAIN_BYTES), segment(0, 1, GRAIN_BYTES), segment(0, 1, 5), segment(2, 0, 100),
        # Longer than what is left of the file, than a grain, or nothing.
        segment(0, 2, 7233), segment(0, 2, GRAIN_BYTES), segment(0, 2, GRAIN_BYTES + 1), segment(0, 2, 0),
        run(last=0), run(last=GRAIN_BYTES + 1), run(last=(1 << 32) - 1), run(last=7231), run(last=7233),
        # Other counts than there are keys.
        run(count=0), run(count=2), run(count=257), run(count=1 << 31), run(count=(1 << 32) - 1),
        # Such that the last grain's number does not fit.
        run(start=(1 << 64) - 1, count=2), run(start=(1 << 64) - 1, count=(1 << 32) - 1),
    ]))
    still_serves(world)


def runs_out_of_order(world):
    _, app, channel = pair(world)
    channel.close()

    def twice(frame):
        frame.runs.insert(0, frame.runs[0])
        frame.keys.insert(0, frame.keys[0])
        frame.contents = frame.contents[: GRAIN_BYTES + SEGMENT_EXTRA] + frame.contents

    def overlapping(frame):
        frame.runs = [[0, 0, 2, GRAIN_BYTES], [0, 1, 2, 7232], *frame.runs[3:]]
        frame.keys.insert(1, frame.keys[1])
        part = GRAIN_BYTES + SEGMENT_EXTRA
        frame.contents = frame.contents[: 2 * part] + frame.contents[part:]

    def nothing_of_it(frame):
        frame.runs.insert(1, [0, 1, 0, GRAIN_BYTES])

    def beyond_the_file(frame):
        frame.runs = [[0, 0, 4, GRAIN_BYTES], *frame.runs[4:]]

    spoiled(app, map(whole, [
        lambda it: swap(it, 0, 1), lambda it: swap(it, 0, 4), lambda it: swap(it, 2, 3), twice, overlapping,
        nothing_of_it, beyond_the_file,
    ]))
    still_serves(world)


def contents_of_another_length(world):
    """Than the runs say."""
    _, app, channel = pair(world)
    channel.close()
    for at in (0, 2, 4):
        spoiled(app, [one(lambda it, to=change: setattr(it, "contents", to(it.contents)), at=at) for change in (
            lambda it: it[:-1], lambda it: it + b"\0", lambda it: b"", lambda it: 2 * it, lambda it: it[1:],
            lambda it: it + bytes(SEGMENT_EXTRA))])
    # Contents of no segment.
    spoiled(app, [one(runs=[], keys=[])])
    still_serves(world)


def blocks_that_are_none(world):
    """They open, and are not as long as they say."""
    _, app, channel = pair(world)
    channel.close()
    for n, change in enumerate([
        lambda it: it[:-1], lambda it: it + b"\0", lambda it: it[:-KEY_BYTES], lambda it: it + bytes(KEY_BYTES),
        lambda it: it[: BLOCK.size + RUN.size], lambda it: it[: BLOCK.size], lambda it: it[:8] + bytes(4) + it[12:],
        lambda it: it[:8] + b"\2" + it[9:], lambda it: it[:8] + b"\1\1" + it[10:],
        lambda it: it[:8] + b"\xff" * 4 + it[12:],
        lambda it: it[:8] + bytes(3) + b"\x80" + it[12:],
    ]):
        delivery = awaited(app, SMALL, segments_max=1)
        first, second, *_ = delivery.rest()
        delivery.put(first)
        delivery.put_block(change(second.block()), second.contents)
        expect_end(app, delivery, n, AGAINST_THE_RULES)
    still_serves(world)


def frames_of_too_much(world):
    """Segments, bytes of them, and files. As much as may be in a frame is taken."""
    _, app, channel = pair(world)
    channel.close()
    tiny = [(f"/{n}", b"%d" % n) for n in range(300)]
    zeros = [(f"/{n}", b"\0") for n in range(300)]
    grains = [("/large", os.urandom(80 * GRAIN_BYTES))]
    for files, count, wanted in [
        (tiny, 256, None), (tiny, 257, DAMAGED), (tiny, 300, DAMAGED), (grains, 64, None), (grains, 65, DAMAGED),
        (grains, 80, DAMAGED), (zeros, 256, None), (zeros, 257, AGAINST_THE_RULES), (zeros, 300, AGAINST_THE_RULES),
    ]:
        delivery = awaited(app, files)
        end, parts, filled = 0, [], 0
        for file, grain, length in list(delivery.layout.grains(0))[:count]:
            part = files[file][1][grain * GRAIN_BYTES :][:length].rstrip(b"\0")
            parts += [(file, grain, part)] if part else []
            end, filled = end + length, filled + len(part)
        delivery.put(Frame.of(end, parts, TAG_FINAL if end == delivery.byte_count else TAG_MESSAGE))
        if wanted is None:
            delivery.stops_after = None
            delivery.channel.pump()
            delivery.wait("committed")
            expect((delivery.frames, delivery.damaged), (2, []))
            expect_echo(delivery, files)
            abandon_all(app)
        else:
            expect_end(app, delivery, count, wanted)
    still_serves(world)


def more_segments_than_were_offered(world):
    """Not one byte more is taken, over all streams of the delivery; fewer are."""
    _, app, channel = pair(world)
    channel.close()
    for files, stops in [(SMALL, None), (LARGE, 1 << 20)]:
        for more in (-1, 0, 1):
            delivery = request(app, files)
            delivery.stored_byte_count += more
            delivery.segments_max = 1
            if stops:
                delivery.stops_after = stops
                delivery.offer(app.connect(VICTIM)).wait("accepted")
                app.loop.until(lambda: delivery.received > 0, what="some of it")
                abandon_all(app)
                delivery.events.clear()
            delivery.stops_after = None
            delivery.offer(app.connect(VICTIM))
            if more < 0:
                delivery.wait("refused", "committed")
                expect((stops, delivery.failure and delivery.failure["error"]), (stops, INVALID_PARAMS))
            else:
                delivery.wait("committed")
                expect_echo(delivery, files)
            abandon_all(app)
    # None at all, and as many as no disk has.
    for stored, error in [(0, INVALID_PARAMS), ((1 << 62) - 1, NO_SPACE)]:
        delivery = request(app, SMALL)
        delivery.stored_byte_count = stored
        delivery.offer(app.connect(VICTIM)).wait("refused", "committed")
        expect((stored, delivery.failure and delivery.failure["error"]), (stored, error))
        abandon_all(app)
    for files, stored in [(SMALL, 1 << 62), ([("/empty", b"")], 1)]:
        delivery = request(app, files)
        delivery.stored_byte_count = stored
        delivery.offer(app.connect(VICTIM))
        expect(ending(delivery.channel.connection), MALFORMED)
    still_serves(world)


def tags_that_may_not_come(world):
    _, app, channel = pair(world)
    channel.close()
    # The end without FINAL, with nothing behind it; FINAL before it; and those that no frame has.
    spoiled(app, [one(at=at, tag=tag) for at, tag in [(4, TAG_MESSAGE), (0, TAG_FINAL), (3, TAG_FINAL)]])
    unknown = [(1, 1), (1, 2), (4, 1), (4, 2), (2, 4), (2, 255)]
    spoiled(app, [one(at=at, tag=tag) for at, tag in unknown], DAMAGED)
    still_serves(world)


def blocks_that_do_not_open(world):
    _, app, channel = pair(world)
    channel.close()

    def bit(at):
        return lambda it, blocks: [blocks[0], blocks[1][:at] + bytes([blocks[1][at] ^ 1]) + blocks[1][at + 1 :]]

    def header(it, blocks):
        return [bytes([blocks[0][0] ^ 1]) + blocks[0][1:]]

    def another_key(it, blocks):
        stream = SecretStream(os.urandom(KEY_BYTES))
        return [stream.header + stream.seal(bytes(len(blocks[0]) - HEADER_BYTES - 17), TAG_MESSAGE)]

    def header_again(it, blocks):
        return [blocks[0], it.sealing.header + blocks[1]]

    for n, change in enumerate([
        bit(0), bit(5), bit(-1), bit(-17), header, another_key, header_again,
        lambda it, blocks: [blocks[0], blocks[0][HEADER_BYTES:]], lambda it, blocks: [blocks[0], blocks[2]],
        lambda it, blocks: [blocks[0][HEADER_BYTES:]], lambda it, blocks: [blocks[0], blocks[1][:-1]],
        lambda it, blocks: [blocks[0], os.urandom(BLOCK_MIN)],
    ]):
        delivery = awaited(app, SMALL, segments_max=1)
        frames = delivery.rest()
        blocks = [delivery.sealing.seal(it.block(), it.tag) for it in frames]
        blocks[0] = delivery.sealing.header + blocks[0]
        for block, it in zip(change(delivery, blocks), frames):
            delivery.channel.send_frame(delivery.stream, block, it.contents)
        expect_end(app, delivery, n, DAMAGED)
    still_serves(world)


def frames_of_impossible_lengths(world):
    _, app, channel = pair(world)
    channel.close()
    least, most = BLOCK_MIN + HEADER_BYTES, BLOCK_MAX + HEADER_BYTES
    for length in [0, 1, 17, BLOCK_MIN - 1, least - 1, most + 1, 1 << 31, (1 << 32) - 1]:
        closes(app, lambda it, n=length: it.channel.send_bulk(FRAME.pack(it.stream, n, 0) + bytes(100)), DAMAGED)

    def behind(block_length, contents_length):
        def act(delivery):
            delivery.put(delivery.next_frame())
            delivery.channel.send_bulk(FRAME.pack(delivery.stream, block_length, contents_length) + bytes(100))

        return act

    for length in [0, BLOCK_MIN - 1, BLOCK_MAX + 1, BLOCK_MAX + HEADER_BYTES, 1 << 20, (1 << 32) - 1]:
        closes(app, behind(length, 0), DAMAGED)
    for length in [CONTENTS_MAX + 1, 1 << 24, (1 << 31) - 1]:
        closes(app, behind(BLOCK_MIN, length), DAMAGED)
    still_serves(world)


def streams_that_are_none(world):
    """Numbers that were not announced, and a frame behind the one that is tagged FINAL."""
    _, app, channel = pair(world)
    channel.close()
    block = os.urandom(BLOCK_MIN + HEADER_BYTES)
    for number in (2, 77, (1 << 32) - 1):
        closes(app, lambda it, n=number: it.channel.send_frame(n, block, b""), DAMAGED)
    delivery = awaited(app, SMALL)
    other = awaited(app, LARGE, delivery.channel)
    for it in delivery.rest():
        delivery.put(it)
    delivery.put_block(bytes(BLOCK.size))
    expect(ending(delivery.channel.connection), DAMAGED)
    arrives(app, other)
    still_serves(world)


def frames_that_are_cut(world):
    """The end of the lane within a frame, and between frames, breaks the channel; what is whole goes on from there."""
    _, app, channel = pair(world)
    channel.close()
    for byte_count in (1, 60, 10_000):
        delivery = awaited(app, SMALL, segments_max=1)
        send = delivery.channel.send_bulk
        delivery.put(delivery.next_frame())
        delivery.channel.send_bulk = lambda data, to=send, n=byte_count: to(data[:n])
        delivery.put(delivery.next_frame())
        delivery.channel.end_delivering()
        # However it says so: whoever is told takes the channel for broken.
        assert ending(delivery.channel.connection) in ("end", 0, LOST), delivery.channel.connection.ending
        arrives(app, delivery)
    still_serves(world)


def frames_beyond_the_credit(world):
    """What was taken back raises no credit any more: one frame beyond it is too many, though it is skipped."""
    _, app, channel = pair(world)
    channel.close()
    zeros = [("/zeros", bytes(6000 * GRAIN_BYTES))]
    for more in (0, 1):
        channel = app.connect(VICTIM)
        delivery = awaited(app, zeros, channel)
        credit, stream = delivery.credit, delivery.stream
        assert 1 <= credit < 1000, credit
        delivery.cancel()
        delivery.wait("cancelled")
        other = awaited(app, SMALL, channel)
        for n in range(credit + more):
            channel.send_frame(stream, os.urandom(BLOCK_MIN + (0 if n else HEADER_BYTES)), b"")
        if more:
            expect(ending(channel.connection), LIMIT)
            arrives(app, other)
        else:
            other.stops_after = None
            channel.pump()
            other.wait("committed")
            abandon_all(app)
    still_serves(world)


def more_frames_than_are_taken_at_once(world):
    """All of them in one piece, before the receiver has said that they may come: it is in time for all, or closes."""
    process, app, channel = pair(world)
    channel.close()
    before = process.bytes()
    for files, segments_max in [([("/zeros", bytes(3000 * GRAIN_BYTES))], 1), (LARGE, 1), (LARGE, 10), (LARGE, 14)] * 2:
        delivery = awaited(app, files, segments_max=segments_max)
        sent, send = bytearray(), delivery.channel.send_bulk
        delivery.channel.send_bulk = sent.extend
        if files == LARGE:
            for it in delivery.rest():
                delivery.put(it)
        else:
            # A hole in each.
            for n in range(1, 3001):
                delivery.put(Frame(n * GRAIN_BYTES, tag=TAG_FINAL if n == 3000 else TAG_MESSAGE))
        send(sent)
        how = how_it_ended(delivery)
        assert how in (LIMIT, "committed"), how
        if how == LIMIT:
            arrives(app, delivery)
        abandon_all(app)
    assert process.bytes() - before < 64 << 20
    still_serves(world)


# MARK: Segments that do not open


def other_key(frame):
    frame.keys[-1] = os.urandom(KEY_BYTES)


def swapped_keys(frame):
    frame.keys[0], frame.keys[1] = frame.keys[1], frame.keys[0]


def zero_key(frame):
    frame.keys[1] = bytes(KEY_BYTES)


def zeros(frame):
    frame.contents = bytes(len(frame.contents))


def sealed(**more):
    """The first segment, sealed in another way."""

    def change(frame):
        tag, data = more.get("tag", TAG_FINAL), more.get("data")
        part = seal_segment(frame.keys[0], bytes(GRAIN_BYTES), tag, data)
        frame.contents = part + frame.contents[len(part) :]

    return change


def shifted(frame):
    """The same bytes, one further on."""
    frame.contents = frame.contents[-1:] + frame.contents[:-1]


SPOILED = [
    damage, lambda it: damage(it, 0), lambda it: damage(it, 3), other_key, swapped_keys, zero_key, zeros, shifted,
    sealed(tag=TAG_MESSAGE), sealed(tag=1), sealed(data=associated_data(GRAIN_BYTES - 1)), sealed(data=b"OD1-segment"),
    sealed(data=associated_data(GRAIN_BYTES)[:16] + bytes(8)),
]


def first_that_does_not_open(frame, delivery):
    """Its position."""
    offset = 0
    for (file, grain, length), key in zip(frame.segments(), frame.keys):
        stored = frame.contents[offset : offset + length + SEGMENT_EXTRA]
        offset += len(stored)
        if open_segment(key, stored) is None:
            return delivery.layout.position(file, grain)
    return None


def a_segment_that_does_not_open(world):
    """The app asks for it once, with its position; then all of it arrives. It keeps what came before that frame."""
    _, app, channel = pair(world)
    for has_memory in (False, True):
        if has_memory:
            channel.give_memory(2)
        for n, change in enumerate(SPOILED):
            delivery = request(app, SMALL)
            # In the first frame, and all in one, which is tagged FINAL.
            delivery.segments_max = 4 if n % 2 or n == 2 else 5
            wrong = []

            def spoil(number, frame, it=delivery, how=change, found=wrong):
                if number == 0:
                    how(frame)
                    found.append(first_that_does_not_open(frame, it))

            delivery.change = spoil
            delivery.offer(channel).wait("committed")
            expect((n, delivery.damaged, delivery.resumed_from), (n, wrong, 0))
            expect_echo(delivery, SMALL)
    still_serves(world)


def two_segments_that_do_not_open(world):
    """The second one closes the channel, whichever it is; nothing has arrived. Each offer may have one."""
    _, app, channel = pair(world)
    channel.close()
    for has_memory in (False, True):
        for later in range(5):
            delivery = request(app, SMALL)
            delivery.segments_max, delivery.stops_after = 1, 0
            with_a_damaged_frame(delivery, app.connect(VICTIM), has_memory)
            put_until(delivery, [damage(it) if n == later else it for n, it in enumerate(delivery.rest())], has_memory)
            expect((later, ending(delivery.channel.connection)), (later, DAMAGED))
            abandon_all(app)
            # Over the next channel it asks again.
            with_a_damaged_frame(delivery, app.connect(VICTIM), has_memory)
            delivery.stops_after = None
            delivery.channel.pump()
            delivery.wait("committed")
            expect_echo(delivery, SMALL)
            abandon_all(app)
    still_serves(world)


def with_a_damaged_frame(delivery, channel, has_memory):
    """Offers it, damages the next frame, and waits until the app has asked for it again."""
    delivery.events.clear()
    delivery.offer(channel).wait("accepted")
    if has_memory:
        channel.give_memory(1)
    begin, (first, *others) = delivery.position, delivery.rest()
    put_until(delivery, [damage(first), *others], has_memory)
    delivery.wait("damaged")
    expect((delivery.damaged, delivery.resumed_from), ([begin], begin))


def put_until(delivery, frames, is_in_slot, seconds=0):
    """Sends frames of the stream that is under way, some time after one another, while that and the channel are there.
    The receiver may work on several at once, and may see with a later one that one does not open."""
    stream, channel = delivery.stream, delivery.channel
    for frame in frames:
        channel.loop.pause(seconds)
        channel.loop.until(
            lambda: not is_in_slot or not channel.given.is_full or not channel.is_open or delivery.stream != stream)
        if not channel.is_open or delivery.stream != stream:
            return
        delivery.put(frame, is_in_slot)


def what_follows_a_damaged_segment(world):
    """Comes in vain: it is skipped unopened, whatever it is, and the stream that was asked for counts."""
    _, app, channel = pair(world)
    for has_memory in (False, True):
        if has_memory:
            channel.give_memory(2)
        delivery = awaited(app, SMALL, channel, 1)
        first, second, third, fourth, _ = delivery.rest()
        stream = delivery.stream
        put_until(delivery, [first, damage(second), third, fourth], has_memory, seconds=0.2)
        delivery.wait("damaged")
        expect((delivery.damaged, delivery.resumed_from, delivery.stream > stream), ([ENDS[0]], ENDS[0], True))
        # What no longer counts may be of any block and contents.
        for contents in (b"", os.urandom(100), os.urandom(CONTENTS_MAX)):
            world.loop.until(lambda: not has_memory or not channel.given.is_full)
            channel.send_frame(stream, os.urandom(BLOCK_MAX), contents, has_memory and bool(contents))
        delivery.stops_after = None
        channel.pump()
        delivery.wait("committed")
        expect_echo(delivery, SMALL)
    still_serves(world)


def what_follows_a_message_that_was_taken_back(world):
    """Is skipped as well, unopened."""
    _, app, channel = pair(world)
    delivery = awaited(app, SMALL, channel, 1)
    stream = delivery.stream
    delivery.put(delivery.next_frame())
    delivery.cancel()
    delivery.wait("cancelled")
    for _ in range(3):
        channel.send_frame(stream, os.urandom(BLOCK_MIN + HEADER_BYTES), os.urandom(1000))
    # So that the lane is read.
    other = request(app, SMALL).offer(channel)
    other.wait("committed")
    expect_echo(other, SMALL)
    # But it may not be of impossible lengths.
    delivery = awaited(app, SMALL, channel)
    stream = delivery.stream
    delivery.cancel()
    delivery.wait("cancelled")
    channel.send_bulk(FRAME.pack(stream, BLOCK_MIN - 1, 0) + bytes(100))
    other = request(app, SMALL).offer(channel)
    expect(ending(channel.connection), DAMAGED)
    arrives(app, other)
    still_serves(world)


def lists_that_cannot_be(world):
    """In an offer, as on a page."""
    _, app, channel = pair(world)
    channel.close()
    file = {"path": b"/a", "byte_count": 1, "modified": 1, "permissions": 0o600}

    def offer(**fields):
        delivery = request(app, [("/a", b"1"), ("/b", b"2")])
        app.says = {"offer": changed(**fields)}
        delivery.offer(app.connect(VICTIM))
        app.says = {}
        return delivery

    for n, files in enumerate([
        [file] * 3, [{**file, "path": b"a"}], [{**file, "path": b""}], [{**file, "path": b"/a\0"}],
        [{**file, "path": b"/a//b"}], [{**file, "path": b"/" + b"n" * 256}], [{**file, "byte_count": 3}],
        [{**file, "permissions": 0o10000}],
    ]):
        delivery = offer(files=files)
        expect((n, ending(delivery.channel.connection)), (n, MALFORMED))
        abandon_all(app)
    # More than a page has, though not more than there are.
    delivery = offer(files=[{**file, "path": b"/%d" % n} for n in range(257)], file_count=300, byte_count=300, request={
        **delivery.request, "attachments": 300})
    expect(ending(delivery.channel.connection), MALFORMED)
    abandon_all(app)
    # Sizes that add up to more than the offer says, and to less.
    for files in ([{**file, "byte_count": 2}, file], [file, {**file, "path": b"/b", "byte_count": 0}]):
        delivery = offer(files=files)
        delivery.wait("refused")
        expect((delivery.failure or {}).get("error"), INVALID_PARAMS)
        delivery.channel.close()
        abandon_all(app)
    still_serves(world)


# MARK: As the receiver


def owed(app, files=None):
    """A delivery that has arrived, whose reply the victim offers over each channel."""
    app.says, app.reads_lists = {"manifest_wanted": lambda *_: None}, False
    delivery = request(app, files).offer(app.connect(VICTIM))
    delivery.wait("committed")
    abandon_all(app)
    app.says, app.reads_lists = {}, True
    return delivery


def answered(app, kind, say):
    """Over a new channel `say` takes the place of this message about the reply; returns the channel. The app reads no
    more of its bulk lane."""
    found = []

    def act(channel, body):
        channel.loop.forget(channel.bulk)
        found.append(channel)
        app.says = {}
        return say(channel, body)

    # Who takes the list from the offer does not ask for it.
    app.says, app.reads_lists = {kind: act}, kind != "manifest_wanted"
    app.connect(VICTIM)
    app.loop.until(lambda: found, what=kind)
    app.reads_lists = True
    return found[0]


def answers(app, cases):
    """Each closes the channel with its error, and the reply arrives all the same."""
    delivery = owed(app)
    for n, (kind, say, number) in enumerate(cases):
        channel = answered(app, kind, say)
        expect((kind, n, ending(channel.connection)), (kind, n, number))
        abandon_all(app)
    app.staged.clear()
    app.connect(VICTIM)
    expect_echo(delivery, FILES)
    abandon_all(app)


def say_first(*messages):
    """The message as it is, but for a credit of one frame, and then others: a kind, and what to change of it."""

    def say(channel, body):
        body = {**body, "credit": 1}
        channel.connection.send({"delivery_accepted": body})
        for kind, fields in messages:
            more = {**body, "stream": body["stream"] + 1} if kind == "delivery_accepted" else {"id": body["id"]}
            channel.connection.send({kind: {**more, **fields}})

    return say


def changed(**fields):
    return lambda _, body: {**body, **fields}


def answers_that_no_receiver_gives(world):
    """To an offer."""
    _, app, channel = pair(world)
    channel.close()
    count = sum(len(contents) for _, contents in FILES)
    none = {"stream": 0, "key": b"", "credit": 0, "resume_from": count}
    answers(app, [("delivery_accepted", say, number) for say, number in [
        (changed(resume_from=count + 1), MALFORMED), (changed(resume_from=(1 << 64) - 1), MALFORMED),
        (changed(resume_from=count), MALFORMED), (changed(**{**none, "stream": 1}), MALFORMED),
        (changed(**{**none, "key": bytes(32)}), MALFORMED), (changed(**{**none, "credit": 1}), MALFORMED),
        (changed(**{**none, "resume_from": 0}), MALFORMED), (changed(key=b""), MALFORMED),
        (changed(key=bytes(31)), MALFORMED), (changed(key=bytes(33)), MALFORMED), (changed(stream=0), MALFORMED),
        (changed(credit=0), MALFORMED), (changed(damaged=1), MALFORMED), (changed(damaged=GRAIN_BYTES), MALFORMED),
        (changed(id=b"u" * 16), UNEXPECTED), (changed(id=b"short"), MALFORMED),
    ]])
    still_serves(world)


def waits_that_cannot_be(world):
    """A receiver that is locked says so once, before anything but that it was put back."""
    _, app, channel = pair(world)
    expect_echo(request(app).offer(channel), FILES)
    channel.close()

    def waits(count, behind=False, id=None):
        def say(channel, body):
            if behind:
                channel.connection.send({"manifest_wanted": body})
            for _ in range(count):
                channel.connection.send({"delivery_waiting": {"id": id or body["id"]}})
            return body

        return say

    answers(app, [("manifest_wanted", say, number) for say, number in [
        (waits(1, id=b"u" * 16), UNEXPECTED), (waits(1, id=b"short"), MALFORMED), (waits(2), UNEXPECTED),
        # The last, because the list may come.
        (waits(1, behind=True), UNEXPECTED),
    ]])
    still_serves(world)


def losses_that_cannot_be(world):
    """What a receiver that was put back says: less than it confirmed, once, before anything else."""
    _, app, channel = pair(world)
    expect_echo(request(app).offer(channel), FILES)
    channel.close()

    def lost(*counts, behind=False, **fields):
        def say(channel, body):
            if behind:
                channel.connection.send({"manifest_wanted": body})
            for count in counts:
                channel.connection.send({"put_back": {"id": body["id"], "count": count, **fields}})
            return body

        return say

    wanted = "manifest_wanted"
    answers(app, [(wanted, say, number) for say, number in [
        (lost(1), MALFORMED), (lost((1 << 64) - 1), MALFORMED), (lost(0, id=b"u" * 16), UNEXPECTED),
        (lost(0, id=b"short"), MALFORMED), (lost(0, 0), UNEXPECTED),
        # The last, because the list may come.
        (lost(0, behind=True), UNEXPECTED),
    ]])
    still_serves(world)


def channels_that_never_last(world):
    """The victim offers its message again and again, after pauses that grow."""
    _, app, channel = pair(world)
    channel.close()
    for error in (DAMAGED, LIMIT):
        delivery = owed(app)
        closed = []

        def close(channel, body):
            channel.connection.send({"delivery_accepted": body})
            progress = {"id": body["id"], "received": GRAIN_BYTES, "credit": body["credit"]}
            channel.connection.send({"delivery_progress": progress})
            closed.append(channel)
            channel.close(error)

        app.says = {"delivery_accepted": close}
        app.connect(VICTIM)
        app.loop.pause(4)
        assert 4 <= len(closed) <= 8, (error, len(closed))
        app.says = {}
        expect_echo(delivery, FILES)
        abandon_all(app)
        app.staged.clear()
    still_serves(world)


def second_and_third_answers(world):
    """A second one without `damaged`, with one that cannot be, or with an old stream; and a third."""
    _, app, channel = pair(world)
    channel.close()
    count = sum(len(contents) for _, contents in FILES)
    again = "delivery_accepted"
    answers(app, [(again, say_first(*messages), number) for messages, number in [
        ([(again, {})], UNEXPECTED), ([(again, {"resume_from": 1})], UNEXPECTED),
        ([(again, {"damaged": count + 1})], MALFORMED), ([(again, {"damaged": count + 2})], MALFORMED),
        ([(again, {"damaged": (1 << 64) - 1})], MALFORMED), ([(again, {"damaged": 1, "resume_from": 1})], MALFORMED),
        ([(again, {"damaged": GRAIN_BYTES + 1, "resume_from": 1 + 2 * GRAIN_BYTES})], MALFORMED),
        ([(again, {"damaged": 1, "stream": 1})], MALFORMED), ([(again, {"damaged": 1, "key": b""})], MALFORMED),
        ([(again, {"damaged": 1, "credit": 0})], MALFORMED),
        ([(again, {"damaged": 1}), (again, {"damaged": 1, "stream": 3})], UNEXPECTED),
        ([(again, {"damaged": 1}), (again, {"stream": 3})], UNEXPECTED),
    ]])
    still_serves(world)


def progress_that_cannot_be(world):
    _, app, channel = pair(world)
    channel.close()
    count = sum(len(contents) for _, contents in FILES)
    said = "delivery_progress"
    instead = [(lambda channel, body: channel.connection.send({said: {"id": body["id"], "credit": 9}}), UNEXPECTED)]
    answers(app, [("delivery_accepted", say, number) for say, number in [
        *instead,
        (say_first((said, {"received": 9, "credit": 1}), (said, {"received": 8, "credit": 1})), MALFORMED),
        (say_first((said, {"credit": 2}), (said, {"credit": 1})), MALFORMED), (say_first((said, {})), MALFORMED),
        (say_first((said, {"received": count + 1, "credit": 2})), MALFORMED),
        (say_first((said, {"received": (1 << 64) - 1, "credit": 2})), MALFORMED),
        (say_first(("delivery_cancelled", {})), UNEXPECTED),
        (say_first(("delivery_refused", {"failure": {"error": 1, "detail": "x" * 4097}})), MALFORMED),
    ]])
    still_serves(world)


def manifests_asked_for_wrongly(world):
    """`FILES` are four, in one page."""
    _, app, channel = pair(world)
    channel.close()

    def twice(channel, body):
        channel.connection.send({"manifest_wanted": body})
        return body

    answers(app, [("manifest_wanted", say, number) for say, number in [
        (changed(**{"from": 4}), MALFORMED), (changed(**{"from": 5}), MALFORMED),
        (changed(**{"from": (1 << 64) - 1}), MALFORMED), (twice, UNEXPECTED),
    ]])
    still_serves(world)


def pages_that_are_missing(world):
    """No stream begins before the last page was sent, and pages follow one another."""
    _, app, channel = pair(world)
    channel.close()
    files = [(f"/many/{i}", str(i).encode()) for i in range(600)]
    delivery = owed(app, files)

    def accept(channel, body):
        more = {"credit": STREAM_CREDIT, "stream": 1, "key": os.urandom(KEY_BYTES)}
        channel.connection.send({"manifest_wanted": body})
        channel.connection.send({"delivery_accepted": {"id": body["id"], **more}})

    def skip(channel, body):
        channel.connection.send({"manifest_wanted": body})
        return {**body, "from": 599}

    for say in (accept, skip):
        channel = answered(app, "manifest_wanted", say)
        expect((say, ending(channel.connection)), (say, UNEXPECTED))
        abandon_all(app)
        app.staged.clear()
    app.connect(VICTIM)
    expect_echo(delivery, files)
    still_serves(world)


def streams_that_begin_inside_of_a_grain(world):
    """The victim gives the delivery up, and says so; all else goes on."""
    _, app, channel = pair(world)
    channel.close()
    count = sum(len(contents) for _, contents in FILES)
    for position in (2, GRAIN_BYTES, GRAIN_BYTES + 2, count - 1, count - 3):
        delivery = owed(app)
        before = len(app.failed)
        channel = answered(app, "delivery_accepted", changed(resume_from=position))
        world.loop.until(lambda: len(app.failed) > before or channel.connection.ending is not None)
        expect((position, channel.connection.ending), (position, None))
        # And nothing else: errors of the runtime are no text.
        expect((position, app.failed[-1]["failure"]), (position, {"error": INVALID_PARAMS}))
        expect(channel.request(SERVICE, SERVICE_VERSION, "echo", position).wait(), position)
        expect(delivery.reply, None)
        abandon_all(app)
        app.staged.clear()
    still_serves(world)


def streams_that_begin_somewhere(world):
    """At each boundary that the page names the victim goes on."""
    _, app, channel = pair(world)
    channel.close()
    count = sum(len(contents) for _, contents in FILES)
    for position in (1, 1 + GRAIN_BYTES, 1 + 192 * GRAIN_BYTES, count - 4):
        delivery = owed(app)
        channels = []

        def from_there(channel, body, at=position, found=channels):
            """It has what came before, as it was sent."""
            app.says = {}
            (arrival,) = channel.arrivals.values()
            arrival.contents[:at] = delivery.contents[:at]
            arrival.position = at
            found.append(channel)
            return {**body, "resume_from": at}

        app.says = {"delivery_accepted": from_there}
        app.connect(VICTIM)
        expect_echo(delivery, FILES)
        (channel,) = channels
        assert len(channel.seen_bulk) < count - position + (count - position) // 50 + 20_000, position
        abandon_all(app)
    # All of it: there is no stream.
    delivery = owed(app)

    def all_of_it(channel, body):
        app.says = {}
        (arrival,) = channel.arrivals.values()
        arrival.contents[:] = delivery.contents
        channel.send("delivery_accepted", {"id": body["id"], "resume_from": count})
        channel.commit(arrival)

    app.says = {"delivery_accepted": all_of_it}
    app.connect(VICTIM)
    expect_echo(delivery, FILES)
    still_serves(world)


def asking_again(app, delivery, position, resume):
    """Over a new channel, for the reply from `resume` on, since what is at `position` did not open. Returns the
    channel."""
    found = []

    def again(channel, body):
        app.says = {}
        (arrival,) = channel.arrivals.values()
        channel.connection.send({"delivery_accepted": {**body, "credit": 1}})
        arrival.contents[:resume] = delivery.contents[:resume]
        arrival.position, arrival.damaged = resume, position
        channel.accept(arrival)
        found.append(channel)

    app.says = {"delivery_accepted": again}
    app.connect(VICTIM)
    app.loop.until(lambda: found, what="an offer")
    return found[0]


def asks_again_for_what_is_not_damaged(world):
    """Wherever it says that a segment did not open: the victim looks, and sends a stream, once. In a hole, too."""
    _, app, channel = pair(world)
    channel.close()
    count = sum(len(contents) for _, contents in FILES)
    sparse = sparse_files()
    for files, position, resume in [
        (FILES, 0, 0), (FILES, 1, 0), (FILES, 1 + 100 * GRAIN_BYTES, 1 + 64 * GRAIN_BYTES),
        (FILES, count - 4, count - 4), (sparse, 0, 0), (sparse, 3 * GRAIN_BYTES, GRAIN_BYTES),
    ]:
        delivery = owed(app, files)
        asking_again(app, delivery, position, resume)
        expect_echo(delivery, files)
        abandon_all(app)
    still_serves(world)


def asks_again_inside_of_a_grain(world):
    """Where no segment begins: the victim gives the delivery up, or closes the channel, and all else goes on."""
    _, app, channel = pair(world)
    channel.close()
    for position, resume in [(2, 0), (GRAIN_BYTES, 0), (GRAIN_BYTES + 2, 1 + GRAIN_BYTES)]:
        delivery = owed(app)
        before = len(app.failed)
        channel = asking_again(app, delivery, position, resume)
        world.loop.until(lambda: len(app.failed) > before or channel.connection.ending is not None)
        assert channel.connection.ending in (None, MALFORMED), channel.connection.ending
        expect(delivery.reply, None)
        abandon_all(app)
        app.staged.clear()
    still_serves(world)


def a_segment_that_is_damaged_on_the_disk(world):
    """The victim passes it on unopened, as it lies there. Asked again it opens it, and says which file is damaged."""
    process, app, channel = pair(world)
    delivery = owed(app)
    # The first frame, and no other one.
    app.credit = 1
    app.says = {"delivery_progress": lambda *_: None}
    channel = app.connect(VICTIM)
    world.loop.until(lambda: app.staged and list(app.staged.values())[0].keys)
    (arrival,) = app.staged.values()
    abandon_all(app)
    app.says, app.credit = {}, STREAM_CREDIT
    stored = arrival.keys[-1][1]
    change_on_disk(f"{world.directory}/{VICTIM}", stored)
    app.staged.clear()
    app.connect(VICTIM)
    world.loop.until(lambda: app.failed, what="DeliveryFailed")
    failure = app.failed[0]["failure"]
    expect((failure["error"], failure.get("detail")), (SOURCE_DAMAGED, arrival.manifest[2]["path"].decode()))
    expect((delivery.reply, process.process.poll()), (None, None))
    still_serves(world)


def change_on_disk(directory, stored):
    """One bit of a stored segment, which has to be in one place."""
    found = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "r+b") as file:
                at = file.read().find(stored)
                if at >= 0:
                    found += 1
                    file.seek(at + len(stored) - 1)
                    file.write(bytes([stored[-1] ^ 1]))
    expect(found, 1)


CHECKS = [
    ends_that_cannot_be, runs_that_cannot_be, runs_out_of_order, contents_of_another_length, blocks_that_are_none,
    frames_of_too_much, more_segments_than_were_offered, tags_that_may_not_come, blocks_that_do_not_open, frames_of_impossible_lengths,
    streams_that_are_none, frames_that_are_cut, frames_beyond_the_credit, more_frames_than_are_taken_at_once,
    lists_that_cannot_be, a_segment_that_does_not_open, two_segments_that_do_not_open, what_follows_a_damaged_segment,
    what_follows_a_message_that_was_taken_back, answers_that_no_receiver_gives, losses_that_cannot_be,
    waits_that_cannot_be, channels_that_never_last, second_and_third_answers,
    progress_that_cannot_be, manifests_asked_for_wrongly, pages_that_are_missing,
    streams_that_begin_inside_of_a_grain, streams_that_begin_somewhere, asks_again_for_what_is_not_damaged,
    asks_again_inside_of_a_grain, a_segment_that_is_damaged_on_the_disk,
]
