# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window, for whoever looks at the page of a report: tests, the benchmark, pictures. The
browser fetches nothing and no driver is looked for in the network: both are named by their paths."""

import shutil
import time

from selenium import webdriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


class Page:
    """A browser with one page, and the questions that the tests ask of it."""

    def __init__(self, shots, width=1500, height=1000):
        self.shots = shots
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for word in (
            "headless=new",
            "no-sandbox",
            "disable-gpu",
            "disable-dev-shm-usage",
            "hide-scrollbars",
            f"window-size={width},{height}",
        ):
            options.add_argument(f"--{word}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.chrome.service.Service(DRIVER)
        self.driver = webdriver.Chrome(options=options, service=service)

    def js(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def until(self, text, *arguments):
        """Waits for a condition in the page."""
        end = time.monotonic() + 30
        while not (value := self.js(f"return {text}", *arguments)):
            assert time.monotonic() < end, f"never true: {text}"
            time.sleep(0.02)
        return value

    def open(self, path):
        self.driver.get(path.as_uri())
        self.until("document.documentElement.dataset.ready === 'yes'")
        self.js("document.documentElement.style.scrollBehavior = 'auto'")

    def show(self, view):
        self.js("document.getElementById(arguments[0]).scrollIntoView()", view)
        self.until("document.getElementById(arguments[0]).children.length > 1", view)
        self.settle()

    def settle(self):
        """Two frames, so that what was asked to be drawn is drawn."""
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def inked(self, view):
        """How many colours a canvas of the view has."""
        return self.js(
            """const canvas = document.querySelector(`#${arguments[0]} canvas`);
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const seen = new Set();
            for (let i = 0; i < data.length; i += 4 * 37) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
            return seen.size""",
            view,
        )

    def shot(self, name):
        self.shots.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(self.shots / f"{name}.png"))

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def click(self, found, x, y):
        """Clicks at a distance from the middle of an element."""
        webdriver.ActionChains(self.driver).move_to_element_with_offset(found, x, y).click().perform()

    def press(self, selector, *keys):
        found = self.driver.find_element("css selector", selector)
        self.js("arguments[0].focus()", found)
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)
        self.settle()
