"""The page in a real browser: what it says, what answers to mouse and keys, and that it keeps to itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from browser.conftest import BUILDS
from builddoctor.cli.trace_export import page_of
from support.chromium import Chromium
from support.made_traces import Made, unit_of, write_trace

pytestmark = pytest.mark.needs_chromium

SAYS = {
    "good": ("✓ Built", "built in 3:48", "Compilers held at most 5.2 of 8.0 GiB"),
    "oom": ("✗ Failed: too big", "cicc sm_100 of gemm/cutlass_grouped_gemm.cu, killed by the kernel", "4.0 GiB"),
    "runaway": ("✗ Failed: runaway", "cudafe++ of activation/gelu.cu", "Another minor version of nvcc"),
    "torn": ("… Cut off", "the trace stops short", "Run the build again"),
}

CONTRAST = """
const light = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map((each) => {
    const share = each / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
  return "rgb(255, 255, 255)";
};
const found = [];
for (const element of document.querySelectorAll("body *:not(script):not(noscript)")) {
  if (element.closest("svg") || !element.checkVisibility({ opacityProperty: true })) continue;
  if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
  const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${element.tagName} ${element.textContent.slice(0, 40)}`);
}
return found;
"""
"""Texts that are too faint for what is behind them (WCAG 2, level AA)."""


@pytest.mark.parametrize("build", BUILDS)
def test_page_says_what_happened_and_keeps_to_itself(build: str, browser: Chromium, pages: dict[str, Path]) -> None:
    """Verdict on top, pictures drawn, tables filled; nothing on the console, and no request to anywhere."""
    browser.open(pages[build])
    label, headline, more = SAYS[build]
    verdict = browser.find(".verdict").text
    assert label in verdict
    assert headline in browser.find("h1").text
    assert more in verdict
    assert browser.all("#plot .barlayer .point")
    assert browser.all("#units tbody tr")
    assert browser.console() == []
    assert browser.requests() == []
    assert browser.screenshot(build).startswith(b"\x89PNG")


@pytest.mark.parametrize("build", BUILDS)
def test_page_fits_a_phone(build: str, browser: Chromium, pages: dict[str, Path]) -> None:
    """At 360 pixels nothing is wider than the window, in the dark as well; pictures are redrawn to it."""
    browser.size(360, 740)
    browser.prefer("dark")
    browser.open(pages[build])
    width = browser.js("return document.documentElement.clientWidth")
    assert width <= 360
    assert browser.js("return document.documentElement.scrollWidth") == width
    assert browser.js("return document.querySelector('#plot svg.main-svg').getBoundingClientRect().right") <= width
    assert browser.js(CONTRAST) == []
    browser.screenshot(f"{build}-phone-dark")
    assert browser.console() == []


def test_screen_reader_finds_its_way(browser: Chromium, pages: dict[str, Path]) -> None:
    """Landmarks, headings in order, a picture with a name and a description, tables with headers, controls named."""
    browser.open(pages["oom"])
    tree = browser.tree()
    roles = [role for role, _ in tree]
    assert {"banner", "main", "contentinfo", "heading", "table", "columnheader", "rowheader", "slider"} <= set(roles)
    headings = browser.js(
        "return [...document.querySelectorAll('h1, h2, h3')].map((each) => each.tagName + each.textContent)"
    )
    assert headings[1:] == [
        "H2Who held the memory, and when",
        "H3At 4:37",
        "H2What happened when",
        "H2Units",
        "H2What if",
        "H2This build",
    ]
    named = {"button", "slider", "searchbox", "img", "image", "region", "group", "table"}
    pictures = [name for role, name in tree if role in ("img", "image")]
    assert any(name.startswith("Memory by tool, jobs, and lanes") for name in pictures)
    assert [role for role, name in tree if role in named - {"group"} and not name] == []
    described = browser.find("figure").get_attribute("aria-describedby")
    summary = browser.find(f"#{described}").text
    assert "compilers held most after 4:37: 3.8 GiB (cicc 3.8 GiB)" in summary
    assert "cutlass_grouped_gemm.cu" in summary


def test_hover_names_the_phase(browser: Chromium, pages: dict[str, Path]) -> None:
    """Over a lane: unit, phase, architecture, peak, estimate, what it waited for. Beside it: who holds memory then."""
    browser.open(pages["oom"])
    bars = browser.all("#plot .barlayer .point path")
    largest = max((bar for bar in bars), key=lambda bar: bar.rect["width"])
    browser.js("arguments[0].scrollIntoView({block: 'center'})", largest)
    before = browser.find("#now-title").text
    ActionChains(browser.driver).move_to_element(largest).perform()
    text = browser.until(
        "const box = document.querySelector('#plot .hoverlayer .hovertext'); return box && box.textContent"
    )
    assert text.startswith("gemm/cutlass_grouped_gemm.cucicc sm_100peak 3.8 GiB, expected 4.1 GiB, reserved 4.9 GiB")
    assert "waited 7.5 s: needs 4.9 GiB, 1.4 GiB free (memory)" in text
    assert text.endswith("killed by the kernel for memory")
    assert browser.find("#now-title").text != before
    assert "gemm/cutlass_grouped_gemm.cu" in browser.find("#now-list").text
    assert browser.js("return getComputedStyle(document.getElementById('cursor')).display") == "block"


def test_hover_on_a_kill_says_who_did_it(browser: Chromium, pages: dict[str, Path]) -> None:
    """The cross in the picture of memory tells what was killed, by whom, at what size."""
    browser.open(pages["good"])
    place = browser.js(
        """
        const plot = document.getElementById("plot");
        const at = plot.data.findIndex((trace) => trace.name === "kills");
        const kill = plot.data[at];
        plot.scrollIntoView();
        const box = plot.getBoundingClientRect();
        const { xaxis, yaxis } = plot._fullLayout;
        return [box.left + xaxis._offset + xaxis.d2p(kill.x[0]), box.top + yaxis._offset + yaxis.d2p(kill.y[0])];
        """
    )
    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(round(place[0]), round(place[1]))
    actions.perform()
    text = browser.until(
        "const box = document.querySelector('#plot .hoverlayer .hovertext'); return box && box.textContent"
    )
    assert "the kernel killed cicc sm_100 of hadamard/hadamard_cast_fusion.cu at 2.4 GiB" in text


def test_units_sort_and_filter(browser: Chromium, pages: dict[str, Path]) -> None:
    """Headers are buttons that say their order; the filter leaves what fits, and a live region says how many."""
    browser.open(pages["good"])

    def names() -> list[str]:
        return [row.text.split("\n")[0] for row in browser.all("#units tbody tr") if row.is_displayed()]

    assert names()[0] == "gemm/cutlass_grouped_gemm.cu"
    heads = {head.text.split(" ")[0]: head for head in browser.all("#unit-table thead th")}
    assert heads["Peak"].get_attribute("aria-sort") == "descending"
    heads["Peak"].find_element("css selector", "button").click()
    assert heads["Peak"].get_attribute("aria-sort") == "ascending"
    assert names()[-1] == "gemm/cutlass_grouped_gemm.cu"
    heads["Unit"].find_element("css selector", "button").send_keys(Keys.ENTER)
    assert heads["Unit"].get_attribute("aria-sort") == "ascending"
    assert heads["Peak"].get_attribute("aria-sort") is None
    assert names() == sorted(names())
    browser.find("#unit-filter").send_keys("activation cicc")
    assert names() == ["activation/gelu.cu", "activation/relu.cu", "activation/swiglu.cu"]
    assert browser.find("#unit-count").text.startswith("3 of 17 units")
    assert browser.find("#unit-count").get_attribute("role") == "status"


def test_a_unit_is_shown_in_the_picture(browser: Chromium, pages: dict[str, Path]) -> None:
    """Its runs stand out of the others, the moment is that of its peak, and all comes back."""
    browser.open(pages["good"])
    button = browser.find("#units button[aria-label='Show activation/gelu.cu in the picture']")
    browser.js("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert browser.find("#chosen").text.startswith("Shown: activation/gelu.cu")
    assert "activation/gelu.cu" in browser.find("#now-list").text
    faint = (
        "return document.getElementById('plot').data.filter((t) => t.type === 'bar').flatMap((t) => t.marker.opacity)"
    )
    assert sorted(set(browser.js(faint))) == [0.18, 1]
    assert browser.js("return document.activeElement.id") == "memory-title"
    browser.find("#unchoose").click()
    assert set(browser.js(faint)) == {1}


def test_pictures_answer_to_keys_and_buttons(browser: Chromium, pages: dict[str, Path]) -> None:
    """The slider tells each moment in words; buttons zoom, move and hide tools; focus is seen."""
    browser.open(pages["good"])
    slider = browser.find("#moment")
    told = slider.get_attribute("aria-valuetext")
    assert told is not None
    assert told.startswith("1:36: 5.2 GiB held, most of it cicc sm_100 of activation/gelu.cu; 2 running")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert browser.js("return moment.index - data.peak") == 1
    slider.send_keys(Keys.PAGE_UP)
    assert slider.get_attribute("aria-valuetext") != told
    assert browser.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.find("#to-peak").click()
    assert slider.get_attribute("aria-valuetext") == told
    span = "const r = document.getElementById('plot')._fullLayout.xaxis; return r.r2l(r.range[1]) - r.r2l(r.range[0])"
    whole = browser.js(span)
    browser.find("#zoom-in").send_keys(Keys.ENTER)
    assert browser.js(span) == pytest.approx(whole / 2, rel=0.01)
    browser.find("#later").click()
    browser.find("#earlier").click()
    browser.find("#whole").click()
    assert browser.js(span) == pytest.approx(whole, rel=0.01)
    tool = browser.find("button[data-tool=cicc]")
    tool.click()
    assert tool.get_attribute("aria-pressed") == "false"
    hidden = "return document.getElementById('plot').data.filter((t) => t.name === 'cicc').map((t) => t.visible)"
    assert browser.js(hidden) == [False, False]


def test_light_and_dark(browser: Chromium, pages: dict[str, Path]) -> None:
    """As the system says, until the button says otherwise; text is readable in both."""
    browser.open(pages["oom"])
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = browser.js(paper)
    assert browser.js(CONTRAST) == []
    browser.prefer("dark")
    dark = browser.js(paper)
    assert dark != light
    assert browser.js(CONTRAST) == []
    button = browser.find("#theme")
    button.click()
    assert (button.text, browser.js(paper)) == ("Theme: light", light)
    browser.prefer("light")
    button.click()
    assert (button.text, browser.js(paper)) == ("Theme: dark", dark)
    browser.screenshot("oom-dark")
    assert browser.console() == []


def test_page_without_script_is_complete(browser: Chromium, pages: dict[str, Path]) -> None:
    """Verdict, fixes, events, all units and what-if are plain HTML; no dead button stands around."""
    browser.cdp("Emulation.setScriptExecutionDisabled", value=True)
    browser.driver.get(pages["oom"].as_uri())
    assert "cutlass_grouped_gemm.cu" in browser.find("h1").text
    assert "need JavaScript" in browser.find("#memory").text
    assert "fused_attn/fused_attn_fp8.cu" in browser.find("#units").text
    assert "would fail" in browser.find("#what-if").text
    assert [
        each.text
        for each in browser.all("#memory button, #units button")
        if each.is_displayed() and not each.find_elements("xpath", "ancestor::thead")
    ] == []


HOSTILE = (
    "a/</script><script>window.hacked=1</script>.cu",
    'b/"><img src=x onerror="window.hacked=2">.cu',
    "c/<a href='javascript:window.hacked=3'>click</a>.cu",
    "d/%{x}${1+1}<b>bold</b>&lt;i&gt;.cu",
    "e/\u2028\u2029\x1b[31mred\u202egpj.cu",
    "</title><!--<script>.cu",
)


def test_hostile_names_stay_names(browser: Chromium, tmp_path: Path) -> None:
    """Names that are HTML, script, templates of the library or control sequences are shown, and do nothing."""
    units = [unit_of(name, device_mib=500 + 100 * at, wall_s=8.0) for at, name in enumerate(HOSTILE)]
    build = Made(units=units, title=HOSTILE[0] + HOSTILE[1], stop_at_s=25.0)
    page = tmp_path / "page.html"
    page.write_text(page_of(write_trace(tmp_path / "trace.jsonl", build)), encoding="utf-8")
    browser.open(page)
    shown = [row.text.split("\n")[0] for row in browser.all("#units tbody tr")]
    for name in HOSTILE[:4]:
        assert name in shown
    browser.js("document.querySelectorAll('#plot .barlayer .point path')[0].scrollIntoView({block: 'center'})")
    said = set()
    for bar in browser.all("#plot .barlayer .point path"):
        if bar.rect["width"] < 8:
            continue
        ActionChains(browser.driver).move_to_element(bar).perform()
        said.add(
            browser.js(
                "const box = document.querySelector('#plot .hoverlayer .hovertext'); return box && box.textContent"
            )
        )
    assert any(text and HOSTILE[1] in text for text in said), said
    assert browser.js("return window.hacked") is None
    assert browser.js("return document.querySelectorAll('#plot a, img, script[src]').length") == 0
    assert "\x1b" not in browser.js("return document.body.innerText")
    assert browser.console() == []
    assert browser.requests() == []
