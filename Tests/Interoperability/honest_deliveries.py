"""Files between an app in Python and one of this project, both ways, and what breaks on the way."""

import os

from attacks_on_an_app import USER, VICTIM, Process
from deliveries import result
from frames import GRAIN_BYTES, SEGMENT_EXTRA, TAG_FINAL, Frame, associated_data, open_segment
from world import SERVICE, SERVICE_VERSION, ending, expect

FILES = [("/folder/empty", b""), ("/folder/one", b"1"), ("/large", os.urandom((3 << 20) + 5)), ("/é", b"last")]
LARGE = [("/large", os.urandom((2 << 20) + 1))]


def pair(world, slots=0):
    process = Process(world)
    app = world.app("sender", user=USER)
    app.slots = slots
    return process, app, app.connect(VICTIM)


def request(app, files=None, method="echo", params="hello"):
    return app.delivery(FILES if files is None else files, SERVICE, SERVICE_VERSION, method, params)


def expect_echo(delivery, files):
    """The app sends everything back: the same contents in the same order, from its inbox."""
    expect(result(delivery.wait_reply()), "hello")
    expect_contents(delivery.reply_files, files)
    for (path, _), (original, _) in zip(delivery.reply_files, files):
        assert path.startswith("/Inbox/com.example.sender/") and path.endswith(original), path


def expect_contents(found, files):
    expect(len(found), len(files))
    for n, ((_, contents), (_, original)) in enumerate(zip(found, files)):
        # Without a page full of bytes when they differ.
        assert contents == original, f"file {n} is another: {len(contents)} bytes, of {len(original)}"


