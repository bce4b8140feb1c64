"""Kills senders, receivers and the broker in the middle of deliveries and checks what arrives; see Scripts/deliveries."""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CANARY = b"canary-5e1f0a97c3d248b6a0e4f17d29"
assert len(CANARY) >= 32

# Of Sources/AppKinetics/FailPoint.swift. A receiver also sends its replies, and a sender receives them.
SENDER_POINTS = ["stored", "offering", "streaming", "settling", "settled"]
RECEIVER_POINTS = ["offered", "begun", "listed", "receiving", "committing", "committed", "handling", "handled"]

SIZES = [0, 1, 31, 4096, 16384, 65535, 65536, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, 5 << 20, 12 << 20]
LARGE = 20 << 20

RECEIVER = "com.example.b"
# A process that does nothing for so long hangs, whatever else the machine does.
TIME_LIMIT = 90.0


class Failure(Exception):
    """Something was lost, delivered twice, half visible, or hangs."""


class Message:
    """Some files of one sender, and what is known of them."""

    def __init__(self, number: int, directory: str, files: dict[str, str]) -> None:
        self.number = number
        # In the sender's container.
        self.directory = directory
        # Digests by name; a name is used once.
        self.files = files
        # None: nobody knows, all or nothing.
        self.must_arrive: bool | None = False
        self.request: str | None = None


