"""What honest programs may rely on: apps in Python, the broker of this project."""

import os
import signal

import keys
from connection import Connection
from messages import SCHEMA
from opendynamics_client import dial, sealed_to_broker
from world import SERVICE, SERVICE_VERSION, echo, ending, expect, refusal

VALUE = {
    "text": "é\0", "integer": -(2**62), "number": 1.5, "truth": True, "nothing": None, "bytes": bytes(range(256)),
    "list": [1, 2, 3], "object": {"": {"deep": ["a"]}}, "empty": {},
}


def pair(world, **more):
    provider = world.app("provider", serve=echo).register((SERVICE, SERVICE_VERSION))
    return provider, world.app("consumer", **more)


def enrols_with_its_key(world):
    app = world.app("one")
    expect((app.enrolled["version"], "policy" in app.enrolled), (1, True))
    tool = world.tool().attend()
    expect((tool.enrolled["version"], "policy" in tool.enrolled), (1, False))
    (listed,) = world.administrator().ask("administer", {"list_apps": {}})["apps"]["apps"]
    expect((listed["provider"]["app_id"], listed["identity"]["activation_user"]), (app.app_id, app.user))
    expect(listed["identity"]["key_fingerprint"], keys.fingerprint(app.key.public))
    # The same key, and no other, is the app's from then on.
    app.close()
    again = world.app("one")
    expect(again.enrolled["version"], 1)


def has_its_keys_in_files(world):
    """The broker's own, its public half beside the socket, and the administrator's."""
    broker = keys.read_private(world.state + "/broker.key")
    expect(keys.read_broker_key(world.path), broker.public)
    for name in ("broker.key", "administrator.key"):
        expect((name, os.stat(f"{world.state}/{name}").st_mode & 0o777), (name, 0o600))
    expect([name for name in os.listdir(world.state) if name.startswith("authority")], [])
    apps = world.administrator().ask("administer", {"list_apps": {}})["apps"]
    expect(apps["broker_fingerprint"], keys.fingerprint(broker.public))
    # They outlive the broker.
    world.stop_broker()
    world.start_broker()
    expect(keys.read_broker_key(world.path), broker.public)
    world.administrator()


def takes_records_of_all_lengths(world):
    """Messages go on in the next record, share one, and begin within one."""
    app = world.app("one")
    questions = bytearray()
    for n in range(1, 9):
        data = SCHEMA.encode("BrokerMessage", {"question": {"number": n, "find": {"includes_own": n == 8}}})
        questions += len(data).to_bytes(4, "little") + data
    app.number = 8
    for byte_count in (1, 3, 7, len(questions)):
        for begin in range(0, len(questions), byte_count):
            app.broker.send_bytes(questions[begin : begin + byte_count])
        for n in range(1, 9):
            app.answer(n)
    # What is longer than a record, both ways.
    icon = b"\x89PNG" + os.urandom((1 << 16) - 4)
    body = {"name": "one", "entitlement_id": app.app_id, "entitlement_version": "1.0.0.0", "icon": icon}
    app.ask("register", {**body, "services": [{"id": SERVICE, "version": SERVICE_VERSION}]})
    (found,) = app.find(includes_own=True, includes_contents=True)
    expect(found["icon"] == icon, True)


def takes_a_first_record_with_the_handshake(world):
    """A client may send its first message as soon as it can seal, in pieces or at once with more."""
    sock, lane = dial(world.path)
    lane.close()
    sealed = sealed_to_broker(world.key("one"), keys.read_broker_key(world.path))
    message = bytes(sealed.outgoing)
    sealed.outgoing.clear()
    for n in range(len(message)):
        sock.sendall(message[n : n + 1])
    connection = Connection(world.loop, sock, sealed, "BrokerMessage")
    world.loop.until(lambda: connection.is_ready)
    attend = SCHEMA.encode("BrokerMessage", {"attend": {"version": 1}})
    find = SCHEMA.encode("BrokerMessage", {"question": {"number": 1, "find": {}}})
    connection.send_bytes(b"".join(len(data).to_bytes(4, "little") + data for data in (attend, find)))
    expect(connection.take("enrolled"), {"version": 1})
    expect(connection.take("answer")["number"], 1)