def sparse_files():
    """Holes, zeros at the ends of grains, and sizes around those of grains and of frames."""
    grain = os.urandom(GRAIN_BYTES)
    sizes = [GRAIN_BYTES - 1, GRAIN_BYTES, GRAIN_BYTES + 1, 64 * GRAIN_BYTES, 64 * GRAIN_BYTES + 1]
    return [
        ("/zeros", bytes(10 << 20)), ("/end", bytes(3 * GRAIN_BYTES) + b"x"), ("/zero", b"\0"),
        ("/short", b"a" + bytes(GRAIN_BYTES - 1) + b"b" + bytes(GRAIN_BYTES - 1) + grain + bytes(5)),
        ("/middle", grain + bytes(20 * GRAIN_BYTES) + grain + bytes(GRAIN_BYTES // 2)),
        *[(f"/{size}", os.urandom(size)) for size in sizes], ("/empty", b""), ("/last", bytes(100_000)),
    ]


# MARK: Python and Python


def opens_the_segment_of_the_page(_):
    """The worked example of FILE-FORMAT.md."""
    key = bytes.fromhex("71799e2d711a5dbf3e55c7fb50a5ef135e5bfc8b711116074ef29e0eefad8297")
    stored = bytes.fromhex(
        "5a1bc449a495054fdceb6277e9524dd24d6ebe0528269249" "0f" "0e" "ff738c526ce6533481e93d8d9b41cb05")
    expect(associated_data(1).hex(), "4f44312d7365676d656e7400000000000100000000400000")
    expect(open_segment(key, stored), b"\xf9")
    for at in range(len(stored)):
        expect((at, open_segment(key, stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])), (at, None))


def between_two_apps_in_python(world):
    """The client agrees with itself: in memory and beside it, in small frames, with holes, damage and breaks."""
    one, two = world.app("one"), world.app("two")
    two.slots = 3
    arrived = 0

    def expect_arrival(files):
        nonlocal arrived
        arrived += 1
        world.loop.until(lambda: len(two.arrived) == arrived)
        expect_contents(two.arrived[-1][1], files)

    channel = one.connect(two.app_id)
    for has_memory in (False, True):
        if has_memory:
            channel.give_memory(2)
        for files in (FILES, sparse_files(), [(f"/{n}", b"%d" % n) for n in range(700)], [("/empty", b"")]):
            for spoils in (None, lambda arrival: arrival.damaged is None and arrival.position > 100):
                two.spoils = spoils
                delivery = request(one, files).offer(channel)
                delivery.wait("committed")
                expect_arrival(files)
    two.spoils, two.credit = None, 1
    delivery = request(one, LARGE)
    delivery.segments_max = 5
    delivery.uses_slot = lambda n: n % 2
    delivery.offer(channel).wait("committed")
    expect_arrival(LARGE)
    expect(delivery.frames, -(-(len(LARGE[0][1])) // (5 * GRAIN_BYTES)))
    expect((channel.given.freed, channel.given.used > 30), (channel.given.used, True))
    delivery = request(one)
    delivery.stops_after = 1 << 20
    delivery.offer(channel)
    world.loop.until(lambda: delivery.position > 1 << 20 and delivery.received == delivery.position)
    channel.close()
    channel = one.connect(two.app_id)
    delivery.stops_after = None
    delivery.offer(channel).wait("committed")
    assert delivery.resumed_from > 1 << 20
    expect_arrival(FILES)
    two.spoils = lambda arrival: True
    request(one, LARGE).offer(channel)
    expect(ending(channel.connection), 111)

# MARK: As the sender


def sends_files_and_gets_them_back(world):
    _, app, channel = pair(world)
    first, second = request(app).offer(channel), request(app, [("/x", b"y" * 100_000)]).offer(channel)
    for delivery, files in [(first, FILES), (second, [("/x", b"y" * 100_000)])]:
        delivery.wait("committed")
        expect(delivery.resumed_from, 0)
        expect_echo(delivery, files)
    # A request in between is not held up, and files that are empty need no stream.
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)
    empty = request(app, [("/a/empty", b"")]).offer(channel)
    empty.wait("committed")
    expect_echo(empty, [("/a/empty", b"")])


def lists_files_in_offers(world):
    """All, some or none of the files. The app lists all files of a short list, and of a long one none."""
    _, app, channel = pair(world)
    long_names = [(f"/{'n' * 255}/{'m' * 250}{n}", b"x") for n in range(9)]
    for files, listed, asked, was_listed in [
        (FILES, 4, [], 4), (FILES, 2, [2], 4), (FILES, 0, [0], 4), ([("/x", b"y")], 1, [], 1),
        ([(f"/many/{n}", b"z") for n in range(16)], 16, [], 16), ([(f"/many/{n}", b"z") for n in range(17)], 5, [5], 0),
        # More than 4 KiB; and two pages behind as many files as an offer may bring.
        (long_names, 9, [], 0), ([(f"/many/{n}", b"") for n in range(600)], 256, [256, 512], 0),
    ]:
        delivery = request(app, files)
        delivery.listed_count = listed
        expect_echo(delivery.offer(channel), files)
        expect((delivery.asked, app.was_listed), (asked, was_listed))


def sends_holes_and_files_of_many_sizes(world):
    """What is not named is zeros, and the app does not send it either."""
    _, app, channel = pair(world)
    files = sparse_files()
    delivery = request(app, files).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, files)
    # The app's offer stated what came.
    expect(*delivery.reply_stored)
    # What is a hole comes back as one.
    written = sum(len(c.rstrip(b"\0")) for name, c in files if name not in ("/zeros", "/last", "/end", "/middle"))
    byte_count = written + 4 * GRAIN_BYTES
    assert len(channel.seen_bulk) < byte_count + byte_count // 50 + (1 << 16), (len(channel.seen_bulk), byte_count)


def sends_a_file_that_is_larger_than_the_disk(world):
    """Its hole takes no room."""
    _, app, channel = pair(world)
    byte_count = 1 << 53
    delivery = request(app, [("/huge", b"")], method="nothing")
    delivery.byte_count, delivery.stored_byte_count = byte_count, 4 + SEGMENT_EXTRA
    file = {"path": b"/huge", "byte_count": byte_count, "permissions": 0o600}
    delivery.page = lambda begin: {"id": delivery.id, "from": begin, "files": [file]}
    delivery.stops_after = 0
    delivery.offer(channel).wait("accepted")
    delivery.put(Frame.of(byte_count, [(0, byte_count // GRAIN_BYTES - 1, b"last")], TAG_FINAL))
    delivery.wait("committed")
    delivery.wait("ended")


def sends_many_files_in_few_frames(world):
    """As many as a frame may reach into, and page after page of them."""
    _, app, channel = pair(world)
    files = [(f"/many/{i}", str(i).encode() if i % 50 else b"") for i in range(1000)]
    delivery = request(app, files).offer(channel)
    delivery.wait("committed")
    expect(delivery.frames, 4)
    expect_echo(delivery, files)
    assert len(channel.seen_frames) <= 20, len(channel.seen_frames)


def sends_frames_of_few_segments(world):
    """As many frames as segments: all of them wait for credit."""
    _, app, channel = pair(world)
    for segments_max, count in [(1, 195), (7, 28)]:
        delivery = request(app)
        delivery.segments_max = segments_max
        delivery.offer(channel).wait("committed")
        expect(delivery.frames, count)
        expect_echo(delivery, FILES)


def sends_files_in_shared_memory(world):
    _, app, channel = pair(world)
    assert channel.hello["slots"] >= 3, channel.hello
    channel.give_memory(3)
    deliveries = [request(app).offer(channel), request(app, [("/x", b"y" * 100_000)]).offer(channel)]
    for delivery in deliveries:
        delivery.wait("committed")
        expect_echo(delivery, delivery.files)
    # Every frame of both: that is as many slots, all free again.
    count = sum(delivery.frames for delivery in deliveries)
    world.loop.until(lambda: channel.given.freed == count)
    expect(channel.given.used, count)
    # Small ones fill one all the same, and holes need none.
    for files, more in [(sparse_files(), 2), ([(f"/{n}", b"%d" % n) for n in range(600)], 3), ([("/0", bytes(9))], 0)]:
        before = channel.given.used
        delivery = request(app, files).offer(channel)
        delivery.wait("committed")
        expect_echo(delivery, files)
        assert before + more <= channel.given.used <= before + delivery.frames, channel.given.used


def goes_on_where_a_channel_broke(world):
    _, app, channel = pair(world)
    delivery = request(app)
    delivery.segments_max = 16
    delivery.stops_after = 2 << 20
    delivery.offer(channel).wait("accepted")
    world.loop.until(lambda: delivery.position >= 2 << 20)
    world.loop.pause(0.5)
    channel.close()
    delivery.events.clear()
    delivery.stops_after = None
    delivery.offer(app.connect(VICTIM)).wait("committed")
    # The receiver's choice, but it has kept something.
    assert 1 << 20 <= delivery.resumed_from <= (2 << 20) + 16 * GRAIN_BYTES, delivery.resumed_from
    expect(delivery.layout.is_boundary(delivery.resumed_from), True)
    expect_echo(delivery, FILES)


def sends_a_segment_again_that_did_not_open(world):
    """The app asks once for a stream from the frame of that segment on, and all of the message arrives."""
    _, app, channel = pair(world)
    for has_memory in (False, True):
        if has_memory:
            channel.give_memory(2)
        # One in the first frame, in between, and in the one that is tagged FINAL.
        for number in (0, 5, 12):
            delivery = request(app)
            delivery.segments_max = 16
            wanted = []

            def spoil(n, frame, it=delivery, which=number, found=wanted):
                if n == which:
                    found += [it.position, it.layout.position(*[list(segment)[:2] for segment in frame.segments()][-1])]
                    frame.contents = frame.contents[:-1] + bytes([frame.contents[-1] ^ 1])

            delivery.change = spoil
            delivery.offer(channel).wait("committed")
            expect((number, delivery.damaged), (number, wanted[1:]))
            expect(delivery.resumed_from, wanted[0])
            expect_echo(delivery, FILES)


# MARK: As the receiver


def takes_files_in_shared_memory(world):
    _, app, channel = pair(world, slots=2)
    canary = b"canary in the coal mine of memory"
    files = [("/canary", canary * 300_000), ("/last", b"1")]
    delivery = request(app, files).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, files)
    assert channel.taken.used > 5, channel.taken.used
    assert len(channel.seen_bulk) > delivery.byte_count
    expect(canary in channel.seen_bulk, False)
    # Small ones come beside it, or in it.
    small = request(app, [("/x", b"y")]).offer(channel)
    small.wait("committed")
    expect_echo(small, [("/x", b"y")])


def takes_one_frame_at_a_time(world):
    """With a credit of one the app sends a frame, and waits."""
    _, app, channel = pair(world)
    app.credit = 1
    for files in (FILES, sparse_files()):
        delivery = request(app, files).offer(channel)
        delivery.wait("committed")
        expect_echo(delivery, files)


def takes_the_rest_where_a_channel_broke(world):
    """The app goes on where it is told to, and with the same segments under the same keys."""
    _, app, channel = pair(world)
    channels = []

    def only_one_frame(channel, body):
        """And so what follows is not sent before the channel ends."""
        channels.append(channel)
        return {**body, "credit": 1}

    app.says = {"delivery_accepted": only_one_frame, "delivery_progress": lambda *_: None}
    delivery = request(app)
    delivery.offer(channel).wait("committed")
    positions = []
    for _ in range(3):
        world.loop.until(lambda: channels and channels[-1].arrivals)
        (arrival,) = app.staged.values()
        last = positions[-1] if positions else 0
        world.loop.until(lambda: arrival.position > last)
        positions.append(arrival.position)
        channels.pop().close()
        if len(positions) == 3:
            app.says = {}
        app.connect(VICTIM)
    expect_echo(delivery, FILES)
    expect(len({key for key, _ in app.keys}), len(app.keys))


def asks_for_a_segment_again(world):
    """The app looks it up anew, opens it, and sends a stream from there."""
    _, app, channel = pair(world, slots=2)
    for at in (0, 1 << 20, 2 << 20):
        asked = []

        def spoil(arrival, least=at, found=asked):
            if arrival.damaged is None and arrival.position >= least:
                found.append(arrival.position)
                return True
            return False

        app.spoils = spoil
        delivery = request(app).offer(channel)
        delivery.wait("committed")
        expect_echo(delivery, FILES)
        expect(len(asked), 1)
    app.spoils = None
    delivery = request(app).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, FILES)


def sends_each_segment_under_a_key_of_its_own(world):
    """No key twice, in files with the same contents too, and none of them in the clear."""
    _, app, channel = pair(world)
    files = [(f"/{n}", b"the same") for n in range(300)] + [(f"/large{n}", b"again" * 30_000) for n in range(3)]
    for _ in range(2):
        delivery = request(app, files).offer(channel)
        delivery.wait("committed")
        expect_echo(delivery, files)
    count = 2 * sum(-(-len(contents) // GRAIN_BYTES) for _, contents in files)
    expect((len(app.keys), len({key for key, _ in app.keys})), (count, count))
    expect([key for key, _ in app.keys if key in channel.seen_bulk], [])


def takes_a_small_message_beside_a_large_one(world):
    """The app's streams take turns."""
    _, app, channel = pair(world)
    app.credit = 2
    large = request(app, [("/large", os.urandom(8 << 20))]).offer(channel)
    large.wait("committed")
    small = request(app, [("/small", b"s")]).offer(channel)
    small.wait_reply()
    large.wait_reply()
    expect_echo(small, small.files)
    expect_echo(large, large.files)


# MARK: Both


def arrives_once(world):
    _, app, channel = pair(world)
    # As a sender does that did not hear of it.
    app.acknowledges = False
    delivery = request(app).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, FILES)
    before = len(app.arrived)
    channel.close()
    app.unsettled.add(delivery.number)
    delivery.events.clear()
    again = app.connect(VICTIM)
    delivery.offer(again).wait("committed")
    expect("accepted" in delivery.events, False)
    expect(again.request(SERVICE, SERVICE_VERSION, "echo", 2).wait(), 2)
    expect((len(app.arrived), delivery.events), (before, ["committed"]))


def starts_anew_when_its_numbers_are_taken(world):
    _, app, channel = pair(world)
    for acknowledges in [False, True]:
        app.acknowledges = acknowledges
        for _ in range(2):
            request(app).offer(channel).wait("committed")
        # As a sender does that was restored from a copy.
        app.last_number -= 1
        delivery = request(app)
        expect(delivery.offer(channel).wait("committed", "refused"), "refused")
        expect((delivery.failure["error"], "accepted" in delivery.events), (25, False))
        expect(delivery.generation, app.receiver(VICTIM)[0]["generation"])
        app.draw(VICTIM, above=delivery.generation)
        app.unsettled.add(delivery.number)
        delivery.events.clear()
        # On the same channel.
        delivery.offer(channel).wait("committed")
        expect_echo(delivery, FILES)


def hears_that_the_app_was_put_back(world):
    """It does not have what it confirmed, says so once, and goes on."""
    _, app, channel = pair(world)
    request(app).offer(channel).wait("committed")
    known = app.receiver(VICTIM)
    expect(known[1], 1)
    known[1] = 51
    delivery = request(app).offer(channel)
    delivery.wait("committed")
    expect(([event for event in delivery.events if event == "put back"], known[1]), (["put back"], 2))
    expect_echo(delivery, FILES)
    again = request(app).offer(channel)
    again.wait("committed")
    expect("put back" in again.events, False)


def says_that_it_was_put_back(world):
    _, app, channel = pair(world)
    for forgets, count in ((False, 1), (True, 1), (False, 2)):
        if forgets:
            app.senders.clear()
        delivery = request(app).offer(channel)
        delivery.wait("committed")
        expect_echo(delivery, FILES)
        expect((app.told_put_back, len(app.senders[VICTIM].numbers)), (1 if forgets else 0, count))
        app.told_put_back = 0


def waits_until_it_is_unlocked(world):
    """Offers wait over their channel, also longer than *unlock time*, and may be taken back meanwhile."""
    one, two = world.app("one"), world.app("two")
    channel, two.is_locked = one.connect(two.app_id), True
    kept, taken_back = request(one, LARGE).offer(channel), request(one, LARGE).offer(channel)
    for delivery in (kept, taken_back):
        expect(delivery.wait("waiting"), "waiting")
    taken_back.cancel()
    expect(taken_back.wait("cancelled"), "cancelled")
    expect(len(two.arrived), 0)
    two.unlock()
    expect(kept.wait("committed"), "committed")
    # An app of this project, whose reply waits.
    _, app, channel = pair(world)
    app.is_locked = True
    delivery = request(app).offer(channel)
    app.loop.until(lambda: app.held, 20, "the offer of the reply")
    expect((delivery.wait("committed"), delivery.reply), ("committed", None))
    app.unlock()
    expect_echo(delivery, FILES)


def takes_a_message_back(world):
    _, app, channel = pair(world)
    delivery = request(app)
    delivery.stops_after = 1 << 20
    delivery.offer(channel).wait("accepted")
    delivery.cancel()
    expect(delivery.wait("cancelled", "committed"), "cancelled")
    # At once behind its offer, too.
    other = request(app).offer(channel)
    other.cancel()
    expect(other.wait("cancelled", "committed"), "cancelled")
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", 3).wait(), 3)


def refuses_what_it_does_not_take(world):
    _, app, channel = pair(world)
    for method, number in [("none", 6)]:
        delivery = request(app, method=method).offer(channel)
        delivery.wait("refused")
        expect(delivery.failure["error"], number)
    huge = request(app, [("/huge", b"")])
    huge.byte_count = huge.stored_byte_count = 1 << 60
    huge.page = lambda begin: {
        "id": huge.id, "from": begin, "files": [{"path": b"/huge", "byte_count": 1 << 60, "permissions": 0o600}]}
    huge.offer(channel).wait("refused")
    expect(huge.failure["error"], 22)
    # Sizes that do not add up.
    short = request(app, [("/short", b"12345")])
    short.byte_count = 6
    short.offer(channel).wait("refused")
    expect(short.failure["error"], 8)
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", 4).wait(), 4)


def takes_an_error_with_files(world):
    """The app sends the files back with an error."""
    _, app, channel = pair(world)
    delivery = request(app, method="fail").offer(channel)
    error = delivery.wait_reply()["error"]
    expect((error["code"], error["text"]), (-5, "no"))
    expect_contents(delivery.reply_files, FILES)


def says_that_no_reply_comes(world):
    _, app, channel = pair(world)
    delivery = request(app, method="nothing").offer(channel)
    delivery.wait("ended")
    channel.send("reply_inquiry", {"id": delivery.id})
    delivery.wait("awaited False")


def gets_its_reply_of_a_later_process(world):
    """A request with files, and one without that the app keeps: the app dies, and its next process answers."""
    process, app, channel = pair(world)
    delivery = request(app, method="later").offer(channel)
    delivery.wait("committed")
    bare = channel.request(SERVICE, SERVICE_VERSION, "later", 5)
    world.loop.until(lambda: bare.events and bare.events[-1] == "no reply")
    process.process.kill()
    process.process.wait()
    expect(ending(channel.connection), "end")
    process = Process(world)
    channel = app.connect(VICTIM)
    channel.send("reply_inquiry", {"id": delivery.id})
    delivery.wait("awaited True")
    for id, answers in [(delivery.id, "answered"), (bare.id, "answered"), (bytes(16), "not kept")]:
        process.process.stdin.write(f"answer {id.hex()} 7\n")
        process.says(answers)
    expect(result(delivery.wait_reply()), 7)
    expect_contents(delivery.reply_files, FILES)
    world.loop.until(lambda: app.arrived)
    ((offer, files),) = app.arrived
    expect((offer["reply"]["id"], result(offer["reply"]), files), (bare.id, 7, []))
    process.process.stdin.write(f"answer {bare.id.hex()} 8\n")
    process.says("not kept")


def shows_nothing_in_the_clear(world):
    _, app, channel = pair(world)
    canary = b"canary in the coal mine of files"
    delivery = request(app, [("/canary", canary * 40_000)]).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, delivery.files)
    assert len(channel.seen_bulk) > delivery.byte_count
    expect(canary in channel.seen_bulk, False)


CHECKS = [
    opens_the_segment_of_the_page, between_two_apps_in_python, sends_files_and_gets_them_back,
    lists_files_in_offers,
    sends_holes_and_files_of_many_sizes, sends_a_file_that_is_larger_than_the_disk,
    sends_many_files_in_few_frames, sends_frames_of_few_segments, sends_files_in_shared_memory,
    goes_on_where_a_channel_broke, sends_a_segment_again_that_did_not_open, takes_files_in_shared_memory,
    takes_one_frame_at_a_time, takes_the_rest_where_a_channel_broke, asks_for_a_segment_again,
    sends_each_segment_under_a_key_of_its_own, takes_a_small_message_beside_a_large_one, arrives_once,
    starts_anew_when_its_numbers_are_taken,
    hears_that_the_app_was_put_back, says_that_it_was_put_back, waits_until_it_is_unlocked,
    takes_a_message_back, refuses_what_it_does_not_take,
    takes_an_error_with_files, says_that_no_reply_comes, gets_its_reply_of_a_later_process,
    shows_nothing_in_the_clear,
]
