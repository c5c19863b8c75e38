"""Job files: what each key becomes, every refusal at its place, and the documented vocabulary."""

import re
from datetime import timedelta
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.automation_file import validate_automation_content
from drumbeat.core.job_file import validate_job_content
from drumbeat.core.model import (
    Automation,
    Cron,
    InboxTrigger,
    ScheduleTrigger,
    Step,
    WebhookTrigger,
)
from drumbeat.core.repo_address import repo_problem
from drumbeat.core.rotation import steps_fingerprint
from drumbeat.core.schedule import parse_schedule
from drumbeat.core.vocabulary import (
    AGENT_CONFIG_KEYS,
    AUTH,
    AUTH_SCHEMES,
    AUTOMATION,
    FILE,
    INJECT,
    JOB,
    JOB_GUESSED,
    JOB_INSTEAD,
    JOB_KEYS,
    RETIRED,
    STEP,
    TRIGGER,
    json_schema,
)
from drumbeat.errors import AutomationError, Problem, ScheduleError

DOCUMENT = Path(__file__).parents[2] / "docs" / "job-file.md"
PATH = PurePath("jobs/morning-brief.md")


def job(*lines: str, body: str = "Do it.\n", **options: Any) -> Automation:
    return validate_job_content("\n".join(["---", *lines, "---", body]), path=PATH, **options)