class Program:
    """A process that was started, and how it is going to be killed."""

    def __init__(self, world: "World", role: str, arguments: list[str], points: list[str], is_killed: bool) -> None:
        self.world = world
        self.role = role
        environment = dict(world.environment)
        self.end = "by itself"
        self.kill_at: float | None = None
        if is_killed and points and world.random.random() < 0.65:
            point = world.draw(points)
            most = 24 if point in ("streaming", "receiving") else 3
            count = 1 + int(most * world.random.random() ** 3)
            environment["OPENDYNAMICS_FAIL_AT"] = f"{point}:{count}"
            self.end = f"{point}:{count}"
        if is_killed:
            # Also when its point never comes.
            late = 0.7 if "OPENDYNAMICS_FAIL_AT" in environment else 0.0
            wait = late + world.random.random() ** 2 * 1.2
            self.kill_at = time.monotonic() + wait
            if not late:
                self.end = f"after {wait:.3f} s"
        world.starts += 1
        base = world.folder / f"log-{role}-{world.starts}"
        (self.output, self.errors) = (base.with_suffix(".out"), base.with_suffix(".err"))
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(
                [world.program, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        self.interrupt_at: float | None = None
        self.was_interrupted = False
        self.deadline = time.monotonic() + TIME_LIMIT * world.patience
        self.read = 0
        world.programs.append(self)
        world.log(f"{role}: {' '.join(arguments[:2])}, pid {self.process.pid}, killed {self.end}")

    def poll(self) -> bool:
        """Whether it has ended; kills it when its time has come."""
        if self.process.poll() is not None:
            return True
        now = time.monotonic()
        if self.interrupt_at is not None and now >= self.interrupt_at:
            (self.interrupt_at, self.was_interrupted) = (None, True)
            self.process.send_signal(signal.SIGINT)
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self.process.kill()
            self.process.wait()
            return True
        return False

    def settle(self) -> int:
        """Call once when it has ended: its exit status, after counting kills."""
        status = self.process.returncode
        self.world.log(f"{self.role}: pid {self.process.pid} ended with {status}")
        if status == -signal.SIGKILL:
            self.world.kills += 1
            kind = self.end.split(":")[0] if ":" in self.end else "a random moment"
            self.world.kinds[f"{self.role} {kind}"] = self.world.kinds.get(f"{self.role} {kind}", 0) + 1
        elif status == -signal.SIGINT and self.was_interrupted:
            pass  # before it could do anything about it
        elif status < 0 or status >= 128 and status != 128 + signal.SIGINT:
            raise Failure(f"{self.role} crashed with {status}:\n{self.tail()}")
        return status

    def tail(self) -> str:
        text = self.output.read_text(errors="replace")[-1500:] + self.errors.read_text(errors="replace")[-3500:]
        return text.replace(CANARY.decode(), "")

    def lines(self) -> list[dict]:
        """What it has printed since the last time, as JSON."""
        with self.output.open("rb") as file:
            file.seek(self.read)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self.read += end
        return [json.loads(line) for line in data[:end].splitlines()]


class World:
    """A broker, a receiver and two senders, over some rounds."""

    def __init__(self, program: str, folder: Path, seed: int, number: int, patience: float, is_loud: bool) -> None:
        self.program = program
        self.folder = folder
        self.random = random.Random(seed)
        self.patience = patience
        self.is_loud = is_loud
        self.begin = time.monotonic()
        self.history: list[str] = []
        (self.kills, self.starts, self.delivered, self.cancelled, self.snapshots) = (0, 0, 0, 0, 0)
        self.kinds: dict[str, int] = {}
        self.environment = dict(
            os.environ, OPENDYNAMICS_BROKER=str(folder / "run" / "broker"),
            OPENDYNAMICS_BROKER_STATE=str(folder / "state"))
        self.environment.pop("OPENDYNAMICS_FAIL_AT", None)
        self.numbers = 0
        self.programs: list[Program] = []
        # Where the next draw of a fail point begins, by the points there are: all have their turn.
        self.turns: dict[int, int] = {}
        self.first_turn = number * 5
        self.requests: set[str] = set()
        self.saved: set[str] = set()
        self.broker: Program | None = None
        self.receiver: Program | None = None
        self.is_killing = False
        # Kills that are left in a round: everything ends some time.
        self.budget = 0
        self.messages: list[Message] = []
        self.ready = False
        # Of the receiver: only these, when given.
        self.receiver_points = RECEIVER_POINTS + SENDER_POINTS
        self.receiver_kill_share = 0.8
        self.snapshot_at: float | None = None
        for name in "abc":
            (folder / f"{name}.key").write_bytes(os.urandom(32))
            self.run("container", "create", str(folder / name), *self.key(name))

    def log(self, line: str) -> None:
        line = f"{time.monotonic() - self.begin:8.3f} {line}".replace(CANARY.decode(), "")
        self.history.append(line)
        if self.is_loud:
            print(line, flush=True)

    def draw(self, points: list[str]) -> str:
        turn = self.turns.get(len(points), self.first_turn)
        self.turns[len(points)] = turn + 1
        return points[turn % len(points)]

    def key(self, name: str) -> list[str]:
        return ["--key-file", str(self.folder / f"{name}.key")]

    def container(self, name: str) -> str:
        return str(self.folder / name)

    def run(self, *arguments: str, expects: tuple[int, ...] = (0,)) -> str:
        """Runs a command to its end."""
        try:
            done = subprocess.run(
                [self.program, *arguments], capture_output=True, text=True, env=self.environment,
                timeout=TIME_LIMIT * self.patience)
        except subprocess.TimeoutExpired as expired:
            raise Failure(f"hangs: {' '.join(arguments[:3])}") from expired
        if done.returncode not in expects:
            raise Failure(f"{' '.join(arguments[:3])}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if done.returncode == 0 else ""

    # Those that run all the time

    def tend(self) -> None:
        """Starts the broker and the receiver again when they have ended, and looks at what the receiver says."""
        if self.broker is None or self.broker.poll():
            if self.broker is not None:
                self.broker.settle()
            self.broker = Program(self, "broker", ["broker"], [], self.draws(0.4))
            # The receiver's own pauses until it tries again are not what is tested.
            self.wait_for_file(self.folder / "run" / "broker")
        if self.receiver is None or self.receiver.poll():
            if self.receiver is not None:
                self.take_events()
                status = self.receiver.settle()
                if status == 0:
                    raise Failure("the receiver ended by itself")
                if self.random.random() < 0.3:
                    self.look_inside()
            self.ready = False
            self.receiver = Program(
                self, "receiver",
                ["app", "run", self.container("b"), "--id", RECEIVER, *self.key("b"), "--json"],
                self.receiver_points, self.draws(self.receiver_kill_share))
        self.receiver.deadline = time.monotonic() + TIME_LIMIT * self.patience
        self.broker.deadline = self.receiver.deadline
        self.take_events()
        if self.snapshot_at is not None and time.monotonic() >= self.snapshot_at:
            self.snapshot_at = None
            self.snapshot()

    def draws(self, share: float) -> bool:
        if not self.is_killing or self.budget <= 0 or self.random.random() >= share:
            return False
        self.budget -= 1
        return True

    def wait_for_file(self, path: Path) -> None:
        end = time.monotonic() + 10 * self.patience
        while not path.exists():
            if self.broker.poll():
                return
            if time.monotonic() > end:
                self.hangs(self.broker, "no socket")
            time.sleep(0.005)

    def take_events(self) -> None:
        for event in self.receiver.lines():
            if event["event"] == "ready":
                self.ready = True
            elif event["event"] == "request":
                again = event.get("isRedelivered", False)
                if event["id"] in self.requests and not again:
                    raise Failure(f"request {event['id']} was handled again without the mark")
                self.requests.add(event["id"])
            elif event["event"] == "saved":
                self.saved.add(event["path"].rsplit("/", 1)[1])

    def hangs(self, program: Program, what: str) -> None:
        stacks = ""
        for suspect in (program, self.receiver, self.broker):
            if suspect is not None and suspect.process.poll() is None:
                stacks += f"\n--- {suspect.role}, pid {suspect.process.pid}\n{stack(suspect.process.pid)}{suspect.tail()}"
        raise Failure(f"hangs: {program.role}, {what}{stacks}")

    def wait(self, program: Program) -> Iterator[None]:
        """Until it has ended."""
        while not program.poll():
            if time.monotonic() > program.deadline:
                self.hangs(program, f"no end after {TIME_LIMIT * self.patience:.0f} s")
            yield

    def pause(self, seconds: float) -> Iterator[None]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield

    def stop(self) -> None:
        """Ends the receiver and the broker as people do."""
        for program in (self.receiver, self.broker):
            if program is None:
                continue
            program.kill_at = None
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGINT)
                try:
                    program.process.wait(20 * self.patience)
                except subprocess.TimeoutExpired:
                    self.hangs(program, "a signal does not end it")
            if program is self.receiver:
                self.take_events()
            program.settle()
        (self.receiver, self.broker) = (None, None)

    def kill_all(self) -> None:
        for program in self.programs:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait()

    # Senders

    def prepare(self, name: str, count: int, sizes: list[int], most: int = 5) -> list[Message]:
        """Puts files for so many messages into a sender's container."""
        source = self.folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        messages = []
        for _ in range(count):
            self.numbers += 1
            directory = source / f"m{self.numbers}"
            directory.mkdir(parents=True)
            files = {}
            for n in range(self.random.randint(1, most)):
                size = self.random.choice(sizes)
                file = f"m{self.numbers}f{n}-{CANARY.decode()}"
                content = self.content(size)
                files[file] = hashlib.sha256(content).hexdigest()
                (directory / file).write_bytes(content)
            messages.append(Message(self.numbers, f"/sent/m{self.numbers}", files))
        self.run("put", self.container(name), str(source), "/sent", *self.key(name))
        shutil.rmtree(source)
        self.messages += messages
        return messages

    def content(self, size: int) -> bytes:
        """Canaries all over, and no two blocks alike."""
        block = bytearray(self.random.randbytes(4096))
        block[: len(CANARY)] = CANARY
        content = bytearray(bytes(block) * (size // 4096 + 1))[:size]
        for offset in range(len(CANARY), size - 8, 4096):
            content[offset : offset + 8] = self.random.randbytes(8)
        return bytes(content)

    def paths(self, message: Message) -> list[str]:
        """One by one, or the folder."""
        if self.random.random() < 0.3:
            return [message.directory]
        return [f"{message.directory}/{name}" for name in message.files]

    def send(self, name: str, message: Message, *options: str, is_killed: bool, points: list[str] | None = None) -> Program:
        return Program(
            self, f"sender-{name}",
            ["send", self.container(name), *self.paths(message), "--from", f"com.example.{name}", "--to", RECEIVER,
             *self.key(name), "--json", "--quiet", *options],
            SENDER_POINTS if points is None else points, is_killed)

    def resume(self, name: str, is_killed: bool) -> Program:
        return Program(
            self, f"sender-{name}",
            ["outbox", "resume", self.container(name), "--id", f"com.example.{name}", *self.key(name), "--quiet"],
            SENDER_POINTS, is_killed)

    def outbox(self, name: str) -> list[dict]:
        text = self.run("outbox", "list", self.container(name), *self.key(name), "--json")
        return [json.loads(line) for line in text.splitlines()]

    def accept(self, name: str, message: Message, sender: Program, before: set[str]) -> bool:
        """What is certain after a `send` has ended. False: it was refused, and may be sent again."""
        status = sender.settle()
        if status == 0:
            lines = sender.lines()
            message.request = lines[0]["requestID"]
            message.must_arrive = True
            return True
        waiting = [entry["requestID"] for entry in self.outbox(name) if entry["requestID"] not in before]
        if len(waiting) > 1:
            raise Failure(f"{len(waiting)} messages in the outbox after one was sent")
        if waiting:
            message.request = waiting[0]
            message.must_arrive = True
            return True
        # Delivered, or never accepted.
        message.must_arrive = None if status < 0 else False
        return status < 0

    def send_all(self, name: str, messages: list[Message], kills: float) -> Iterator[None]:
        for message in messages:
            for _ in range(100):
                before = {entry["requestID"] for entry in self.outbox(name)}
                options = ["--no-wait"] if self.random.random() < 0.4 else []
                waits = self.random.random() < 0.85
                while waits and not self.ready:
                    yield
                sender = self.send(name, message, *options, is_killed=self.draws(kills))
                yield from self.wait(sender)
                if self.accept(name, message, sender, before):
                    break
                yield from self.pause(0.1)
            else:
                raise Failure(f"a message was refused 100 times:\n{sender.tail()}")

    def sender(self, name: str, messages: list[Message], kills: float) -> Iterator[None]:
        """A sender's part of a round."""
        yield from self.send_all(name, messages, kills)
        if self.random.random() < 0.5:
            # The outbox has its own hold on the files.
            self.run("rm", "-r", self.container(name), "/sent", *self.key(name))
        for _ in range(self.random.randint(0, 6)):
            if not self.outbox(name):
                break
            resume = self.resume(name, is_killed=self.draws(0.9))
            yield from self.wait(resume)
            self.resumed(resume)
        yield from self.finish(name)

    def resumed(self, resume: Program) -> int:
        status = resume.settle()
        if status not in (0, -signal.SIGKILL) and b"brokerUnavailable" not in resume.errors.read_bytes():
            self.log(f"resume: exit {status}: {resume.tail().strip()}")
        return status

    def finish(self, name: str) -> Iterator[None]:
        """Until the outbox is empty."""
        for _ in range(30):
            resume = self.resume(name, is_killed=False)
            yield from self.wait(resume)
            if self.resumed(resume) == 0:
                return
            yield from self.pause(0.2)
        raise Failure(f"the outbox cannot be resumed:\n{resume.tail()}")

    # Messages that are taken back

    def cancel(self, name: str, message: Message, kills: float) -> Iterator[None]:
        """A signal during `send`, or `outbox cancel` after its process was killed."""
        while not self.ready:
            yield
        if self.random.random() < 0.6:
            sender = self.send(name, message, is_killed=False)
            sender.interrupt_at = time.monotonic() + self.random.random() ** 1.5 * 0.6
            yield from self.wait(sender)
            status = sender.settle()
            waiting = self.outbox(name)
            self.log(f"a cancelled send ended with {status}, {len(waiting)} in the outbox")
            if status == 0:
                message.must_arrive = True
            else:
                message.must_arrive = False
                self.cancelled += 1
            if waiting:
                raise Failure(f"a message that was taken back is in the outbox; exit {status}\n{sender.tail()}")
            return
        sender = self.send(name, message, is_killed=True, points=["stored", "offering", "streaming", "streaming"])
        yield from self.wait(sender)
        if not self.accept(name, message, sender, set()):
            return
        for entry in self.outbox(name):
            for _ in range(30):
                cancel = Program(
                    self, f"sender-{name}",
                    ["outbox", "cancel", self.container(name), "--id", f"com.example.{name}", entry["requestID"],
                     *self.key(name)], [], self.draws(kills))
                yield from self.wait(cancel)
                status = cancel.settle()
                if status == 0:
                    message.must_arrive = False
                    self.cancelled += 1
                    break
                left = [e["requestID"] for e in self.outbox(name)]
                if status > 0 and entry["requestID"] not in left:
                    message.must_arrive = True
                    break
                if entry["requestID"] not in left:
                    # Killed after it was settled, one way or the other.
                    message.must_arrive = None
                    break
            else:
                raise Failure(f"a message cannot be taken back:\n{cancel.tail()}")

    def cancels(self, name: str, messages: list[Message], kills: float) -> Iterator[None]:
        for message in messages:
            yield from self.cancel(name, message, kills)

    # What is there

    def listing(self, container: str, path: str, name: str = "b") -> list[tuple[str, int]]:
        """Files below a folder, with their sizes."""
        text = self.run("ls", container, path, "-R", "--json", *self.key(name), expects=(0, 5))
        return [(file["path"], file["size"]) for file in json.loads(text or "[]") if file["kind"] == "file"]

    def look_inside(self, container: str | None = None) -> None:
        """Messages in the inbox of the receiver, which does not run, are whole."""
        messages: dict[str, set[str]] = {}
        for path, size in self.listing(container or self.container("b"), "/Inbox"):
            parts = path.split("/")
            messages.setdefault("/".join(parts[:2]), set()).add(parts[-1])
        moved = {path for path, _ in self.listing(container or self.container("b"), "/Documents")}
        moved = {path.rsplit("/", 1)[-1] for path in moved}
        for directory, names in messages.items():
            found = [m for m in self.messages if names <= set(m.files)]
            if len(found) != 1:
                raise Failure(f"{directory} has files of no message: {names}")
            # Its handler may have moved some.
            missing = set(found[0].files) - names - moved
            if missing:
                raise Failure(f"{directory} is half a message: {missing} are not there")
        self.snapshots += 1

    def snapshot(self) -> None:
        """Looks into a copy of the receiver's container, at a moment when it works on it."""
        receiver = self.receiver.process
        copy = self.folder / "snapshot"
        receiver.send_signal(signal.SIGSTOP)
        try:
            shutil.copytree(self.container("b"), copy)
        finally:
            receiver.send_signal(signal.SIGCONT)
        try:
            self.look_inside(str(copy))
            self.search(copy)
            self.run("container", "verify", str(copy), *self.key("b"))
        except Failure as failure:
            kept = self.folder / "failed-snapshot"
            shutil.rmtree(kept, ignore_errors=True)
            copy.rename(kept)
            raise Failure(f"in a snapshot: {failure}") from failure
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def search(self, folder: Path) -> None:
        """No plaintext in any file of the host."""
        for path in folder.rglob("*"):
            if path.is_file() and CANARY in path.read_bytes():
                raise Failure(f"plaintext in {path}")

    def search_memory(self, pid: int) -> None:
        """No plaintext in the broker's memory. Only where the system lets us look."""
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                for line in maps.splitlines():
                    (places, access) = line.split()[:2]
                    if "rw" not in access:
                        continue
                    (first, last) = (int(place, 16) for place in places.split("-"))
                    memory.seek(first)
                    try:
                        found = CANARY in memory.read(last - first)
                    except (OSError, ValueError, OverflowError):
                        continue
                    if found:
                        raise Failure(f"plaintext in the broker's memory, in {line}")
        except (FileNotFoundError, PermissionError):
            return

    def is_quiet(self) -> bool:
        """Whether the receiver has said that it saved all that must arrive."""
        return all(set(message.files) <= self.saved for message in self.messages if message.must_arrive)

    def wait_until_quiet(self) -> None:
        # A file that was moved right before a kill is never reported.
        end = time.monotonic() + 1
        while not self.is_quiet() and time.monotonic() < end:
            self.tend()
            time.sleep(0.01)
        time.sleep(0.15)

    def check(self) -> None:
        """Everything that was accepted is there, once, and nothing else."""
        self.is_killing = False
        for program in (self.receiver, self.broker):
            if program is not None:
                program.kill_at = None
        for attempt in range(4):
            end = time.monotonic() + TIME_LIMIT * self.patience
            self.tend()
            while not self.ready:
                self.tend()
                if time.monotonic() > end:
                    self.hangs(self.receiver, "not ready")
                time.sleep(0.01)
            self.wait_until_quiet()
            if self.broker.process.poll() is None:
                self.search_memory(self.broker.process.pid)
            self.stop()
            left = self.listing(self.container("b"), "/Inbox")
            if not left:
                break
            self.log(f"attempt {attempt}: {len(left)} files are left in the inbox")
        else:
            raise Failure(f"left in the inbox: {left}")
        for name in "abc":
            if staged := self.listing(self.container(name), "/.opendynamics/staging", name):
                raise Failure(f"left in the staging folder of {name}: {staged}")
        for name in "ac":
            if waiting := self.outbox(name):
                raise Failure(f"left in the outbox of {name}: {waiting}")
        for name in "abc":
            self.run("container", "verify", self.container(name), *self.key(name))
        if waiting := self.outbox("b"):
            # To senders that are gone: they are refused when these run the next time.
            self.log(f"{len(waiting)} replies wait for their senders")
        self.check_files()
        for place in ("a", "b", "c", "state", "run"):
            self.search(self.folder / place)
        self.run("rm", "-rf", self.container("b"), "/Documents", *self.key("b"), expects=(0, 5))
        for name in "ac":
            self.run("rm", "-rf", self.container(name), "/sent", *self.key(name), expects=(0, 5))
        self.delivered += sum(1 for message in self.messages if message.must_arrive)
        self.messages = []

    def check_files(self) -> None:
        target = self.folder / "got"
        shutil.rmtree(target, ignore_errors=True)
        found: dict[str, str] = {}
        if self.listing(self.container("b"), "/Documents"):
            self.run("get", self.container("b"), "/Documents", str(target), *self.key("b"))
            for path in target.rglob("*"):
                if path.is_file():
                    found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
            shutil.rmtree(target)
        for message in self.messages:
            there = [name for name in message.files if name in found]
            name = f"message {message.number} (request {message.request})"
            if message.must_arrive and len(there) < len(message.files):
                raise Failure(f"{name} was accepted, and {len(there)} of {len(message.files)} files are there")
            if message.must_arrive is False and there:
                raise Failure(f"{name} was not accepted, or was taken back, and arrived")
            if there and len(there) < len(message.files):
                raise Failure(f"of {name} {len(there)} of {len(message.files)} files are there")
            for file in there:
                if found.pop(file) != message.files[file]:
                    raise Failure(f"{file} is not what was sent")
        if found:
            raise Failure(f"there are files that should not be: {sorted(found)}")

    # Rounds

    def round(self, kind: str, kills: int) -> None:
        self.log(f"--- {kind}")
        self.receiver_points = RECEIVER_POINTS + SENDER_POINTS
        self.receiver_kill_share = 0.8
        (self.is_killing, self.budget) = (True, kills)
        self.snapshot_at = time.monotonic() + self.random.random() * 2 if self.random.random() < 0.5 else None
        if kind == "kills":
            parts = [self.sender("a", self.prepare("a", self.random.randint(2, 6), SIZES), 0.7)]
        elif kind == "two senders":
            parts = [self.sender(name, self.prepare(name, self.random.randint(1, 4), SIZES), 0.6) for name in "ac"]
        elif kind == "receiver":
            # Dies again and again while it resumes.
            self.receiver_points = ["begun", "listed", "receiving", "receiving", "receiving", "committing"]
            self.receiver_kill_share = 0.95
            parts = [self.sender("a", self.prepare("a", self.random.randint(1, 2), [LARGE, 1, 0], 3), 0.1)]
        elif kind == "cancel":
            self.receiver_kill_share = 0.0
            parts = [self.cancels("a", self.prepare("a", 3, [LARGE, LARGE, 1], 3), 0.0)]
        else:
            self.receiver_kill_share = 0.5
            parts = [self.cancels("a", self.prepare("a", 3, [LARGE, LARGE, 1], 3), 0.4)]
        end = time.monotonic() + 3 * TIME_LIMIT * self.patience
        while parts:
            self.tend()
            if time.monotonic() > end:
                self.hangs(self.receiver, "the round does not come to its end")
            for part in list(parts):
                try:
                    next(part)
                except StopIteration:
                    parts.remove(part)
            time.sleep(0.004)
        self.check()


KINDS = ["kills", "two senders", "receiver", "cancel", "cancel and kills"]


def stack(pid: int) -> str:
    """Of all threads, as far as the machine has means."""
    if shutil.which("gdb"):
        done = subprocess.run(
            ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], capture_output=True, text=True, check=False)
        return "\n".join(line for line in done.stdout.splitlines() if line.startswith(("#", "Thread"))) + "\n"
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        lines.append(f"{task.name}: {(task / 'comm').read_text().strip()} {(task / 'wchan').read_text()}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--short", action="store_true", help="until 120 processes were killed, and each kind of round came")
    parser.add_argument("--iterations", type=int, default=500, help="rounds")
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    parser.add_argument("--only", type=int, help="this round only, as a failure names it")
    parser.add_argument("--patience", type=float, default=1.0, help="what time limits are multiplied by")
    parser.add_argument("--keep", action="store_true", help="keeps the folder of a failure")
    parser.add_argument("--loud", action="store_true", help="prints what is started and killed")
    options = parser.parse_args()
    print(f"deliveries: seed {options.seed}", flush=True)
    (kills, rounds, delivered, cancelled, snapshots) = (0, 0, 0, 0, 0)
    kinds: dict[str, int] = {}
    numbers = [options.only] if options.only is not None else range(options.iterations)
    begin = time.monotonic()
    for number in numbers:
        # Each round can be repeated by itself.
        seed = options.seed * 1_000_003 + number
        folder = Path(tempfile.mkdtemp(prefix="opendynamics-deliveries-"))
        world = World(options.program, folder, seed, number, options.patience, options.loud)
        failed = True
        try:
            # Twice in the same containers: what the first part left may harm the second.
            for part in range(2):
                kind = KINDS[(number + part * 3) % len(KINDS)]
                world.round(kind, world.random.randint(8, 16))
                rounds += 1
            failed = False
        except Failure as failure:
            print("\n".join(world.history))
            print(f"deliveries: round {number}, {kind}: {failure}", file=sys.stderr)
            print(f"deliveries: repeat with --seed {options.seed} --only {number}", file=sys.stderr)
            if options.keep:
                print(f"deliveries: its files are in {folder}", file=sys.stderr)
            raise SystemExit(1) from failure
        finally:
            world.kill_all()
            if not failed or not options.keep:
                shutil.rmtree(folder, ignore_errors=True)
        kills += world.kills
        delivered += world.delivered
        cancelled += world.cancelled
        snapshots += world.snapshots
        for name, count in world.kinds.items():
            kinds[name] = kinds.get(name, 0) + count
        if options.short and kills >= 120 and number >= len(KINDS):
            break
    for name in sorted(kinds):
        print(f"  {name}: {kinds[name]}")
    print(
        f"deliveries: {rounds} rounds, {kills} killed, {delivered} delivered, {cancelled} taken back, {snapshots} times "
        f"looked inside, {time.monotonic() - begin:.0f} s; nothing lost, nothing twice, nothing half")


if __name__ == "__main__":
    main()
