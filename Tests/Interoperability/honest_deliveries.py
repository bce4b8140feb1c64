"""Files between an app in Python and one of this project, both ways, and what breaks on the way."""

import os

from attacks_on_an_app import USER, VICTIM, Process
from deliveries import result
from world import SERVICE, SERVICE_VERSION, ending, expect

FILES = [("/folder/empty", b""), ("/folder/one", b"1"), ("/large", os.urandom((3 << 20) + 5)), ("/é", b"last")]


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
    expect([contents for _, contents in delivery.reply_files], [contents for _, contents in files])
    for (path, _), (original, _) in zip(delivery.reply_files, files):
        assert path.startswith("/Inbox/com.example.sender/") and path.endswith(original), path


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


def sends_files_in_shared_memory(world):
    _, app, channel = pair(world)
    assert channel.hello["slots"] >= 3, channel.hello
    channel.give_memory(3)
    for delivery in [request(app).offer(channel), request(app, [("/x", b"y" * 100_000)]).offer(channel)]:
        delivery.wait("committed")
        expect_echo(delivery, delivery.files)
    # Every message of both: that is as many slots, all free again.
    count = sum(-(-len(contents) // 65_536) for contents in (b"".join(c for _, c in FILES), b"y" * 100_000))
    expect((channel.given.used, channel.given.freed), (count, count))


def takes_files_in_shared_memory(world):
    _, app, channel = pair(world, slots=2)
    canary = b"canary in the coal mine of memory"
    files = [("/canary", canary * 70_000), ("/last", b"1")]
    delivery = request(app, files).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, files)
    assert channel.taken.used > 30, channel.taken.used
    assert len(channel.seen_bulk) > len(delivery.contents)
    expect(canary in channel.seen_bulk, False)
    # Small ones come beside it, or in it.
    small = request(app, [("/x", b"y")]).offer(channel)
    small.wait("committed")
    expect_echo(small, [("/x", b"y")])


def sends_many_files_page_after_page(world):
    _, app, channel = pair(world)
    files = [(f"/many/{i}", str(i).encode()) for i in range(1000)]
    delivery = request(app, files).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, files)


def goes_on_where_a_channel_broke(world):
    _, app, channel = pair(world)
    delivery = request(app)
    delivery.stops_after = 2 << 20
    delivery.offer(channel).wait("accepted")
    world.loop.until(lambda: delivery.position >= 2 << 20)
    # What is kept is whole units.
    world.loop.pause(0.5)
    channel.close()
    delivery.events.clear()
    delivery.stops_after = None
    delivery.offer(app.connect(VICTIM)).wait("committed")
    assert 1 << 20 <= delivery.resumed_from <= 2 << 20, delivery.resumed_from
    expect_echo(delivery, FILES)


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
        app.incarnation = os.urandom(16)
        app.unsettled.add(delivery.number)
        delivery.events.clear()
        # On the same channel.
        delivery.offer(channel).wait("committed")
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
    huge.byte_count = 1 << 60
    huge.page = lambda begin: {
        "id": huge.id, "from": begin, "files": [{"path": b"/huge", "byte_count": 1 << 60, "permissions": 0o600}]}
    huge.offer(channel).wait("refused")
    expect(huge.failure["error"], 22)
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", 4).wait(), 4)


def says_that_no_reply_comes(world):
    _, app, channel = pair(world)
    delivery = request(app, method="nothing").offer(channel)
    delivery.wait("ended")
    channel.send("reply_inquiry", {"id": delivery.id})
    delivery.wait("awaited False")


def shows_nothing_in_the_clear(world):
    _, app, channel = pair(world)
    canary = b"canary in the coal mine of files"
    delivery = request(app, [("/canary", canary * 40_000)]).offer(channel)
    delivery.wait("committed")
    expect_echo(delivery, delivery.files)
    assert len(channel.seen_bulk) > len(delivery.contents)
    expect(canary in channel.seen_bulk, False)


def closes_both_lanes_for_what_does_not_open(world):
    _, app, channel = pair(world)
    delivery = request(app)
    delivery.damages = True
    delivery.offer(channel)
    expect(ending(channel.connection), 111)
    again = app.connect(VICTIM)
    delivery.damages = False
    delivery.events.clear()
    delivery.offer(again).wait("committed")
    expect_echo(delivery, FILES)


CHECKS = [
    sends_files_and_gets_them_back, sends_files_in_shared_memory, takes_files_in_shared_memory,
    sends_many_files_page_after_page, goes_on_where_a_channel_broke, arrives_once,
    starts_anew_when_its_numbers_are_taken, takes_a_message_back, refuses_what_it_does_not_take,
    says_that_no_reply_comes, shows_nothing_in_the_clear, closes_both_lanes_for_what_does_not_open,
]
