"""What a person does with the page, by keyboard and by pointer, and what others try."""

import http.server
import json
import random
import re
import sys
import threading
import urllib.parse

from page import *

EVERYTHING = """
    const shown = [document.documentElement.outerHTML, document.title, location.href];
    for (const part of document.querySelectorAll('input')) shown.push(part.value);
    return shown.join('\\n');
"""


def test(function):
    TESTS.append(function)
    return function


def alone(function):
    """A walk in the launcher that shows all apps."""
    function.environment = {"PAGE_ALONE": "1"}
    return test(function)


TESTS = []


def texts(page, selector):
    return page.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", selector)


def tab_to(page, name, back=False):
    """Goes there by Tab alone."""
    for _ in range(60):
        if page.focused() == name:
            return
        page.tab_back() if back else page.keys(Keys.TAB)
    raise AssertionError(f"Tab does not lead to {name}")


@test
def everything_is_reached_by_keyboard(host, page):
    for line in [
        "app com.example.mail Mail", "app com.example.plain.chat Chat", "section news News", "section tasks Tasks",
        "action new New note", "quick", "receive com.example.mail report.pdf 2500",
    ]:
        host(line)
    page.enter(host.link)
    page.until("document.querySelector('#inbox .row')")
    page.keys(Keys.TAB)
    for name in ["base-settings", "leave"]:
        assert page.focused() == name, page.focused()
        page.keys(Keys.TAB)
    # The message's own buttons, in the order in which they stand.
    order = []
    for _ in range(3):
        order.append(page.run("return document.activeElement.textContent"))
        page.keys(Keys.TAB)
    assert order == ["Remove", "Open", "Save"], order
    assert page.focused() == "move", page.focused()
    page.keys(Keys.TAB)
    assert page.focused() == "button", page.focused()
    # Moved without a pointer.
    page.tab_back()
    page.keys(Keys.ENTER)
    page.until("!document.getElementById('places').hidden")
    page.keys(Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ENTER)
    page.until("document.getElementById('places').hidden")
    host.until("model", lambda model: model.split()[-2:] == ["0.5", "0.5"])
    assert page.focused() == "move"
    # Opened, searched, and an app chosen: the focus is never lost.
    page.keys(Keys.TAB, Keys.ENTER)
    page.until("!document.getElementById('panel').hidden")
    assert page.focused() == "search", page.focused()
    page.keys("news")
    page.until("document.querySelectorAll('#sections li:not([hidden])').length === 1")
    page.keys(Keys.ENTER)
    page.until("document.getElementById('panel').hidden")
    host.until("told", lambda told: told == "told section at:news")
    assert page.focused() == "button", page.focused()
    page.keys(Keys.ENTER)
    page.until("!document.getElementById('panel').hidden")
    page.keys(Keys.ARROW_DOWN)
    assert page.focused() == "com.example.plain.chat", page.focused()
    page.keys(Keys.ARROW_RIGHT)
    assert page.focused() == "com.example.mail", page.focused()
    page.keys(Keys.END)
    assert page.focused() == "com.example.notes", page.focused()
    page.keys(Keys.HOME)
    assert page.focused() == "com.example.plain.chat", page.focused()
    # A letter goes to the search from anywhere.
    page.keys("m")
    page.until("document.getElementById('search').value === 'm'")
    page.keys(Keys.ESCAPE)
    page.until("document.getElementById('search').value === ''")
    # Only the panel and the button are reached while it is open.
    seen = set()
    for _ in range(30):
        seen.add(page.run("return document.activeElement.closest('#panel, #dock, body')?.id"))
        page.keys(Keys.TAB)
    assert seen <= {"panel", "dock", ""}, seen
    page.find("#search").click()
    page.keys("mail", Keys.ENTER)
    page.until("document.getElementById('panel').hidden")
    host("front")
    # Settings over the panel, and back to where one was.
    page.keys(Keys.ENTER)
    page.until("!document.getElementById('panel').hidden")
    tab_to(page, "panel-settings", back=True)
    page.keys(Keys.ENTER)
    page.until("!document.getElementById('sheet').hidden")
    tab_to(page, "Change password")
    page.keys(Keys.ENTER)
    host.until("told", lambda told: told == "told password")
    page.keys(Keys.ESCAPE)
    page.until("document.getElementById('sheet').hidden")
    assert page.focused() == "panel-settings", page.focused()
    page.keys(Keys.ESCAPE)
    page.until("document.getElementById('panel').hidden")
    # Removed after a question, which Escape takes back.
    page.run("document.querySelector('#inbox button.bad').focus()")
    page.keys(Keys.ENTER)
    assert page.focused() == "Keep"
    page.keys(Keys.ESCAPE)
    assert page.focused() == "Remove", page.focused()
    assert host("inbox") == "inbox 1"
    page.keys(Keys.ENTER)
    page.tab_back()
    page.keys(Keys.ENTER)
    page.until("!document.querySelector('#inbox .row')")
    host.until("inbox", lambda inbox: inbox == "inbox 0")
    assert page.focused() == "inbox-title", page.focused()


