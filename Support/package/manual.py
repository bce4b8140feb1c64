"""Writes man pages of what `--experimental-dump-help` says: one of the program, one of each command.

    program --experimental-dump-help | manual.py VERSION DIRECTORY
"""

import json
import sys


# What groff would print as other characters than a terminal takes.
PLAIN = str.maketrans({"-": "\\-", "`": "\\(ga", "'": "\\(aq", "^": "\\(ha", "~": "\\(ti"})


def escaped(text):
    lines = (text or "").replace("\\", "\\e").translate(PLAIN).splitlines()
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def paragraphs(text):
    """Prose is filled; what is indented, and commands, stay in lines."""
    for part in text.strip("\n").split("\n\n"):
        lines = part.splitlines()
        yield ".PP"
        if any(line.startswith((" ", "dynamics ")) for line in lines):
            yield from (".nf", escaped(part), ".fi")
        else:
            yield escaped(part)


def names(argument):
    shown = []
    for name in argument.get("names") or []:
        dashes = "-" if name["kind"] in ("short", "longWithSingleDash") else "--"
        shown.append("\\fB" + escaped(dashes + name["name"]) + "\\fR")
    value = argument.get("valueName")
    if argument["kind"] == "flag":
        return ", ".join(shown)
    value = f"\\fI{escaped(value)}\\fR" if value else ""
    return (", ".join(shown) + " " + value).strip()


def page(command, path, version, directory):
    title = "-".join(path)
    parts = [
        f'.TH "{escaped(title.upper())}" 1 "" "OpenDynamics {escaped(version)}"',
        ".SH NAME", f"{escaped(title)} \\- {escaped(command.get('abstract') or ' '.join(path))}",
        ".SH SYNOPSIS", f"\\fB{escaped(' '.join(path))}\\fR",
    ]
    arguments = [a for a in command.get("arguments") or [] if a.get("shouldDisplay", True)]
    if any(a["kind"] != "positional" for a in arguments):
        parts.append("[\\fIoptions\\fR]")
    for argument in arguments:
        if argument["kind"] == "positional":
            name = f"\\fI{escaped(argument.get('valueName'))}\\fR"
            name += " ..." if argument.get("isRepeating") else ""
            parts.append(f"[{name}]" if argument.get("isOptional") else name)
    commands = [c for c in command.get("subcommands") or [] if c["commandName"] != "help"]
    if commands:
        parts.append("\\fIcommand\\fR")
    if command.get("discussion"):
        parts += [".SH DESCRIPTION", *paragraphs(command["discussion"])]
    if arguments:
        parts.append(".SH OPTIONS")
        for argument in arguments:
            text = " ".join(filter(None, (argument.get("abstract"), argument.get("discussion"))))
            if argument.get("allValues"):
                text += f" ({', '.join(argument['allValues'])})"
            if argument.get("defaultValue"):
                text += f" (default: {argument['defaultValue']})"
            parts += [".TP", names(argument), escaped(text)]
    if commands:
        parts.append(".SH COMMANDS")
        for sub in commands:
            parts += [".TP", f"\\fB{escaped(sub['commandName'])}\\fR", escaped(sub.get("abstract") or "")]
        parts += [".SH SEE ALSO", ", ".join(f"\\fB{escaped('-'.join(path + [c['commandName']]))}\\fR(1)" for c in commands)]
    with open(f"{directory}/{title}.1", "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")
    for sub in commands:
        # A program of its own, which has pages of its own.
        if path == ["dynamics"] and sub["commandName"] == "push":
            continue
        page(sub, [*path, sub["commandName"]], version, directory)


root = json.load(sys.stdin)["command"]
page(root, [root["commandName"]], sys.argv[1], sys.argv[2])
