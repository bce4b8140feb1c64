"""A page of an app, and a browser that shows it: what the tests in this folder stand on."""

import subprocess
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

HOST = ".build/debug/PageHost"


class Host:
    """An app with a page, and apps beside it, as a process that does a thing for each line."""

    def __init__(self, **environment):
        import os

        self.process = subprocess.Popen(
            [HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment
        )
        self.link = self.process.stdout.readline().split(maxsplit=1)[1].strip()

    def __call__(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer and not answer.startswith("error"), f"{line}: {answer}"
        return answer

    def until(self, line, isMeant, seconds=5):
        """Asks until the answer is as meant, and returns it."""
        limit = time.monotonic() + seconds
        while not isMeant(answer := self(line)):
            assert time.monotonic() < limit, f"{line}: {answer}"
            time.sleep(0.02)
        return answer

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(60)


class Page:
    """A tab of a headless Chromium."""

    def __init__(self, width=1280, height=800):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in [
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--disable-background-networking", "--force-device-scale-factor=1",
        ]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.size(width, height)

    def size(self, width, height):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def look(self, dark=False, forced=False, still=False):
        """The colours and movements that a person has chosen."""
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {
                "features": [
                    {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                    {"name": "forced-colors", "value": "active" if forced else "none"},
                    {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
                ]
            },
        )

    def enter(self, link):
        self.driver.get("file://" + link)
        self.until("!document.getElementById('base').hidden")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, condition, seconds=10):
        limit = time.monotonic() + seconds
        while not self.run(f"return !!({condition})"):
            assert time.monotonic() < limit, f"it did not come to: {condition}\n{self.text()}"
            time.sleep(0.02)

    def text(self):
        return self.run("return document.body.innerText")

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector):
        self.find(selector).click()

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_back(self):
        ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()

    def focused(self):
        return self.run("const e = document.activeElement; return e.id || e.name || e.textContent.trim() || e.tagName")

    def picture(self, path):
        self.driver.save_screenshot(path)

    def complaints(self):
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def end(self):
        self.driver.quit()
