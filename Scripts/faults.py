"""Kills the command line at each system call, lets each call fail, and checks what is left; see Scripts/faults.

Each step of the workload below is first run undisturbed under faultshim.c, which writes a list of the calls that touch the
containers, the sources and the keys. Then, for each of these calls and each fault that fits it, the step starts again from a copy
of the containers as they were before it. A kill loses nothing that was written, since the system survives it; what a power loss
takes is the matter of the crash tests.
"""

import argparse
import errno
import hashlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

# Operations as faultshim.c names them.
CHANGING = {"create", "write", "sync", "start-writeback", "truncate", "allocate", "rename", "remove", "make-directory", "make-link",
            "set-attributes"}
OPENING = {"create", "open-read", "open-write", "open-directory"}
FAILURES = {
    "ENOSPC": {"create", "write", "allocate", "rename", "make-directory", "make-link"},
    "EIO": CHANGING | OPENING | {"read", "read-directory", "read-link", "stat"},
    "EROFS": {"create", "open-write", "truncate", "allocate", "rename", "remove", "make-directory", "make-link",
              "set-attributes"},
    "EMFILE": OPENING,
    "ENOLCK": {"lock"},
}
CONTAINER_FILES = {"superblock", "lock", "reserve", "reserve.1", "reserve.2", "reserve.3", "journal", "catalog", "copy", "slab"}
# Two generations of the catalog with up to eight journals each, that of the step and that of the opening after it.
JOURNAL_COUNT_MAX = 18
SECONDS_MAX = 120
SHORT_COUNT = 250
# On a busy machine the short form leaves the rest out and says so.
SHORT_SECONDS = 50


@dataclass
class Step:
    """A command of the workload. `{a}`, `{b}` and `{c}` are containers, `{source}` and `{keys}` folders, `{out}` a free place."""

    name: str
    command: str
    # A command of several commits, taken apart: the states it passes through are those after each of these.
    stages: list[str] = field(default_factory=list)
    input: bytes | None = None
    # Containers that it changes.
    changes: str = "a"
    # Run and killed at its last call before the step: the step finds a container that was not closed.
    killed_before: str | None = None
    # Native files that are there before the step, below `{out}`.
    out: dict[str, bytes] = field(default_factory=dict)
    # Key files tried on container a, for steps that change which of them open it.
    keys: list[str] = field(default_factory=lambda: ["a"])
    # Of a command that makes a container: whether it takes over what an earlier one left that was killed.
    takes_over: bool = True

    @property
    def reads(self) -> bool:
        return not self.changes


