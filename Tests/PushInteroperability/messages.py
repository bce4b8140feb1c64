"""Checks what the program says: each mistake has a message that names the option, the file or the address, and says
what to do. No message shows the inside of the program.

    messages.py PROGRAM
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

program = pathlib.Path(sys.argv[1]).resolve()
folder = pathlib.Path(tempfile.mkdtemp(prefix="push-messages-"))
failures = 0
token = "4f3a9c21 09be app.gdpush.local AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
NONE = {"devices": "none", "back-ends": "none", "plain-back-ends": "none", "operator": "127.0.0.1:0"}


def run(*words, env=None, timeout=30, input=""):
    """The exit code, the standard output and the standard error of the program, in the folder."""
    found = subprocess.run(
        [program, *words], cwd=folder, env={**os.environ, **(env or {})}, timeout=timeout, input=input,
        capture_output=True, text=True)
    return found.returncode, found.stdout, found.stderr


def check(condition, *about):
    global failures
    if not condition:
        failures += 1
        print("FAILED ", *about, flush=True)


def says(expected, *words, code=1, within=10, **more):
    begin = time.monotonic()
    found, _, error = run(*words, **more)
    check(found == code and expected in error, words, "->", found, repr(error[-600:]), "in place of", repr(expected))
    check(time.monotonic() - begin < within, words, "took", time.monotonic() - begin)
    inside = re.search(r"\.swift|\.cc:|NSCocoa|NIO|Optional\(|Error Domain|fatal", error)
    check(not inside, words, "shows", inside and inside[0], repr(error[-600:]))
    if code == 64:
        check(f"Usage: dynamics-push {words[0]}" in error and f"dynamics-push {words[0]} --help" in error, words, error)


def relay_options(directory, **addresses):
    addresses = {**NONE, **{name.replace("_", "-"): at for name, at in addresses.items()}}
    return ["relay", "--directory", directory, *[word for name, at in addresses.items() for word in ("--" + name, at)]]


@contextlib.contextmanager
def relay(*words, env=None):
    """A relay, its ports and its log."""
    log = folder / "log"
    process = subprocess.Popen(
        [program, *words], cwd=folder, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
        stderr=open(log, "w"), text=True)
    ports = {}
    process.ports, process.log = ports, log
    try:
        while "operator" not in ports:
            line = process.stdout.readline().split()
            if len(line) != 3:
                raise AssertionError("the relay does not start: " + log.read_text()[-2000:])
            ports[line[1]] = int(line[2])
        yield process
    finally:
        process.terminate()
        check(process.wait(20) == 0, words, "ended with", process.returncode)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def options_of_a_relay():
    (folder / "file").write_text("text")
    os.makedirs(folder / "damaged")
    (folder / "damaged/push.sqlite").write_text("this is not a database at all")
    for text, expected in (("x", "--devices x: write HOST:PORT"), ("h:99999", "--devices h:99999: write HOST:PORT")):
        says(expected, "relay", "--devices", text, code=64)
    says("all addresses are none", *relay_options("x", operator="none"), code=64)
    says("--operator 0.0.0.0:0: /revoke", *relay_options("x", operator="0.0.0.0:0"), code=64)
    says("--plain-back-ends 0.0.0.0:0", *relay_options("x", plain_back_ends="0.0.0.0:0"), code=64)
    says("--devices 0.0.0.0:0: other machines need a certificate", *relay_options("x", devices="0.0.0.0:0"), code=64)
    says("--log-level loud: write one of trace", "relay", "--log-level", "loud", code=64)
    says("--certificate and --key go together", "relay", "--key", "file", code=64)
    says("--directory file is a file", *relay_options("file"))
    says("--directory file/x cannot be made: not a directory", *relay_options("file/x"))
    says("damaged/push.sqlite is damaged: put a backup back", *relay_options("damaged"))
    for option in ("--admission-keys", "--callback-authorities"):
        says(f"{option} missing: no such file", *relay_options("x"), option, "missing")
    says("--certificate missing: no such file", *relay_options("x"), "--certificate", "missing", "--key", "file")
    says("--callback-authorities file has no certificate", *relay_options("x"), "--callback-authorities", "file")
    says("this machine has no such address", *relay_options("x", operator="127.0.0.1:0", plain_back_ends="192.0.2.1:9"),
         "--allow-plain")
    with relay(*relay_options("one", operator="127.0.0.1:0")) as first:
        port = first.ports["operator"]
        says(f"--operator 127.0.0.1:{port}: port {port} is in use", *relay_options("two", operator=f"127.0.0.1:{port}"))
        says("one/push.sqlite is used by another process", *relay_options("one"))
    check(not (folder / "two/relay.key").exists(), "a start that failed has left a key")
    shutil.copytree(folder / "one", folder / "other")
    for name in ("loopback.pem", "loopback-key.pem"):
        (folder / "other" / name).unlink()
    with relay(*relay_options("other")):
        pass
    says("--key other/loopback-key.pem is not the key of --certificate one/loopback.pem", *relay_options("x"),
         "--certificate", "one/loopback.pem", "--key", "other/loopback-key.pem")
    says("--key one/loopback.pem has no private key", *relay_options("x"),
         "--certificate", "one/loopback.pem", "--key", "one/loopback.pem")
    # Users other than root cannot write everywhere.
    os.makedirs(folder / "locked/inner")
    (folder / "locked").chmod(0o555)
    if os.geteuid() != 0:
        says("--directory locked cannot be used: permission denied", *relay_options("locked"))
        says("--directory locked/x cannot be made: permission denied", *relay_options("locked/x"))


def settings_of_a_relay():
    says("PUSH_WAITING_EVNTS; did you mean PUSH_WAITING_EVENTS?", "relay", env={"PUSH_WAITING_EVNTS": "1"}, code=64)
    says("there are PUSH_", "relay", env={"PUSH_QWERTZUIOP": "1"}, code=64)
    says("PUSH_WAITING_EVENTS is many, and must be a number", "relay", env={"PUSH_WAITING_EVENTS": "many"}, code=64)
    says("PUSH_DEVICES_ADDRESS x: write HOST:PORT", "relay", env={"PUSH_DEVICES_ADDRESS": "x"}, code=64)
    says("PUSH_ADMISSION_KEYS missing: no such file", *relay_options("x"), env={"PUSH_ADMISSION_KEYS": "missing"})
    says("PUSH_SETTINGS missing: no such file", *relay_options("x"), env={"PUSH_SETTINGS": "missing"})
    for content, expected in (
        ({"waitingEvnts": 1}, "did you mean waitingEvents?"), ({"waitingEvents": "1"}, "must be a whole number"),
        ({"admitAll": 1}, "admitAll must be true or false"), ({"name": 1}, "name must be a text"),
        ({"callbackNetworks": "10.0.0.0/8"}, "must be a list of networks"), ({"callbackNetworks": ["x"]}, "is no network"),
        ({"writeSeconds": 1 << 62}, "writeSeconds in bad.json"), ({"name": "A"}, "name in bad.json A: write"),
        ([], "is no JSON object"),
    ):
        (folder / "bad.json").write_text(json.dumps(content))
        says(expected, "relay", "--settings", "bad.json", code=64)

    # Everything without an option; variables override the file, and options override both.
    (folder / "keys").write_text("secret\n")
    (folder / "all.json").write_text(json.dumps({
        "directory": "by-file", "name": "file", "devicesAddress": "127.0.0.1:0", "backEndsAddress": "none",
        "plainBackEndsAddress": "127.0.0.1:0", "operatorAddress": "127.0.0.1:0", "certificate": "one/loopback.pem",
        "key": "one/loopback-key.pem", "admissionKeys": "keys", "logLevel": "warning", "logJson": True,
        "callbackNetworks": ["10.0.0.0/8"], "pingSeconds": 1}))
    env = {"PUSH_SETTINGS": "all.json", "PUSH_NAME": "variable", "PUSH_LOG_LEVEL": "debug", "PUSH_DIRECTORY": "by-variable"}
    with relay("relay", "--directory", "by-option", env=env) as running:
        check((folder / "by-option/relay.key").exists() and not (folder / "by-variable").exists(), "directory")
        device = ["--relay", f"wss://localhost:{running.ports['devices']}", "--authorities", "one/loopback.pem"]
        says("does not admit this device; give --admission-key", "open", "x", *device, "--directory", "refused", within=8)
        code, output, error = run("open", "x", *device, "--directory", "admitted", "--admission-key", "secret")
        check(code == 0 and " app.gdpush.variable " in output, output, error)
    check(all(line.startswith("{") for line in running.log.read_text().splitlines()), running.log.read_text())


def stops_without_errors():
    with relay(*relay_options("stops", plain_back_ends="127.0.0.1:0", back_ends="127.0.0.1:0")) as running:
        pass
    lines = running.log.read_text()
    check(" error " not in lines and "Server started" not in lines, lines)


def devices_and_back_ends():
    port = free_port()
    for command in ("open", "listen"):
        says("the channel has no name", command, "", code=64)
        for address in ("localhost:1", "https://localhost:1", "ws://push.example", ""):
            says(f"--relay {address or repr('')} is no address of a relay: use wss://", command, "x", "--relay", address, code=64)
        says("--authorities missing: no such file", command, "x", "--authorities", "missing")
        says("--directory file is a file", command, "x", "--directory", "file")
    says("no channel x is open in fresh", "open", "x", "--close", "--directory", "fresh")
    says("--count", "listen", "x", "--count=-1", code=64)
    says("--append file/x: not a directory", "listen", "x", "--append", "file/x")
    says(f"not connected to wss://localhost:{port}: connection refused; is the relay running? trying again\n"
         "Error: the channel x was not opened in 15 seconds", "open", "x", "--relay", f"wss://localhost:{port}", within=25)

    words = token.split()
    says("a token has spaces: put it in quotes", "send", *words, "hello", code=64)
    says("a token has spaces: put it in quotes", "send", words[0], code=64)
    says("a token has spaces: put it in quotes", "revoke", *words[:3], code=64)
    says("'abc' is no token", "send", "abc", "hello", code=64)
    says("put the token in quotes, and the message", "send", token, "hello", "world", code=64)
    for address in ("localhost:1", "ws://localhost:1", "http://localhost:1/x", ""):
        says(f"--relay {address or repr('')} is no address of a relay: use http://", "send", token, "x", "--relay", address, code=64)
        says(f"--operator {address or repr('')} is no address of a relay", "revoke", token, "--operator", address, code=64)
    for option, value in (("--time-to-live", "5"), ("--topic", "a"), ("--urgency", "high")):
        says(f"--notify takes no {option}", "send", token, "x", "--notify", option, value, code=64)
    says("--urgency now: write", "send", token, "x", "--urgency", "now", code=64)
    says("--topic a b: write", "send", token, "x", "--topic", "a b", code=64)
    says("the message has 1048577 bytes; at most 1048576", "send", token, "--notify", input="x" * ((1 << 20) + 1))
    url = f"http://localhost:{port}"
    says(f"no answer from {url}: connection refused; is the relay running?", "send", token, "x", "--relay", url, within=3)
    says(f"no answer from {url}: connection refused", "revoke", token, "--operator", url, within=3)
    says("the name cannot be resolved", "send", token, "x", "--relay", "http://no-such-host.invalid")
    says("--authorities missing: no such file", "send", token, "x", "--relay", "https://localhost:1", "--authorities", "missing")


def connections():
    free = "127.0.0.1:0"
    # The default directory, so that commands find its certificate themselves.
    options = relay_options("push-relay", devices=free, back_ends=free, plain_back_ends=free, operator=free)
    with relay(*options) as running:
        ports = running.ports
        device = ["--relay", f"wss://localhost:{ports['devices']}", "--directory", "device"]
        code, output, error = run("open", "x", *device)
        found = output.removeprefix("opened ").strip()
        check(code == 0 and len(found.split()) == 4, output, error)
        tls, http = (f"{kind}://localhost:{ports[name]}" for kind, name in (("https", "back-ends"), ("http", "plain-back-ends")))
        for address in (http, http + "/", tls):
            code, output, error = run("send", found, "hello", "--relay", address)
            check((code, output) == (0, "accepted: 201\n"), address, output, error)
        shutil.copy(folder / "push-relay/loopback.pem", folder / "authority.pem")
        (folder / "push-relay/loopback.pem").unlink()
        says(f"no answer from {tls}: certificate not trusted; give --authorities", "send", found, "x", "--relay", tls)
        swapped = f"https://localhost:{ports['plain-back-ends']}"
        says(f"no answer from {swapped}: this port does not speak TLS; use http://", "send", found, "x", "--relay", swapped)
        swapped = f"http://localhost:{ports['back-ends']}"
        says("if this port speaks TLS, use https://", "send", found, "x", "--relay", swapped)
        for kind, name, more, expected in (
            ("wss", "devices", [], "the relay's certificate is not trusted; give --authorities"),
            ("wss", "plain-back-ends", [], "the port does not speak TLS"),
            ("wss", "back-ends", ["--authorities", "authority.pem"], "the port is not that of a relay for devices"),
            ("ws", "plain-back-ends", [], "the port is not that of a relay for devices"),
        ):
            listener = subprocess.Popen(
                [program, "listen", "x", "--relay", f"{kind}://localhost:{ports[name]}", "--directory", f"wrong {name}", *more],
                cwd=folder, stderr=subprocess.PIPE, text=True)
            line = listener.stderr.readline()
            listener.kill()
            check(line.startswith("not connected to ") and expected in line, kind, name, line)
        shutil.copy(folder / "authority.pem", folder / "push-relay/loopback.pem")

        # Words and numbers for the codes of events.
        revoke = ["revoke", found, "--operator", f"http://localhost:{ports['operator']}/"]
        code, output, error = run(*revoke)
        check((code, output) == (0, "revoked\n"), output, error)
        says("there is no open channel with this token", *revoke)
        code, output, error = run("listen", "x", *device, "--json")
        check(code == 1 and json.loads(output.splitlines()[-1]) == {"event": "error", "code": 504}, output)
        check("the channel ended with error 504: the relay's operator has revoked the token" in error, error)
        code, output, error = run("open", "x", *device)
        code, output, error = run("open", "x", "--close", *device)
        check(code == 0 and output.endswith("closed\n"), output, error)
        says("no channel x is open in device", "open", "x", "--close", *device)
        run("open", "x", *device)

    # A key that is missing is not made anew for a database that has tokens of it.
    (folder / "push-relay/relay.key").unlink()
    says("push-relay/relay.key is missing: put relay.key back, or delete push.sqlite", *options)
    check(not (folder / "push-relay/relay.key").exists(), "a start that failed has left a key")


def a_relay_that_comes_back():
    port = free_port()
    listener = subprocess.Popen(
        [program, "listen", "x", "--relay", f"wss://localhost:{port}", "--directory", "patient", "--authorities",
         "one/loopback.pem"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    check("connection refused" in listener.stderr.readline(), "the first failure is not told")
    with relay(*relay_options("one", devices=f"127.0.0.1:{port}")):
        check(listener.stdout.readline().startswith("opened "), "the listener does not connect")
        check(listener.stderr.readline() == f"connected to wss://localhost:{port}\n", "the connection is not told")
    listener.kill()


for function in (
    options_of_a_relay, settings_of_a_relay, stops_without_errors, devices_and_back_ends, connections, a_relay_that_comes_back,
):
    begin, before = time.monotonic(), failures
    function()
    name = function.__name__.replace("_", " ")
    print(f"{'ok' if failures == before else 'FAILED':7}{time.monotonic() - begin:5.1f} s  messages: {name}", flush=True)
(folder / "locked").chmod(0o755)
shutil.rmtree(folder)
sys.exit(f"{failures} failed" if failures else 0)
