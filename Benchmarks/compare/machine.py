"""The facts without which a figure means nothing. No host name and no path."""

import hashlib
import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from process import output


def describe(repository: Path, program: Path) -> dict:
    processor = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.machine())
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / (1 << 30), 1),
        "kernel": platform.release(),
        "system": _system(),
        "program": hashlib.sha256(program.read_bytes()).hexdigest(),
        "commit": output(["git", "-C", str(repository), "describe", "--always", "--dirty", "--abbrev=10"]) or "unknown",
    }


def available_memory() -> int:
    """Bytes that can be taken without making anybody else give theirs back."""
    found = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(found.split()[1]) * 1024


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def load_average() -> str:
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def file_system(path: Path) -> dict:
    """Type, mount options and device number of the file system of a directory."""
    found = subprocess.run(
        ["findmnt", "--noheadings", "--output", "FSTYPE,OPTIONS", "--target", str(path)], stdout=subprocess.PIPE)
    # Of mounts above each other the last one counts.
    words = found.stdout.decode().strip().split("\n")[-1].split(None, 1)
    kind, options = (words[0], words[1].strip()) if len(words) == 2 else ("unknown", "")
    return {"type": kind, "options": options, "device": path.stat().st_dev}


def is_memory(path: Path) -> bool:
    return file_system(path)["type"] in ("tmpfs", "ramfs")


def free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _system() -> str:
    try:
        for line in Path("/etc/os-release").read_text().splitlines():
            if line.startswith("PRETTY_NAME="):
                return line.split("=", 1)[1].strip('"')
    except OSError:
        pass
    return platform.system()
