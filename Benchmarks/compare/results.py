"""What was measured: one line of JSON for each turn, so that an interrupted run goes on where it was."""

import json
import statistics
from collections import defaultdict
from pathlib import Path


class Results:
    """All turns. Those that failed in an earlier run are tried again."""

    def __init__(self, directory: Path):
        self._path = directory / "times.jsonl"
        self.turns: list[dict] = []
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    turn = json.loads(line)
                except ValueError:
                    continue  # cut by the interruption
                if "failure" not in turn:
                    self.turns.append(turn)
            # What comes now must not continue a line that was cut.
            with open(self._path, "a") as file:
                file.write("\n")

    def has(self, place: str, case: str, peer: str, repetition: int) -> bool:
        key = (place, case, peer, repetition)
        return any((t["place"], t["case"], t["peer"], t["repetition"]) == key for t in self.turns)

    def add(self, turn: dict) -> None:
        self.turns.append(turn)
        with open(self._path, "a") as file:
            file.write(json.dumps(turn) + "\n")

    def series(self) -> "dict[tuple[str, str, int], dict[str, Series]]":
        """By place, step and amount: the series of each peer."""
        found: dict = defaultdict(dict)
        for turn in self.turns:
            for result in turn.get("results", []):
                peers = found[turn["place"], result["step"], result["amount"]]
                series = peers.setdefault(turn["peer"], Series())
                series.add(turn["repetition"], result)
        return dict(found)

    def failures(self) -> list[dict]:
        return [turn for turn in self.turns if "failure" in turn]


class Series:
    """All repetitions of one step by one peer."""

    def __init__(self):
        self.by_repetition: dict[int, dict] = {}

    def add(self, repetition: int, result: dict) -> None:
        self.by_repetition[repetition] = result

    def values(self, member: str) -> list[float]:
        return [result[member] for result in self.by_repetition.values() if member in result]

    def median(self, member: str) -> float | None:
        values = self.values(member)
        return statistics.median(values) if values else None

    def spread(self, member: str) -> tuple[float, float] | None:
        values = self.values(member)
        return (min(values), max(values)) if values else None

    def ratio(self, baseline: "Series") -> tuple[float, float, float] | None:
        """How many times as fast as the baseline: median, least and most of the ratios within one repetition."""
        ratios = [
            other["seconds"] / mine["seconds"]
            for repetition, mine in self.by_repetition.items()
            if (other := baseline.by_repetition.get(repetition)) and mine.get("seconds") and other.get("seconds")
        ]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None
