"""`module:attribute` on the command line: what may stand there, and what is refused."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

click = pytest.importorskip("click")
pytest.importorskip("rich")

from drumbeat.cli.loading import load_agent, load_deliverer, load_mail  # noqa: E402  needs the extra

HOST = """\
class Fine:
    async def take_turn(self, turn): ...
    async def deliver(self, intent): ...

class Needy(Fine):
    def __init__(self, key): ...

class Plain:
    def take_turn(self, turn): ...
    def deliver(self, intent): ...
    def poll(self, address, after): ...

plain_mail = {"imap": Plain()}

class Callable(Fine):
    def __call__(self): raise RuntimeError("an instance is not called")

class rooms:
    inner = Fine()

def make():
    return Fine()

def broken():
    raise RuntimeError("no \\x1b[31m key")

class Source:
    async def poll(self, address, after): ...

mail = {"imap": Source()}
classes = {"imap": Source}

def systems():
    return mail

fine = Fine()
callable_instance = Callable()
number = 7
"""


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a host's modules is the current one; nothing stays imported."""
    (tmp_path / "cli_host.py").write_text(HOST)
    (tmp_path / "cli_bad_host.py").write_text("import no_such_package_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("cli_host", "cli_bad_host"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("attribute", ["fine", "Fine", "make", "rooms.inner", "callable_instance"])
def test_an_instance_a_class_and_a_factory_give_an_agent(attribute: str) -> None:
    """All three forms end in something that takes turns; an instance is never called."""
    assert callable(load_agent(f"cli_host:{attribute}").take_turn)
    assert callable(load_deliverer(f"cli_host:{attribute}").deliver)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("cli_host", "not of the form module:attribute"),
        ("cli_host:", "not of the form module:attribute"),
        (":fine", "not of the form module:attribute"),
        ("no_such_host:fine", "cannot be imported: ModuleNotFoundError"),
        ("cli_bad_host:fine", "cli_bad_host.py:1"),
        ("cli_host:nothing", "no attribute 'nothing'"),
        ("cli_host:number", "gives int, which has no method"),
        ("cli_host:Needy", "could not make a"),
        ("cli_host:Plain", "of Plain must be async"),
        ("cli_host:broken", "no \\x1b[31m key"),
    ],
)
def test_what_is_no_agent_is_refused_with_the_reason(reference: str, said: str) -> None:
    """The message says what was looked for and what was found instead, for both options."""
    with pytest.raises(click.BadParameter) as agent:
        load_agent(reference)
    with pytest.raises(click.BadParameter) as deliverer:
        load_deliverer(reference)
    assert said in agent.value.message
    assert said in deliverer.value.message
    assert agent.value.param_hint == "--agent"
    assert deliverer.value.param_hint == "--deliverer"


@pytest.mark.parametrize("attribute", ["mail", "systems"])
def test_a_mapping_and_what_returns_one_give_mail_systems(attribute: str) -> None:
    assert list(load_mail(f"cli_host:{attribute}")) == ["imap"]


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("number", "gives int and no mapping"),
        ("make", "gives Fine and no mapping"),
        ("classes", "no mail source for 'imap'"),
        ("broken", "could not make the mail systems"),
        ("plain_mail", "`poll` of Plain must be async"),
    ],
)
def test_what_is_no_mapping_of_mail_sources_is_refused(attribute: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said) as caught:
        load_mail(f"cli_host:{attribute}")
    assert caught.value.param_hint == "--mail"