def problems(*lines: str, body: str = "Do it.\n", **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(AutomationError) as caught:
        job(*lines, body=body, **options)
    return caught.value.problems


def located(*lines: str, **options: Any) -> list[tuple[int | None, int | None, str]]:
    return [(each.line, each.column, each.code) for each in problems(*lines, **options)]


# ---- what a job becomes


def test_the_smallest_job_has_a_prompt_and_no_trigger() -> None:
    steps = (Step(id="prompt", prompt="Say hello.\n"),)
    assert job(body="Say hello.\n") == Automation(
        slug="morning-brief",
        name="morning-brief",
        kind="job",
        steps=steps,
        triggers=(),
        enabled=True,
        notify="always",
        conversation="fresh",
        fingerprint=steps_fingerprint(steps),
        path=PATH,
    )


@pytest.mark.parametrize("front_matter", ["", "\n", "# nothing yet\n", "{}\n"])
def test_front_matter_may_be_empty(front_matter: str) -> None:
    assert validate_job_content(f"---\n{front_matter}---\nx").triggers == ()


def test_without_a_path_a_job_has_no_name() -> None:
    read = validate_job_content("---\n---\nx")
    assert (read.slug, read.name, read.path) == ("", "", None)


@pytest.mark.parametrize(
    "body", ["x", "\n\n  x  \n\n", "a\r\nb\r\n", "1. one\n2. two\n", "---\nx\n---\n", "\tü\ufeff\n"]
)
def test_the_prompt_is_what_stands_below_byte_for_byte(body: str) -> None:
    (step,) = validate_job_content(f"---\ncron: 0 7 * * *\n---\n{body}".encode()).steps
    assert step.prompt == body


def test_every_key_has_its_place() -> None:
    read = job(
        'inbox: "gmail:crm@acme.com"',
        "allowFrom: you@acme.com, @acme.com",
        'cron: "0  7 * * MON-FRI"',
        "webhook: deploy-check",
        "auth: hmac:X-Signature",
        'filter: "a.b==c && d!=e"',
        "method: post",
        "model: sonnet",
        "timeoutSeconds: 1800",
        "repo: https://github.com/acme/product.git",
        "disabled: Yes",
    )
    assert read.triggers == (
        InboxTrigger(
            system="gmail", address="crm@acme.com", allow_from=("you@acme.com", "@acme.com")
        ),
        ScheduleTrigger(expression="0  7 * * MON-FRI", schedule=Cron(expression="0 7 * * MON-FRI")),
        WebhookTrigger(
            route="deploy-check", auth="hmac:X-Signature", filter="a.b==c && d!=e", method="post"
        ),
    )
    assert read.agent_config == {"provider": {"config": {"default_model": "sonnet"}}}
    assert read.timeout == timedelta(minutes=30)
    assert read.repo == "https://github.com/acme/product.git"
    assert not read.enabled


def test_a_webhook_has_its_defaults() -> None:
    (trigger,) = job("webhook: x").triggers
    assert trigger == WebhookTrigger(route="x", auth="bearer", filter=None, method="post")


@pytest.mark.parametrize(
    "value, entries",
    [
        ("a@b.c", ("a@b.c",)),
        (" a@b.c ,, '@b.c'", ("a@b.c", "'@b.c'")),
        ('"@b.c"', ("@b.c",)),
        ('[a@b.c, "@b.c"]', ("a@b.c", "@b.c")),
        ("\n  - a@b.c\n  - '@b.c'", ("a@b.c", "@b.c")),
        ("[not an address, 'a@b, c@d']", ("not an address", "a@b, c@d")),
    ],
)
def test_allow_from_is_a_text_with_commas_or_a_list(value: str, entries: tuple[str, ...]) -> None:
    (trigger,) = job("inbox: imap:a@b.c", f"allowFrom: {value}").triggers
    assert isinstance(trigger, InboxTrigger)
    assert trigger.allow_from == entries


@pytest.mark.parametrize("text, enabled", [("false", True), ("off", True), ("true", False)])
def test_disabled_is_the_opposite_of_enabled(text: str, enabled: bool) -> None:
    assert job(f"disabled: {text}").enabled is enabled


@pytest.mark.parametrize("seconds", ["1", "60", "86400"])
def test_a_time_limit_is_from_a_second_to_a_day(seconds: str) -> None:
    assert job(f"timeoutSeconds: {seconds}").timeout == timedelta(seconds=int(seconds))


def test_a_number_in_quotes_is_text_as_a_boolean_in_quotes_is() -> None:
    for line in ('timeoutSeconds: "60"', "timeoutSeconds: '0'", "disabled: 'true'"):
        (problem,) = problems(line)
        assert problem.code == ("not-boolean" if "true" in line else "not-a-number")
        assert "which in quotes is text" in problem.message


def test_a_system_that_the_host_has_is_no_problem() -> None:
    lines = ("inbox: gmail:a@b.c", "allowFrom: a@b.c")
    assert job(*lines, systems=["gmail"]).triggers == job(*lines).triggers


# ---- refusals


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["cron: 0 7 * *"], [(2, 7, "cron-field-count")]),
        (["cron: 0 7 * * * *"], [(2, 17, "cron-field-count")]),
        (['cron: "0 7  32 * *"'], [(2, 13, "cron-out-of-range")]),
        (["cron: '*/90 * * * *'"], [(2, 8, "cron-step")]),
        (["cron: '0 */0 * * *'"], [(2, 10, "cron-step")]),
        (["cron: 0 0 31 2 *"], [(2, 11, "cron-never")]),
        (["cron: ０ 7 * * *"], [(2, 7, "cron-not-ascii")]),
        (["cron: '@daily'"], [(2, 8, "cron-macro")]),
        (["cron: every 30 minutes"], [(2, 7, "cron-field-count")]),
        (["cron: [0, 7]"], [(2, 7, "wrong-type")]),
        (["cron:"], [(2, 1, "value-missing")]),
        (["cron: # 0 7 * * *"], [(2, 1, "value-is-comment")]),
        (["cron: * * * * *"], [(2, 7, "unquoted-indicator")]),
        (["webhook: a b"], [(2, 10, "route-invalid")]),
        (["webhook: -a"], [(2, 10, "route-invalid")]),
        (["webhook: a/b"], [(2, 10, "route-invalid")]),
        ([f"webhook: {'a' * 101}"], [(2, 10, "route-invalid")]),
        (["webhook: [a]", "auth: no"], [(2, 10, "wrong-type"), (3, 7, "auth-unknown")]),
        (["webhook: a", "auth: GitHub"], [(3, 7, "auth-unknown")]),
        (["webhook: a", "auth: 'bearer:x'"], [(3, 14, "auth-variant")]),
        (["webhook: a", "auth: hmac"], [(3, 10, "auth-header-missing")]),
        (["webhook: a", "auth:"], [(3, 1, "value-missing")]),
        (["webhook: a", 'filter: "a==b&&c==d"'], [(3, 14, "filter-syntax")]),
        (["webhook: a", "filter: a = b"], [(3, 11, "filter-syntax")]),
        (["webhook: a", "filter: >-", "  a = b"], [(3, 9, "filter-syntax")]),
        (["webhook: a", "filter: {a: b}"], [(3, 9, "wrong-type")]),
        (["webhook: a", "method: POST"], [(3, 9, "invalid-choice")]),
        (
            ["webhook: a", "method: get", "filter: a==b"],
            [(4, 1, "filter-without-body")],
        ),
        (["webhook: a", "method: [get]", "filter: a==b"], [(3, 9, "wrong-type")]),
        (["auth: bearer"], [(2, 1, "key-without-effect")]),
        (["method: get"], [(2, 1, "key-without-effect")]),
        (["filter: a"], [(2, 1, "key-without-effect"), (2, 9, "filter-syntax")]),
        (["allowFrom: a@b.c"], [(2, 1, "key-without-effect")]),
        (["allowFrom: {}"], [(2, 1, "key-without-effect"), (2, 12, "wrong-type")]),
        (["inbox: gmail:a@b.c"], [(2, 1, "allow-from-missing")]),
        (["inbox: a@b.c", "allowFrom: a@b.c"], [(2, 8, "inbox-without-system")]),
        (["inbox: 'gmail:a'", "allowFrom: a@b.c"], [(2, 8, "inbox-invalid")]),
        (["inbox: gmail:<a@b.c>", "allowFrom: a@b.c"], [(2, 8, "inbox-invalid")]),
        (["inbox: ':a@b.c'", "allowFrom: a@b.c"], [(2, 8, "inbox-invalid")]),
        (["inbox: {gmail: a@b.c}", "allowFrom: a@b.c"], [(2, 8, "wrong-type")]),
        (["inbox: imap:a@b.c", "allowFrom:"], [(3, 1, "value-missing")]),
        (["inbox: imap:a@b.c", "allowFrom: ', ,'"], [(3, 12, "value-missing")]),
        (["inbox: imap:a@b.c", "allowFrom: []"], [(3, 12, "value-missing")]),
        (["inbox: imap:a@b.c", "allowFrom: [a@b.c, '']"], [(3, 20, "value-missing")]),
        (["inbox: imap:a@b.c", "allowFrom: [[a@b.c]]"], [(3, 13, "wrong-type")]),
        (["model: ''"], [(2, 8, "value-missing")]),
        (["timeoutSeconds: 0"], [(2, 17, "number-out-of-range")]),
        (["timeoutSeconds: 060"], [(2, 17, "not-a-number")]),
        (["timeoutSeconds: " + "9" * 5000], [(2, 17, "number-out-of-range")]),
        (["timeoutSeconds: 1.5"], [(2, 17, "not-a-number")]),
        (["timeoutSeconds: 30m"], [(2, 17, "not-a-number")]),
        (["timeoutSeconds: -1"], [(2, 17, "number-out-of-range")]),
        (["timeoutSeconds: １"], [(2, 17, "not-a-number")]),
        (["timeoutSeconds: 86401"], [(2, 17, "number-out-of-range")]),
        (["timeoutSeconds:"], [(2, 1, "value-missing")]),
        (["timeoutSeconds: [60]"], [(2, 17, "wrong-type")]),
        (["repo: github.com/acme"], [(2, 7, "repo-invalid")]),
        (["repo: https://x:y@github.com/a"], [(2, 7, "repo-credentials")]),
        (["repo: []"], [(2, 7, "wrong-type")]),
        (["disabled: maybe"], [(2, 11, "not-boolean")]),
        (["disabled: 'true'"], [(2, 11, "not-boolean")]),
        (["crom: x"], [(2, 1, "unknown-key")]),
        (["session: x"], [(2, 1, "retired-key")]),
        (["cron: 0 7 * * *", "cron: 0 8 * * *"], [(3, 1, "duplicate-key")]),
        (
            ["disabled: 1", "timeoutSeconds: x", "cron: x"],
            [(2, 11, "not-boolean"), (3, 17, "not-a-number"), (4, 7, "cron-field-count")],
        ),
    ],
)
def test_what_breaks_the_contract_is_refused_at_its_place(
    lines: list[str], expected: list[tuple[int, int, str]]
) -> None:
    found = problems(*lines)
    assert [(each.line, each.column, each.code) for each in found] == expected
    for problem in found:
        assert problem.path == PATH
        assert problem.message
        assert problem.remedy


