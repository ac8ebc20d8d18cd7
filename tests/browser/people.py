"""What a person's hands do: press, release and type, without a wait for the page in between."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from typing_extensions import override

from tests.browser.conftest import Browser

PRESS_SECONDS = 0.09  # between pressing a mouse button and releasing it
CLICKS_MAX = 6  # of any task of a user, from the overview on
KEY_SECONDS = 0.06  # between two keys of a person who types at 200 characters a minute or more


class Person:
    """One pair of hands. Elements are found before anything is typed, as the eye does: the page may
    not swap them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def click(self, selector: str) -> None:
        """Moves to an element, which may be of a live part, presses and releases."""
        hands = self._hands().move_to_element(self._browser.one(selector))
        hands.click_and_hold().pause(PRESS_SECONDS).release().perform()

    def type(self, field: str, text: str) -> None:
        self._hands().move_to_element(self._browser.one(field)).click().send_keys(text).perform()

    def type_and_click(self, field: str, text: str, button: str) -> None:
        """Clicks the field, types, moves to the button, presses and releases: one movement, no
        pause for the page."""
        hands, target = self._hands(), self._browser.one(button)
        hands.move_to_element(self._browser.one(field)).click().send_keys(text)
        hands.move_to_element(target).click_and_hold().pause(PRESS_SECONDS).release().perform()

    def type_and_enter(self, field: str, text: str) -> None:
        self._hands().move_to_element(self._browser.one(field)).click().send_keys(text).send_keys(
            Keys.ENTER
        ).perform()

    def type_ahead(self, select: str, text: str) -> None:
        """Types into a select that has the focus and is closed."""
        self._browser.script(f"document.querySelector({select!r}).focus()")
        hands = self._hands()
        for character in text:
            hands.send_keys(character).pause(KEY_SECONDS)
        hands.perform()

    def keys(self, *keys: str) -> None:
        hands = self._hands()
        for key in keys:
            hands.send_keys(key)
        hands.perform()

    def _hands(self) -> ActionChains:
        return ActionChains(self._browser.driver, duration=40)


class ClickCounter(Person):
    """Counts every click, those into a field among them."""

    def __init__(self, browser: Browser) -> None:
        super().__init__(browser)
        self.clicks = 0

    @override
    def click(self, selector: str) -> None:
        self.clicks += 1
        super().click(selector)

    @override
    def type(self, field: str, text: str) -> None:
        self.clicks += 1
        super().type(field, text)


@contextlib.contextmanager
def slow_processor(browser: Browser, rate: int) -> Iterator[None]:
    """The page's processor is `rate` times as slow."""
    browser.driver.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": rate})
    try:
        yield
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": 1})
