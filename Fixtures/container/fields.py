"""Errors, findings, and taking fields off bytes."""

from __future__ import annotations

from dataclasses import dataclass

MAXIMUM_VARINT = 10  # bytes


class ContainerError(Exception):
    """Why a container cannot be read; `kind` is the page's word for it."""

    kind = "damage"


class NotAContainer(ContainerError):
    kind = "not a container"


class Unsupported(ContainerError):
    kind = "unsupported format"


class WrongKey(ContainerError):
    kind = "wrong key"


class TornSuperblock(ContainerError):
    kind = "torn"


class Altered(ContainerError):
    kind = "altered"


class RolledBack(ContainerError):
    kind = "rolled back"


class Damage(ContainerError):
    pass


class Lost(Damage):
    """What would be known if a block of a table were whole; the block itself is reported."""


class Inconsistent(ContainerError):
    kind = "inconsistent"


class CostlyKey(ContainerError):
    kind = "more memory than allowed"


@dataclass(frozen=True)
class Finding:
    """A line of a report: a note or damage, the page's word for it, and where it was found."""

    level: str
    word: str
    text: str

    @property
    def is_serious(self) -> bool:
        return self.level != "note"

    def __str__(self) -> str:
        return f"{self.level}: {self.word}: {self.text}"


class Fields:
    """Takes fields off bytes in their order. What does not fit raises the given error."""

    def __init__(self, data: bytes, name: str, error: type[ContainerError] = Inconsistent) -> None:
        self.data, self.name, self.error, self.position = data, name, error, 0

    def fail(self, what: str) -> ContainerError:
        """The error to raise."""
        return self.error(f"{self.name}: {what}")

    def take(self, count: int) -> bytes:
        """The next bytes."""
        taken = self.data[self.position : self.position + count]
        if len(taken) != count:
            raise self.fail("too short")
        self.position += count
        return taken

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "little")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def time(self) -> int:
        return int.from_bytes(self.take(8), "little", signed=True)

    def varint(self, limit: int = 1 << 64) -> int:
        """A number below the limit, in groups of seven bits, in its shortest form."""
        value = 0
        for position in range(MAXIMUM_VARINT):
            byte = self.u8()
            value |= (byte & 127) << 7 * position
            if byte < 128:
                if position and not byte:
                    raise self.fail(f"a varint that is not the shortest before {self.position}")
                return self.range(value, 0, limit - 1, "varint")
        raise self.fail(f"a varint of more than ten bytes before {self.position}")

    def time_after(self, time: int) -> int:
        """A time that is stored as its difference from another one, modulo 2^64."""
        coded = self.varint()
        difference = (coded >> 1) ^ -(coded & 1)
        return (time + difference + (1 << 63)) % (1 << 64) - (1 << 63)

    def zero(self, count: int) -> None:
        """Bytes that have to be zero."""
        if any(self.take(count)):
            raise self.fail(f"bytes that are not zero before {self.position}")

    def range(self, value: int, lowest: int, highest: int, what: str) -> int:
        """The value, after a check."""
        if not lowest <= value <= highest:
            raise self.fail(f"{what} {value}")
        return value

    def rest(self) -> bytes:
        """All that was not taken yet."""
        return self.take(len(self.data) - self.position)

    def end(self) -> None:
        """There must be no more."""
        if self.position != len(self.data):
            raise self.fail("trailing bytes")
