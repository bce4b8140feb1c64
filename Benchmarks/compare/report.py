"""The report: results.json, results.md, summary.md, plots/*.svg and report.html."""

import html
import json
from pathlib import Path

import layers
import plots
from cases import GIB, SLOW_REPETITIONS_MAX, STEPS
from plots import figure_text, size_text
from results import Results, Series

TITLE = "dynamics, beside cp and other encrypted stores"
OVERVIEW = ("send", "write", "read", "tree-in", "tree-out", "random-read", "random-write", "first-byte")
LADDER_TITLE = "where the time goes: 1 GiB opened and sealed again, layer by layer"


class Table:
    """One step in one place: a row for each peer, the fastest first."""

    def __init__(self, place: dict, step: str, amount: int, peers: dict[str, dict], series: dict[str, Series]):
        self.place = place
        self.step = STEPS[step]
        self.amount = amount
        self.rows = []
        ours, plain = series.get("dynamics"), series.get("cp")
        self.work = max((one.median("work") or 1 for one in series.values()), default=1)
        for name, one in series.items():
            if one.median("seconds") is None:
                continue
            low, high = one.spread("seconds")
            self.rows.append({
                "peer": peers[name],
                "repetitions": len(one.values("seconds")),
                "seconds": one.median("seconds"),
                "seconds_min": low,
                "seconds_max": high,
                "speed": self._speed(one.median("seconds")),
                "speed_min": self._speed(high),
                "speed_max": self._speed(low),
                "dynamics_ratio": ours.ratio(one) if ours and name != "dynamics" else None,
                "cp_ratio": one.ratio(plain) if plain and name != "cp" else None,
                "processor_seconds": one.median("processor_seconds"),
                "peak_bytes": one.median("peak_bytes"),
                "system_calls": one.median("system_calls"),
            })
        self.rows.sort(key=lambda row: row["seconds"])

    @property
    def name(self) -> str:
        return f"{self.place['name'].replace(' ', '-')}-{self.step.name}-{self.amount}"

    @property
    def title(self) -> str:
        return self.step.title.format(size=size_text(self.amount), count=f"{self.amount:,}")

    @property
    def unit(self) -> str:
        return {"bytes": "MiB/s", "files": "files/s", "operations": "operations/s", "start": "ms"}[self.step.unit]

    def _speed(self, seconds: float) -> float:
        if self.step.unit == "start":
            return seconds * 1000
        return self.work / seconds / (1 << 20 if self.step.unit == "bytes" else 1)

    def processor_cost(self, row: dict) -> str:
        if row["peer"]["lane"] == "kernel":
            return ""
        if self.step.unit == "bytes":
            return f"{figure_text(row['processor_seconds'] / self.work * GIB)} s/GiB" if self.work >= 1 << 20 else ""
        return f"{figure_text(row['processor_seconds'])} s"

    def cells(self) -> list[list[str]]:
        header = [
            "", "turns", "median", "fastest – slowest", self.unit, "dynamics is … times as fast", "speed as a share of cp",
            "processor time", "peak memory", "system calls"]
        lines = [header]
        for row in self.rows:
            lines.append([
                row["peer"]["label"],
                str(row["repetitions"]),
                seconds_text(row["seconds"]),
                f"{seconds_text(row['seconds_min'])} – {seconds_text(row['seconds_max'])}",
                figure_text(row["speed"]),
                ratio_text(row["dynamics_ratio"]),
                ratio_text(row["cp_ratio"]),
                self.processor_cost(row),
                f"{row['peak_bytes'] / (1 << 20):.0f} MiB" if row["peak_bytes"] else "",
                f"{row['system_calls']:,.0f}" if row["system_calls"] else "",
            ])
        return lines

    def plot(self) -> str:
        """Of a start the time, which is better when it is short; of all others the speed."""
        rows = [
            (row["peer"], row["speed"], min(row["speed_min"], row["speed_max"]), max(row["speed_min"], row["speed_max"]))
            for row in self.rows]
        return plots.bars(rows, f"{self.title} ({self.place['name']})", self.unit)


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def ratio_text(ratio: tuple[float, float, float] | None) -> str:
    return f"{ratio[0]:.2f} ({ratio[1]:.2f} – {ratio[2]:.2f})" if ratio else ""


