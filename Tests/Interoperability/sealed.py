"""What is left in an app's memory once its container is closed at once, looked for from outside.

The keys come from the container's files and the format's page, not from the app.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from attacks_on_an_app import VICTIM
from honest_deliveries import expect_echo, pair, request
from world import expect

sys.path.append(os.path.join(os.path.dirname(__file__), "../../Fixtures"))
from container.catalog import FILE_KIND  # noqa: E402
from container.state import open_container  # noqa: E402
from container.superblock import PASSPHRASE, RAW_KEY, Secret  # noqa: E402
from opendynamics import segment_key, writer_key  # noqa: E402

RAW = bytes([7]) * 32  # ServiceApp's
APP_KEY, MARKED = b".opendynamics/key", b"marked"
NEEDLE = 32


class Secrets:
    """The keys of a container, those of the last messages of its files, and the beginnings of their contents."""

    def __init__(self, path, secret=Secret(RAW, (RAW_KEY,))):
        self.keys, self.segments, self.contents = {}, {}, {}
        with open_container(Path(path), secret) as container:
            self.keys["root"] = container.root_key
            for number, key in container.body.epochs.items():
                self.keys[f"epoch {number}"] = key
            for name, number, inode in container.state.catalog.tree():
                if inode.kind != FILE_KIND or not inode.size:
                    continue
                file = container.file(number, inode)
                contents = b"".join(file.contents(container.stored))
                if name == APP_KEY:
                    self.keys["the app's"] = contents
                elif inode.size >= 1 << 20:
                    self.contents[name] = contents[4096:4096 + NEEDLE]
                for extent in file.extents:
                    writer = writer_key(file.key, extent.session)
                    self.keys[f"writer of {name}"] = writer
                    last = extent.count - 1
                    self.segments[f"segment of {name}"] = segment_key(writer, extent.counter + last, extent.start + last)


def memory(pid):
    """All that a process has in memory of its own."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in maps:
            place, permissions = line.split()[:2]
            if "w" not in permissions and permissions != "---p" or "[v" in line:
                continue
            begin, end = (int(part, 16) for part in place.split("-"))
            yield from pieces(file, begin, end)


def pieces(file, begin, end, size=1 << 22):
    """With what crosses from one into the next. What cannot be read is left out: nobody else can read it either."""
    while begin < end:
        try:
            data = os.pread(file.fileno(), min(size + NEEDLE, end - begin), begin)
        except OSError:
            data = b""
        if not data:
            # Of address space that was only reserved, the next page may have something.
            begin += 1 << 12 if end - begin <= 1 << 20 else 1 << 20
            continue
        yield data
        begin += min(size, len(data))


def found(parts, needles):
    """The names of the needles that are there."""
    names = set()
    for data in parts:
        names |= {name for name, needle in needles.items() if name not in names and needle in data}
    return names


def core_file(world, process):
    """The core file of the process, which ends; nothing where the system puts them elsewhere."""
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
        if file.read().strip() != "core":
            return None
    hard = resource.prlimit(process.pid, resource.RLIMIT_CORE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_CORE, (hard, hard))
    if hard == 0:
        return None
    process.send_signal(signal.SIGQUIT)
    # The kernel writes all of its memory, on a disk that others may keep busy.
    process.wait(600)
    return next((path for path in Path(world.directory).glob("core*") if path.is_file()), None)


def nothing_is_left_in_memory(world):
    process, app, channel = pair(world)
    files = [("/Documents/large", os.urandom(3 << 20)), ("/small", os.urandom(100))]
    expect_echo(request(app, files).offer(channel), files)
    process.process.stdin.write("use\n")
    process.says("used")
    secrets = Secrets(f"{world.directory}/{VICTIM}")
    pid = process.process.pid
    own = {name for name in secrets.keys if not name.startswith("writer")}
    expect(found(memory(pid), secrets.keys) >= own, True)
    assert len(secrets.contents) >= 2 and len(secrets.segments) >= 3, secrets.contents

    process.process.stdin.write("seal\n")
    process.says("sealed /marked")
    expect(found(memory(pid), secrets.keys | secrets.segments), set())
    end = time.monotonic() + 10
    while (left := found(memory(pid), secrets.contents)) and time.monotonic() < end:
        time.sleep(0.05)
    expect(left, set())
    # All of it is still referenced.
    process.process.stdin.write("look\n")
    process.says("closed: sealed by a test")
    expect(found(memory(pid), secrets.keys | secrets.segments | secrets.contents), set())

    core = core_file(world, process.process)
    if core is None:
        print("        no core files here, memory alone was searched", flush=True)
        return
    with open(core, "rb", 0) as file:
        size = os.fstat(file.fileno()).st_size
        assert size > 1 << 20
        expect(found(pieces(file, 0, size), secrets.keys | secrets.segments | secrets.contents), set())


