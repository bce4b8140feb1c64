"""Kills the relay, and now and then the app, while servers send, and compares what was accepted with what was shown.

    kills.py PROGRAM [--short | NUMBER] [--seed SEED]

A message without an answer may have been accepted or not: it is shown once or never. The app completes each message
after it has written it to its own file, as an app does that must not lose one; the relay's kills alone would need
no such care. A message that is shown again after the app was killed has the id under which it is in the file.
"""

import http.client
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

program = pathlib.Path(sys.argv[1]).resolve()
arguments = sys.argv[2:]
seed = int(arguments[arguments.index("--seed") + 1]) if "--seed" in arguments else random.randrange(1 << 32)
numbers = [word for word in arguments if word.isdigit() and word != str(seed)]
kills = 50 if "--short" in arguments else int(numbers[0]) if numbers else 1000
chance = random.Random(seed)
print(f"{kills} kills, seed {seed}")

folder = pathlib.Path(tempfile.mkdtemp(prefix="push-kills-"))
(folder / "settings.json").write_text(json.dumps({"tokenRate": 1000000, "tokenBurst": 1000000, "addressRate": 1000000}))
ports = {}
channels = 4


def start_relay():
    listen = {name: f"127.0.0.1:{ports.get(name, 0)}" for name in ("devices", "plain-back-ends")}
    process = subprocess.Popen(
        [program, "relay", "--directory", folder / "relay", "--settings", folder / "settings.json", "--back-ends",
         "none", "--operator", "none", "--log-level", "error",
         *[word for name, at in listen.items() for word in ("--" + name, at)]],
        stdout=subprocess.PIPE, stderr=open(folder / "relay.log", "a"), text=True)
    for _ in listen:
        words = process.stdout.readline().split()
        if len(words) != 3:
            sys.exit("the relay does not start:\n" + (folder / "relay.log").read_text()[-2000:])
        ports[words[1]] = int(words[2])
    return process


class App:
    """One channel of one device, and the lines that it has printed. A line that was cut off by a kill is none."""

    def __init__(self, number):
        self.number, self.token = number, None
        self.file = folder / f"shown-{number}"
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [program, "listen", "kills", "--json", "--append", self.file, "--directory", folder / f"device-{self.number}",
             "--relay", f"wss://localhost:{ports['devices']}", "--authorities", folder / "relay/loopback.pem"],
            stdout=subprocess.DEVNULL, stderr=open(folder / f"app-{self.number}.log", "a"))

    def events(self):
        if not self.file.exists():
            return []
        found = []
        for line in self.file.read_bytes().split(b"\n")[:-1]:
            try:
                found.append(json.loads(line))
            except ValueError:
                pass  # Two halves: the app was killed in the middle of the first.
        return found

    def shown(self):
        """Texts in order; one that was written twice under one id counts once."""
        seen, texts = set(), []
        for event in self.events():
            if event["event"] == "message" and event["id"] not in seen:
                seen.add(event["id"])
                texts.append(int(event["text"]))
        return texts


class Sender(threading.Thread):
    """A back end that sends numbers, by turns in both ways, each of them once."""

    def __init__(self, token):
        super().__init__(daemon=True)
        self.token, self.accepted, self.unknown, self.isDone, self.refused = token, [], set(), False, 0

    def run(self):
        number, connection = 0, None
        while not self.isDone:
            number += 1
            body = str(number)
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", ports["plain-back-ends"], timeout=5)
                    connection.connect()
            except OSError:
                connection = None
                number -= 1
                time.sleep(0.01)
                continue
            try:
                if number % 2:
                    connection.request("POST", "/push/" + self.token.split()[-1], body, {"TTL": "86400"})
                else:
                    connection.request("POST", "/GNP1.0?method=notify", body, {"X-Good-GNP-Token": self.token})
                response = connection.getresponse()
                response.read()
                code = response.headers.get("X-Good-GNP-Code", "")
                if response.status == 201 or code.startswith("100"):
                    self.accepted.append(number)
                else:
                    self.refused += 1
                    time.sleep(0.002)
            except (OSError, http.client.HTTPException):
                self.unknown.add(number)
                connection = None


relay = start_relay()
apps = [App(number) for number in range(channels)]
for app in apps:
    end = time.monotonic() + 30
    while not app.events():
        if time.monotonic() > end:
            sys.exit("an app gets no token")
        time.sleep(0.05)
    app.token = app.events()[0]["token"]
senders = [Sender(app.token) for app in apps]
for sender in senders:
    sender.start()

begin = time.monotonic()
for kill in range(kills):
    time.sleep(chance.uniform(0.02, 0.4))
    if chance.random() < 0.2:
        app = chance.choice(apps)
        app.process.kill()
        app.process.wait()
        app.start()
    relay.kill()
    relay.wait()
    relay = start_relay()
    if (kill + 1) % 100 == 0:
        print(f"{kill + 1} kills, {sum(len(sender.accepted) for sender in senders)} messages accepted", flush=True)

for sender in senders:
    sender.isDone = True
    sender.join()

wrong = 0
for app, sender in zip(apps, senders):
    end = time.monotonic() + 120
    while set(sender.accepted) - set(app.shown()) and time.monotonic() < end:
        time.sleep(0.2)
    shown = app.shown()
    lost = sorted(set(sender.accepted) - set(shown))
    made_up = sorted(set(shown) - set(sender.accepted) - sender.unknown)
    faults = {
        "lost": lost, "made up": made_up, "shown twice": sorted({n for n in shown if shown.count(n) > 1})
        if len(shown) != len(set(shown)) else [],
        "out of order": [] if shown == sorted(shown) else [b for a, b in zip(shown, shown[1:]) if b < a],
        "other tokens": [e["token"] for e in app.events() if e["event"] == "opened" and e["token"] != app.token],
        "errors": [e for e in app.events() if e["event"] in ("error", "closed")],
    }
    for name, found in faults.items():
        if found:
            wrong += 1
            print(f"app {app.number}: {name}: {found[:10]}")
accepted = sum(len(sender.accepted) for sender in senders)
unknown = sum(len(sender.unknown) for sender in senders)
for process in [relay, *[app.process for app in apps]]:
    process.kill()
    process.wait()
print(f"{kills} kills in {time.monotonic() - begin:.0f} s: {accepted} messages accepted, {unknown} without an answer, "
      f"{sum(sender.refused for sender in senders)} refused; " + ("all shown once, in order" if not wrong else "WRONG"))
if not accepted:
    sys.exit("nothing was accepted")
if wrong:
    sys.exit(f"what it leaves is in {folder}")
shutil.rmtree(folder)
