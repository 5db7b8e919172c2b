"""One browser for all tests of the page: to start one takes longer than many of them."""

from collections.abc import Iterator

import pytest
from selenium import webdriver
from tests.studio.chromium import chromium


@pytest.fixture(scope="session")
def whole_browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def driver(whole_browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """Return the browser with one empty tab, an empty log and nothing stored."""
    first, *others = whole_browser.window_handles
    for each in others:
        whole_browser.switch_to.window(each)
        whole_browser.close()
    whole_browser.switch_to.window(first)
    whole_browser.delete_all_cookies()
    whole_browser.get_log("browser")  # type: ignore[no-untyped-call]
    yield whole_browser
    whole_browser.switch_to.window(first)
    whole_browser.get("about:blank")  # so that no page asks for a studio that has ended