def times_text(ratio: tuple[float, float, float] | None) -> str:
    return f"{ratio[0]:.2g} × [{ratio[1]:.2g} – {ratio[2]:.2g}]" if ratio else ""


def write(directory: Path, run: dict, results: Results) -> None:
    peers = {peer["name"]: peer for peer in run["peers"]}
    series = results.series()
    places = {place["name"]: place for place in run["places"]}
    tables = [
        Table(places[place], step, amount, peers, by_peer)
        for place in places
        for step in STEPS
        for (its_place, its_step, amount), by_peer in sorted(series.items(), key=lambda item: item[0][2])
        if its_place == place and its_step == step
    ]
    tables = [table for table in tables if table.rows]
    drawings = {table.name: table.plot() for table in tables}
    for place in places.values():
        for step in ("write", "read", "send"):
            if drawing := by_size(place, step, tables, peers):
                drawings[f"{place['name'].replace(' ', '-')}-{step}-by-size"] = drawing
    ladders = {name: rows for name in places if (rows := layers.ladder(directory, name, series))}
    calls = layers.calls(directory)
    for name, rows in ladders.items():
        drawings[f"{name.replace(' ', '-')}-ladder"] = ladder_plot(name, rows)
    for name, drawing in drawings.items():
        plots.save(directory / "plots", name, drawing)
    sections = [("Space", space_rows(places, peers, series))]
    sections.append(("64 bytes and their echo between two processes", call_rows(calls)))
    sections = [(title, rows) for title, rows in sections if len(rows) > 1]
    (directory / "summary.md").write_text(summary(run, tables))
    everything = {**run, "turns": results.turns, "ladder": ladders, "calls": calls}
    (directory / "results.json").write_text(json.dumps(everything, indent=1) + "\n")
    (directory / "results.md").write_text(markdown(run, tables, ladders, sections, results))
    (directory / "report.html").write_text(page(run, tables, ladders, sections, drawings, results))


def summary(run: dict, tables: list[Table]) -> str:
    """Five figures for a first page, of the first place, each beside the fastest encrypted peer and cp."""
    wanted = [
        ("1 GiB from store to store", "send", GIB), ("1 GiB in", "write", GIB),
        ("10,000 small files in", "tree-in", 10_000), ("10,000 small files out", "tree-out", 10_000),
        ("random reads of 4 KiB", "random-read", GIB)]
    rows = [["", "dynamics", "against the fastest encrypted peer", "against cp"]]
    for label, step, amount in wanted:
        for table in tables:
            if table.place is run["places"][0] and (table.step.name, table.amount) == (step, amount):
                rows += [[label, *figures] for figures in summary_figures(table)]
    system = run["machine"]
    origin = (
        f"{run['date'].split()[0]}, commit {system['commit']}: {system['processor']}, {system['cores']} cores,"
        f" {run['places'][0]['type']}; medians of {run['options']['repetitions']} repetitions, in brackets the slowest and"
        " the fastest. Above 1 dynamics is faster.")
    return markdown_table(rows) + f"\n{origin}\n"


def summary_figures(table: Table) -> list[list[str]]:
    """The cells of one line; no line without a time of ours.

    When the fastest encrypted peer would not notice a changed byte, the fastest that would stands beside it. An archive
    is no store of small files.
    """
    ours = next((row for row in table.rows if row["peer"]["name"] == "dynamics"), None)
    if not ours:
        return []
    encrypted = [
        row for row in table.rows
        if row["peer"]["lane"] not in ("plain", "container")
        and row["dynamics_ratio"]
        and not (row["peer"]["archives_folders"] and table.step.unit == "files")]
    authenticated = [row for row in encrypted if row["peer"]["protection"]["changed"] == "yes"]
    beside = encrypted[:1]
    beside += [row for row in authenticated[:1] if row not in beside]
    texts = [
        f"{times_text(row['dynamics_ratio'])} {row['peer']['label']}"
        + ("" if row in authenticated else " (detects no changes)")
        for row in beside]
    return [[f"{figure_text(ours['speed'])} {table.unit}", "; ".join(texts), times_text(ours["cp_ratio"])]]


