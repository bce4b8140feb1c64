"""The launcher's page with a thousand apps, beside a delivery, and idle. Run by Benchmarks/launcher."""

import glob
import os
import statistics
import sys

sys.path.insert(0, "Tests/Browser")
import page as pages
from page import Host, Page, time

pages.HOST = sys.argv[1]
ROUNDS = 15

OPEN = """
const done = arguments[0], panel = document.getElementById('panel'), begin = performance.now();
new MutationObserver((_, observer) => {
  if (panel.hidden) return;
  observer.disconnect();
  // Two frames: the first one draws it.
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
}).observe(panel, {attributes: true});
document.getElementById('button').click();
"""
KEY = """
const search = document.getElementById('search'), text = arguments[0];
const begin = performance.now();
search.value = text;
search.dispatchEvent(new Event('input'));
document.getElementById('results').getBoundingClientRect();
document.getElementById('results').scrollHeight;
return performance.now() - begin;
"""


def spread(name, unit, values):
    print(f"  {name:42} median {statistics.median(values):8.1f} {unit}   worst {max(values):8.1f} {unit}   of {len(values)}")


def processor(process):
    fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wakes(process):
    """By thread: one that ends has no more."""
    found = {}
    for path in glob.glob(f"/proc/{process}/task/*/status"):
        found[path] = int(next(line for line in open(path) if line.startswith("voluntary")).split()[1])
    return found


def minute(process):
    before = wakes(process)
    time.sleep(60)
    return sum(max(0, count - before.get(path, 0)) for path, count in wakes(process).items())


def drawing():
    host, page = Host(), Page()
    page.enter(host.link)
    host("many 1000 50")
    page.until("document.querySelectorAll('.app').length >= 1000")
    opened, keys = [], []
    for _ in range(ROUNDS):
        opened.append(page.driver.execute_async_script(OPEN))
        for text in ["a", "ap", "app", "appl", "7", "77", "zz", ""]:
            keys.append(page.run(KEY, text))
        host("close")
        page.until("document.getElementById('panel').hidden")
        time.sleep(0.3)
    print("1,000 apps in 50 sections:")
    spread("open to first paint", "ms", opened)
    spread("one key of search", "ms", keys)
    page.end()
    host.end()


def delivery():
    """Processor time of the process with both apps, with the page open and without, in turns."""
    seconds = {False: [], True: []}
    for round in range(3):
        for isOpen in [False, True]:
            host = Host()
            host("app com.example.mail Mail")
            page = None
            if isOpen:
                page = Page()
                page.enter(host.link)
                time.sleep(1)
            # The file is made first, and sent twice.
            host("receive com.example.mail big.bin 1073741824")
            while host("inbox") != "inbox 1":
                time.sleep(0.1)
            time.sleep(1)
            begin = processor(host.process.pid)
            host("again com.example.mail big.bin 0")
            while host("inbox") != "inbox 2":
                time.sleep(0.05)
            seconds[isOpen].append(processor(host.process.pid) - begin)
            if page:
                page.end()
            host.end()
    without, beside = statistics.median(seconds[False]), statistics.median(seconds[True])
    print(f"a delivery of 1 GiB: {without:.2f} s of processor time without the page, {beside:.2f} s with it: {beside / without:.3f} times")


def idle():
    host = Host()
    time.sleep(15)
    without = minute(host.process.pid)
    page = Page()
    page.enter(host.link)
    time.sleep(15)
    print(f"idle for a minute, with the broker in the process: {without} wake-ups without a tab, {minute(host.process.pid)} with one")
    page.end()
    host.end()


for part in sys.argv[2:] or ["drawing", "delivery", "idle"]:
    {"drawing": drawing, "delivery": delivery, "idle": idle}[part]()