def finds_who_offers_what(world):
    one = world.app("one").register((SERVICE, SERVICE_VERSION), ("com.example.other", "2.0"))
    two = world.app("two").register((SERVICE, "1.0.0.1"), name="é")
    asker = world.tool().attend()
    expect([p["app_id"] for p in asker.find(service_id=SERVICE)], [one.app_id, two.app_id])
    (found,) = asker.find(service_id=SERVICE, version="1.0.0.1")
    expect((found["app_id"], found["name"], found["state"]), (two.app_id, "é", "RUNNING"))
    expect(asker.find(service_id="com.example.unknown"), [])
    expect([p["app_id"] for p in one.find(service_id=SERVICE)], [two.app_id])
    expect(len(one.find(service_id=SERVICE, includes_own=True)), 2)
    two.ask("unregister", {})
    expect([p["app_id"] for p in asker.find()], [one.app_id])


def finds_the_servers_of_a_provider(world):
    servers = [{"host": "a.example", "port": 443, "priority": 2}, {"host": "::1", "port": 65535, "priority": 65535}]
    provider = world.app("provider")
    services = [{"id": SERVICE, "version": SERVICE_VERSION, "type": "SERVER"}]
    provider.ask("register", {"services": services, "servers": servers})
    (found,) = world.app("consumer").find(type="SERVER")
    expect((found["app_id"], found["servers"]), (provider.app_id, servers))
    for wrong in ({"host": "a b"}, {"host": "é"}, {"host": ""}, {"port": 0}, {"port": 65536}, {"priority": 0}):
        body = {"services": services, "servers": [{**servers[0], **wrong}]}
        expect((wrong, refusal(provider.ask, "register", body)), (wrong, 24))
    expect(refusal(provider.ask, "register", {"services": services, "servers": servers[:1] * 33}), 24)
    (kept,) = world.app("consumer").find(type="SERVER")
    expect(kept["servers"], servers)


def finds_many_page_after_page(world):
    app = world.app("many")
    for n in range(40):
        world.app(f"app{n:02}", key=f"key{n}").register(("com.example.s" + "x" * 50, "1"), name="n" * 250)
    expect(len(app.find()), 40)


def watches_who_comes_and_goes(world):
    tool = world.tool().attend()
    expect(tool.ask("watch", {"service_id": SERVICE}).get("providers", {}).get("providers", []), [])

    def last(app_id):
        for change in reversed(tool.changes):
            for provider in change.get("present", []):
                if provider["app_id"] == app_id:
                    return provider
            if app_id in change.get("gone", []):
                return "gone"
        return None

    one = world.app("one").register((SERVICE, SERVICE_VERSION))
    world.loop.until(lambda: last(one.app_id) and last(one.app_id)["state"] == "RUNNING")
    one.ask("state", {"state": "LOCKED"})
    world.loop.until(lambda: last(one.app_id)["state"] == "LOCKED")
    one.close()
    world.loop.until(lambda: last(one.app_id).get("state", "NOT_RUNNING") == "NOT_RUNNING")
    one = world.app("one")
    one.ask("unregister", {})
    world.loop.until(lambda: last(one.app_id) == "gone")


def exchanges_requests_and_replies(world):
    provider, consumer = pair(world)
    sent = consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "echo", VALUE)
    expect(sent.wait(), VALUE)
    expect(sent.events, ["accepted", "replied"])
    # Over the same channel, and the other way round.
    consumer.serve = echo
    expect(provider.send(consumer.app_id, SERVICE, SERVICE_VERSION, "echo", [1]).wait(), [1])
    expect(len(provider.peers[consumer.app_id].channels), 1)
    failed = consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "fail")
    expect(refusal(failed.wait), 0)
    expect((failed.error["code"], failed.error["text"]), (-5, "no"))
    nothing = consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "nothing")
    world.loop.until(lambda: nothing.is_ended)
    expect(nothing.events, ["accepted", "no reply"])
    for service, version, method, error in [("com.example.no", "1.0.0.0", "echo", 4), (SERVICE, "2", "echo", 5),
                                            (SERVICE, SERVICE_VERSION, "no", 6)]:
        expect(refusal(consumer.send(provider.app_id, service, version, method).wait), error)


