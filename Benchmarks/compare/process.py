"""Runs pipelines of commands and measures what they cost."""

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path


class CommandFailed(Exception):
    """A command ended with something other than 0; the message has the end of its standard error."""


@dataclass(frozen=True)
class Pipeline:
    """Commands connected by pipes, from /dev/null to /dev/null."""

    commands: list[list[str]]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Usage:
    """Cost of one pipeline."""

    seconds: float
    """Wall-clock time from the start of the first process to the end of the last."""
    processor_seconds: float
    """User and system time of all processes, servers included."""


@dataclass
class Probe:
    """What slows a process down while it is measured."""

    peak_bytes: int
    """The resident size of the largest process, servers included; not the sum of all."""
    system_calls: int
    """Of all processes, servers included, and some 60 of time(1) for each command."""


_libc = ctypes.CDLL(None, use_errno=True)


def synchronize(path: Path) -> None:
    """Makes everything on the file system of `path` durable (syncfs)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs", str(path))
    finally:
        os.close(descriptor)


def run(*pipelines: Pipeline, servers: "list[Server]" = (), durable_in: list[Path] = ()) -> Usage:
    """Runs pipelines, all at once, to their ends, and until the file systems of `durable_in` are written back.

    Raises CommandFailed.
    """
    before = [server.processor_seconds() for server in servers]
    processes: list[subprocess.Popen] = []
    try:
        begin = time.perf_counter()
        for pipeline in pipelines:
            _start(pipeline, processes)
        usages = [_wait(process) for process in processes]
        for path in durable_in:
            synchronize(path)
        seconds = time.perf_counter() - begin
    except BaseException:
        for process in processes:
            process.kill()
        raise
    _check(processes)
    spent = sum(server.processor_seconds() for server in servers) - sum(before)
    return Usage(seconds, sum(u.ru_utime + u.ru_stime for u in usages) + spent)


def probe(*pipelines: Pipeline, servers: "list[Server]", scratch: Path) -> Probe:
    """Runs pipelines, all at once, under strace(1) and time(1). `scratch` is a directory that is not there yet.

    Raises CommandFailed.
    """
    scratch.mkdir()
    for server in servers:
        server.reset_peak()
    numbers = itertools.count()

    def probed(command: list[str]) -> list[str]:
        number = next(numbers)
        # The other way round, the peak of a small program would be that of strace.
        return [
            "strace", "-f", "-qq", "-c", "-o", str(scratch / f"calls-{number}"),
            "/usr/bin/time", "--format", "%M", "--output", str(scratch / f"peak-{number}"), *command]

    tracers = []
    try:
        for server in servers:
            tracers.append(server.trace(scratch / f"server-{server.pid}"))
        run(*(replace(one, commands=[probed(command) for command in one.commands]) for one in pipelines))
        for tracer in tracers:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        peaks = [int(file.read_text().split()[-1]) * 1024 for file in scratch.glob("peak-*")]
        calls = sum(call_count(file) for file in [*scratch.glob("calls-*"), *scratch.glob("server-*")])
        return Probe(max(peaks + [server.peak_bytes() for server in servers]), calls)
    finally:
        for tracer in tracers:
            tracer.kill()
            tracer.wait()
        shutil.rmtree(scratch)


def call_count(summary: Path, without_misses: bool = False) -> int:
    """All calls that `strace -c` counted. `without_misses`: without those that looked for a file in vain, since how many
    folders the loader searches for libraries depends on the processor."""
    calls = 0
    for row in summary.read_text().splitlines():
        columns = row.split()
        if len(columns) < 5 or not columns[3].isdigit() or columns[-1] == "total":
            continue
        calls += int(columns[3])
        if without_misses and len(columns) == 6 and columns[5] in ("openat", "newfstatat"):
            calls -= int(columns[4])
    return calls


def _start(pipeline: Pipeline, processes: list[subprocess.Popen]) -> None:
    """Adds its processes to `processes`, one by one, so that those before one that does not start are known."""
    environment = os.environ | pipeline.environment
    source = None
    for index, command in enumerate(pipeline.commands):
        process = subprocess.Popen(
            command,
            stdin=source or subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if index == len(pipeline.commands) - 1 else subprocess.PIPE,
            # A pipe that nobody reads before the end would hold up whoever writes much to it.
            stderr=(errors := tempfile.TemporaryFile()),
            env=environment,
        )
        process.errors = errors
        if source:
            # Only the reader keeps the pipe, so that its writer gets EPIPE when the reader dies.
            source.close()
        source = process.stdout
        processes.append(process)


def _check(processes: list[subprocess.Popen]) -> None:
    failures = []
    for process in processes:
        process.errors.seek(0)
        text = process.errors.read().decode(errors="replace").strip()
        process.errors.close()
        if process.returncode != 0:
            failures.append(f"{' '.join(process.args[:3])} … ended with {process.returncode}: {text[-400:]}")
    if failures:
        # The one whose pipe broke need not be the one that failed.
        raise CommandFailed("; ".join(failures))


def _wait(process: subprocess.Popen):
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def output(command: list[str]) -> str | None:
    """Standard output and error of a command, or None when it is missing or fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


class Server:
    """A process that stays, such as the one behind a mount, and takes part in the work of others."""

    def __init__(
        self, command: list[str], log: Path, environment: dict[str, str] | None = None, text: str = ""
    ):
        self._log = log
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=os.environ | (environment or {}),
                start_new_session=True,
            )
        self._process.stdin.write(text.encode())
        self._process.stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def program(self) -> str:
        return self._process.args[0]

    def check(self) -> None:
        """Raises CommandFailed when the process has ended."""
        if self._process.poll() is not None:
            text = self._log.read_text(errors="replace").strip()[-400:]
            raise CommandFailed(f"{self.program} ended with {self._process.returncode}: {text}")

    def processor_seconds(self) -> float:
        """User and system time of all its threads so far, in nanoseconds' resolution: `/proc` has hundredths of a second."""
        clock = ctypes.c_int()
        if number := _libc.clock_getcpuclockid(self.pid, ctypes.byref(clock)):
            raise OSError(number, "clock_getcpuclockid", str(self.pid))
        return time.clock_gettime(clock.value)

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def trace(self, summary: Path) -> subprocess.Popen:
        """Counts its system calls until SIGINT ends the returned process."""
        tracer = subprocess.Popen(["strace", "-f", "-qq", "-c", "-o", str(summary), "-p", str(self.pid)])
        while "TracerPid:\t0" in Path(f"/proc/{self.pid}/status").read_text():
            if tracer.poll() is not None:
                raise CommandFailed(f"strace could not attach: it ended with {tracer.returncode}")
            time.sleep(0.01)
        return tracer

    def wait_for(self, line: str, seconds: float) -> None:
        """Waits until a line of its output begins so. Raises CommandFailed."""
        deadline = time.monotonic() + seconds
        while not any(text.startswith(line) for text in self._log.read_text(errors="replace").splitlines()):
            self.check()
            if time.monotonic() > deadline:
                raise CommandFailed(f"{self.program} did not print '{line}' within {seconds} s")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends the process with SIGTERM."""
        self._process.terminate()
        self.wait(30)

    def wait(self, seconds: float) -> None:
        """Waits until the process ends, and ends it when it does not."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