@test
def a_pointer_does_everything(host, page):
    for line in ["app com.example.mail Mail", "action new New note", "coach on", "receive com.example.mail report.pdf 2500"]:
        host(line)
    page.enter(host.link)
    page.until("!document.getElementById('coach').hidden")
    page.click("#coach-done")
    page.until("document.getElementById('coach').hidden")
    # Dragged, and where it was let go it stays; a press that moves little opens.
    button = page.find("#button")
    ActionChains(page.driver).click_and_hold(button).move_by_offset(-600, -300).release().perform()
    page.until("document.getElementById('dock').getBoundingClientRect().left < 700")
    host.until("model", lambda model: model.split()[-2:] != ["1.0", "1.0"])
    x, y = map(float, host("model").split()[-2:])
    assert 0.4 < x < 0.6 and 0.4 < y < 0.7, (x, y)
    assert host("model").split()[1] == "closed"
    page.click("#button")
    page.until("!document.getElementById('panel').hidden")
    assert host("model").split()[-2:] == ["1.0", "1.0"]
    box = page.run("const b = document.getElementById('button').getBoundingClientRect(); return [b.right, b.bottom]")
    assert box[0] > 1200 and box[1] > 720, box
    page.find("#actions button").click()
    page.until("document.getElementById('panel').hidden")
    host.until("told", lambda told: told == "told action new")
    for name, told in [("Open", "opened /Inbox/com.example.mail"), ("Save", "saved report.pdf 600")]:
        next(b for b in page.driver.find_elements(By.CSS_SELECTOR, ".files button") if b.text == name).click()
        host.until("opened" if name == "Open" else "saved", lambda answer: answer.startswith(told))
    page.until("!document.getElementById('toast').hidden")
    assert "report.pdf" in page.find("#toast-text").text


@test
def messages_are_followed_and_taken_back(host, page):
    host("app com.example.mail Mail")
    host("state com.example.mail locked")
    host("send com.example.mail draft.txt 5000")
    page.enter(host.link)
    page.until("document.querySelector('#messages .row')")
    page.until("document.querySelector('#messages').textContent.includes('unlocked')")
    host("state com.example.mail running")
    page.until("!document.querySelector('#messages .row')")
    # Both ways, with progress that only grows.
    for line, text in [("send com.example.mail big.bin 400000000", "To Mail"), ("receive com.example.mail huge.bin 400000000", "From Mail")]:
        host(line)
        parts = []
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            row = page.run("const r = document.querySelector('#messages .row'); return r && [r.textContent, r.querySelector('progress').value]")
            if row:
                # What is put in is set apart, for its direction.
                assert text in row[0].replace("\u2068", "").replace("\u2069", ""), row
                parts.append(row[1])
            elif parts:
                break
            time.sleep(0.05)
        assert parts == sorted(parts) and len(set(parts)) > 3, parts
    page.until("document.querySelector('#inbox').textContent.includes('huge.bin')")
    host("send com.example.mail never.bin 900000000")
    page.until("document.querySelector('#messages .row button')")
    page.click("#messages .row button")
    page.until("!document.querySelector('#messages .row')", 30)