KEY = "--key-file {keys}/a"
# The key that opens a container.
KEY_OF = {"a": "a", "b": "b", "c": "a"}
# Some steps write with one thread, so that a call has the same number in each run.
STEPS = [
    Step("create", f"container create {{a}} {KEY}"),
    Step("create-b", "container create {b} --key-file {keys}/b", changes="b"),
    Step("put", f"put {{a}} {{source}}/small /small {KEY} --threads 1"),
    Step("put-folder", f"put {{a}} {{source}}/folder / {KEY} --threads 1"),
    Step("put-big", f"put {{a}} {{source}}/big /Documents/big {KEY} --threads 2"),
    Step("put-replacing", f"put {{a}} {{source}}/other /Documents/big {KEY} --threads 1"),
    Step("put-stream", f"put {{a}} - /stream/input {KEY}", input=b"from a pipe\n" * 3000,
         stages=[f"mkdir {{a}} /stream {KEY}", f"put {{a}} - /stream/input {KEY}"]),
    Step("mkdir", f"mkdir -p {{a}} /one/two/three {KEY}"),
    Step("mkdir-several", f"mkdir {{a}} /first /second {KEY}",
         stages=[f"mkdir {{a}} /first {KEY}", f"mkdir {{a}} /second {KEY}"]),
    Step("cp", f"cp {{a}} /folder /first {KEY} --threads 1"),
    Step("mv", f"mv {{a}} /small /second {KEY}"),
    Step("mv-replacing", f"mv {{a}} /second/small /Documents/big {KEY}"),
    Step("put-again", f"put {{a}} {{source}}/big /kept {KEY} --threads 1"),
    Step("recovery", f"rm -f {{a}} /missing {KEY}",
         killed_before=f"put {{a}} {{source}}/folder /unclosed {KEY} --threads 1"),
    Step("put-unclosed", f"put {{a}} {{source}}/small /after {KEY} --threads 1",
         killed_before=f"put {{a}} {{source}}/other /unclosed/other {KEY} --threads 1"),
    Step("put-links", f"put {{a}} {{source}}/linked /linked {KEY} --threads 1"),
    Step("ln", f"ln {{a}} /linked/page /linked/second {KEY}"),
    # Two names of one file: what is appended to one of them is in the other.
    Step("append", f"append {{a}} /linked/second {{source}}/small {KEY}"),
    Step("ln-s", f"ln -s {{a}} page /linked/soft {KEY}"),
    Step("ln-s-f", f"ln -s -f {{a}} second /linked/soft {KEY}"),
    Step("cp-links", f"cp -r {{a}} /linked /copied {KEY} --threads 1"),
    Step("cp-link", f"cp -P {{a}} /linked/soft /copied/again {KEY}"),
    Step("cp-link-in", f"cp -P {{source}}/linked/nowhere {{a}}:/copied/nowhere-again {KEY}"),
    Step("mv-link", f"mv {{a}} /copied/again /linked/second {KEY}"),
    Step("rm-links", f"rm -r {{a}} /copied {KEY}"),
    Step("rm", f"rm {{a}} /Documents/big {KEY}"),
    Step("rm-several", f"rm {{a}} /first/folder/page0 /first/folder/page1 {KEY}",
         stages=[f"rm {{a}} /first/folder/page0 {KEY}", f"rm {{a}} /first/folder/page1 {KEY}"]),
    Step("rm-folder", f"rm -r {{a}} /first {KEY}"),
    Step("compact", f"container compact {{a}} {KEY} --threads 1"),
    Step("repair", f"container repair {{a}} {KEY}"),
    # Long enough for blocks to be given ahead.
    Step("put-long", "put {b} {source}/long /long --key-file {keys}/b --threads 2", changes="b"),
    Step("put-beside", "put {b} {source}/other /other --key-file {keys}/b --threads 1", changes="b"),
    Step("rm-long", "rm {b} /long --key-file {keys}/b", changes="b"),
    Step("rm-last", "rm {b} /other --key-file {keys}/b", changes="b"),
    Step("tidy", "rm -f {b} /missing --key-file {keys}/b", changes="b"),
    Step("cp-between", f"cp {{a}}:/linked/page {{b}}:/page {KEY} --to-key-file {{keys}}/b --threads 1", changes="b"),
    Step("cp-link-between", f"cp -P {{a}}:/linked/soft {{b}}:/soft {KEY} --to-key-file {{keys}}/b", changes="b"),
    Step("send", f"send {{a}} {{b}} /folder /kept --from com.example.a {KEY} --to-key-file {{keys}}/b --request-id r1 --threads 2",
         changes="b"),
    Step("send-again", f"send {{a}} {{b}} /folder /kept --from com.example.a {KEY} --to-key-file {{keys}}/b --request-id r1",
         changes="b"),
    Step("send-no-barrier",
         f"send {{a}} {{b}} /folder --from com.example.a {KEY} --to-key-file {{keys}}/b --request-id r2 --no-barrier --threads 1",
         changes="b"),
    Step("send-back", f"send {{b}} {{a}} /page --from com.example.b --key-file {{keys}}/b --to-key-file {{keys}}/a --request-id r3"),
    Step("inbox-list", f"inbox {{a}} list --from com.example.b {KEY}", changes=""),
    Step("inbox-remove", f"inbox {{a}} remove --from com.example.b {KEY}"),
    Step("key-add", f"container key add {{a}} {KEY} --new-key-file {{keys}}/second", keys=["a", "second"]),
    Step("key-remove", f"container key remove {{a}} {KEY} --old-key-file {{keys}}/second", keys=["a", "second"]),
    Step("passwd", f"container passwd {{a}} {KEY} --new-key-file {{keys}}/second", keys=["a", "second"],
         stages=[f"container key add {{a}} {KEY} --new-key-file {{keys}}/second",
                 f"container key remove {{a}} --key-file {{keys}}/second --old-key-file {{keys}}/a"]),
    Step("passwd-back", "container passwd {a} --key-file {keys}/second --new-key-file {keys}/a", keys=["a", "second"],
         stages=["container key add {a} --key-file {keys}/second --new-key-file {keys}/a",
                 f"container key remove {{a}} {KEY} --old-key-file {{keys}}/second"]),
    Step("ls", f"ls -R -l {{a}} {KEY}", changes=""),
    Step("cat", f"cat {{a}} /kept {KEY}", changes=""),
    Step("get", f"get {{a}} / {{out}} {KEY} --quiet --threads 1", changes=""),
    Step("get-replacing", f"get {{a}} /kept {{out}}/kept {KEY} --quiet --threads 1", changes="", out={"kept": b"older\n" * 9000}),
    Step("cp-links-out", f"cp -r {{a}}:/linked {{out}} {KEY} --quiet --threads 1", changes=""),
    Step("cp-link-out", f"cp -P {{a}}:/linked/soft {{out}}/soft {KEY} --quiet", changes="", out={"soft": b"older\n"}),
    Step("info", f"container info {{a}} {KEY}", changes=""),
    Step("verify", f"container verify {{a}} {KEY}", changes=""),
    Step("backup", f"container backup {{a}} {{c}} {KEY} --quiet --threads 1", changes="c", takes_over=False),
    Step("destroy", "container destroy {a} --yes"),
]