@pytest.mark.parametrize("body", ["", "\n", " \n\t\r\n"])
def test_a_blank_prompt_is_refused(body: str) -> None:
    assert located("model: x", body=body) == [(4, 1, "prompt-blank")]


def test_an_automation_file_among_jobs_is_told_so_and_no_more() -> None:
    found = problems("automation:", "  name: x", body="")
    assert [(each.code, each.line) for each in found] == [("misplaced-key", 2)]
    assert "`automations/`" in found[0].remedy


@pytest.mark.parametrize(
    "key",
    sorted(
        {
            *AGENT_CONFIG_KEYS,
            *(name for level in (FILE, AUTOMATION, TRIGGER, STEP, INJECT) for name in level.names),
        }
    ),
)
def test_a_key_of_automation_files_says_what_a_job_has_instead(key: str) -> None:
    (problem,) = problems(f"{key}: x")
    assert problem.code == "misplaced-key"
    assert problem.remedy == JOB_INSTEAD[key]


def test_a_key_of_job_files_below_automation_is_told_so() -> None:
    text = "---\nautomation:\n  name: x\n  cron: 0 7 * * *\n---\n"
    with pytest.raises(AutomationError) as caught:
        validate_automation_content(text)
    (problem,) = [each for each in caught.value.problems if each.line == 4]
    assert (problem.code, problem.column) == ("misplaced-key", 3)
    assert "`jobs/`" in problem.remedy


