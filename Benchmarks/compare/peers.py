"""What is compared, and how each one is asked to do the same work."""

import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import fscrypt
from process import CommandFailed, Pipeline, Server, output

SENDER = "org.example.sender"
RECEIVER = "org.example.receiver"
PASSPHRASE = "bench"
# Some ask for a password hash that takes long on a busy machine.
MOUNT_SECONDS = 120
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Protection:
    """What a store detects or hides when its files are read or changed by somebody else, as its documentation says.

    `yes`, `no`, or a short text.
    """

    names: str
    changed: str
    cut: str
    pieces: str
    """Whether it reports pieces that changed places within a file or between files."""
    files: str
    """Whether it reports a file that stands under another one's name."""
    older: str


class Peer:
    """A program that stores files. The methods that return a Pipeline do not run it."""

    name = ""
    label = ""
    lane = ""
    """How it is used: `plain`, `container`, `command`, `mount`, `kernel` or `library`."""
    packages: tuple[str, ...] = ()
    """Debian's; from PyPI with `pip:` in front."""
    commands: tuple[str, ...] = ()
    protection = Protection("no", "no", "no", "no", "no", "no")
    cases: frozenset[str] = frozenset()
    note = ""
    is_fast = False
    """Whether it is measured in every repetition, several at once, and with files of any size."""
    sizes = range(GIB + 1)
    """The bytes of contents that it is measured with, unless it is fast."""
    archives_folders = False
    """Whether a folder becomes one archive, out of which no single file can be read."""
    encrypts_late = False
    """Whether contents are encrypted only when they are written back, so that a time has to include that."""

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        for command in self.commands:
            if shutil.which(command) is None:
                return f"{command} is not installed"
        return None

    def version(self) -> str:
        """Its name and version; by default those of the Debian package."""
        found = output(["dpkg-query", "--show", "--showformat", "${Package} ${Version}", self.packages[0]])
        return found or "unknown"

    def store(self, path: Path) -> "Store":
        """A new, empty store in a new directory."""
        raise NotImplementedError


class Store:
    """One store of one peer."""

    def __init__(self, path: Path):
        self.path = path
        self.servers: list[Server] = []
        path.mkdir(parents=True)

    @property
    def data(self) -> Path:
        """The directory with what is stored."""
        return self.path

    @property
    def mounts(self) -> list[Path]:
        """Mounted file systems through which the store is written."""
        return []

    def reopen(self) -> None:
        """Forgets what a mount keeps in memory."""

    def close(self) -> None:
        pass

    def put(self, source: Path, name: str) -> Pipeline:
        raise NotImplementedError

    def get(self, name: str, target: Path) -> Pipeline:
        raise NotImplementedError

    def send(self, name: str, receiver: "Store") -> Pipeline:
        raise NotImplementedError

    def received(self, name: str) -> str:
        """The name under which `send` or `deliver` stored the file in the receiver."""
        return name

    def serve(self) -> None:
        """Starts what receives deliveries from other processes."""

    def deliver(self, name: str, receiver: "Store") -> Pipeline:
        """As `send`, to a process that has the receiver open."""
        return self.send(name, receiver)

    def deliver_tree(self, name: str, receiver: "Store") -> Pipeline:
        return self.send_tree(name, receiver)

    def delivered_tree(self, name: str) -> str:
        """The name of the folder in which `deliver_tree` stored the files in the receiver."""
        return name

    def put_tree(self, source: Path, name: str) -> Pipeline:
        raise NotImplementedError

    def get_tree(self, name: str, target: Path) -> Pipeline:
        raise NotImplementedError

    def send_tree(self, name: str, receiver: "Store") -> Pipeline:
        raise NotImplementedError

    def list_tree(self, name: str) -> Pipeline:
        raise NotImplementedError

    def cat(self, name: str) -> Pipeline:
        raise NotImplementedError


FILES = frozenset({"write", "read", "send"})
TREES = frozenset({"tree-in", "tree-out", "list"})
FIRST_BYTE = frozenset({"first-byte"})
RANDOM = frozenset({"random-read", "random-write"})
DELIVERY = frozenset({"deliver"})


# Plain files


