"""Builds the program that is measured."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def prepare(*packages: str) -> None:
    """Installs Debian packages that are missing."""
    subprocess.run([REPOSITORY / "Scripts/prepare", *packages], check=True)


def built() -> Path:
    """Builds `dynamics` for release, and returns its path."""
    command = ["swift", "build", "-c", "release", "--traits", "Program", "--product", "dynamics", "--package-path", str(REPOSITORY)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return REPOSITORY / ".build/release/dynamics"