@test
def names_are_text(host, page):
    hostile = "<img/src=x/onerror=document.title='owned'>"
    host(f"app com.example.evil {hostile}‮")
    host(f"section evil {hostile}")
    host(f"action evil {hostile}")
    host(f"base {hostile}")
    host("receive com.example.evil <script>document.title='owned'</script>.html 100".replace("</script>", "<script>"))
    page.enter(host.link)
    page.until("document.querySelector('#inbox .files')")
    page.click("#button")
    page.until("document.querySelectorAll('.app').length === 2")
    time.sleep(0.5)
    assert "owned" not in page.driver.title
    assert page.run("return document.querySelectorAll('img[src=x], #base script, #panel script').length") == 0
    assert any(hostile in text for text in texts(page, ".app bdi"))
    # A name that runs the other way ends where it ends.
    assert page.run("return getComputedStyle(document.querySelector('.app bdi')).unicodeBidi") == "isolate"
    assert page.complaints() == [], page.complaints()


@test
def a_seal_leaves_nothing(host, page):
    for line in [
        "app com.example.neighbour Neighbour", "section s Secretsection", "action a Secretaction",
        "receive com.example.neighbour Secretfile.txt 100", "base Secretbase",
    ]:
        host(line)
    page.enter(host.link)
    page.until("document.querySelector('#inbox .row')")
    page.click("#inbox .files button:last-child")
    page.until("!document.getElementById('toast').hidden")
    page.click("#button")
    page.until("document.querySelectorAll('.app').length === 2")
    page.keys("neigh")
    for state in ["search", "settings", "certificates", "places"]:
        if state == "settings":
            page.click("#base-settings")
        if state == "certificates":
            page.click("#button")
            page.until("!document.getElementById('panel').hidden")
            page.click("#panel-certificates")
            page.until("document.querySelector('#sheet code')")
        if state == "places":
            page.click("#move")
        time.sleep(0.3)
        begin = time.monotonic()
        host("lock")
        page.until("document.getElementById('base').hidden", 1)
        shown = page.run(EVERYTHING)
        assert time.monotonic() - begin < 1, time.monotonic() - begin
        for name in ["eighbour", "Secret", "Notes", "com.example", "neigh"]:
            assert name not in shown, f"{state}: {name} in {re.findall('.{80}' + name + '.{40}', shown)}"
        page.until("document.body.innerText.includes('Call the help desk.')")
        host("unlock")
        page.until("!document.getElementById('base').hidden")
        page.until("document.querySelector('#inbox .row')")
    # Also where the app ends at once.
    host.process.kill()
    begin = time.monotonic()
    page.until("document.getElementById('base').hidden", 1.5)
    shown = page.run(EVERYTHING)
    for name in ["eighbour", "Secret", "Notes", "com.example"]:
        assert name not in shown, name


@test
def whoever_is_at_the_port_later_hears_nothing(host, page):
    page.enter(host.link)
    place = urllib.parse.urlparse(page.driver.current_url)
    secret = page.run("return JSON.parse(sessionStorage.getItem('opendynamics-launcher')).secret")
    heard = []

    class Thief(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.path, str(self.headers), body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"proof": "0" * 64}).encode())

        def log_message(self, *arguments):
            pass

    host.end()
    # The kernel keeps the place for connections that have no end yet.
    limit = time.monotonic() + 90
    while True:
        try:
            server = http.server.ThreadingHTTPServer((place.hostname, place.port), Thief)
            break
        except OSError:
            assert time.monotonic() < limit
            time.sleep(0.1)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page.until("document.body.innerText.includes('This is not the launcher')", 15)
    assert heard and all(path == "/proof" for path, _, _ in heard), heard
    assert not any(secret in headers or secret.encode() in body for _, headers, body in heard)
    assert page.run("return sessionStorage.length") == 0
    server.shutdown()