def sends_more_requests_than_its_credit(world):
    provider, consumer = pair(world)
    consumer.connect(provider.app_id)
    sent = [consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "echo", n) for n in range(3000)]
    world.loop.until(lambda: all(one.is_ended for one in sent), 60)
    expect([one.result for one in sent], list(range(3000)))


def cancels(world):
    provider, consumer = pair(world)
    waiting = []
    provider.serve = waiting.append
    early = consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "hold")
    world.loop.until(lambda: waiting)
    early.cancel()
    world.loop.until(lambda: early.is_ended)
    expect(early.events, ["cancelled"])
    late = consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "hold")
    world.loop.until(lambda: len(waiting) == 2)
    waiting[1].accept()
    late.wait_accepted()
    late.cancel()
    world.loop.until(lambda: waiting[1].is_cancelled)
    waiting[1].reply("all the same")
    expect(late.wait(), "all the same")


def asks_about_requests_after_a_channel_broke(world):
    provider, consumer = pair(world)
    held = []
    provider.serve = lambda served: (served.accept(), held.append(served))
    handling = consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "hold")
    handling.wait_accepted()
    channel = consumer.peer(provider.app_id).newest
    channel.connection.abandon()
    lost = channel.peer.outgoing[b"never sent......"] = type(handling)(
        channel, {"id": b"never sent......"})
    consumer.connect(provider.app_id)
    world.loop.until(lambda: "standing HANDLING" in handling.events and lost.is_ended)
    held[0].reply("found again")
    expect(handling.wait(), "found again")


