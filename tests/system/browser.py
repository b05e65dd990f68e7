"""A headless Chromium for tests of pages: what it shows, what its console says, and what axe finds.

SLUICE_SCREENSHOTS=FOLDER writes the tests' screenshots there; those of docs/ were made so. SLUICE_AXE names axe.min.js where
build/python-env does not have it.
"""
import base64
import os
import pathlib
import re
import sys

from sluice_testing import PATIENCE, ROOT, SluiceTest, wait_until

# Programs refuse variables that they do not know.
SCREENSHOTS = os.environ.pop("SLUICE_SCREENSHOTS", "")
AXE = os.environ.pop("SLUICE_AXE", "")
CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
try:
    from selenium import webdriver
except ImportError:
    webdriver = None
WIDTH, HEIGHT = 1200, 900
PHONE = 390


def axe_script():
    package = "lib/python3*/site-packages/axe_selenium_python/node_modules/axe-core/axe.min.js"
    found = [pathlib.Path(AXE)] if AXE else sorted((ROOT / "build" / "python-env").glob(package))
    return found[0].read_text() if found and found[0].exists() else None


def skip_without_browser(*classes):
    """Lets these test classes be skipped, and says so, where a browser or axe is missing."""
    if webdriver is not None and os.access(CHROMIUM, os.X_OK) and os.access(DRIVER, os.X_OK) and axe_script():
        return
    why = ("needs the Debian packages chromium, chromium-driver and python3-selenium, and axe (python/requirements-browser.txt in "
           "build/python-env)")
    print("SKIPPED, NOT PASSED: a page in a browser " + why, file=sys.stderr)
    for one in classes:
        one.__unittest_skip__ = True
        one.__unittest_skip_why__ = why


class BrowserTest(SluiceTest):
    def setUp(self):
        super().setUp()
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        # A sandbox needs rights that a container may lack, and the pages are ours.
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                     "--hide-scrollbars", "--user-data-dir=%s" % (self.tmp / "browser"), "--window-size=%d,%d" % (WIDTH, HEIGHT)):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=webdriver.chrome.service.Service(DRIVER), options=options)
        self.addCleanup(self.quit)
        self.driver.set_page_load_timeout(PATIENCE)
        self.driver.set_script_timeout(PATIENCE)

    def quit(self):
        if self.driver is not None:
            self.driver.quit()
        self.driver = None

    def tearDown(self):
        self.quit()  # before its folder goes
        super().tearDown()

    def text(self, selector):
        return self.driver.execute_script("const e = document.querySelector(arguments[0]); return e ? e.innerText : ''", selector)

    def await_text(self, selector, pattern):
        wait_until(lambda: re.search(pattern, self.text(selector)), lambda: "%s in %s: %s" % (pattern, selector, self.text(selector)))

    def assert_console_is_empty(self):
        self.assertEqual([entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")], [])

    def assert_accessible(self, where):
        script = axe_script()
        self.assertIsNotNone(script, "axe.min.js is missing: pip install -r python/requirements-browser.txt")
        self.driver.execute_script(script)
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then("
            "r => done(r.violations.map(v => [v.id, v.help, v.nodes.map(n => n.html.slice(0, 200) + ' ' + n.failureSummary)])))")
        self.assertEqual(found, [], "%s: %s" % (where, [problem[0] for problem in found]))

    def scheme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def width(self, width):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width == PHONE})
        wait_until(lambda: self.driver.execute_script("return innerWidth") == width, "the window has its width")
        self.assertLessEqual(self.driver.execute_script("return document.documentElement.scrollWidth"), width, "scrolls sideways")

    def screenshot(self, name, height=HEIGHT):
        """Writes docs/NAME.png, if screenshots are wanted."""
        if SCREENSHOTS:
            self.driver.execute_script("scrollTo(0, 0)")
            self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
            clip = {"x": 0, "y": 0, "width": self.driver.execute_script("return innerWidth"), "height": height, "scale": 1}
            picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip})
            (pathlib.Path(SCREENSHOTS) / (name + ".png")).write_bytes(base64.b64decode(picture["data"]))
