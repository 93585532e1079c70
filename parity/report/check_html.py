"""A report of `parity.check` for a notebook."""

from __future__ import annotations

import html as escaping
from typing import TYPE_CHECKING

from parity.report import check_text

if TYPE_CHECKING:
    from parity.check_report import CheckReport


def html(report: CheckReport) -> str:
    """Return a report as one element, its verdict in colour."""
    head, *rest = check_text.text(report).split("\n")
    colour = "#1a7f37" if report.passed else "#cf222e"
    body = escaping.escape("\n".join(rest))
    bold = f'<b style="color:{colour}">{escaping.escape(head)}</b>'
    return f'<pre style="line-height:1.4">{bold}\n{body}</pre>'