def only_an_authorized_app_has_keys(world):
    """States of a running app that management and a person cause: keys are in memory where the page says so, and what was typed nowhere."""
    password, code = os.urandom(20).hex(), os.urandom(20).hex()

    def file(name, text):
        path = f"{world.directory}/{name}"
        with open(path, "w", encoding="ascii") as out:
            out.write(text + "\n")
        return path

    def dynamics(*words):
        subprocess.run([world.program, *words], check=True, stdout=subprocess.DEVNULL, cwd=world.directory)

    def manage(verb, *words):
        dynamics("manage", verb, "managed.json", *words)

    dynamics("container", "create", "notes", "--passphrase-file", file("pass", password))
    manage("code", "--code-file", file("code", code))
    process = world.spawn(
        "env", f"OPENDYNAMICS_BROKER={world.path}", world.program, "app", "run", "notes", "--id", "com.example.notes",
        "--passphrase-file", "pass", "--managed", "managed.json")
    # What it does not say ends the wait for it.
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()

    def says(*lines):
        for wanted in lines:
            line = process.stdout.readline().rstrip()
            while line != wanted and line:
                line = process.stdout.readline().rstrip()
            expect(line, wanted)

    def types(line):
        process.stdin.write(line + "\n")

    says("authorized")
    keys, segments, own = {}, {}, set()

    def learn():
        """Also what belongs to this opening alone."""
        time.sleep(0.5)
        secrets = Secrets(f"{world.directory}/notes", Secret(password.encode(), (PASSPHRASE,)))
        own.update(name for name in secrets.keys if not name.startswith("writer"))
        for needles, new in ((keys, secrets.keys), (segments, secrets.segments)):
            # The same name may have another key by now.
            needles.update({f"{name} {key.hex()[:8]}": key for name, key in new.items()})

    learn()
    typed = {"the password": password[:NEEDLE].encode(), "the code": code[:NEEDLE].encode()}

    def has(expects_keys, state):
        left = found(memory(process.pid), keys | segments | typed)
        if expects_keys:
            there = {name.rsplit(" ", 1)[0] for name in left}
            assert own <= there, f"{state}: {own - there} are missing"
            left -= keys.keys() | segments.keys()
        assert not left, f"{state}: {left}"

    has(True, "authorized")
    manage("set", "passwordRules", '{"idleSeconds": 1}')
    says("not authorized idleLockout")
    has(True, "idle")
    manage("unset", "passwordRules")
    types(password)
    says("authorized")
    has(True, "unlocked")
    manage("set", "blocked", "{}")
    says("not authorized blocked")
    has(False, "blocked")
    manage("unset", "blocked")
    says("asks for the password")
    has(False, "asking")
    types(password[::-1])
    says("refused wrongPassword")
    has(False, "after a wrong password")
    types(password)
    says("authorized")
    learn()
    has(True, "authorized again")
    manage("set", "passwordRules", '{"minimumLength": 100, "idleSeconds": 1}')
    says("not authorized idleLockout")
    types(password)
    says("not authorized passwordChangeRequired")
    has(True, "asking for a new password")
    new = os.urandom(60).hex()
    typed["the new password"] = new[:NEEDLE].encode()
    types(password)
    types(new)
    says("authorized")
    password = new
    has(True, "after a new password")
    manage("unset", "passwordRules")
    manage("lock")
    says("not authorized remoteLockout")
    has(False, "locked remotely")
    types(code)
    says("asks for the password")
    has(False, "after the code")
    types(password)
    says("authorized")
    learn()
    manage("set", "entitlements", '{"com.example.notes": ["9"]}')
    says("not authorized versionNotEntitled")
    has(False, "version not entitled")
    manage("set", "entitlements", "{}")
    says("not authorized notEntitled")
    has(False, "not entitled")
    watchdog.cancel()


CHECKS = [nothing_is_left_in_memory, only_an_authorized_app_has_keys]