# With everything refused that would write: a container on read-only media.
READ_ONLY_REFUSED = sorted(FAILURES["EROFS"] | {"write"})


@dataclass(frozen=True)
class Call:
    number: int
    operation: str
    byte_count: int
    path: str


@dataclass(frozen=True)
class Fault:
    """What happens to one call; its text names it on the command line (--case)."""

    step: str
    at: int
    action: str  # kill-before, kill-after, kill-torn, fail, fill, lie, deny; short: all transfers
    errno: str = ""
    onward: bool = False
    byte_count: int = 0
    # A variation of read-only media: clean, unclosed, lockless.
    medium: str = ""

    def __str__(self) -> str:
        parts = [self.step, str(self.at), self.action, self.errno, "onward" if self.onward else "", str(self.byte_count or ""),
                 self.medium]
        return ":".join(parts).rstrip(":")

    @staticmethod
    def parse(text: str) -> "Fault":
        parts = (text.split(":") + [""] * 7)[:7]
        return Fault(parts[0], int(parts[1]), parts[2], parts[3], parts[4] == "onward", int(parts[5] or 0), parts[6])

    @property
    def kills(self) -> bool:
        return self.action.startswith("kill")

    def refused(self) -> set[str]:
        """The operations that fail from the call on."""
        return set(READ_ONLY_REFUSED) if self.action == "deny" else FAILURES[self.errno] if self.onward else set()

    def environment(self) -> dict[str, str]:
        if self.action == "short":
            return {"FAULT_SHORT": "1"}
        variables = {"FAULT_AT": str(self.at), "FAULT_ACTION": self.action, "FAULT_BYTES": str(self.byte_count)}
        if self.errno:
            variables["FAULT_ERRNO"] = str(getattr(errno, self.errno))
        if self.onward:
            variables["FAULT_OPERATIONS"] = ",".join(sorted(self.refused()))
        return variables


class Problem(Exception):
    """Something is not as it has to be."""


# Of one container: the keys that open it, and its tree. None: there is no container.
State = tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None


@dataclass
class Prepared:
    """A step, the containers before it, and what may be found after it."""

    step: Step
    folder: Path
    states: list[State]
    calls: list[Call]
    output: bytes
    files: dict[str, str]
    slab_byte_count: int