class PlainStore(Store):
    def put(self, source, name):
        return Pipeline([copy(source, self.path / name)])

    def get(self, name, target):
        return Pipeline([copy(self.path / name, target)])

    def send(self, name, receiver):
        return Pipeline([copy(self.path / name, receiver.path / name)])

    def put_tree(self, source, name):
        return Pipeline([copy(source, self.path / name, "--recursive")])

    def get_tree(self, name, target):
        return Pipeline([copy(self.path / name, target, "--recursive")])

    def send_tree(self, name, receiver):
        return Pipeline([copy(self.path / name, receiver.path / name, "--recursive")])

    def list_tree(self, name):
        return Pipeline([["ls", "-lR", str(self.path / name)]])

    def cat(self, name):
        return Pipeline([["cat", str(self.path / name)]])

    def random_target(self, name):
        return ["--file", str(self.path / name)]


def copy(source: Path, target: Path, *options: str) -> list[str]:
    """cp that copies: it neither shares blocks nor looks for zeros."""
    return ["cp", "--reflink=never", "--sparse=never", *options, str(source), str(target)]


class Plain(Peer):
    name = "cp"
    label = "cp"
    lane = "plain"
    commands = ("cp",)
    cases = FILES | TREES | FIRST_BYTE | RANDOM | DELIVERY
    note = "no encryption: the line to reach"
    is_fast = True

    def version(self):
        return (output(["cp", "--version"]) or "").split("\n")[0]

    def store(self, path):
        return PlainStore(path)


# OpenDynamics


class ContainerStore(Store):
    def __init__(self, path: Path, program: Path):
        super().__init__(path)
        self._program = str(program)
        self._key = path / "key"
        self._key.write_bytes(os.urandom(32))
        quietly([self._program, "container", "create", "--key-file", str(self._key), str(self.data)])

    @property
    def data(self):
        return self.path / "container"

    def _command(self, *words: str, bulk: bool = True) -> list[str]:
        options = ["--quiet"] if bulk else []
        return [self._program, *words, "--key-file", str(self._key), *options]

    def put(self, source, name):
        return Pipeline([self._command("put", str(self.data), str(source), "/" + name)])

    def get(self, name, target):
        return Pipeline([self._command("get", str(self.data), "/" + name, str(target))])

    def send(self, name, receiver, threads=None):
        options = ["--threads", str(threads)] if threads else []
        command = self._command(
            "send", *options, "--to-key-file", str(receiver._key), "--from", SENDER,
            str(self.data), str(receiver.data), "/" + name)
        return Pipeline([command])

    def received(self, name):
        found = output([self._program, "find", "--key-file", str(self._key), str(self.data), "/", "-name", name])
        return (found or "").split("\n")[0].lstrip("/")

    def serve(self):
        self._start("listening at ", [self._program, "broker"])
        self._start(f"ready {RECEIVER}", self._command("app", "run", str(self.data), "--id", RECEIVER, bulk=False))

    def _start(self, line: str, command: list[str]) -> None:
        log = self.path / f"log-{len(self.servers)}"
        server = Server(command, log, self._broker)
        self.servers.append(server)
        server.wait_for(line, 30)

    @property
    def _broker(self) -> dict[str, str]:
        return {
            "OPENDYNAMICS_BROKER": str(self.path / "run/broker"),
            "OPENDYNAMICS_BROKER_STATE": str(self.path / "state"),
        }

    def deliver(self, name, receiver):
        command = self._command("send", str(self.data), "/" + name, "--from", SENDER, "--to", RECEIVER)
        return Pipeline([command], environment=receiver._broker)

    def deliver_tree(self, name, receiver):
        return self.deliver(name, receiver)

    def delivered_tree(self, name):
        # The app's service saves attachments there, without their folders.
        return "Documents"

    def close(self):
        for server in reversed(self.servers):
            server.stop()
        self.servers = []

    def put_tree(self, source, name):
        return self.put(source, name)

    def get_tree(self, name, target):
        return self.get(name, target)

    def send_tree(self, name, receiver):
        return self.send(name, receiver)

    def list_tree(self, name):
        return Pipeline([self._command("ls", "-lR", str(self.data), "/" + name, bulk=False)])

    def cat(self, name):
        return Pipeline([self._command("cat", str(self.data), "/" + name, bulk=False)])

    def random_target(self, name):
        return ["--container", str(self.data), "--key-file", str(self._key), "--file", "/" + name]