def test_no_key_belongs_to_both_kinds_or_is_retired() -> None:
    assert not {*JOB_INSTEAD, *RETIRED, *JOB_GUESSED} & {*JOB_KEYS}


@pytest.mark.parametrize("key", [*JOB_GUESSED, "time_zone"])
def test_a_key_that_authors_guess_is_answered_with_what_does_it(key: str) -> None:
    (problem,) = problems(f"{key}: x")
    assert problem.code == "unknown-key"
    assert ("`cron: " if key == "schedule" else "Engine(timezone=...)") in problem.remedy


def test_a_misspelt_key_says_what_was_meant() -> None:
    (problem,) = problems("timeout_seconds: 5")
    assert "did you mean 'timeoutSeconds'" in problem.message
    (problem,) = problems("allowfrom: a@b.c")
    assert "did you mean 'allowFrom'" in problem.message


@pytest.mark.parametrize(
    "text, remedy",
    [
        ("daily at 07:05", '`cron: "5 7 * * *"`'),
        ("every 30 minutes", "automation files"),
        ("whenever", "five fields"),
    ],
)
def test_a_schedule_of_automation_files_is_told_what_to_write(text: str, remedy: str) -> None:
    (problem,) = problems(f"cron: {text}")
    assert (problem.code, problem.column) == ("cron-field-count", 7)
    assert remedy in problem.remedy


def test_an_interval_for_a_step_that_is_too_wide_is_said_to_be_for_automation_files() -> None:
    """To an automation file, the same remedy would point to the file at hand."""
    (problem,) = problems("cron: '*/90 * * * *'")
    assert problem.code == "cron-step"
    assert problem.remedy == "write `every 90 minutes` in an automation file"
    with pytest.raises(ScheduleError) as caught:
        parse_schedule("*/90 * * * *")
    assert caught.value.problem.remedy == "write `every 90 minutes`"


def test_an_address_is_suggested_as_it_was_written() -> None:
    """Not as Python would write it."""
    (problem,) = problems(r"inbox: it's\me@acme.com", "allowFrom: a@b.c")
    assert r"`gmail:it's\me@acme.com`" in problem.remedy