class Faults:
    def __init__(self, program: str, folder: Path, seed: int) -> None:
        self.program = program
        self.folder = folder
        self.random = random.Random(seed)
        self.shim = folder / "faultshim.so"
        compiler = next((c for c in ("clang", "cc", "gcc") if shutil.which(c)), None)
        if compiler is None:
            raise SystemExit("faults: no C compiler; install clang or gcc")
        subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                        str(Path(__file__).with_name("faultshim.c")), "-o", str(self.shim), "-ldl"], check=True)
        self.source = folder / "source"
        self.keys = folder / "keys"
        self.make_sources()
        self.counts: Counter[str] = Counter()

    def make_sources(self) -> None:
        inner = self.source / "folder" / "inner"
        inner.mkdir(parents=True)
        self.keys.mkdir()
        for name in ("a", "b", "second"):
            (self.keys / name).write_bytes(self.random.randbytes(32))
        (self.source / "small").write_bytes(self.random.randbytes(700))
        (self.source / "other").write_bytes(self.random.randbytes(40_000))
        (self.source / "big").write_bytes(self.random.randbytes((3 << 20) + 5))
        (self.source / "long").write_bytes(bytes((24 << 20) + 1))
        for i, size in enumerate((0, 1, 16_384, 16_385)):
            (inner.parent / f"page{i}").write_bytes(self.random.randbytes(size))
        (inner / "leaf").write_bytes(self.random.randbytes(5_000))
        linked = self.source / "linked"
        linked.mkdir()
        (linked / "page").write_bytes(self.random.randbytes(20_000))
        for name, target in (("near", "page"), ("up", "../folder"), ("nowhere", "/no/such/place")):
            (linked / name).symlink_to(target)

    # Running

    def arguments(self, command: str, place: Path) -> list[str]:
        names = {"a": place / "a", "b": place / "b", "c": place / "c", "out": place / "out", "source": self.source, "keys": self.keys}
        return [self.program, *(word.format(**names) for word in command.split())]

    def run(self, command: str, place: Path, input: bytes | None = None,
            environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        variables = dict(os.environ)
        if environment is not None:
            variables |= {"LD_PRELOAD": str(self.shim), "FAULT_TRACE": str(place / "trace")} | environment
            variables.setdefault("FAULT_ROOTS", ":".join(
                str(root) for root in (place / "a", place / "b", place / "c", place / "out", self.source, self.keys)))
        return subprocess.run(self.arguments(command, place), input=input if input is not None else b"", env=variables,
                              capture_output=True, timeout=SECONDS_MAX)

    def must_run(self, command: str, place: Path, input: bytes | None = None) -> bytes:
        done = self.run(command, place, input)
        if done.returncode != 0:
            raise Problem(f"'{command}' ended with {describe(done)}")
        return done.stdout

    # Looking

    def tree(self, place: Path, container: str, key: str) -> tuple[tuple[str, ...], ...]:
        out = Path(tempfile.mkdtemp(prefix="look-", dir=place))
        try:
            self.must_run(f"get {{{container}}} / {out}/tree --key-file {{keys}}/{key} --quiet", place)
            return native_tree(out / "tree")
        finally:
            shutil.rmtree(out)

    def state(self, step: Step, place: Path) -> State:
        """What there is in the container that the step changes."""
        container = step.changes or "a"
        if not (place / container).exists():
            return None
        candidates = step.keys if container == "a" else [KEY_OF[container]]
        opening = []
        for key in candidates:
            # The tree tells for a single key.
            if len(candidates) > 1:
                done = self.run(f"ls {{{container}}} --key-file {{keys}}/{key}", place)
                if done.returncode == 3:
                    continue
                if done.returncode != 0:
                    raise Problem(f"ls ended with {describe(done)}")
            opening.append(key)
        if not opening:
            raise Problem("no key opens the container any more")
        return (tuple(opening), self.tree(place, container, opening[0]))

    def findings(self, step: Step, place: Path, state: State) -> list[dict[str, str]]:
        done = self.run(f"container verify {{{step.changes or 'a'}}} --json --key-file {{keys}}/{state[0][0]}", place)
        if done.returncode not in (0, 2) or not done.stdout:
            raise Problem(f"verify ended with {describe(done)}")
        return json.loads(done.stdout)["findings"]

    # Preparing

    def prepare(self, names: set[str] | None) -> list[Prepared]:
        """Runs the whole workload undisturbed and keeps, for each step (of those named), what it starts from."""
        now = self.folder / "now"
        now.mkdir()
        prepared = []
        for step in STEPS:
            if step.killed_before:
                self.kill_at_end(step.killed_before, now)
            for name, contents in step.out.items():
                (now / "out").mkdir(exist_ok=True)
                (now / "out" / name).write_bytes(contents)
            wanted = names is None or step.name in names
            if wanted:
                base = self.folder / "base" / step.name
                shutil.copytree(now, base, symlinks=True)
                states = [self.state(step, base)]
            for stage in step.stages if wanted else []:
                scratch = self.folder / "scratch"
                if stage is step.stages[0]:
                    shutil.copytree(base, scratch, symlinks=True)
                self.must_run(stage, scratch, step.input)
                states.append(self.state(step, scratch))
                if stage is step.stages[-1]:
                    shutil.rmtree(scratch)
            done = self.run(step.command, now, step.input, environment={})
            calls = read_trace(now)
            if done.returncode != 0:
                raise SystemExit(f"faults: {step.name} without a fault ended with {describe(done)}")
            if wanted:
                after = self.state(step, now)
                if step.stages and after != states[-1]:
                    raise SystemExit(f"faults: the stages of {step.name} do not lead to where the step leads")
                states.append(after)
                slabs = [slab_byte_count(place / (step.changes or "a")) for place in (base, now)]
                prepared.append(Prepared(step, base, states, calls, done.stdout, native_files(now / "out"), max(slabs)))
            shutil.rmtree(now / "out", ignore_errors=True)
        return prepared

    def kill_at_end(self, command: str, place: Path) -> None:
        """Runs the command and kills it before the writing that marks the container as closed."""
        # What runs in the background makes a call come a little earlier or later from run to run.
        for _ in range(10):
            scratch = Path(tempfile.mkdtemp(prefix="killed-", dir=self.folder)) / "copy"
            shutil.copytree(place, scratch, symlinks=True)
            self.run(command, scratch, environment={})
            writes = [call for call in read_trace(scratch) if call.operation == "open-write" and call.path.endswith("/superblock")]
            shutil.rmtree(scratch)
            shutil.copytree(place, scratch, symlinks=True)
            done = self.run(command, scratch, environment={"FAULT_AT": str(writes[-1].number), "FAULT_ACTION": "kill-before"})
            if done.returncode == -9:
                shutil.rmtree(place)
                scratch.rename(place)
                (place / "trace").unlink()
                return
            shutil.rmtree(scratch)
        raise SystemExit(f"faults: '{command}' was to be killed and ended with {describe(done)}")

    def faults(self, prepared: Prepared) -> list[Fault]:
        """All faults of a step."""
        name = prepared.step.name
        found = [Fault(name, 0, "short")]
        for call in prepared.calls:
            if call.operation in CHANGING:
                found += [Fault(name, call.number, "kill-before"), Fault(name, call.number, "kill-after")]
            if call.operation == "write" and call.byte_count > 512:
                pieces = (call.byte_count - 1) // 512
                for piece in {self.random.randint(1, pieces), pieces}:
                    found.append(Fault(name, call.number, "kill-torn", byte_count=piece * 512))
            for error, operations in FAILURES.items():
                if call.operation not in operations:
                    continue
                found.append(Fault(name, call.number, "fail", error))
                # A disk that fills takes a part of the write first.
                part = call.byte_count // 2 if error == "ENOSPC" and call.operation == "write" else 0
                found.append(Fault(name, call.number, "fill" if part else "fail", error, True, part))
        if prepared.step.reads or name in ("put", "rm", "key-add"):
            found += [Fault(name, 1, "deny", "EROFS", True, medium=medium) for medium in ("clean", "unclosed", "lockless")]
        return found

    def check_itself(self, prepared: list[Prepared]) -> None:
        """A write that is left out and reported as done: if that looks right, nothing that looks right can be believed."""
        for step in prepared:
            if step.step.name != "put":
                continue
            lies = [call for call in step.calls if call.operation == "write" and "/slab/" in call.path]
            lies += [call for call in step.calls if call.operation == "write" and "/journal/" in call.path]
            for call in lies:
                try:
                    self.check(step, Fault(step.step.name, call.number, "lie"), keep=False)
                except Problem:
                    continue
                raise SystemExit(f"faults: a lost write to {Path(call.path).parent.name} was not noticed: the check is blind")

    # One case

    def check(self, prepared: Prepared, fault: Fault, keep: bool) -> None:
        """Carries out the fault and looks at what is left. Raises Problem."""
        place = Path(tempfile.mkdtemp(prefix=f"{fault.step}-", dir=self.folder))
        try:
            shutil.copytree(prepared.folder, place, symlinks=True, dirs_exist_ok=True)
            self.check_in(place, prepared, fault)
        except subprocess.TimeoutExpired as expired:
            raise Problem(f"did not end within {SECONDS_MAX} s: {expired.cmd[1:4]}") from expired
        finally:
            if not keep:
                shutil.rmtree(place, ignore_errors=True)

    def check_in(self, place: Path, prepared: Prepared, fault: Fault) -> None:
        step = prepared.step
        environment = fault.environment()
        if fault.medium:
            if fault.medium == "unclosed":
                self.kill_at_end(f"put {{a}} {{source}}/small /late {KEY} --threads 1", place)
            if fault.medium == "lockless":
                (place / "a" / "lock").unlink()
            environment["FAULT_ROOTS"] = f"{place / 'a'}"
        before = container_files(place)
        done = self.run(step.command, place, step.input, environment)
        was_reached = fault.action in ("short", "deny") or bool(read_trace(place))
        if not was_reached:
            self.counts["not reached"] += 1
        self.check_ending(done, fault, was_reached, prepared)
        if fault.medium:
            self.check_medium(place, prepared, fault, done)
            after = container_files(place)
            if after != before:
                raise Problem(f"changed the files of a container on read-only media: {difference(before, after)}")
            return
        if step.reads:
            self.check_reading(place, prepared, fault, done)
        after = container_files(place)
        if step.reads and after != before:
            raise Problem(f"only reads, and changed the container's files: {difference(before, after)}")
        if difference(without(before, f"{step.changes}/"), without(after, f"{step.changes}/")):
            raise Problem("changed the files of another container")
        # The lock file says who writes.
        for files in (before, after):
            files.pop(f"{step.changes}/lock", None)
        if after == before and prepared.states[0] is not None:
            # Nothing was written: what was true of it before is true now.
            if done.returncode == 0 and prepared.states[-1] != prepared.states[0]:
                raise Problem("ended with 0 and changed nothing")
            if not step.reads and step.killed_before:
                self.check_container(place, prepared, fault, done)
            return
        if prepared.states[0] is None:
            self.check_creation(place, prepared, fault, done)
        elif prepared.states[-1] is None:
            self.check_destruction(place, prepared, fault, done)
        else:
            self.check_container(place, prepared, fault, done)

    def check_ending(self, done: subprocess.CompletedProcess[bytes], fault: Fault, was_reached: bool, prepared: Prepared) -> None:
        code = done.returncode
        if fault.kills and was_reached:
            if code != -9:
                raise Problem(f"was to be killed and ended with {describe(done)}")
            return
        if code < 0:
            raise Problem(f"crashed: {describe(done)}")
        if b"Fatal error" in done.stderr:
            raise Problem(f"trapped: {describe(done)}")
        if code == 0:
            return
        if not was_reached or fault.action == "short":
            raise Problem(f"has to succeed and ended with {describe(done)}")
        message = done.stderr.decode()
        if fault.errno == "EIO" and code == 2:
            if not names_unreadable(done.stdout) and os.strerror(errno.EIO) not in message + findings_of(done.stdout):
                raise Problem(f"says that something is damaged and not what: {describe(done)}")
            return
        if fault.errno == "ENOSPC":
            if code != 7 or "disk is full" not in message:
                raise Problem(f"a full disk is exit code 7, but it ended with {describe(done)}")
        elif code != 1:
            raise Problem(f"a failed call is exit code 1, but it ended with {describe(done)}")
        elif os.strerror(getattr(errno, fault.errno)) not in message:
            raise Problem(f"does not say which call failed and why: {describe(done)}")
        if not message.startswith("dynamics: ") or message.count("\n") < 2:
            raise Problem(f"does not say what failed and what to do: {describe(done)}")

    def check_reading(self, place: Path, prepared: Prepared, fault: Fault, done: subprocess.CompletedProcess[bytes]) -> None:
        found = native_files(place / "out")
        if done.returncode == 0:
            more = done.stdout.replace(prepared.output, b"", 1)
            is_finding = prepared.output in done.stdout and fault.errno in ("EIO", "ENOLCK") and names_unreadable(more)
            if done.stdout != prepared.output and not is_finding:
                raise Problem("ended with 0 and printed something else than without the fault")
            if found != prepared.files:
                raise Problem(f"ended with 0 and wrote something else: {difference(prepared.files, found)}")
            return
        parts = {name for name in found if name.rpartition("/")[2].startswith(".opendynamics-")}
        may_leave_parts = fault.kills or fault.errno in ("EIO", "EROFS") and fault.onward
        # The one that could not be removed.
        may_leave_parts = may_leave_parts or prepared.calls[fault.at - 1].operation == "remove"
        if parts and not may_leave_parts:
            raise Problem(f"left {len(parts)} unfinished files")
        older = {name: hashlib.sha256(contents).hexdigest() for name, contents in prepared.step.out.items()}
        if older.keys() - found.keys():
            raise Problem("removed a file that was there before")
        for name in found.keys() - parts:
            if found[name] not in (prepared.files.get(name), older.get(name)):
                raise Problem(f"left {name} half written")

    def check_medium(self, place: Path, prepared: Prepared, fault: Fault, done: subprocess.CompletedProcess[bytes]) -> None:
        if not prepared.step.reads:
            if done.returncode == 0:
                raise Problem("ended with 0 where nothing can be written")
        elif done.returncode != 0:
            raise Problem(f"cannot be read from read-only media: {describe(done)}")
        elif fault.medium == "clean":
            self.check_reading(place, prepared, fault, done)

    def check_creation(self, place: Path, prepared: Prepared, fault: Fault, done: subprocess.CompletedProcess[bytes]) -> None:
        container = prepared.step.changes
        if not (place / container).exists():
            if done.returncode == 0:
                raise Problem("ended with 0 and made no container")
            return
        look = self.run(f"ls {{{container}}} --key-file {{keys}}/{KEY_OF[container]}", place)
        if look.returncode == 0:
            self.check_container(place, prepared, fault, done)
            return
        if look.returncode != 5:
            raise Problem(f"half a container: ls ended with {describe(look)}")
        # What is there cannot be removed, or not be listed, when that fails too.
        # Nor is a lock removed by whoever does not hold it.
        if not fault.kills and not fault.refused() & {"remove", "open-directory", "lock"}:
            if prepared.calls[fault.at - 1].operation not in {"remove", "lock"}:
                raise Problem(f"a creation that failed left {sorted(os.listdir(place / container))}")
        # Without a superblock it is no container, and the next creation takes it over.
        self.counts["creations that left a directory"] += 1
        if not prepared.step.takes_over:
            shutil.rmtree(place / container)
        self.must_run(prepared.step.command, place)

    def check_destruction(self, place: Path, prepared: Prepared, fault: Fault, done: subprocess.CompletedProcess[bytes]) -> None:
        """It is the container that was, or nothing opens it any more; and the next call goes on."""
        look = self.run(f"ls {{a}} {KEY}", place)
        if look.returncode == 0:
            if done.returncode == 0:
                raise Problem("ended with 0, and the container opens")
            if self.state(prepared.step, place) != prepared.states[0]:
                raise Problem("opens, and is not what it was")
        elif look.returncode != 5 and fault.action not in ("kill-torn", "fill"):
            raise Problem(f"is neither whole nor gone: ls ended with {describe(look)}")
        again = self.run(prepared.step.command, place)
        if again.returncode not in (0, 5):
            raise Problem(f"the next call ended with {describe(again)}")
        if set(native_files(place / "a")) - {"lock"}:
            raise Problem(f"the next call left {sorted(native_files(place / 'a'))[:4]}")
        self.must_run(f"container create {{a}} {KEY}", place)
        if self.tree(place, "a", "a"):
            raise Problem("what was destroyed is in the container that was made after it")

    def check_container(self, place: Path, prepared: Prepared, fault: Fault, done: subprocess.CompletedProcess[bytes]) -> None:
        step = prepared.step
        container = step.changes
        state = self.state(step, place)
        if state not in prepared.states and not leaves_out(prepared, fault, done, state):
            raise Problem(f"neither the state before nor the state after: {compare(prepared.states, state)}")
        if done.returncode == 0 and state != prepared.states[-1]:
            raise Problem("ended with 0, and the state is not the one after it")
        for finding in self.findings(step, place, state):
            # The format's page: a torn copy of the superblock is reported as damage, although a crash leaves one.
            is_torn = finding["kind"] == "superblockSlotTorn" and fault.action in ("kill-torn", "fill")
            if finding["severity"] == "damage" and not is_torn:
                raise Problem(f"calls it damage: {finding['kind']}: {finding['detail']}")
        self.must_run(f"rm -f {{{container}}} /missing --key-file {{keys}}/{state[0][0]}", place)
        findings = self.findings(step, place, state)
        if findings:
            raise Problem(f"after the next opening for writing verify still reports {findings[0]['kind']}: {findings[0]['detail']}")
        again = self.state(step, place)
        if again != state:
            raise Problem(f"another state after the next opening for writing: {compare([state], again)}")
        unknown = set(os.listdir(place / container)) - CONTAINER_FILES
        if unknown:
            raise Problem(f"garbage in the container: {sorted(unknown)}")
        journals = len(os.listdir(place / container / "journal"))
        if journals > JOURNAL_COUNT_MAX:
            raise Problem(f"{journals} journals")
        excess = slab_byte_count(place / container) - prepared.slab_byte_count
        # Blocks that are dead in part cannot be given back, nor a slab with a segment that cannot be read and moved.
        is_kept = step.name == "compact" and fault.errno == "EIO"
        kept = max((slab.stat().st_size for slab in (place / container / "slab").iterdir()), default=0) if is_kept else 0
        if excess > kept + (64 << 10):
            raise Problem(f"the slabs take {excess} bytes more than before and after the step")


def describe(done: subprocess.CompletedProcess[bytes]) -> str:
    return f"{done.returncode}: {done.stderr.decode(errors='replace').strip() or 'nothing on standard error'}"


def leaves_out(prepared: Prepared, fault: Fault, done: subprocess.CompletedProcess[bytes], state: State) -> bool:
    """Whether a command left out, and named, what the system did not read of a native folder; everything else is stored."""
    before, after = prepared.states[0], prepared.states[-1]
    call = prepared.calls[fault.at - 1]
    if done.returncode != 1 or fault.onward or "/source/" not in call.path or not (before and after and state):
        return False
    missing = set(after[1]) - set(state[1])
    message = done.stderr.decode()
    place = call.path.rpartition("/source/")[2]
    return (state[0] == after[0] and set(before[1]) <= set(state[1]) <= set(after[1]) and "left out: 1 item" in message
            and place in message and all(f"{name}/".startswith(f"{place}/") for name, _, _ in missing))


def names_unreadable(text: bytes) -> bool:
    """Whether a text tells of one of two copies, or of a lock, that cannot be had. `info` prints it below the rest, `verify` above."""
    return b"; the other copy is whole (copyDamaged)" in text or b" (superblockSlotTorn)" in text or b" (notLocked)" in text


def findings_of(text: bytes) -> str:
    """The lines of what `verify` found, which it prints to standard output."""
    return "".join(line for line in text.decode(errors="replace").splitlines(keepends=True) if line.startswith("damage: "))


def read_trace(place: Path) -> list[Call]:
    """The calls that the shim wrote down; the list is gone then."""
    try:
        lines = (place / "trace").read_text().splitlines()
        (place / "trace").unlink()
    except FileNotFoundError:
        return []
    calls = []
    for line in lines:
        number, operation, count, path = line.split(" ", 3)
        calls.append(Call(int(number), operation, int(count), path))
    return sorted(calls, key=lambda call: call.number)


def native_files(folder: Path) -> dict[str, str]:
    """The files and links below a folder, with digests of their contents."""
    return {str(path.relative_to(folder)): digest_of(path)
            for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()}


def digest_of(path: Path) -> str:
    """Of a file's contents; of a link, where it leads."""
    return "-> " + os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()


def container_files(place: Path) -> dict[str, str]:
    return {f"{name}/{file}": digest for name in "abc" for file, digest in native_files(place / name).items()}


def without(files: dict[str, str], prefix: str) -> dict[str, str]:
    return {name: digest for name, digest in files.items() if not name.startswith(prefix)}


def native_tree(folder: Path) -> tuple[tuple[str, ...], ...]:
    """Files, links and folders with permissions and contents; the times in the names of messages are left out."""
    tree = []
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"\b\d{8}T\d{6}\.\d{3}Z\b", "TIME", str(path.relative_to(folder)))
        mode = oct(stat.S_IMODE(path.lstat().st_mode))
        digest = digest_of(path) if path.is_symlink() or not path.is_dir() else ""
        tree.append((name, mode, digest))
    return tuple(sorted(tree))