class OpenDynamics(Peer):
    name = "dynamics"
    label = "dynamics"
    lane = "container"
    protection = Protection("yes", "yes", "yes", "yes", "yes", "yes, but for the whole store")
    cases = FILES | TREES | FIRST_BYTE | RANDOM | DELIVERY | {"threads"}
    note = "whole processes: start, opening and closing are in every time"
    is_fast = True

    def __init__(self, program: Path):
        self._program = program

    def version(self):
        return output([str(self._program), "--version"]) or ""

    def store(self, path):
        return ContainerStore(path, self._program)


# Mounts


class MountStore(PlainStore):
    """A store that is mounted. Files are copied with cp, as users of it do."""

    def __init__(self, path: Path, peer: "MountPeer"):
        super().__init__(path)
        self._peer = peer
        self._root = path / "mount"
        self._log = path / "log"
        for folder in (path / "store", self._root, path / "state"):
            folder.mkdir()
        self.path = self._root
        peer.create(path)
        self._mount()

    @property
    def data(self):
        return self._root.parent / "store"

    @property
    def mounts(self):
        return [self._root]

    def _mount(self) -> None:
        server = Server(
            self._peer.serve(self._root.parent), self._log,
            self._peer.environment(self._root.parent), text=self._peer.standard_input)
        try:
            wait_for_mount(self._root, server)
        except BaseException:
            unmount(self._root, server)
            raise
        self.servers = [server]

    def reopen(self):
        self.close()
        self._mount()

    def close(self):
        for server in self.servers:
            unmount(self._root, server)
        self.servers = []


def wait_for_mount(root: Path, server: Server) -> None:
    """Waits until the server has mounted its store. Raises CommandFailed."""
    deadline = time.monotonic() + MOUNT_SECONDS
    while not os.path.ismount(root):
        server.check()
        if time.monotonic() > deadline:
            raise CommandFailed(f"{server.program} did not mount within {MOUNT_SECONDS} s")
        time.sleep(0.02)


def unmount(root: Path, server: Server) -> None:
    """Unmounts, and waits until the server has ended. What does not end is killed, and its mount detached."""
    deadline = time.monotonic() + 30
    # Busy for a moment after the last process that used it has ended.
    while subprocess.run(["fusermount3", "-u", str(root)], stderr=subprocess.DEVNULL).returncode:
        if time.monotonic() > deadline or not os.path.ismount(root):
            break
        time.sleep(0.02)
    server.wait(30)
    subprocess.run(["fusermount3", "-uz", str(root)], stderr=subprocess.DEVNULL)


class MountPeer(Peer):
    lane = "mount"
    cases = FILES | TREES | FIRST_BYTE | RANDOM
    standard_input = ""

    def missing(self):
        if shutil.which("fusermount3") is None:
            return "fuse3 is not installed"
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return "/dev/fuse may not be used here"
        return super().missing()

    def create(self, path: Path) -> None:
        """Makes the store in `path/store`."""

    def serve(self, path: Path) -> list[str]:
        """The command that mounts `path/store` at `path/mount` and stays."""
        raise NotImplementedError

    def environment(self, path: Path) -> dict[str, str]:
        return {}

    def store(self, path):
        return MountStore(path, self)