def overview_rows(place: dict, tables: list[Table]) -> list[list[str]]:
    """The medians of all peers at the largest amount of each main step, the fastest from store to store first."""
    columns = []
    for step in OVERVIEW:
        found = [table for table in tables if table.place is place and table.step.name == step]
        if found:
            columns.append(max(found, key=lambda table: table.amount))
    cells: dict[str, list[str]] = {}
    for i, table in enumerate(columns):
        for row in table.rows:
            line = cells.setdefault(row["peer"]["label"], [""] * len(columns))
            line[i] = figure_text(row["speed"])
    return [["", *(f"{table.title}, {table.unit}" for table in columns)]] + [[label, *line] for label, line in cells.items()]


def ladder_plot(place: str, rows: list[dict]) -> str:
    bars = [
        ({"label": row["label"], "lane": "container" if index else "plain"}, row["speed"], row["least"], row["most"])
        for index, row in enumerate(rows)]
    return plots.bars(bars, f"{LADDER_TITLE} ({place})", "GiB/s")


def ladder_rows(rows: list[dict]) -> list[list[str]]:
    header = ["", "GiB/s", "slowest – fastest", "share of the line before"]
    return [header] + [
        [
            row["label"], f"{row['speed']:.2f}", f"{row['least']:.2f} – {row['most']:.2f}",
            f"{row['share']:.2f}" if row["share"] else ""]
        for row in rows]


def call_rows(rows: list[dict]) -> list[list[str]]:
    header = ["", "a call, median", "99th percentile", "calls a second"]
    return [header] + [
        [row["name"], time_text(row["median"]), time_text(row["p99"]), f"{row['per_second']:,.0f}"] for row in rows]


def time_text(microseconds: float | None) -> str:
    return f"{microseconds:.1f} µs" if microseconds else ""


def by_size(place: dict, step: str, tables: list[Table], peers: dict[str, dict]) -> str | None:
    found = [table for table in tables if table.place is place and table.step.name == step]
    if len(found) < 3:
        return None
    series = []
    for peer in peers.values():
        points = [
            (table.amount, row["speed"]) for table in found for row in table.rows if row["peer"] is peer]
        if points:
            series.append((peer, sorted(points)))
    return plots.lines(series, f"{STEPS[step].title.split(',')[0]}, by size ({place['name']})", "MiB/s")


def space_rows(places: dict, peers: dict, series: dict) -> list[list[str]]:
    rows = [["", "stored", "bytes of contents", "bytes on the file system", "share"]]
    for (place, step, amount), by_peer in sorted(series.items(), key=str):
        if not step.startswith("space-"):
            continue
        what = "a file" if step == "space-file" else "small files"
        found = sorted((one.median("allocated"), name) for name, one in by_peer.items())
        for allocated, name in found:
            rows.append([
                peers[name]["label"], f"{what} ({place})", f"{amount:,}", f"{allocated:,.0f}",
                f"{allocated / amount:.3f}"])
    return rows


def heading(place: dict) -> str:
    return f"In {place['name']}" if place["is_memory"] else f"On {place['name']}"


def facts(run: dict) -> list[tuple[str, str]]:
    system = run["machine"]
    rows = [
        ("date", run["date"]),
        ("commit", system["commit"]),
        ("processor", f"{system['processor']}, {system['cores']} cores"),
        ("RAM", f"{system['memory_gib']} GiB"),
        ("system", f"{system['system']}, kernel {system['kernel']}"),
    ]
    rows += [(place["name"], f"{place['type']} ({place['options']})") for place in run["places"]]
    rows += [(peer["label"], run["versions"][peer["name"]]) for peer in run["peers"]]
    rows += [(f"without {name}", reason) for name, reason in run["missing"].items()]
    return rows


def protection_rows(run: dict) -> list[list[str]]:
    rows = [["", "hides names", "reports a changed byte", "a cut file", "moved pieces", "an exchanged file", "an older version", "note"]]
    for peer in run["peers"]:
        p = peer["protection"]
        rows.append([peer["label"], p["names"], p["changed"], p["cut"], p["pieces"], p["files"], p["older"], peer["note"]])
    return rows


def how(run: dict) -> str:
    count = run["options"]["repetitions"]
    if run["options"]["short"]:
        return "A short run: it shows that everything works. Its figures mean nothing."
    return (
        f"Medians of {count} repetitions, of slow peers {min(count, SLOW_REPETITIONS_MAX)}. Peers take turns, so a slow"
        " moment of the machine meets all of them; ratios are taken within one repetition, with the least and the most in"
        " parentheses. Processor time is user and system"
        " time of all processes that take part, daemons behind mounts included. On a disk every time ends when all is"
        " durable.")