def test_a_bare_address_says_why_it_is_refused() -> None:
    (problem,) = problems("inbox: crm@acme.com", "allowFrom: a@b.c")
    assert "names no mail system" in problem.message
    assert "`gmail:crm@acme.com`" in problem.remedy


@pytest.mark.parametrize(
    "systems, says", [(["gmail", "imap"], "did you mean 'gmail'"), ([], "(none)")]
)
def test_a_system_that_the_host_lacks_is_refused(systems: list[str], says: str) -> None:
    lines = ("inbox: gmial:a@b.c", "allowFrom: a@b.c")
    (problem,) = problems(*lines, systems=systems)
    assert (problem.code, problem.line, problem.column) == ("inbox-system-unknown", 2, 8)
    assert says in problem.message + problem.remedy


def test_an_unusable_file_name_is_a_problem_of_the_file() -> None:
    for text in ("---\n---\nx", "no front matter"):
        with pytest.raises(AutomationError) as caught:
            validate_job_content(text, path=PurePath("jobs/two words.md"))
        assert caught.value.problems[0].code == "slug-invalid"


def test_no_secret_gets_into_a_message() -> None:
    token = "ghp_" + "a1B2" * 10
    refused = [name for name in JOB_KEYS if name not in ("model", "webhook", "allowFrom")]
    lines = [f"{name}: {token}" for name in refused]
    lines += [f"repo: https://{token}@github.com/a/b", f"'{token}': x", f"webhook: /{token}"]
    for line in lines:
        assert token not in str(problems(line))


# ---- repositories


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/acme/product.git",
        "https://git.acme.com:8443/a/b",
        "ssh://git@github.com/acme/product.git",
        "ssh://git.acme.com:22/~/x.git",
        "ssh://git@[2001:db8::1]/x.git",
        "git@github.com:acme/product.git",
        "git.acme.com:product.git",
        "file:///srv/git/product.git",
        "http://127.0.0.1:8123/product.git",
        "http://localhost/product.git",
        "http://[::1]:8123/product.git",
    ],
)
def test_an_address_of_a_repository(address: str) -> None:
    assert repo_problem(address) is None


@pytest.mark.parametrize(
    "address, code",
    [
        ("https://user:pass@github.com/a", "repo-credentials"),
        ("https://token@github.com/a", "repo-credentials"),
        ("HTTPS://x:y@github.com/a", "repo-credentials"),
        ("http://x@github.com/a", "repo-credentials"),
        ("ssh://git:pw@github.com/a", "repo-credentials"),
        ("git:pw@github.com:a", "repo-credentials"),
        ("http://github.com/a", "repo-invalid"),
        ("http://127.0.0.1.evil.example/a", "repo-invalid"),
        ("http://localhost.evil.example/a", "repo-invalid"),
        ("git://github.com/a", "repo-invalid"),
        (f"{'g' * 5000}://github.com/a", "repo-invalid"),
        ("ext::sh -c x", "repo-invalid"),
        ("-oProxyCommand=x", "repo-invalid"),
        ("--upload-pack=x", "repo-invalid"),
        ("ssh://-oProxyCommand=x/a", "repo-invalid"),
        ("ssh://-x@host/a", "repo-invalid"),
        ("-x@host:a", "repo-invalid"),
        ("host:-x", "repo-invalid"),
        ("file://host/a", "repo-invalid"),
        ("file:///", "repo-invalid"),
        ("/srv/git/a", "repo-invalid"),
        ("../a", "repo-invalid"),
        ("C:\\a b", "repo-invalid"),
        ("https://github.com", "repo-invalid"),
        ("https://github.com/a b", "repo-invalid"),
        ("https://github.com/a?access_token=x", "repo-invalid"),
        ("https://github.com/a#main", "repo-invalid"),
        ("https://github.com/a\n", "repo-invalid"),
        ("https:///a", "repo-invalid"),
        ("", "repo-invalid"),
    ],
)
def test_no_address_of_a_repository(address: str, code: str) -> None:
    problem = repo_problem(address)
    assert problem is not None
    assert problem.code == code
    assert problem.remedy
    assert len(problem.message) < 200
    assert "pass" not in problem.message.replace("password", "")


