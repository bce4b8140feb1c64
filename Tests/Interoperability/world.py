"""A broker of this project in a process of its own, apps around it, and the list of checks."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import keys
from opendynamics_client import App, Client, Fault, Loop, Refused, TimedOut

SERVICE, SERVICE_VERSION = "com.example.check", "1.0.0.0"


class World:
    def __init__(self, program, log=None):
        self.program = program
        self.directory = tempfile.mkdtemp(prefix="odi-", dir="/tmp")
        os.mkdir(self.directory + "/run", 0o700)
        self.path, self.state = self.directory + "/run/broker", self.directory + "/state"
        self.loop, self.keys, self.apps, self.processes = Loop(), {}, [], []
        self.log = log or subprocess.DEVNULL
        self.broker = None
        # Many apps of one process, which nobody approves.
        self.broker_options = ["--plain-apps", "open:500"]
        self.start_broker()

    def start_broker(self):
        self.broker = subprocess.Popen(
            [self.program, "broker", "--socket", self.path, "--state", self.state, *self.broker_options],
            stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log)
        end = time.monotonic() + 20
        while time.monotonic() < end and self.broker.poll() is None:
            try:
                self.close_later(Client(self.loop, self.path, self.key("probe"))).close()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.02)
        raise RuntimeError(f"the broker does not answer: {self.broker.poll()}")

    def stop_broker(self, how=signal.SIGTERM):
        self.broker.send_signal(how)
        return self.broker.wait(20)

    def key(self, name):
        if name not in self.keys:
            self.keys[name] = keys.Key()
        return self.keys[name]

    def close_later(self, client):
        self.apps.append(client)
        return client

    def app(self, name, serve=None, **more):
        """The app com.example.NAME, or with another id, with the same key each time."""
        app_id = more.pop("app_id", f"com.example.{name}")
        return self.close_later(
            App(self.loop, self.path, self.key(more.pop("key", name)), app_id, serve=serve, **more))

    def tool(self, name="tool"):
        return self.close_later(Client(self.loop, self.path, self.key(name)))

    def administrator(self):
        self.keys["administrator"] = keys.read_private(self.state + "/administrator.key")
        return self.tool("administrator").attend(administers=True)

    def spawn(self, *arguments):
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, bufsize=1,
            cwd=self.directory)
        self.processes.append(process)
        return process

    def broker_bytes(self):
        """What the broker has in memory."""
        with open(f"/proc/{self.broker.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))

    def end(self):
        for app in self.apps:
            if app.broker.ending is None:
                app.broker.abandon()
        for process in [*self.processes, self.broker]:
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Checks:
    """Runs functions, each with a world of its own if it has one, and prints a line for each."""

    def __init__(self, program, wanted=None, log=None):
        self.program, self.wanted, self.log = program, wanted, log
        self.failed, self.passed = [], 0

    def run(self, functions, has_world=True):
        for function in functions:
            name = f"{function.__module__}.{function.__name__}"
            if self.wanted and self.wanted not in name:
                continue
            begin = time.monotonic()
            world = None
            try:
                if has_world:
                    world = World(self.program, self.log)
                    function(world)
                else:
                    function()
            except Exception as error:  # noqa: BLE001  whatever it is, the check failed
                self.failed.append(name)
                frame = traceback.extract_tb(error.__traceback__)
                place = next((f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(frame)
                              if f.filename.endswith(f"{function.__module__}.py")), "")
                print(f"FAILED  {name} ({place}): {type(error).__name__}: {error}", flush=True)
                if os.environ.get("OPENDYNAMICS_TRACE"):
                    traceback.print_exc()
            else:
                self.passed += 1
                print(f"ok      {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            finally:
                if world:
                    world.end()

    def finish(self):
        print(f"{self.passed} passed, {len(self.failed)} failed")
        sys.exit(1 if self.failed else 0)


def refusal(function, *arguments, **more):
    """The number that something is refused with, by an answer or by the end of the connection."""
    try:
        function(*arguments, **more)
    except (Refused, Fault) as error:
        return error.number
    return None


def ending(connection, seconds=20):
    """How the other side ended the connection: the number of its Goodbye, or "end"."""
    connection.loop.until(lambda: connection.ending is not None, seconds, "the end of a connection")
    return connection.ending


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r}, expected {wanted!r}")


def echo(served):
    """A provider of `com.example.check`."""
    if served.body.get("service_id") != SERVICE:
        return served.refuse(4)
    if served.body.get("version") != SERVICE_VERSION:
        return served.refuse(5)
    method = served.body.get("method")
    if method not in ("echo", "fail", "nothing", "hold"):
        return served.refuse(6)
    served.accept()
    if method == "echo":
        return served.reply(served.params)
    if method == "fail":
        return served.fail(-5, "no", {"why": "é"})
    return served.end() if method == "nothing" else None


__all__ = ["App", "Checks", "Client", "Fault", "Refused", "TimedOut", "World", "echo", "ending", "expect", "refusal"]