@test
def another_site_in_the_browser_gets_nothing(host, page):
    page.enter(host.link)
    address = page.driver.current_url

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>evil</title><iframe id=f></iframe>")

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page.driver.switch_to.new_window("tab")
    page.driver.get(f"http://127.0.0.1:{server.server_port}/")
    # Neither a frame, nor a request with whatever it may have, nor the storage of the other port.
    got = page.driver.execute_async_script(
        """
        const [address, done] = [arguments[0], arguments[1]], got = [];
        const attempts = ["", "launcher.js", "session", "proof", "do"].map(async path => {
          for (const mode of ["cors", "no-cors"]) for (const method of ["GET", "POST"]) {
            try {
              const answer = await fetch(address + path, {mode, method, credentials: "include", body: method === "POST" ? "{}" : undefined});
              if (answer.type !== "opaque") got.push(path + answer.status);
            } catch { }
          }
        });
        const frame = document.getElementById("f");
        frame.src = address;
        Promise.all(attempts).then(() => setTimeout(() => {
          try { if (frame.contentDocument?.body.textContent) got.push("frame"); } catch { }
          got.push(...Object.keys(sessionStorage), ...Object.keys(localStorage), document.cookie);
          done(got.filter(Boolean));
        }, 500));
        """,
        address,
    )
    assert got == [], got
    # A window that it opens is not its own.
    opened = page.driver.execute_async_script(
        """
        const [address, done] = arguments, other = window.open(address);
        setTimeout(() => { try { done(other.document ? "read" : "closed " + other.closed); } catch (error) { done(error.name); } }, 800);
        """,
        address,
    )
    assert opened in ("SecurityError", "closed true"), opened
    server.shutdown()


@test
def a_link_is_good_once_and_a_session_stays_in_its_tab(host, page):
    page.enter(host.link)
    assert page.run("return location.href").endswith("/") and "#" not in page.run("return location.href")
    # Once more by the address alone, in another tab, and the same tab again.
    address = page.driver.current_url
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.driver.get(address)
    page.until("document.body.innerText.includes('Open the launcher by its link')")
    page.driver.close()
    page.driver.switch_to.window(first)
    page.driver.refresh()
    page.until("!document.getElementById('base').hidden")
    page.click("#leave")
    page.until("document.body.innerText.includes('You are logged out')")
    assert page.run("return sessionStorage.length") == 0
    page.driver.refresh()
    page.until("document.body.innerText.includes('Open the launcher by its link')")
    page.driver.get(address + "#" + "0" * 64)
    page.until("document.body.innerText.includes('The link was used')")
    page.enter(host.link)


@test
def what_comes_of_an_action_is_not_told_after_a_seal(host, page):
    host("app com.example.mail Mail")
    host("receive com.example.mail Secretlarge.bin 300000000")
    page.enter(host.link)
    page.until("document.querySelector('#inbox .files button:last-child')", 60)
    page.click("#inbox .files button:last-child")
    time.sleep(0.1)
    host("lock")
    page.until("document.getElementById('base').hidden", 1)
    time.sleep(3)
    assert "Secret" not in page.run(EVERYTHING)
    # Nothing of it lies there in plain.
    assert host("saved") == "saved", host("saved")


@test
def a_tab_more_makes_room(host, page):
    page.enter(host.link)
    tabs = [page.driver.current_window_handle]
    for _ in range(5):
        page.driver.switch_to.new_window("tab")
        tabs.append(page.driver.current_window_handle)
        page.enter(host.link)
    page.until("!document.getElementById('panel').hidden || document.getElementById('button').click()")
    for tab, text in [(tabs[0], "open elsewhere"), (tabs[1], "open elsewhere"), (tabs[2], "Notes")]:
        page.driver.switch_to.window(tab)
        page.until(f"document.documentElement.textContent.includes('{text}')")
    # And shows it again when it is loaded again.
    page.driver.switch_to.window(tabs[0])
    page.driver.refresh()
    page.until("!document.getElementById('base').hidden")