def slab_byte_count(container: Path) -> int:
    # What they take on the disk: a slab from which a part was moved keeps its length, with a hole.
    return sum(path.stat().st_blocks * 512 for path in (container / "slab").glob("*"))


def difference(old: dict[str, str], new: dict[str, str]) -> str:
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")


def compare(states: list[State], found: State) -> str:
    """How the state found differs from the last of those expected."""
    if found is None or states[-1] is None:
        return f"{'no' if found is None else 'a'} container"
    if found[0] != states[-1][0]:
        return f"opened by {found[0]}"
    missing, more = set(states[-1][1]) - set(found[1]), set(found[1]) - set(states[-1][1])
    return f"missing {sorted(m[0] for m in missing)[:4]}, more {sorted(m[0] for m in more)[:4]}"


def is_about_one_call(fault: Fault) -> bool:
    return fault.action not in ("short", "deny")


def chosen(faults: list[Fault], every: int, rng: random.Random) -> list[Fault]:
    """One in `every`, and always those that are not about a single call."""
    single = [fault for fault in faults if is_about_one_call(fault)]
    always = [fault for fault in faults if not is_about_one_call(fault)]
    return always + (single if every == 1 else rng.sample(single, (len(single) + every - 1) // every))


def drawn(faults: list[Fault], count: int, rng: random.Random) -> list[Fault]:
    """About `count`: as many of each step, half of them kills, and always those that are not about a single call."""
    found = [fault for fault in faults if not is_about_one_call(fault)]
    names = sorted({fault.step for fault in faults})
    for name in names:
        single = [fault for fault in faults if fault.step == name and is_about_one_call(fault)]
        for part in ([f for f in single if f.kills], [f for f in single if not f.kills]):
            found += rng.sample(part, min(len(part), count // len(names) // 2 + 1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--short", action="store_true", help="some 300 faults, less than a minute")
    parser.add_argument("--every", type=int, default=1, help="only one fault in so many, drawn")
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--step", action="append", choices=[step.name for step in STEPS], help="only this step; may be repeated")
    parser.add_argument("--case", help="only this fault, as a report names it")
    parser.add_argument("--keep", action="store_true", help="keeps the folder with what was found")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="opendynamics-faults-"))
    begin = time.monotonic()
    problems: list[Fault] = []
    done: list[Fault] = []
    try:
        faults = Faults(options.program, folder, options.seed)
        names = {Fault.parse(options.case).step} if options.case else set(options.step) if options.step else None
        steps = faults.prepare(names)
        work: list[tuple[Prepared, Fault]] = []
        for prepared in steps:
            for fault in [Fault.parse(options.case)] if options.case else faults.faults(prepared):
                work.append((prepared, fault))
        if not options.case:
            every, rng, whole = options.every, faults.random, [fault for _, fault in work]
            taken = set(drawn(whole, SHORT_COUNT, rng) if options.short else chosen(whole, every, rng))
            work = [(prepared, fault) for prepared, fault in work if fault in taken]
            rng.shuffle(work)
        if not options.case:
            faults.check_itself(steps)
        print(f"faults: {len(work)} faults in {len(steps)} steps, seed {options.seed}", flush=True)

        def check(item: tuple[Prepared, Fault]) -> None:
            prepared, fault = item
            if options.short and time.monotonic() - begin > SHORT_SECONDS:
                return
            done.append(fault)
            try:
                faults.check(prepared, fault, options.keep)
            except Problem as problem:
                operation = prepared.calls[fault.at - 1] if 0 < fault.at <= len(prepared.calls) else None
                what = f"{operation.operation} of {Path(operation.path).parent.name}/{Path(operation.path).name}" if operation else ""
                problems.append(fault)
                print(f"faults: {fault.step}: {fault.action} {fault.errno} at {what}: {problem}\n"
                      f"  again: Scripts/faults --seed {options.seed} --case {fault}", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(check, work))
        kinds = Counter("kills" if f.kills else f.action for f in done)
        print(f"faults: {kinds['kills']} kills, {kinds['fail'] + kinds['fill']} failed calls, {kinds['short']} runs of short reads "
              f"and writes, {kinds['deny']} on read-only media, in {time.monotonic() - begin:.0f} s; "
              + (f"{len(work) - len(done)} left out for want of time; " if len(done) < len(work) else "")
              + "".join(f"{count} {name}; " for name, count in sorted(faults.counts.items()))
              + (f"{len(problems)} wrong" if problems else "nothing lost, nothing half"))
    finally:
        if options.keep:
            print(f"faults: everything is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