def quietly(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise CommandFailed(f"{command[0]}: {done.stdout.decode(errors='replace').strip()[-400:]}")


class Gocryptfs(MountPeer):
    name = "gocryptfs"
    label = "gocryptfs (AES-GCM)"
    packages = ("gocryptfs", "fuse3")
    commands = ("gocryptfs",)
    protection = Protection("yes", "yes", "no", "yes", "no", "no")
    is_fast = True

    def create(self, path):
        quietly(["gocryptfs", "-q", "-init", "-scryptn", "10", "-extpass", f"echo {PASSPHRASE}", str(path / "store")])

    def serve(self, path):
        return ["gocryptfs", "-q", "-fg", "-extpass", f"echo {PASSPHRASE}", str(path / "store"), str(path / "mount")]


class GocryptfsXChaCha(Gocryptfs):
    name = "gocryptfs-xchacha"
    label = "gocryptfs (XChaCha20)"

    def create(self, path):
        quietly([
            "gocryptfs", "-q", "-init", "-xchacha", "-scryptn", "10", "-extpass", f"echo {PASSPHRASE}",
            str(path / "store")])


class SecureFS(MountPeer):
    packages = ("securefs", "fuse3")
    commands = ("securefs",)

    def __init__(self, name: str, label: str, storage: str, protection: Protection):
        self.name, self.label, self._storage, self.protection = name, label, storage, protection

    def create(self, path):
        quietly(["securefs", "create", "--format", self._storage, "--rounds", "1", "--pass", PASSPHRASE, str(path / "store")])

    def serve(self, path):
        return ["securefs", "mount", "--pass", PASSPHRASE, str(path / "store"), str(path / "mount")]


class CryFS(MountPeer):
    # Each of its mounts takes seven seconds.
    cases = FILES
    sizes = range(64 * MIB, 256 * MIB + 1)
    name = "cryfs"
    label = "CryFS"
    packages = ("cryfs", "fuse3")
    commands = ("cryfs",)
    standard_input = PASSPHRASE + "\n"
    protection = Protection("yes", "yes", "yes", "yes", "yes", "yes, with its local state")

    def environment(self, path):
        return {
            "CRYFS_FRONTEND": "noninteractive",
            "CRYFS_NO_UPDATE_CHECK": "true",
            "CRYFS_LOCAL_STATE_DIR": str(path / "state"),
        }

    def serve(self, path):
        return ["cryfs", "-f", str(path / "store"), str(path / "mount")]


class EncFS(MountPeer):
    name = "encfs"
    label = "EncFS"
    sizes = range(256 * MIB + 1)
    packages = ("encfs", "fuse3")
    commands = ("encfs",)
    protection = Protection("yes", "no", "no", "no", "no", "no")

    def create(self, path):
        # Mounting a new store makes it.
        server = Server(self.serve(path) + ["--standard"], path / "log")
        try:
            wait_for_mount(path / "mount", server)
        finally:
            unmount(path / "mount", server)

    def serve(self, path):
        return ["encfs", "-f", f"--extpass=echo {PASSPHRASE}", str(path / "store"), str(path / "mount")]


# Encryption by the file system itself


class FscryptStore(PlainStore):
    """An encrypted directory in an ext4 file system of its own, in a file that is mounted through a loop device."""

    BYTE_COUNT = 3 * GIB // 2

    def __init__(self, path: Path):
        super().__init__(path)
        self._image, self._root = path / "image", path / "mount"
        self._key = os.urandom(64)
        self._is_mounted = False
        self._root.mkdir()
        self.path = self._root / "vault"
        with open(self._image, "wb") as file:
            file.truncate(self.BYTE_COUNT)
        quietly(["mkfs.ext4", "-q", "-O", "encrypt", str(self._image)])
        try:
            identifier = self._mount()
            self.path.mkdir()
            fscrypt.set_policy(self.path, identifier)
        except BaseException:
            self.close()
            raise

    @property
    def data(self):
        return self._image

    @property
    def mounts(self):
        return [self._root]

    def _mount(self) -> bytes:
        quietly(["mount", "-o", "loop", str(self._image), str(self._root)])
        self._is_mounted = True
        return fscrypt.add_key(self._root, self._key)

    def reopen(self):
        self.close()
        self._mount()

    def close(self):
        if self._is_mounted:
            quietly(["umount", str(self._root)])
        self._is_mounted = False


class Fscrypt(Peer):
    name = "fscrypt"
    label = "fscrypt (AES-XTS, ext4)"
    lane = "kernel"
    packages = ("e2fsprogs", "mount")
    commands = ("mkfs.ext4", "mount")
    protection = Protection("yes", "no", "no", "no", "no", "no")
    cases = FILES | TREES | FIRST_BYTE | RANDOM
    encrypts_late = True
    # Half a minute for 1 GiB in a kernel whose AES does not use the processor's instructions.
    sizes = range(256 * MIB + 1)
    note = "until it is written back; the kernel's own processor time is not counted"

    def missing(self):
        if not Path("/sys/fs/ext4/features/encryption").exists():
            return "the kernel has no fscrypt for ext4"
        if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
            return "its file system cannot be mounted: that takes root and loop devices"
        return super().missing()

    def version(self):
        driver = "AES instructions" if fscrypt.has_fast_cipher() else "no AES instructions in this kernel"
        return f"Linux {platform.release()}, {driver}"

    def store(self, path):
        return FscryptStore(path)


# Commands that encrypt one file, or a stream


class AgeStore(Store):
    def __init__(self, path):
        super().__init__(path)
        self._key = path / "key"
        quietly(["age-keygen", "-o", str(self._key)])
        text = self._key.read_text()
        self._recipient = next(line.split(": ")[1] for line in text.splitlines() if line.startswith("# public key"))
        self.data.mkdir()

    @property
    def data(self):
        return self.path / "files"

    def _file(self, name: str) -> str:
        return str(self.data / f"{name}.age")

    def _decrypt(self, name: str, *options: str) -> list[str]:
        return ["age", "--decrypt", "--identity", str(self._key), *options, self._file(name)]

    def _encrypt(self, name: str, *operands: str) -> list[str]:
        return ["age", "--recipient", self._recipient, "--output", self._file(name), *operands]

    def put(self, source, name):
        return Pipeline([self._encrypt(name, str(source))])

    def get(self, name, target):
        return Pipeline([self._decrypt(name, "--output", str(target))])

    def send(self, name, receiver):
        return Pipeline([self._decrypt(name), receiver._encrypt(name)])

    def put_tree(self, source, name):
        tar = ["tar", "--create", "--file", "-", "--directory", str(source.parent), source.name]
        return Pipeline([tar, self._encrypt(name)])

    def get_tree(self, name, target):
        target.mkdir()
        tar = ["tar", "--extract", "--file", "-", "--directory", str(target), "--strip-components", "1"]
        return Pipeline([self._decrypt(name), tar])

    def send_tree(self, name, receiver):
        return self.send(name, receiver)

    def cat(self, name):
        return Pipeline([self._decrypt(name)])


class Age(Peer):
    name = "age"
    label = "age"
    lane = "command"
    packages = ("age",)
    commands = ("age", "age-keygen")
    protection = Protection("no", "yes", "yes", "yes", "no", "no")
    cases = FILES | {"tree-in", "tree-out"} | FIRST_BYTE
    is_fast = True
    archives_folders = True
    note = "a folder is one archive (tar)"

    def store(self, path):
        return AgeStore(path)


class RcloneStore(Store):
    _count = 0

    def __init__(self, path):
        super().__init__(path)
        RcloneStore._count += 1
        self._remote = f"bench{RcloneStore._count}"
        self.data.mkdir()
        secret = output(["rclone", "obscure", PASSPHRASE + self._remote]) or ""
        prefix = f"RCLONE_CONFIG_{self._remote.upper()}_"
        self._environment = {
            "RCLONE_CONFIG": os.devnull,
            prefix + "TYPE": "crypt",
            prefix + "REMOTE": str(self.data),
            prefix + "PASSWORD": secret,
        }

    @property
    def data(self):
        return self.path / "files"

    def _rclone(self, *operands: str, other: "RcloneStore | None" = None) -> Pipeline:
        environment = self._environment | (other._environment if other else {})
        return Pipeline([["rclone", "--quiet", *operands]], environment=environment)

    def put(self, source, name):
        return self._rclone("copyto", str(source), f"{self._remote}:{name}")

    def get(self, name, target):
        return self._rclone("copyto", f"{self._remote}:{name}", str(target))

    def send(self, name, receiver):
        return self._rclone("copyto", f"{self._remote}:{name}", f"{receiver._remote}:{name}", other=receiver)

    def put_tree(self, source, name):
        return self._rclone("copy", str(source), f"{self._remote}:{name}")

    def get_tree(self, name, target):
        return self._rclone("copy", f"{self._remote}:{name}", str(target))

    def send_tree(self, name, receiver):
        return self._rclone("copy", f"{self._remote}:{name}", f"{receiver._remote}:{name}", other=receiver)

    def list_tree(self, name):
        return self._rclone("lsl", f"{self._remote}:{name}")

    def cat(self, name):
        return self._rclone("cat", f"{self._remote}:{name}")


class Rclone(Peer):
    name = "rclone"
    label = "rclone crypt"
    lane = "command"
    packages = ("rclone",)
    commands = ("rclone",)
    protection = Protection("yes", "yes", "no", "yes", "no", "no")
    cases = FILES | TREES | FIRST_BYTE
    note = "scrypt is in every time"

    def store(self, path):
        return RcloneStore(path)


class OpenSSLStore(Store):
    def __init__(self, path):
        super().__init__(path)
        self._options = ["-aes-256-ctr", "-K", os.urandom(32).hex(), "-iv", os.urandom(16).hex()]

    def _file(self, name: str) -> str:
        return str(self.path / f"{name}.enc")

    def put(self, source, name):
        return Pipeline([["openssl", "enc", *self._options, "-in", str(source), "-out", self._file(name)]])

    def get(self, name, target):
        return Pipeline([["openssl", "enc", "-d", *self._options, "-in", self._file(name), "-out", str(target)]])

    def send(self, name, receiver):
        return Pipeline([
            ["openssl", "enc", "-d", *self._options, "-in", self._file(name)],
            ["openssl", "enc", *receiver._options, "-out", receiver._file(name)],
        ])

    def cat(self, name):
        return Pipeline([["openssl", "enc", "-d", *self._options, "-in", self._file(name)]])


class OpenSSL(Peer):
    name = "openssl"
    label = "openssl enc (AES-CTR)"
    lane = "command"
    packages = ("openssl",)
    commands = ("openssl",)
    cases = FILES | FIRST_BYTE
    is_fast = True
    note = "nothing is authenticated: any change is decrypted without an error"

    def version(self):
        return output(["openssl", "version"]) or ""

    def store(self, path):
        return OpenSSLStore(path)


# Libraries, used from Python


class StreamStore(Store):
    def __init__(self, path: Path, module: str):
        super().__init__(path)
        self._script = [sys.executable, str(Path(__file__).parent / "streams.py"), module]
        self._key = str(path / "key")
        quietly([*self._script, "key", self._key])
        self.data.mkdir()

    @property
    def data(self):
        return self.path / "files"

    def _file(self, name: str) -> str:
        return str(self.data / name)

    def put(self, source, name):
        return Pipeline([[*self._script, "encrypt", self._key, str(source), self._file(name)]])

    def get(self, name, target):
        return Pipeline([[*self._script, "decrypt", self._key, self._file(name), str(target)]])

    def send(self, name, receiver):
        return Pipeline([[*self._script, "send", self._key, self._file(name), receiver._key, receiver._file(name)]])

    def cat(self, name):
        return Pipeline([[*self._script, "decrypt", self._key, self._file(name), "/dev/stdout"]])


class StreamPeer(Peer):
    lane = "library"
    protection = Protection("no", "yes", "yes", "yes", "no", "no")
    cases = FILES | FIRST_BYTE

    def __init__(self, name: str, label: str, module: str, project: str, package: str):
        self.name, self.label, self._module, self._project, self.packages = name, label, module, project, (package,)

    def missing(self):
        done = subprocess.run([sys.executable, "-c", f"import {self._module}"], stderr=subprocess.DEVNULL)
        return None if done.returncode == 0 else f"the Python package {self._module} is not installed"

    def version(self):
        text = f"import importlib.metadata as m; print(m.version({self._project!r}))"
        return f"{self.label} {output([sys.executable, '-c', text]) or ''}"

    def store(self, path):
        return StreamStore(path, self._module)


def all_peers(program: Path) -> list[Peer]:
    """Ours and the plain copy stand side by side, so that their times are neighbours."""
    return [
        Plain(),
        OpenDynamics(program),
        Gocryptfs(),
        GocryptfsXChaCha(),
        SecureFS("securefs", "securefs (lite)", "4", Protection("yes", "yes", "no", "yes", "no", "no")),
        SecureFS("securefs-full", "securefs (full)", "2", Protection("yes", "yes", "yes", "yes", "yes", "pieces, not files")),
        CryFS(),
        EncFS(),
        Fscrypt(),
        Age(),
        Rclone(),
        OpenSSL(),
        StreamPeer("pynacl", "PyNaCl secretstream", "nacl", "PyNaCl", "python3-nacl"),
        StreamPeer("tink", "Tink streaming AEAD", "tink", "tink", "pip:tink"),
    ]