@test
def who_logs_out_is_out_also_when_the_app_stands_still(host, page):
    import os
    import signal

    page.enter(host.link)
    os.kill(host.process.pid, signal.SIGSTOP)
    try:
        page.click("#leave")
        page.until("document.getElementById('base').hidden", 0.5)
        assert page.run("return sessionStorage.length") == 0
    finally:
        os.kill(host.process.pid, signal.SIGCONT)


@test
def the_focus_stays_where_it_is(host, page):
    for line in ["app com.example.mail Mail", "app com.example.plain.chat Chat", "state com.example.plain.chat locked"]:
        host(line)
    for name in ["a", "b"]:
        host(f"send com.example.plain.chat {name}.txt 100")
    host("receive com.example.mail file.txt 100")
    page.enter(host.link)
    page.until("document.querySelectorAll('#messages .row').length === 2 && document.querySelector('#inbox .row')")
    page.run("document.querySelectorAll('#messages .row button')[1].focus()")
    page.run("document.querySelectorAll('#messages .row button')[0].click()")
    page.until("document.querySelectorAll('#messages .row').length === 1")
    assert page.focused() == "Cancel", page.focused()
    # A question stays one while something else changes.
    page.click("#inbox button.bad")
    host("app com.example.late Late")
    page.until("document.querySelectorAll('#apps li').length === 4")
    time.sleep(0.5)
    assert page.run("return [...document.querySelectorAll('#inbox .row .buttons')][0].innerText").split() == ["Remove", "for", "good", "Keep"]
    assert page.run("return document.activeElement.getAttribute('aria-label')") is None
    page.keys(Keys.ESCAPE)
    # What hides everything says so, and takes the focus.
    host("lock")
    page.until("document.activeElement.id === 'gate-title'")
    page.until("document.getElementById('status').textContent.includes('blocked')")
    host("unlock")
    page.until("document.activeElement.id === 'messages-title'")


@alone
def all_apps_are_followed_and_started(host, page):
    for line in ["app com.example.mail Mail", "app com.example.plain.chat Chat", "app com.example.docs Docs"]:
        host(line)
    page.enter(host.link)
    page.until("document.querySelectorAll('.app').length === 3")
    # The panel is the page: nothing closes it, and everything is reached by keyboard.
    page.keys(Keys.ESCAPE)
    assert page.focused() == "search", page.focused()
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert page.focused() == "com.example.docs", page.focused()
    page.keys(Keys.ENTER)
    page.until("document.querySelector('.app[aria-current]')?.name === 'com.example.docs'")
    assert not page.run("return document.getElementById('panel').hidden")
    host("state com.example.plain.chat locked")
    page.until("document.querySelector('.app').textContent.includes('Locked')")
    # Counts and progress, of both sides, and nothing of what is in them.
    host("between com.example.mail secret-plans.txt 1000 com.example.plain.chat")
    # Of one that does not move nothing has come to the other side.
    page.until("document.querySelector('.way')")
    sends = [text.translate({0x2068: None, 0x2069: None}) for text in texts(page, ".way")]
    assert sends == ["Sends 1 message, 1 waits"], sends
    host("between com.example.docs secret-film.mkv 600000000 com.example.mail")
    page.until("[...document.querySelectorAll('.way')].some(way => /[1-9][0-9]?%/.test(way.textContent))", 30)
    assert "secret" not in "".join(page.run(EVERYTHING))
    host("state com.example.plain.chat running")
    page.until("!document.querySelector('.way')", 60)
    host("end com.example.mail")
    page.until("document.querySelector('.app[name=\"com.example.mail\"]')?.textContent.includes('Cannot be started')")
    host("lock")
    page.until("document.getElementById('base').hidden")
    for name in ["Mail", "Chat", "Docs", "com.example"]:
        assert name not in "".join(page.run(EVERYTHING)), name
    host("unlock")
    page.until("document.querySelectorAll('.app').length === 3")
    tab_to(page, "panel-leave", back=True)
    page.keys(Keys.ENTER)
    page.until("document.getElementById('gate-title').textContent === 'You are logged out'")


