"""The page at which a person asks the agent: one form, no script, nothing from elsewhere."""

from base64 import b64encode
from hashlib import sha256
from html import escape

from starlette.responses import HTMLResponse

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
label { display: block; font-weight: 600; margin-top: 1rem; }
textarea, input { box-sizing: border-box; width: 100%; font: inherit; padding: .5rem; }
button { font: inherit; margin-top: 1rem; padding: .5rem 1.5rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; padding: 1rem;
  border: 1px solid; border-radius: .3rem; }
"""
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer` a browser would not say that the form is this page's own.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def page(
    *,
    question: str = "",
    profile: str = "",
    answer: str | None = None,
    trouble: str | None = None,
    status: int = 200,
) -> HTMLResponse:
    """The page, with what was asked and what came of it; every text is escaped.

    Args:
        question: what stands in the form.
        profile: the same.
        answer: what the agent said.
        trouble: why there is no answer.
        status: of the response.
    """
    parts = []
    if answer is not None:
        parts.append(f'<h2>Answer</h2>\n<pre id="answer">{_text(answer)}</pre>')
    if trouble is not None:
        parts.append(f'<p id="trouble" role="alert">{_text(trouble)}</p>')
    shown = "\n".join(parts)
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ask the agent</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Ask the agent</h1>
{shown}
<form method="post">
<label for="question">Question</label>
<textarea id="question" name="question" rows="6" required>
{_text(question)}</textarea>
<label for="profile">Profile (may stay empty)</label>
<input id="profile" name="profile" value="{_text(profile)}" autocomplete="off">
<button type="submit">Ask</button>
</form>
<p>The answer may take minutes; the page waits for it. Nothing of it is recorded.</p>
</main>
</body>
</html>
"""
    return HTMLResponse(html, status_code=status, headers=_HEADERS)


def _text(text: str) -> str:
    # No browser shows half of a surrogate pair, and no encoding holds one.
    return escape(text.encode("utf-8", "backslashreplace").decode(), quote=True)
