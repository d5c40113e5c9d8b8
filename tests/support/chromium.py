"""A real browser without a screen, with an empty profile and nothing of its own on the network."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
)
PATIENCE_S = 120
HEIGHT = 1000


class Chromium:
    """One browser; a context manager, gone with all its processes at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "chromium"
        profile = folder / "profile"
        profile.mkdir()
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        before = set(psutil.Process().children(recursive=True))
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        # The browser's own first page is none of our doing.
        self.driver.get("about:blank")
        self.driver.get_log("performance")
        self._processes = set(psutil.Process().children(recursive=True)) - before

    def __enter__(self) -> Chromium:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes |= {each for each in psutil.Process().children(recursive=True) if _is_browser(each)}
        self.driver.quit()
        _, alive = psutil.wait_procs(self._processes, timeout=20)
        for each in alive:
            each.kill()
        psutil.wait_procs(alive, timeout=20)

    def size(self, width: int, height: int = HEIGHT) -> None:
        """How large the window is, whatever window managers would allow."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``, as the system would say it; and nothing that moves by itself."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.cdp("Emulation.setEmulatedMedia", features=features)

    def open(self, page: Path) -> None:
        """Load a page of ours and wait until its pictures are drawn."""
        self.driver.get(page.as_uri())
        self.until("return document.documentElement.dataset.ready")
        assert self.js("return document.documentElement.dataset.ready") == "yes", self.console()

    def visit(self, address: str) -> None:
        """Load a page of a site, and wait until its scripts have run: the driver may return while it is still read."""
        self.driver.get(address)
        self.until("return document.readyState === 'complete'")

    def until(self, script: str) -> Any:
        """Wait until a script gives something."""
        return WebDriverWait(self.driver, PATIENCE_S).until(lambda _: self.js(script), script)

    def js(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command: str, **arguments: object) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def console(self) -> list[str]:
        """Everything worse than a remark since the last call."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call, without the page's own file."""
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                parameters = message["params"]
                asked.append(parameters.get("url") or parameters["request"]["url"])
        asked += self.js("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        return [address for address in asked if not address.startswith(("file:", "data:", "blob:"))]

    def tree(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader comes by."""
        nodes = self.cdp("Accessibility.getFullAXTree")["nodes"]
        return [
            (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def screenshot(self, name: str) -> bytes:
        """The whole page as PNG, kept where BUILDDOCTOR_SCREENSHOTS says."""
        size = self.js("return [document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 6000), "scale": 1}
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        content = base64.b64decode(shot["data"])
        folder = Path(os.environ.get("BUILDDOCTOR_SCREENSHOTS") or self.folder)
        (folder / f"{name}.png").write_bytes(content)
        return content


def _is_browser(process: psutil.Process) -> bool:
    try:
        return "chrom" in process.name()
    except psutil.Error:
        return False