@test
def page_and_model_agree(host, page):
    """A random walk of 500 steps of a person and of the app."""
    for line in [
        "app com.example.mail Mail", "app com.example.plain.chat Chat", "section news News", "section tasks Tasks",
        "action new New note", "receive com.example.mail a.txt 10",
    ]:
        host(line)
    page.enter(host.link)
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    clicks = [
        "#button", "#base-settings", "#panel-settings", "#panel-certificates", "#sheet-close", "#coach-done",
        "#sections button", "#actions button", ".settings button", "#move", "#places button", ".app", "#toast-close",
    ]
    lines = ["open", "close", "hide", "show", "coach on", "coach off", "lock", "unlock", "disable news", "section news News", "front", "at-once"]
    done = 0
    for step in range(500):
        kind = dice.random()
        if kind < 0.55:
            shown = page.run(
                "return arguments[0].filter(s => { const e = document.querySelector(s); return e && e.checkVisibility() && !e.closest('[inert]'); })",
                clicks,
            )
            if shown:
                what = dice.choice(shown)
                page.run("document.querySelector(arguments[0])?.click()", what)
                done += 1
        elif kind < 0.7:
            what = dice.choice([Keys.ESCAPE, Keys.TAB, Keys.ENTER, Keys.ARROW_DOWN, "a"])
            page.keys(what)
            done += 1
        else:
            what = dice.choice(lines)
            host(what)
        limit = time.monotonic() + 5
        while True:
            _, view, presented, sections, *_ = host("model").split(" ")
            state = page.run(
                """
                const $ = id => document.getElementById(id), shown = id => !$(id).hidden;
                if (!shown("base")) return ["closed", "nothing", null, true];
                return [
                  shown("panel") ? "open" : shown("dock") ? "closed" : "closedWithoutButton",
                  shown("coach") ? "coachMark" : shown("sheet") ? ($("sheet-title").textContent === "Settings" ? "settings" : "certificates") : "nothing",
                  [...$("sections").children].map(e => e.firstChild.name).join(","), false];
                """
            )
            sealed = state[3]
            if state[1] == presented and (sealed or state[0] == view and state[2] == sections):
                break
            assert time.monotonic() < limit, f"seed {seed}, step {step}, {what}: model {view} {presented} {sections}, page {state}"
            time.sleep(0.02)
        # Nobody is left without a place to go on from.
        assert page.run("return document.activeElement.closest('[hidden], [inert]')") is None, f"seed {seed}, step {step}: {what}"
        if step % 25 == 0:
            host("told")
    assert done > 200, done


def main():
    names = sys.argv[1:]
    faults = 0
    for run in TESTS:
        if names and run.__name__ not in names:
            continue
        host, page = Host(**getattr(run, "environment", {})), Page()
        begin = time.monotonic()
        try:
            run(host, page)
            print(f"passed {run.__name__} after {time.monotonic() - begin:.1f} s", flush=True)
        except Exception as error:
            faults += 1
            where = error.__traceback__
            while where.tb_next and "walk.py" in where.tb_next.tb_frame.f_code.co_filename:
                where = where.tb_next
            print(f"FAILED {run.__name__}, line {where.tb_lineno}: {type(error).__name__} {error}", flush=True)
        page.end()
        host.end()
    print(f"{len(names) or len(TESTS)} run, {faults} failed")
    sys.exit(faults > 0)


main()
