"""Files to measure with, and the state of the machine before each measurement."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from process import synchronize

PIECE = 1 << 20


class Workspace:
    """A directory of our own below the one to measure in; everything in it goes at the end."""

    def __init__(self, parent: Path):
        self.path = Path(tempfile.mkdtemp(prefix="dynamics-bench-", dir=parent))
        self._discarded = 0

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def discard(self, path: Path, at_once: bool) -> None:
        """Removes what is at a path, if anything is; or puts it aside until the workspace goes.

        For some minutes after files were removed, ext4 makes new ones in the same block groups several times
        slower: it does not use their inodes again so soon, and tries each of them for each new file.
        """
        if not os.path.lexists(path):
            return
        if not at_once:
            aside = self.path / "discarded"
            aside.mkdir(exist_ok=True)
            self._discarded += 1
            path.rename(aside / str(self._discarded))
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()

    def file(self, name: str, size: int) -> Path:
        """An incompressible file of `size` bytes. It is made once and kept."""
        path = self.path / name
        if not path.exists():
            with open(path, "wb") as file:
                for offset in range(0, size, PIECE):
                    file.write(os.urandom(min(PIECE, size - offset)))
        return path

    def tree(self, name: str, count: int, size: int, per_folder: int = 1000) -> Path:
        """A folder of `count` incompressible files of `size` bytes, `per_folder` in each subfolder."""
        path = self.path / name
        if not path.exists():
            for index in range(count):
                folder = path / f"{index // per_folder:04}"
                if index % per_folder == 0:
                    folder.mkdir(parents=True)
                (folder / f"file-{index:06}.bin").write_bytes(os.urandom(size))
        return path

    def prepare(self, sources: list[Path]) -> None:
        """Reads the sources into the page cache, and writes back everything."""
        for source in sources:
            warm(source)
        synchronize(self.path)


def warm(path: Path) -> None:
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    for file in files:
        with open(file, "rb", buffering=0) as stream:
            while stream.read(PIECE):
                pass


def allocated(path: Path) -> int:
    """Bytes of blocks that a file or directory and everything below it takes."""
    paths = [path] + (list(path.rglob("*")) if path.is_dir() else [])
    return sum(p.lstat().st_blocks * 512 for p in paths)


def digests(folder: Path) -> dict[str, str]:
    """By name: the digest of each file in a folder and below, whose names are all different."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def same(left: Path, right: Path) -> bool:
    """Whether two files, or two folders, have the same names and contents."""
    command = ["diff", "--recursive", "--brief", str(left), str(right)]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
