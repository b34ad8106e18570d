"""Rows of words as a table in text."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(lines: Sequence[Sequence[str]], *, words: int = 1, markdown: bool = False) -> str:
    """A table with its head in the first line.

    Args:
        lines: the cells, all lines as many.
        words: columns from the left that hold words; the others hold numbers and stand to the right.
        markdown: with bars and a rule; else columns of fixed width.
    """
    if markdown:
        head, *body = lines
        rule = ["---"] * words + ["---:"] * (len(head) - words)
        return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
