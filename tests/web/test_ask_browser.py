"""The page at `/ask` in a real browser: a headless Chromium, where one is installed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from drumbeat import Turn
from drumbeat.testing import ScriptedAgent

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium on this machine"),
    pytest.mark.skipif(not DRIVER, reason="there is no chromedriver on this machine"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # uvicorn knows no other loop
]

SECRET = "a-secret-of-the-doors"
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A browser that nobody has used before; ended afterwards."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*QUIET, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.implicitly_wait(10)
        yield driver
    finally:
        driver.quit()


async def test_a_person_asks_in_a_browser(host: Any, browser: Any) -> None:
    """A wrong password is refused, a question answered, and another site's form is not taken."""

    async def say(turn: Turn) -> str:
        return f"You ask: {turn.prompt} <script>document.title = 'run'</script>"

    agent = ScriptedAgent(default=say)

    def look(port: int) -> dict[str, str]:
        seen: dict[str, str] = {}

        def text(selector: str) -> str:
            return str(browser.find_element("css selector", selector).text)

        browser.get(f"http://anybody:wrong@127.0.0.1:{port}/ask")
        seen["wrong"] = browser.page_source
        browser.get(f"http://anybody:{SECRET}@127.0.0.1:{port}/ask")
        seen["styled"] = browser.find_element("css selector", "label").value_of_css_property(
            "font-weight"
        )
        browser.find_element("css selector", "#question").send_keys("Which one\nfailed?")
        browser.find_element("css selector", "button").click()
        seen["answer"] = text("#answer")
        seen["title"] = browser.title
        again = browser.find_element("css selector", "#question")
        seen["again"] = str(again.get_property("value"))
        browser.get(
            "data:text/html,<form method=post "
            f"action='http://127.0.0.1:{port}/ask'><input name=question value=Evil>"
            "<button>go</button></form>"
        )
        browser.find_element("css selector", "button").click()
        # The page that is left has a body too, until the other one is there.
        arrived = WebDriverWait(browser, 30, ignored_exceptions=[StaleElementReferenceException])
        arrived.until(lambda _: "/ask" in browser.current_url and text("body"))
        seen["foreign"] = text("body")
        return seen

    engine = host.engine(agent=agent)
    async with host.serving(engine) as served, engine:
        with anyio.fail_after(60):
            seen = await to_thread.run_sync(look, served.port)
    assert "form" not in seen["wrong"]
    assert seen["answer"] == ("You ask: Which one\nfailed? <script>document.title = 'run'</script>")
    assert seen["title"] == "Ask the agent"
    assert seen["again"] == "Which one\nfailed?"
    assert seen["styled"] == "600"
    assert "caller-foreign" in seen["foreign"]
    assert [turn.prompt for turn in agent.turns] == ["Which one\nfailed?"]