Section = tuple[str, list[list[str]]]


def markdown(
    run: dict, tables: list[Table], ladders: dict[str, list[dict]], sections: list[Section], results: Results
) -> str:
    text = f"# {TITLE}\n\n{how(run)}\n\n"
    text += markdown_table([["", ""]] + [list(fact) for fact in facts(run)])
    for place in run["places"]:
        text += f"\n## {heading(place)}\n\n" + markdown_table(overview_rows(place, tables))
        for table in tables:
            if table.place["name"] == place["name"]:
                text += f"\n### {table.title}\n\n" + markdown_table(table.cells())
        if place["name"] in ladders:
            text += f"\n### {LADDER_TITLE}\n\n" + markdown_table(ladder_rows(ladders[place["name"]]))
    for title, rows in sections:
        text += f"\n## {title}\n\n" + markdown_table(rows)
    text += "\n## What each protects\n\n" + markdown_table(protection_rows(run))
    if failures := results.failures():
        text += "\n## Failed\n\n" + "".join(
            f"- {f['peer']}, {f['case']} ({f['place']}, {f['repetition']}): {f['failure']}\n"
            for f in failures)
    return text


def markdown_table(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"


PAGE_STYLE = """
  :root { color-scheme: light dark; --line: #d0d7de; --soft: #f6f8fa; --ours: #ddeeff; }
  @media (prefers-color-scheme: dark) { :root { --line: #3d444d; --soft: #151b23; --ours: #12304f; } }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; font-size: 0.85rem; margin: 0.5rem 0 1.5rem; }
  th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; }
  th { white-space: normal; vertical-align: bottom; min-width: 4.5rem; }
  th:first-child, td:first-child { text-align: left; }
  .text td { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 3rem; }
  tr.ours { background: var(--ours); }
  figure { margin: 1rem 0; }
  details > summary { cursor: pointer; }
"""


def page(
    run: dict, tables: list[Table], ladders: dict[str, list[dict]], sections: list[Section],
    drawings: dict[str, str], results: Results
) -> str:
    parts = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(TITLE)}</title><style>{PAGE_STYLE}</style></head><body>",
        f"<h1>{html.escape(TITLE)}</h1><p>{html.escape(how(run))}</p>",
        "<details open><summary>Machine and versions</summary>",
        html_table([["", ""]] + [list(fact) for fact in facts(run)], "text"), "</details>",
    ]
    for place in run["places"]:
        parts.append(f"<h2>{html.escape(heading(place))}</h2>" + html_table(overview_rows(place, tables)))
        prefix = place["name"].replace(" ", "-")
        for step in ("write", "read", "send"):
            if drawing := drawings.get(f"{prefix}-{step}-by-size"):
                parts.append(f"<figure>{drawing}</figure>")
        for table in tables:
            if table.place["name"] != place["name"]:
                continue
            parts.append(f"<h3>{html.escape(table.title)}</h3><figure>{drawings[table.name]}</figure>")
            parts.append("<details><summary>Figures</summary>" + html_table(table.cells()) + "</details>")
        if place["name"] in ladders:
            parts.append(f"<h3>{html.escape(LADDER_TITLE)}</h3><figure>{drawings[f'{prefix}-ladder']}</figure>")
            rows = html_table(ladder_rows(ladders[place["name"]]))
            parts.append("<details><summary>Figures</summary>" + rows + "</details>")
    for title, rows in sections:
        parts.append(f"<h2>{html.escape(title)}</h2>" + html_table(rows))
    parts.append("<h2>What each protects</h2>" + html_table(protection_rows(run), "text"))
    if failures := results.failures():
        items = "".join(
            f"<li>{html.escape(f['peer'])}, {html.escape(f['case'])} ({html.escape(f['place'])}): {html.escape(f['failure'])}</li>"
            for f in failures)
        parts.append(f"<h2>Failed</h2><ul>{items}</ul>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def html_table(rows: list[list[str]], kind: str = "") -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        f'<tr{" class=ours" if row[0] == "dynamics" else ""}>' + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows[1:])
    head = f"<thead><tr>{head}</tr></thead>" if any(rows[0]) else ""
    return f'<div class="wide"><table class="{kind}">{head}<tbody>{body}</tbody></table></div>'