def goes_on_without_the_broker(world):
    provider, consumer = pair(world)
    channel = consumer.connect(provider.app_id)
    world.stop_broker(signal.SIGKILL)
    expect(ending(consumer.broker), "end")
    expect(channel.request(SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)
    # The next one takes over the socket that was left behind, and knows everybody.
    world.start_broker()
    again = world.app("consumer", pinned=consumer.broker_key)
    expect([p["app_id"] for p in again.find()], [provider.app_id])
    expect(refusal(again.connect, provider.app_id), 3)


def says_goodbye_when_it_is_stopped(world):
    app = world.app("one").register((SERVICE, SERVICE_VERSION))
    expect(world.stop_broker(), 0)
    expect(ending(app.broker), 112)
    world.start_broker()
    expect([p["app_id"] for p in world.tool().attend().find()], [app.app_id])


def a_second_connection_takes_the_place_of_the_first(world):
    first = world.app("one").register((SERVICE, SERVICE_VERSION))
    second = world.app("one")
    expect(ending(first.broker), 109)
    expect([p["app_id"] for p in second.find(includes_own=True)], [second.app_id])


def refuses_what_cannot_be_reached(world):
    provider, consumer = pair(world)
    expect(refusal(consumer.connect, "com.example.nobody"), 3)
    provider.ask("state", {"state": "SUSPENDED"})
    expect(refusal(consumer.connect, provider.app_id), 2)
    provider.close()
    tool = world.tool().attend()
    world.loop.until(lambda: tool.find()[0].get("state", "NOT_RUNNING") == "NOT_RUNNING")
    expect(refusal(consumer.connect, provider.app_id), 3)


def waits_for_an_app_that_is_locked(world):
    world.app("provider").register((SERVICE, SERVICE_VERSION)).close()
    provider = world.app("provider", serve=echo, state="LOCKED")
    consumer = world.app("consumer")
    question = consumer.ask_later("connect", {"app_id": provider.app_id})
    world.loop.until(lambda: consumer.waiting)
    expect(consumer.waiting[0].get("reason"), "UNLOCK")
    world.loop.until(lambda: any("peer_waits" in message for message in provider.others))
    expect([m["peer_waits"] for m in provider.others if "peer_waits" in m], [{"app_id": consumer.app_id}])
    expect(provider.introductions, {})
    provider.ask("state", {"state": "RUNNING"})
    assert len(consumer.answer(question)["introduced"]["ticket"]) == 32


def stands_in_for_an_app_until_it_runs(world):
    world.app("provider", presence_key=world.key("presence").public).register((SERVICE, SERVICE_VERSION)).close()
    place = world.app("provider", key="presence", state="LOCKED", stands_in=True)
    expect(place.enrolled, {"version": 1})
    consumer = world.app("consumer")
    question = consumer.ask_later("connect", {"app_id": place.app_id})
    world.loop.until(lambda: consumer.waiting)
    expect(consumer.waiting[0].get("reason"), "UNLOCK")
    world.administrator().ask("administer", {"front": place.app_id})
    world.loop.until(lambda: len(place.others) == 2)
    expect(place.others, [{"peer_waits": {"app_id": consumer.app_id}}, {"front_changed": {"is_in_front": True}}])
    provider = world.app("provider", serve=echo)
    expect(ending(place.broker), 109)
    ticket = consumer.answer(question)["introduced"]["ticket"]
    world.loop.until(lambda: ticket in consumer.dials and consumer.dials[ticket].hello)
    expect(consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)
    world.loop.until(lambda: {"front_changed": {"is_in_front": True}} in provider.others)
    # The app itself gives its place to nobody who stands in.
    expect(refusal(world.app, "provider", key="presence", state="LOCKED", stands_in=True), 109)
    expect(provider.broker.ending, None)


def gives_way_to_what_stands_in(world):
    app = world.app("provider", presence_key=world.key("presence").public).register((SERVICE, SERVICE_VERSION))
    world.administrator().ask("administer", {"front": app.app_id})
    app.ask("state", {"state": "LOCKED", "gives_way": True})
    consumer = world.app("consumer")
    question = consumer.ask_later("connect", {"app_id": app.app_id})
    world.loop.until(lambda: consumer.waiting)
    place = world.app("provider", key="presence", state="LOCKED", stands_in=True)
    expect(ending(app.broker), 109)
    world.loop.until(lambda: len(place.others) == 2)
    expect({"front_changed": {"is_in_front": True}} in place.others, True)
    provider = world.app("provider", serve=echo)
    ticket = consumer.answer(question)["introduced"]["ticket"]
    world.loop.until(lambda: ticket in consumer.dials and consumer.dials[ticket].hello)
    expect(consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)


def leaves_its_id_to_another_key(world):
    app = world.app("provider")
    watcher = world.app("consumer")
    expect(refusal(world.app, "provider", key="new"), 106)
    app.ask("leave", {})
    expect(ending(app.broker), 110)
    world.loop.until(lambda: watcher.others)
    expect(watcher.others[-1]["forgotten"]["app_id"], app.app_id)
    expect(world.app("provider", key="new").enrolled["version"], 1)


def starts_an_app_that_does_not_run(world):
    marker = world.directory + "/started"
    app = world.app("provider").register((SERVICE, SERVICE_VERSION))
    app.close()
    program = {"path": "/usr/bin/touch", "arguments": [marker]}
    world.administrator().ask("administer", {"install": {"app_id": app.app_id, "program": program}})
    consumer = world.app("consumer")
    question = consumer.ask_later("connect", {"app_id": app.app_id})
    world.loop.until(lambda: consumer.waiting and os.path.exists(marker))
    expect(consumer.waiting[0].get("reason", "START"), "START")
    provider = world.app("provider", serve=echo)
    ticket = consumer.answer(question)["introduced"]["ticket"]
    world.loop.until(lambda: ticket in consumer.dials and consumer.dials[ticket].hello)
    expect(consumer.send(provider.app_id, SERVICE, SERVICE_VERSION, "echo", 1).wait(), 1)


def does_what_the_administrator_says(world):
    provider, consumer = pair(world)
    channel = consumer.connect(provider.app_id)
    administrator = world.administrator()
    rule = {"consumer": consumer.app_id, "provider": provider.app_id, "effect": "DENY"}
    administrator.ask("administer", {"add_rule": rule})
    (found,) = administrator.ask("administer", {"list_rules": {}})["rules"]["rules"]
    expect({"effect": "DENY", **found}, rule)
    expect(refusal(consumer.connect, provider.app_id), 7)
    expect(consumer.find(), [])
    world.loop.until(lambda: any(m.get("policy", {}).get("access") for m in consumer.others))
    world.loop.until(lambda: any(m.get("policy", {}).get("access") for m in provider.others))
    channel.close()
    administrator.ask("administer", {"remove_rule": rule})
    consumer.connect(provider.app_id)
    apps = administrator.ask("administer", {"list_apps": {}})["apps"]
    expect([(app["provider"]["app_id"], app["identity"]["key_fingerprint"]) for app in apps["apps"]],
           [(app.app_id, keys.fingerprint(app.key.public)) for app in (consumer, provider)])
    administrator.ask("administer", {"forget": provider.app_id})
    expect(ending(provider.broker), 110)
    world.loop.until(lambda: any("forgotten" in message for message in consumer.others))
    # The id is free for whoever comes first.
    world.app("provider", key="another")


def passes_the_front_on(world):
    one, two = world.app("one").register((SERVICE, "1")), world.app("two").register((SERVICE, "1"))
    expect(refusal(one.ask, "bring_to_front", {"app_id": two.app_id}), 20)
    administrator = world.administrator()
    administrator.ask("administer", {"front": one.app_id})
    world.loop.until(lambda: any(m.get("front_changed", {}).get("is_in_front") for m in one.others))
    one.ask("bring_to_front", {"app_id": two.app_id})
    world.loop.until(lambda: any(m.get("front_changed", {}).get("is_in_front") for m in two.others))
    expect(refusal(one.ask, "bring_to_front", {"app_id": one.app_id}), 20)
    (front,) = [app for app in administrator.find() if app.get("is_in_front")]
    expect(front["app_id"], two.app_id)


def apps_of_different_users_do_not_talk(world):
    """Nobody is introduced to an app of another user, or finds it."""
    provider, consumer = pair(world, user="bob@example.com")
    expect(refusal(consumer.connect, provider.app_id), 13)
    expect((provider.introductions, provider.peers, consumer.peers), ({}, {}, {}))
    expect((consumer.find(), consumer.find(app_id=provider.app_id), consumer.find(service_id=SERVICE)), ([], [], []))
    # A client is of no user, and shows apps that offer something.
    expect([p["app_id"] for p in world.tool().attend().find()], [provider.app_id])


def shows_the_launcher_what_is_on_its_way(world):
    provider, consumer = pair(world)
    app_id = "opendynamics.launcher"
    expect(refusal(world.app, "launcher", app_id=app_id), 7)
    approval = {"app_id": app_id, "key_fingerprint": keys.fingerprint(world.key("launcher").public)}
    world.administrator().ask("administer", {"approve": approval})
    launcher = world.app("launcher", app_id=app_id)
    world.loop.until(lambda: {"traffic_wanted": {"is_wanted": True}} in provider.others)
    traffic = {"sent": {"count": 2, "waiting_count": 1, "byte_count": 1 << 40, "bytes_done": 3}}
    provider.ask("traffic", traffic)
    shown = {found["app_id"]: found.get("traffic") for found in launcher.find(includes_non_providers=True)}
    expect(shown[provider.app_id], traffic)
    assert not any("traffic" in found for found in consumer.find(includes_non_providers=True))
    launcher.ask("bring_to_front", {"app_id": provider.app_id})
    world.loop.until(lambda: {"front_changed": {"is_in_front": True}} in provider.others)
    launcher.close()
    world.loop.until(lambda: {"traffic_wanted": {}} in provider.others)


def ignores_messages_that_may_be_ignored(world):
    app = world.app("one")
    app.broker.send_bytes(b"\x03\0\0\0\xc2\x3e\0")
    expect(app.find(), [])


CHECKS = [
    enrols_with_its_key, has_its_keys_in_files, takes_records_of_all_lengths, takes_a_first_record_with_the_handshake,
    finds_who_offers_what, finds_the_servers_of_a_provider, finds_many_page_after_page, watches_who_comes_and_goes, exchanges_requests_and_replies,
    sends_more_requests_than_its_credit, cancels, asks_about_requests_after_a_channel_broke,
    goes_on_without_the_broker, says_goodbye_when_it_is_stopped, a_second_connection_takes_the_place_of_the_first,
    refuses_what_cannot_be_reached, waits_for_an_app_that_is_locked, stands_in_for_an_app_until_it_runs,
    gives_way_to_what_stands_in, leaves_its_id_to_another_key,
    starts_an_app_that_does_not_run,
    does_what_the_administrator_says, passes_the_front_on, apps_of_different_users_do_not_talk,
    shows_the_launcher_what_is_on_its_way, ignores_messages_that_may_be_ignored,
]
