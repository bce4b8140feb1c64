"""Every state of the page: what a person sees, pictures of it, and what axe says."""

import importlib.util
import itertools
import sys

from page import *

PICTURES = sys.argv[1] if len(sys.argv) > 1 else None
# The script alone: the package drives another browser.
folder = importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0]
AXE = open(f"{folder}/axe.min.js").read()


def apps(host):
    for line in [
        "app com.example.mail Mail", "app com.example.plain.calendar Calendar",
        "app com.example.docs Documents to go", "app com.example.plain.chat Chat", "app com.example.photos Photos",
        "section news News", "section tasks Tasks", "section hidden Hidden", "disable hidden",
        "action new New note", "action scan Scan a page", "quick", "settings",
    ]:
        host(line)
    host("state com.example.plain.chat locked")
    host("receive com.example.mail report.pdf 250000")
    host("receive com.example.mail minutes.txt 1250")
    host("receive com.example.photos beach.jpg 3250000")
    host("send com.example.plain.chat draft.txt 1000")


def states(host, page):
    """The name of each state, and the page in it."""

    page.until("document.querySelectorAll('#inbox .row').length === 3")
    page.until("document.querySelector('#messages .row')")
    yield "closed"
    host("coach on")
    page.until("!document.getElementById('coach').hidden")
    yield "coach-mark"
    page.click("#coach-done")
    page.until("document.getElementById('coach').hidden")
    host("open")
    page.until("!document.getElementById('panel').hidden && document.querySelectorAll('.app').length === 6")
    yield "open"
    page.keys("ph")
    page.until("document.querySelectorAll('#apps li:not([hidden])').length === 1")
    yield "search"
    page.keys("xyz")
    yield "search-nothing"
    page.keys(Keys.ESCAPE)
    page.click("#panel-settings")
    page.until("!document.getElementById('sheet').hidden")
    yield "settings"
    page.click("#sheet-close")
    page.until("document.getElementById('sheet').hidden")
    page.click("#panel-certificates")
    page.until("document.querySelector('#sheet code')")
    yield "certificates"
    page.click("#sheet-close")
    page.until("document.getElementById('sheet').hidden")
    page.click("#button")
    page.until("document.getElementById('panel').hidden")
    page.click("#move")
    page.until("!document.getElementById('places').hidden")
    yield "move"
    page.keys(Keys.ESCAPE)
    page.click("#inbox .row button.bad")
    yield "remove"
    page.keys(Keys.ESCAPE)
    page.click("#inbox .files button:last-child")
    page.until("!document.getElementById('toast').hidden")
    # In pictures, a place that everybody has.
    page.run("const t = document.getElementById('toast-text'); t.textContent = t.textContent.replace(/\\/.*\\//, '/home/me/Downloads/')")
    yield "saved"
    page.click("#toast-close")
    host("hide")
    page.until("document.getElementById('dock').hidden")
    yield "button-hidden"
    host("show")
    page.until("!document.getElementById('dock').hidden")
    host("lock")
    page.until("document.getElementById('base').hidden")
    yield "blocked"
    host("unlock")
    page.until("!document.getElementById('base').hidden")
    page.click("#leave")
    page.until("document.getElementById('base').hidden")
    yield "logged-out"


def alone(host, page):
    """The states of the launcher that shows all apps."""

    page.until("!document.getElementById('panel').hidden && !document.getElementById('apps-none').hidden")
    yield "alone-none"
    for line in [
        "app com.example.mail Mail", "app com.example.plain.calendar Calendar",
        "app com.example.docs Documents to go", "app com.example.plain.chat Chat", "app com.example.photos Photos",
        "install com.example.photos", "end com.example.photos", "state com.example.plain.chat locked",
        "between com.example.mail draft.txt 1250000 com.example.plain.chat",
        "between com.example.mail minutes.txt 250000 com.example.plain.chat",
        "between com.example.docs film.mkv 1500000000 com.example.plain.calendar",
    ]:
        host(line)
    page.until("document.querySelectorAll('.app').length === 5 && document.querySelectorAll('.way').length === 3")
    page.until("document.querySelector('.way progress:not([hidden])')?.value > .05")
    yield "alone"
    page.keys("chat")
    page.until("document.querySelectorAll('#apps li:not([hidden])').length === 1")
    yield "alone-search"
    page.keys(Keys.ESCAPE)
    host("broker stop")
    page.until("!document.getElementById('away').hidden")
    yield "alone-away"
    host("broker start")
    page.until("document.getElementById('away').hidden")
    page.click("#panel-leave")
    page.until("document.getElementById('base').hidden")
    yield "alone-logged-out"


def check(page, state, look):
    """What axe finds, and whether everything fits."""
    page.run(AXE)
    found = page.driver.execute_async_script(
        "const done = arguments[0]; axe.run().then(result => done(result.violations), error => done(`${error}`));"
    )
    assert isinstance(found, list), found
    for violation in found:
        for node in violation["nodes"]:
            print(f"{state} {look}: {violation['id']}: {violation['help']}: {node['target']} {node['failureSummary']}")
    wide = page.run("return document.documentElement.scrollWidth > innerWidth")
    if wide:
        print(f"{state} {look}: wider than the screen")
    return len(found) + wide


faults = count = 0
for language, all in itertools.product(["en", "ar"], [states, alone]):
    host = Host(PAGE_LANGUAGE=language, **({"PAGE_ALONE": "1"} if all is alone else {}))
    page = Page()
    if all is states:
        apps(host)
    page.enter(host.link)
    for state in all(host, page):
        for colours, width in itertools.product(["light", "dark", "forced"], [1280, 320]):
            page.look(dark=colours == "dark", forced=colours == "forced", still=True)
            page.size(width, 800 if width == 1280 else 640)
            look = f"{language} {colours} {width}"
            faults += check(page, state, look)
            count += 1
            if PICTURES and (language == "en" or state in ("closed", "open", "alone")):
                time.sleep(0.1)
                page.picture(f"{PICTURES}/{state}-{language}-{colours}-{width}.png")
        page.size(1280, 800)
        page.look()
    for complaint in page.complaints():
        if "401" not in complaint["message"]:
            print("the browser complains:", complaint["message"])
            faults += 1
    page.end()
    host.end()
print(f"{count} looks at states, {faults} faults")
sys.exit(faults > 0)
