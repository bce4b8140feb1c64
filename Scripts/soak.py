"""Kills the command line at random moments and checks what is left; see Scripts/soak."""

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path


class Soak:
    def __init__(self, program: str, folder: Path, seed: int) -> None:
        self.program = program
        self.folder = folder
        self.random = random.Random(seed)
        self.kills = 0
        self.finished = 0
        # What is certain (the command ended with 0), by container and path.
        self.files: dict[str, dict[str, str]] = {"a": {}, "b": {}}
        self.requests: set[str] = set()
        for name in self.files:
            (folder / f"{name}.key").write_bytes(os.urandom(32))
            self.run("container", "create", str(folder / name), *self.key(name))

    def key(self, name: str, option: str = "--key-file") -> list[str]:
        return [option, str(self.folder / f"{name}.key")]

    def run(self, *arguments: str) -> str:
        """Runs a command that has to succeed."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(arguments[:3])}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run_and_kill(self, *arguments: str) -> bool:
        """Starts a command and kills it after a random time; whether it ended by itself, successfully."""
        process = subprocess.Popen([self.program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(self.random.random() ** 2 * 0.12)
        process.kill()
        _, error = process.communicate()
        if process.returncode == 0:
            self.finished += 1
            return True
        if process.returncode != -9:
            raise SystemExit(f"{' '.join(arguments[:2])}: exit {process.returncode}\n{error.decode()}")
        self.kills += 1
        return False

    def put(self) -> None:
        size = self.random.choice([0, 1, 16384, 16385, 1 << 20, (1 << 20) + 1, 40 << 20])
        source = self.folder / "source"
        source.write_bytes(self.random.randbytes(size))
        path = f"/file{self.random.randrange(8)}"
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        if self.run_and_kill("put", str(self.folder / "a"), str(source), path, *self.key("a")):
            self.files["a"][path] = digest
        else:
            # Old or new, nothing else.
            found = self.hash("a", path)
            assert found in (self.files["a"].get(path), digest), f"{path} is neither the old file nor the new one"
            self.remember("a", path, found)

    def move(self) -> None:
        if not self.files["a"]:
            return
        source = self.random.choice(sorted(self.files["a"]))
        target = f"/moved{self.random.randrange(8)}"
        before = dict(self.files["a"])
        done = self.run_and_kill("mv", str(self.folder / "a"), source, target, *self.key("a"))
        after = dict(before)
        after[target] = after.pop(source)
        now = {path: self.hash("a", path) for path in (source, target)}
        old = {path: before.get(path) for path in (source, target)}
        new = {path: after.get(path) for path in (source, target)}
        assert now == new or (not done and now == old), f"half a move: {now}"
        self.files["a"] = after if now == new else before

    def remove(self) -> None:
        if not self.files["a"]:
            return
        path = self.random.choice(sorted(self.files["a"]))
        done = self.run_and_kill("rm", str(self.folder / "a"), path, *self.key("a"))
        found = self.hash("a", path)
        assert found is None or (not done and found == self.files["a"][path]), "half a removal"
        self.remember("a", path, found)

    def link(self) -> None:
        if not self.files["a"]:
            return
        source = self.random.choice(sorted(self.files["a"]))
        target = f"/linked{self.random.randrange(8)}"
        if target in self.files["a"]:
            return
        kind = ["-s"] if self.random.random() < 0.5 else []
        done = self.run_and_kill("ln", *kind, str(self.folder / "a"), source, target, *self.key("a"))
        found = self.hash("a", target)
        assert found == self.files["a"][source] or (not done and found is None), "half a link"
        if kind:
            # What it leads to will be moved and removed.
            self.run("rm", "-f", str(self.folder / "a"), target, *self.key("a"))
        else:
            self.remember("a", target, found)

    def send(self) -> None:
        if not self.files["a"]:
            return
        paths = self.random.sample(sorted(self.files["a"]), k=min(3, len(self.files["a"])))
        request = f"request-{self.random.randrange(1 << 30)}"
        arguments = ["send", str(self.folder / "a"), str(self.folder / "b"), *paths, "--from", "com.example.a",
                     *self.key("a"), *self.key("b", "--to-key-file"), "--request-id", request]
        messages = set(self.listing("b", "/Inbox/com.example.a"))
        done = self.run_and_kill(*arguments)
        arrived = set(self.listing("b", "/Inbox/com.example.a")) - messages
        assert len(arrived) == 1 if done else len(arrived) <= 1, f"{len(arrived)} messages arrived"
        # Sent again with the same id it is there once, whole.
        self.run(*arguments)
        arrived = set(self.listing("b", "/Inbox/com.example.a")) - messages
        assert len(arrived) == 1, f"{len(arrived)} messages after sending again"
        directory = "/Inbox/com.example.a/" + arrived.pop().rstrip("/")
        for path in paths:
            self.files["b"][directory + path] = self.files["a"][path]
            assert self.hash("b", directory + path) == self.files["a"][path], "a delivered file is another"
        if self.random.random() < 0.7:
            self.run("rm", "-r", str(self.folder / "b"), directory, *self.key("b"))
            self.files["b"] = {p: d for p, d in self.files["b"].items() if not p.startswith(directory + "/")}

    def listing(self, name: str, path: str) -> list[str]:
        done = subprocess.run([self.program, "ls", str(self.folder / name), path, *self.key(name)],
                              capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    def hash(self, name: str, path: str) -> str | None:
        done = subprocess.run([self.program, "cat", str(self.folder / name), path, *self.key(name)],
                              capture_output=True)
        if done.returncode == 5:
            return None
        assert done.returncode == 0, f"cat: exit {done.returncode}: {done.stderr.decode()}"
        return hashlib.sha256(done.stdout).hexdigest()

    def remember(self, name: str, path: str, digest: str | None) -> None:
        if digest is None:
            self.files[name].pop(path, None)
        else:
            self.files[name][path] = digest

    def check(self) -> None:
        for name, files in self.files.items():
            self.run("container", "verify", str(self.folder / name), *self.key(name))
            for path, digest in files.items():
                assert self.hash(name, path) == digest, f"{path} in {name} is not what it was"

    def iterate(self) -> None:
        step = self.random.choices([self.put, self.move, self.remove, self.link, self.send], weights=[5, 2, 1, 2, 3])[0]
        step()
        for name in self.files:
            self.run("container", "verify", str(self.folder / name), *self.key(name))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--short", action="store_true", help="40 iterations")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    options = parser.parse_args()
    iterations = 40 if options.short else options.iterations
    print(f"soak: {iterations} iterations, seed {options.seed}")
    folder = Path(tempfile.mkdtemp(prefix="opendynamics-soak-"))
    try:
        soak = Soak(options.program, folder, options.seed)
        for i in range(iterations):
            try:
                soak.iterate()
            except AssertionError as problem:
                raise SystemExit(f"soak: iteration {i}, seed {options.seed}: {problem}") from problem
        soak.check()
        stored = sum(f.stat().st_blocks * 512 for name in soak.files for f in (folder / name).rglob("*") if f.is_file())
        print(f"soak: {soak.kills} killed, {soak.finished} ended before; nothing lost, nothing half; "
              f"{stored >> 20} MiB on disk at the end")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