# ---- any text


@given(st.text() | st.binary())
def test_any_text_is_a_job_or_an_automation_error(text: str | bytes) -> None:
    try:
        read = validate_job_content(text)
    except AutomationError:
        return
    assert read.steps[0].prompt.strip()


values = st.text("ab:@.,*/'\"[]{}|>&!#%-=~ 01\n", max_size=20)


@given(st.dictionaries(st.sampled_from([*JOB_KEYS, "automation", "x"]), values), st.text())
def test_any_values_are_read_or_refused_in_file_order(lines: dict[str, str], body: str) -> None:
    text = "".join(f"{key}: {value}\n" for key, value in lines.items())
    try:
        read = validate_job_content(f"---\n{text}---\n{body}")
    except AutomationError as error:
        found = error.problems
    else:
        assert read.kind == "job"
        assert len(read.triggers) <= 3
        return
    places = [(each.line or 0, each.column or 0) for each in found]
    assert places == sorted(places)


# ---- the vocabulary


def test_the_keys_are_those_of_the_contract() -> None:
    contract = "cron webhook auth filter method inbox allowFrom model timeoutSeconds repo disabled"
    assert tuple(contract.split()) == JOB_KEYS
    assert not any(key.required for key in JOB.keys)


def test_the_schema_of_a_job_follows_the_table() -> None:
    schema = json_schema("job")
    assert schema["title"] == "drumbeat job file, front matter"
    assert schema["additionalProperties"] is False
    assert schema["required"] == []
    assert tuple(schema["properties"]) == JOB_KEYS
    properties = schema["properties"]
    assert properties["disabled"]["default"] is False
    assert properties["method"]["enum"] == ["post", "get"]
    assert properties["timeoutSeconds"]["type"] == "integer"
    assert properties["timeoutSeconds"]["minimum"] == 1
    assert properties["timeoutSeconds"]["maximum"] == 86_400
    assert properties["allowFrom"]["minItems"] == 1
    assert json_schema() == json_schema("automation") != schema


@pytest.mark.parametrize(
    "key, good, bad",
    [
        ("auth", [*AUTH_SCHEMES, "hmac:X-Sig"], ["hmac", "none", "hmac:", "basic:x"]),
        ("webhook", ["a", "deploy-check"], ["", "-a", "a b", "a" * 101]),
        ("inbox", ["gmail:a@b.c"], ["a@b.c", "gmail:a"]),
        ("allowFrom", ["a"], ["", " "]),
    ],
)
def test_the_patterns_of_the_schema_agree_with_the_reader(
    key: str, good: list[str], bad: list[str]
) -> None:
    pattern = re.compile(json_schema("job")["properties"][key]["pattern"])
    assert [text for text in good if not pattern.search(text)] == []
    assert [text for text in bad if pattern.search(text)] == []


def test_auth_names_each_scheme() -> None:
    assert len(AUTH_SCHEMES) == 6
    remedy = next(key.remedy for key in JOB.keys if key.name == "auth")
    for scheme in AUTH_SCHEMES:
        assert re.fullmatch(AUTH, scheme)
        assert scheme in remedy


def test_the_documented_table_of_keys_is_the_vocabulary() -> None:
    """Key, default and values, in the order of the vocabulary."""
    section = DOCUMENT.read_text(encoding="utf-8").split("\n## Keys\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [cells[:2] for cells in rows] == [
        [f"`{key.name}`", "" if key.default is None else f"`{key.default}`"] for key in JOB.keys
    ]
    pairs = [
        (choice, cells[2])
        for key, cells in zip(JOB.keys, rows, strict=True)
        for choice in key.choices
    ]
    assert [choice for choice, _ in pairs] == ["post", "get"]
    for choice, cell in pairs:
        assert f"`{choice}`" in cell


def test_every_scheme_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [scheme for scheme in AUTH_SCHEMES if f"| `{scheme}`" not in text] == []
